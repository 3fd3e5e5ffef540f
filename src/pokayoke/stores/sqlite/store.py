"""The ledger in an SQLite file: durable on one machine, shared by its processes.

In: operations and queries.
Out: rows as values of the core.
Never: a tool that starts before its claim is on the disk.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pokayoke.core.ledger.records import Settlement
from pokayoke.errors import StoreError
from pokayoke.stores.encryption import seal_from_environment
from pokayoke.stores.operations import Operation, settle_operation
from pokayoke.stores.sql import queries, statements
from pokayoke.stores.sql.dialect import SQLITE, Statement
from pokayoke.stores.sql.rows import Row
from pokayoke.stores.sql.store import SqlStore
from pokayoke.stores.sqlite.cache import WriterCache
from pokayoke.stores.sqlite.connection import SqliteConnection, SqliteLocation, error_message
from pokayoke.stores.sqlite.install import open_ledger
from pokayoke.stores.sqlite.library import load_library
from pokayoke.stores.sqlite.reader import SqliteReader
from pokayoke.stores.sqlite.user_transaction import UserTransaction
from pokayoke.stores.sqlite.writer import SqliteWriter

T = TypeVar("T")
PREFIX = "sqlite:///"


class StatementExecutor(Protocol):
    """The part of a connection that an operation needs."""

    def fetch(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one statement and return its rows."""
        ...

    def execute_write(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Run one statement that changes rows."""
        ...


class SqliteStore(SqlStore):
    """Keeps everything in one file; a claim is on the disk before its tool starts.

    The threads of a process write together, one of them for all; processes wait for each other. The file may
    be your own database: then the ledger's tables stand next to yours, and `settle_on` completes an effect in
    your own transaction. Never use two SQLite libraries on one file in one process (the `sqlite3` module has
    another one than `apsw`): they destroy it. If you open the file with `sqlite3`, let the store use that as
    well: `sqlite:///app.db?library=sqlite3`.

    Args:
        url: `sqlite:///relative.db` or `sqlite:////absolute/path.db`; `?library=sqlite3` at its end selects the
            standard library's SQLite instead of that of `apsw`, which is newer and faster.
        create: True creates missing tables, and the file if it is missing.
        limit: seconds to wait for other processes before a call is refused.
        clock: returns the wall-clock second; for `prune`.

    Attributes:
        ledger_id: id of the ledger, created with its tables.

    Raises:
        StoreError: the file cannot be used, or is not (or no longer) the ledger it was; the message says what to do.
        MissingExtraError: a key to seal with is set, but `cryptography` is not installed.
    """

    def __init__(
        self, url: str, *, create: bool = False, limit: float = 10.0, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(seal_from_environment())
        self._clock = clock
        place = _parse_url(url, limit)
        self._place = place
        self._identity = open_ledger(place, create=create)
        self.ledger_id = self._identity.ledger_id
        self._reader = SqliteReader(SqliteConnection(place, self._identity, only_reads=True))
        self._notes = WriterCache(self._seal)
        self._writer = SqliteWriter(SqliteConnection(place, self._identity), limit, f"pokayoke {Path(place.path).name}")
        # Also at the end of the interpreter: waiting jobs are written, and no thread hangs.
        weakref.finalize(self, _close_both, self._writer, self._reader)

    # -- operations ------------------------------------------------------------------------------

    def run(self, operation: Operation[T]) -> T:
        """Carry out an operation in the writer's next transaction."""
        return self._writer.run_work(self._build_cached_work(operation))

    async def arun(self, operation: Operation[T]) -> T:
        """`run` without blocking the event loop."""
        return await self._writer.arun_work(self._build_cached_work(operation))

    def settle_on(self, conn: Any, settlement: Settlement) -> bool:
        """`settle` inside a transaction of the user's own connection to the ledger's file.

        The connection belongs to the store's SQLite library, or is SQLAlchemy's around one. Begin it with
        `BEGIN IMMEDIATE`. Before you commit, do not call other methods of the store or start another guarded
        write: they would wait for your transaction.

        Raises:
            StoreError: the connection is of another kind or in no transaction, or the ledger is locked.
        """
        guest = UserTransaction(conn, self._place, self._identity)
        try:
            return self._build_work(settle_operation(settlement))(guest).accepted
        except Exception as error:
            raise StoreError(error_message(error, self._place)) from error

    def close(self) -> None:
        """Finish waiting jobs, then close the file."""
        _close_both(self._writer, self._reader)

    def prune(self, before: float, *, by: str, now: float) -> int:
        """Delete what was settled, answered or left idle before a wall-clock second, in small transactions."""
        gone = 0

        def prune_chunk(connection: SqliteConnection) -> int:
            found = _execute_and_count(connection, queries.prune_records(before, SQLITE))
            connection.execute_write(*queries.audit_pruned(before, found, by=by, now=now))
            return found

        while True:
            some = self._writer.run_work(prune_chunk)
            gone += some
            if some < queries.CHUNK:
                break
        rest = queries.prune_rest(before, now=now)
        self._writer.run_work(lambda connection: _execute_all(connection, rest))
        counters, runs = map(self._fetch_rows, queries.select_run_counters(before))
        left = queries.prune_counters(before, counters, runs)
        self._writer.run_work(lambda connection: _execute_all(connection, left))
        return gone

    # -- parts -----------------------------------------------------------------------------------

    def _fetch_rows(self, statement: Statement) -> Sequence[Row]:
        return self._reader.fetch(statement)

    def _build_cached_work(self, operation: Operation[T]) -> Callable[[SqliteConnection], T]:
        notes, seal, clock = self._notes, self._seal, self._clock

        def apply_operation(connection: SqliteConnection) -> T:
            books = notes.read_rows(connection, operation.need)
            changes, result = operation.decide(books)
            for statement in statements.write_statements(changes, books, seal, clock()):
                connection.execute_write(*statement)
            notes.remember_writes(changes)
            return result

        return apply_operation

    def _build_work(self, operation: Operation[T]) -> Callable[[StatementExecutor], T]:
        seal, clock = self._seal, self._clock

        def apply_operation(tables: StatementExecutor) -> T:
            found = [tables.fetch(*statement) for statement in statements.read_statements(operation.need)]
            books = statements.parse_rows(operation.need, found, seal)
            changes, result = operation.decide(books)
            for statement in statements.write_statements(changes, books, seal, clock()):
                tables.execute_write(*statement)
            return result

        return apply_operation


def _execute_and_count(connection: SqliteConnection, statement: Statement) -> int:
    before = connection.count_changes()
    connection.execute_write(*statement)
    connection.mark_stale()
    return connection.count_changes() - before


def _execute_all(connection: SqliteConnection, statements: Sequence[Statement]) -> None:
    for statement in statements:
        connection.execute_write(*statement)
    connection.mark_stale()


def _close_both(writer: SqliteWriter, reader: SqliteReader) -> None:
    writer.close()
    reader.close()


def _parse_url(url: str, limit: float) -> SqliteLocation:
    """Return the location that a URL names.

    Raises:
        StoreError: it names no file, or an unknown option.
    """
    path, _, options = url.removeprefix(PREFIX).partition("?")
    if not url.startswith(PREFIX) or not path or path.startswith(":"):
        raise StoreError(
            f"{url!r} names no file: use sqlite:///relative.db or sqlite:////absolute/path.db (store=None is memory)"
        )
    option, _, name = options.partition("=")
    if option not in ("", "library"):
        raise StoreError(f"{url!r} has an unknown option {option!r}: the only one is ?library=apsw or ?library=sqlite3")
    # The process may change its folder later; the ledger stays the same.
    return SqliteLocation(url, os.path.abspath(path), limit, load_library(name or "apsw"))  # noqa: PTH100 - Path.absolute() keeps `..`
