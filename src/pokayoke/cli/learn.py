"""`pokayoke learn`: contracts from recorded calls, or from an MCP server's tool list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from pokayoke.cli.options import OnOption
from pokayoke.cli.output import (
    announce_recordings,
    as_json,
    escape_text,
    format_count,
    print_data,
    print_message,
    progress_bar,
    report_lost_parts,
)
from pokayoke.cli.sources import refuse_to_overwrite
from pokayoke.core.contract.contract import Contract
from pokayoke.errors import ConfigurationError, PokayokeError
from pokayoke.replay.engines import open_cluster, open_local, run
from pokayoke.replay.job import pack_job
from pokayoke.replay.learn.learner import Draft, Learner, SkippedTool
from pokayoke.replay.learn.mcp_listing import ask_server, build_listed_drafts, merge_drafts, read_listing
from pokayoke.replay.learn.yaml_writer import yaml_text
from pokayoke.replay.parts import PART_BYTES, Merger, Part, learn_part, plan, read_parts
from pokayoke.replay.readers import parse_map
from pokayoke.replay.readers.lines import expand_urls
from pokayoke.replay.readers.source import parse_format
from pokayoke.runtime.config.yaml_reader import read_document
from pokayoke.runtime.files.atomic_file import atomic_write

_MOST_NAMED: Final = 10


def learn(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="RECORDING...", help="Recordings; - reads stdin."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="File to write the contracts to; stdout if not given.")
    ] = None,
    fields: Annotated[
        str | None,
        typer.Option("--map", help="Fields of plain JSON Lines: tool=FIELD,arguments=FIELD,..."),
    ] = None,
    kind: Annotated[str | None, typer.Option("--format", help="Format of the recordings, if not plain.")] = None,
    tools: Annotated[list[str] | None, typer.Option("--tool", help="Only this tool; may be repeated.")] = None,
    listing: Annotated[
        str | None, typer.Option(help="A saved tools/list answer; recordings add what it leaves open.")
    ] = None,
    mcp: Annotated[bool, typer.Option("--mcp", help="Ask a live MCP server: --mcp -- COMMAND ARGUMENTS.")] = False,
    save_listing: Annotated[
        str | None, typer.Option(help="With --mcp: write the server's tool list to this file, as what is approved.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Timeout for the server, in seconds.", min=0.1)] = 30.0,
    trust_hints: Annotated[
        bool, typer.Option("--trust-hints", help="Believe the annotations of MCP listings.")
    ] = False,
    version: Annotated[str, typer.Option("--contract-version", help="Version of the contracts.")] = "1",
    on: OnOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output file.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of YAML.")] = False,
) -> None:
    """Learn contracts from recorded calls, for a person to edit.

    pokayoke learn trace.jsonl -o contracts.yaml

    pokayoke learn calls.jsonl --map tool=name,arguments=args,output=result,run=task

    pokayoke learn --mcp --save-listing approved.json -o contracts.yaml -- npx some-server

    Every statement in the file has a comment with its evidence. Calls whose tool failed teach nothing.
    Exit code 0 if everything was read, 1 if a line could not be read or a tool could not be learnt, 2 if a
    recording cannot be read.
    """
    if output is not None and not force and Path(output).exists():
        raise ConfigurationError(f"{output} exists already and may have been edited. Use --force to overwrite it")
    refuse_to_overwrite([*(() if mcp else words or ()), *([listing] if listing else ())], output=output)
    learner, lost = Learner(version), 0
    if mcp:
        entries = _ask_server(words, listing, seconds=timeout)
        _save_listing(entries, save_listing, force=force)
    else:
        entries = [] if listing is None else read_listing(listing)
        lost = _read_recordings(learner, words or [], kind, fields, on=on, needed=listing is None)
    listed = build_listed_drafts(entries, trusted_hints=trust_hints, version=version)
    drafts, skipped = _drop_unusable(*_select_tools(tools, *_collect_drafts(learner, *listed)))
    if tools and not drafts and not skipped:
        raise typer.Exit(1)
    _write_contracts(drafts, skipped, learner, output, json=json)
    if learner.unread or skipped or lost or not drafts:
        raise typer.Exit(1)


def _ask_server(command: Sequence[str] | None, listing: str | None, *, seconds: float) -> list[dict[str, Any]]:
    if listing is not None:
        raise ConfigurationError("--mcp and --listing are two sources for the same thing. Give one")
    if not command:
        raise ConfigurationError("--mcp asks a server: name the command that starts it, --mcp -- COMMAND ARGUMENTS")
    return ask_server(command, seconds=seconds)


def _save_listing(entries: list[dict[str, Any]], name: str | None, *, force: bool) -> None:
    if name is None:
        return
    path = Path(name)
    if path.exists() and not force:
        raise ConfigurationError(f"{name} exists already, and somebody has approved it. Use --force to overwrite it")
    with atomic_write(path) as file:
        file.write(f"{as_json({'tools': entries})}\n".encode())


def _read_recordings(
    learner: Learner, names: Sequence[str], kind: str | None, fields: str | None, *, on: str | None, needed: bool
) -> int:
    """Learn from recordings, and return how many parts no worker survived.

    The parts are the same on a cluster and here, so that both learn the same.
    """
    if needed and not names:
        raise ConfigurationError("nothing to learn from: name recordings, --listing FILE, or --mcp -- COMMAND")
    names, claimed, mapping = expand_urls(names), parse_format(kind), parse_map(fields) if fields else None
    if on is not None:
        parts: Iterable[Part] = plan(names, claimed=claimed, fields=mapping)
        place = open_cluster(on, pack_job())
    else:
        parts = read_parts(names, size=PART_BYTES, in_pieces=False, claimed=claimed, fields=mapping)
        place = open_local()
    with place as engine, progress_bar(names) as told:
        merger = Merger(learner, told)
        lost = run(engine, learn_part, announce_recordings(parts), merger)
    for file, calls in merger.calls.items():
        print_message(f"{escape_text(names[file])}: {format_count(calls, 'call')}")
    report_lost_parts(lost)
    return len(lost)


def _collect_drafts(
    learner: Learner, listed: list[Draft], unusable: list[SkippedTool]
) -> tuple[list[Draft], list[SkippedTool]]:
    """Return what was learnt, merged into what a server lists."""
    learnt, skipped = learner.build_drafts()
    return merge_drafts(listed, learnt) if listed else learnt, [*skipped, *unusable]


def _select_tools(
    tools: Sequence[str] | None, drafts: list[Draft], skipped: list[SkippedTool]
) -> tuple[list[Draft], list[SkippedTool]]:
    if not tools:
        return drafts, skipped
    there = dict.fromkeys([*(draft.mapping["name"] for draft in drafts), *(one.tool for one in skipped)])
    for name in tools:
        if name not in there:
            print_message(f"no call of {name!r}; there are {', '.join(list(there)[:_MOST_NAMED]) or 'none'}")
    wanted = [draft for draft in drafts if draft.mapping["name"] in tools]
    return wanted, [one for one in skipped if one.tool in tools]


def _drop_unusable(drafts: list[Draft], skipped: list[SkippedTool]) -> tuple[list[Draft], list[SkippedTool]]:
    """Return the drafts that make valid contracts; an invalid one is skipped and costs no other."""
    kept: list[Draft] = []
    for draft in drafts:
        try:
            Contract.from_mapping(draft.mapping)
        except PokayokeError as error:
            name = str(draft.mapping["name"])
            skipped = [*skipped, SkippedTool(name, str(error).removeprefix(f"{name}: "))]
        else:
            kept.append(draft)
    return kept, skipped


def _write_contracts(
    drafts: Sequence[Draft], skipped: Sequence[SkippedTool], learner: Learner, output: str | None, *, json: bool
) -> None:
    head = [f"{format_count(learner.calls, 'call')} read"] if learner.calls else []
    text = yaml_text(drafts, skipped, head)
    _require_readable(text)
    if json:
        notes = [{"/" + "/".join(place): note for place, note in draft.notes.items()} for draft in drafts]
        found: dict[str, Any] = {
            "contracts": [draft.mapping for draft in drafts],
            "notes": notes,
            "skipped": skipped,
            "calls": learner.calls,
            "unread": learner.unread,
        }
        text = as_json(found) + "\n"
    if output is None:
        print_data(text.rstrip("\n"))
    else:
        with atomic_write(output) as file:
            file.write(text.encode())
        print_message(f"wrote {output}: {format_count(len(drafts), 'contract')}. Read it before you use it")
    for one in skipped[:_MOST_NAMED]:
        print_message(f"not learnt: {one.tool}: {one.why}")
    if len(skipped) > _MOST_NAMED:
        print_message(f"and {len(skipped) - _MOST_NAMED} more, named at the end of the contracts")
    if learner.unread:
        first = learner.first_unread[0]
        print_message(
            f"{format_count(learner.unread, 'record')} could not be read. "
            f"The first is on line {first.line}: {first.why}"
        )


def _require_readable(text: str) -> None:
    """Read the file back before it is written: a file that cannot be read again is not handed out."""
    for mapping in read_document(text, name="the learnt contracts").value["contracts"]:
        Contract.from_mapping(mapping)
