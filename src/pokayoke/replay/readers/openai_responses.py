"""OpenAI Responses: items of the types `function_call` and `function_call_output`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pokayoke.core.json.values import is_array, is_object
from pokayoke.replay.readers.conversation import Conversation, joined_text, run_of
from pokayoke.replay.recording import Read, Reader

_CALL, _ANSWER = "function_call", "function_call_output"
_PLACES = ("input", "items", "output")


class OpenAIResponses(Reader):
    """Reads one response, request or list of items per record."""

    def looks(self, value: Any) -> int:
        """See `Reader.looks`: an item that calls a function, or answers one, is proof."""
        items = _items(value)
        if any(item.get("type") in (_CALL, _ANSWER) for item in items):
            return 2
        return int(is_object(value) and value.get("object") == "response")

    def read(self, value: Any, line: int) -> Iterable[Read]:
        """See `Reader.read`."""
        talk = Conversation(run_of(value, line), line)
        reason = value.get("status") if is_object(value) else None
        for item in _items(value):
            if item.get("type") == _CALL:
                status = item.get("status", reason)
                cut = "incomplete" if status == "incomplete" else None
                talk.call(item.get("call_id"), item.get("name"), item.get("arguments"), stop_reason=cut)
            elif item.get("type") == _ANSWER:
                talk.answer(item.get("call_id"), joined_text(item.get("output")))
        return talk.recordings()


def _items(record: Any) -> list[dict[str, Any]]:
    """The items of a record: what went in before what came out."""
    if is_array(record):
        return [item for item in record if is_object(item)]
    if not is_object(record):
        return []
    if record.get("type") in (_CALL, _ANSWER):
        return [record]
    lists = [record[place] for place in _PLACES if is_array(record.get(place))]
    return [item for found in lists for item in found if is_object(item)]
