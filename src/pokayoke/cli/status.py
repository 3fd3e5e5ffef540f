"""`pokayoke status`: which servers of a client's configuration the gateway stands in front of."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from pokayoke.cli.client_config import find_configuration, known_paths
from pokayoke.cli.options import JsonOption
from pokayoke.cli.output import as_json, print_data, print_listing, print_message
from pokayoke.errors import ConfigurationError
from pokayoke.gateway.clients.config_file import ConfigFile
from pokayoke.gateway.clients.installation import ServerState, describe_servers
from pokayoke.gateway.clients.locations import CLIENTS, PROJECT_FILES

_MARKS: Final = {"wrapped": "ok", "broken": "bad", "not wrapped": "note", "remote": "note", "unusable": "note"}


def status(
    config: Annotated[
        str | None,
        typer.Argument(
            metavar="[CONFIG]", help="A configuration, or the name of a client; every one found if not given."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show which servers of MCP clients are guarded.

    pokayoke status

    pokayoke status cursor

    pokayoke status .vscode/mcp.json --json

    Without CONFIG, it looks at the files of well-known clients in your folder, and at those of the project here.
    A server is `wrapped` by `pokayoke install`, `wrapped by hand`, `not wrapped`, `remote` (the client reaches it by
    an address), `unusable` (it has no command), or `broken`: then the last column says why.
    Exit code 0 if every server is guarded, 1 if one is not, 2 if a configuration cannot be read.
    """
    if config is not None:
        paths = [find_configuration(config)[0]]
    else:
        known = [path for client in CLIENTS for path in known_paths(client)]
        paths = [path for path in (*known, *map(Path, PROJECT_FILES)) if path.is_file()]
        if not paths:
            raise ConfigurationError(
                "no configuration of a well-known client was found here or in your folder: name one"
            )
    found: list[tuple[Path, ServerState]] = []
    for path in paths:
        try:
            found += [(path, state) for state in describe_servers(ConfigFile(path).parse(), shutil.which)]
        except ConfigurationError as error:
            if config is not None:
                raise
            print_message(f"skipped: {error}")
    if json:
        for path, state in found:
            print_data(as_json(_state_values(path, state)))
    else:
        _print_states(found)
    if any(not state.is_guarded for _, state in found):
        raise typer.Exit(1)


def _state_values(path: Path, state: ServerState) -> dict[str, Any]:
    gateway = state.wrapped.gateway if state.wrapped else None
    return {
        "config": str(path),
        "server": state.server.name,
        "section": state.server.section,
        "state": state.state,
        "detail": state.detail,
        "command": state.wrapped.command if state.wrapped else state.words,
        "launcher": gateway.launcher if gateway else None,
        "client": gateway.client if gateway else None,
        "store": gateway.store if gateway else None,
        "scope": gateway.scope if gateway else None,
        "options": gateway.more if gateway else None,
    }


def _print_states(found: list[tuple[Path, ServerState]]) -> None:
    heads = ("server", "state", "wrapped by", "store", "config", "detail")
    rows = [
        (
            state.server.name,
            state.state,
            shlex.join(state.wrapped.gateway.launcher) if state.wrapped else "-",
            (state.wrapped.gateway.store if state.wrapped else None) or "-",
            f"{path}: {state.server.section}",
            state.detail,
        )
        for path, state in found
    ]
    print_listing(heads, rows, [_MARKS.get(state.state, "ok") for _, state in found])
