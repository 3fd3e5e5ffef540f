"""Suggests the one inserted character that makes a text strict JSON which fits the schema.

In: a refused text and the schema.
Out: a reading graded `edited` if exactly one insertion fits, else the refusal. A lost quote, brace, bracket, comma or
colon often leaves only one such insertion: evidence, not proof.
Never: grade such a reading as provable; it must not run with an effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import orjson

from pokayoke.core.intake.reading import Reading, refused_reading
from pokayoke.core.intake.schema_evidence import declared_properties
from pokayoke.core.intake.tokens import TextRefused
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.schema.schema import Schema

EDITABLE = frozenset(
    {
        "doubled_brace",
        "extra_closer",
        "inner_quote",
        "line_break_in_key",
        "lost_comma",
        "lost_quote",
        "mismatched_closer",
        "missing_colon",
        "several_values",
        "trailing_text",
        "unexpected",
    }
)
"""Refusals that one lost character can cause: never a cut, a duplicate, a reference or an expression."""

_BUDGET = 2_000_000
"""Maximum characters parsed in all attempts, so that this takes only milliseconds."""

# A character can only parse where its neighbours allow it. A quote that would put white space at an end of its string
# is not tried: models do not write that, and every lost quote would have two readings. A closing bracket is tried
# only before white space: inside it means the same, and each place would search the rest of it.
_INSERTION_POINTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ('"', re.compile(r'(?<=[{\[:,])(?!\s)|(?<=\s)(?=[^\s{}\[\],:"])|(?<!\s)(?=\s*+[,:}\]])')),
    ("{", re.compile(r'(?<![^\s:,\[])(?=[\s"])')),
    ("[", re.compile(r"(?<![^\s:,\[])(?=[^,:}])")),
    ("}", re.compile(r'(?<=["\]}{\w])(?=\s*+(?:[,}\]]|\Z))')),
    ("]", re.compile(r'(?<=["\]}\[\w])(?=\s*+(?:[,}\]]|\Z))')),
    (",", re.compile(r'(?<=["\]}\w\s])(?=[\s"{\[\w-])')),
    (":", re.compile(r'(?<=["\s])(?=[\s"{\[\w-])')),
)

_NEAR = 200
_QUOTES = frozenset("'`´“”„‘’＂″")
_AFTER_STRING = frozenset(",:]} \t\r\n")
_SEPARATORS = frozenset(";:,")
_PAIRS = ("()", "[]", "{}", "<>")
_BRACKETS = frozenset("".join(_PAIRS))


def suggest_edit(
    text: str,
    refusal: TextRefused,
    schema: Schema | None,
    *,
    readings: tuple[Any, ...] = (),
    max_depth: int,
) -> Reading:
    """Return the reading with one inserted character if exactly one fits, else the refusal.

    Args:
        text: the whole text, unchanged.
        refusal: the refusal of the first stage.
        schema: the schema of the value; without one nothing is suggested.
        readings: possible values found by the first stage.
        max_depth: maximum nesting.
    """
    fallback = refused_reading(refusal.reason, refusal.position, readings)
    if schema is None or refusal.reason not in EDITABLE:
        return fallback
    found: dict[bytes, Any] = {}
    spent = 0
    for candidate, stray in _iter_insertions(text):
        spent += len(candidate)
        if spent > _BUDGET:
            return fallback
        try:
            orjson.loads(candidate)  # far cheaper than the strict parser for the many failures
            value, dump = parse(candidate, max_depth=max_depth, sort=True)
        except (orjson.JSONDecodeError, StrictError):
            continue
        if isinstance(value, dict) and schema.is_valid(value):
            found[dump] = value
            if len(found) > 1 or stray:
                return refused_reading(refusal.reason, refusal.position, tuple(found.values()))
    declared = declared_properties(schema)["properties"].keys()
    for dump, value in found.items():
        if declared and not value.keys() <= declared:  # an invented name makes other values doubtful
            return refused_reading(refusal.reason, refusal.position, (value,))
        return Reading(
            grade="edited",
            value=cast(dict[str, Any], value),
            repairs=("inserted_sign",),
            reason="edit_suggested",
            position=refusal.position,
            canonical=dump,
        )
    return fallback


def _iter_insertions(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text with one character inserted, at every place where it could make the text parse.

    The flag is True if the character may be there already: a wrong quote next to the place, or a character that was
    swapped with a quote, so that the string would hold one too many. Also where a comma would split one number.

    A character after the place where the strict parser stops cannot help, so no later place is tried.
    """
    last = len(text)
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        last = error.pos
    for sign, spots in _INSERTION_POINTS:
        for spot in spots.finditer(text, 0, len(text)):
            at = spot.start()
            if at > last:
                break
            stray = _is_stray(text, at) if sign == '"' else _is_moved(text, at, sign)
            yield text[:at] + sign + text[at:], stray


def _is_moved(text: str, at: int, sign: str) -> bool:
    """Return whether a character is already next to the place, across a quote, or splits digits."""
    before, behind = text[max(0, at - _NEAR) : at].rstrip()[-2:], text[at : at + _NEAR].lstrip()[:2]
    if sign == ",":
        return before == ',"' or (before[-1:].isdigit() and behind[:1].isdigit())
    return before == f'{sign}"' or behind == f'"{sign}'


def _is_stray(text: str, at: int) -> bool:
    """Return whether a quote before `at` would be next to another quote, or separate half of a pair."""
    if not _QUOTES.isdisjoint(text[max(0, at - 1) : at + 1]) or text[at : at + 1] == "\\" or text[:at].endswith('\\"'):
        return True
    closes = text[at : at + 1] in _AFTER_STRING
    inside = text[text.rfind('"', 0, at) + 1 : at] if closes else text[at:].partition('"')[0]
    edge = inside[-1:] if closes else inside[:1]
    return edge in _SEPARATORS or (
        edge in _BRACKETS and any(inside.count(pair[0]) != inside.count(pair[1]) for pair in _PAIRS)
    )
