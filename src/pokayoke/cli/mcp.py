"""`pokayoke mcp`: stands between a client and one MCP server on its standard streams."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pokayoke.cli.options import ApprovedOption, ModeOption, StoreOption, open_approved, read_guard_config
from pokayoke.errors import ConfigurationError
from pokayoke.gateway.interceptor import Interceptor
from pokayoke.gateway.listing import ListingSettings
from pokayoke.gateway.stdio.client_process import name_client
from pokayoke.gateway.stdio.conversation import ConversationSettings
from pokayoke.gateway.stdio.gateway import run_gateway
from pokayoke.runtime.guard.guard import Guard

_MEGABYTE = 1 << 20


def mcp(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="The server: a program and its words.")],
    client: Annotated[str | None, typer.Option(help="Name of the client; written by `pokayoke install`.")] = None,
    store: StoreOption = None,
    scope: Annotated[str, typer.Option(help="What the servers of one client share; with one store, one run.")] = "mcp",
    mode: ModeOption = None,
    config: Annotated[Path | None, typer.Option(help="A pokayoke.yaml.")] = None,
    contracts: Annotated[Path | None, typer.Option(help="Contracts that win over what the server lists.")] = None,
    approved: ApprovedOption = None,
    drift: Annotated[
        Literal["refuse", "serve"],
        typer.Option(help="A tool listed otherwise than approved: refuse, or serve as it was."),
    ] = "refuse",
    trust_hints: Annotated[
        bool, typer.Option("--trust-hints", help="Believe readOnlyHint and destructiveHint.")
    ] = False,
    read: Annotated[list[str] | None, typer.Option(help="A tool that changes nothing; may be repeated.")] = None,
    destructive: Annotated[list[str] | None, typer.Option(help="A tool whose effect cannot be undone.")] = None,
    untrusted: Annotated[list[str] | None, typer.Option(help="A tool whose texts are framed as data.")] = None,
    deadline: Annotated[float, typer.Option(min=0.1, help="Seconds for an answer; progress begins them anew.")] = 300.0,
    longest_line: Annotated[int, typer.Option(min=1, help="Longest message in MiB.")] = 32,
) -> None:
    """Guard an MCP server.

    pokayoke mcp -- npx -y @modelcontextprotocol/server-filesystem ~/notes

    pokayoke mcp --mode monitor --trust-hints -- uvx mcp-server-git

    pokayoke mcp --store sqlite:///effects.db --read get_current_time -- uvx mcp-server-time

    Put it in front of a server's command in the configuration of a client; `pokayoke install` does that. Every message
    passes as it came, except lists of tools, calls, and their results. Without --store, equal writes are known only as
    long as this process lives. Calls that name a run in their _meta (io.github.pokayoke/run) belong to that run.
    Exit code 2 if the server cannot be started.
    """
    del client  # says who has written the command line
    guard = Guard([], config=read_guard_config(config, mode), store=store)
    fields = _read_fields(contracts)
    for effect, names in (("read", read), ("destructive", destructive)):
        for name in names or ():
            fields[name] = {**fields.get(name, {}), "effect": effect}
    listing = ListingSettings(
        trust_hints=trust_hints,
        fields=fields,
        approved=open_approved(approved),
        drift=drift,
        deadline=deadline,
    )
    interceptor = Interceptor(guard, listing=listing, scope=f"{scope}/{name_client()}", untrusted=untrusted or ())
    settings = ConversationSettings(deadline=deadline, longest_line=longest_line * _MEGABYTE)
    gc.collect()
    gc.freeze()  # what was imported lives as long as the process: no collection needs to look at it again
    try:
        code = run_gateway(command, interceptor, settings)
    finally:
        guard.close()
    raise typer.Exit(code)


def _read_fields(path: Path | None) -> dict[str, dict[str, Any]]:
    """Return the declared fields of a file of contracts, by tool."""
    if path is None:
        return {}
    from pokayoke.runtime.config.contract_files import read_contracts  # noqa: PLC0415 - reads YAML, for who has such a file

    found: dict[str, dict[str, Any]] = {}
    for one in read_contracts(path):
        if one.contract.name in found:
            raise ConfigurationError(f"{path}: {one.contract.name} stands there twice")
        found[one.contract.name] = {key: value for key, value in one.fields.items() if key != "name"}
    return found
