"""Anthropic messages: content blocks of the types `tool_use` and `tool_result`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pokayoke.core.json.values import is_array, is_object
from pokayoke.replay.readers.conversation import Conversation, joined_text, messages_of, run_of
from pokayoke.replay.recording import Read, Reader

_CALL, _ANSWER = "tool_use", "tool_result"
_ROLES = ("user", "assistant", "system")


class Anthropic(Reader):
    """Reads one conversation, or one message of the assistant, per record."""

    def looks(self, value: Any) -> int:
        """See `Reader.looks`: a block that uses a tool, or holds its result, is proof."""
        messages = _messages(value)
        if not messages or not all(message.get("role") in _ROLES for message in messages):
            return 0
        return 2 if any(block.get("type") in (_CALL, _ANSWER) for _, block in _blocks(messages)) else 1

    def read(self, value: Any, line: int) -> Iterable[Read]:
        """See `Reader.read`."""
        talk = Conversation(run_of(value, line), line)
        for message, block in _blocks(_messages(value)):
            if block.get("type") == _CALL:
                reason = message.get("stop_reason")
                talk.call(block.get("id"), block.get("name"), block.get("input"), stop_reason=reason)
            elif block.get("type") == _ANSWER:
                talk.answer(block.get("tool_use_id"), joined_text(block.get("content")), block.get("is_error"))
        return talk.recordings()


def _messages(record: Any) -> list[dict[str, Any]]:
    if is_object(record) and record.get("type") == "message":
        return [record]
    return messages_of(record, "messages", "conversation")


def _blocks(messages: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for message in messages:
        content = message.get("content")
        for block in content if is_array(content) else ():
            if is_object(block):
                yield message, block
