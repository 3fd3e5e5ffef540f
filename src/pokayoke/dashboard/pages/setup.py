"""Set-up: what guards this place, and what is weaker here than the documentation says.

In: the store, an examination by the caller, the configuration.
Out: one page.
Never: a guard that is said to work because nothing was seen of it.
"""

from __future__ import annotations

from importlib import metadata

from starlette.requests import Request
from starlette.responses import Response

from pokayoke.dashboard.desk import PageDesk
from pokayoke.errors import PokayokeError


def show_setup(desk: PageDesk, request: Request, problem: str = "") -> Response:
    """Show store, trace, configuration, guards and clients."""
    sources = desk.sources
    clients, client_problem = [], ""
    if sources.list_clients is not None:
        try:
            clients = sources.list_clients()
        except (PokayokeError, OSError) as error:
            client_problem = str(error)
    return desk.render(
        request,
        "setup",
        title="Set-up",
        pulse=desk.read_pulse(),
        version=metadata.version("pokayoke"),
        kind=type(desk.store).__name__,
        ledger_id=getattr(desk.store, "ledger_id", ""),
        durable=desk.store.durable,
        sealed=desk.store.sealed,
        weaknesses=desk.store.weaknesses(),
        sources=sources,
        files=sources.trace.files() if sources.trace else [],
        report=desk.report,
        can_examine=sources.examine is not None,
        clients=clients,
        client_problem=client_problem,
        problem=problem,
    )


def examine_setup(desk: PageDesk, request: Request) -> Response:
    """Fire every guard now, and show what it did."""
    if desk.sources.examine is not None:
        try:
            desk.report = desk.sources.examine()
        except PokayokeError as error:
            return show_setup(desk, request, str(error))
    return desk.redirect(request, "/setup")
