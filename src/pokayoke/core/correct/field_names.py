"""Field names: other spellings and typos of a name that the schema knows.

Letter case and separators have no meaning (`userId` is `user_id`; the catalogue reads tool names the same way), so
exactly one match of that kind is an *equivalent* correction. Every other sign has a meaning (`amount_€`, `vote+`), and
so have a separator between digits (`cell_1_11`, `cell_11_1`) and one minus sign at an end (`-status`).

A typo is *likely*: one slip in one word of at least five letters, not in its first letter, with equal digits, no other
near field, and the intended field absent. Never renamed are therefore antonyms (`min_price`, `max_price`; `ascending`,
`descending`), the two sides of a deal (`payer`, `payee`), numbered fields (`line1`, `line2`), short words (`from`,
`form`), and names in scripts whose signs are words.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from functools import lru_cache
from typing import Any

from rapidfuzz.distance import OSA

from pokayoke.core.call import CorrectionKind
from pokayoke.core.check.findings import Issue
from pokayoke.core.json.pointer import pointer_step, to_pointer
from pokayoke.core.json.values import is_object
from pokayoke.core.schema.facts import walk_objects
from pokayoke.core.schema.problems import build_problem, describe_allowed_properties
from pokayoke.core.schema.schema import Schema

NEAR_KEYWORD = "properties"
"""The keyword of the issues of `misspelt_fields`: the schema itself has no objection."""
MAX_UNKNOWN = 64
"""Most unknown names of one object that are compared with its declared fields."""
_SPACERS = re.compile(r"[\s_.\-/:'\"`]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_BETWEEN_DIGITS = re.compile(r"(?<=[0-9]) (?=[0-9])")
_LONE_MINUS = re.compile(r"\A-(?!-)|(?<!-)-\Z")
_SIDE = re.compile(r"(?:ee|er|or)s?\Z")
_MAX_NAME = 64
_SHORTEST = 5
_LONG = 9
_NEAR = 3


def nearest_field(wrong: str, fields: tuple[str, ...], present: Container[str]) -> tuple[str, CorrectionKind] | None:
    """Return the one field that a wrong name can mean and the class of that correction, or None.

    Args:
        wrong: the name as the model wrote it.
        fields: the names that the schema knows; `wrong` is none of them.
        present: the names that the object already has; it cannot mean one of these.
    """
    alike, near = _near_fields(wrong, fields)
    if alike:
        return (alike[0], "equivalent") if len(alike) == 1 and alike[0] not in present else None
    slips = [field for field in near if field not in present and _is_slip(wrong, field)]
    if len(slips) != 1:
        return None
    found, plain = slips[0], _fold_name(wrong)
    own = OSA.distance(plain, _fold_name(found))
    rivals = [field for field in near if field != found and OSA.distance(plain, _fold_name(field)) <= own + 1]
    return None if rivals else (found, "likely")


def misspelt_fields(value: Any, schema: Schema) -> Iterator[Issue]:
    """Yield an issue for every name in an open object that is another spelling of a declared field, or near one.

    The schema takes such a name as one field more, and the tool then runs as if the declared one was not sent. Where
    other names have a schema of their own, only another spelling counts.
    """
    for path, facts, item in walk_objects(value, schema):
        unknown = [name for name in item if name not in facts.properties]
        if not facts.properties or not 0 < len(unknown) <= MAX_UNKNOWN:
            continue
        is_map = any(is_object(node.get("additionalProperties")) for node in facts.nodes)
        for name in unknown:
            if any(schema.has_pattern_for(node, name) for node in facts.nodes):
                continue
            alike, near = _near_fields(name, facts.properties)
            if alike or any(field not in item and not is_map and _is_slip(name, field) for field in near):
                expected = describe_allowed_properties(facts.properties)
                at = to_pointer(path)
                problem = build_problem(at, NEAR_KEYWORD, expected, [name], {"unexpected": [name]}, True)
                yield Issue((*path, name), at + pointer_step(name), "unknown_field", problem)


def _near_fields(wrong: str, fields: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the fields that a name spells otherwise, and those that differ from it in few letters."""
    plain = _fold_name(wrong) if len(wrong) <= _MAX_NAME else ""
    alike: list[str] = []
    near: list[str] = []
    if not plain or _LONE_MINUS.search(wrong.strip()):
        return alike, near
    for field, known in _fold_names(fields):
        if known == plain:
            alike.append(field)
        elif OSA.distance(plain, known, score_cutoff=_NEAR) <= _NEAR:
            near.append(field)
    return alike, near


def _is_slip(wrong: str, field: str) -> bool:
    """Return whether two names differ by one slip in one word (two in a word of nine letters or more)."""
    one, other = _fold_name(wrong), _fold_name(field)
    if _extract_digits(one) != _extract_digits(other):
        return False
    words = _split_words(field)
    typed = _split_words(wrong)
    if len(words) == len(typed):
        pairs = [(a, b) for a, b in zip(typed, words, strict=True) if a != b]
        if len(pairs) != 1:
            return False
        one, other = pairs[0]
    if one[0] != other[0] or not (_is_alphabetic(one) and _is_alphabetic(other)):
        return False
    if _SIDE.sub("", one) == _SIDE.sub("", other):
        return False
    if min(len(one), len(other)) < _SHORTEST - 1 or max(len(one), len(other)) < _SHORTEST:
        return False
    return OSA.distance(one, other) <= (2 if min(len(one), len(other)) >= _LONG else 1)


def _is_alphabetic(word: str) -> bool:
    """Return whether a word is written in letters, so that an additional or wrong one may be a slip."""
    return all(sign.isdecimal() or sign.upper() != sign for sign in word)


@lru_cache(maxsize=1024)
def _split_words(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _SPACERS.split(name) if word)


@lru_cache(maxsize=1024)
def _fold_name(name: str) -> str:
    return _BETWEEN_DIGITS.sub("_", " ".join(_split_words(name))).replace(" ", "")


@lru_cache(maxsize=256)
def _fold_names(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((name, _fold_name(name)) for name in names)


def _extract_digits(text: str) -> str:
    return "".join(filter(str.isdecimal, text))
