"""REMEMBER: the state that outlives one call. One set of rules (`core/ledger/admission.py`) for every store.

In: a store's URL.
Out: an open store.
Never: a rule of its own, or a driver that is imported before a URL asks for it.
"""

from __future__ import annotations

import re
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
        create: True creates missing tables (and the SQLite file), and migrates those of an older version.

    Raises:
        StoreError: the store is missing, was replaced, cannot be reached, or is of an unknown kind.
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
    # Other text is no scheme and may be a connection string with its password.
    named = repr(kind) if re.fullmatch(r"[\w.+-]*", kind) else "this text"
    raise StoreError(f"{named} is not a kind of store: use {_KINDS}")
