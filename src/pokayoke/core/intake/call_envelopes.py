"""Reads the envelope of a call: a name next to its arguments in an object, or `name(key=value)`.

In: a value that was read, or a reader after an opening parenthesis.
Out: the calls that it carries.
Never: drop a call or a member silently.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, cast

from pokayoke.core.intake.reader import LenientReader
from pokayoke.core.intake.tokens import TextRefused
from pokayoke.core.json.values import is_object

_NAMES = ("name", "tool", "tool_name", "toolName", "function", "function_name", "recipient_name")
_ARGUMENTS = ("arguments", "args", "parameters", "params", "input", "tool_input", "kwargs")
CARRIERS = frozenset(_ARGUMENTS)
"""Members that hold arguments."""
_ACTION = ("action", "action_input")
"""A separate pair: `action` next to any other word for arguments may be data."""
_INNER = ("function", "function_call", "functionCall", "tool_call")
_LABELS = frozenset({"id", "type", "call_id", "tool_call_id", "index", "status"})
_LISTS = ("tool_calls", "function_calls", "calls", "tool_uses")
_COMPLETE_STATUS = "completed"
"""Statuses of a complete call, as providers send them; any other may mean that it is over, or not final."""

MISSING: Any = object()
"""Marks absent arguments."""


class CallEnvelope(NamedTuple):
    """One call as read from an object.

    Attributes:
        name: the tool name as written.
        arguments: an object, the text of one, or `MISSING`.
        foreign: members that are neither name, arguments nor a known label.
    """

    name: str
    arguments: Any
    foreign: tuple[str, ...]


def find_envelopes(value: Any, known: frozenset[str] | None) -> list[CallEnvelope] | None:
    """Return the calls an object or list carries, in order; None if it carries none.

    Args:
        value: the value that was read.
        known: names of the offered tools, if known: only then a name without arguments is a call.
    """
    if isinstance(value, list):
        items = cast(list[object], value)
        found = [find_envelopes(item, known) for item in items]
        if not any(found):
            return None
        return [call for calls in found for call in (calls or [CallEnvelope("", 0, ())])]
    if not isinstance(value, dict):
        return None
    members = cast(dict[str, Any], value)
    for key in _LISTS:
        if isinstance(members.get(key), list) and members[key]:
            calls = find_envelopes(members[key], known)
            beside = _foreign_members(
                members, {key, *(other for other in (*_LISTS, *_INNER) if not members.get(other))}
            )
            return calls and [call._replace(foreign=(*call.foreign, *beside)) for call in calls]
    for key in _INNER:
        if isinstance(members.get(key), dict):
            return _read_envelope(members[key], known, _foreign_members(members, {key}))
    return _read_envelope(members, known, ())


def _read_envelope(
    members: dict[str, Any], known: frozenset[str] | None, foreign: tuple[str, ...]
) -> list[CallEnvelope] | None:
    if isinstance(members.get(_ACTION[0]), str) and _ACTION[1] in members:
        return [
            CallEnvelope(members[_ACTION[0]], members[_ACTION[1]], (*foreign, *_foreign_members(members, {*_ACTION})))
        ]
    names = [key for key in _NAMES if isinstance(members.get(key), str)]
    arguments = [key for key in _ARGUMENTS if key in members]
    if is_object(described := members.get("parameters")) and {"type", "properties"} <= described.keys():
        return None  # the definition of a tool
    if not names or (not arguments and (known is None or members[names[0]] not in known)):
        return None
    rest = (*foreign, *_foreign_members(members, {names[0], *arguments[:1]}))
    return [CallEnvelope(members[names[0]], members[arguments[0]] if arguments else MISSING, rest)]


def _foreign_members(members: dict[str, Any], used: set[str]) -> tuple[str, ...]:
    """Return the members that are not labels."""
    return (*(key for key in members if key not in used and key not in _LABELS), *_incomplete_status(members))


def _incomplete_status(members: dict[str, Any]) -> tuple[str, ...]:
    """Return the status, unless it is that of a complete call."""
    return () if members.get("status") in (None, _COMPLETE_STATUS) else ("status",)


def find_unreadable_envelopes(value: Any, known: frozenset[str] | None) -> list[CallEnvelope] | None:
    """Return the calls of a list whose items name a tool, but hold their arguments in an unknown form.

    Each of these calls is refused and reported to the model; leaving them out would lose them silently.

    Args:
        value: the value that was read; only a list of objects that each have a name counts.
        known: names of the offered tools, if known: then every item must name one of them.
    """
    items = cast("list[object]", value) if isinstance(value, list) else []
    found: list[CallEnvelope] = []
    for item in items:
        members = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        name = next((members[key] for key in _NAMES if isinstance(members.get(key), str)), None)
        if name is None and len(members) == 1:
            name = next((key for key, inner in members.items() if isinstance(inner, dict)), None)
        if name is None or (known is not None and name not in known):
            return None
        found.append(CallEnvelope(name, MISSING, tuple(members)))
    return found or None


_KEYWORD = re.compile(r"([A-Za-z_]\w*+)\s*=(?!=)")


def read_keywords(reader: LenientReader, position: int) -> tuple[dict[str, Any], int]:
    """Read the arguments of a call after its opening parenthesis; return them and the end of the call.

    Args:
        reader: the reader of the text.
        position: offset after the parenthesis.

    Raises:
        TextRefused: an argument has no name, no literal value, or the text ends before the call does.
    """
    text = reader.text
    members: dict[str, Any] = {}
    position = reader.skip_space(position)
    if text[position : position + 1] == "{":
        members, position = reader.read_object(position + 1)
        position = reader.skip_space(position)
        if text[position : position + 1] != ")":
            raise TextRefused("positional_arguments" if position < len(text) else "missing_closer", position)
        return members, position + 1
    while text[position : position + 1] != ")":
        key = _KEYWORD.match(text, position)
        if key is None:
            raise TextRefused("positional_arguments" if position < len(text) else "cut_after_comma", position)
        if key[1] in members:
            raise TextRefused("duplicate_key", position)
        begin = reader.skip_space(key.end())
        if begin >= len(text):
            raise TextRefused("cut_after_colon", begin)
        members[key[1]], position = reader.read_value(begin)
        position = reader.skip_space(position)
        sign = text[position : position + 1]
        if sign == ",":
            position = reader.skip_space(position + 1)
        elif sign != ")":
            raise TextRefused("expression" if sign else "cut_after_comma", position)
    return members, position + 1
