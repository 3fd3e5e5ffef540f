"""`pokayoke contracts amend`: what the contracts refuse and the tools did well, as a change with its effect."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from pokayoke.cli.contracts.diff import print_recorded, score_recordings
from pokayoke.cli.contracts.lock_options import JsonOption
from pokayoke.cli.output import (
    as_json,
    escape_text,
    format_count,
    format_table,
    print_data,
    print_message,
    print_section,
)
from pokayoke.core.contract.contract import Contract
from pokayoke.errors import ConfigurationError, ContractError
from pokayoke.runtime.config.contract_edits import DefinitionEdit, edit_definitions
from pokayoke.runtime.config.contract_files import parse_definition, read_contracts, read_definitions
from pokayoke.runtime.files.atomic_file import atomic_write

_MOST_LEFT: Final = 10
_MOST_SHOWN: Final = 60  # characters of a value


def register_commands(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(amend)


def amend(
    recordings: Annotated[list[str], typer.Argument(metavar="RECORDING...", help="Recorded calls, such as a trace.")],
    contracts: Annotated[Path, typer.Option("--contracts", help="The file of contracts.")],
    tools: Annotated[list[str] | None, typer.Option("--tool", help="Only this tool; may be repeated.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Change the file; else nothing is changed.")] = False,
    version: Annotated[
        str | None, typer.Option("--contract-version", help="Version of what changes; needed once it is locked.")
    ] = None,
    fields: Annotated[str | None, typer.Option("--map", help="Fields of plain JSON Lines, as for replay.")] = None,
    kind: Annotated[str | None, typer.Option("--format", help="Format of the recordings, if not plain.")] = None,
    json: JsonOption = False,
) -> None:
    """Propose the smallest change that lets refused calls run whose tools did their work.

    pokayoke contracts amend watched.jsonl --contracts contracts.yaml

    pokayoke contracts amend watched.jsonl --contracts contracts.yaml --tool refund --write

    Only bounds, choices, types, required and undeclared arguments get wider; what else was refused is named, and left
    to a person. Whether a call should have run, nobody knows but you: read each change. The file keeps its comments.
    Exit code 0 if nothing is refused, or all changes were written; 1 if there is something to decide; 2 if a recording
    or the contracts cannot be read, or not be written.
    """
    definitions = read_contracts(contracts)
    known = {one.contract.name: one for one in definitions}
    for name in tools or ():
        if name not in known:
            raise ConfigurationError(f"{contracts}: there is no contract of {name!r}; there are {', '.join(known)}")
    before = [one.contract for one in definitions]
    found = _Amendments(before, {name: one.fields["input_schema"] for name, one in known.items()}, tools)
    for name in recordings:
        found.read_recording(name, kind, fields)
    after = [_apply_changes(one.fields, found.schemas.get(one.contract.name), version) for one in definitions]
    recorded = score_recordings(before, after, recordings, kind, fields)
    if write and found.changes:
        edits = [
            DefinitionEdit(number, [(one.at, one.after) for one in found.changes[fields_of.contract.name]], version)
            for number, fields_of in enumerate(definitions)
            if fields_of.contract.name in found.changes
        ]
        _write_file(contracts, edits, after)
    if json:
        changes = {name: [msgspec.to_builtins(one) for one in changed] for name, changed in found.changes.items()}
        print_data(as_json({"changes": changes, "left": found.open_refusals, "against": recorded, "written": write}))
    else:
        _print_changes(found, recorded, contracts, written=write)
    if found.open_refusals or (found.changes and not write):
        raise typer.Exit(1)


class _Amendments:
    """What recordings say about each contract."""

    def __init__(self, contracts: list[Contract], schemas: dict[str, Any], tools: list[str] | None) -> None:
        from pokayoke.replay.learn.amendment import SchemaAmendment  # noqa: PLC0415 - for this command only
        from pokayoke.replay.score.evaluate import Judge  # noqa: PLC0415 - as above

        self._judge = Judge(contracts)
        self._open = {name: SchemaAmendment(schema) for name, schema in schemas.items() if not tools or name in tools}
        self._left: Counter[tuple[str, str]] = Counter()
        self._examples: dict[tuple[str, str], str] = {}

    @property
    def changes(self) -> dict[str, list[Any]]:
        """The changes, by tool; tools without any are left out."""
        return {name: list(one.changes.values()) for name, one in self._open.items() if one.changes}

    @property
    def schemas(self) -> dict[str, dict[str, Any]]:
        """The wider schemas, by tool."""
        return {name: one.schema for name, one in self._open.items() if one.changes}

    @property
    def open_refusals(self) -> list[dict[str, Any]]:
        """Refusals that no change of one keyword would end, the most frequent ones first."""
        return [
            {"tool": tool, "code": code, "calls": count, "first": self._examples[tool, code]}
            for (tool, code), count in self._left.most_common()
        ]

    def read_recording(self, name: str, kind: str | None, fields: str | None) -> None:
        """Take in the calls of one recording."""
        from pokayoke.replay.readers import Source, parse_map  # noqa: PLC0415 - as above
        from pokayoke.replay.readers.source import parse_format  # noqa: PLC0415 - as above
        from pokayoke.replay.recording import Recording  # noqa: PLC0415 - as above

        mapping = parse_map(fields) if fields else None
        with Source(name, claimed=parse_format(kind), fields=mapping) as source:
            for read in source.read_recordings():
                if isinstance(read, Recording):
                    self._take_call(read, name)

    def _take_call(self, call: Any, file: str) -> None:
        judged = self._judge.judge_call(call)
        amendment = self._open.get(judged.tool)
        where = f"{file}:{call.line}"
        did_well = call.ran and judged.output in ("valid", "unchecked")
        if judged.refusal is None or not did_well or amendment is None:
            return
        arguments = judged.reading.value if call.used is None else call.used
        if not judged.masked and arguments is not None and amendment.admit(arguments, where):
            return
        place = (judged.tool, judged.refusal.code)
        self._left[place] += 1
        self._examples.setdefault(place, where)


def _apply_changes(fields: dict[str, Any], schema: dict[str, Any] | None, version: str | None) -> Contract:
    changed: dict[str, Any] = dict(fields)
    if schema is not None:
        changed["input_schema"] = schema
        changed["version"] = version or changed.get("version", "1")
    return Contract(**changed)


def _write_file(path: Path, edits: list[DefinitionEdit], after: list[Contract]) -> None:
    """Write the changed file, once its new text reads as what was proposed."""
    data = edit_definitions(path, edits)
    read = [parse_definition(one)["input_schema"] for _, one in read_definitions(path, how=lambda _: data)]
    if read != [one.input_schema for one in after]:
        raise ContractError(f"{path} cannot be changed by a program without changing what it says. Edit it by hand")
    with atomic_write(path) as file:
        file.write(data)


def _print_changes(found: _Amendments, recorded: dict[str, Any], path: Path, *, written: bool) -> None:
    for name, changes in found.changes.items():
        print_data(f"{escape_text(name)}: {format_count(len(changes), 'change')}")
        rows = [
            (one.at, f"{_short(one.before)} -> {_short(one.after)}", format_count(one.calls, "call"), one.first)
            for one in changes
        ]
        for line in format_table(rows):
            print_data(f"  {line}")
    left = [(f"{one['calls']:,}", one["code"], one["tool"], one["first"]) for one in found.open_refusals[:_MOST_LEFT]]
    print_section("refused, and left to a person", left)
    if not found.changes and not left:
        print_data("nothing to amend: no refused call was answered well")
        return
    print_recorded(recorded)
    if found.changes:
        print_message(f"wrote {path}" if written else "nothing was written: --write changes the file")


def _short(value: Any) -> str:
    if value is None:
        return "nothing"
    text = as_json(value).replace("\n", " ")
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
