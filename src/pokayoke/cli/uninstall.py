"""`pokayoke uninstall`: takes the gateway away from the servers of a client's configuration."""

from __future__ import annotations

import shutil

import typer

from pokayoke.cli.client_config import (
    ConfigArgument,
    DryRunOption,
    ServersOption,
    YesOption,
    confirm_changes,
    find_configuration,
    print_change,
    print_left,
    select_changes,
)
from pokayoke.cli.options import JsonOption
from pokayoke.cli.output import format_count, print_message
from pokayoke.gateway.clients.config_file import ConfigFile
from pokayoke.gateway.clients.installation import apply_changes, describe_servers, find_installed_gateway, plan_removal


def uninstall(
    config: ConfigArgument,
    servers: ServersOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Take back what `pokayoke install` has done.

    pokayoke uninstall cursor --dry-run

    pokayoke uninstall claude-desktop

    pokayoke uninstall .vscode/mcp.json --server files --yes

    If nobody has edited the file since, it becomes what it was, byte for byte, and the backup is deleted. Otherwise
    only the gateway's words are taken away, and every edit stays. A server that was wrapped by hand stays as it is.
    Exit code 0 if no server is wrapped by an installation any more, 1 if one is, 2 if nothing could be done.
    """
    path, _ = find_configuration(config)
    file = ConfigFile(path)
    found = file.parse()
    changes = select_changes(plan_removal(found), servers or [], [server.name for server in found.servers])
    for change in changes:
        print_change(change, json=json)
    for state in describe_servers(found, shutil.which):
        if state.wrapped is not None and state.wrapped.gateway.is_installed and not state.wrapped.command:
            print_left(state, json=json)
    if not changes:
        print_message("no server can be unwrapped; nothing was changed")
    elif dry_run:
        print_message("dry run: nothing was written")
    else:
        file.require_writable()
        wanted = confirm_changes(changes, yes=yes)
        if wanted:
            file.replace(apply_changes(found, wanted, file.parse), back_up=False)
            kept = "It is what it was before" if file.drop_backup() else f"Backup: {file.backup}"
            print_message(f"wrote {path}: {format_count(len(wanted), 'server')}. {kept}. Restart the client")
        else:
            print_message("nothing was written")
    if not dry_run and find_installed_gateway(file.parse()) is not None:
        raise typer.Exit(1)
