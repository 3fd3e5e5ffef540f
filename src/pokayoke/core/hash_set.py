"""Which values were seen, in eight bytes each: a long run has seen very many.

In: values.
Out: whether a value was seen.
Never: a value that was seen and is not known again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

_LEAST_MERGE: Final = 256
_MERGE_SHARE: Final = 16


class HashSet:
    """A set that keeps hashes, and no value. Two values are taken for one if their hashes are equal: one in 2^61.

    Args:
        values: what is in it from the start.
    """

    __slots__ = ("_recent", "_sorted")

    def __init__(self, values: Iterable[object] = ()) -> None:
        self._sorted = array("q")
        self._recent: set[int] = set()  # what is not sorted in yet
        self.update(values)

    def __contains__(self, value: object) -> bool:
        """Return whether a value was added."""
        return self._has(hash(value))

    def __len__(self) -> int:
        """Return how many values were added."""
        return len(self._sorted) + len(self._recent)

    def add(self, value: object) -> None:
        """Add a value."""
        number = hash(value)
        if self._has(number):
            return
        self._recent.add(number)
        # Each value is sorted in a few times only, however many come.
        if len(self._recent) > max(_LEAST_MERGE, len(self._sorted) // _MERGE_SHARE):
            self._sorted = array("q", sorted((*self._sorted, *self._recent)))  # before: another thread may look
            self._recent = set()

    def update(self, values: Iterable[object]) -> None:
        """Add several values."""
        for value in values:
            self.add(value)

    def clear(self) -> None:
        """Forget every value."""
        self._sorted = array("q")
        self._recent = set()

    def _has(self, number: int) -> bool:
        if number in self._recent:
            return True
        known = self._sorted
        at = bisect_left(known, number)
        return at < len(known) and known[at] == number
