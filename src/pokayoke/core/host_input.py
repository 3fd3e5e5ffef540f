"""What a programmer hands in by mistake: said in words where it comes in, not as an AttributeError further on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from pokayoke.core.call import ToolCall
from pokayoke.core.json.values import read_field
from pokayoke.errors import UsageError

_HISTORY = 'a history is a list of messages such as [{"role": "user", "content": "..."}]'


def not_a_call_error(given: object) -> UsageError:
    """Return the error for what stands where a tool call belongs."""
    return UsageError(
        f"a call is a ToolCall(id, name, arguments), got {_type_name(given)}; calls(reply, run) of the adapters "
        "and read_calls(text) make them out of what a model wrote"
    )


def as_calls(calls: object) -> tuple[ToolCall, ...]:
    """Return the calls of one message.

    Raises:
        UsageError: they are no list, or one of them is no tool call.
    """
    if isinstance(calls, ToolCall) or not isinstance(calls, Iterable):
        raise UsageError(f"call_batch takes the list of a message's calls, got {_type_name(calls)}; see call()")
    known = tuple(cast("Iterable[object]", calls))
    for call in known:
        if not isinstance(call, ToolCall):
            raise not_a_call_error(call)
    return cast("tuple[ToolCall, ...]", known)


def as_history(messages: object) -> list[Any]:
    """Return the messages of a history; what among them is none is left where it is.

    Raises:
        UsageError: it is a text, a single message or no list.
    """
    given: Any = messages
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise UsageError(f"{_HISTORY}, got {_type_name(messages)}")
    return list(cast("list[Any]", given))


def as_prompt(text: Any) -> Any:
    """Return what a user said: a text, or the blocks of one message.

    Raises:
        UsageError: it is anything else, or a whole history.
    """
    if isinstance(text, str):
        return text
    if not isinstance(text, (list, tuple)):
        raise UsageError(f"what the user said is a text, got {_type_name(text)}")
    blocks = cast("Sequence[Any]", text)
    if any(read_field(block, "role") is not None for block in blocks):
        raise UsageError("what the user said is a text, got messages: a loop takes a history as messages=")
    return blocks


def as_answer(text: object) -> str | None:
    """Return a model's last text.

    Raises:
        UsageError: it is neither a text nor None.
    """
    if text is None or isinstance(text, str):
        return text
    raise UsageError(f"the model's answer is a text or None, got {_type_name(text)}: take the text of its message")


def as_function(given: Any, what: str) -> Any:
    """Return what will be called.

    Args:
        given: what the host gave.
        what: the name of its parameter.

    Raises:
        UsageError: it cannot be called.
    """
    if callable(given):
        return given
    raise UsageError(f"{what} is a function, or None; not {given!a:.40}")


def as_whole_number(given: object, what: str) -> int:
    """Return a count.

    Args:
        given: what the host gave.
        what: what it counts.

    Raises:
        UsageError: it is no whole number.
    """
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    raise UsageError(f"{what} is a whole number, got {given!a:.40}")


def _type_name(given: object) -> str:
    return type(given).__name__
