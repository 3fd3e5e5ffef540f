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
from pokayoke.stores.operations import Act
from pokayoke.stores.postgres.pool import AsyncLink, Late, Link, Row, Unreachable
from pokayoke.stores.postgres.url import Place
from pokayoke.stores.sql import migrations as schema
from pokayoke.stores.sql import statements
from pokayoke.stores.sql.dialect import POSTGRES, Statement
from pokayoke.stores.sql.statements import MIGRATION, Lock

T = TypeVar("T")


class Take(msgspec.Struct, frozen=True, gc=False):
    """Hand in a connection; the one before is done with.

    Args:
        until: `time.monotonic()` second at which it is no use any more.
    """

    until: float


class Send(msgspec.Struct, frozen=True, gc=False):
    """Carry out statements in one round trip and hand in the rows of each.

    Args:
        statements: in order.
        more: True if the transaction goes on.
    """

    statements: Sequence[Statement]
    more: bool = False


class Pause(msgspec.Struct, frozen=True, gc=False):
    """Wait for some seconds."""

    seconds: float


Step = Take | Send | Pause
Course = Generator[Step, Any, T]


class Work(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """What one transaction has to do.

    Args:
        locks: what nobody else may touch meanwhile, in order.
        reads: the first statements.
        decide: turns their rows into further statements and the result.
        changes: True if the first statements change something too.
        patience: seconds it may take; None for what the URL says.
    """

    locks: tuple[Lock, ...]
    reads: Sequence[Statement]
    decide: Callable[[Sequence[Sequence[Row]]], tuple[Sequence[Statement], T]]
    changes: bool = False
    patience: float | None = None


class _Lost(Exception):  # noqa: N818 - says what happened, and never leaves this module
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
_MARK: Final = "SELECT pg_current_xact_id()::text, pg_postmaster_start_time()::text, pg_backend_pid()"
_FATE: Final = "SELECT CASE WHEN pg_postmaster_start_time()::text = %s THEN pg_xact_status(%s::xid8) END"
_LOCK: Final = {False: "pg_advisory_xact_lock(%s)", True: "pg_advisory_xact_lock_shared(%s)"}

_TRIES: Final = 4
_PAUSE: Final = 0.05
_ENDED = ("57P01", "57P02", "57P03", "57P05", "25P03", "08")
"""The server ends the session, or never had it."""
_ROLLED_BACK = ("40P01", "40001")
"""The server chose this transaction to make way for another one."""
_UNPREPARED = ("26000", "42P05")
"""A pooler mixes up the prepared statements of its clients."""


def words(found: Sequence[Statement]) -> list[Statement]:
    """Return statements in PostgreSQL's words."""
    return [(POSTGRES.sql(sql), values) for sql, values in found]


def locking(locks: Sequence[Lock]) -> Statement:
    """Return the statement that takes locks in order and holds them to the end of the transaction."""
    return "SELECT " + _locks(tuple(lock.shared for lock in locks)), tuple(lock.number for lock in locks)


@lru_cache(maxsize=64)
def _locks(shared: tuple[bool, ...]) -> str:
    return ", ".join(_LOCK[one] for one in shared)


def opening(locks: Sequence[Lock], patience: float) -> Statement:
    """Return the statement that begins an act: the transaction's number, settings, then the locks in order."""
    limit = str(max(1, int(patience * 1_000)))
    sql = f"{_MARK}, {_SETTINGS}" + (", " + _locks(tuple(lock.shared for lock in locks)) if locks else "")
    return sql, (limit, limit, limit, *(lock.number for lock in locks))


def work_of(act: Act[T], seal: Seal, now: Callable[[], float], ledger_id: str) -> Work[T]:
    """Return an act as the work of a transaction.

    What the ledger says of itself is read again each time, while nobody may migrate it: under a store that is open it
    may have been replaced, or brought to a version that this program does not know.
    """

    def decided(results: Sequence[Sequence[Row]]) -> tuple[Sequence[Statement], T]:
        be_same(results[0], ledger_id)
        books = statements.books(act.need, results[1:], seal)
        changes, result = act.decide(books)
        return statements.writes(changes, books, seal, now()), result

    locks = (Lock(MIGRATION, shared=True), *statements.locks(act.need))
    return Work(locks, ((schema.READ_META, ()), *statements.reads(act.need)), decided)


def be_same(rows: Sequence[Row], ledger_id: str) -> None:
    """Refuse another ledger than the one that was opened, and one that this program does not know.

    Args:
        rows: those of `READ_META`.
        ledger_id: the one that was opened.

    Raises:
        StoreError: it is another one, or newer.
    """
    found = schema.meta(rows)
    if found.ledger_id != ledger_id:
        raise StoreError(
            f"the database holds another ledger ({found.ledger_id or 'none'}) than the one that was opened "
            f"({ledger_id}): it was replaced; nothing is written. Put the right one back and start this process again"
        )
    schema.refuse_newer(found)


def reading(statement: Statement) -> Work[Sequence[Row]]:
    """Return the work of one statement that changes nothing."""
    return Work((), (statement,), lambda results: ((), results[0]))


def carried_out(work: Work[T], at: Place) -> Course[T]:
    """Carry out work, again where that is safe and of use.

    It takes `patience` seconds at most, and as long again if the answer to a commit was lost.

    Raises:
        StoreError: nothing was changed, or (said so) nobody knows, and the act recognises itself next time.
    """
    patience = at.act_timeout if work.patience is None else work.patience
    ends = time.monotonic() + patience
    lost: _Lost | None = None
    for tries in range(1_000_000):
        try:
            if lost is not None and (yield from _committed(lost, ends)):
                return cast("T", lost.result)
            return (yield from _tried(work, patience, ends))
        except _Lost as loss:
            if lost is None:
                ends = time.monotonic() + patience
            lost, error = loss, loss.__cause__
        except psycopg.Error as failure:
            error = failure
            if lost is None and (isinstance(failure, Unreachable) or tries >= _TRIES or not _worth_another(failure)):
                raise explained(failure, at) from failure
        assert isinstance(error, psycopg.Error), "only the driver's failures come here"
        if time.monotonic() >= ends:
            raise explained(error, at, unknown=lost is not None) from error
        if tries:
            yield Pause(_PAUSE)
    raise AssertionError("time is up before that")


def _tried(work: Work[T], patience: float, ends: float) -> Course[T]:
    link: Link | AsyncLink = yield Take(ends)
    results = yield Send((BEGIN, opening(work.locks, patience), *words(work.reads)), more=True)
    number, start, backend = results[1][0][:3]
    if backend != link.info.backend_pid:
        link.prepare_threshold = None  # a pooler stands between: what is prepared may be somebody else's
    try:
        writes, result = work.decide(results[2:])
    except Exception:
        yield Send((ROLLBACK,))
        raise
    try:
        yield Send((*words(writes), COMMIT))
    except psycopg.Error as error:
        if not _ended(error):
            raise
        if writes or work.changes:
            raise _Lost((start, number), result) from error
    return result


def _committed(lost: _Lost, ends: float) -> Course[bool]:
    """Whether a transaction was committed. False: it was not, or nobody knows."""
    while True:
        yield Take(ends)
        results = yield Send(((_FATE, lost.mark),))
        fate = results[0][0][0]
        if fate != "in progress":
            return bool(fate == "committed")
        if time.monotonic() >= ends:
            raise Late("the server is still at work on the commit")
        yield Pause(_PAUSE)


def _state(error: psycopg.Error) -> str:
    return error.sqlstate or ""


def _ended(error: psycopg.Error) -> bool:
    """Whether the connection is lost: what was sent may have been done or not."""
    if isinstance(error, Unreachable):
        return False
    return _state(error).startswith(_ENDED) or (isinstance(error, psycopg.OperationalError) and not _state(error))


def _worth_another(error: psycopg.Error) -> bool:
    """Whether a try that has changed nothing may go better the next time."""
    return _ended(error) or _state(error) in (*_ROLLED_BACK, *_UNPREPARED)


_WHY: Final[dict[str, str]] = {
    "42P01": "its tables are missing: run `pokayoke ledger init --store URL` once (or open it with create=True)",
    "3D000": "there is no such database: create it, then run `pokayoke ledger init --store URL`",
    "25006": "it only takes reads (a standby?): name the primary in the URL",
    "55P03": "another act held a lock for too long",
    "57014": "a statement took too long",
    "53100": "its disk is full",
    "42501": "the user of the URL lacks a right",
}


def explained(error: psycopg.Error, at: Place, *, unknown: bool = False) -> StoreError:
    """Return what is told of a failure. Its text holds no value: those stand in messages of classes 22 and 23.

    Args:
        error: the driver's.
        at: the database.
        unknown: True if something may have been committed.
    """
    state = _state(error)
    if isinstance(error, Late):
        why = f"no answer within {at.act_timeout:g} s"
    elif state in _WHY:
        why = _WHY[state]
    else:
        said = error.diag.message_primary if state else str(error)
        why = f"{type(error).__name__} {state}".strip()
        if said and not state.startswith(("22", "23")):
            why += f": {' '.join(said.split())[:300]}"
    after = "; nobody knows whether the last commit was carried out: ask again" if unknown else "; nothing was written"
    return StoreError(f"PostgreSQL at {at.name}: {why}{after}")
