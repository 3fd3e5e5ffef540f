"""The ledger in an SQLite file: durable on one machine, shared by its processes."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pokayoke.core.ledger.transitions import Settlement
from pokayoke.errors import StoreError
from pokayoke.stores.encryption import from_environment
from pokayoke.stores.operations import Act, settling
from pokayoke.stores.sql import queries, statements
from pokayoke.stores.sql.dialect import SQLITE, Statement
from pokayoke.stores.sql.rows import Row
from pokayoke.stores.sql.store import SqlStore
from pokayoke.stores.sqlite.cache import Notes
from pokayoke.stores.sqlite.connection import Connection, Place, explained
from pokayoke.stores.sqlite.install import open_ledger
from pokayoke.stores.sqlite.library import library
from pokayoke.stores.sqlite.reader import Reader
from pokayoke.stores.sqlite.user_transaction import Guest
from pokayoke.stores.sqlite.writer import Writer

T = TypeVar("T")
PREFIX = "sqlite:///"


class Tables(Protocol):
    """What an act needs of a connection."""

    def fetch(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Carry out one statement and return its rows."""
        ...

    def put(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Carry out one statement that changes rows."""
        ...


class SqliteStore(SqlStore):
    """Keeps everything in one file; a claim is on the disk before its tool starts.

    The threads of a process write together, one of them for all; processes wait for each other. The
    file may be your own database: then the ledger's tables stand beside yours, and `settle_on`
    completes an effect in your own transaction. Never use two SQLite libraries on one file in one
    process (the `sqlite3` module has another one than `apsw`): they destroy it. If you open the file
    with `sqlite3`, let the store use that as well: `sqlite:///app.db?library=sqlite3`.

    Args:
        url: `sqlite:///relative.db` or `sqlite:////absolute/path.db`; `?library=sqlite3` at its end
            takes the standard library's SQLite instead of the current one of `apsw`, which is faster.
        create: True adds the tables where they are missing, and creates the file if it is.
        limit: seconds to wait for other processes before a call is refused.
        clock: returns the wall-clock second; for `prune`.

    Attributes:
        ledger_id: which ledger this is; made once, when the tables were.

    Raises:
        StoreError: the file cannot be used, or is not (or no longer) the ledger it was; says what to do.
        MissingExtraError: there is a key to seal with, but `cryptography` is not installed.
    """

    def __init__(
        self, url: str, *, create: bool = False, limit: float = 10.0, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(from_environment())
        self._clock = clock
        place = _parsed(url, limit)
        self._place = place
        self._identity = open_ledger(place, create=create)
        self.ledger_id = self._identity.ledger_id
        self._reader = Reader(Connection(place, self._identity))
        self._notes = Notes(self._seal)
        self._writer = Writer(Connection(place, self._identity), limit, f"pokayoke {Path(place.path).name}")
        # Also at the end of the interpreter: what waits is written, and nobody hangs.
        weakref.finalize(self, _closed, self._writer, self._reader)

    # -- acts ------------------------------------------------------------------------------------

    def run(self, act: Act[T]) -> T:
        """Carry out an act in the writer's next transaction."""
        return self._writer.do(self._remembered(act))

    async def arun(self, act: Act[T]) -> T:
        """`run` without blocking the event loop."""
        return await self._writer.ado(self._remembered(act))

    def settle_on(self, conn: Any, settlement: Settlement) -> bool:
        """`settle` inside a transaction of the user's own connection to the ledger's file.

        The connection is one of the store's SQLite library, or SQLAlchemy's around one.
        Do not call other methods of the store, or start another guarded write, before you commit: they
        wait for your transaction. Begin it with `BEGIN IMMEDIATE`.

        Raises:
            StoreError: it is no such connection, or in no transaction, or the ledger is locked.
        """
        guest = Guest(conn, self._place, self._identity)
        try:
            return self._work(settling(settlement))(guest).accepted
        except Exception as error:
            raise StoreError(explained(error, self._place)) from error

    def close(self) -> None:
        """Finish what waits, then let go of the file."""
        _closed(self._writer, self._reader)

    def prune(self, before: float, *, by: str, now: float) -> int:
        """Forget what was settled, answered or left idle before a wall-clock second, in small transactions."""
        gone = 0

        def chunk(connection: Connection) -> int:
            found = _changed(connection, queries.prune_records(before, SQLITE))
            connection.put(*queries.pruned(before, found, by=by, now=now))
            return found

        while True:
            some = self._writer.do(chunk)
            gone += some
            if some < queries.CHUNK:
                break
        rest = queries.prune_rest(before, now=now)
        self._writer.do(lambda connection: _all(connection, rest))
        counters, runs = map(self._read, queries.counters_of_runs(before))
        left = queries.prune_counters(before, counters, runs)
        self._writer.do(lambda connection: _all(connection, left))
        return gone

    # -- parts -----------------------------------------------------------------------------------

    def _read(self, statement: Statement) -> Sequence[Row]:
        return self._reader.fetch(statement)

    def _remembered(self, act: Act[T]) -> Callable[[Connection], T]:
        notes, seal, clock = self._notes, self._seal, self._clock

        def work(connection: Connection) -> T:
            books = notes.books(connection, act.need)
            changes, result = act.decide(books)
            for statement in statements.writes(changes, books, seal, clock()):
                connection.put(*statement)
            notes.keep(changes)
            return result

        return work

    def _work(self, act: Act[T]) -> Callable[[Tables], T]:
        seal, clock = self._seal, self._clock

        def work(tables: Tables) -> T:
            found = [tables.fetch(*statement) for statement in statements.reads(act.need)]
            books = statements.books(act.need, found, seal)
            changes, result = act.decide(books)
            for statement in statements.writes(changes, books, seal, clock()):
                tables.put(*statement)
            return result

        return work


def _changed(connection: Connection, statement: Statement) -> int:
    before = connection.changes()
    connection.put(*statement)
    connection.forget()
    return connection.changes() - before


def _all(connection: Connection, statements: Sequence[Statement]) -> None:
    for statement in statements:
        connection.put(*statement)
    connection.forget()


def _closed(writer: Writer, reader: Reader) -> None:
    writer.close()
    reader.close()


def _parsed(url: str, limit: float) -> Place:
    """Return where a URL leads.

    Raises:
        StoreError: it names no file, or an option that is unknown.
    """
    path, _, options = url.removeprefix(PREFIX).partition("?")
    if not url.startswith(PREFIX) or not path or path.startswith(":"):
        raise StoreError(
            f"{url!r} names no file: use sqlite:///relative.db or sqlite:////absolute/path.db (store=None is memory)"
        )
    option, _, name = options.partition("=")
    if option not in ("", "library"):
        raise StoreError(f"{url!r} has an unknown option {option!r}: the only one is ?library=apsw or ?library=sqlite3")
    # Later the process may change its folder, but not the ledger.
    return Place(url, os.path.abspath(path), limit, library(name or "apsw"))  # noqa: PTH100 - Path.absolute() keeps `..`
