"""A cache of the latest entries.

In: entries by key, such as calls between a reply and their tools. Out: the same. Never: more than a fixed number.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """A cache that drops its oldest entry when it is full. Thread-safe.

    Args:
        most: number of entries that it keeps.
    """

    def __init__(self, most: int = 1_000) -> None:
        """Begin empty."""
        self._most = most
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, key: K, value: V) -> None:
        """Add or replace an entry."""
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def get(self, key: K) -> V | None:
        """Return an entry, or None."""
        return self._kept.get(key)

    def pop(self, key: K) -> V | None:
        """Remove and return an entry, or return None."""
        with self._lock:
            return self._kept.pop(key, None)
