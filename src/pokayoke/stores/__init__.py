"""REMEMBER: what must be known beyond one call. One set of rules (`core/ledger/admission.py`) over every store."""

from __future__ import annotations

from typing import cast

from pokayoke.errors import StoreError
from pokayoke.stores.base import Store
from pokayoke.stores.memory import MemoryStore

__all__ = ["MemoryStore", "Store", "open_store"]

_KINDS = "memory://, sqlite:///file.db or postgresql://user@host/database"


def open_store(url: str | None, *, create: bool = False) -> Store:
    """Open a store.

    Args:
        url: None or `memory://` for a store in this process; `sqlite:///relative.db`,
            `sqlite:////absolute/path.db` or `postgresql://user@host/database` for a durable one.
        create: True creates a durable store's tables (and an SQLite file) where they are missing, and
            brings those of an older version up to date.

    Raises:
        StoreError: the store is missing, is not what it was, cannot be reached, or is of no known kind.
        MissingExtraError: its driver is not installed.
    """
    if url is None or url == "memory://":
        return MemoryStore()
    if not isinstance(cast("object", url), str):
        raise StoreError(f"a store is named by its URL, not by {url!r}: use {_KINDS}")
    kind = url.partition(":")[0].partition("+")[0]
    if kind == "sqlite":
        from pokayoke.stores.sqlite.store import SqliteStore  # noqa: PLC0415 - 10 ms of import, for those who use it

        return SqliteStore(url, create=create)
    if kind in ("postgresql", "postgres"):
        from pokayoke.stores.postgres.store import PostgresStore  # noqa: PLC0415 - an extra

        return PostgresStore(url, create=create)
    raise StoreError(f"{kind!r} is not a kind of store: use {_KINDS}")
