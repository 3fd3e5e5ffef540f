"""Now: is a person needed, where is the risk, what to open next.

In: the overview of the store, its switches and rates, its latest audit lines.
Out: the first page.
Never: a number without the list behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pokayoke.core.state.kill_switch import ALL_TOOLS, TRIP_SHARE, OutputRate, Switch, mode_at
from pokayoke.dashboard.desk import PageDesk, page_state
from pokayoke.stores.lists import AuditFilter, Pulse

_LINES = 12
_TOOLS = 8
_POINTS = 12
_VISIT_SECONDS = 600.0
"""A page that was not asked for so long was not looked at."""


class ToolHealth(msgspec.Struct, frozen=True):
    """One tool beside its switch.

    Args:
        tool: its name, or `*`.
        mode: of its switch at this moment.
        outputs: how many of its latest outputs count.
        invalid: how many of those were invalid.
        switch: its switch, or None if it was never flipped.
        points: the share of invalid outputs over its latest outputs.
    """

    tool: str
    mode: str
    outputs: int
    invalid: int
    switch: Switch | None
    points: tuple[float, ...] = ()

    @property
    def share(self) -> float | None:
        """The share of invalid outputs; None without outputs."""
        return self.invalid / self.outputs if self.outputs else None


def show_now(desk: PageDesk, request: Request) -> Response:
    """Show the first page."""
    at = desk.now()
    overview, (switches, rates) = desk.reads.overview(at), desk.reads.board()
    lines, since = desk.reads.audit_lines(AuditFilter(limit=_LINES)), _read_visit(request, at)
    index = desk.sources.trace
    health = describe_tools(switches, rates, at)
    answer = desk.render(
        request,
        "now",
        title="Now",
        pulse=Pulse(overview.questions.now, overview.doubts.now, ()),
        overview=overview,
        tools=[one for one in health if one.invalid or one.mode != "closed"][:_TOOLS],
        known_tools=len(health),
        open_switches=[one for one in health if one.mode != "closed"],
        worst=max((one for one in health if one.share is not None), key=lambda one: one.share or 0.0, default=None),
        threshold=TRIP_SHARE,
        all_tools=ALL_TOOLS,
        lines=lines,
        since=since,
        reports=index.reports(_LINES) if index else [],
        files=index.files()[:1] if index else None,
        latest=index.latest() if index else None,
    )
    answer.set_cookie(
        _cookie_name(request),
        f"{since or 0.0!r}~{at!r}",
        path=request.scope.get("root_path", "") or "/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


def _read_visit(request: Request, at: float) -> float | None:
    """Return when the visitor's browser showed this page last before the present visit, or None if it never did."""
    since, _, last = page_state(request).cookies.get(_cookie_name(request), "").partition("~")
    try:
        before, latest = float(since), float(last)
    except ValueError:
        return None
    found = latest if at - latest > _VISIT_SECONDS else before
    return found if 0.0 < found <= at else None


def _cookie_name(request: Request) -> str:
    """Return a name of this server's own: a browser sends the cookies of one port to all of them."""
    return f"pokayoke-seen-{request.url.port or ''}"


def describe_tools(switches: Sequence[Switch], rates: Sequence[OutputRate], at: float) -> list[ToolHealth]:
    """Return every tool with a switch or an output: open switches first, then by the share of invalid outputs."""
    by_scope = {switch.scope: switch for switch in switches}
    by_tool = {rate.tool: rate for rate in rates}
    found = [
        ToolHealth(
            name,
            mode_at(by_scope[name], at) if name in by_scope else "closed",
            len(rate.recent) if (rate := by_tool.get(name)) else 0,
            sum(not valid for _, valid in rate.recent) if rate else 0,
            by_scope.get(name),
            _share_points(rate) if rate else (),
        )
        for name in by_scope.keys() | by_tool.keys()
    ]
    return sorted(found, key=lambda one: (one.mode == "closed", -(one.share or 0.0), one.tool))


def _share_points(rate: OutputRate) -> tuple[float, ...]:
    """Return the share of invalid outputs after each of some of the latest outputs."""
    flags = [0 if valid else 1 for _, valid in rate.recent]
    step = max(1, len(flags) // _POINTS)
    return tuple(sum(flags[:end]) / end for end in range(step, len(flags) + 1, step))
