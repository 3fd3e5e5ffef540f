"""Reads messages in every common shape.

In: a message as a dict or object: OpenAI chat completions, OpenAI responses items, Anthropic, or LangChain.
Out: its role, its text, its tool calls and its tool results; one rule says which result belongs to which call, for
everything that shortens or checks a history.
Never: change a message.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pokayoke.core.json.values import as_sequence, read_field

CALL_KINDS = frozenset({"function_call", "custom_tool_call", "tool_use"})
"""Types of items and blocks that ask for a tool."""
RESULT_KINDS = frozenset({"function_call_output", "custom_tool_call_output", "tool_result"})
"""Types of items and blocks that answer such a call."""
_OUTPUT_KINDS = RESULT_KINDS - {"tool_result"}

_ROLES = {"human": "user", "ai": "assistant", "function": "tool", "developer": "system", "model": "assistant"}
_KNOWN_ROLES = frozenset({"system", "user", "assistant", "tool"})


class MessageCall(NamedTuple):
    """A tool call inside a message."""

    id: str | None
    name: str
    arguments: Any


class MessageResult(NamedTuple):
    """A tool result inside a message."""

    id: str | None
    failed: bool
    content: Any = None


def role_of(message: Any) -> str:
    """Return `system`, `user`, `assistant` or `tool`; "" if the message says none of them.

    A user message of Anthropic that carries tool results is `tool`.
    """
    kind = read_field(message, "type")
    role = read_field(message, "role") or kind
    role = _ROLES.get(role, role) if isinstance(role, str) else ""
    if kind in CALL_KINDS or kind == "reasoning":
        return "assistant"
    if kind in RESULT_KINDS or (role == "user" and results_in(message)):
        return "tool"
    return role if role in _KNOWN_ROLES else ""


def text_of(message: Any) -> str:
    """Return the text of a message, its blocks joined by line breaks; results and calls are left out."""
    if isinstance(message, str):
        return message
    content = read_field(message, "content")
    if isinstance(content, str):
        return content
    texts = (block if isinstance(block, str) else read_field(block, "text") for block in as_sequence(content))
    return "\n".join(text for text in texts if isinstance(text, str))


def calls_in(message: Any) -> list[MessageCall]:
    """Return the tool calls a message makes, in order, each once."""
    written = as_sequence(read_field(message, "tool_calls"))
    found = [_read_call(call, read_field(call, "function") or read_field(call, "custom") or call) for call in written]
    if found:
        return found  # LangChain repeats them as blocks
    if read_field(message, "type") in CALL_KINDS:
        return [_read_call(message, message)]
    found.extend(
        _read_call(block, block)
        for block in as_sequence(read_field(message, "content"))
        if _type_of(block) in CALL_KINDS
    )
    old = read_field(message, "function_call")
    if not found and old is not None and not isinstance(old, str):
        found.append(_read_call({}, old))
    return found


def results_in(message: Any) -> list[MessageResult]:
    """Return the tool results a message carries, in order."""
    if read_field(message, "type") in RESULT_KINDS:
        return [_read_result(message)]
    if read_field(message, "role") in {"tool", "function"} or read_field(message, "type") in {"tool", "function"}:
        return [_read_result(message)]
    return [
        _read_result(block) for block in as_sequence(read_field(message, "content")) if _type_of(block) in RESULT_KINDS
    ]


def _type_of(block: Any) -> Any:
    return read_field(block, "type")


def _first_text(thing: Any, *names: str) -> str | None:
    for name in names:
        value = read_field(thing, name)
        if isinstance(value, str):
            return value
    return None


def _read_call(outer: Any, inner: Any) -> MessageCall:
    arguments = next(
        (found for name in ("arguments", "args", "input") if (found := read_field(inner, name)) is not None), None
    )
    return MessageCall(_first_text(outer, "call_id", "id"), _first_text(inner, "name") or "", arguments)


def _read_result(thing: Any) -> MessageResult:
    failed = read_field(thing, "is_error") is True or read_field(thing, "status") == "error"
    content = (
        read_field(thing, "output") if read_field(thing, "type") in _OUTPUT_KINDS else read_field(thing, "content")
    )
    return MessageResult(_first_text(thing, "tool_call_id", "tool_use_id", "call_id"), failed, content)
