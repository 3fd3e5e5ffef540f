"""The last answer that was fully valid, for when the next one is not: marked, aged, and bounded.

What enters and leaves is compact JSON bytes, so nobody can change what is kept. Time is handed in.
Only the caller knows whether an answer may be kept (`keeps_last_good` says when); where threads share a cache, it
hands in the lock.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from pokayoke.core.contract.contract import Contract

Key = tuple[str, str, str]


class _CachedOutput(msgspec.Struct, frozen=True, gc=False):
    at: float
    data: bytes


class LastKnownGood:
    """A small cache of valid read outputs by tenant, `tool@version` and arguments.

    The entry that was stored longest ago goes first when it is full. What is older than asked for is
    never returned; what comes back is decoded anew each time.

    Args:
        entries: most answers kept.
        max_bytes: most bytes kept in all.
        lock: held while something is kept or looked up; None if only one thread does so.
    """

    __slots__ = ("_bytes", "_entries", "_kept", "_lock", "_max_bytes")

    def __init__(
        self, entries: int = 1_000, max_bytes: int = 32_000_000, lock: AbstractContextManager[Any] | None = None
    ) -> None:
        self._lock = lock or nullcontext()
        self._entries = entries
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[Key, _CachedOutput] = OrderedDict()  # a dict takes ever longer to find its first key

    def __len__(self) -> int:
        """Number of answers kept."""
        return len(self._kept)

    def put(self, tenant: str | None, contract_id: str, args_hash: str, data: bytes, *, now: float) -> None:
        """Keep an answer; the caller has checked `keeps_last_good`.

        Args:
            tenant: whose it is; no other tenant ever sees it.
            contract_id: `tool@version` that gave it.
            args_hash: hash of the arguments it answers.
            data: the value as compact JSON.
            now: the time, in seconds.
        """
        kept, key, size = self._kept, (tenant or "", contract_id, args_hash), len(data)
        with self._lock:
            older = kept.pop(key, None)
            held = self._bytes if older is None else self._bytes - len(older.data)
            if size <= self._max_bytes:
                kept[key] = _CachedOutput(now, data)
                held += size
                while held > self._max_bytes or len(kept) > self._entries:
                    held -= len(kept.popitem(last=False)[1].data)
            self._bytes = held

    def get(
        self, tenant: str | None, contract_id: str, args_hash: str, *, now: float, max_age: float
    ) -> tuple[float, Any]:
        """Return (age in seconds, value); (0.0, None) if nothing young enough is kept.

        A `max_age` of 0 switches it off. An answer from the future (the clock went back) is too old.
        """
        with self._lock:
            kept = self._kept.get((tenant or "", contract_id, args_hash))
        if kept is None or max_age <= 0:
            return 0.0, None
        age = now - kept.at
        if not 0 <= age <= max_age:
            return 0.0, None
        return age, msgspec.json.decode(kept.data)


def keeps_last_good(contract: Contract) -> bool:
    """Return whether a tool's fully valid data may stand in for a later answer.

    Only a read's, never of a tool marked secret, never what nothing was promised about. The caller sees to
    it that no block is missing in what is kept.
    """
    return contract.effect == "read" and not contract.secret and not contract.unchecked


def last_good_owner(tenant: str | None, user: str, run_id: str) -> str:
    """Return whose outputs may stand in for a later one: a user's, else a tenant's, else only this run's.

    Args:
        tenant: the tenant, if there are several.
        user: id of the principal, or "".
        run_id: the run.
    """
    return f"{tenant or ''}\x1f{user}" if user or tenant else f"\x1e{run_id}"


def degraded_value(value: Any, age: float | None, message: str) -> dict[str, Any]:
    """Mark a value that stands in for the real one as `_degraded`, with its age and why.

    An object gets the marks beside its own fields; anything else, or an object that has such a
    field already, is wrapped as `value`.

    Args:
        value: the last valid value, or None if there is none.
        age: how old it is in seconds, or None if there is none.
        message: what happened to the real answer, without a word of it: a model may read this.
    """
    marks = {
        "_degraded": True,
        "_age_seconds": None if age is None else round(age, 3),
        "_message": message,
    }
    if isinstance(value, dict) and not marks.keys() & value.keys():
        return {**value, **marks}
    return {**marks, "value": value}
