"""Reads of a ledger's file beside its writer."""

from __future__ import annotations

import os
import threading
from typing import Final

from pokayoke.errors import StoreError
from pokayoke.stores.sql.dialect import Statement
from pokayoke.stores.sql.rows import Row
from pokayoke.stores.sqlite.fork_safety import Pausing

CLOSED: Final = "the store is closed: open it again with open_store"
FORKED: Final = "this process was forked behind Python's back: open the store after the fork"


class Reader(Pausing):
    """Reads beside the writer, in the caller's thread."""

    def fetch(self, statement: Statement) -> list[Row]:
        """Return the rows of a statement.

        Raises:
            StoreError: the store is closed, or the file cannot be read.
        """
        with self._gate:
            if self._closed:
                raise StoreError(CLOSED)
            if self._process != os.getpid():
                raise StoreError(FORKED)
            try:
                self._connection.look()
                return self._connection.fetch(*statement)
            except Exception as error:
                raise StoreError(self._connection.give_up(error)) from error

    def close(self) -> None:
        """Let go of the file."""
        with self._gate:
            self._closed = True
            self._connection.close()

    def begin_in_child(self) -> None:
        """Begin anew after a fork."""
        self._gate, self._process = threading.RLock(), os.getpid()
