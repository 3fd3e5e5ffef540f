"""`pokayoke listings`: what servers behind a gateway list otherwise than approved, and the approvals of a person."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pokayoke.cli.options import JsonOption, current_time, struct_to_dict
from pokayoke.cli.output import (
    as_json,
    escape_lines,
    escape_text,
    format_table,
    print_data,
    print_listing,
    print_message,
)
from pokayoke.core.versions.listing_changes import list_changes, promises_hash
from pokayoke.errors import ConfigurationError
from pokayoke.runtime.versions.approved_listings import WaitingListing, approve_listing, read_approved, read_waiting

_SHORT = 12

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Show tools that are listed otherwise, and approve them.

    pokayoke listings list --approved approved.json

    pokayoke listings show refund --approved approved.json

    FILE is what `pokayoke mcp` or `pokayoke gateway` runs with as --approved; `pokayoke learn --mcp --save-listing`
    makes it. A gateway that runs takes an approval over by itself. To stay with what is approved, do nothing.
    Exit codes: 0 clean, 1 findings, 2 could not run.""",
)
FileOption = Annotated[Path, typer.Option("--approved", metavar="FILE", help="The file of approved listings.")]
ToolArgument = Annotated[str, typer.Argument(metavar="TOOL", help="The tool, as clients see it.")]
ByOption = Annotated[str, typer.Option("--by", help="Who; kept in the file.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept in the file.")]
HashOption = Annotated[str, typer.Option("--hash", help="The hash of what you have looked at, as `show` prints it.")]


@app.command("list")
def list_waiting(approved: FileOption, json: JsonOption = False) -> None:
    """List the tools that are listed otherwise than approved, or that nobody has approved yet.

    pokayoke listings list --approved approved.json

    Exit code 1 if there are any.
    """
    waiting = read_waiting(approved)
    if json:
        for one in waiting:
            print_data(as_json(_waiting_values(one)))
    else:
        rows = [
            (one.tool, "new" if one.approved is None else "changed", one.since, one.hash[:_SHORT]) for one in waiting
        ]
        print_listing(("tool", "is", "since", "hash"), rows, [None] * len(rows))
        if not rows:
            print_message("every tool is listed as approved, as far as a gateway has seen")
    if waiting:
        raise typer.Exit(1)


@app.command("show")
def show_waiting(tool: ToolArgument, approved: FileOption, json: JsonOption = False) -> None:
    """Show the whole difference between what is approved of a tool and what its server lists now.

    pokayoke listings show refund --approved approved.json

    Exit code 1 if something differs.
    """
    one = next((one for one in read_waiting(approved) if one.tool == tool), None)
    if one is None and tool not in (known := read_approved(approved).tools):
        raise ConfigurationError(f"no tool {tool!r} is approved or waits there (approved: {', '.join(known)})")
    if one is None:
        print_message(f"{tool} is listed as approved, as far as a gateway has seen")
        return
    if json:
        print_data(as_json(_waiting_values(one)))
    else:
        for change in list_changes(one.approved or {}, one.entry):
            print_data(f"{escape_text(change['at'])}:")
            for sign, text in (("-", change["before"]), ("+", change["after"])):
                if text:
                    print_data("\n".join(f"  {sign} {line}" for line in escape_lines(text).split("\n")))
        print_data(f"hash: {one.hash}")
    raise typer.Exit(1)


@app.command("approve")
def approve_tool(
    tool: ToolArgument,
    approved: FileOption,
    seen: HashOption,
    by: ByOption,
    reason: ReasonOption,
    json: JsonOption = False,
) -> None:
    """Approve what a server lists now, exactly as you have looked at it.

    pokayoke listings approve refund --approved approved.json --hash HASH --by ann --reason "the new limit is ours"

    If it is listed otherwise again since, nothing is changed, and exit code 2 says so.
    """
    done = approve_listing(approved, tool, seen=seen, by=by, reason=reason, now=current_time())
    if json:
        print_data(as_json(struct_to_dict(done)))
    else:
        print_data(escape_text(f"{done.tool} is approved as it is listed now, by {done.by}: {done.reason}"))


@app.command("history")
def show_history(approved: FileOption, json: JsonOption = False) -> None:
    """Show every approval: when, by whom, of what, and why.

    pokayoke listings history --approved approved.json
    """
    steps = read_approved(approved).history
    if json:
        for one in steps:
            print_data(as_json(struct_to_dict(one)))
        return
    rows = [
        (one.at, one.by, one.tool, f"{one.before[:_SHORT] or 'nothing'} -> {one.after[:_SHORT]}", one.reason)
        for one in steps
    ]
    for line in format_table(rows):
        print_data(line)
    if not rows:
        print_message("nobody has approved a change in this file yet")


def _waiting_values(one: WaitingListing) -> dict[str, Any]:
    return {
        "tool": one.tool,
        "since": one.since,
        "hash": one.hash,
        "approved_hash": "" if one.approved is None else promises_hash(one.approved),
        "changes": list_changes(one.approved or {}, one.entry),
        "approved": one.approved,
        "entry": one.entry,
    }
