"""Which records do the user's words single out?

In: groups of records, the user's words, what the agent itself brought up.
Out: what of a record the user has said, and the records of a group that are meant.
Never: a choice between two that match equally: a twin that somebody registers makes a tie, and no win.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterator
from itertools import pairwise
from typing import Final

from pokayoke.core.provenance.forms import fold
from pokayoke.core.provenance.records import OutputRecord, is_identifier_key, is_like_number
from pokayoke.core.provenance.user_words import UserWords, find_words
from pokayoke.core.provenance.vocabulary import NOISE

_SHORT_FIELD: Final = 60
_LONG_WORD: Final = 5
_LEAST_NUMBER: Final = 100
_SHARED: Final = 3  # siblings; what all of so many share selects nothing
_MOST_FIELDS: Final = 256  # of one record that are compared with the words; all are found by their value
_LEAST_SIGNS: Final = 3
_MOMENT: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?: (\d\d:\d\d))?")


def find_said(
    record: OutputRecord, words: UserWords, burned: Container[str], phrases: Collection[str] = ()
) -> frozenset[str]:
    """Return what of a record stands in the user's words; marks that begin with `~` only break ties.

    Args:
        record: the record.
        words: the user's words.
        burned: values that the agent brought up first: whoever steers it chose them.
        phrases: texts of the user's by which the read was keyed.
    """
    found: set[str] = set()
    for field in record.fields[:_MOST_FIELDS]:
        form = field.form
        if form in burned or form in NOISE or _is_small(form):
            continue
        if form[0].isdigit() and (day := _MOMENT.fullmatch(form)):
            if words.has_day(int(day[1]), int(day[2]), int(day[3])):
                found.add(f"{field.key}:day")
            if day[4] is not None and day[4] in words.times:
                found.add(f"{field.key}:time")
            continue
        if len(form) >= _LEAST_SIGNS and words.has_form(form, is_identity=False):
            found.add(f"={form}")
        if len(field.text) <= _SHORT_FIELD and not form[0].isdigit():
            found.update(_said_of_text(fold(field.text), words, burned, phrases))
    return frozenset(found)


def _said_of_text(text: str, words: UserWords, burned: Container[str], phrases: Collection[str]) -> Iterator[str]:
    """Yield what of a short text stands in the user's words: neighbouring words, names, phrases, long words."""
    yield from (f"?{phrase}" for phrase in phrases if phrase in text)
    parts = find_words(text.replace("_", " "))
    if words.words.isdisjoint(parts):
        return
    yield from (f"{one} {two}" for one, two in pairwise(parts) if (one, two) in words.pairs and not {one, two} <= NOISE)
    yield from (part for part in parts if part in words.names and part not in burned)
    yield from (f"~{part}" for part in parts if len(part) >= _LONG_WORD and part in words.words and part not in NOISE)


def anchor_group(group: list[OutputRecord], words: UserWords, burned: Container[str]) -> list[OutputRecord]:
    """Return the records of a group that the user's words single out.

    Args:
        group: siblings, each with what of it is said.
        words: the user's words.
        burned: values that the agent brought up first.
    """
    best = _best_matches(group, [record.said for record in group], is_plural=words.is_plural)
    found = best if best and (len(best) == 1 or words.is_plural) else []
    for sentence, end, kind in words.extremes:
        said = [find_said(record, sentence, burned) for record in group]
        among = _best_matches(group, said, is_plural=False) or group
        at_end = _record_at_end(among, end, kind)
        found = found if at_end is None else [*found, at_end]
    if words.is_plural and not best and all(record.listed and not record.authored for record in group):
        return group
    return found


def _best_matches(group: list[OutputRecord], said: list[frozenset[str]], *, is_plural: bool) -> list[OutputRecord]:
    """Return the records of which more stands in the words than a sibling shows: none is a strict part of another's."""
    shared = frozenset[str]()
    if len(group) >= _SHARED and not is_plural:
        shared = said[0].intersection(*said[1:])
    marks = [one - shared for one in said]
    distinct = set(marks)
    return [
        record
        for record, one in zip(group, marks, strict=True)
        if any(mark[0] != "~" for mark in one) and not any(one < other for other in distinct)
    ]


def _record_at_end(group: list[OutputRecord], end: str, kind: str) -> OutputRecord | None:
    """Return the one record at an end of the one field that a superlative can mean."""
    if len(group) < 2:  # noqa: PLR2004 - of one there is no largest
        return None
    choices: set[int] = set()
    for key in dict.fromkeys(field.key for field in group[0].fields):
        if is_identifier_key(key):
            continue
        known = [value for record in group if (value := _comparable(record, key, kind)) is not None]
        if len(known) < len(group) or len(set(known)) < 2:  # noqa: PLR2004 - all alike
            continue
        top = max(known) if end == "max" else min(known)
        choices.add(known.index(top) if known.count(top) == 1 else -1)
    return group[choices.pop()] if len(choices) == 1 and -1 not in choices else None


def _comparable(record: OutputRecord, key: str, kind: str) -> tuple[float | str] | None:
    form = next((field.form for field in record.fields if field.key == key), None)
    if form is None:
        return None
    if re.match(r"\d{4}-\d\d-\d\d", form):
        return (form,) if kind == "time" else None
    if kind == "number":
        try:
            return (float(form),)
        except ValueError:
            return None
    return None


def _is_small(form: str) -> bool:
    if not is_like_number(form):
        return False
    try:
        return abs(float(form)) < _LEAST_NUMBER
    except ValueError:
        return False
