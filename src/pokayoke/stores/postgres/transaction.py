"""The course of an act on PostgreSQL, without a connection: what is sent when, and what a lost answer means.

A generator says what it wants (a connection, statements, a pause) and is handed what came of it, so
threads and event loops walk the same way. One try is two round trips:

    BEGIN; settings and locks; reads        then the act decides        writes; COMMIT

Each read has a snapshot of its own that begins after the locks are held (READ COMMITTED), so an act
sees whatever was committed before it was its turn. An answer to COMMIT that is lost is asked for: the
server knows the fate of a transaction by its number. If it does not (another server took over), the
act is carried out again and recognises its own work.
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
from pokayoke.stores.postgres.pool import AsyncConnection, Connection, ConnectionUnavailable, DeadlineExceeded, Row
from pokayoke.stores.postgres.url import PostgresLocation
from pokayoke.stores.sql import migrations as schema
from pokayoke.stores.sql import statements
from pokayoke.stores.sql.dialect import POSTGRES, Statement
from pokayoke.stores.sql.statements import MIGRATION, AdvisoryLock

T = TypeVar("T")


class AcquireConnection(msgspec.Struct, frozen=True, gc=False):
    """Hand in a connection; the one before is done with.

    Args:
        until: `time.monotonic()` second at which it is no use any more.
    """

    until: float


class SendStatements(msgspec.Struct, frozen=True, gc=False):
    """Carry out statements in one round trip and hand in the rows of each.

    Args:
        statements: in order.
        more: True if the transaction goes on.
    """

    statements: Sequence[Statement]
    more: bool = False


class SleepSeconds(msgspec.Struct, frozen=True, gc=False):
    """Wait for some seconds."""

    seconds: float


TransactionStep = AcquireConnection | SendStatements | SleepSeconds
TransactionSteps = Generator[TransactionStep, Any, T]


class Transaction(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """What one transaction has to do.

    Args:
        locks: what nobody else may touch meanwhile, in order.
        reads: the first statements.
        decide: turns their rows into further statements and the result.
        changes: True if the first statements change something too.
        patience: seconds it may take; None for what the URL says.
    """

    locks: tuple[AdvisoryLock, ...]
    reads: Sequence[Statement]
    decide: Callable[[Sequence[Sequence[Row]]], tuple[Sequence[Statement], T]]
    changes: bool = False
    patience: float | None = None


class _CommitAnswerLost(Exception):  # noqa: N818 - says what happened, and never leaves this module
    """The answer to a COMMIT was lost.

    Attributes:
        mark: number of the transaction and start of the server that has it.
        result: what the act returns if it was committed.
    """

    def __init__(self, mark: Row, result: Any) -> None:
        super().__init__(mark)
        self.mark, self.result = mark, result


BEGIN: Final[Statement] = ("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", ())
COMMIT: Final[Statement] = ("COMMIT", ())
ROLLBACK: Final[Statement] = ("ROLLBACK", ())

# Behind a pooler a session is anybody's, so settings hold for the transaction. The session's own
# commit is raised to a durable one, never lowered.
_SETTINGS: Final = (
    "set_config('lock_timeout', %s, true), set_config('statement_timeout', %s, true), "
    "set_config('idle_in_transaction_session_timeout', %s, true), set_config('synchronous_commit', "
    "CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)"
)
_READ_TRANSACTION_ID: Final = "SELECT pg_current_xact_id()::text, pg_postmaster_start_time()::text, pg_backend_pid()"
_READ_COMMIT_STATUS: Final = "SELECT CASE WHEN pg_postmaster_start_time()::text = %s THEN pg_xact_status(%s::xid8) END"
_LOCK: Final = {False: "pg_advisory_xact_lock(%s)", True: "pg_advisory_xact_lock_shared(%s)"}

_TRIES: Final = 4
_PAUSE: Final = 0.05
_SESSION_ENDED = ("57P01", "57P02", "57P03", "57P05", "25P03", "08")
"""The server ends the session, or never had it."""
_ROLLED_BACK = ("40P01", "40001")
"""The server chose this transaction to make way for another one."""
_UNPREPARED = ("26000", "42P05")
"""A pooler mixes up the prepared statements of its clients."""


def to_postgres(found: Sequence[Statement]) -> list[Statement]:
    """Return statements in PostgreSQL's words."""
    return [(POSTGRES.with_placeholders(sql), values) for sql, values in found]


def lock_statement(locks: Sequence[AdvisoryLock]) -> Statement:
    """Return the statement that takes locks in order and holds them to the end of the transaction."""
    return "SELECT " + _lock_calls(tuple(lock.shared for lock in locks)), tuple(lock.lock_key for lock in locks)


@lru_cache(maxsize=64)
def _lock_calls(shared: tuple[bool, ...]) -> str:
    return ", ".join(_LOCK[one] for one in shared)


def setup_statement(locks: Sequence[AdvisoryLock], patience: float) -> Statement:
    """Return the statement that begins an act: the transaction's number, settings, then the locks in order."""
    limit = str(max(1, int(patience * 1_000)))
    sql = f"{_READ_TRANSACTION_ID}, {_SETTINGS}" + (
        ", " + _lock_calls(tuple(lock.shared for lock in locks)) if locks else ""
    )
    return sql, (limit, limit, limit, *(lock.lock_key for lock in locks))


def as_transaction(act: Operation[T], seal: Seal, now: Callable[[], float], ledger_id: str) -> Transaction[T]:
    """Return an act as the work of a transaction.

    What the ledger says of itself is read again each time, while nobody may migrate it: under a store that is open it
    may have been replaced, or brought to a version that this program does not know.
    """

    def decide_writes(results: Sequence[Sequence[Row]]) -> tuple[Sequence[Statement], T]:
        check_ledger(results[0], ledger_id)
        books = statements.parse_rows(act.need, results[1:], seal)
        changes, result = act.decide(books)
        return statements.write_statements(changes, books, seal, now()), result

    locks = (AdvisoryLock(MIGRATION, shared=True), *statements.required_locks(act.need))
    return Transaction(locks, ((schema.READ_META, ()), *statements.read_statements(act.need)), decide_writes)


def check_ledger(rows: Sequence[Row], ledger_id: str) -> None:
    """Refuse another ledger than the one that was opened, and one that this program does not know.

    Args:
        rows: those of `READ_META`.
        ledger_id: the one that was opened.

    Raises:
        StoreError: it is another one, or newer.
    """
    found = schema.parse_meta(rows)
    if found.ledger_id != ledger_id:
        raise StoreError(
            f"the database holds another ledger ({found.ledger_id or 'none'}) than the one that was opened "
            f"({ledger_id}): it was replaced; nothing is written. Put the right one back and start this process again"
        )
    schema.refuse_newer(found)


def read_transaction(statement: Statement) -> Transaction[Sequence[Row]]:
    """Return the work of one statement that changes nothing."""
    return Transaction((), (statement,), lambda results: ((), results[0]))


def execute(work: Transaction[T], at: PostgresLocation) -> TransactionSteps[T]:
    """Carry out work, again where that is safe and of use.

    It takes `patience` seconds at most, and as long again if the answer to a commit was lost.

    Raises:
        StoreError: nothing was changed, or (said so) nobody knows, and the act recognises itself next time.
    """
    patience = at.act_timeout if work.patience is None else work.patience
    ends = time.monotonic() + patience
    lost: _CommitAnswerLost | None = None
    for tries in range(1_000_000):
        try:
            if lost is not None and (yield from _has_committed(lost, ends)):
                return cast("T", lost.result)
            return (yield from _attempt_transaction(work, patience, ends))
        except _CommitAnswerLost as loss:
            if lost is None:
                ends = time.monotonic() + patience
            lost, error = loss, loss.__cause__
        except psycopg.Error as failure:
            error = failure
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


def _attempt_transaction(work: Transaction[T], patience: float, ends: float) -> TransactionSteps[T]:
    link: Connection | AsyncConnection = yield AcquireConnection(ends)
    results = yield SendStatements((BEGIN, setup_statement(work.locks, patience), *to_postgres(work.reads)), more=True)
    number, start, backend = results[1][0][:3]
    if backend != link.info.backend_pid:
        link.prepare_threshold = None  # a pooler stands between: what is prepared may be somebody else's
    try:
        writes, result = work.decide(results[2:])
    except Exception:
        yield SendStatements((ROLLBACK,))
        raise
    try:
        yield SendStatements((*to_postgres(writes), COMMIT))
    except psycopg.Error as error:
        if not _is_disconnected(error):
            raise
        if writes or work.changes:
            raise _CommitAnswerLost((start, number), result) from error
    return result


def _has_committed(lost: _CommitAnswerLost, ends: float) -> TransactionSteps[bool]:
    """Whether a transaction was committed. False: it was not, or nobody knows."""
    while True:
        yield AcquireConnection(ends)
        results = yield SendStatements(((_READ_COMMIT_STATUS, lost.mark),))
        fate = results[0][0][0]
        if fate != "in progress":
            return bool(fate == "committed")
        if time.monotonic() >= ends:
            raise DeadlineExceeded("the server is still at work on the commit")
        yield SleepSeconds(_PAUSE)


def _sqlstate(error: psycopg.Error) -> str:
    return error.sqlstate or ""


def _is_disconnected(error: psycopg.Error) -> bool:
    """Whether the connection is lost: what was sent may have been done or not."""
    if isinstance(error, ConnectionUnavailable):
        return False
    return _sqlstate(error).startswith(_SESSION_ENDED) or (
        isinstance(error, psycopg.OperationalError) and not _sqlstate(error)
    )


def _is_retryable(error: psycopg.Error) -> bool:
    """Whether a try that has changed nothing may go better the next time."""
    return _is_disconnected(error) or _sqlstate(error) in (*_ROLLED_BACK, *_UNPREPARED)


_REASONS: Final[dict[str, str]] = {
    "42P01": "its tables are missing: run `pokayoke ledger init --store URL` once (or open it with create=True)",
    "3D000": "there is no such database: create it, then run `pokayoke ledger init --store URL`",
    "25006": "it only takes reads (a standby?): name the primary in the URL",
    "55P03": "another act held a lock for too long",
    "57014": "a statement took too long",
    "53100": "its disk is full",
    "42501": "the user of the URL lacks a right",
}


def error_message(error: psycopg.Error, at: PostgresLocation, *, unknown: bool = False) -> StoreError:
    """Return what is told of a failure. Its text holds no value: those stand in messages of classes 22 and 23.

    Args:
        error: the driver's.
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
    after = "; nobody knows whether the last commit was carried out: ask again" if unknown else "; nothing was written"
    return StoreError(f"PostgreSQL at {at.name}: {why}{after}")
