"""Calls that a model spelled out in its text, and calls that a history ends with.

Both are calls nobody has taken yet: of a model that has no tool calls of its own, and of a process that
ended between a reply and its answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from pokayoke.core.call import ToolCall
from pokayoke.core.intake import ReadCall, read_arguments, read_calls
from pokayoke.core.intake.reading import SchemaLike
from pokayoke.core.json.values import read_field
from pokayoke.core.messages.messages import calls_in, results_in, role_of
from pokayoke.core.messages.replies import CallIds, Reply, read_reply


def with_text_calls(said: Reply, tools: Mapping[str, Any], ids: CallIds) -> Reply:
    """Return a reply with the calls that stand in its text.

    Args:
        said: a reply without calls.
        tools: names of the tools on offer, with their schemas.
        ids: gives the calls their ids.
    """
    found = read_calls(said.text, tools=tools, stop_reason=said.stop_reason)
    if not found.calls:
        return said
    calls = tuple(_build_text_call(one, ids.unique_id(None, "text"), said, tools.get(one.name)) for one in found.calls)
    return msgspec.structs.replace(said, calls=calls, text=found.rest, shape="text")


def _build_text_call(found: ReadCall, ident: str, said: Reply, schema: SchemaLike | None) -> ToolCall:
    """The call with the arguments that were read, or with a text that is none and the refusal of its own."""
    reading = found.reading
    unread = reading.reason
    arguments: Any = said.text[found.span[0] : found.span[1]]
    if reading.grade in ("exact", "lossless") and reading.value is not None:
        arguments, unread = reading.value, None
    elif reading.grade == "edited":  # its text is read once more, to be told to the model as it is
        for candidate in _texts_in(read_arguments(arguments).value):
            again = read_arguments(candidate, schema=schema)
            if (again.grade, again.value) == (reading.grade, reading.value):
                arguments, unread = candidate, None
    if unread is not None and read_arguments(arguments, schema=schema).reason != unread:
        arguments = f"[{arguments}]"  # no object, whatever it holds: who replays a trace sees nothing but this text
    return ToolCall(ident, found.name, arguments, stop_reason=said.stop_reason, unread=unread)


def _texts_in(value: Mapping[str, Any] | None) -> Iterable[str]:
    """The texts in an envelope, one level deep or two."""
    for held in (value or {}).values():
        if isinstance(held, str):
            yield held
        elif isinstance(held, dict):
            yield from _texts_in(cast("dict[str, Any]", held))


def pending_calls(messages: Sequence[Any], *, tools: Mapping[str, Any] | None = None) -> Reply | None:
    """Return what the end of a history asks for and nobody has answered, as a reply without messages.

    Why that reply ended is not known any more.

    Args:
        messages: the history.
        tools: as in `read_reply`, for models that write their calls into the text.

    Returns:
        the calls in order; None if every call is answered, or somebody has spoken since.
    """
    end = len(messages)
    while end and role_of(messages[end - 1]) in ("assistant", "tool"):
        end -= 1
    tail = messages[end:]
    found: Reply | None = None
    waiting: list[ToolCall] = []
    for message in tail:
        for one in results_in(message):  # one without an id is of the time when there was one call at a time
            waiting = [call for call in waiting if call.id != one.id] if one.id else waiting[1:]
        if calls_in(message):
            found = read_reply(
                {"output": [message]} if role_of(message) and not read_field(message, "role") else message
            )
            waiting += found.calls
    if found is None and tools is not None and tail:
        found = read_reply(tail[-1], tools=tools)
        waiting += found.calls
    if found is None or not waiting:
        return None
    return msgspec.structs.replace(found, messages=(), calls=tuple(waiting))
