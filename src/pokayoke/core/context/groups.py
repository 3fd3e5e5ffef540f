"""Groups: the inseparable pieces of a history; and copies of messages with changes.

In: messages in any format.
Out: a group is a call with its results, or one other message. Only whole groups are left out of a history.
Never: separate a call from its results; change a message in place.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.context.values import HistoryFormat
from pokayoke.core.json.values import as_sequence, read_field
from pokayoke.core.messages.messages import MessageCall
from pokayoke.errors import UsageError

UNANSWERED = (
    "No result of this call is known. It may or may not have taken effect: "
    "look at the state of things before you call it again."
)
"""Text that replaces a missing result."""

REMOVE_FIELD: Any = object()
"""As a change: remove the field."""


class GroupResult(msgspec.Struct, frozen=True, gc=False):
    """A tool result inside a group.

    Attributes:
        call: its call.
        content: text, or blocks.
        failed: True if the message marks it as failed.
        message: index of its message in the group.
        block: index of its block in that message; None if the message is the result.
        known: False for an added one, whose result is missing.
    """

    call: MessageCall
    content: Any
    failed: bool
    message: int
    block: int | None = None
    known: bool = True


class MessageGroup(msgspec.Struct, frozen=True, gc=False):
    """Messages that stay together.

    Attributes:
        messages: the messages as sent.
        sources: positions of their originals in the history, from 0.
        role: role of the first message.
        results: the tool results among them.
        speaks: True if they hold a user's own words.
        waits: True if they hold an unanswered request that is no tool call.
    """

    messages: tuple[Any, ...]
    sources: tuple[int, ...]
    role: str
    results: tuple[GroupResult, ...] = ()
    speaks: bool = False
    waits: bool = False

    @property
    def is_open(self) -> bool:
        """True if a result is missing."""
        return self.waits or not all(result.known for result in self.results)


class RebuiltHistory(msgspec.Struct, frozen=True, gc=False):
    """A history that every provider of its format accepts.

    Attributes:
        groups: the groups in order.
        findings: the repairs.
    """

    groups: list[MessageGroup]
    findings: list[Finding]


def flatten_groups(groups: Iterable[MessageGroup]) -> list[Any]:
    """Return the messages of groups."""
    return [message for group in groups for message in group.messages]


def with_fields(thing: Any, **changes: Any) -> Any:
    """Return a copy of a message, call or block with some fields changed; `REMOVE_FIELD` removes one.

    Args:
        thing: a dict or an object; it is not changed.
        changes: fields and their new values.
    """
    if isinstance(thing, Mapping):
        fields = dict(cast("Mapping[str, Any]", thing))
        inner: Any = fields.get("data")
        if isinstance(inner, Mapping):
            fields["data"] = with_fields(inner, **changes)
            return fields
        fields.update(changes)
        return {name: value for name, value in fields.items() if value is not REMOVE_FIELD}
    values = {name: None if value is REMOVE_FIELD else value for name, value in changes.items()}
    if callable(getattr(thing, "model_copy", None)):
        return thing.model_copy(update=values)
    changed = copy.copy(thing)
    for name, value in values.items():
        setattr(changed, name, value)
    return changed


def answer_text(content: Any) -> str | None:
    """Return the text of a tool result; None if it holds anything but text."""
    if isinstance(content, str):
        return content
    parts: list[str] = []
    for block in as_sequence(content):
        text = block if isinstance(block, str) else read_field(block, "text")
        if not isinstance(text, str):
            return None
        parts.append(text)
    return "\n".join(parts)


def with_result_texts(group: MessageGroup, texts: Mapping[int, str]) -> MessageGroup:
    """Return a group with other texts in some results.

    Args:
        group: the group.
        texts: new text by the index of the result.
    """
    messages, results = list(group.messages), list(group.results)
    for number, text in texts.items():
        result = results[number]
        message = messages[result.message]
        if result.block is None:
            name = "output" if read_field(message, "output") is not None else "content"
            messages[result.message] = with_fields(message, **{name: text})
        else:
            blocks = list(as_sequence(read_field(message, "content")))
            blocks[result.block] = with_fields(blocks[result.block], content=text)
            messages[result.message] = with_fields(message, content=blocks)
        results[number] = msgspec.structs.replace(result, content=text)
    return msgspec.structs.replace(group, messages=tuple(messages), results=tuple(results))


_BAD_NAME_SIGN = re.compile(r"[^A-Za-z0-9_.:/-]")
_MOST_NAME = 128


def usable_name(name: str) -> str:
    """Return a tool name without characters that providers refuse."""
    if name and len(name) <= _MOST_NAME and not _BAD_NAME_SIGN.search(name):
        return name
    return _BAD_NAME_SIGN.sub("_", name)[:_MOST_NAME] or "unknown_tool"


def free_id(wanted: str, taken: Iterable[str]) -> str:
    """Return a free id similar to the wanted one."""
    used, number = set(taken), 2
    base = wanted or "call"
    while f"{base}_{number}" in used:
        number += 1
    return f"{base}_{number}"


Shape = Literal["openai", "items", "anthropic", "langchain"]
"""Shape of calls and results: a format, or `items` for the responses API."""

_SHAPES_OF_FORMAT: dict[HistoryFormat | None, frozenset[Shape | None]] = {
    None: frozenset({"openai", "items", "anthropic", "langchain", None}),
    "openai": frozenset({"openai", "items", None}),
    "anthropic": frozenset({"anthropic", None}),
    "langchain": frozenset({"openai", "anthropic", "langchain", None}),
}


def history_shape(messages: Iterable[Any], declared: HistoryFormat | None) -> Shape | None:
    """Return the shape of a history; None while neither the caller nor a message shows it.

    Args:
        messages: the history.
        declared: the caller's format.

    Raises:
        UsageError: the messages have another format than the caller's.
    """
    if declared not in _SHAPES_OF_FORMAT:
        raise UsageError(f"format must be openai, anthropic or langchain, got {declared!r}")
    shown = next((shown for message in messages if (shown := message_shape(message))), None)
    if shown not in _SHAPES_OF_FORMAT[declared]:
        raise UsageError(f"format={declared!r}, but the messages are in the shape of {shown}; name that, or none")
    return shown if shown is not None else declared


_LANGCHAIN_KINDS = frozenset({"human", "ai", "system", "tool", "function", "developer", "chat"})
_ITEM_KINDS = ("_call", "_call_output", "_approval_request", "_approval_response")
_BLOCK_KINDS = frozenset({"tool_use", "tool_result"})


def message_shape(message: Any) -> Shape | None:
    """Return the shape that a message shows; None if several are possible."""
    kind, role = read_field(message, "type"), read_field(message, "role")
    if isinstance(kind, str):
        if kind in _LANGCHAIN_KINDS and not isinstance(role, str):
            return "langchain"
        if kind == "reasoning" or kind.endswith(_ITEM_KINDS):
            return "items"
    if read_field(message, "tool_calls") or role in {"tool", "function"}:
        return "openai"
    if any(read_field(block, "type") in _BLOCK_KINDS for block in as_sequence(read_field(message, "content"))):
        return "anthropic"
    return None
