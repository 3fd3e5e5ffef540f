"""Our own trace: a read has one event; a write has one before its tool started and one after."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from pokayoke.core.call import Finding
from pokayoke.core.json.values import is_array, is_object
from pokayoke.replay.readers.conversation import identifier_text
from pokayoke.replay.recording import ReadResult, Recording, RecordingReader, UnreadRecord

_MOST_WAITING = 10_000
_REPLAYED_DECISIONS = ("replay",)
_STUBS = ({"bytes"}, {"bytes", "sha256"})
_FAILED = {"ok": False, "failed": True, "in_doubt": True}
_INVALID = ("degraded", "invalid_output")


class TraceReader(RecordingReader):
    """Joins the events of one call. At most 10,000 calls wait for their answer; beyond that the oldest has none."""

    joins = True

    def __init__(self) -> None:
        self._waiting: OrderedDict[tuple[str, Any, str], Recording] = OrderedDict()

    def match_strength(self, value: Any) -> int:
        """See `RecordingReader.match_strength`.

        An event of a run counts; one of the guard, such as of a reload, proves nothing.
        """
        if not (is_object(value) and isinstance(value.get("event"), str)):
            return 0
        return 2 if "run_id" in value else int("ts" in value and "ok" in value)

    def read_record(self, value: Any, line: int) -> Iterable[ReadResult]:
        """See `RecordingReader.read_record`. Events other than calls are skipped."""
        if value.get("event") == "tool_call":
            yield from self._read_call(value, line)
        elif value.get("event") == "tool_result":
            yield from self._read_result(value, line)

    def finish(self) -> Iterable[ReadResult]:
        """See `RecordingReader.finish`: writes without a recorded end."""
        while self._waiting:
            yield self._waiting.popitem(last=False)[1]

    def _read_call(self, event: dict[str, Any], line: int) -> Iterator[ReadResult]:
        if event.get("decision") in _REPLAYED_DECISIONS:
            return
        found = _build_recording(event, line, effect="write" if event.get("decision") == "allow" else None)
        if event.get("decision") != "allow" or isinstance(found, UnreadRecord):
            yield found  # a refused call has no other event
            return
        self._waiting[_call_key(event)] = found
        if len(self._waiting) > _MOST_WAITING:
            yield self._waiting.popitem(last=False)[1]

    def _read_result(self, event: dict[str, Any], line: int) -> Iterator[ReadResult]:
        if event.get("status") == "replayed":
            return
        found: ReadResult | None = self._waiting.pop(_call_key(event), None)
        if found is None:
            if "decision" not in event:
                yield UnreadRecord(line, "the end of a call whose beginning is not in this file")
                return
            found = _build_recording(event, line, effect="read")  # whatever claims an effect has an event before it
        yield found if isinstance(found, UnreadRecord) else _with_answer(found, event)


def _call_key(event: dict[str, Any]) -> tuple[str, Any, str]:
    step = event.get("step")
    return (
        identifier_text(event.get("run_id")),
        step if isinstance(step, int) else None,
        identifier_text(event.get("call_id")),
    )


def _with_answer(found: Recording, event: dict[str, Any]) -> Recording:
    status, took = identifier_text(event.get("status")), event.get("us")
    if isinstance(took, int):
        found = msgspec.structs.replace(found, seconds=took / 1e6)
    if status in _INVALID:
        return msgspec.structs.replace(found, fault=_output_finding(event))
    result = event.get("result", UNSET)
    return msgspec.structs.replace(found, output=UNSET if _is_stub(result) else result, is_error=_FAILED.get(status))


def _output_finding(event: dict[str, Any]) -> Finding:
    """Return the problem of an answer that is not in the trace: the first finding about it."""
    findings = event.get("findings")
    first = findings[0] if is_array(findings) and findings else None
    try:
        return msgspec.convert(first, Finding)
    except msgspec.ValidationError:
        return Finding("schema_mismatch", blame="tool", message="the trace does not say what was wrong with the answer")


def _build_recording(event: dict[str, Any], line: int, *, effect: Literal["read", "write"] | None) -> ReadResult:
    """Return the call of an event. The text as the model wrote it counts, if it was kept."""
    raw, used = event.get("raw"), event.get("arguments")
    given = raw if isinstance(raw, str) else used
    tool = event.get("tool")
    if not isinstance(tool, str) or _is_stub(given) or not (isinstance(given, str) or is_object(given)):
        return UnreadRecord(line, "a call whose arguments were not recorded (trace.payloads, trace.max_payload_chars)")
    contract = event.get("contract")
    return Recording(
        tool=tool,
        arguments=given,
        run=identifier_text(event.get("run_id")),
        line=line,
        contract=contract if isinstance(contract, str) else None,
        used=used if used is not given and is_object(used) and not _is_stub(used) else None,
        ran=event.get("decision") == "allow",
        effect=effect,
    )


def _is_stub(value: Any) -> bool:
    """True for the replacement of a payload that is too long, or only hashed."""
    return is_object(value) and set(value) in _STUBS and isinstance(value.get("bytes"), int)
