"""One transaction on PostgreSQL as a generator without I/O: what is sent when, and what a lost answer means.

The generator yields what it needs (a connection, statements, a pause) and receives the result, so threads and
event loops share it. Where it is known what an operation will find (`expected_rows`), it is one exchange:

    the operation decides        settings and locks; a write that depends on the locks and on what was expected

If a lock is taken, something else is there or nothing can be expected, it is two:

    BEGIN; settings and locks; reads        then the operation decides        writes; COMMIT

Each statement has its own snapshot that begins after the locks are held (READ COMMITTED), so an operation sees
everything that was committed before its turn. After a lost answer to COMMIT the server is asked: it knows the
status of a transaction by its number. If it does not (another server took over), the operation runs again and
recognises its own work; so it does after a lost answer to a single exchange, which only writes records.

In: operations, and the answers to the steps.
Out: steps, then the result.
Never: I/O, or a commit that is reported as failed without asking the server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
import psycopg

from pokayoke.errors import StoreError
from pokayoke.stores.encryption import Seal
from pokayoke.stores.operations import Operation
from pokayoke.stores.postgres.exchange import PIPELINE, DeadlineExceeded, Row
from pokayoke.stores.postgres.expected_rows import LOCKED, ExpectedRows
from pokayoke.stores.postgres.pool import AsyncConnection, Connection, ConnectionUnavailable, ServerFacts
from pokayoke.stores.postgres.url import PostgresLocation
from pokayoke.stores.sql import migrations, statements
from pokayoke.stores.sql.dialect import Statement
from pokayoke.stores.sql.statements import MIGRATION, AdvisoryLock

T = TypeVar("T")


class AcquireConnection(msgspec.Struct, frozen=True, gc=False):
    """Provide a connection; the one before is released.

    Args:
        until: `time.monotonic()` second of the deadline.
    """

    until: float


class SendStatements(msgspec.Struct, frozen=True, gc=False):
    """Run statements in one round trip and return the rows of each.

    Args:
        statements: in order.
    """

    statements: Sequence[Statement]


class WriteAtOnce(msgspec.Struct, frozen=True, gc=False):
    """Run two statements in one round trip, on any connection, and return the rows of the second one.

    The server may have carried out other such pairs in the same transaction. If any of them fails, none is committed.

    Args:
        batch: settings and locks; then a write that depends on a condition.
        until: `time.monotonic()` second of the deadline.
    """

    batch: tuple[Statement, Statement]
    until: float


class SleepSeconds(msgspec.Struct, frozen=True, gc=False):
    """Pause for some seconds."""

    seconds: float


TransactionStep = AcquireConnection | SendStatements | WriteAtOnce | SleepSeconds
TransactionSteps = Generator[TransactionStep, Any, T]


def _foresee_nothing(until: float) -> None:
    del until


def _remember_nothing(writes: Sequence[Statement], stamp: str) -> None:
    del writes, stamp


class Transaction(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """The content of one transaction.

    Args:
        locks: locks to hold, in order.
        reads: the first statements.
        decide: turns their rows into further statements and the result.
        changes: True if the first statements already change something.
        patience: seconds it may take; None for the URL's `act_timeout`.
        foresee: for a wall-clock second of the server from which on nothing may be written, returns all in one
            statement, which returns a stamp if its condition holds; with the writes that it stands for, and the result.
            None if that cannot be foreseen.
        remember: takes the writes and their stamp, when they are committed.
    """

    locks: tuple[AdvisoryLock, ...]
    reads: Sequence[Statement]
    decide: Callable[[Sequence[Sequence[Row]]], tuple[Sequence[Statement], T]]
    changes: bool = False
    patience: float | None = None
    foresee: Callable[[float], tuple[Statement, Sequence[Statement], T] | None] = _foresee_nothing
    remember: Callable[[Sequence[Statement], str], None] = _remember_nothing


class _CommitAnswerLost(Exception):  # noqa: N818 - a state, which never leaves this module
    """The answer to a COMMIT was lost.

    Attributes:
        mark: number of the transaction, and start time of its server; None if only a repetition can tell.
        result: result of the operation if it was committed.
    """

    def __init__(self, mark: Row | None = None, result: Any = None) -> None:
        super().__init__(mark)
        self.mark, self.result = mark, result


BEGIN: Final[Statement] = ("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", ())
COMMIT: Final[Statement] = ("COMMIT", ())
ROLLBACK: Final[Statement] = ("ROLLBACK", ())

# Behind a pooler a session is shared, so settings hold for the transaction. The session's own synchronous_commit
# is raised to a durable one, never lowered.
_SETTINGS: Final = (
    "set_config('lock_timeout', ?, true), set_config('statement_timeout', ?, true), set_config('synchronous_commit', "
    "CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)"
)
_IDLE_SETTING: Final = "set_config('idle_in_transaction_session_timeout', ?, true)"
_READ_TRANSACTION_ID: Final = (
    "pg_current_xact_id()::text, pg_postmaster_start_time()::text, pg_backend_pid(), "
    "extract(epoch FROM clock_timestamp())::float8"
)
_READ_COMMIT_STATUS: Final = (
    "SELECT CASE WHEN pg_postmaster_start_time()::text = ? THEN pg_xact_status(?::text::xid8) END"
)
_LOCK: Final = {False: "pg_advisory_xact_lock(?)", True: "pg_advisory_xact_lock_shared(?)"}
_TRY_LOCK: Final = {False: "pg_try_advisory_xact_lock(?)", True: "pg_try_advisory_xact_lock_shared(?)"}

_TRIES: Final = 4
_PAUSE: Final = 0.05
_XIDS: Final = 2**32
"""A row holds the number of its transaction without the part that says how often numbers have begun again."""
_SESSION_ENDED = ("57P01", "57P02", "57P03", "57P05", "25P03", "08")
"""The server has ended the session, or never had it."""
_ROLLED_BACK = ("40P01", "40001")
"""The server has rolled this transaction back in favour of another one."""
_UNPREPARED = ("26000", "42P05")
"""A pooler has mixed up the prepared statements of its clients, before the act could tell that there is one."""


def lock_statement(locks: Sequence[AdvisoryLock]) -> Statement:
    """Return the statement that takes locks in order and holds them until the transaction ends."""
    return "SELECT " + _lock_calls(tuple(lock.shared for lock in locks)), tuple(lock.lock_key for lock in locks)


@lru_cache(maxsize=64)
def _lock_calls(shared: tuple[bool, ...]) -> str:
    return ", ".join(_LOCK[one] for one in shared)


def setup_statement(locks: Sequence[AdvisoryLock], patience: float) -> Statement:
    """Return the first statement of an operation: the transaction's number, settings, then the locks in order."""
    sql = f"SELECT {_READ_TRANSACTION_ID}, {_SETTINGS}, {_IDLE_SETTING}" + (
        ", " + _lock_calls(tuple([lock.shared for lock in locks])) if locks else ""
    )
    limit = _milliseconds(patience)
    return sql, (limit, limit, limit, *[lock.lock_key for lock in locks])


def setup_at_once(locks: Sequence[AdvisoryLock], patience: float) -> Statement:
    """Return the first statement of a single exchange: settings, and the locks if they are free."""
    limit = _milliseconds(patience)
    return _setup_at_once_sql(tuple([lock.shared for lock in locks])), (
        limit, limit, *[lock.lock_key for lock in locks]
    )  # fmt: skip


@lru_cache(maxsize=64)
def _setup_at_once_sql(shared: tuple[bool, ...]) -> str:
    taken = " AND ".join(_TRY_LOCK[one] for one in shared)
    return f"SELECT {_SETTINGS}, set_config('{LOCKED}', ({taken})::text, true)"


def _milliseconds(seconds: float) -> str:
    return str(max(1, int(seconds * 1_000)))


def as_transaction(
    operation: Operation[T], seal: Seal, now: Callable[[], float], ledger_id: str, known: ExpectedRows
) -> Transaction[T]:
    """Return an operation as a transaction.

    The ledger's meta is read again each time, under the migration lock: the ledger may have been replaced while the
    store was open, or migrated to a version that this program does not know.
    """
    need = operation.need
    reads = statements.read_statements(need)

    def decide(results: Sequence[Sequence[Row]]) -> tuple[Sequence[Statement], T]:
        books = statements.parse_rows(need, results, seal)
        changes, result = operation.decide(books)
        return statements.write_statements(changes, books, seal, now()), result

    def check_and_decide(results: Sequence[Sequence[Row]]) -> tuple[Sequence[Statement], T]:
        check_ledger(results[0], ledger_id)
        known.remember_reads(reads, results[1:])
        return decide(results[1:])

    def foresee(until: float) -> tuple[Statement, Sequence[Statement], T] | None:
        expected = known.find_rows(need, reads)
        if expected is None:
            return None
        try:
            writes, result = decide(expected)
        except StoreError:  # which counts only if the server confirms it
            return None
        statement = known.write_if_expected(writes, reads, expected, until)
        return None if statement is None else (statement, writes, result)

    locks = (AdvisoryLock(MIGRATION, shared=True), *statements.required_locks(need))
    return Transaction(
        locks,
        ((migrations.READ_META, ()), *reads),
        check_and_decide,
        foresee=foresee,
        remember=known.remember_writes,
    )


def check_ledger(rows: Sequence[Row], ledger_id: str) -> None:
    """Refuse a ledger that was replaced, or that is newer than this program.

    Args:
        rows: those of `READ_META`.
        ledger_id: id of the opened ledger.

    Raises:
        StoreError: it is another ledger, or a newer one.
    """
    found = migrations.parse_meta(rows)
    if found.ledger_id != ledger_id:
        raise StoreError(
            f"the database holds another ledger ({found.ledger_id or 'none'}) than the one that was opened "
            f"({ledger_id}): it was replaced; nothing is written. Put the right one back and start this process again"
        )
    migrations.refuse_newer(found)


def read_transaction(statement: Statement) -> Transaction[Sequence[Row]]:
    """Return one statement that changes nothing as a transaction."""
    return Transaction((), (statement,), lambda results: ((), results[0]))


def execute(work: Transaction[T], at: PostgresLocation, server: ServerFacts) -> TransactionSteps[T]:
    """Run a transaction, and run it again where that is safe and helps.

    It takes at most `patience` seconds, and as long again if the answer to a COMMIT was lost.

    Args:
        work: the transaction.
        at: the database.
        server: what is known of it.

    Raises:
        StoreError: nothing was changed, or (as the message says) it is unknown and a repeat recognises its own work.
    """
    patience = at.act_timeout if work.patience is None else work.patience
    ends = time.monotonic() + patience
    lost: _CommitAnswerLost | None = None
    for tries in range(1_000_000):
        try:
            if lost is not None and lost.mark is not None and (yield from _has_committed(lost.mark, ends)):
                return cast("T", lost.result)
            return (yield from _attempt_transaction(work, server, patience, ends, foresees=not tries))
        except _CommitAnswerLost as loss:
            if loss.mark is not None and (lost is None or lost.mark is None):
                ends = time.monotonic() + patience
            lost, error = loss, loss.__cause__
        except psycopg.Error as failure:
            error = failure
            if _sqlstate(failure) in _UNPREPARED:
                server.is_pooled = True  # nothing is prepared from now on
            if lost is None and (
                isinstance(failure, ConnectionUnavailable) or tries >= _TRIES or not _is_retryable(failure)
            ):
                raise error_message(failure, at) from failure
        assert isinstance(error, psycopg.Error), "only the driver's failures come here"
        if time.monotonic() >= ends:
            raise error_message(error, at, unknown=lost is not None) from error
        if tries:
            yield SleepSeconds(_PAUSE)
    raise AssertionError("time is up before that")


def _attempt_transaction(
    work: Transaction[T], server: ServerFacts, patience: float, ends: float, *, foresees: bool
) -> TransactionSteps[T]:
    if foresees and server.clock is not None:
        # Half of the time, so that the other half is left to find out what became of it.
        until = (time.monotonic() + ends) / 2
        if foreseen := work.foresee(until + server.clock):
            statement, writes, result = foreseen
            stamp = yield from _attempt_at_once(WriteAtOnce((setup_at_once(work.locks, patience), statement), until))
            if stamp is not None:
                work.remember(writes, stamp)
                return result
    link: Connection | AsyncConnection = yield AcquireConnection(ends)
    results = yield SendStatements((BEGIN, setup_statement(work.locks, patience), *work.reads))
    number, start, backend, clock = results[1][0][:4]
    if PIPELINE:
        server.clock = clock - time.monotonic()
    if backend != link.info.backend_pid:  # prepared statements may belong to another client
        link.prepared, server.is_pooled = None, True
    try:
        writes, result = work.decide(results[2:])
    except Exception:
        yield SendStatements((ROLLBACK,))
        raise
    try:
        yield SendStatements((*writes, COMMIT))
    except psycopg.Error as error:
        if not _is_disconnected(error):
            raise
        if writes or work.changes:
            raise _CommitAnswerLost((start, number), result) from error
    work.remember(writes, str(int(number) % _XIDS))
    return result


def _attempt_at_once(step: WriteAtOnce) -> TransactionSteps[str | None]:
    """Carry out a write that depends on a condition. Returns its stamp, or None if nothing was written."""
    try:
        rows = yield step
    except psycopg.Error as error:
        if _is_disconnected(error):
            raise _CommitAnswerLost from error
        return None  # the failure may be another one's; if it is our own, it comes again
    return cast("str", rows[0][0]) if rows else None


def _has_committed(mark: Row, ends: float) -> TransactionSteps[bool]:
    """Return whether a transaction was committed. False: it was not, or the server does not know."""
    while True:
        yield AcquireConnection(ends)
        results = yield SendStatements(((_READ_COMMIT_STATUS, mark),))
        fate = results[0][0][0]
        if fate != "in progress":
            return bool(fate == "committed")
        if time.monotonic() >= ends:
            raise DeadlineExceeded("the server is still at work on the commit")
        yield SleepSeconds(_PAUSE)


def _sqlstate(error: psycopg.Error) -> str:
    return error.sqlstate or ""


def _is_disconnected(error: psycopg.Error) -> bool:
    """Whether the connection is lost: sent statements may have been carried out or not."""
    if isinstance(error, ConnectionUnavailable):
        return False
    return _sqlstate(error).startswith(_SESSION_ENDED) or (
        isinstance(error, psycopg.OperationalError) and not _sqlstate(error)
    )


def _is_retryable(error: psycopg.Error) -> bool:
    """Whether an attempt that has changed nothing may succeed the next time."""
    return _is_disconnected(error) or _sqlstate(error) in (*_ROLLED_BACK, *_UNPREPARED)


_REASONS: Final[dict[str, str]] = {
    "42P01": "its tables are missing: run `pokayoke ledger init --store URL` once (or open it with create=True)",
    "3D000": "there is no such database: create it, then run `pokayoke ledger init --store URL`",
    "25006": "it only takes reads (a standby?): name the primary in the URL",
    "55P03": "another operation held a lock for too long",
    "57014": "a statement took too long",
    "53100": "its disk is full",
    "42501": "the user of the URL lacks a right",
}


def error_message(error: psycopg.Error, at: PostgresLocation, *, unknown: bool = False) -> StoreError:
    """Return the error for a failure. Its text holds no value: those stand in messages of classes 22 and 23.

    Args:
        error: of the driver.
        at: the database.
        unknown: True if something may have been committed.
    """
    state = _sqlstate(error)
    if isinstance(error, DeadlineExceeded):
        why = f"no answer within {at.act_timeout:g} s"
    elif state in _REASONS:
        why = _REASONS[state]
    else:
        said = error.diag.message_primary if state else str(error)
        why = f"{type(error).__name__} {state}".strip()
        if said and not state.startswith(("22", "23")):
            why += f": {' '.join(said.split())[:300]}"
    after = "; it is unknown whether the last commit was carried out: try again" if unknown else "; nothing was written"
    return StoreError(f"PostgreSQL at {at.name}: {why}{after}")
