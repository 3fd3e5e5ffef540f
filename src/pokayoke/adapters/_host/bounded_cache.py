"""The latest things of a kind, such as calls between a model's reply and their tools: what is older is forgotten."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["BoundedCache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """The latest things of a kind, by their keys. Thread-safe.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int = 1_000) -> None:
        """Begin with none."""
        self._most = most
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, key: K, value: V) -> None:
        """Keep one; the oldest goes."""
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def get(self, key: K) -> V | None:
        """Return one, or None."""
        return self._kept.get(key)

    def pop(self, key: K) -> V | None:
        """Return one and forget it."""
        with self._lock:
            return self._kept.pop(key, None)
