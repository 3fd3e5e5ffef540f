"""Keeps the last fully valid outputs, to replace a later invalid one: marked, aged and bounded.

In: valid read outputs as compact JSON, their identity, and the time.
Out: an output with its age, marked as degraded.
Never: return another tenant's output, one that is too old, or an object that a caller can change. The caller decides
with `keeps_last_good` whether an output may be kept, and passes a lock where threads share the cache.
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
    after: int


class LastKnownGood:
    """A small cache of valid read outputs by tenant, `tool@version` and arguments.

    A full cache drops the oldest entry. An output older than requested is never returned; each result is decoded
    anew.

    Args:
        entries: maximum number of outputs.
        max_bytes: maximum bytes in all.
        lock: held during each access; None if only one thread uses the cache.
    """

    __slots__ = ("_bytes", "_entries", "_kept", "_lock", "_max_bytes")

    def __init__(
        self, entries: int = 1_000, max_bytes: int = 32_000_000, lock: AbstractContextManager[Any] | None = None
    ) -> None:
        self._lock = lock or nullcontext()
        self._entries = entries
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[Key, _CachedOutput] = (
            OrderedDict()
        )  # a dict takes longer and longer to find its first key

    def __len__(self) -> int:
        """Number of kept outputs."""
        return len(self._kept)

    def put(
        self,
        tenant: str | None,
        contract_id: str,
        args_hash: str,
        data: bytes,
        *,
        now: float,
        after: int = 0,
    ) -> None:
        """Keep an output; the caller has checked `keeps_last_good`.

        Args:
            tenant: its owner; no other tenant sees it.
            contract_id: `tool@version` that returned it.
            args_hash: hash of the arguments of the call.
            data: the value as compact JSON.
            now: the time, in seconds.
            after: `RunView.effects` when its call began.
        """
        kept, key, size = self._kept, (tenant or "", contract_id, args_hash), len(data)
        with self._lock:
            older = kept.pop(key, None)
            held = self._bytes if older is None else self._bytes - len(older.data)
            if size <= self._max_bytes:
                kept[key] = _CachedOutput(now, data, after)
                held += size
                while held > self._max_bytes or len(kept) > self._entries:
                    held -= len(kept.popitem(last=False)[1].data)
            self._bytes = held

    def get(
        self,
        tenant: str | None,
        contract_id: str,
        args_hash: str,
        *,
        now: float,
        max_age: float,
        after: int = 0,
    ) -> tuple[float, Any]:
        """Return (age in seconds, value); (0.0, None) if no output is young enough.

        A `max_age` of 0 disables the cache. An output from the future (the clock went back) is too old. After a write
        of the run that asks (`after`), only what that run has read since will do.
        """
        with self._lock:
            kept = self._kept.get((tenant or "", contract_id, args_hash))
        if kept is None or max_age <= 0 or after < 0 or (after and kept.after != after):
            return 0.0, None
        age = now - kept.at
        if not 0 <= age <= max_age:
            return 0.0, None
        return age, msgspec.json.decode(kept.data)


def keeps_last_good(contract: Contract) -> bool:
    """Return whether a tool's fully valid output may replace a later one.

    Only the output of a read with an output contract, never of a secret tool. The caller makes sure that no block
    is missing in the kept output.
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
    """Mark a replacement value as `_degraded`, with its age and the reason.

    An object gets the marks next to its own fields; any other value, or an object that already has such a
    field, is wrapped as `value`.

    Args:
        value: the last valid value, or None.
        age: its age in seconds, or None.
        message: the problem of the real output, without quoting it: a model may read this.
    """
    marks = {
        "_degraded": True,
        "_age_seconds": None if age is None else round(age, 3),
        "_message": message,
    }
    if isinstance(value, dict) and not marks.keys() & value.keys():
        return {**value, **marks}
    return {**marks, "value": value}
