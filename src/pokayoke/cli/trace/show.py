"""`pokayoke trace show`: one run, call by call.

In: the rows of a run.
Out: a block of lines for each call, or one line of JSON for each row.
Never: a text of a model or a tool that is not escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pokayoke.cli.options import format_time
from pokayoke.cli.output import as_json, choose_painter, escape_text, format_count, print_code_pages, print_data
from pokayoke.core.json.values import is_object
from pokayoke.replay.run_rows import CallRow, Row, RunMark

_LONGEST: Final = 400
"""Characters of a value that are shown; `--json` has all of it."""
_MARKS: Final = {True: "ok", False: "bad", None: "note"}


def select_rows(rows: Sequence[Row], *, failed: bool, writes: bool) -> list[Row]:
    """Return the rows that the options name. What is not known to be a read counts as a write.

    Args:
        rows: of the run.
        failed: only what went wrong, or has no end.
        writes: only calls that may have had effects, and what happened beside the calls.
    """
    return [
        row
        for row in rows
        if not (failed and row.ok is not False and not (isinstance(row, CallRow) and row.status == "unfinished"))
        and not (writes and isinstance(row, CallRow) and row.is_write is False)
    ]


def print_rows(run_id: str, rows: Sequence[Row], chosen: Sequence[Row], *, json: bool) -> None:
    """Print rows of a run.

    Args:
        run_id: the run.
        rows: all of them, for the summary.
        chosen: those to be shown.
        json: one line of JSON for each, and no summary.
    """
    if json:
        for row in chosen:
            print_data(
                as_json({"run_id": run_id, "row": "call" if isinstance(row, CallRow) else "mark"} | _fields(row))
            )
        return
    print_data(_summary(run_id, rows))
    paint = choose_painter()
    for row in chosen:
        print_data(paint(_head(row), _MARKS[row.ok]))
        for label, value in _details(row):
            print_data(f"    {label:<10} {escape_text(value, limit=_LONGEST)}")
    print_code_pages(str(one.get("code")) for row in chosen if isinstance(row, CallRow) for one in row.findings)


def _fields(row: Row) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(row)
    return fields


def _summary(run_id: str, rows: Sequence[Row]) -> str:
    calls = [row for row in rows if isinstance(row, CallRow)]
    wrong = sum(row.ok is False for row in calls)
    times = [row.at for row in rows if row.at is not None]
    took = f" in {_format_seconds(max(times) - min(times))}" if times else ""
    stops = [f"; stopped: {row.reason}" for row in rows if isinstance(row, RunMark) and row.event == "stop"]
    text = f"{run_id}: {format_count(len(calls), 'call')}, {wrong} not ok{took}{stops[-1] if stops else ''}"
    return escape_text(text, limit=_LONGEST)


def _head(row: Row) -> str:
    words = [f"#{'-' if row.step is None else row.step}", format_time(row.at, timespec="milliseconds")]
    if isinstance(row, RunMark):
        words += [row.event, f"({row.reason})" if row.reason else ""]
    else:
        words += [row.contract or row.tool, row.status, f"({row.reason})" if row.reason else ""]
        words += ["" if row.seconds is None else _format_seconds(row.seconds)]
        words += [f"{row.attempts} attempts" if row.attempts is not None and row.attempts > 1 else ""]
        words += [f"effect {row.effect}" if row.effect in ("done", "unknown") else ""]
    return " ".join(escape_text(word, limit=_LONGEST) for word in words if word)


def _details(row: Row) -> list[tuple[str, str]]:
    """Return what is to be said about a row, in the order of a call's path."""
    if isinstance(row, RunMark):
        return [("details", as_json(row.details))] if row.details else []
    found = [("sent", row.sent if isinstance(row.sent, str) else as_json(row.sent))] if row.sent is not None else []
    found += [("read as", ", ".join(row.read_as))] if row.read_as else []
    found += [("corrected", _describe_correction(one)) for one in row.corrected]
    found += [("arguments", as_json(row.arguments))] if row.arguments is not None else []
    if row.decision is not None:
        found.append(("decided", f"{row.decision} by {row.room}" if row.room else row.decision))
    found += [("answered", as_json(row.answered))] if row.answered is not None else []
    found += [("found", f"{one.get('code')}: {one.get('message', one.get('at', ''))}") for one in row.findings]
    found += [("told", hint) for hint in row.told]
    return found


def _describe_correction(correction: Any) -> str:
    if not is_object(correction):
        return str(correction)
    change = (
        f": {as_json(correction['before'])} -> {as_json(correction.get('after'))}" if "before" in correction else ""
    )
    return f"{correction.get('at') or '/'} {correction.get('rule')}{change} ({correction.get('class', 'equivalent')})"


def _format_seconds(seconds: float) -> str:
    if seconds < 0.001:  # noqa: PLR2004 - a thousandth
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1.0 else f"{seconds:.2f} s"
