"""`pokayoke trace`: shows a trace file, follows it, counts its events in constant memory, or shows one run."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import msgspec
import typer

from pokayoke.cli.options import format_time
from pokayoke.cli.output import (
    as_json,
    choose_painter,
    escape_text,
    format_count,
    print_data,
    print_message,
    print_section,
)
from pokayoke.core.json.values import is_array, is_object
from pokayoke.replay.readers.lines import LONGEST_LINE, InputFile

_TOO_LONG: Final = b"(too long)"
_MOST_NAMES: Final = 1_000
_MOST_RUNS: Final = 100_000
_RUNS_NAMED: Final = 5
_OTHERS: Final = "(others)"
_STATUS_COLUMNS: Final = {
    "ok": "valid", "degraded": "invalid", "invalid_output": "invalid", "failed": "failed", "in_doubt": "failed",
}  # fmt: skip
_SOURCES: Final = {
    "ask": "asked about",
    "refuse": "refused",
    "noted": "only noted: `ask` would ask, `refuse` would refuse",
    "invented": "a value that nobody named",
    "stale": "a value that a later answer replaced",
}
_DIFFERENCES: Final = ("call", "arguments", "output", "value", "broken")
_MOST_DIFFERENCES: Final = 8
_POLL_SECONDS: Final = 0.2
_PROGRESS_FROM: Final = 20_000_000

Event = dict[str, Any]


def trace(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[report] FILE | show RUN", help="The trace file, - for stdin; or one run of it."),
    ],
    run: Annotated[str | None, typer.Option(help="Only events of this run.")] = None,
    tool: Annotated[str | None, typer.Option(help="Only events of this tool.")] = None,
    event: Annotated[str | None, typer.Option(help="Only events of this kind, such as stop.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only events that failed.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more events, even after a rotation.")
    ] = False,
    writes: Annotated[bool, typer.Option("--writes", help="With show: only calls that may have had effects.")] = False,
    file: Annotated[
        str | None,
        typer.Option("--trace", metavar="FILE", help="With show: the trace file; that of pokayoke.yaml if not given."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON: one line per event, one per row of a run, or one report.")
    ] = False,
) -> None:
    """Show a trace file, count its events, or show one run.

    pokayoke trace t.jsonl --failed

    pokayoke trace t.jsonl --run run_2c18 --follow

    pokayoke trace report t.jsonl --json

    pokayoke trace show run_2c18 --trace t.jsonl --writes

    The report counts calls and failures by kind and tool. "Turns saved" are calls that ran after a repair
    or a correction instead of going back to the model, and calls answered from the ledger. Lines that are
    not events are counted, named on stderr, and make the exit code 1.
    """
    if words[0] == "show" and len(words) > 1:
        _show_run(words[1:], file, json=json, failed=failed, writes=writes, others=bool(run or tool or event or follow))
        return
    if writes or file is not None:
        print_message("error: --writes and --trace are for one run. As in: pokayoke trace show RUN --trace t.jsonl")
        raise typer.Exit(2)
    counting = _is_report(words, follow=follow)

    def is_selected(found: Event) -> bool:
        return (
            (run is None or found.get("run_id") == run)
            and (tool is None or found.get("tool") == tool)
            and (event is None or found.get("event") == event)
            and not (failed and found.get("ok") is not False)
        )

    broken = BrokenLines()
    events = (found for found in _read_events(words[-1], broken, follow=follow) if is_selected(found))
    if counting:
        report = TraceReport(events)
        shown = report.events
        _print_report(report, broken, json=json)
    else:
        shown = _print_events(events, json=json, endless=follow)
    if not shown and (run or tool or event or failed):
        print_message("no events found")
    _report_broken_lines(broken)


def _is_report(words: list[str], *, follow: bool) -> bool:
    """Return whether the words ask for a report; end with exit code 2 if they ask for nothing that there is."""
    counting = len(words) > 1 and words[0] == "report"
    if words == ["report"] and not Path("report").exists():
        print_message("error: report of which FILE? As in: pokayoke trace report t.jsonl")
        raise typer.Exit(2)
    if len(words) != 1 + counting or (counting and follow):
        print_message("error: expected FILE or report FILE (a report has an end, so it takes no --follow)")
        raise typer.Exit(2)
    return counting


def _report_broken_lines(broken: BrokenLines) -> None:
    """Say which lines were no events, and end with exit code 1, if there were any."""
    if broken.count:
        print_message(f"{format_count(broken.count, 'broken line')}, not counted. The first is line {broken.first}.")
        raise typer.Exit(1)


def _show_run(words: list[str], file: str | None, *, json: bool, failed: bool, writes: bool, others: bool) -> None:
    """Show the run that the words name."""
    from pokayoke.cli.trace.show import print_rows, select_rows  # noqa: PLC0415 - this form only
    from pokayoke.replay.run_rows import MOST_ROWS, build_run_rows  # noqa: PLC0415 - as above

    if len(words) != 1 or others:
        print_message("error: expected show RUN with --trace, --failed, --writes or --json, and nothing else")
        raise typer.Exit(2)
    name, broken, known = file or _configured_trace(), BrokenLines(), OrderedDict[str, None]()

    def note_runs() -> Iterator[Event]:
        for found in _read_events(name, broken, follow=False):
            if isinstance(run_id := found.get("run_id"), str):
                known[run_id] = None
                known.move_to_end(run_id)
                if len(known) > _RUNS_NAMED:
                    known.popitem(last=False)
            yield found

    rows = build_run_rows(note_runs(), words[0])
    if not rows:
        latest = f"The latest runs are {', '.join(reversed(known))}" if known else "It holds no runs"
        print_message(f"error: {name} holds no run {words[0]}. {latest}")
        raise typer.Exit(2)
    chosen = select_rows(rows, failed=failed, writes=writes)
    print_rows(words[0], rows, chosen, json=json)
    if not chosen:
        print_message("no calls found")
    if len(rows) >= MOST_ROWS:
        print_message(f"only the first {MOST_ROWS:,} rows of the run")
    _report_broken_lines(broken)


def _configured_trace() -> str:
    """Return the trace file of the configuration in this folder."""
    from pokayoke.runtime.config.config import load_policy  # noqa: PLC0415 - only where no file is named

    default = "pokayoke.yaml"
    path = load_policy(default).trace.path if Path(default).is_file() else None
    if path is None:
        print_message(f"error: name the trace file with --trace FILE ({default} here names none)")
        raise typer.Exit(2)
    return str(path)


class BrokenLines:
    """Counts lines that are no events, and keeps the number of the first."""

    def __init__(self) -> None:
        self.count = 0
        self.first = 0

    def add_line(self, number: int) -> None:
        """Count one line."""
        self.count += 1
        self.first = self.first or number


# -- reading ---------------------------------------------------------------------------------------


def _read_events(name: str, broken: BrokenLines, *, follow: bool) -> Iterator[Event]:
    for number, line in enumerate(_read_lines(name, follow=follow), 1):
        found = _parse_event(line)
        if found is not None:
            yield found
        elif line.strip():
            broken.add_line(number)


def _parse_event(line: bytes) -> Event | None:
    try:
        found: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    return found if is_object(found) and isinstance(found.get("event"), str) else None


def _read_lines(name: str, *, follow: bool) -> Iterator[bytes]:
    if follow and name != "-":
        yield from _follow_file(name, _open_file(name))
        return
    with closing(InputFile(name)) as source, _progress_bar(source) as count:
        for line in source.read_lines():
            count()
            yield line


def _open_file(name: str) -> BinaryIO:
    try:
        file = Path(name).open("rb")  # noqa: SIM115 - the caller's stack closes it
    except OSError as error:
        print_message(f"error: {name}: {error.strerror}")
        raise typer.Exit(2) from None
    if stat.S_ISDIR(os.fstat(file.fileno()).st_mode):
        print_message(f"error: {name}: is a folder")
        raise typer.Exit(2)
    return file


def _follow_file(name: str, file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file without end: those that are appended, and those after a rotation."""
    part = b""
    try:
        while True:
            # Checked before the file is read to its end, so that lines written before the move are not missed.
            moved = _is_rotated(name, file)
            while more := file.readline(LONGEST_LINE):
                part = part + more if len(part) < LONGEST_LINE else _TOO_LONG
                if more.endswith(b"\n"):
                    yield part
                    part = b""
            if moved:
                file.close()
                file, part = _open_file(name), b""
            elif file.tell() > os.fstat(file.fileno()).st_size:
                file.seek(0)
                part = b""
            else:
                sys.stdout.flush()
                time.sleep(_POLL_SECONDS)
    finally:
        file.close()


def _is_rotated(name: str, file: BinaryIO) -> bool:
    try:
        return Path(name).stat().st_ino != os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return False


@contextmanager
def _progress_bar(source: InputFile) -> Generator[Callable[[], None]]:
    """Show a bar on stderr while a large file is read at a terminal."""
    if source.size < _PROGRESS_FROM or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415 - loaded where a bar is drawn
    from rich.progress import Progress  # noqa: PLC0415 - as above

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=source.size)
        yield lambda: bar.update(task, completed=source.bytes_read())


# -- showing ---------------------------------------------------------------------------------------


def _print_events(events: Iterator[Event], *, json: bool, endless: bool) -> int:
    """Print each event on a line of its own and return how many there were."""
    paint = choose_painter()
    shown = 0
    # Ctrl-C is how following ends, whether it comes while waiting or while printing.
    with suppress(KeyboardInterrupt) if endless else nullcontext():
        for found in events:
            shown += 1
            if json:
                print_data(as_json(found))
                continue
            line = describe_event(found)
            print_data(line if found.get("ok") is not False else paint(line, "bad"))
    return shown


def describe_event(event: Event) -> str:
    """Return one event as one line for people, escaped."""
    words = [_format_timestamp(event.get("ts")), event.get("run_id", "-"), f"#{event.get('step', '-')}", event["event"]]
    words += [event[key] for key in ("tool", "decision", "status") if event.get(key)]
    if event["event"] == "shadow":
        words.append(f"{event.get('contract')} {'!=' if event.get('differs') else '='} {event.get('candidate')}")
    elif event.get("ok") is False and (event.get("error") or event.get("decision") in (None, "allow")):
        words.append(event.get("error") or "FAILED")
    if event.get("reason"):
        words.append(f"({event['reason']})")
    words += [f"{key}={event[key]}" for key in ("safe_mode", "us", "attempts", "effect") if event.get(key)]
    words += [f"{key}: {_join_names(event[key])}" for key in ("repairs", "corrections") if event.get(key)]
    return " ".join(escape_text(word, limit=400) for word in words)


def _format_timestamp(second: Any) -> str:
    return format_time(second, timespec="milliseconds")


def _join_names(values: Any) -> str:
    if not is_array(values):
        return str(values)
    return ", ".join(str(value.get("rule", "?") if is_object(value) else value) for value in values)


# -- counting --------------------------------------------------------------------------------------


class TraceReport:
    """Counts of a trace. Memory is bounded: names beyond the first 1,000 are counted together.

    Args:
        events: of the trace.
    """

    def __init__(self, events: Iterator[Event]) -> None:
        self.events = 0
        self.runs: set[Any] = set()
        self.calls: Counter[str] = Counter()
        self.failures: Counter[tuple[str, str]] = Counter()
        self.monitored: Counter[tuple[str, str]] = Counter()
        self.untrusted: Counter[tuple[str, str]] = Counter()
        self.stops: Counter[str] = Counter()
        self.versions: Counter[tuple[str, str]] = Counter()
        self.shadows: Counter[tuple[str, str]] = Counter()
        self.fixed = 0
        self.replayed = 0
        self.first: Any = None
        self.last: Any = None
        for event in events:
            self._add_event(event)

    @property
    def turns_saved(self) -> int:
        """Calls the model did not have to make again."""
        return self.fixed + self.replayed

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "events": self.events,
            "runs": len(self.runs),
            "runs_at_least": len(self.runs) >= _MOST_RUNS,
            "from": self.first,
            "to": self.last,
            "calls": dict(sorted(self.calls.items())),
            "failures": _nest_counts(self.failures),
            "monitored": _nest_counts(self.monitored),
            "untrusted": _nest_counts(self.untrusted),
            "stops": dict(sorted(self.stops.items())),
            "versions": _nest_counts(self.versions),
            "shadows": _nest_counts(self.shadows),
            "turns_saved": {"repaired_or_corrected": self.fixed, "replayed": self.replayed},
        }

    def _add_event(self, event: Event) -> None:
        self.events += 1
        if len(self.runs) < _MOST_RUNS and isinstance(event.get("run_id"), str):
            self.runs.add(event["run_id"])
        if isinstance(event.get("ts"), (int, float)):
            self.first = event["ts"] if self.first is None else min(self.first, event["ts"])
            self.last = event["ts"] if self.last is None else max(self.last, event["ts"])
        tool = str(event.get("tool", "-"))
        # A write is decided in one event and ends in another; a read has one event for both.
        if event["event"] == "tool_call" or (event["event"] == "tool_result" and "decision" in event):
            self.calls[_bound_name(tool, self.calls)] += 1
            self._add_sources(event, tool)
            if event.get("decision") == "replay":
                self.replayed += 1
            if (code := _monitored_code(event)) is not None:
                _add_pair(self.monitored, (code, tool))
            elif event.get("decision") == "allow" and (event.get("repairs") or event.get("corrections")):
                self.fixed += 1
        if event["event"] == "shadow":
            self._add_shadow(event)
            return  # a difference is no failure: it decided nothing
        self._add_version(event)
        if event["event"] == "stop":
            self.stops[_bound_name(str(event.get("reason")), self.stops)] += 1
        elif event.get("ok") is False:
            _add_pair(self.failures, (_failure_kind(event), tool))

    def _add_sources(self, event: Event, tool: str) -> None:
        """Count a call by what was found of its sources: asked about, refused, or what a stricter mode would do."""
        found = event.get("untrusted")
        if not is_object(found):
            return
        if found.get("reasons"):
            decided = found.get("decision")
            _add_pair(self.untrusted, (decided if decided in ("ask", "refuse") else "noted", tool))
        for name in ("invented", "stale"):
            if found.get(name):
                _add_pair(self.untrusted, (name, tool))

    def _add_version(self, event: Event) -> None:
        """Count a call by the version of its tool: once where it was decided, and again by how it ended."""
        contract = event.get("contract")
        if not isinstance(contract, str):
            return
        name = contract if (contract, "calls") in self.versions or len(self.versions) < _MOST_NAMES else _OTHERS
        if event["event"] == "tool_call" or "decision" in event:
            self.versions[name, "calls"] += 1
            if event.get("decision") in ("refuse", "stop"):
                self.versions[name, "refused"] += 1
        if (ended := _STATUS_COLUMNS.get(str(event.get("status")))) is not None:
            self.versions[name, ended] += 1

    def _add_shadow(self, event: Event) -> None:
        pair = f"{event.get('contract')} -> {event.get('candidate')}"
        name = pair if (pair, "judged") in self.shadows or len(self.shadows) < _MOST_NAMES else _OTHERS
        self.shadows[name, "judged"] += 1
        differs = event.get("differs")
        if is_array(differs) and differs:
            self.shadows[name, "differ"] += 1
            for what in differs[:_MOST_DIFFERENCES]:
                self.shadows[name, what if what in _DIFFERENCES else "other"] += 1


def _nest_counts(counted: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (name, what), count in sorted(counted.items()):
        found.setdefault(name, {})[what] = count
    return found


def _bound_name(name: str, counted: Counter[str]) -> str:
    return name if name in counted or len(counted) < _MOST_NAMES else _OTHERS


def _add_pair(counted: Counter[tuple[str, str]], pair: tuple[str, str]) -> None:
    counted[pair if pair in counted or len(counted) < _MOST_NAMES else (_OTHERS, _OTHERS)] += 1


def _monitored_code(event: Event) -> str | None:
    """Return why a call that monitor mode let through would have been refused; None if it would not."""
    findings = event.get("findings")
    for finding in findings if is_array(findings) else ():
        if is_object(finding) and finding.get("code") == "monitored" and is_object(finding.get("data")):
            return str(finding["data"].get("code"))
    return None


def _failure_kind(event: Event) -> str:
    """Return the kind of a failure: the code of its first finding, else its error or status."""
    findings = event.get("findings")
    if is_array(findings) and findings and is_object(findings[0]):
        return str(findings[0].get("code"))
    return str(event.get("error") or event.get("status") or event.get("decision") or event["event"])


def _print_report(report: TraceReport, broken: BrokenLines, *, json: bool) -> None:
    if json:
        print_data(as_json({**report.as_dict(), "broken_lines": broken.count}))
        return
    runs = f"{_MOST_RUNS}+ runs" if len(report.runs) >= _MOST_RUNS else format_count(len(report.runs), "run")
    print_data(
        f"{format_count(report.events, 'event')} of {runs}, "
        f"{_format_timestamp(report.first)} to {_format_timestamp(report.last)}"
    )
    print_data(f"calls: {report.calls.total()}   turns saved: {report.turns_saved}"
        f" ({report.fixed} repaired or corrected, {report.replayed} answered from the ledger)")  # fmt: skip
    print_section("failures", [(count, kind, tool) for (kind, tool), count in report.failures.most_common()])
    rows = [(count, kind, tool) for (kind, tool), count in report.monitored.most_common()]
    print_section("would have been refused, but for monitor mode", rows)
    rows = [(count, _SOURCES.get(kind, kind), tool) for (kind, tool), count in report.untrusted.most_common()]
    print_section("values of untrusted sources", rows)
    print_section("stops", [(count, reason) for reason, count in report.stops.most_common()])
    print_section("calls", [(count, tool) for tool, count in report.calls.most_common()])
    names = [contract.rpartition("@")[0] for contract in _nest_counts(report.versions)]
    if len(names) > len(set(names)):
        print_section(
            "versions", _count_rows(report.versions, ("calls", "refused", "valid", "invalid", "failed"), "tool")
        )
    print_section("shadows", _count_rows(report.shadows, ("judged", "differ", *_DIFFERENCES), "stable -> candidate"))


def _count_rows(counted: Counter[tuple[str, str]], columns: tuple[str, ...], last: str) -> list[tuple[Any, ...]]:
    rows = [(*(found.get(column, 0) for column in columns), name) for name, found in _nest_counts(counted).items()]
    return [(*columns, last), *rows] if rows else []
