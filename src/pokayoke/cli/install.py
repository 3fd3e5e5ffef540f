"""`pokayoke install`: puts the gateway in front of the servers of a client's configuration."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from pokayoke import __version__
from pokayoke.cli.client_config import (
    ConfigArgument,
    DryRunOption,
    ServersOption,
    YesOption,
    confirm_changes,
    current_system,
    find_configuration,
    print_change,
    print_left,
    select_changes,
)
from pokayoke.cli.options import JsonOption, StoreOption, open_store_option
from pokayoke.cli.output import format_count, print_message
from pokayoke.errors import ConfigurationError
from pokayoke.gateway.clients.config_file import ClientConfig, ConfigFile
from pokayoke.gateway.clients.installation import (
    ServerChange,
    ServerState,
    apply_changes,
    describe_servers,
    find_installed_gateway,
    plan_installation,
)
from pokayoke.gateway.clients.launcher import check_launcher, find_launcher, find_package
from pokayoke.gateway.clients.locations import data_folder
from pokayoke.gateway.clients.wrapping import Gateway

_SQLITE: Final = "sqlite:///"


def install(
    config: ConfigArgument,
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTIONS]", help="Further options of `pokayoke mcp`.")
    ] = None,
    servers: ServersOption = None,
    store: StoreOption = None,
    client: Annotated[str | None, typer.Option(help="Name of the client; its servers share it.")] = None,
    scope: Annotated[
        str | None, typer.Option(help="Scope of the client's effects; the client's name if not given.")
    ] = None,
    launcher: Annotated[
        str | None,
        typer.Option(envvar="POKAYOKE_LAUNCHER", show_envvar=True, help="What starts pokayoke, as a line of a shell."),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Guard the servers of an MCP client.

    pokayoke install cursor --dry-run

    pokayoke install claude-desktop

    pokayoke install .vscode/mcp.json --store postgresql://app@db.example/app

    pokayoke install codex --launcher 'docker run --rm -i example/pokayoke'

    Each change is shown and asked about. Only the commands change; all else in the file stays as it is, and a backup is
    written beside it. All servers share one store, so an invalid answer of one holds back writes of another. Run it
    again to wrap servers that were added, and to repair those that were edited or whose pokayoke has moved. A server
    that the client reaches by an address is not wrapped. `pokayoke uninstall` takes everything back.
    Exit code 0 if every server is guarded, 1 if one is not, 2 if nothing could be done. A dry run ends with 0.
    """
    path, name = find_configuration(config)
    file = ConfigFile(path)
    found = file.parse()
    given = Gateway(_choose_launcher(launcher), client, store, scope, tuple(options or ()))
    gateway = _choose_gateway(given, find_installed_gateway(found), name)
    changes = select_changes(
        plan_installation(found, gateway, keeps_options=not options),
        servers or [],
        [server.name for server in found.servers],
    )
    for change in changes:
        print_change(change, json=json)
    for state in describe_servers(found, shutil.which):
        if _needs_a_person(state):
            print_left(state, json=json)
    if not changes:
        print_message("there is nothing to wrap or repair; nothing was changed")
    elif dry_run:
        print_message("dry run: nothing was written")
    else:
        _make_changes(file, found, changes, gateway, yes=yes)
    if not dry_run and any(not state.is_guarded for state in describe_servers(file.parse(), shutil.which)):
        raise typer.Exit(1)


def _make_changes(
    file: ConfigFile, found: ClientConfig, changes: list[ServerChange], gateway: Gateway, *, yes: bool
) -> None:
    check_launcher(gateway.launcher, os.environ)
    file.require_writable()
    wanted = confirm_changes(changes, yes=yes)
    if not wanted:
        print_message("nothing was written")
        return
    text = apply_changes(found, wanted, file.parse)
    installed = find_installed_gateway(found)
    # A ledger that was in use is never created anew: a forgotten ledger is a second effect.
    _open_store(gateway.store or "", create=installed is None or installed.store != gateway.store)
    file.replace(text, back_up=installed is None)
    print_message(
        f"wrote {file.path}: {format_count(len(wanted), 'server')}. Backup: {file.backup}. Restart the client"
    )


def _needs_a_person(state: ServerState) -> bool:
    """Whether an installation passes a server over."""
    if state.state == "broken":
        return state.wrapped is None or not state.wrapped.command
    return state.state in ("remote", "unusable", "wrapped by hand")


def _choose_launcher(given: str | None) -> tuple[str, ...]:
    if given is None:
        return find_launcher(sys.argv[0], sys.executable, find_package(__version__), os.environ, shutil.which)
    try:
        # A backslash is a part of the path on Windows, and quotes stay around the words there.
        words = [word.strip('"') for word in shlex.split(given, posix=os.name != "nt")]
    except ValueError as error:
        raise ConfigurationError(f"--launcher {given!r} is not a line of a shell: {error}") from error
    program = shutil.which(words[0]) if words else None
    if program is None:
        raise ConfigurationError(f"--launcher {given!r}: there is no such program")
    return (os.path.abspath(program), *words[1:])  # noqa: PTH100 - a link stays one


def _choose_gateway(given: Gateway, installed: Gateway | None, name: str) -> Gateway:
    """Return the gateway to install: what is given, else what other servers of the client have, else a default."""
    if given.more and not given.more[0].startswith("-"):
        raise ConfigurationError(
            f"{given.more[0]!r} is not an option of `pokayoke mcp`. Name one configuration at a time"
        )
    client = given.client or (installed and installed.client) or name
    gateway = Gateway(
        given.launcher,
        client,
        _absolute_store(given.store or (installed and installed.store) or _default_store(client)),
        given.scope or (installed and installed.scope) or client,
        given.more,
    )
    for word in gateway.words:
        if "${" in word:
            raise ConfigurationError(f"{word!r} holds '${{', which clients replace in commands. Choose another text")
    return gateway


def _default_store(client: str) -> str:
    file = f"{''.join(sign if sign.isalnum() or sign in '-_' else '-' for sign in client)}.db"
    return f"{_SQLITE}{Path(data_folder(current_system(), str(Path.home()), os.environ)) / file}"


def _absolute_store(url: str) -> str:
    """Return the URL of a store without a part that depends on where the client is started.

    Raises:
        ConfigurationError: it holds a password, which every process could read in the command line.
    """
    if url.startswith(_SQLITE):
        path, mark, query = url.removeprefix(_SQLITE).partition("?")
        return f"{_SQLITE}{os.path.abspath(path)}{mark}{query}"  # noqa: PTH100 - a link stays one
    if urlsplit(url).password is not None:
        raise ConfigurationError(
            "--store holds a password, and every process could read it in the command lines. Leave it out, and put it "
            "where the driver looks for it (PGPASSFILE)"
        )
    return url


def _open_store(url: str, *, create: bool) -> None:
    """Open the store once, so that no server finds it missing at its first write.

    Raises:
        StoreError: it cannot be used.
    """
    folder = Path(data_folder(current_system(), str(Path.home()), os.environ))
    if create and url.startswith(f"{_SQLITE}{folder}"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_store_option(url, create=create):
        pass
