"""What a schema costs, and how large a value it may therefore check.

A validation costs the size of the schema times the size of the value. Either may be large for good reasons: a
schema of a thousand alternatives, a list of ten thousand numbers. The validator cannot be interrupted, so the
product is bounded here: a costly schema is kept and checks smaller values only. Usual schemas have no limit, and
the bare method of their validator is used.

Linear time is the size of a pattern times the length of the text: `(a{300}){300}` has 90,000 states and needs over
a minute for 90,000 letters. Repetition counts make a short pattern large, so they are multiplied out here. RE2
refuses products above 1,000; real schemas say `^.{1,2000}$`, so a heavy pattern is kept and checks shorter texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isqrt
from typing import Any

import msgspec

from pokayoke.core.json.values import is_array, is_object
from pokayoke.core.text.regex import compile_pattern

LIGHT_PATTERN = 500
"""Weight up to which a pattern may check any text that the intake admits."""
PATTERN_WORK = 100_000_000
"""Most states times characters for one text; about a second if the pattern is hostile, else far less."""
FRACTION = 10
"""Cost, in paths, of comparing a value with one fraction or one integer beyond 64 bits (measured)."""
LIGHT_PLACE = 100
"""Paths per place up to which the number of values is not limited."""
PLACE_WORK = 10_000_000
"""Most paths times values for one validation; a second or two if both are hostile, else far less."""
WIDE_WORK = 1_000_000
"""Most paths times pairs of integers beyond 64 bits; a second if all of them stand in one list, else far less."""
_WIDE = 1 << 63
_PIECE = r"(?s)\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(?P<least>\d+)(?P<open>,(?P<most>\d*))?\}|(?P<enter>\()|(?P<leave>\))|."


def enum_cost(node: Any) -> int:
    """Return the cost of an `enum` in paths: the validator compares a value with all its lists and objects.

    Texts and whole numbers are looked up and cost nothing. A fraction and an integer beyond 64 bits are compared
    digit by digit.
    """
    listed = node.get("enum")
    return sum(map(_entry_cost, listed)) if is_array(listed) else 0


def _entry_cost(entry: Any) -> int:
    if isinstance(entry, float) or _is_wide(entry):
        return FRACTION
    if is_object(entry):
        return max((_entry_cost(item) for item in entry.values()), default=1) or 1
    if is_array(entry):
        return max(map(_entry_cost, entry), default=1) or 1
    return 0


def pattern_weight(pattern: str) -> int:
    """Return the number of single steps of a pattern whose repetitions are written out; at least 1.

    An estimate that never raises: the engine refuses invalid patterns itself.
    """
    totals = [0]  # of the open groups, the innermost last
    last = 0  # steps of the part that a repetition would repeat
    for token in compile_pattern(_PIECE).finditer(pattern):
        if token["enter"]:
            totals.append(0)
            last = 0
        elif token["leave"]:
            last = totals.pop() if len(totals) > 1 else 0
            totals[-1] += last
        elif token["least"]:
            times = max(_parse_count(token["least"]), _parse_count(token["most"] or ""), 1) + bool(token["open"] == ",")
            totals[-1] += last * (times - 1)
            last *= times
        elif token[0] not in "*+?|^$":
            last = 1
            totals[-1] += 1
    return max(sum(totals), 1)


def _parse_count(digits: str) -> int:
    """Return a repetition count. The engine refuses one of many digits, so its value does not matter."""
    return int(digits[:7] or "0")


class Limit(msgspec.Struct, frozen=True):
    """A limit on the size of a value.

    Attributes:
        measure: returns the size of a value.
        most: the largest size allowed.
        expected: the limit in words.
    """

    measure: Callable[[Any], int]
    most: int
    expected: str


def value_limits(patterns: Iterable[str], paths: int, *, unique: bool) -> tuple[Limit, ...]:
    """Return the limits on values that a schema checks; () for the usual schema.

    The heaviest pattern counts; many light ones count together as if every fourth met the same text. Items that
    must differ are looked up, but integers beyond 64 bits are compared one by one, before their type is checked.

    Args:
        patterns: the schema's regular expressions.
        paths: the highest number of paths on which one place of a value is evaluated.
        unique: True if the items of some list must all differ.
    """
    weights = [pattern_weight(pattern) for pattern in patterns]
    worst = max(max(weights, default=1), sum(weights) // 4)
    found: list[Limit] = []
    if worst > LIGHT_PATTERN:
        most = PATTERN_WORK // worst
        found.append(
            Limit(max_text_length, most, f"texts of at most {most} characters (a pattern of the schema is costly)")
        )
    if paths > LIGHT_PLACE:
        most = PLACE_WORK // paths
        found.append(
            Limit(count_values, most, f"at most {most} values in all (the schema has many alternatives for each)")
        )
    if unique:
        most = isqrt(WIDE_WORK // paths)
        found.append(
            Limit(
                count_wide_integers, most, f"at most {most} integers beyond 64 bits (items of a list must all differ)"
            )
        )
    return tuple(found)


def limit_validator(is_valid: Callable[[Any], bool], limits: tuple[Limit, ...]) -> Callable[[Any], bool]:
    """Return a validation that refuses a value beyond these limits before the schema checks it."""

    def is_small_and_valid(value: Any) -> bool:
        return find_exceeded_limit(value, limits) is None and is_valid(value)

    return is_small_and_valid if limits else is_valid


def find_exceeded_limit(value: Any, limits: tuple[Limit, ...]) -> Limit | None:
    """Return the first limit that a value exceeds, or None."""
    return next((limit for limit in limits if limit.measure(value) > limit.most), None)


def max_text_length(value: Any) -> int:
    """Return the length of the longest text or property name in a value."""
    most = 0
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            most = max(most, len(item))
        elif is_object(item):
            most = max(most, max(map(len, item), default=0))
            stack.extend(item.values())
        elif is_array(item):
            stack.extend(item)
    return most


def count_values(value: Any) -> int:
    """Return how many values a value consists of, itself included."""
    seen = 0
    stack = [value]
    while stack:
        item = stack.pop()
        seen += 1
        if is_object(item):
            stack.extend(item.values())
        elif is_array(item):
            stack.extend(item)
    return seen


def count_wide_integers(value: Any) -> int:
    """Return how many integers beyond 64 bits a value holds."""
    found = 0
    stack: list[Any] = [[value]]
    for container in stack:  # grows; texts first, because most values are texts
        for item in container.values() if is_object(container) else container:
            if isinstance(item, str):
                continue
            if is_object(item) or is_array(item):
                stack.append(item)
            else:
                found += _is_wide(item)
    return found


def _is_wide(value: Any) -> bool:
    return isinstance(value, int) and not -_WIDE <= value < _WIDE
