"""Finds the calls in a model's text, reads their arguments, and keeps the rest.

In: a text and the offered tools.
Out: the calls in order, each read or refused by name, and the text around them.
Never: drop an unreadable call: it is reported with its reason, and no text after it is a call until a tag outside of
its strings begins a new one. Text in thoughts, in a list of tools or in a tool's answer is no call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from pokayoke.core.intake import framings as m
from pokayoke.core.intake.arguments import read_arguments
from pokayoke.core.intake.brackets import BracketIndex
from pokayoke.core.intake.call_envelopes import (
    CARRIERS,
    MISSING,
    CallEnvelope,
    find_envelopes,
    find_unreadable_envelopes,
)
from pokayoke.core.intake.call_places import CallContext, Piece, judge_places
from pokayoke.core.intake.grading import ArgumentGrader, reading_flaw
from pokayoke.core.intake.python_calls import read_chain
from pokayoke.core.intake.reader import LenientReader
from pokayoke.core.intake.reading import Calls, ReadCall, Reading, SchemaLike, Tools, refused_reading
from pokayoke.core.intake.schema_evidence import declared_properties
from pokayoke.core.intake.surroundings import KEY_START, strip_markup
from pokayoke.core.intake.tagged_arguments import read_tagged_arguments, read_wrapped_arguments
from pokayoke.core.intake.tokens import TextRefused
from pokayoke.core.json.dump import dump_compact

_NEAR, _BODY = 200, 1_000
MAX_CALLS = 1_000
"""Maximum number of calls in a text: a text with more is a loop, and none of its calls is meant."""
_CALL_SEPARATORS = " \t\r\n,;"
"""Separators of calls."""


def find_calls(text: str, tools: Tools, known: CallContext, *, max_depth: int) -> Calls:
    """Find the calls in a text; see `read_calls`."""
    finder = _CallFinder(text, tools, max_depth=max_depth)
    finder.scan_text()
    if len(finder.calls) > MAX_CALLS:
        return Calls(calls=(ReadCall(name="", reading=refused_reading("too_many_calls"), span=(0, len(text))),))
    calls = judge_places(text, finder.calls, finder.named, finder.passed_over, known)
    return Calls(calls=calls, rest=_text_around_calls(text, [call.span for call in calls]))


def _text_around_calls(text: str, spans: list[tuple[int, int]]) -> str:
    """Return the text around the calls, without their markup."""
    pieces: list[str] = []
    position = 0
    for start, end in [*sorted(set(spans)), (len(text), len(text))]:
        piece = strip_markup(text[position:start])[0].strip(_CALL_SEPARATORS) if spans else text[position:start]
        if piece:
            pieces.append(piece)
        position = max(position, end)
    return "\n".join(pieces).strip()


class _CallFinder:
    """One pass over a text."""

    def __init__(self, text: str, tools: Tools, *, max_depth: int) -> None:
        self.text = text
        self.max_depth = max_depth
        self.calls: list[ReadCall] = []
        self.known = None if tools is None else frozenset(tools)
        self.schemas: Mapping[str, SchemaLike | None] = tools if isinstance(tools, Mapping) else {}
        self.ahead: dict[re.Pattern[str], int] = {}
        self.gradings: dict[str, ArgumentGrader] = {}
        self.brackets = BracketIndex(text)
        self.first, self.last = len(text) - len(text.lstrip()), len(text.rstrip())
        self.leading = True
        self.quoted = False
        self.named: set[int] = set()
        self.passed_over: list[Piece] = []
        self.passed: ReadCall | None = None

    def scan_text(self) -> None:
        """Go from one possible beginning of a call to the next."""
        position = 0
        while len(self.calls) <= MAX_CALLS and (found := m.START.search(self.text, position)):
            kind = cast(str, found.lastgroup)
            start = found.start(kind)
            if kind == "header":
                position = self._read_header_call(start)
            elif kind == "aside":
                position = self._skip_aside(start, found.end(), found[0])
            elif kind == "turn":
                self.quoted, position = True, found.end()
            elif kind == "behind":
                position = self._discard_thoughts(found.end(), found[0])
            elif kind == "mark":
                position = found.end()
            elif kind == "open":
                position = self._read_envelopes(start)
            else:
                position = self._read_python_call(start, found.end(), found["code"] or "", listed=kind == "calls")

    def _skip_aside(self, start: int, position: int, opener: str) -> int:
        """Skip thoughts and quotations; without an end, calls after them are refused."""
        closer = m.ASIDE_ENDS.get(opener) or f"{opener[0]}/{re.split(m.TAG_END, opener[1:], maxsplit=1)[0]}"
        end = -1 if self.quoted else self.text.find(closer, position)
        self.quoted = end < 0
        if end < 0:
            return position
        # The last character stays: a call may begin directly after it.
        if not m.OTHERS.match(opener):
            rest = m.REST_OF_TAG(self.text, end + len(closer.rstrip(">")))
            self.passed_over.append(Piece("aside", start, rest.end() if rest else end))
        return end + len(closer.rstrip(">"))

    def _discard_thoughts(self, position: int, closer: str) -> int:
        """Discard the text before an end of thoughts whose beginning was part of the prompt."""
        if closer == "</tools>":  # it also ends calls, and no thoughts
            return position
        is_mentioned = m.MENTIONED_TAG(self.text, position) is not None
        if not is_mentioned:
            self.passed_over = [Piece("aside", 0, position)]
        self.calls = [
            msgspec.structs.replace(call, reading=refused_reading("quoted", position))
            if call.reading.value is not None
            else call
            for call in self.calls
            if is_mentioned or call.reading.value is None
        ]
        return position

    def _add_call(self, name: str, reading: Reading, start: int, end: int) -> None:
        if self.quoted and reading.value is not None:
            reading = refused_reading("quoted", start)
        self.calls.append(ReadCall(name=name, reading=reading, span=(start, end), text=self.text[start:end]))

    def _read_header_call(self, start: int) -> int:
        """Read the arguments after a name in a tag."""
        header = m.HEADER.match(self.text, start)
        assert header is not None
        assert header.lastindex is not None
        row, name, begin = m.NAMED[header.lastindex - 1], header[header.lastindex], header.end()
        schema = self.schemas.get(name)
        self.named.add(start)
        tagged = None if row.wraps_text else read_tagged_arguments(self.text, begin, schema, max_depth=self.max_depth)
        if tagged is not None:
            reading, end = tagged
            if reading.value is not None and not m.HEADER_END.match(self.text, end):
                reading = refused_reading("tagged_value", end, about=f"{name}: {self.text[end : end + 20]}")
                end = self._find_arguments_end(end)
            self.quoted = self.quoted or end == len(self.text)  # the end of its last value is unknown
        elif row.wraps_text:
            end = self._find_next(m.HEADER_END, begin)
            reading = read_wrapped_arguments(self.text[begin:end], row.wraps_text, schema, max_depth=self.max_depth)
        else:
            end = self._find_arguments_end(begin)
            reading = self._read_arguments(self.text[begin:end], name)
        closer = m.HEADER_END.match(self.text, end)
        if closer and closer[0] in m.NO_CALL_ENDS:
            reading = refused_reading("disowned", end)
        self._add_call(name, reading, start, end)
        return closer.end() if closer and not m.OTHERS.match(closer[0]) else end

    def _find_arguments_end(self, begin: int) -> int:
        """Return the end tag of the arguments, outside of their strings."""
        reader = LenientReader(self.text, max_depth=self.max_depth)
        value = reader.skip_space(begin)
        if self.text[value : value + 1].isalpha():  # no value, and to look for its quote takes long
            return self._find_outside_quotes(begin, begin, m.HEADER_END, m.HEADER)
        try:
            whole = reader.read_value(value)[1] if value < len(self.text) else value
        except TextRefused as refusal:
            self._mark_misquoted(refusal)
            return self._find_outside_quotes(begin, begin, m.HEADER_END, m.HEADER)
        return min(self._find_next(m.HEADER_END, whole), self._find_next(m.HEADER, whole))

    def _mark_misquoted(self, refusal: TextRefused) -> None:
        """Stop at a misplaced quote: later calls may be inside a string."""
        self.quoted = self.quoted or refusal.reason in m.MISQUOTE_REASONS

    def _find_outside_quotes(self, begin: int, position: int, *patterns: re.Pattern[str]) -> int:
        """Return the match of a pattern outside of the quotes opened since `begin`, or the end."""
        text, quote, seen = self.text, "", begin
        while True:
            end = min(self._find_next(pattern, position) for pattern in patterns)
            for sign in m.QUOTE.findall(text, seen, end):
                if sign == quote:
                    quote = ""
                elif not quote and len(sign) == 1:
                    quote = sign
            if not quote or end == len(text):
                return end
            seen, position = end, end + 1

    def _read_arguments(self, text: str, name: str) -> Reading:
        return read_arguments(text, schema=self.schemas.get(name), max_depth=self.max_depth)

    def _read_envelopes(self, start: int) -> int:
        """Read an object or list that may carry calls."""
        reader = LenientReader(self.text, max_depth=self.max_depth)
        try:
            value, end = reader.read_value(start)
        except TextRefused as refusal:
            return self._report_unreadable(start, refusal)
        found = find_envelopes(value, self.known)
        if found is None and start <= self.first and end >= self.last:
            found = find_unreadable_envelopes(value, self.known)
        if found is None and (found := self._find_titled_call(value, start, end)):
            start = self.first
        if found is None:
            self._refuse_ambiguous_call(value, start)
            self.passed_over.append(Piece("data", start, end))
            return end
        reason = self._value_flaw(reader, start, end)
        for call in found:
            reading = refused_reading(reason, end) if reason else self._read_carried_arguments(call, reader, end)
            self._add_call(call.name, reading, start, end)
        return end

    def _find_titled_call(self, value: Any, start: int, end: int) -> list[CallEnvelope] | None:
        """Return the call of a message that consists of a tool's name and an object with its arguments.

        The name stands alone on the line before the object, or is the only key of an object around it.
        """
        text = self.text
        if not self.known or max(start, len(text) - end) > _NEAR or not isinstance(value, dict):
            return None
        title, members = strip_markup(text[:start])[0], cast(dict[str, Any], value)
        alone = not title and len(members) == 1
        if alone:
            ((title, inner),) = members.items()
            members = cast(dict[str, Any], inner) if isinstance(inner, dict) else {}
        elif not text[:start].rstrip(" \t").endswith("\n"):
            return None
        if title not in self.known or strip_markup(text[end:])[0]:
            return None
        declared = declared_properties(self.schemas.get(title))
        fits = members.keys() <= declared["properties"].keys() and not (alone and declared["required"] - members.keys())
        return [CallEnvelope(title, members, ())] if members and fits else None

    def _refuse_ambiguous_call(self, value: Any, start: int) -> None:
        """Refuse a call that is directly followed by an object of arguments for its tool: either may be meant."""
        last = self.calls[-1] if self.calls else None
        if last is None or last is self.passed or last.reading.value is None or not isinstance(value, dict):
            return
        self.passed = last  # no other object directly follows it
        declared = declared_properties(self.schemas.get(last.name))["properties"]
        members = cast(dict[str, Any], value)
        beside = strip_markup(self.text[last.span[1] : start])[0].strip(_CALL_SEPARATORS)
        if members and (members.keys() <= declared.keys() or members.keys() <= CARRIERS) and not beside:
            self.calls[-1] = ReadCall(name=last.name, reading=refused_reading("several_values", start), span=last.span)

    def _value_flaw(self, reader: LenientReader, start: int, end: int) -> str | None:
        """Return the flaw of a whole value: it ended too early or too late."""
        if reader.unclosed:
            return "missing_closer"
        return "extra_closer" if m.CONTINUED_VALUE(self.text, end) else reading_flaw(reader, start, end)

    def _read_carried_arguments(self, call: CallEnvelope, reader: LenientReader, end: int) -> Reading:
        """Read the arguments in an envelope."""
        arguments, repairs = call.arguments, tuple(reader.repairs)
        if call.foreign:
            return refused_reading("unknown_envelope")
        if isinstance(arguments, dict):
            value = cast(dict[str, Any], arguments)
            if repairs:
                return self._grader_for(call.name).grade_value(reader, value, end)
            return Reading(grade="exact", value=value, canonical=dump_compact(value, sort=True))
        if arguments is MISSING or arguments is None:
            arguments = ""
        if not isinstance(arguments, str):
            return refused_reading("not_an_object")
        reading = self._read_arguments(arguments, call.name)
        if reading.value is None or not repairs:
            return reading
        return Reading(
            grade="lossless" if reading.grade == "exact" else reading.grade,
            value=reading.value,
            repairs=(*repairs, *reading.repairs),
            reason=reading.reason,
            position=reading.position,
            canonical=reading.canonical,
        )

    def _grader_for(self, name: str) -> ArgumentGrader:
        """Return the grader for a tool's arguments; built once, as it may compile the schema."""
        if name not in self.gradings:
            self.gradings[name] = ArgumentGrader(self.schemas.get(name), len(self.text), self.max_depth)
        return self.gradings[name]

    def _report_unreadable(self, start: int, refusal: TextRefused) -> int:
        """Report an unreadable call, or skip braces that are not a call."""
        end = self._find_next(m.RESYNC, max(start + 1, refusal.position))
        if self._find_next(m.CALL_HINT, start) >= end:
            return self._skip_non_call(start, refusal, end)
        self._mark_misquoted(refusal)
        end = self._find_outside_quotes(start, max(start + 1, refusal.position), m.RESYNC)
        named = m.NAME_MEMBER.search(self.text, start, end)
        self._add_call(named[1] if named else "", refused_reading(refusal.reason, refusal.position), start, end)
        return end

    def _skip_non_call(self, start: int, refusal: TextRefused, end: int) -> int:
        """Skip brackets that are neither readable nor a call, with the strings inside them."""
        closed = self.brackets.find_end(start)
        if closed >= 0:
            self.passed_over.append(Piece("data", start, closed))
            return closed
        if self.brackets.cut and KEY_START(self.text, start + 1):
            self.quoted = True
        if refusal.reason.startswith("cut"):
            return end
        if self.text.startswith("/*", refusal.position):
            return min(end, self._find_next(m.COMMENT_END, refusal.position))
        return max(start + 1, refusal.position)

    def _find_next(self, pattern: re.Pattern[str], position: int) -> int:
        """Return the next match of a pattern, or the end; each part of the text is searched once."""
        known = self.ahead.get(pattern, -1)
        if known < position:
            found = pattern.search(self.text, position)
            known = self.ahead[pattern] = found.start() if found else len(self.text)
        return known

    def _read_python_call(self, start: int, opened: int, code: str, *, listed: bool) -> int:
        """Read `name(key=value)`, or a list of such calls; return the offset after them.

        In the middle of a text only names of tools are calls; without a list of tools only the beginning of the
        text, and no code. A call that a sentence mentions does not count.
        """
        if code and (self.known is None or self.text[start : opened - 1] not in self.known):
            return opened
        called, start = start, start - len(code)
        if not listed and m.QUOTED_IN_LINE(self.text[max(0, start - _NEAR) : start]):
            return opened
        self.leading = self.leading and not strip_markup(self.text[:start])[0]
        leading = listed or self.leading
        written, end, name, refusal = read_chain(
            self.text,
            called,
            listed=listed,
            printed=code.endswith("("),
            known=self.known,
            max_depth=self.max_depth,
        )
        found = [call.name for call in written]
        told = code and not m.LINE_END(self.text, end)
        if refusal is None and (told or m.STATEMENT_BODY(self.text[max(0, start - _BODY) : start])):
            refusal = TextRefused("not_read", start)
        if refusal is not None:
            names = [*found, name] if name else found
            cut = refusal.reason.startswith(("cut", "lost")) or bool(found and name and not listed)
            guessed = leading and self.known is None and cut
            if not guessed and (self.known is None or self.known.isdisjoint(names)):
                return max(opened, end)  # the same problem stops every call of the chain
            for one in names:
                self._add_call(one, refused_reading(refusal.reason, refusal.position), start, len(self.text))
            return len(self.text)
        if self.known is not None and not leading and not self.known.issuperset(found):
            return opened
        for call in written:
            flaw = reading_flaw(call.reader, call.start, call.end)
            reading = self._grader_for(call.name).grade_value(call.reader, call.value, call.end)
            self._add_call(call.name, refused_reading(flaw, call.end) if flaw else reading, start, end)
        return end
