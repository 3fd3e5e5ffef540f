"""Reads calls in the form `name(key=value)`: one, several in a row, or a list of them.

In: a text and an offset.
Out: the complete calls, and the reason why the reading stopped.
Never: evaluate an expression: values are literals.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any, NamedTuple

from pokayoke.core.intake.call_envelopes import read_keywords
from pokayoke.core.intake.reader import LenientReader
from pokayoke.core.intake.tokens import NAME, TextRefused

_CALL = re.compile(rf"({NAME})\(")
_CALL_END = re.compile(r"[,` \t]*+(?:\n|\Z|[<\[;])").match
_NEXT_CALL = re.compile(rf"\s*+({NAME})\(").match


class KeywordCall(NamedTuple):
    """One complete call.

    Attributes:
        name: the tool name as written.
        value: its arguments.
        reader: its reader, which has read only this call and the spaces before it.
        start: offset of its arguments.
        end: offset after the call.
    """

    name: str
    value: dict[str, Any]
    reader: LenientReader
    start: int
    end: int


class CallChain(NamedTuple):
    """The result of reading.

    Attributes:
        calls: the complete calls.
        end: offset after them; with a refusal, the offset of the unread rest.
        broken: the name of the incomplete call, or "".
        refusal: the reason why the reading stopped, or None.
    """

    calls: list[KeywordCall]
    end: int
    broken: str
    refusal: TextRefused | None


def read_chain(
    text: str, start: int, *, listed: bool, printed: bool, known: Container[str] | None, max_depth: int
) -> CallChain:
    """Read calls from `start` on, up to the first incomplete one.

    Args:
        text: the text of the message.
        start: the offset of the first name, or of the bracket of the list.
        listed: True for a list; otherwise another call must follow a separator and have the name of a tool.
        printed: True if another parenthesis follows each call.
        known: names of the offered tools, if known.
        max_depth: maximum nesting of a value.
    """
    found: list[KeywordCall] = []
    name, position = "", start + listed
    end = position
    try:
        while True:
            reader = LenientReader(text, max_depth=max_depth)
            position = reader.skip_space(position)
            call = _CALL.match(text, position)
            if call is None:
                return CallChain(found, position, name, TextRefused("not_read", position))
            name = call[1]
            reader.record_repair("call_syntax")
            value, end = read_keywords(reader, call.end())
            if printed:
                if text[end : end + 1] != ")":
                    return CallChain(found, end, name, TextRefused("not_read", end))
                end += 1
            found.append(KeywordCall(name, value, reader, call.end(), end))
            name, position = "", LenientReader(text, max_depth=max_depth).skip_space(end)
            sign = text[position : position + 1]
            if not _has_next_call(text, sign, position + 1, known, listed=listed):
                break
            position += 1
    except TextRefused as refusal:
        return CallChain(found, position, name, refusal)
    # No text may continue a call on its line, and no method below: otherwise it is part of an expression.
    between = ("\n" in text[end:position] and sign != ".") or _CALL_END(text, position) is not None
    whole = sign == "]" if listed else between
    return CallChain(found, position + 1 if listed else end, name, None if whole else TextRefused("not_read", position))


def _has_next_call(text: str, sign: str, position: int, known: Container[str] | None, *, listed: bool) -> bool:
    """Return whether another call follows a separator; outside of a list only with the name of a tool."""
    if listed:
        return sign == ","
    follows = _NEXT_CALL(text, position) if sign in {",", ";"} else None
    return follows is not None and (known is None or follows[1] in known)
