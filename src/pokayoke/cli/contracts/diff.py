"""`pokayoke contracts diff`: what changes between two versions, what it breaks, and how many recorded calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from pokayoke.cli.contracts.lock_options import (
    DEFAULT_LOCK,
    JsonOption,
    LockedContracts,
    LockOption,
    is_module_attribute,
    load_contracts,
    parse_tool_version,
)
from pokayoke.cli.output import (
    as_json,
    choose_painter,
    escape_text,
    format_count,
    format_table,
    print_data,
    print_message,
    progress_bar,
)
from pokayoke.core.contract.contract import Contract
from pokayoke.core.versions.contract_diff import SIDE_MEANINGS, Change, ChangeKind, Side, contract_changes
from pokayoke.errors import ConfigurationError
from pokayoke.runtime.versions.lock_file import read_lock

_KINDS: Final[tuple[ChangeKind, ...]] = ("breaking", "unknown", "safe")
_MARKS: Final = {"breaking": "bad", "unknown": "note", "safe": "ok"}
_BREAKING_WAYS: Final = (
    "now refused",
    "answer valid -> invalid",
    "answer valid -> failed",
    "runs with other arguments",
)
_FIXING_WAYS: Final = ("now runs", "answer invalid -> valid", "answer failed -> valid")


def register_commands(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(diff)


def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A file of contracts, MODULE:ATTRIBUTE, or TOOL@VERSION.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The same, for the other side.")],
    path: LockOption = DEFAULT_LOCK,
    against: Annotated[
        list[str] | None,
        typer.Option("--against", metavar="RECORDING", help="Count the recorded calls it would break."),
    ] = None,
    fields: Annotated[str | None, typer.Option("--map", help="Fields of plain JSON Lines, as for replay.")] = None,
    kind: Annotated[str | None, typer.Option("--format", help="Format of the recordings, if not plain.")] = None,
    json: JsonOption = False,
) -> None:
    """Show what changes between two versions, and what it breaks.

    pokayoke contracts diff v1.yaml v2.yaml

    pokayoke contracts diff get_order@1 get_order@2 --against trace.jsonl

    The sides are the model (and other callers), the readers of a tool's answers, the tool itself, and the
    operators. Exit code 0 if nothing breaks, 1 if something does or may, 2 if a side cannot be read.
    """
    before, after = _load_side(old, path), _load_side(new, path)
    tools = compare_contracts(before, after)
    recorded = None if against is None else score_recordings(before, after, against, kind, fields)
    if json:
        print_data(as_json({"old": old, "new": new, "tools": tools, "against": recorded}))
    else:
        _print_diff(tools, recorded)
    if any(change.kind != "safe" for changes in tools.values() for change in changes) or (
        recorded and recorded["broken"]
    ):
        raise typer.Exit(1)


def compare_contracts(before: Sequence[Contract], after: Sequence[Contract]) -> dict[str, tuple[Change, ...]]:
    """Return the changes of all tools of both sides, by `old -> new`."""
    one, other = {c.name: c for c in before}, {c.name: c for c in after}
    found: dict[str, tuple[Change, ...]] = {}
    for name in dict.fromkeys((*one, *other)):
        old, new = one.get(name), other.get(name)
        if old is None or new is None:
            gone = Change("tool", "is gone", "breaking", ("model",))
            found[name] = (gone,) if new is None else (Change("tool", "is new", "safe"),)
        else:
            found[old.id if old.id == new.id else f"{old.id} -> {new.id}"] = contract_changes(old, new)
    return found


def _load_side(name: str, lock: str) -> list[Contract]:
    """Return the contracts of one side, one version per tool."""
    if "@" in name and not Path(name).exists() and not is_module_attribute(name):
        where = Path(lock)
        return [LockedContracts(where).load_contract(read_lock(where), *parse_tool_version(name))]
    found = load_contracts(name, Path())
    names = [contract.name for contract in found]
    for contract in found:
        if names.count(contract.name) > 1:
            raise ConfigurationError(
                f"{name} holds several versions of {contract.name}. Lock them, and compare {contract.id} with another"
            )
    return found


def score_recordings(
    before: list[Contract], after: list[Contract], names: list[str], kind: str | None, fields: str | None
) -> dict[str, Any]:
    """Return how both sides judge recorded calls, scored as by `pokayoke replay --compare`."""
    from pokayoke.replay.engines import open_local, run  # noqa: PLC0415 - as above
    from pokayoke.replay.parts import Merger, read_parts, score_part  # noqa: PLC0415 - as above
    from pokayoke.replay.readers import parse_map  # noqa: PLC0415 - as above
    from pokayoke.replay.readers.source import parse_format  # noqa: PLC0415 - as above
    from pokayoke.replay.score.counts import Score, Tally  # noqa: PLC0415 - as above
    from pokayoke.replay.score.evaluate import Judge  # noqa: PLC0415 - needed with a recording only
    from pokayoke.replay.score.summary import ContractSet, build_summary  # noqa: PLC0415 - as above

    sets = [ContractSet("old", Judge(before)), ContractSet("new", Judge(after))]
    score = Score(tallies=[Tally() for _ in sets])
    parts = read_parts(names, claimed=parse_format(kind), fields=parse_map(fields) if fields else None)
    with open_local(sets) as engine, progress_bar(names) as told:
        run(engine, score_part, parts, Merger(score, told))
    shown = build_summary(score, names, sets)
    ids = {contract.id for contract in before}
    ways = {change["way"]: change["count"] for change in shown["changes"]}
    return {
        "calls": sum(tool["calls"] for tool in shown["contracts"][0]["tools"] if tool["tool"] in ids),
        "unread": shown["unread"],
        "broken": sum(ways.get(way, 0) for way in _BREAKING_WAYS),
        "mended": sum(ways.get(way, 0) for way in _FIXING_WAYS),
        "changes": shown["changes"],
    }


def _print_diff(tools: dict[str, tuple[Change, ...]], recorded: dict[str, Any] | None) -> None:
    paint = choose_painter()
    sides: dict[Side, None] = {side: None for found in tools.values() for change in found for side in change.breaks}
    for name, changes in tools.items():
        print_data(f"{escape_text(name)}: {_count_kinds(changes)}")
        for kind in _KINDS:
            rows = [
                (c.at, c.what, f"breaks {', '.join(c.breaks)}" if c.breaks else "") for c in changes if c.kind == kind
            ]
            if rows:
                print_data(f"  {paint(kind, _MARKS[kind])}:")
                for line in format_table(rows):
                    print_data(f"    {line}")
    for side in sides:
        print_message(f"{side}: {SIDE_MEANINGS[side]}")
    if recorded is not None:
        print_recorded(recorded)


def print_recorded(recorded: dict[str, Any]) -> None:
    """Print how recorded calls are judged differently, see `score_recordings`."""
    broken, calls, mended = (f"{recorded[key]:,}" for key in ("broken", "calls", "mended"))
    print_data(f"recorded calls: {broken} of {calls} would break, {mended} would be mended")
    for line in format_table([(f"{x['count']:,}", x["way"], _first_example(x)) for x in recorded["changes"]]):
        print_data(f"  {line}")
    if recorded["unread"]:
        print_message(f"{format_count(recorded['unread'], 'record')} could not be read")


def _count_kinds(changes: Sequence[Change]) -> str:
    counted = [(sum(one.kind == kind for one in changes), kind) for kind in _KINDS]
    return ", ".join(f"{number} {kind}" for number, kind in counted if number) or "no change"


def _first_example(change: dict[str, Any]) -> str:
    examples = change["examples"]
    return f"{examples[0]['where']}  {examples[0]['message'][:100]}" if examples else ""
