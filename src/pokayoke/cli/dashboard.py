"""`pokayoke dashboard`: the pages of operators, served on this machine."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer

from pokayoke.cli.options import StoreOption, current_time, open_store_option
from pokayoke.cli.output import escape_text, print_data, print_message
from pokayoke.errors import ConfigurationError

if TYPE_CHECKING:
    from pokayoke.dashboard.desk import SetupReport, Sources

_CONFIG: Final = Path("pokayoke.yaml")
_LOCK: Final = Path("contracts.lock")


def dashboard(
    store: StoreOption = None,
    trace: Annotated[
        str | None, typer.Option("--trace", metavar="FILE", help="A trace file, of which runs and calls are shown.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 takes any free one.")] = 8788,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST", help="The address to listen on; this machine alone by default.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="A host name under which it is opened; may be repeated.")
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", help="Configuration file; pokayoke.yaml if it is there.")
    ] = None,
    lock: Annotated[str | None, typer.Option(help="Lock of contracts; contracts.lock if it is there.")] = None,
    approved: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The --approved of a gateway: shows what waits, and approves it."),
    ] = None,
    reports: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Folder with the HTML reports of `pokayoke replay`.")
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Whoever opens the link may look, not decide.")
    ] = False,
) -> None:
    """Serve the pages of operators.

    pokayoke dashboard --store sqlite:///ledger.db --trace trace.jsonl

    It prints a link that works once: open it and say who you are, since every decision is recorded with a name.
    When it was used, the next one is printed. It keeps nothing but an index of the trace, in your cache folder.
    With POKAYOKE_WEBHOOK_SECRET set, programs may list and answer questions too, as with `pokayoke approvals serve`.
    POKAYOKE_STORE replaces --store. To mount it behind a login of your own, see the guide on the dashboard.
    """
    from pokayoke.dashboard.access import TokenAccess  # noqa: PLC0415 - an extra
    from pokayoke.dashboard.application import app  # noqa: PLC0415 - as above
    from pokayoke.dashboard.serve import is_local, listen_on, serve  # noqa: PLC0415 - as above
    from pokayoke.runtime.approvals.signature import SECRET, secrets_from_environment  # noqa: PLC0415 - loaded on use

    secrets = secrets_from_environment() if os.environ.get(SECRET) else ()
    used_config = Path(config) if config is not None else _CONFIG if _CONFIG.exists() else None
    used_lock = Path(lock) if lock is not None else _LOCK if _LOCK.exists() else None
    if reports is not None and not Path(reports).is_dir():
        raise ConfigurationError(f"--reports {reports!r} is no folder")
    with open_store_option(store) as ledger, listen_on(f"{listen or '127.0.0.1'}:{port}", "--port") as listening:
        hosts = _name_hosts(listening, allow_host or [])
        access = TokenAccess(
            hosts,
            role="look" if read_only else "decide",
            cookie=f"pokayoke-{listening.getsockname()[1]}",
            announce=_LinkPrinter(listening, hosts).print_link,
        )
        sources = _open_sources(store or "", trace, reports, used_config, used_lock)
        pages = app(ledger, access=access, approved=approved, config=used_config, sources=sources, secrets=secrets)
        if not is_local(listening):
            print_message(f"warning: {listen} is not this machine alone; cookies and pages go there without TLS")
        serve(pages, listening, ready=access.offer_link)


class _LinkPrinter:
    """Prints the first link as data, and those after it as messages."""

    def __init__(self, listening: socket.socket, hosts: tuple[str, ...]) -> None:
        from pokayoke.dashboard.serve import address_of, is_local  # noqa: PLC0415 - an extra

        self._place = address_of(listening) if is_local(listening) else f"{hosts[0]}:{listening.getsockname()[1]}"
        self._is_first = True

    def print_link(self, token: str) -> None:
        """Print the link of a token."""
        link = f"http://{self._place}/enter?token={token}"
        if self._is_first:
            print_data(escape_text(link))
            sys.stdout.flush()  # a reader of a pipe would otherwise wait for the life of the server
        else:
            print_message(f"the link was used; the next one: {link}")
        self._is_first = False


def _name_hosts(listening: socket.socket, allowed: list[str]) -> tuple[str, ...]:
    """Return the host names under which it may be opened.

    Raises:
        ConfigurationError: other machines can reach it, and no name is allowed.
    """
    from pokayoke.dashboard.access import LOOPBACK_HOSTS  # noqa: PLC0415 - an extra
    from pokayoke.dashboard.serve import is_local  # noqa: PLC0415 - as above

    hosts = (*allowed, *(LOOPBACK_HOSTS if is_local(listening) else ()))
    if not hosts:
        raise ConfigurationError("other machines can reach this address: name the host they use with --allow-host")
    return hosts


def _open_sources(
    store: str, trace: str | None, reports: str | None, config: Path | None, lock: Path | None
) -> Sources:
    from pokayoke.cli.contracts.page_steps import LockSteps  # noqa: PLC0415 - an extra
    from pokayoke.dashboard.desk import Sources  # noqa: PLC0415 - as above
    from pokayoke.dashboard.trace_index import TraceIndex  # noqa: PLC0415 - as above

    return Sources(
        store_name=_name_store(store),
        trace=None if trace is None else TraceIndex(Path(trace)),
        reports=None if reports is None else Path(reports),
        lock=lock,
        steps=None if lock is None else LockSteps(lock, None if trace is None else Path(trace)),
        config=config,
        examine=lambda: _examine(config, store, lock),
        list_clients=_list_clients,
    )


def _name_store(url: str) -> str:
    """Return a store's URL without a password or other secrets of its query."""
    parts = urlsplit(url)
    if parts.scheme.startswith("sqlite"):
        return url
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def _examine(config: Path | None, store: str | None, lock: Path | None) -> SetupReport:
    from pokayoke.cli.doctor import examine_setup  # noqa: PLC0415 - when it is asked for
    from pokayoke.dashboard.desk import SetupReport  # noqa: PLC0415 - as above

    found = examine_setup(
        [], config=None if config is None else str(config), store=store, lock=None if lock is None else str(lock)
    )
    return SetupReport(
        current_time(),
        tuple(
            (one.name, one.against if one.fired else f"{one.against}: {one.instead}", one.fired) for one in found.probes
        ),
        tuple((one.code, one.where, one.message) for one in found.problems),
        tuple(found.notes),
    )


def _list_clients() -> list[tuple[str, str, str, str]]:
    import shutil  # noqa: PLC0415 - as above

    from pokayoke.cli.client_config import known_paths  # noqa: PLC0415 - as above
    from pokayoke.gateway.clients.config_file import ConfigFile  # noqa: PLC0415 - as above
    from pokayoke.gateway.clients.installation import describe_servers  # noqa: PLC0415 - as above
    from pokayoke.gateway.clients.locations import CLIENTS, PROJECT_FILES  # noqa: PLC0415 - as above

    found: list[tuple[str, str, str, str]] = []
    for path in (*(path for client in CLIENTS for path in known_paths(client)), *map(Path, PROJECT_FILES)):
        if not path.is_file():
            continue
        try:
            states = describe_servers(ConfigFile(path).parse(), shutil.which)
        except ConfigurationError as error:
            found.append((str(path), "–", "unreadable", str(error)))
        else:
            found += [(str(path), one.server.name, one.state, one.detail) for one in states]
    return found
