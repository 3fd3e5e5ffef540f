"""Calls in the form `name(key=value)`: one, several behind each other, or a list of them."""

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
    """One whole call.

    Attributes:
        name: the tool name as written.
        value: its arguments.
        reader: what has read it, and nothing else but the spaces before it.
        start: where its arguments begin.
        end: where it ends.
    """

    name: str
    value: dict[str, Any]
    reader: LenientReader
    start: int
    end: int


class CallChain(NamedTuple):
    """What was read.

    Attributes:
        calls: those that are whole.
        end: where they end; with a refusal, from where on nothing was read yet.
        broken: the name of the call that is not whole, or "".
        refusal: what stopped the reading, or None.
    """

    calls: list[KeywordCall]
    end: int
    broken: str
    refusal: TextRefused | None


def read_chain(
    text: str, start: int, *, listed: bool, printed: bool, known: Container[str] | None, max_depth: int
) -> CallChain:
    """Read calls from `start` on, up to the first that is not whole.

    Args:
        text: the text of the message.
        start: the offset of the first name, or of the bracket of the list.
        listed: True for a list; without one, another call follows only on a sign, and by the name of a tool.
        printed: True if each call has one more parenthesis behind it.
        known: names of the tools on offer, if known.
        max_depth: deepest nesting of a value.
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
    # Nothing goes on behind a call, in the same line or with a method below: else it is part of something else.
    between = ("\n" in text[end:position] and sign != ".") or _CALL_END(text, position) is not None
    whole = sign == "]" if listed else between
    return CallChain(found, position + 1 if listed else end, name, None if whole else TextRefused("not_read", position))


def _has_next_call(text: str, sign: str, position: int, known: Container[str] | None, *, listed: bool) -> bool:
    """Return whether another call follows a sign; without a list only where its name is that of a tool."""
    if listed:
        return sign == ","
    follows = _NEXT_CALL(text, position) if sign in {",", ";"} else None
    return follows is not None and (known is None or follows[1] in known)
