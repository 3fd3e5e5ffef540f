"""How large a value may be that a costly schema is asked about.

A validation costs the size of the schema times the size of the value. Either alone may be large for
good reasons: a schema of a thousand alternatives, a list of ten thousand numbers. Nobody can interrupt
the validator, so the product is bounded here: a costly schema is kept, and what it is asked about is
made smaller. Usual schemas have no such limit, and their validator stays bare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isqrt
from typing import Any

import msgspec

from pokayoke.core.json.values import is_array, is_object
from pokayoke.core.schema.schema_patterns import pattern_weight

LIGHT_PATTERN = 500
"""Weight up to which a pattern may be asked about any text the intake lets through."""
PATTERN_WORK = 100_000_000
"""Most states times characters for one text; about a second if the pattern is hostile, else far less."""
FRACTION = 10
"""Paths that comparing a value with one fraction or one integer beyond 64 bits costs (measured)."""
LIGHT_PLACE = 100
"""Paths up to which a place may be met as often as the intake lets values through."""
PLACE_WORK = 10_000_000
"""Most paths times values for one validation; a second or two if both are hostile, else far less."""
WIDE_WORK = 1_000_000
"""Most paths times pairs of integers beyond 64 bits; a second if all of them stand in one list, else far less."""
_WIDE = 1 << 63


def enum_cost(node: Any) -> int:
    """Return how costly an `enum` is, in paths: the validator compares one value with all its lists and objects.

    Texts and whole numbers are looked up and cost nothing; a fraction is compared digit by digit, and
    so is an integer beyond 64 bits.
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


class Limit(msgspec.Struct, frozen=True):
    """How much of something a value may have.

    Attributes:
        measure: says how much a value has.
        most: how much it may have.
        wanted: the limit in words.
    """

    measure: Callable[[Any], int]
    most: int
    wanted: str


def value_limits(patterns: Iterable[str], paths: int, *, unique: bool) -> tuple[Limit, ...]:
    """Return the limits of values a schema may be asked about; () for the usual schema.

    Of its patterns the heaviest counts; many light ones count together as if every fourth met the same text.
    Items that must differ are looked up, but integers beyond 64 bits one by one, before their type is looked at.

    Args:
        patterns: the schema's regular expressions.
        paths: on how many paths one place of a value is evaluated at most.
        unique: the items of some list must all differ.
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
    """Return a validation that refuses a value beyond these limits before the schema sees it."""

    def is_small_and_valid(value: Any) -> bool:
        return find_exceeded_limit(value, limits) is None and is_valid(value)

    return is_small_and_valid if limits else is_valid


def find_exceeded_limit(value: Any, limits: tuple[Limit, ...]) -> Limit | None:
    """Return the first limit that a value is beyond."""
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
    for held in stack:  # grows; texts first, which most values are
        for item in held.values() if is_object(held) else held:
            if isinstance(item, str):
                continue
            if is_object(item) or is_array(item):
                stack.append(item)
            else:
                found += _is_wide(item)
    return found


def _is_wide(value: Any) -> bool:
    return isinstance(value, int) and not -_WIDE <= value < _WIDE
