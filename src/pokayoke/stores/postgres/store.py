"""The shared store: PostgreSQL through psycopg 3, for threads, event loops and processes on many machines."""

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

from pokayoke.core.ledger.transitions import Settlement
from pokayoke.stores.encryption import Seal, from_environment
from pokayoke.stores.operations import Act
from pokayoke.stores.postgres import user_transaction as guest
from pokayoke.stores.postgres.pool import AsyncLink, Link, Links, Row
from pokayoke.stores.postgres.transaction import Course, Pause, Take, Work, carried_out, reading, work_of
from pokayoke.stores.postgres.url import place
from pokayoke.stores.sql import migrations as schema
from pokayoke.stores.sql import queries
from pokayoke.stores.sql.dialect import POSTGRES, Statement
from pokayoke.stores.sql.statements import MIGRATION, Lock
from pokayoke.stores.sql.store import SqlStore

T = TypeVar("T")
_LEAST_SERVER = 130_000
_ENCODINGS = ("UTF8", "SQL_ASCII")
"""Of a database that takes every text; the second one keeps bytes as they come."""
_GREET = (
    "SELECT to_regclass('pokayoke_meta') IS NOT NULL, current_setting('server_version_num')::int, "
    "current_setting('server_encoding')"
)
_UPKEEP_SECONDS = 3_600.0
"""How long one step of making tables or of forgetting may take; nobody waits for it."""
_ASK = (
    "SELECT current_setting('fsync'), current_setting('full_page_writes'), "
    "current_setting('synchronous_standby_names') <> '', (SELECT count(*) FROM pg_stat_replication), "
    "current_setting('server_version_num')::int"
)


def _upkeep(
    first: Sequence[Statement],
    decide: Callable[[Sequence[Sequence[Row]]], tuple[Sequence[Statement], T]],
    *locks: Lock,
) -> Work[T]:
    return Work(locks, first, decide, changes=True, patience=_UPKEEP_SECONDS)


class PostgresStore(SqlStore):
    """Keeps everything in one PostgreSQL database that any number of processes share.

    One act is one transaction of two round trips under advisory locks; it takes `act_timeout` seconds
    at most, and as long again if the answer to its commit was lost. Nothing is held between acts, so a
    transaction pooler may stand between.

    Args:
        url: `postgresql://user@host:5432/database`; see `postgres_place.place` for its parameters.
        create: True makes missing tables and brings older ones up to date.
        seal: seals what holds values; None for the keys of the environment.

    Attributes:
        ledger_id: which ledger this is; made once, when the tables were.

    Raises:
        MissingExtraError: psycopg is not installed (when this module is imported).
        StoreError: the URL cannot be read, the server cannot be reached or is older than PostgreSQL 13, the
            database cannot hold every text, the tables are missing, older or newer than this version of pokayoke knows.
    """

    def __init__(self, url: str, *, create: bool = False, seal: Seal | None = None) -> None:
        """Connect, and check whose tables are there."""
        self._at = place(url)
        self._links = Links(self._at)
        super().__init__(from_environment() if seal is None else seal)
        try:
            self.ledger_id = self._opened(create=create).ledger_id
        except BaseException:
            self._links.close()
            raise

    def run(self, act: Act[T]) -> T:
        """Carry out an act. Raises `StoreError` within a bounded time if the server does not answer."""
        return self._walk(carried_out(work_of(act, self._seal, time.time, self.ledger_id), self._at))

    async def arun(self, act: Act[T]) -> T:
        """`run` on a connection of the event loop that runs now."""
        return await self._awalk(carried_out(work_of(act, self._seal, time.time, self.ledger_id), self._at))

    def settle_on(self, conn: Any, settlement: Settlement) -> bool:
        """`settle` inside a transaction of the user's own connection. Returns whether it was accepted.

        Args:
            conn: `psycopg.Connection` or `sqlalchemy.Connection` to the database of this store.
            settlement: what became of the claim.

        Raises:
            StoreError: the connection is another one, commits by itself, or leads to another ledger. Roll back.
        """
        return guest.settle_on(conn, guest.visit(settlement, self.ledger_id, self._seal, time.time()))

    async def asettle_on(self, conn: Any, settlement: Settlement) -> bool:
        """`settle_on` with `psycopg.AsyncConnection` or SQLAlchemy's `AsyncConnection`."""
        return await guest.asettle_on(conn, guest.visit(settlement, self.ledger_id, self._seal, time.time()))

    def prune(self, before: float, *, by: str, now: float) -> int:
        """Forget what was settled, answered or left idle before a wall-clock second, in small transactions."""
        sql, values = queries.prune_records(before, POSTGRES)
        chunk = (f"WITH gone AS ({sql} RETURNING 1) SELECT count(*) FROM gone", values)  # noqa: S608 - words from the code only
        gone = 0

        def told(results: Sequence[Sequence[Row]]) -> tuple[Sequence[Statement], int]:
            found = int(results[0][0][0])
            return (queries.pruned(before, found, by=by, now=now),), found

        while True:
            found = self._do(_upkeep((chunk,), told))
            gone += found
            if found < queries.CHUNK:
                break
        # One table at a time: acts that write to several of them never wait for this in a circle.
        for statement in queries.prune_rest(before, now=now):
            self._do(_upkeep((statement,), lambda _: ((), None)))
        counters, runs = map(self._read, queries.counters_of_runs(before))
        self._do(_upkeep((), lambda _: (queries.prune_counters(before, counters, runs), None)))
        return gone

    def weaknesses(self) -> tuple[str, ...]:
        """Return what of the server's settings may lose a claim, one sentence each; empty if nothing does."""
        fsync, pages, synchronous, standbys, _ = self._read((_ASK, ()))[0]
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
        """Close the connections; those in use when they come back. Acts after that raise `StoreError`."""
        self._links.close()

    # -- the tables ------------------------------------------------------------------------------

    def _opened(self, *, create: bool) -> schema.Meta:
        ((present, version, encoding),) = self._read((_GREET, ()))
        if version < _LEAST_SERVER:
            raise StoreError(
                f"PostgreSQL at {self._at.name} has version {version // 10_000}; 13 is the oldest that works"
            )
        if encoding not in _ENCODINGS:
            raise StoreError(
                f"the database at {self._at.name} is encoded in {encoding}, which cannot hold every text: make one "
                "with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
            )
        found = schema.meta(self._read((schema.READ_META, ()))) if present else schema.Meta()
        schema.refuse_newer(found)
        if found.version == schema.latest():
            return found
        if create:
            return self._migrated()
        if not found.ledger_id:
            raise StoreError(
                f"PostgreSQL at {self._at.name} holds no ledger: run `pokayoke ledger init --store URL` once "
                "(or open it with create=True)"
            )
        raise StoreError(
            f"the ledger at {self._at.name} has version {found.version}, this pokayoke needs {schema.latest()}: "
            "run `pokayoke ledger migrate --store URL`"
        )

    def _migrated(self) -> schema.Meta:
        """Bring the tables up to date, in one transaction and behind a lock: of two at once one finds it done."""
        new_id = uuid.uuid4().hex

        def decided(results: Sequence[Sequence[Row]]) -> tuple[Sequence[Statement], schema.Meta]:
            found = schema.meta(results[1])
            steps = schema.migrating(found, POSTGRES, new_id)
            return steps, schema.Meta(found.ledger_id or new_id, schema.latest())

        first = ((schema.CREATE_META, ()), (schema.READ_META, ()))
        return self._do(_upkeep(first, decided, Lock(MIGRATION)))

    # -- threads and event loops -----------------------------------------------------------------

    def _read(self, statement: Statement) -> Sequence[Row]:
        return self._do(reading(statement))

    def _do(self, work: Work[T]) -> T:
        return self._walk(carried_out(work, self._at))

    def _walk(self, course: Course[T]) -> T:
        shelf = self._links.shelf()
        link: Link | None = None
        answer: Any = None
        failure: psycopg.Error | None = None
        try:
            while True:
                step = course.send(answer) if failure is None else course.throw(failure)
                answer = failure = None
                try:
                    if isinstance(step, Take):
                        if link is not None:
                            shelf.give_back(link)
                            link = None
                        answer = link = shelf.take(step.until)
                    elif isinstance(step, Pause):
                        time.sleep(step.seconds)
                    else:
                        assert link is not None, "a course takes a connection before it sends"
                        answer = link.exchange(step.statements, more=step.more)
                except psycopg.Error as error:
                    failure = error
        except StopIteration as end:
            return cast("T", end.value)
        finally:
            if link is not None:
                shelf.give_back(link)

    async def _awalk(self, course: Course[T]) -> T:
        shelf = self._links.loop_shelf()
        link: AsyncLink | None = None
        answer: Any = None
        failure: psycopg.Error | None = None
        try:
            while True:
                step = course.send(answer) if failure is None else course.throw(failure)
                answer = failure = None
                try:
                    if isinstance(step, Take):
                        if link is not None:
                            shelf.give_back(link)
                            link = None
                        answer = link = await shelf.take(step.until)
                    elif isinstance(step, Pause):
                        await asyncio.sleep(step.seconds)
                    else:
                        assert link is not None, "a course takes a connection before it sends"
                        answer = await link.exchange(step.statements, more=step.more)
                except psycopg.Error as error:
                    failure = error
        except StopIteration as end:
            return cast("T", end.value)
        finally:
            if link is not None:
                shelf.give_back(link)
