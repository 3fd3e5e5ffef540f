"""The second stage: is the text exactly one inserted sign away from strict JSON that fits the schema?

A lost quote, brace, bracket, comma or colon leaves a text that no reader can take at its word, but often
only one insertion makes it parse and fit. That is evidence, not proof: such a reading is graded `edited`
and never runs where it could have an effect.
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
"""Refusals that one lost sign can cause. Never a cut, a duplicate, a reference or an expression."""

_BUDGET = 2_000_000
"""Characters parsed at most over all attempts, so that the stage stays at some milliseconds."""

# A sign can only parse where its neighbours allow it. A quote that would put white space at an end of its string
# is not tried: nobody writes that, and every lost quote would have two readings. A closing bracket is tried before
# white space and not within: there it means the same, and each place would look through all that is left of it.
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
    """Return the reading that is one inserted sign away if exactly one fits, else the refusal.

    Args:
        text: the whole text, nothing taken off.
        refusal: why the first stage refused it.
        schema: what the value must fit; without one nothing is suggested.
        readings: what the first stage thinks the text may mean.
        max_depth: deepest nesting.
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
            orjson.loads(candidate)  # far cheaper than the strict parser for the many that fail
            value, dump = parse(candidate, max_depth=max_depth, sort=True)
        except (orjson.JSONDecodeError, StrictError):
            continue
        if isinstance(value, dict) and schema.is_valid(value):
            found[dump] = value
            if len(found) > 1 or stray:
                return refused_reading(refusal.reason, refusal.position, tuple(found.values()))
    declared = declared_properties(schema)["properties"].keys()
    for dump, value in found.items():
        if declared and not value.keys() <= declared:  # what made up a name may have made up more
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
    """Yield the text with one sign inserted, at every place where it could make the text parse.

    True beside it says that the sign may be there already: a quote misspelt beside the place, or another
    sign that changed places with a quote. Then the string would hold a sign too many. True also where a
    comma would make two numbers of what may be one.

    A sign after the place where the strict parser stops cannot help, so no later one is tried.
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
    """Return whether a sign stands next to the place already, only on the other side of a quote, or splits digits."""
    before, behind = text[max(0, at - _NEAR) : at].rstrip()[-2:], text[at : at + _NEAR].lstrip()[:2]
    if sign == ",":
        return before == ',"' or (before[-1:].isdigit() and behind[:1].isdigit())
    return before == f'{sign}"' or behind == f'"{sign}'


def _is_stray(text: str, at: int) -> bool:
    """Return whether a quote before `at` would stand beside another quote, or bracket off half of a pair."""
    if not _QUOTES.isdisjoint(text[max(0, at - 1) : at + 1]) or text[at : at + 1] == "\\" or text[:at].endswith('\\"'):
        return True
    closes = text[at : at + 1] in _AFTER_STRING
    inside = text[text.rfind('"', 0, at) + 1 : at] if closes else text[at:].partition('"')[0]
    edge = inside[-1:] if closes else inside[:1]
    return edge in _SEPARATORS or (
        edge in _BRACKETS and any(inside.count(pair[0]) != inside.count(pair[1]) for pair in _PAIRS)
    )
