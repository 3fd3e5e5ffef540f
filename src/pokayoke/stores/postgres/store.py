"""The shared store: PostgreSQL through psycopg 3, for threads, event loops and processes on many machines.

In: operations and queries.
Out: rows as values of the core, or a `StoreError` within a bounded time.
Never: a lock or a setting that outlasts its transaction.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from pokayoke.errors import MissingExtraError, StoreError

try:
    import psycopg
except ImportError as missing:
    raise MissingExtraError("psycopg", "postgres") from missing

from pokayoke.core.ledger.records import Settlement
from pokayoke.stores.encryption import Seal, seal_from_environment
from pokayoke.stores.operations import Operation
from pokayoke.stores.postgres import user_transaction as guest
from pokayoke.stores.postgres.exchange import Row
from pokayoke.stores.postgres.expected_rows import ExpectedRows
from pokayoke.stores.postgres.pool import AsyncConnection, Connection, ProcessPools
from pokayoke.stores.postgres.transaction import (
    AcquireConnection,
    SleepSeconds,
    Transaction,
    WriteAtOnce,
    as_transaction,
    execute,
    read_transaction,
)
from pokayoke.stores.postgres.url import parse_url
from pokayoke.stores.sql import migrations, queries
from pokayoke.stores.sql.dialect import POSTGRES, Statement
from pokayoke.stores.sql.statements import MIGRATION, AdvisoryLock
from pokayoke.stores.sql.store import SqlStore

T = TypeVar("T")
_LEAST_SERVER = 130_000
_ENCODINGS = ("UTF8", "SQL_ASCII")
"""Encodings that hold every text; the second one keeps bytes unchanged."""
_PROBE_SERVER = (
    "SELECT to_regclass('pokayoke_meta') IS NOT NULL, current_setting('server_version_num')::int, "
    "current_setting('server_encoding')"
)
_MAINTENANCE_SECONDS = 3_600.0
"""Seconds for one step of creating tables or of pruning, which no call waits for."""
_READ_SETTINGS = (
    "SELECT current_setting('fsync'), current_setting('full_page_writes'), "
    "current_setting('synchronous_standby_names') <> '', (SELECT count(*) FROM pg_stat_replication), "
    "current_setting('server_version_num')::int"
)


def _maintenance_transaction(
    first: Sequence[Statement],
    decide: Callable[[Sequence[Sequence[Row]]], tuple[Sequence[Statement], T]],
    *locks: AdvisoryLock,
) -> Transaction[T]:
    return Transaction(locks, first, decide, changes=True, patience=_MAINTENANCE_SECONDS)


class PostgresStore(SqlStore):
    """Keeps everything in one PostgreSQL database that any number of processes share.

    An operation is one transaction under advisory locks: of one round trip if this process knows what it will find,
    else of two. It takes at most `act_timeout` seconds, and as long again if the answer to its COMMIT was lost.
    Nothing is held between operations, so the store works behind a transaction pooler.

    Args:
        url: `postgresql://user@host:5432/database`; see `postgres.url.parse_url` for its parameters.
        create: True creates missing tables and migrates older ones.
        seal: seals stored values; None for the keys of the environment.

    Attributes:
        ledger_id: id of the ledger, created with its tables.

    Raises:
        MissingExtraError: psycopg is not installed (when this module is imported).
        StoreError: the URL cannot be read, the server cannot be reached or is older than PostgreSQL 13, the
            database cannot hold every text, or its tables are missing, older or newer than this version knows.
    """

    def __init__(self, url: str, *, create: bool = False, seal: Seal | None = None) -> None:
        """Connect and check the tables."""
        self._at = parse_url(url)
        self._links = ProcessPools(self._at)
        super().__init__(seal_from_environment() if seal is None else seal)
        try:
            found = self._open_ledger(create=create)
        except BaseException:
            self._links.close()
            raise
        self.ledger_id, self._known = found.ledger_id, ExpectedRows(found)

    def run(self, operation: Operation[T]) -> T:
        """Carry out an operation. Raises `StoreError` within a bounded time if the server does not answer."""
        return self._run_transaction(self._as_transaction(operation))

    async def arun(self, operation: Operation[T]) -> T:
        """`run` on a connection of the running event loop."""
        return await self._arun_transaction(self._as_transaction(operation))

    def _as_transaction(self, operation: Operation[T]) -> Transaction[T]:
        return as_transaction(operation, self._seal, time.time, self.ledger_id, self._known)

    def settle_on(self, conn: Any, settlement: Settlement) -> bool:
        """`settle` inside a transaction of the user's own connection. Returns whether it was accepted.

        Args:
            conn: `psycopg.Connection` or `sqlalchemy.Connection` to the database of this store.
            settlement: how the claim ended.

        Raises:
            StoreError: the connection is of another kind, commits by itself, or leads to another ledger. Roll back.
        """
        return guest.settle_on(conn, guest.settlement_steps(settlement, self.ledger_id, self._seal, time.time()))

    async def asettle_on(self, conn: Any, settlement: Settlement) -> bool:
        """`settle_on` with `psycopg.AsyncConnection` or SQLAlchemy's `AsyncConnection`."""
        return await guest.asettle_on(conn, guest.settlement_steps(settlement, self.ledger_id, self._seal, time.time()))

    def prune(self, before: float, *, by: str, now: float) -> int:
        """Delete what was settled, answered or left idle before a wall-clock second, in small transactions."""
        sql, values = queries.prune_records(before, POSTGRES)
        chunk = (f"WITH gone AS ({sql} RETURNING 1) SELECT count(*) FROM gone", values)  # noqa: S608 - words from the code only
        gone = 0

        def record_pruned(results: Sequence[Sequence[Row]]) -> tuple[Sequence[Statement], int]:
            found = int(results[0][0][0])
            return (queries.audit_pruned(before, found, by=by, now=now),), found

        while True:
            found = self._run_transaction(_maintenance_transaction((chunk,), record_pruned))
            gone += found
            if found < queries.CHUNK:
                break
        # One table at a time, so that operations that write to several tables cannot deadlock with this.
        for statement in queries.prune_rest(before, now=now):
            self._run_transaction(_maintenance_transaction((statement,), lambda _: ((), None)))
        counters, runs = map(self._fetch_rows, queries.select_run_counters(before))
        self._run_transaction(
            _maintenance_transaction((), lambda _: (queries.prune_counters(before, counters, runs), None))
        )
        return gone

    def weaknesses(self) -> tuple[str, ...]:
        """Return server settings that may lose a claim, one sentence each; empty if none does."""
        fsync, pages, synchronous, standbys, _ = self._fetch_rows((_READ_SETTINGS, ()))[0]
        found = [*super().weaknesses()]
        if fsync != "on":
            found.append("fsync is off: a power failure may lose claims, so an effect may happen twice; set fsync = on")
        if pages != "on":
            found.append("full_page_writes is off: a power failure may corrupt the ledger; set full_page_writes = on")
        if standbys and not synchronous:
            found.append(
                "the standbys are asynchronous: a failover loses the last claims, so an effect may happen twice; "
                "set synchronous_standby_names, or treat all that ran within the lag of a failover as in doubt"
            )
        return tuple(found)

    def close(self) -> None:
        """Close the connections; those in use when they are released. Operations then raise `StoreError`."""
        self._links.close()

    # -- the tables ------------------------------------------------------------------------------

    def _open_ledger(self, *, create: bool) -> migrations.LedgerMeta:
        ((present, version, encoding),) = self._fetch_rows((_PROBE_SERVER, ()))
        if version < _LEAST_SERVER:
            raise StoreError(
                f"PostgreSQL at {self._at.name} has version {version // 10_000}; 13 is the oldest that works"
            )
        if encoding not in _ENCODINGS:
            raise StoreError(
                f"the database at {self._at.name} is encoded in {encoding}, which cannot hold every text: make one "
                "with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
            )
        found = (
            migrations.parse_meta(self._fetch_rows((migrations.READ_META, ()))) if present else migrations.LedgerMeta()
        )
        migrations.refuse_newer(found)
        if found.version == migrations.latest_version():
            return found
        if create:
            return self._migrate_tables()
        if not found.ledger_id:
            raise StoreError(
                f"PostgreSQL at {self._at.name} holds no ledger: run `pokayoke ledger init --store URL` once "
                "(or open it with create=True)"
            )
        raise StoreError(
            f"the ledger at {self._at.name} has version {found.version}, "
            f"this pokayoke needs {migrations.latest_version()}: "
            "run `pokayoke ledger migrate --store URL`"
        )

    def _migrate_tables(self) -> migrations.LedgerMeta:
        """Migrate the tables in one transaction, behind a lock: of two processes the second finds it done."""
        new_id = uuid.uuid4().hex

        def decide_migration(results: Sequence[Sequence[Row]]) -> tuple[Sequence[Statement], migrations.LedgerMeta]:
            found = migrations.parse_meta(results[1])
            steps = migrations.migration_statements(found, POSTGRES, new_id)
            return steps, migrations.LedgerMeta(found.ledger_id or new_id, migrations.latest_version())

        first = ((migrations.CREATE_META, ()), (migrations.READ_META, ()))
        return self._run_transaction(_maintenance_transaction(first, decide_migration, AdvisoryLock(MIGRATION)))

    # -- threads and event loops -----------------------------------------------------------------

    def _fetch_rows(self, statement: Statement) -> Sequence[Row]:
        return self._run_transaction(read_transaction(statement))

    def _run_transaction(self, work: Transaction[T]) -> T:
        pool = self._links.pool_for_threads()
        course = execute(work, self._at, pool.server)
        link: Connection | None = None
        answer: Any = None
        failure: psycopg.Error | None = None
        try:
            while True:
                step = course.send(answer) if failure is None else course.throw(failure)
                answer = failure = None
                try:
                    if isinstance(step, AcquireConnection):
                        if link is not None:
                            pool.release_connection(link)
                            link = None
                        answer = link = pool.acquire_connection(step.until)
                    elif isinstance(step, WriteAtOnce):
                        link = pool.acquire_connection(step.until)
                        answer = link.execute_batch(step.batch)[-1]
                    elif isinstance(step, SleepSeconds):
                        time.sleep(step.seconds)
                    else:
                        assert link is not None, "a course takes a connection before it sends"
                        answer = link.execute_batch(step.statements)
                except psycopg.Error as error:
                    failure = error
        except StopIteration as end:
            return cast("T", end.value)
        finally:
            if link is not None:
                pool.release_connection(link)

    async def _arun_transaction(self, work: Transaction[T]) -> T:
        pool = self._links.pool_for_loop()
        course = execute(work, self._at, pool.server)
        link: AsyncConnection | None = None
        answer: Any = None
        failure: psycopg.Error | None = None
        try:
            while True:
                step = course.send(answer) if failure is None else course.throw(failure)
                answer = failure = None
                try:
                    if isinstance(step, AcquireConnection):
                        if link is not None:
                            pool.release_connection(link)
                            link = None
                        answer = link = await pool.acquire_connection(step.until)
                    elif isinstance(step, WriteAtOnce):
                        answer = await pool.write_at_once(step.batch, step.until)
                    elif isinstance(step, SleepSeconds):
                        await asyncio.sleep(step.seconds)
                    else:
                        assert link is not None, "a course takes a connection before it sends"
                        answer = await link.execute_batch(step.statements)
                except psycopg.Error as error:
                    failure = error
        except StopIteration as end:
            return cast("T", end.value)
        finally:
            if link is not None:
                pool.release_connection(link)
