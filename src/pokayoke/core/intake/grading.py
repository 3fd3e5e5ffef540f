"""Grades a text that is not strict JSON: the lenient reader first, then evidence of the schema.

In: the text, the strict parser's error, and the schema.
Out: a graded reading.
Never: accept a repair that is not proven to be the only meaning.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, cast

from pokayoke.core.intake.reader import LenientReader
from pokayoke.core.intake.reading import Grade, Reading, SchemaLike, refused_reading
from pokayoke.core.intake.schema_evidence import (
    closer_is_surplus,
    declared_properties,
    find_doubtful_break,
    is_unquoted_text,
    may_lack_member,
)
from pokayoke.core.intake.single_edit import suggest_edit
from pokayoke.core.intake.surroundings import check_after, find_object, mentions_name
from pokayoke.core.intake.tokens import ODD_SPACE, TextRefused
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.schema.schema import Schema, compile_schema

_MAX_ENCODINGS = 3
"""Maximum levels of JSON strings inside JSON strings around an object."""

_OUTER_REPAIRS = frozenset({"byte_order_mark", "code_fence", "odd_whitespace", "prose", "tags"})
"""Repairs allowed together with one that only the schema can prove: none of them touches the value."""
_UNREAD_REPAIRS = frozenset({"comment", "prose", "tags"})
"""Repairs that leave text around the object unread."""
_PYTHON_REPAIRS = frozenset({"call_syntax", "python_escape", "python_tuple", "python_word", "single_quotes"})
"""Repairs that indicate Python syntax, where a backslash has another meaning."""
_COMMA_REPAIRS = frozenset({"missing_comma", "trailing_comma"})
"""Repairs that may hide a lost member."""
_OPEN_QUOTE = re.compile(r"[\s({}\[\],:]\"\s*\Z").search
"""A last quote that may open a quoted phrase inside a string, or changed places with a bracket."""
_BROKEN_MEMBER = re.compile(r"\":[ \t]*\n").search
"""A line break between a key and its value, which no layout has."""
_INLINE_KEY = re.compile(r",[ \t]*+\"[^\"\\]*+\"[ \t]*+:").search
"""A key on the same line as the member before it."""
_ESCAPED_OBJECT = re.compile(r"\s*+\{(?:\s|\\[nrt])*\\\"").match
_EMPTY_FIRST = re.compile(r"\s*+\{\s*+\}\s*+(?=\{)").match
_HTML_QUOTED = re.compile(r"\s*+\{\s*+(&(?:quot|#34|#x22);)[^\"]*+\Z").match
_ESCAPED_BREAK = re.compile(r"(?<![:\\])\\\\n").sub
"""A line break that was escaped twice; behind a colon, it may be part of a path."""
_QUOTED_LINES = re.compile(r"(?:[ \t]*+>[^\n]*+(?:\n|\Z)){2,}\s*+\Z").match
_QUOTE_SIGN = re.compile(r"^[ \t]*+> ?", re.MULTILINE)
_SURROGATE = re.compile("[\ud800-\udfff]").search


class ArgumentGrader:
    """Grades one text that is not strict JSON."""

    def __init__(self, schema: SchemaLike | None, max_chars: int, max_depth: int) -> None:
        self.given = schema
        self.max_chars = max_chars
        self.max_depth = max_depth
        self.declared = declared_properties(schema)
        self.names = frozenset[str](self.declared["properties"])

    def compiled_schema(self) -> Schema | None:
        """Return the compiled schema; compiles it only where necessary."""
        if isinstance(self.given, dict | bool):
            self.given = compile_schema(self.given)
        return self.given

    def grade_text(self, text: str | bytes, error: StrictError) -> Reading:
        """Read a text that is not strict JSON."""
        if error.code == "too_deep":
            return refused_reading("too_deep", error.position)
        if isinstance(text, bytes):
            try:
                text = text.decode()
            except UnicodeDecodeError as exc:
                return refused_reading("invalid_utf8", exc.start)
            if len(text) > self.max_chars:
                return refused_reading("too_long", self.max_chars)
        elif error.code == "lone_surrogate" and (found := _SURROGATE(text)):
            return refused_reading("lone_surrogate", found.start())
        if not text.strip(" \t\r\n\ufeff"):
            return self.read_empty()
        if (known := self.read_repackaged(text)) is not None:
            return known
        reader = LenientReader(text, max_depth=self.max_depth)
        try:
            return self.read_document(reader)
        except TextRefused as refusal:
            return suggest_edit(text, refusal, self.compiled_schema(), max_depth=self.max_depth)
        except RecursionError:
            return refused_reading("too_deep")

    def read_repackaged(self, text: str) -> Reading | None:
        """Read strict JSON that a server damaged as a whole: escaped once too often, or sent after an empty object."""
        if _ESCAPED_OBJECT(text):
            found = self.read_encoded(f'"{text.strip()}"', text.replace('\\"', '"'))
            return found if found.reason != "not_an_object" else None
        quoted = _HTML_QUOTED(text)
        if quoted and text.count("&") == text.count(quoted[1]):  # any further escape is ambiguous
            return self.read_repaired(text.replace(quoted[1], '"'), "html_quotes")
        if _QUOTED_LINES(text):
            return self.read_repaired(_QUOTE_SIGN.sub("", text), "block_quote")
        empty = _EMPTY_FIRST(text)
        if empty is None or (schema := self.compiled_schema()) is None or schema.is_valid({}):
            return None  # the empty object may be a call of its own
        return self.read_repaired(text[empty.end() :], "empty_prefix")

    def read_repaired(self, text: str, repair: str) -> Reading | None:
        """Read an object that became strict JSON by a repair of the whole text."""
        try:
            value, dump = parse(text, max_depth=self.max_depth, sort=True, equal_duplicates=False)
        except StrictError:
            return None
        if not isinstance(value, dict):
            return None
        return _build_reading("lossless", cast(dict[str, Any], value), (repair,), canonical=dump)

    def read_document(self, reader: LenientReader) -> Reading:
        """Find the object, read it, and judge the text around it."""
        text, names = reader.text, self.names
        start, opened = find_object(reader, names)
        if text[start] != "{" and not opened:
            value, end = reader.read_value(start)
            if isinstance(value, str) and not reader.unclosed and not reader.comments and not text[end:].strip():
                return self.read_encoded(value, text[start + 1 : end - 1])
            raise TextRefused("not_an_object", start)
        dump: bytes | None = None
        if not opened and (found := self.read_strict_part(text, start)):
            value, dump, end = found
        else:
            value, end = reader.read_object(start if opened else start + 1)
        if not opened and not reader.unclosed and self.is_equal_repeat(text[end:], value):
            reader.record_repair("equal_repeat")
            end = len(text)
        surplus = check_after(reader, end)
        if not _UNREAD_REPAIRS.isdisjoint(reader.repairs) and (
            mentions_name(text[:start], names - value.keys()) or mentions_name(text[end:], names)
        ):  # behind the object an argument that it has may be changed, too
            raise TextRefused("trailing_text", start)
        flaw = reading_flaw(reader, start, end)
        reading = (
            refused_reading(flaw, reader.list_comma or reader.dropped or end, (value,))
            if flaw
            else self.grade_value(reader, value, end, dump)
        )
        if reading.value is not None and (opened or surplus is not None or reader.unclosed):
            return self.grade_by_schema(reader, value, opened=opened, surplus=surplus)
        return reading

    def is_equal_repeat(self, behind: str, value: dict[str, Any]) -> bool:
        """Return whether only an equal object follows an object.

        Without a space between them they may be the arguments of two calls, joined by a stream.
        """
        if not behind[:1].isspace() or behind.lstrip()[:1] != "{":
            return False
        try:
            other, dump = parse(behind, max_depth=self.max_depth, sort=True, equal_duplicates=False)
        except StrictError:
            return False
        return isinstance(other, dict) and dump == dump_compact(value, sort=True)

    def grade_value(self, reader: LenientReader, value: dict[str, Any], end: int, dump: bytes | None = None) -> Reading:
        """Grade a value without a flaw, by its repairs and the schema."""
        if _COMMA_REPAIRS & reader.repairs.keys() and not self.declared["required"] <= value.keys():
            return refused_reading("lost_member", end, (value,))
        if "python_word" in reader.repairs and (schema := self.compiled_schema()) and is_unquoted_text(schema, value):
            return refused_reading("bare_reference", end, (value,))
        said = reader.comments
        if said and mentions_name("\n".join(said), self.names - value.keys()):
            return refused_reading("comment_holds_data", end, (value,))
        if "odd_whitespace" in reader.repairs and (found := ODD_SPACE(dump_compact(value).decode())):
            return refused_reading("odd_whitespace", reader.text.find(found[0]), (value,))
        if reader.uneven and self.given is not None and may_lack_member(self.declared, value, reader.uneven):
            return _build_reading("edited", value, tuple(reader.repairs), reason="uneven_commas", position=end)
        slip = find_doubtful_break(self.compiled_schema(), value, reader.broken) if reader.broken else None
        if slip is not None:
            at = reader.broken[slip]
            return _build_reading("edited", value, tuple(reader.repairs), reason="raw_line_break", position=at)
        return _build_reading("lossless", value, tuple(reader.repairs), canonical=dump)

    def read_strict_part(self, text: str, start: int) -> tuple[dict[str, Any], bytes, int] | None:
        """Read an object that is strict JSON between sentences, fences or tags; faster, with the same value."""
        end = text.rfind("}") + 1
        if start == 0 and end == len(text):
            return None
        try:
            return (*parse(text[start:end], max_depth=self.max_depth, sort=True, equal_duplicates=False), end)
        except StrictError:
            return None

    def grade_by_schema(
        self, reader: LenientReader, value: dict[str, Any], *, opened: bool, surplus: int | None
    ) -> Reading:
        """Accept one lost or surplus outer bracket only if the schema proves that nothing else was lost."""
        if opened + (surplus is not None) + reader.unclosed > 1:
            raise TextRefused("trailing_text", len(reader.text))
        if opened:
            name, reason, position = "opened_by_schema", "missing_opener", 0
        elif surplus is not None:
            name, reason, position = "extra_closer", "extra_closer", surplus
        else:
            name, reason, position = "closed_by_schema", "missing_closer", len(reader.text)
            if _OPEN_QUOTE(reader.text) or _has_stray_closer(reader.text.rstrip()):
                raise TextRefused("cut_in_string", position)
        if reader.text.count("{") == reader.text.count("}"):  # the bracket was not lost or added: it is inside a string
            return refused_reading(reason, position, (value,))
        schema = self.compiled_schema()
        if schema is not None and reader.repairs.keys() <= _OUTER_REPAIRS:
            proven = schema.is_provably_complete(value)
            if proven or (surplus is not None and closer_is_surplus(schema, value)):
                return _build_reading("lossless", value, (*reader.repairs, name))
        return suggest_edit(
            reader.text, TextRefused(reason, position), schema, readings=(value,), max_depth=self.max_depth
        )

    def read_encoded(self, text: str, written: str | None = None) -> Reading:
        """Read the text of a JSON string that should hold an object.

        Args:
            text: the text.
            written: the text with its original backslashes, where these may belong to the object alone.
        """
        other = self.read_repaired(_ESCAPED_BREAK(r"\\n", written), "double_encoded") if written is not None else None
        for _ in range(_MAX_ENCODINGS):
            try:
                value, dump = parse(text, max_depth=self.max_depth, sort=True, equal_duplicates=False)
            except StrictError:
                break
            if isinstance(value, dict):
                members = cast(dict[str, Any], value)
                if other is not None and other.canonical != dump:
                    return refused_reading("bad_escape", 0, (members, other.value))
                return Reading(grade="lossless", value=members, repairs=("double_encoded",), canonical=dump)
            if not isinstance(value, str):
                break
            text = value
        return refused_reading("not_an_object", 0)

    def read_empty(self, otherwise: str = "empty_arguments") -> Reading:
        """Read an empty text, or null: an empty object if the schema accepts one, else the refusal `otherwise`."""
        schema = self.compiled_schema()
        if schema is not None and schema.is_valid({}):
            return _build_reading("lossless", {}, ("empty_text",))
        return refused_reading(otherwise, 0)


def reading_flaw(reader: LenientReader, start: int, end: int) -> str | None:
    """Return the flaw that makes a completely read value doubtful, or None.

    Args:
        reader: its reader.
        start: offset of the value.
        end: offset after the value.
    """
    if reader.list_comma is not None and reader.commaless:
        return "trailing_comma_in_list"
    if "raw_control_character" in reader.repairs and _has_wrapped_lines(reader.text, start, end):
        return "control_character"
    if reader.dropped is not None and not _PYTHON_REPAIRS.isdisjoint(reader.repairs):
        return "bad_escape"
    return None


def _has_wrapped_lines(text: str, start: int, end: int) -> bool:
    """Return whether the lines were wrapped by another program: then line breaks in strings are unreliable.

    Signs of it: all lines have one width, one mark at an end or at the beginning, or the text before the first one; or
    members flow over lines, two in a line. Only the lines of the value count.
    """
    begin = text.rfind("\n", 0, start) + 1
    after = text.find("\n", end)
    lines = text[begin : after if after >= 0 else len(text)].split("\n")
    *full, last = lines
    widths = set(map(len, full))
    if _BROKEN_MEMBER(text, begin, end) or (len(full) > 1 and len(widths) == 1 and len(last) <= widths.pop()):
        return True
    if {line[:2] for line in lines[1:]} in ({"| "}, {"> "}) or {line[-1:] for line in full} in ({"…"}, {"="}):
        return True
    if begin < start and all(line.startswith(text[begin:start]) for line in lines[1:]):
        return True
    flows = any(one.rstrip().endswith(",") and other.startswith('"') for one, other in pairwise(lines))
    return flows and not lines[0].rstrip().endswith("{") and any(map(_INLINE_KEY, lines))


def _has_stray_closer(text: str) -> bool:
    """Return whether the last string has a surplus closing bracket: one that was swapped with the quote."""
    inside = text[:-1].rpartition('"')[2]
    return text.endswith('"') and any(inside.count(pair[1]) > inside.count(pair[0]) for pair in ("{}", "[]"))


def _build_reading(
    grade: Grade,
    value: dict[str, Any],
    repairs: tuple[str, ...],
    *,
    reason: str | None = None,
    position: int | None = None,
    canonical: bytes | None = None,
) -> Reading:
    canonical = canonical or dump_compact(value, sort=True)
    return Reading(grade=grade, value=value, repairs=repairs, reason=reason, position=position, canonical=canonical)
