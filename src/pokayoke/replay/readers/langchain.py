"""LangChain messages, in the three forms in which they are written.

`messages_to_dict` ({"type": "ai", "data": {...}}), `model_dump` ({"type": "ai", "content": ...}), and `dumpd`
({"lc": 1, "id": [..., "AIMessage"], "kwargs": {...}}).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pokayoke.core.json.values import is_array, is_object
from pokayoke.replay.readers.conversation import CallMatcher, join_text_blocks, message_objects, run_name
from pokayoke.replay.recording import ReadResult, RecordingReader

_TYPES = ("ai", "human", "system", "tool", "function", "chat", "remove", "AIMessageChunk")
_CLASSES = {
    "AIMessage": "ai",
    "AIMessageChunk": "ai",
    "HumanMessage": "human",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "function",
    "ChatMessage": "chat",
}
_CUT = ("length", "max_tokens")


class LangChainReader(RecordingReader):
    """Reads one list of messages, or one state with `messages`, per record."""

    def match_strength(self, value: Any) -> int:
        """See `RecordingReader.match_strength`.

        Every message has a LangChain type, and a call or an answer is proof.
        """
        found = _find_messages(value)
        if not found or not all(kind for kind, _ in found):
            return 0
        return 2 if any(kind == "tool" or _find_calls(message) for kind, message in found) else 1

    def read_record(self, value: Any, line: int) -> Iterable[ReadResult]:
        """See `RecordingReader.read_record`."""
        talk = CallMatcher(run_name(value, line), line)
        for kind, message in _find_messages(value):
            if kind in ("tool", "function"):
                status = message.get("status")
                failed = status == "error" if status in ("error", "success") else None
                talk.add_answer(message.get("tool_call_id"), join_text_blocks(message.get("content")), failed)
            for call in _find_calls(message) if kind == "ai" else ():
                talk.add_call(call.get("id"), call.get("name"), call.get("args"), stop_reason=_finish_reason(message))
        return talk.list_recordings()


def _find_messages(record: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the messages of a record: kind ("" if it is no LangChain message) and fields of each."""
    whole = message_objects(record, "messages")
    if not whole and is_object(record) and _message_fields(record)[0]:
        whole = [record]
    return [_message_fields(message) for message in whole]


def _message_fields(message: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    ident, inner = message.get("id"), message.get("kwargs")
    if message.get("lc") == 1 and is_array(ident) and ident and is_object(inner):
        return _CLASSES.get(str(ident[-1]), ""), inner
    kind = message.get("type")
    if kind not in _TYPES or "role" in message:
        return "", {}
    data = message.get("data")
    return "ai" if kind == "AIMessageChunk" else str(kind), data if is_object(data) else message


def _find_calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the calls of a message, including those whose arguments LangChain could not parse (`args` is the text)."""
    found: list[dict[str, Any]] = []
    for key in ("tool_calls", "invalid_tool_calls"):
        calls = message.get(key)
        found += [call for call in calls if is_object(call)] if is_array(calls) else []
    return found


def _finish_reason(message: dict[str, Any]) -> Any:
    """Return the reason for the end of a message, wherever its provider's package put it."""
    about = message.get("response_metadata")
    if not is_object(about):
        return None
    return next((about[key] for key in ("finish_reason", "stop_reason") if about.get(key) in _CUT), None)
