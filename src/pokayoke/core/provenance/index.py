"""What the outputs of a run hold, in little memory: who holds a value, and what is known of each holder.

A run may read megabytes, and records as objects take twelve times their text. So a record is a number here, a value is
the hash of its spelling, and both share one integer of a sorted array.

In: values and numbers of records.
Out: the numbers of the records that hold a value, and what is known of a record.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

_NUMBER_BITS: Final = 24
MOST_NUMBERS: Final = 1 << _NUMBER_BITS
"""Numbers that are told apart: what comes after them stands nowhere, so a call that names it is asked about."""
_HASH_MASK: Final = (1 << (64 - _NUMBER_BITS)) - 1
_LEAST_MERGE: Final = 1_024
_MERGE_SHARE: Final = 16


class ValueIndex:
    """Numbers by value. Two values with one hash are one in 2^40: the value then counts as standing there too."""

    __slots__ = ("_entries", "_fresh", "_recent", "_recent_count")

    def __init__(self) -> None:
        """Begin empty."""
        self._entries = array("Q")  # sorted
        self._recent: dict[int, list[int]] = {}  # what is not sorted in yet
        self._recent_count = 0
        self._fresh: list[int] = []  # entries since the latest search

    def add(self, values: Iterable[object], number: int) -> None:
        """Note that a number holds these values."""
        self._fresh.extend([(hash(value) & _HASH_MASK) << _NUMBER_BITS | number for value in values])
        if len(self._fresh) > _LEAST_MERGE:
            self._take_fresh()

    def _take_fresh(self) -> None:
        for entry in self._fresh:
            self._recent.setdefault(entry >> _NUMBER_BITS, []).append(entry & (MOST_NUMBERS - 1))
        self._recent_count += len(self._fresh)
        self._fresh.clear()
        # Each entry is sorted in a few times only, however many come.
        if self._recent_count > max(_LEAST_MERGE, len(self._entries) // _MERGE_SHARE):
            fresh = (key << _NUMBER_BITS | one for key, numbers in self._recent.items() for one in numbers)
            self._entries = array("Q", sorted((*self._entries, *fresh)))
            self._recent, self._recent_count = {}, 0

    def find(self, value: object) -> Iterator[int]:
        """Yield the numbers that hold a value."""
        if self._fresh:
            self._take_fresh()
        key, entries = hash(value) & _HASH_MASK, self._entries
        at = bisect_left(entries, key << _NUMBER_BITS)
        while at < len(entries) and entries[at] >> _NUMBER_BITS == key:
            yield entries[at] & (MOST_NUMBERS - 1)
            at += 1
        yield from self._recent.get(key, ())


def token_bits(tokens: Iterable[str]) -> bytearray:
    """Return bits that say whether a text may hold a token: a byte for each token it has, and no token itself."""
    known = set(tokens)
    size = 1 << max(6, (len(known) * 8).bit_length())
    bits, mask = bytearray(size >> 3), size - 1
    for token in known:
        place = hash(token) & mask
        bits[place >> 3] |= 1 << (place & 7)
    return bits


def may_hold(bits: bytearray, tokens: Iterable[str]) -> bool:
    """Return False if a text of these bits certainly has none of the tokens."""
    mask = len(bits) * 8 - 1
    return any(bits[place >> 3] >> (place & 7) & 1 for token in tokens for place in (hash(token) & mask,))
