"""`pokayoke safe-mode`: shows the kill switches of a store, and sets them by hand."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pokayoke.cli.options import (
    ByOption,
    JsonOption,
    ReasonOption,
    StoreOption,
    current_time,
    format_age,
    format_time,
    open_store_option,
    struct_to_dict,
)
from pokayoke.cli.output import as_json, escape_text, print_data, print_listing, print_message
from pokayoke.core.state.kill_switch import PROBES_TO_CLOSE, OutputRate, Switch, first_probe_at, mode_at
from pokayoke.runtime.decisions import is_known_tool, turn_writes

_MARKS = {"open": "bad", "half_open": "note", "closed": "ok"}

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Show which writes are off, and turn them off or on by hand.

    pokayoke safe-mode status --store sqlite:///ledger.db

    pokayoke safe-mode on --scope crm_lookup --by ann --reason "returns yesterday's data"

    pokayoke safe-mode on --scope '*' --by ann --reason "incident 42: stop all writes"

    pokayoke safe-mode off --scope '*' --by ann --reason "repaired, checked three profiles"

    While safe mode is on for a tool (its switch is open), every write that may build on its outputs is refused, in
    every run and process that uses the store; reads continue. POKAYOKE_STORE replaces --store.
    Exit codes: 0 clean, 1 findings, 2 could not run.""",
)
ScopeOption = Annotated[
    str, typer.Option("--scope", metavar="TOOL|*", help="A tool's name, or '*' (in quotes) for everything.")
]


@app.command()
def status(store: StoreOption = None, json: JsonOption = False) -> None:
    """List the switches that were ever flipped, and the tools whose latest outputs were invalid.

    pokayoke safe-mode status

    pokayoke safe-mode status --json

    Exit code 1 if a switch is open.
    """
    at = current_time()
    with open_store_option(store) as ledger:
        switches, rates = ledger.switches(), {rate.tool: rate for rate in ledger.rates()}
    shown = [_switch_values(switch, rates.get(switch.scope), at) for switch in switches]
    known = {switch.scope for switch in switches}
    shown += [
        _switch_values(Switch(tool), rate, at)
        for tool, rate in rates.items()
        if tool not in known and _count_invalid(rate)
    ]
    if json:
        for line in shown:
            print_data(as_json(line))
    else:
        _print_switches(shown, at)
    if any(line["mode"] != "closed" for line in shown):
        raise typer.Exit(1)


@app.command("open", hidden=True)
@app.command("on")
def refuse_writes(
    scope: ScopeOption, by: ByOption, reason: ReasonOption, store: StoreOption = None, json: JsonOption = False
) -> None:
    """Refuse all writes that may build on a tool's outputs ('*': all writes), until a person turns it off.

    pokayoke safe-mode on --scope crm_lookup --by ann --reason "returns yesterday's data"

    No later write is claimed; one that has started goes on and is not retried.
    """
    with open_store_option(store) as ledger:
        if scope.strip() and not is_known_tool(ledger, scope):
            print_message(f"warning: this store has no record of a tool {scope!r}; check the name")
        switch = turn_writes(ledger, scope, "open", by=by, reason=reason, now=current_time())
    _print_switch(switch, json=json)


@app.command("close", hidden=True)
@app.command("off")
def allow_writes(
    scope: ScopeOption, by: ByOption, reason: ReasonOption, store: StoreOption = None, json: JsonOption = False
) -> None:
    """Allow writes again. The count of invalid outputs starts anew.

    pokayoke safe-mode off --scope crm_lookup --by ann --reason "repaired, checked three profiles"
    """
    with open_store_option(store) as ledger:
        now = current_time()
        switch = turn_writes(ledger, scope, "closed", by=by, reason=reason, now=now)
    if switch.since != now:
        print_message(f"safe mode is off already for {scope!r}; nothing was changed")
    _print_switch(switch, json=json)


# -- parts -----------------------------------------------------------------------------------------


def _count_invalid(rate: OutputRate | None) -> int:
    return sum(not valid for _, valid in rate.recent) if rate else 0


def _switch_values(switch: Switch, rate: OutputRate | None, at: float) -> dict[str, Any]:
    return {
        **struct_to_dict(switch), "mode": mode_at(switch, at), "probes_from": first_probe_at(switch),
        "outputs": len(rate.recent) if rate else 0, "invalid": _count_invalid(rate),
        "streak": rate.streak if rate else 0,
    }  # fmt: skip


def _print_switches(shown: list[dict[str, Any]], at: float) -> None:
    heads = ("scope", "mode", "since", "by", "invalid", "next", "reason")
    rows = [
        (
            escape_text(line["scope"]), line["mode"], format_age(line["since"], at) if line["since"] else "-",
            escape_text(line["by"]) or "-", f"{line['invalid']} of {line['outputs']}",
            _describe_next(line, at), escape_text(line["reason"], limit=120),
        )
        for line in shown
    ]  # fmt: skip
    print_listing(heads, rows, [_MARKS[line["mode"]] for line in shown])
    if not rows:
        print_message("no switch was ever set, and no tool's latest outputs were invalid")


def _describe_next(line: dict[str, Any], at: float) -> str:
    if line["mode"] == "closed":
        return "-"
    if line["mode"] == "half_open":
        return f"{PROBES_TO_CLOSE - line['valid']} valid reads close it"
    return "a person turns it off" if line["probes_from"] is None else f"probes {format_age(line['probes_from'], at)}"


def _print_switch(switch: Switch, *, json: bool) -> None:
    if json:
        print_data(as_json(struct_to_dict(switch)))
        return
    by = f" by {switch.by} at {format_time(switch.since)}: {switch.reason}" if switch.by else ""
    state = "off" if switch.mode == "closed" else "on"
    print_data(escape_text(f"safe mode is {state} for {switch.scope}{by}"))
