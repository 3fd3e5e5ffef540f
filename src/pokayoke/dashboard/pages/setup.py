"""Set-up: what guards this place, and what is weaker here than the documentation says.

In: the store, an examination by the caller, the configuration.
Out: one page.
Never: a guard that is said to work because nothing was seen of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pokayoke.dashboard.desk import PageDesk
from pokayoke.dashboard.trace_index import TracedCall
from pokayoke.errors import PokayokeError

_LATEST: Final = 200


def show_setup(desk: PageDesk, request: Request, problem: str = "") -> Response:
    """Show store, trace, configuration, guards and clients."""
    sources = desk.sources
    clients, client_problem = [], ""
    if sources.list_clients is not None:
        try:
            clients = sources.list_clients()
        except (PokayokeError, OSError) as error:
            client_problem = str(error)
    index = sources.trace
    figures = index.figures() if index is not None else {}
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
        files=index.files() if index is not None else [],
        mode=desk.mode,
        monitored=sum(found.get("monitored", Counter()).total() for found in figures.values()),
        servers=describe_servers(index.reports(_LATEST, kind="server")) if index is not None else [],
        report=desk.report,
        can_examine=sources.examine is not None,
        clients=clients,
        client_problem=client_problem,
        problem=problem,
    )


class GatewayServer(msgspec.Struct, frozen=True):
    """A server behind a gateway, as the trace tells.

    Args:
        name: its name.
        is_up: whether it runs, as far as was written.
        at: wall-clock second since which.
        said: why, or what it offers.
        ends: how often it ended in the latest events.
        problem: its latest problem, or "".
    """

    name: str
    is_up: bool
    at: float
    said: str
    ends: int
    problem: str


def describe_servers(events: Sequence[TracedCall]) -> list[GatewayServer]:
    """Return each server that events are about, by name.

    Args:
        events: of the kind `server`, the latest first.
    """
    by_name: dict[str, list[TracedCall]] = {}
    for one in events:
        by_name.setdefault(one.tool, []).append(one)
    return [
        GatewayServer(
            name,
            found[0].ok is True,
            found[0].ts,
            found[0].code,
            sum(one.ok is False for one in found),
            next((one.code for one in found if one.ok is False), ""),
        )
        for name, found in sorted(by_name.items())
    ]


def examine_setup(desk: PageDesk, request: Request) -> Response:
    """Fire every guard now, and show what it did."""
    if desk.sources.examine is not None:
        try:
            desk.report = desk.sources.examine()
        except PokayokeError as error:
            return show_setup(desk, request, str(error))
    return desk.redirect(request, "/setup")
