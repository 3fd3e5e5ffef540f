"""Calls that a model wrote as text: find them in order, read their arguments, keep the rest.

A call that cannot be read is still reported, with the reason: it must not vanish, and nothing behind it
is taken for a call of its own until a tag begins a new one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from pokayoke.core.intake.arguments import SchemaLike, read_arguments
from pokayoke.core.intake.envelopes import MISSING, Envelope, envelopes
from pokayoke.core.intake.patterns import Refusal
from pokayoke.core.intake.reader import Reader
from pokayoke.core.intake.reading import Calls, ReadCall, Reading, is_cut, refused
from pokayoke.core.intake.wrapping import strip_markup
from pokayoke.core.strict import dump_compact

_MAX_CHARS = 200_000
_MAX_DEPTH = 64

_NAME = r"[A-Za-z_][\w.-]{0,127}"
# A name that stands before an object of arguments.
_HEADER = re.compile(
    rf"<function=[\"']?({_NAME})[\"']?>"
    rf"|\[TOOL_CALLS\]\s*({_NAME})\s*(?:\[ARGS\])?(?=\s*\{{)"
    rf"|to=(?:functions\.)?({_NAME})[^{{\n]{{0,80}}<\|message\|>"
    rf"|(?:^|\n)[ \t]*Action:[ \t]*({_NAME})[ \t]*\n[ \t]*Action Input:"
)
_HEADER_END = re.compile(r"</function>|<\|call\|>|<\|end\|>|\nObservation:")
_CALL = re.compile(rf"({_NAME})\(")
_START = re.compile(
    rf"(?P<header>{_HEADER.pattern.replace('(' + _NAME + ')', _NAME)})|(?P<mark>\[/?[A-Z][A-Z_]{{2,30}}\])"
    rf"|(?P<calls>\[\s*{_NAME}\()|(?P<open>[{{\[])|(?:(?:^|\n)[ \t]*|[>`\]]\s*)(?P<call>{_NAME}\()"
)
_RESYNC = re.compile(r"</?(?:tool_call|function_call|function)\b|<\|(?:call|im_start|start|eom_id|eot_id)\|>")
_HINT = re.compile(r"""["'](?:name|tool|tool_name|function|function_name|arguments|args|parameters)["']\s*:""")
_NAMED = re.compile(rf"""["'](?:name|tool|tool_name|function|function_name)["']\s*:\s*["']({_NAME})["']""")
_KEYWORD = re.compile(r"([A-Za-z_]\w*+)\s*=(?!=)")
_BETWEEN = re.compile(r"[\s,;\[\]]*+").fullmatch


def read_calls(
    text: str | bytes,
    *,
    tools: Iterable[str] | Mapping[str, SchemaLike | None] | None = None,
    stop_reason: str | None = None,
    max_chars: int = _MAX_CHARS,
    max_depth: int = _MAX_DEPTH,
) -> Calls:
    """Find the calls a model wrote into a text.

    Understood are objects with a name and arguments (`name`/`arguments`, `name`/`parameters`, `tool`/`args`,
    `function`, nested as providers do), lists and lines of them, tags and fences around them, a name in a tag
    before its arguments, and `name(key=value)` with literal values.

    Args:
        text: the message text; bytes must be UTF-8.
        tools: names of the tools on offer, or a mapping from name to input schema.
        stop_reason: why the provider says the message ended; one that proves a cut makes every reading lossy.
        max_chars: longest text that is looked at.
        max_depth: deepest nesting.

    Returns:
        The calls in order, each with its graded reading, and what stood around them.

    Raises:
        ContractError: a schema in `tools` is not usable.
    """
    try:
        plain = text.decode() if isinstance(text, bytes) else text
        plain.encode()
    except UnicodeError as exc:
        reason = "invalid_utf8" if isinstance(exc, UnicodeDecodeError) else "lone_surrogate"
        return _unreadable(refused(reason), len(text))
    if len(plain) > max_chars:
        return _unreadable(refused("too_long", max_chars), len(plain))
    finder = _Finder(plain, tools, max_depth=max_depth)
    finder.run()
    calls = tuple(finder.calls)
    if is_cut(stop_reason):
        calls = tuple(ReadCall(name=call.name, reading=refused("cut_message"), span=call.span) for call in calls)
    return Calls(calls=calls, rest=_rest(plain, [call.span for call in calls]))


def _unreadable(reading: Reading, length: int) -> Calls:
    return Calls(calls=(ReadCall(name="", reading=reading, span=(0, length)),))


def _rest(text: str, spans: list[tuple[int, int]]) -> str:
    """Return what stands around the calls, without the markup that belonged to them."""
    pieces: list[str] = []
    position = 0
    for start, end in [*sorted(set(spans)), (len(text), len(text))]:
        piece = strip_markup(text[position:start])[0] if spans else text[position:start]
        if not _BETWEEN(piece):
            pieces.append(piece)
        position = max(position, end)
    return "\n".join(pieces).strip()


class _Finder:
    """One walk over a text."""

    def __init__(
        self, text: str, tools: Iterable[str] | Mapping[str, SchemaLike | None] | None, *, max_depth: int
    ) -> None:
        self.text = text
        self.max_depth = max_depth
        self.calls: list[ReadCall] = []
        self.schemas: Mapping[str, SchemaLike | None] = tools if isinstance(tools, Mapping) else {}
        self.known = None if tools is None else frozenset(tools)
        self.first = len(text) - len(text.lstrip())

    def run(self) -> None:
        """Walk from one possible beginning to the next."""
        position = 0
        while found := _START.search(self.text, position):
            kind = cast(str, found.lastgroup)
            start = found.start(kind)
            if kind == "header":
                position = self._headed(start)
            elif kind == "mark":
                position = found.end()
            elif kind == "open":
                position = self._enveloped(start)
            else:
                position = self._called(start, found.end(), listed=kind == "calls")

    def _add(self, name: str, reading: Reading, start: int, end: int) -> None:
        self.calls.append(ReadCall(name=name, reading=reading, span=(start, end)))

    def _headed(self, start: int) -> int:
        """Read the arguments behind a name in a tag."""
        header = _HEADER.match(self.text, start)
        assert header is not None
        name = next(group for group in header.groups() if group)
        begin = header.end()
        stops = [
            found.start() for found in (_HEADER_END.search(self.text, begin), _HEADER.search(self.text, begin)) if found
        ]
        end = min(stops, default=len(self.text))
        self._add(name, self._read(self.text[begin:end], name), start, end)
        closer = _HEADER_END.match(self.text, end)
        return closer.end() if closer else end

    def _read(self, text: str, name: str) -> Reading:
        return read_arguments(text, schema=self.schemas.get(name), max_depth=self.max_depth)

    def _enveloped(self, start: int) -> int:
        """Read an object or list that may carry calls."""
        reader = Reader(self.text, max_depth=self.max_depth)
        try:
            value, end = reader.read_value(start)
        except Refusal as refusal:
            return self._broken(start, refusal)
        found = envelopes(value, self.known)
        if found is None:
            return end
        reason = self._flaw(reader, end)
        for call in found:
            reading = refused(reason, end) if reason else self._opened(call, tuple(reader.repairs))
            self._add(call.name, reading, start, end)
        return end

    def _flaw(self, reader: Reader, end: int) -> str | None:
        """Name what makes a whole value doubtful: it ended too early or too late."""
        if reader.unclosed:
            return "missing_closer"
        if reader.list_comma is not None and reader.commaless:
            return "trailing_comma_in_list"
        return "extra_closer" if self.text[end:].lstrip()[:1] in ("}", ":") else None

    def _opened(self, call: Envelope, repairs: tuple[str, ...]) -> Reading:
        """Read the arguments an envelope carries."""
        arguments = call.arguments
        if call.foreign:
            return refused("unknown_envelope")
        if isinstance(arguments, dict):
            grade = "lossless" if repairs else "exact"
            return Reading(
                grade=grade,
                value=cast(dict[str, Any], arguments),
                repairs=repairs,
                canonical=dump_compact(arguments, sort=True),
            )
        if arguments is MISSING or arguments is None:
            arguments = ""
        if not isinstance(arguments, str):
            return refused("not_an_object")
        reading = self._read(arguments, call.name)
        if reading.value is None or not repairs:
            return reading
        grade = "lossless" if reading.grade == "exact" else reading.grade
        return Reading(
            grade=grade,
            value=reading.value,
            repairs=(*repairs, *reading.repairs),
            reason=reading.reason,
            position=reading.position,
            canonical=reading.canonical,
        )

    def _broken(self, start: int, refusal: Refusal) -> int:
        """Report a call that cannot be read, or pass over braces that are none."""
        resync = _RESYNC.search(self.text, max(start + 1, refusal.position))
        end = resync.start() if resync else len(self.text)
        segment = self.text[start:end]
        if not _HINT.search(segment):
            return max(start + 1, refusal.position)
        named = _NAMED.search(segment)
        self._add(named[1] if named else "", refused(refusal.reason, refusal.position), start, end)
        return end

    def _called(self, start: int, opened: int, *, listed: bool) -> int:
        """Read `name(key=value)`, or a list of such calls."""
        leading = listed or not strip_markup(self.text[:start])[0]
        position = start + 1 if listed else start
        found: list[ReadCall] = []
        reader = Reader(self.text, max_depth=self.max_depth)
        name = ""
        try:
            while True:
                position = reader.space(position)
                call = _CALL.match(self.text, position)
                if call is None:
                    raise Refusal("not_read", position)
                name = call[1]
                value, end = _keywords(reader, call.end())
                reading = Reading(
                    grade="lossless",
                    value=value,
                    repairs=("call_syntax", *reader.repairs),
                    canonical=dump_compact(value, sort=True),
                )
                found.append(ReadCall(name=name, reading=reading, span=(position, end)))
                position = reader.space(end)
                sign = self.text[position : position + 1]
                if not listed or sign != ",":
                    break
                position += 1
            if listed and sign != "]":
                raise Refusal("not_read", position)
            if not listed and sign and sign not in ",;`<[" and "\n" not in self.text[end:position]:
                raise Refusal("not_read", position)
        except Refusal as refusal:
            known = self.known is not None and name in self.known
            if not known and not (leading and self.known is None and refusal.reason.startswith(("cut", "lost"))):
                return opened
            self._add(name, refused(refusal.reason, refusal.position), start, len(self.text))
            return len(self.text)
        if self.known is not None and not leading and not all(call.name in self.known for call in found):
            return opened
        self.calls.extend(found)
        return position + 1 if listed else end


def _keywords(reader: Reader, position: int) -> tuple[dict[str, Any], int]:
    """Read the arguments of a call from after its parenthesis."""
    text = reader.text
    members: dict[str, Any] = {}
    position = reader.space(position)
    if text[position : position + 1] == "{":
        value, position = reader.read_object(position + 1)
        position = reader.space(position)
        if text[position : position + 1] != ")":
            raise Refusal("cut_after_opener" if reader.unclosed else "positional_arguments", position)
        return value, position + 1
    while text[position : position + 1] != ")":
        key = _KEYWORD.match(text, position)
        if key is None:
            raise Refusal("cut_after_comma" if position >= len(text) else "positional_arguments", position)
        if key[1] in members:
            raise Refusal("duplicate_key", position)
        begin = reader.space(key.end())
        if begin >= len(text):
            raise Refusal("cut_after_colon", begin)
        members[key[1]], position = reader.read_value(begin)
        position = reader.space(position)
        sign = text[position : position + 1]
        if sign == ",":
            position = reader.space(position + 1)
        elif sign != ")":
            raise Refusal("cut_after_comma" if not sign else "expression", position)
    return members, position + 1
