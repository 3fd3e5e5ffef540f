"""Proposals: other spellings of one value, and guesses that are near enough to suggest.

In: one value, and what the schema says about its place.
Out: proposed values with their class of correction.
Never: a decision. `core/correct/engine.py` uses a proposal only if the validator accepts it there and no other proposal
of the same class is accepted too.

What the rules read and refuse:

=====================  =========================================================================
``" 2 "``, ``"+2"``    2: the text holds one JSON number and nothing else (a plus sign adds nothing)
``"2.0"`` for integer  2; but ``"2.000"`` is refused: with three decimals it may be two thousand
``"1.500"`` for number refused for the same reason (programs do not print that zero); ``"1.525"`` is read
``"1e3"``              1000.0 for a number, refused for an integer (it may be an identifier)
``"1e-400"``           refused: a double has fewer digits, and the text has lost some
``"007"``, ``"0x10"``  refused: an identifier, or octal; another base
``"1,234"``, ``"1 234"``  refused: thousands or decimals; one number or two
``"2-3"``, ``"2件"``   refused: a range; a word (a declared corrector may read it)
``"٢"``, ``"２"``      refused: only ASCII digits are JSON's
``"yes"``, ``"1"``     refused for a boolean: only true and false, in any case, are its spellings
``1`` for boolean      refused; ``true`` for a number likewise
``"null"``, ``"None"``  null where null is allowed
``'"5"'``              5: one pair of quotes around the text is one too many
``"in progress"``      in_progress where that is the only choice but for case and what separates words
``"['a', 1]"``         the list: JSON text, also in Python's spelling of strings and words
``"a, b"`` for a list  refused: one item or two (also ``;``, ``|``, line breaks, foreign marks such as ``、``)
``"/a/b"`` for a list  one item, as a word is. A blank or an odd sign ("New York", "a/b") makes it *likely*,
                       both ("A b/C") are refused
``"none"`` for a list  left out where it may be absent, *likely*; else refused: one item, or nothing at all
``{…}`` for a list     one item only if the items' fields are declared and these are they
``["a", 1]`` for rows   refused: a row for each of them, or one row
``12`` for a string    *likely* "12": the digits are right, leading zeros may have been lost
``1.5`` for a string   refused: the number does not tell how it was spelled (1.50)
=====================  =========================================================================
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, cast

import msgspec

from pokayoke.core.call import CorrectionKind
from pokayoke.core.contract.units import THOUSANDS
from pokayoke.core.correct.whole_numbers import WHOLE_RULE, is_whole_for
from pokayoke.core.json import strict
from pokayoke.core.schema.facts import FOLDED_PREFIX, SchemaFacts, fold_separators, item_facts, json_types
from pokayoke.core.schema.schema import Schema

LIST_RULE = "list_from_single_value"
"""The rule that makes a list of one."""
MAX_TEXT = 20_000
"""Longest text that is parsed as JSON or compared with choices, in characters."""
_MAX_NUMBER, _MAX_DEPTH = 60, 64
_MEGA = re.compile(r"(?<![A-Za-z])M(?=[A-Z])")
"""A prefix of a unit that means another one as a small letter: MW and mW."""
_NULL_WORDS = frozenset({"", "null", "none", "nil", "undefined"})
_QUOTED = re.compile(r"\"([^\"'\\]+)\"|'([^\"'\\]+)'")
_PYTHON = frozenset({"python_word", "single_quotes"})

_NUMBER = re.compile(r"[+-]?(?:0|[1-9][0-9]*)(?P<decimals>\.[0-9]+)?(?P<power>[eE][+-]?[0-9]+)?", re.ASCII)
_SEPARATORS = re.compile(r"[,;|\n\r]")
_SIGNS = re.compile(r"[/\\&+→⇒]|[-=]>|\.\.")
"""What may separate items, or be a part of one."""
_ONE_PATH = re.compile(r"(?:(?:~|\.{1,2})?/|[A-Za-z]:\\|[A-Za-z][A-Za-z0-9+.\-]*://)(?!.*://)[^\s&+→⇒]+")
"""A path from a root, or one URL: its slashes separate no items."""
_DATE = re.compile(
    r"(?P<y>[0-9]{4})(?:(?P<s>[-/.])(?P<m>[0-9]{1,2})(?P=s)(?P<d>[0-9]{1,2})|(?P<m2>[0-9]{2})(?P<d2>[0-9]{2}))"
)
_CLOCK = re.compile(
    r"(?P<day>\d{4}[-/.]?\d{1,2}[-/.]?\d{1,2})[Tt ](?P<time>\d{2}:\d{2}:\d{2}(?:\.\d+)?)"
    r" ?(?P<zone>[Zz]|[+-]\d{2}:?\d{2})",
    re.ASCII,
)


class Proposal(msgspec.Struct, frozen=True):
    """One value that may replace another.

    Attributes:
        rule: name of the rule, as it appears in the trace.
        kind: the class of the correction.
        after: the proposed value.
    """

    rule: str
    kind: CorrectionKind
    after: Any


def propose_values(value: Any, facts: SchemaFacts, schema: Schema, *, nested: bool = False) -> Iterator[Proposal]:
    """Yield the values that a value may mean at a place; equivalent ones first, each rule at most once.

    Args:
        value: the value that does not fit.
        facts: what the schema says about the place.
        schema: the whole schema (for the items of a list).
        nested: True inside a list: then no list is built or opened again.
    """
    if isinstance(value, str):
        if len(value) <= MAX_TEXT:
            yield from _propose_from_text(value, facts)
    elif type(value) is int and "string" in facts.types:
        yield Proposal("text_from_number", "likely", str(value))
    elif is_whole_for(value, facts):  # in draft 4, which takes 2.0 for no integer
        yield Proposal(WHOLE_RULE, "equivalent", int(value))
    if nested:
        return
    if isinstance(value, list):
        items = cast(Sequence[Any], value)
        if len(items) == 1 and "array" not in facts.types:
            yield from _propose_reshaped(items[0], facts, schema, "value_from_single_item", _keep_value)
    elif "array" in facts.types and value is not None:
        yield from _propose_list(value, item_facts(schema, facts), schema)


def is_word_for_nothing(value: Any) -> bool:
    """Return whether a value is null, or a text that programs write for it, such as `None`, or an empty one."""
    return value is None or (isinstance(value, str) and value.strip().lower() in _NULL_WORDS)


def read_object(value: Any) -> dict[str, Any] | None:
    """Return an object, or the object of a JSON text; None for anything else."""
    if isinstance(value, str) and len(value) <= MAX_TEXT:
        parsed = _parse_json_text(value.strip(" \t\r\n"))
        value = parsed[0] if parsed else None
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def _propose_from_text(text: str, facts: SchemaFacts) -> Iterator[Proposal]:
    plain = text.strip(" \t\r\n")
    yield from _propose_choice(plain, facts)
    if not plain:
        return
    if facts.types & {"integer", "number"} and len(plain) <= _MAX_NUMBER:
        number = _parse_number(plain, whole="number" not in facts.types)
        if number is not None:
            yield Proposal("number_from_text", "equivalent", number)
    if "boolean" in facts.types and plain.lower() in ("true", "false"):
        yield Proposal("boolean_from_text", "equivalent", plain.lower() == "true")
    if "null" in facts.types and plain in ("null", "None"):
        yield Proposal("null_from_text", "equivalent", None)
    if (plain[0] == "{" and "object" in facts.types) or (plain[0] == "[" and "array" in facts.types):
        parsed = _parse_json_text(plain)
        if parsed is not None:
            yield Proposal("value_from_json_text", "equivalent", parsed[0])
    if facts.formats:
        yield from _propose_format(plain, text, facts)
    if found := _QUOTED.fullmatch(plain):
        yield from _propose_from_text(found[1] or found[2], facts)


def _propose_choice(plain: str, facts: SchemaFacts) -> Iterator[Proposal]:
    """Yield the choices equal but for spaces, else for case, else for separators; the caller refuses several."""
    spaced, known = " ".join(plain.split()), facts.choices_by_spelling
    found = (
        known.get(spaced)
        or known.get(FOLDED_PREFIX + spaced.casefold())
        or known.get(FOLDED_PREFIX + fold_separators(spaced), [])
    )
    for choice in found:
        if choice == spaced or _MEGA.sub("m", choice) != _MEGA.sub("m", spaced):
            yield Proposal("choice_spelling", "equivalent", choice)


def _parse_number(text: str, *, whole: bool) -> int | float | None:
    """Return the number of a text, or None if it may mean something else."""
    match = _NUMBER.fullmatch(text)
    if match is None or THOUSANDS.fullmatch(text):
        return None
    if match["power"] is None and match["decimals"] is None:
        return int(text)
    if match["power"] is None and not match["decimals"].strip(".0") and len(match["decimals"]) != 4:  # noqa: PLR2004
        return int(text.split(".", maxsplit=1)[0])
    number = float(text)
    if whole or not math.isfinite(number):
        return None
    return number if Decimal(repr(number)) == Decimal(text) else None  # otherwise it lost digits


def _parse_json_text(text: str) -> tuple[Any] | None:
    try:
        return (strict.parse(text.encode())[0],)
    except ValueError:
        return _parse_python_text(text) if text[:1] in ("[", "{") else None


def _parse_python_text(text: str) -> tuple[Any] | None:
    """Return the list or object of a text in Python's spelling; None if it is incomplete or needs other repairs."""
    from pokayoke.core.intake.reader import LenientReader  # noqa: PLC0415 - only for texts that are no JSON
    from pokayoke.core.intake.tokens import TextRefused  # noqa: PLC0415 - as above

    reader = LenientReader(text, max_depth=_MAX_DEPTH)
    try:
        value, end = reader.read_value(0)
    except TextRefused:
        return None
    return (value,) if end == len(text) and not reader.unclosed and reader.repairs.keys() <= _PYTHON else None


def _propose_format(plain: str, text: str, facts: SchemaFacts) -> Iterator[Proposal]:
    """Yield an ISO 8601 date or time in the form of RFC 3339; the year comes first, so nothing is guessed."""
    if "date" in facts.formats:
        day = _parse_date(plain)
        if day:
            yield Proposal("date_spelling", "equivalent", day)
    if "date-time" in facts.formats:
        match = _CLOCK.fullmatch(plain)
        day = _parse_date(match["day"]) if match else None
        if match and day:
            zone = match["zone"].upper()
            zone = zone if zone == "Z" or ":" in zone else f"{zone[:3]}:{zone[3:]}"
            yield Proposal("date_spelling", "equivalent", f"{day}T{match['time']}{zone}")
    if plain != text:
        yield Proposal("surrounding_spaces", "equivalent", plain)


def _parse_date(text: str) -> str | None:
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    try:
        return date(int(match["y"]), int(match["m"] or match["m2"]), int(match["d"] or match["d2"])).isoformat()
    except ValueError:
        return None


def _propose_list(value: Any, inner: SchemaFacts, schema: Schema) -> Iterator[Proposal]:
    """Yield lists of one item. A text that may mean several items, JSON or nothing gets no proposal."""
    kind: CorrectionKind = "equivalent"
    if isinstance(value, str):
        plain = value.strip()
        if plain in inner.choices:
            kind = "equivalent"
        elif (
            is_word_for_nothing(plain)
            or plain[0] in "[{\"'("
            or _SEPARATORS.search(plain)
            or any(map(_is_foreign_mark, plain))
        ):
            return
        elif not _ONE_PATH.fullmatch(plain):
            has_blank, has_sign = any(map(str.isspace, plain)), _SIGNS.search(plain) is not None
            if has_blank and has_sign:
                return
            kind = "likely" if has_blank or has_sign else "equivalent"
    elif isinstance(value, dict) and not _is_one_item(cast(dict[str, Any], value), inner):
        return
    for proposal in _propose_reshaped(value, inner, schema, LIST_RULE, _wrap_in_list):
        yield Proposal(proposal.rule, "likely" if kind == "likely" else proposal.kind, proposal.after)


def _is_foreign_mark(sign: str) -> bool:
    """Return whether a sign is a punctuation mark of another script, which may separate items."""
    return sign > "\x7f" and sign != "’" and unicodedata.category(sign)[0] == "P"


def _is_one_item(value: dict[str, Any], inner: SchemaFacts) -> bool:
    """Return whether an object is recognisable as one item: only declared fields, no required one missing."""
    return bool(value) and value.keys() <= set(inner.properties) and inner.required <= value.keys()


def _propose_reshaped(
    value: Any, facts: SchemaFacts, schema: Schema, rule: str, build: Callable[[Any], Any]
) -> Iterator[Proposal]:
    """Yield a value in another shape: unchanged if its type fits, and in each of its other spellings."""
    if not facts.types or json_types(value) & facts.types:
        yield Proposal(rule, "equivalent", build(value))
    for proposal in propose_values(value, facts, schema, nested=True):
        yield Proposal(rule, proposal.kind, build(proposal.after))


def _keep_value(value: Any) -> Any:
    return value


def _wrap_in_list(value: Any) -> Any:
    return [value]
