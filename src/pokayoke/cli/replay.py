"""`pokayoke replay`: judges recorded calls by contracts. Streaming, on every core."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from pokayoke.cli.options import parse_share
from pokayoke.cli.output import (
    as_json,
    choose_painter,
    escape_text,
    format_count,
    format_table,
    print_data,
    print_message,
    print_section,
    progress_bar,
)
from pokayoke.cli.sources import LoadedSources, read_sources, refuse_to_overwrite
from pokayoke.errors import ConfigurationError
from pokayoke.replay.readers import Source, parse_map
from pokayoke.replay.readers.source import parse_format
from pokayoke.replay.recording import Recording
from pokayoke.replay.sample.recorder import Recorder
from pokayoke.replay.score.evaluate import Judge
from pokayoke.replay.score.html_report import format_percent, html_report
from pokayoke.replay.score.summary import ContractSet, build_summary, is_clean
from pokayoke.replay.score.workers import Replay, default_jobs
from pokayoke.runtime.files.atomic_file import atomic_write

_MIN_PARALLEL_BYTES: Final = 2_000_000
# All processes are started before the first line is read.
_JobsOption = Annotated[int | None, typer.Option(help="Processes; one per core if not given.", min=1, max=256)]
_DEFAULT_SHARE: Final = 0.01
_MOST_ROWS: Final = 40
_MOST_EXAMPLES: Final = 12
_WIDTH: Final = 160


def replay(
    recordings: Annotated[list[str], typer.Argument(metavar="RECORDING...", help="Recordings; - reads stdin.")],
    contracts: Annotated[
        list[str],
        typer.Option("--contracts", help="Contracts, tool definitions or MODULE:ATTRIBUTE."),
    ],
    compare: Annotated[
        list[str] | None, typer.Option("--compare", help="Other contracts, to compare the verdicts.")
    ] = None,
    config: Annotated[str | None, typer.Option(help="Configuration file; pokayoke.yaml if it is there.")] = None,
    fields: Annotated[
        str | None, typer.Option("--map", help="Fields of plain JSON Lines: tool=FIELD,arguments=FIELD,truth=FIELD,...")
    ] = None,
    kind: Annotated[str | None, typer.Option("--format", help="Format of the recordings, if not plain.")] = None,
    html: Annotated[str | None, typer.Option(help="Write a page with charts to this file.")] = None,
    sample: Annotated[
        str | None, typer.Option(help="Write a sample of the runs to this file, with pseudonyms.")
    ] = None,
    share: Annotated[
        str | None, typer.Option(help="With --sample: share of the runs in it, such as 0.1 or 10%; default 1%.")
    ] = None,
    jobs: _JobsOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Score recorded calls against contracts. No tool is run.

    pokayoke replay trace.jsonl --contracts contracts.yaml

    pokayoke replay calls.jsonl --contracts v1.yaml --compare v2.yaml --html report.html

    pokayoke replay labelled.jsonl --contracts contracts.yaml --map arguments=args,truth=right_args

    Correction success, refusal accuracy and the wrong-call rate need a truth: the arguments that would have
    been right, or null where there should have been no call. Exit code 0 if there is nothing to check, 1 if a
    line could not be read, a call was refused, an answer was invalid, or the two sets differ, 2 if a recording
    or the contracts cannot be read.
    """
    wanted = _parse_sample_share(share, sample)
    refuse_to_overwrite([*recordings, *contracts, *(compare or ())], html=html, sample=sample)
    sets = [_load_contract_set(contracts, config)]
    if compare:
        sets.append(_load_contract_set(compare, config))
    mapping = parse_map(fields) if fields else None
    workers = jobs or (default_jobs() if _is_large(recordings) else 1)
    with Replay([one.judge for one in sets], jobs=workers) as work:
        for name in recordings:
            with Source(name, claimed=parse_format(kind), fields=mapping) as source, progress_bar(source) as told:
                work.score_source(source, told)
                print_message(f"{name}: {source.kind.format}")
        shown = build_summary(work.score, recordings, sets)
    if html is not None:
        with atomic_write(html) as page:
            page.write(html_report(shown).encode())
        print_message(f"wrote {html}")
    if sample is not None:
        _write_sample(sample, wanted, recordings, sets[0], kind, mapping)
    if json:
        print_data(as_json(shown))
    else:
        _print_summary(shown)
    if not is_clean(shown):
        raise typer.Exit(1)


def _parse_sample_share(text: str | None, sample: str | None) -> float:
    """Return the share of the runs that a sample holds.

    Raises:
        ConfigurationError: it is not a share, or there is no sample.
    """
    if text is None:
        return _DEFAULT_SHARE
    if sample is None:
        raise ConfigurationError("--share applies to --sample: name the FILE of the sample too")
    found = parse_share(text)
    if not 0.0 <= found <= 1.0:
        raise ConfigurationError(f"--share {text!r}: expected 0 to 1, or 0% to 100%")
    return found


def _write_sample(
    name: str, share: float, recordings: list[str], given: ContractSet, kind: str | None, fields: dict[str, str] | None
) -> None:
    """Read the recordings once more and write the sample. Its key is discarded, so pseudonyms cannot be reversed."""
    if "-" in recordings:
        raise ConfigurationError("--sample reads the recordings twice, and stdin can be read once")
    with atomic_write(name) as file:
        recorder = Recorder(file.write, key=secrets.token_bytes(32), share=share, contracts=given.judge.contracts)
        for recording in recordings:
            with Source(recording, claimed=parse_format(kind), fields=fields) as source:
                for read in source.read_recordings():
                    if isinstance(read, Recording):
                        recorder.record_call(read)
    print_message(f"wrote {name}: {recorder.written:,} of {recorder.seen:,} calls, {recorder.withheld:,} withheld")


def _load_contract_set(names: list[str], config: str | None) -> ContractSet:
    """Read one set of contracts.

    Raises:
        ConfigurationError: it cannot be read, or something in it is wrong.
    """
    material: LoadedSources = read_sources(names, config=config, trust_hints=False)
    if material.problems:
        told = "; ".join(f"{one.where}: {one.message}" for one in material.problems[:3])
        raise ConfigurationError(f"the contracts cannot be used: {told}")
    if not material.contracts:
        raise ConfigurationError(f"{', '.join(names)}: no contracts in there")
    return ContractSet(", ".join(names), Judge(material.contracts, material.policy))


def _is_large(names: list[str]) -> bool:
    """True if starting processes is worth it."""
    return any(
        name == "-" or (Path(name).is_file() and Path(name).stat().st_size > _MIN_PARALLEL_BYTES) for name in names
    )


def _print_summary(shown: dict[str, Any]) -> None:
    paint = choose_painter()
    for one in shown["contracts"]:
        print_data(f"{escape_text(one['label'])}: {format_count(shown['calls'], 'call')}")
        for line in format_table(_rate_rows(one)):
            print_data(f"  {line}")
        _print_coverage(one)
        print_section("tools", _tool_rows(one))
        for title, counts in (
            ("refused", one["refusals"]),
            ("invalid answers", one["faults"]),
            ("changed", one["changes"]),
        ):
            print_section(title, [(f"{number:,}", code) for code, number in counts.items()])
        print_section("to look at", _example_rows(one))
    print_section(
        "differences", [(f"{x['count']:,}", x["way"], ", ".join(x["tools"])[:_WIDTH]) for x in shown["changes"]]
    )
    if len(shown["contracts"]) > 1 and not shown["changes"]:
        print_data(paint("no differences", "ok"))
    if shown["unread"]:
        print_message(f"{format_count(shown['unread'], 'record')} could not be read:")
        for one in shown["first_unread"]:
            print_message(f"  {one['at']}: {one['why']}")


def _rate_rows(one: dict[str, Any]) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for name, rate in one["rates"].items():
        if rate["rate"] is None:
            rows.append(
                (name, "-", "needs a truth: --map truth=FIELD" if rate["needs_truth"] else "nothing to measure")
            )
        else:
            rows.append((name, format_percent(rate["rate"]), f"{rate['hits']:,} of {rate['of']:,}"))
    told = f"{one['failed']:,} of {one['outputs']:,} answers"
    more = [f"{one['unseen']:,} would pass as data"] if one["unseen"] else []
    more += [f"{one['mentions']:,} other answers speak of errors"] if one["mentions"] else []
    share = format_percent(one["failed"] / one["outputs"]) if one["outputs"] else "-"
    rows.append(("tool errors", share, ", ".join([told, *more])))
    if one["refused_worked"]:
        rows.append(
            ("perhaps too strict", f"{one['refused_worked']:,}", "refused calls that were answered in the recording")
        )
    return rows


def _print_coverage(one: dict[str, Any]) -> None:
    tools, fields, codes = (one["coverage"][key] for key in ("tools", "fields", "codes"))
    print_data(f"coverage: {tools['seen']} of {tools['of']} tools, {fields['seen']} of {fields['of']} argument fields, "
        f"{format_count(len(codes), 'finding code')}")  # fmt: skip
    if tools["never"]:
        print_data(f"  never called: {escape_text(', '.join(tools['never']), limit=_WIDTH)}")


def _tool_rows(one: dict[str, Any]) -> list[tuple[str, ...]]:
    keys = ("calls", "refused", "corrected", "outputs", "invalid", "failed")
    found = sorted(one["tools"], key=lambda tool: -tool["calls"])
    rows: list[tuple[str, ...]] = [("calls", "refused", "corrected", "answers", "invalid", "errors", "tool")]
    rows += [(*(f"{tool[key]:,}" for key in keys), str(tool["tool"])[:_WIDTH]) for tool in found[:_MOST_ROWS]]
    hidden = len(found) - _MOST_ROWS
    return rows if hidden <= 0 else [*rows, (*[""] * len(keys), f"and {hidden} more: --json or --html")]


def _example_rows(one: dict[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (str(example["where"]), str(tool["tool"])[:60], kind, str(example["message"])[:_WIDTH])
        for tool in one["tools"]
        for kind, examples in tool["examples"].items()
        if kind != "failed"
        for example in examples[:1]
    ]
    return rows[:_MOST_EXAMPLES]
