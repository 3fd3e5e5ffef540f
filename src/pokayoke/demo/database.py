"""One SQLite file, opened per statement, as small back ends do it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any


class Database:
    """A database file.

    Args:
        path: the file; it must not exist yet.
        script: statements that create and fill it.
    """

    def __init__(self, path: Path, script: str) -> None:
        self._path = path
        with closing(self._connect()) as connection:
            connection.executescript(script)

    def read(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with closing(self._connect()) as connection:
            return connection.execute(query, values).fetchall()

    def write(self, statement: str, *values: Any) -> int:
        """Run one statement in a transaction of its own; returns the id of the row it inserted."""
        with closing(self._connect()) as connection, connection:
            return connection.execute(statement, values).lastrowid or 0

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=10.0)
        # The files live for a second; waiting for the disk would only make the demo slow.
        connection.execute("PRAGMA synchronous=OFF")
        return connection
