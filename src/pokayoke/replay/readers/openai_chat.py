"""OpenAI chat completions: conversations (`messages`), and completions (`choices`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pokayoke.core.json.values import is_array, is_object
from pokayoke.replay.readers.conversation import CallMatcher, join_text_blocks, message_objects, run_name
from pokayoke.replay.recording import ReadResult, RecordingReader

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class OpenAIChatReader(RecordingReader):
    """Reads one conversation or completion per record. A bare list of messages is a conversation."""

    def match_strength(self, value: Any) -> int:
        """See `RecordingReader.match_strength`: a message with `tool_calls`, or of the role `tool`, is proof."""
        messages = _find_messages(value)
        if not messages or not all(message.get("role") in _ROLES for message in messages):
            return 0
        proof = any(message["role"] in ("tool", "function") or _find_calls(message) for message in messages)
        return 2 if proof else 1 if all(not is_array(message.get("content")) for message in messages) else 0

    def read_record(self, value: Any, line: int) -> Iterable[ReadResult]:
        """See `RecordingReader.read_record`."""
        talk = CallMatcher(run_name(value, line), line)
        for message in _find_messages(value):
            if message.get("role") in ("tool", "function"):
                talk.add_answer(message.get("tool_call_id"), join_text_blocks(message.get("content")))
            for ident, function in _find_calls(message):
                talk.add_call(ident, function.get("name"), function.get("arguments"), stop_reason=message.get(_REASON))
        return talk.list_recordings()


_REASON = "finish_reason"


def _find_messages(record: Any) -> list[dict[str, Any]]:
    """Return the messages of a conversation; those of a completion each with its finish reason."""
    if is_object(record) and is_array(record.get("choices")):
        chosen = [choice for choice in record["choices"] if is_object(choice) and is_object(choice.get("message"))]
        return [{"role": "assistant", **choice["message"], _REASON: choice.get(_REASON)} for choice in chosen]
    return message_objects(record, "messages", "conversation")


def _find_calls(message: dict[str, Any]) -> list[tuple[Any, dict[str, Any]]]:
    """Return the calls of a message: id and function object of each; the older `function_call` has no id."""
    calls = message.get("tool_calls")
    listed = [call for call in calls if is_object(call)] if is_array(calls) else []
    found: list[tuple[Any, dict[str, Any]]] = [
        (call.get("id"), call["function"]) for call in listed if is_object(call.get("function"))
    ]
    single = message.get("function_call")
    return [*found, (None, single)] if is_object(single) else found
