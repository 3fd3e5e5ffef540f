"""Anthropic messages: content blocks of the types `tool_use` and `tool_result`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pokayoke.core.json.values import is_array, is_object
from pokayoke.replay.readers.conversation import CallMatcher, join_text_blocks, message_objects, run_name
from pokayoke.replay.recording import ReadResult, RecordingReader

_CALL, _ANSWER = "tool_use", "tool_result"
_ROLES = ("user", "assistant", "system")


class AnthropicReader(RecordingReader):
    """Reads one conversation, or one message of the assistant, per record."""

    def match_strength(self, value: Any) -> int:
        """See `RecordingReader.match_strength`: a block that uses a tool, or holds its result, is proof."""
        messages = _find_messages(value)
        if not messages or not all(message.get("role") in _ROLES for message in messages):
            return 0
        return 2 if any(block.get("type") in (_CALL, _ANSWER) for _, block in _iter_blocks(messages)) else 1

    def read_record(self, value: Any, line: int) -> Iterable[ReadResult]:
        """See `RecordingReader.read_record`."""
        talk = CallMatcher(run_name(value, line), line)
        for message, block in _iter_blocks(_find_messages(value)):
            if block.get("type") == _CALL:
                reason = message.get("stop_reason")
                talk.add_call(block.get("id"), block.get("name"), block.get("input"), stop_reason=reason)
            elif block.get("type") == _ANSWER:
                talk.add_answer(block.get("tool_use_id"), join_text_blocks(block.get("content")), block.get("is_error"))
        return talk.list_recordings()


def _find_messages(record: Any) -> list[dict[str, Any]]:
    if is_object(record) and record.get("type") == "message":
        return [record]
    return message_objects(record, "messages", "conversation")


def _iter_blocks(messages: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for message in messages:
        content = message.get("content")
        for block in content if is_array(content) else ():
            if is_object(block):
                yield message, block
