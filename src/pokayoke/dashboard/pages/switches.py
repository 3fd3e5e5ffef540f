"""The kill switch, in two steps: what it will do, and then a reason.

In: a scope.
Out: a page that says the effect before the click; a flipped switch.
Never: a switch that is flipped by opening a page.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pokayoke.core.state.kill_switch import ALL_TOOLS
from pokayoke.dashboard.desk import PageDesk, page_state
from pokayoke.dashboard.pages.now import ToolHealth, describe_tools
from pokayoke.errors import ConfigurationError, PokayokeError
from pokayoke.runtime.decisions import turn_writes


def show_switch(desk: PageDesk, request: Request) -> Response:
    """Show what turning a switch will do."""
    return _show_form(desk, request, request.query_params.get("scope", ALL_TOOLS)[:200])


def turn_switch(desk: PageDesk, request: Request) -> Response:
    """Turn writes off or on, in the name of whoever signed in."""
    state = page_state(request)
    assert state.visitor is not None, "the gate lets nobody else decide"
    scope, mode = state.form.get("scope", ""), state.form.get("mode", "")
    if mode not in ("open", "closed"):
        return _show_form(desk, request, scope, problem="Say whether writes go off or on.", status=422)
    try:
        reason = state.form.get("reason", "").strip()
        turn_writes(
            desk.store,
            scope,
            "open" if mode == "open" else "closed",
            by=state.visitor.name,
            reason=reason,
            now=desk.now(),
        )
    except ConfigurationError as error:
        return _show_form(desk, request, scope, problem=f"{str(error)[:1].upper()}{str(error)[1:]}.", status=422)
    return desk.redirect(request, "/")


def _show_form(desk: PageDesk, request: Request, scope: str, *, problem: str = "", status: int = 200) -> Response:
    switches, rates = desk.reads.board()
    health = describe_tools(switches, rates, desk.now())
    writers: tuple[str, ...] = ()
    if desk.sources.steps is not None and scope != ALL_TOOLS:
        try:
            writers = desk.sources.steps.find_writers(scope)
        except PokayokeError as error:
            problem = problem or f"The locked contracts cannot be read: {error}."
    found = next((one for one in health if one.tool == scope), ToolHealth(scope, "closed", 0, 0, None))
    return desk.render(
        request,
        "switch",
        status=status,
        title="Kill switch",
        pulse=desk.read_pulse(),
        tool=found,
        writers=writers,
        is_known=scope == ALL_TOOLS or any(one.tool == scope for one in health),
        is_all=scope == ALL_TOOLS,
        problem=problem,
    )
