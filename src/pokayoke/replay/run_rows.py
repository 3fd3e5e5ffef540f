"""One run as its trace tells it: a row for each call, and a row for whatever stopped or changed between calls.

In: events of one trace, in the order of the file.
Out: rows in the order in which calls began.
Never: a text that is fit to be shown. Values stay as the trace holds them; whoever shows them escapes them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.json.values import is_array, is_object
from pokayoke.core.output.model_text import refusal_text

MOST_ROWS: Final = 50_000
"""Rows that are built of one run; what comes after them is left out."""
_CALLS: Final = ("tool_call", "tool_result")
_UNFINISHED: Final = "unfinished"
_DECIDED_STATUS: Final = {"refuse": "refused", "stop": "refused", "ask": "pending"}


class CallRow(msgspec.Struct, kw_only=True, gc=False, omit_defaults=True):
    """One call of a run, from what the model sent to what it was told. Fields that the trace lacks are None or empty.

    Attributes:
        at: wall-clock second of its first event.
        step: its number in the run.
        call_id: its id.
        tool: the tool's name.
        contract: `name@version`.
        is_write: whether it claims effects; None if the run does not show it.
        sent: the text that the model sent, where it differs from `arguments`.
        read_as: names of the repairs that made the text readable.
        corrected: the corrections, as `{at, rule, before, after, class}`.
        arguments: what the tool receives.
        room: the room that decided.
        decision: what it decided.
        status: how the call ended; `unfinished` if its end is not in the trace.
        ok: whether it succeeded.
        reason: why not, in the trace's words.
        findings: what was found, as `{code, at, blame, message, hint, data}`.
        answered: what the tool, or the ledger, returned.
        told: what the model reads instead of a result, word for word if the call did not start; else the hints that
            stand beside or instead of one.
        seconds: how long the tool took.
        attempts: how often it was started.
        effect: `none`, `done` or `unknown`.
        key: of its record in the ledger.
    """

    at: float | None
    step: int | None
    call_id: str
    tool: str
    contract: str | None = None
    is_write: bool | None = None
    sent: Any = None
    read_as: tuple[str, ...] = ()
    corrected: tuple[Any, ...] = ()
    arguments: Any = None
    room: str | None = None
    decision: str | None = None
    status: str = _UNFINISHED
    ok: bool | None = None
    reason: str | None = None
    findings: tuple[dict[str, Any], ...] = ()
    answered: Any = None
    told: tuple[str, ...] = ()
    seconds: float | None = None
    attempts: int | None = None
    effect: str | None = None
    key: str | None = None


class RunMark(msgspec.Struct, kw_only=True, gc=False, omit_defaults=True):
    """Something that happened to a run beside its calls: a stop, a latch, an approval, a shortened history.

    Attributes:
        at: wall-clock second.
        step: the number of the latest call.
        event: the kind of the event.
        ok: False if it went wrong.
        reason: why.
        details: its other fields.
    """

    at: float | None
    step: int | None
    event: str
    ok: bool | None = None
    reason: str | None = None
    details: dict[str, Any] = {}


Row = CallRow | RunMark


def build_run_rows(events: Iterable[Any], run_id: str) -> list[Row]:
    """Return the rows of a run.

    Args:
        events: of a trace, as decoded JSON; those of other runs, and values that are no events, are passed over.
        run_id: the run.

    Returns:
        at most `MOST_ROWS` rows, in the order in which they began.
    """
    rows: list[Row] = []
    begun: OrderedDict[tuple[int | None, str], CallRow] = OrderedDict()
    effects: dict[str, bool] = {}
    for event in events:
        if not is_object(event) or event.get("run_id") != run_id:
            continue
        kind = _text(event.get("event"))
        place = (_whole(event.get("step")), _text(event.get("call_id")) or "")
        row = begun.pop(place, None) if kind == "tool_result" and "decision" not in event else None
        if row is None:
            if len(rows) >= MOST_ROWS:
                continue
            if kind not in _CALLS:
                rows.append(_build_mark(event, kind or "?"))
                continue
            row = CallRow(at=_number(event.get("ts")), step=place[0], call_id=place[1], tool="?")
            rows.append(row)
        _fill_row(row, event)
        if kind == "tool_call" and row.decision in ("allow", "replay"):
            begun[place] = row  # its end is another event
            effects[row.contract or row.tool] = True
        elif kind == "tool_result" and "decision" in event:
            effects[row.contract or row.tool] = False
    for one in rows:
        if isinstance(one, CallRow):
            one.is_write = effects.get(one.contract or one.tool)
    return rows


def _fill_row(row: CallRow, event: dict[str, Any]) -> None:
    """Add what one event says about a call. The end of a write says nothing of its arguments again."""
    row.tool = _text(event.get("tool")) or row.tool
    row.contract = _text(event.get("contract")) or row.contract
    row.decision = _text(event.get("decision")) or row.decision
    row.room = _text(event.get("room")) or row.room
    row.ok = event["ok"] if isinstance(event.get("ok"), bool) else row.ok
    row.status = _text(event.get("status")) or _DECIDED_STATUS.get(row.decision or "", _UNFINISHED)
    row.reason = _text(event.get("reason")) or row.reason
    row.arguments = event.get("arguments", row.arguments)
    row.sent = event.get("raw", row.sent)
    row.read_as = tuple(map(str, _list(event.get("repairs")))) or row.read_as
    row.corrected = tuple(_list(event.get("corrections"))) or row.corrected
    row.answered = event.get("result", row.answered)
    took = _number(event.get("us"))
    row.seconds = row.seconds if took is None else took / 1e6
    row.attempts = _whole(event.get("attempts")) if "attempts" in event else row.attempts
    row.effect = _text(event.get("effect")) or row.effect
    row.key = _text(event.get("key")) or row.key
    found = tuple(one for one in _list(event.get("findings")) if is_object(one))
    row.findings += tuple(one for one in found if one not in row.findings)
    row.told = _find_told(row)


def _find_told(row: CallRow) -> tuple[str, ...]:
    if row.decision in _DECIDED_STATUS and row.findings:
        with suppress(msgspec.ValidationError):  # a trace of another version, or a damaged one
            return (refusal_text(msgspec.convert(row.findings, tuple[Finding, ...]), tool=row.tool),)
    hints = (_text(one.get("hint")) for one in row.findings)
    return tuple(dict.fromkeys(hint for hint in hints if hint))


def _build_mark(event: dict[str, Any], kind: str) -> RunMark:
    own = ("ts", "run_id", "step", "event", "ok", "reason")
    return RunMark(
        at=_number(event.get("ts")),
        step=_whole(event.get("step")),
        event=kind,
        ok=event["ok"] if isinstance(event.get("ok"), bool) else None,
        reason=_text(event.get("reason")),
        details={name: value for name, value in event.items() if name not in own},
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _list(value: Any) -> list[Any]:
    return value if is_array(value) else []
