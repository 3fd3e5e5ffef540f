"""OpenAI Responses: items of the types `function_call` and `function_call_output`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pokayoke.core.json.values import is_array, is_object
from pokayoke.replay.readers.conversation import CallMatcher, join_text_blocks, run_name
from pokayoke.replay.recording import ReadResult, RecordingReader

_CALL, _ANSWER = "function_call", "function_call_output"
_PLACES = ("input", "items", "output")


class OpenAIResponsesReader(RecordingReader):
    """Reads one response, request or list of items per record."""

    def match_strength(self, value: Any) -> int:
        """See `RecordingReader.match_strength`: an item that calls a function, or answers one, is proof."""
        items = _find_items(value)
        if any(item.get("type") in (_CALL, _ANSWER) for item in items):
            return 2
        return int(is_object(value) and value.get("object") == "response")

    def read_record(self, value: Any, line: int) -> Iterable[ReadResult]:
        """See `RecordingReader.read_record`."""
        talk = CallMatcher(run_name(value, line), line)
        reason = value.get("status") if is_object(value) else None
        for item in _find_items(value):
            if item.get("type") == _CALL:
                status = item.get("status", reason)
                cut = "incomplete" if status == "incomplete" else None
                talk.add_call(item.get("call_id"), item.get("name"), item.get("arguments"), stop_reason=cut)
            elif item.get("type") == _ANSWER:
                talk.add_answer(item.get("call_id"), join_text_blocks(item.get("output")))
        return talk.list_recordings()


def _find_items(record: Any) -> list[dict[str, Any]]:
    """Return the items of a record: its input before its output."""
    if is_array(record):
        return [item for item in record if is_object(item)]
    if not is_object(record):
        return []
    if record.get("type") in (_CALL, _ANSWER):
        return [record]
    lists = [record[place] for place in _PLACES if is_array(record.get(place))]
    return [item for found in lists for item in found if is_object(item)]
