"""Reads of a store that open pages share: what one page has read, the others get too, until something changes.

In: a store, and which lists a page shows.
Out: those lists.
Never: a list from before a change that is known here, or anything that a decision is made of.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import msgspec

from pokayoke.core.ledger.admission import Approval
from pokayoke.core.ledger.records import Record
from pokayoke.core.state.kill_switch import OutputRate, Switch
from pokayoke.stores.base import Store
from pokayoke.stores.lists import AuditFilter, EffectFilter, Overview, RunEntry, RunFilter
from pokayoke.stores.values import AuditEntry

T = TypeVar("T")
_SECONDS: Final = 1.0
_MOST_LISTS: Final = 500


class _Slot:
    """What was read, and when; one reader at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.read_at = float("-inf")
        self.generation = -1
        self.value: Any = None


class SharedReads:
    """Reads lists of a store for all pages together.

    Args:
        store: the store.

    Attributes:
        is_shared: says whether several pages are open. A single page reads the store itself, and is never behind it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._slots: dict[object, _Slot] = {}
        self._generation = self._reads = 0
        self.is_shared: Callable[[], bool] = lambda: False

    def forget(self) -> None:
        """Let nobody have what was read before this moment."""
        with self._lock:
            self._generation += 1
            self._slots.clear()

    def take_count(self) -> int:
        """Return how many lists were read from the store since this was last asked."""
        with self._lock:
            count, self._reads = self._reads, 0
            return count

    def effects(self, wanted: EffectFilter) -> tuple[Record, ...]:
        """Return what `Store.effects` returns."""
        return self._read(("effects", _whole_seconds(wanted)), lambda: self._store.effects(wanted))

    def count_effects(self, wanted: EffectFilter) -> int:
        """Return what `Store.count_effects` returns."""
        return self._read(("count", _whole_seconds(wanted)), lambda: self._store.count_effects(wanted))

    def audit_lines(self, wanted: AuditFilter) -> tuple[AuditEntry, ...]:
        """Return what `Store.audit_lines` returns."""
        return self._read(("audit", wanted), lambda: self._store.audit_lines(wanted))

    def runs(self, wanted: RunFilter) -> tuple[RunEntry, ...]:
        """Return what `Store.runs` returns."""
        return self._read(("runs", wanted), lambda: self._store.runs(wanted))

    def waiting_approvals(self, now: float, *, after: tuple[float, str] | None, limit: int) -> tuple[Approval, ...]:
        """Return what `Store.waiting_approvals` returns."""
        key = ("waiting", after, limit)
        return self._read(key, lambda: self._store.waiting_approvals(now, after=after, limit=limit))

    def overview(self, now: float) -> Overview:
        """Return what `Store.overview` returns."""
        return self._read("overview", lambda: self._store.overview(now))

    def board(self) -> tuple[tuple[Switch, ...], tuple[OutputRate, ...]]:
        """Return what `Store.board` returns."""
        return self._read("board", self._store.board)

    def _read(self, key: object, read: Callable[[], T]) -> T:
        if not self.is_shared():
            self._count()
            return read()
        with self._lock:
            generation = self._generation
            if len(self._slots) >= _MOST_LISTS:
                self._slots.clear()
            slot = self._slots.setdefault(key, _Slot())
        with slot.lock:
            if slot.generation != generation or time.monotonic() - slot.read_at >= _SECONDS:
                self._count()
                begun = time.monotonic()
                slot.value = read()
                slot.read_at, slot.generation = begun, generation
            return cast("T", slot.value)

    def _count(self) -> None:
        with self._lock:
            self._reads += 1


def _whole_seconds(wanted: EffectFilter) -> EffectFilter:
    """Return a filter by which pages of the same second ask for the same."""
    return msgspec.structs.replace(
        wanted,
        doubtful_at=None if wanted.doubtful_at is None else int(wanted.doubtful_at),
        since=None if wanted.since is None else int(wanted.since),
    )
