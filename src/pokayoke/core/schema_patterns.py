"""How much work a regular expression can make, so that a linear engine stays quick too.

Linear time is the size of the pattern times the length of the text: `(a{300}){300}` has 90,000
states and needs over a minute for 90,000 letters. Repetition counts are what makes a short pattern
large; they are multiplied out here. RE2 simply refuses products above 1,000; since real schemas say
`^.{1,2000}$`, a heavy pattern is kept here and the texts it may be asked about are made shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pokayoke.core.rare import rare
from pokayoke.core.shapes import is_array, is_object

LIGHT = 500
"""Weight up to which a pattern may be asked about any text the intake lets through."""
WORK = 100_000_000
"""Most states times characters for one text; about a second if the pattern is hostile, else far less."""
_PIECE = r"(?s)\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(?P<least>\d+)(?P<open>,(?P<most>\d*))?\}|(?P<enter>\()|(?P<leave>\))|."


def weight(pattern: str) -> int:
    """Return how many single steps a pattern has once its repetitions are written out; at least 1.

    An estimate that does not fail: what is no valid pattern is refused by the engine.
    """
    totals = [0]  # of the open groups, innermost last
    last = 0  # of what a repetition would repeat
    for token in rare(_PIECE).finditer(pattern):
        if token["enter"]:
            totals.append(0)
            last = 0
        elif token["leave"]:
            last = totals.pop() if len(totals) > 1 else 0
            totals[-1] += last
        elif token["least"]:
            times = max(_count(token["least"]), _count(token["most"] or ""), 1) + bool(token["open"] == ",")
            totals[-1] += last * (times - 1)
            last *= times
        elif token[0] not in "*+?|^$":
            last = 1
            totals[-1] += 1
    return max(sum(totals), 1)


def _count(digits: str) -> int:
    """Return a repetition count; one of many digits is refused by the engine, whatever it is."""
    return int(digits[:7] or "0")


def longest_text(patterns: Iterable[str]) -> int | None:
    """Return the length of text up to which all these patterns are quick, or None if any will do.

    The heaviest pattern counts; many light ones count together as if every fourth met the same text.
    """
    weights = [weight(pattern) for pattern in patterns]
    worst = max(max(weights, default=1), sum(weights) // 4)
    return None if worst <= LIGHT else WORK // worst


def guarded(is_valid: Callable[[Any], bool], limit: int) -> Callable[[Any], bool]:
    """Return a validation that refuses a value with a longer text or name before any pattern sees it."""

    def is_valid_and_short(value: Any) -> bool:
        return longest(value) <= limit and is_valid(value)

    return is_valid_and_short


def longest(value: Any) -> int:
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
