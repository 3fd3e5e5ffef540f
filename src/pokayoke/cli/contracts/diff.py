"""`pokayoke contracts diff`: what changes between two versions, whom it breaks, and how many recorded calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from pokayoke.cli.contracts.lock_options import (
    DEFAULT,
    JsonOption,
    LockOption,
    Shelf,
    contracts_in,
    is_code,
    tool_and_version,
)
from pokayoke.cli.output import as_json, out, painter, plural, say, show, table
from pokayoke.cli.progress import reading
from pokayoke.core.contract.contract import Contract
from pokayoke.core.versions.contract_diff import MEANS, Change, Kind, Side, contract_changes
from pokayoke.errors import ConfigurationError
from pokayoke.runtime.versions.lock_file import read_lock

_KINDS: Final[tuple[Kind, ...]] = ("breaking", "unknown", "safe")
_MARKS: Final = {"breaking": "bad", "unknown": "note", "safe": "ok"}
_WORSE: Final = ("now refused", "answer valid -> invalid", "answer valid -> failed", "runs with other arguments")
_BETTER: Final = ("now runs", "answer invalid -> valid", "answer failed -> valid")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(diff)


def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A file of contracts, MODULE:ATTRIBUTE, or TOOL@VERSION.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The same, of the other side.")],
    path: LockOption = DEFAULT,
    against: Annotated[
        list[str] | None,
        typer.Option("--against", metavar="RECORDING", help="Count the recorded calls it would break."),
    ] = None,
    fields: Annotated[str | None, typer.Option("--map", help="Fields of plain JSON Lines, as for replay.")] = None,
    kind: Annotated[str | None, typer.Option("--format", help="What the recordings are, if that is not plain.")] = None,
    json: JsonOption = False,
) -> None:
    """Say what changes between two versions, and whom it breaks.

    pokayoke contracts diff v1.yaml v2.yaml

    pokayoke contracts diff get_order@1 get_order@2 --against trace.jsonl

    The sides are the model (and other callers), the readers of what a tool answers, the tool itself, and the
    operators. Exit code 0 if nothing breaks, 1 if something does or nobody can tell, 2 if a side cannot be read.
    """
    before, after = _side(old, path), _side(new, path)
    tools = compared(before, after)
    recorded = None if against is None else _recorded(before, after, against, kind, fields)
    if json:
        out(as_json({"old": old, "new": new, "tools": tools, "against": recorded}))
    else:
        _print(tools, recorded)
    if any(change.kind != "safe" for changes in tools.values() for change in changes) or (
        recorded and recorded["broken"]
    ):
        raise typer.Exit(1)


def compared(before: Sequence[Contract], after: Sequence[Contract]) -> dict[str, tuple[Change, ...]]:
    """Return the changes by `old -> new`, of all tools of both sides."""
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


def _side(name: str, lock: str) -> list[Contract]:
    """The contracts of one side, one version per tool."""
    if "@" in name and not Path(name).exists() and not is_code(name):
        where = Path(lock)
        return [Shelf(where).contract(read_lock(where), *tool_and_version(name))]
    found = contracts_in(name, Path())
    names = [contract.name for contract in found]
    for contract in found:
        if names.count(contract.name) > 1:
            raise ConfigurationError(
                f"{name} holds several versions of {contract.name}. Lock them, and compare {contract.id} with another"
            )
    return found


def _recorded(
    before: list[Contract], after: list[Contract], names: list[str], kind: str | None, fields: str | None
) -> dict[str, Any]:
    """What both sides say to recorded calls, as `pokayoke replay --compare` scores them."""
    from pokayoke.replay.readers import Source, parse_map  # noqa: PLC0415 - as above
    from pokayoke.replay.readers.source import claimed_format  # noqa: PLC0415 - as above
    from pokayoke.replay.score.evaluate import Judge  # noqa: PLC0415 - for those who have a recording
    from pokayoke.replay.score.summary import Set, summary  # noqa: PLC0415 - as above
    from pokayoke.replay.score.workers import Replay  # noqa: PLC0415 - as above

    sets = [Set("old", Judge(before)), Set("new", Judge(after))]
    mapping = parse_map(fields) if fields else None
    with Replay([one.judge for one in sets]) as work:
        for name in names:
            with Source(name, claimed=claimed_format(kind), fields=mapping) as source, reading(source) as told:
                work.add(source, told)
        shown = summary(work.score, names, sets)
    ids = {contract.id for contract in before}
    ways = {change["way"]: change["count"] for change in shown["changes"]}
    return {
        "calls": sum(tool["calls"] for tool in shown["contracts"][0]["tools"] if tool["tool"] in ids),
        "unread": shown["unread"],
        "broken": sum(ways.get(way, 0) for way in _WORSE),
        "mended": sum(ways.get(way, 0) for way in _BETTER),
        "changes": shown["changes"],
    }


def _print(tools: dict[str, tuple[Change, ...]], recorded: dict[str, Any] | None) -> None:
    paint = painter()
    sides: dict[Side, None] = {side: None for found in tools.values() for change in found for side in change.breaks}
    for name, changes in tools.items():
        out(f"{show(name)}: {_counts(changes)}")
        for kind in _KINDS:
            rows = [
                (c.at, c.what, f"breaks {', '.join(c.breaks)}" if c.breaks else "") for c in changes if c.kind == kind
            ]
            if rows:
                out(f"  {paint(kind, _MARKS[kind])}:")
                for line in table(rows):
                    out(f"    {line}")
    for side in sides:
        say(f"{side}: {MEANS[side]}")
    if recorded is not None:
        broken, calls, mended = (f"{recorded[key]:,}" for key in ("broken", "calls", "mended"))
        out(f"recorded calls: {broken} of {calls} would break, {mended} would be mended")
        for line in table([(f"{x['count']:,}", x["way"], _example(x)) for x in recorded["changes"]]):
            out(f"  {line}")
        if recorded["unread"]:
            say(f"{plural(recorded['unread'], 'record')} could not be read")


def _counts(changes: Sequence[Change]) -> str:
    counted = [(sum(one.kind == kind for one in changes), kind) for kind in _KINDS]
    return ", ".join(f"{number} {kind}" for number, kind in counted if number) or "no change"


def _example(change: dict[str, Any]) -> str:
    examples = change["examples"]
    return f"{examples[0]['where']}  {examples[0]['message'][:100]}" if examples else ""
