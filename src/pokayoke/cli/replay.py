"""`pokayoke replay`: judges recorded calls by contracts. Streaming, on every core."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from pokayoke.cli.options import OnOption, parse_share
from pokayoke.cli.output import (
    announce_recordings,
    as_json,
    choose_painter,
    escape_text,
    format_count,
    format_table,
    print_code_pages,
    print_data,
    print_message,
    print_section,
    progress_bar,
    report_lost_parts,
)
from pokayoke.cli.sources import LoadedSources, read_sources, refuse_to_overwrite
from pokayoke.errors import ConfigurationError
from pokayoke.replay.engines import default_jobs, open_cluster, open_local, run
from pokayoke.replay.job import pack_job
from pokayoke.replay.parts import Merger, Part, plan, read_parts, score_part
from pokayoke.replay.readers import Source, parse_map
from pokayoke.replay.readers.lines import expand_urls, is_url
from pokayoke.replay.readers.source import parse_format
from pokayoke.replay.recording import FormatName, ReadResult, Recording
from pokayoke.replay.sample.labels import draw_calls, label_row
from pokayoke.replay.sample.recorder import Recorder
from pokayoke.replay.score.counts import Score, Tally
from pokayoke.replay.score.evaluate import Judge
from pokayoke.replay.score.html_report import format_percent, html_report
from pokayoke.replay.score.summary import ContractSet, build_summary, is_clean
from pokayoke.runtime.files.atomic_file import atomic_write

_MIN_PARALLEL_BYTES: Final = 2_000_000
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
    label: Annotated[
        str | None, typer.Option(help="Draw calls into this file, for a person to fill in the truth.")
    ] = None,
    labels: Annotated[int, typer.Option(help="With --label: how many calls.", min=1, max=100_000)] = 200,
    jobs: _JobsOption = None,
    on: OnOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Score recorded calls against contracts. No tool is run.

    pokayoke replay trace.jsonl --contracts contracts.yaml

    pokayoke replay calls.jsonl --contracts v1.yaml --compare v2.yaml --html report.html

    pokayoke replay labelled.jsonl --contracts contracts.yaml --map arguments=args,truth=right_args

    pokayoke replay calls.jsonl --contracts contracts.yaml --label labels.jsonl

    pokayoke replay "s3://bucket/2026-11/*.jsonl" --contracts contracts.yaml --on ray

    Correction success, refusal accuracy and the wrong-call rate need a truth: the arguments that would have
    been right, or null where there should have been no call. Exit code 0 if there is nothing to check, 1 if a
    line could not be read, a call was refused, an answer was invalid, or the two sets differ, 2 if a recording
    or the contracts cannot be read.
    """
    wanted = _parse_sample_share(share, sample)
    recordings = expand_urls(recordings)
    refuse_to_overwrite([*recordings, *contracts, *(compare or ())], html=html, sample=sample)
    _refuse_existing_labels(label)
    sets = [_load_contract_set(names, config) for names in (contracts, compare) if names]
    mapping = parse_map(fields) if fields else None
    score, lost = _score_recordings(recordings, sets, parse_format(kind), mapping, jobs=jobs, on=on)
    shown = build_summary(score, recordings, sets)
    if html is not None:
        _write_page(html, shown)
    if sample is not None:
        _write_sample(sample, wanted, recordings, sets[0], kind, mapping)
    if label is not None:
        _write_labels(label, labels, recordings, sets[0], kind, mapping)
    if json:
        print_data(as_json(shown))
    else:
        _print_summary(shown)
    report_lost_parts(lost)
    if lost or not is_clean(shown):
        raise typer.Exit(1)


def _score_recordings(
    names: list[str],
    sets: list[ContractSet],
    kind: FormatName | None,
    fields: dict[str, str] | None,
    *,
    jobs: int | None,
    on: str | None,
) -> tuple[Score, list[Part]]:
    """Return the score, and the parts that no worker survived."""
    score = Score(tallies=[Tally() for _ in sets])
    if on is not None:
        parts: Iterable[Part] = plan(names, claimed=kind, fields=fields)
        place = open_cluster(on, pack_job(sets))
    else:
        parts = read_parts(names, claimed=kind, fields=fields)
        place = open_local(sets, jobs=jobs or (default_jobs() if _is_large(names) else 1))
    with place as engine, progress_bar(names) as told:
        lost = run(engine, score_part, announce_recordings(parts), Merger(score, told))
    return score, lost


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


def _read_again(
    option: str, names: list[str], kind: str | None, fields: dict[str, str] | None
) -> Iterator[tuple[str, ReadResult]]:
    """Yield what the recordings hold, each with the name of its recording, once more."""
    if "-" in names:
        raise ConfigurationError(f"{option} reads the recordings twice, and stdin can be read once")
    for name in names:
        with Source(name, claimed=parse_format(kind), fields=fields) as source:
            for read in source.read_recordings():
                yield name, read


def _write_page(name: str, shown: dict[str, Any]) -> None:
    with atomic_write(name) as page:
        page.write(html_report(shown).encode())
    print_message(f"wrote {name}")


def _refuse_existing_labels(name: str | None) -> None:
    if name is not None and Path(name).exists():
        raise ConfigurationError(f"--label {name} exists already, and a person may have filled it in. Name another one")


def _write_labels(
    name: str, size: int, recordings: list[str], given: ContractSet, kind: str | None, fields: dict[str, str] | None
) -> None:
    """Write calls for a person to label."""
    drawn = draw_calls(_read_again("--label", recordings, kind, fields), size)
    with atomic_write(name) as file:
        for recording, call in drawn:
            file.write(msgspec.json.encode(label_row(recording, call, given.judge)) + b"\n")
    print_message(f"wrote {name}: {format_count(len(drawn), 'call')}. Fill in each truth, then replay it")


def _write_sample(
    name: str, share: float, recordings: list[str], given: ContractSet, kind: str | None, fields: dict[str, str] | None
) -> None:
    """Read the recordings once more and write the sample. Its key is discarded, so pseudonyms cannot be reversed."""
    reads = _read_again("--sample", recordings, kind, fields)
    with atomic_write(name) as file:
        recorder = Recorder(file.write, key=secrets.token_bytes(32), share=share, contracts=given.judge.contracts)
        for _, read in reads:
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
    return ContractSet(", ".join(names), Judge(material.contracts, material.policy), tuple(material.modules))


def _is_large(names: list[str]) -> bool:
    """True if starting processes is worth it."""
    return any(
        name == "-" or is_url(name) or (Path(name).is_file() and Path(name).stat().st_size > _MIN_PARALLEL_BYTES)
        for name in names
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
        print_code_pages([*one["refusals"], *one["faults"]])
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
                (
                    name,
                    "-",
                    "needs a truth: --map truth=FIELD" if rate["needs_truth"] else "nothing to measure",
                )
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
