"""REMEMBER: what must be known beyond one call. One set of rules (`core/admission.py`) over every store."""

from __future__ import annotations

from pokayoke.errors import StoreError
from pokayoke.stores.base import Store
from pokayoke.stores.memory import MemoryStore

__all__ = ["MemoryStore", "Store", "open_store"]


def open_store(url: str | None, *, create: bool = False) -> Store:  # noqa: ARG001 - memory has nothing to create
    """Open a store.

    Args:
        url: None or `memory://` for a store in this process.
        create: True allows a durable store to be created if it is missing.

    Raises:
        StoreError: the URL names a kind of store that this version does not have.
    """
    if url is None or url == "memory://":
        return MemoryStore()
    kind = url.partition(":")[0]
    raise StoreError(f"{kind!r} is not a store of this version; use store=None (memory, stops repeats within a run)")
