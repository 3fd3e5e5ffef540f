"""Reads a ledger's file next to its writer.

In: statements that change nothing.
Out: rows.
Never: a read in a forked process on its parent's connection.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from pokayoke.errors import StoreError
from pokayoke.stores.sql.dialect import Statement
from pokayoke.stores.sql.rows import Row
from pokayoke.stores.sqlite.fork_safety import ForkSafe

STORE_CLOSED: Final = "the store is closed: open it again with open_store"
PROCESS_FORKED: Final = "this process was forked behind Python's back: open the store after the fork"


class SqliteReader(ForkSafe):
    """Reads in the caller's thread, next to the writer."""

    def fetch(self, statement: Statement) -> list[Row]:
        """Return the rows of a statement.

        Raises:
            StoreError: the store is closed, or the file cannot be read.
        """
        with self._gate:
            if self._closed:
                raise StoreError(STORE_CLOSED)
            if self._process != os.getpid():
                raise StoreError(PROCESS_FORKED)
            try:
                self._connection.ensure_open()
                return self._connection.fetch(*statement)
            except Exception as error:
                raise StoreError(self._connection.handle_failure(error)) from error

    def close(self) -> None:
        """Close the file."""
        with self._gate:
            self._closed = True
            self._connection.close()

    def reset_in_child(self) -> None:
        """Start anew after a fork."""
        self._gate, self._process = threading.RLock(), os.getpid()
