"""A completion inside the user's own transaction: the effect and its record become true in one commit.

The connection is the user's: psycopg's or SQLAlchemy's. It is told nothing but the locks, the record and
its settlement; it commits when the user does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row

from pokayoke.core.ledger.transitions import Settlement
from pokayoke.errors import StoreError
from pokayoke.stores import operations as acts
from pokayoke.stores.encryption import Seal
from pokayoke.stores.postgres.pool import Row
from pokayoke.stores.postgres.transaction import locking
from pokayoke.stores.sql import migrations as schema
from pokayoke.stores.sql import statements
from pokayoke.stores.sql.dialect import POSTGRES, Statement

_ALONE: Final = (
    "the connection commits each statement by itself, so effect and record would be two commits: "
    "open a transaction first (psycopg: `with conn.transaction():`, SQLAlchemy: `with engine.begin() as conn:`)"
)
_NO_TABLE: Final = "42P01"

Visit = Generator[Statement, Sequence[Row], bool]


def visit(settlement: Settlement, ledger_id: str, seal: Seal, now: float) -> Visit:
    """Say which statements complete an effect, take the rows of each, and return whether it was accepted.

    Raises:
        StoreError: the connection leads to another ledger.
    """
    found = schema.meta((yield (schema.READ_META, ())))
    if found.ledger_id != ledger_id:
        raise StoreError(
            f"the connection leads to the ledger {found.ledger_id or '(none)'}, the claim is in {ledger_id}: "
            "complete the effect in the database of the guard's store; roll back now"
        )
    schema.refuse_newer(found)
    act = acts.settling(settlement)
    yield locking(statements.locks(act.need))
    results: list[Sequence[Row]] = []
    for statement in statements.reads(act.need):
        results.append((yield statement))  # noqa: PERF401 - a comprehension cannot yield
    books = statements.books(act.need, results, seal)
    changes, settled = act.decide(books)
    for statement in statements.writes(changes, books, seal, now):
        yield statement
    return settled.accepted


def settle_on(conn: Any, steps: Visit) -> bool:
    """Walk a visit on a connection of the user.

    Raises:
        StoreError: it is no connection to PostgreSQL, it is in no transaction, or it leads to no ledger.
    """
    if _is(conn, psycopg.Connection):
        carry = _on_psycopg(conn)
    elif _is_sqlalchemy(conn, "Connection"):
        carry = _on_sqlalchemy(conn)
    else:
        raise _stranger(conn, "psycopg.Connection or sqlalchemy.Connection")
    try:
        statement = next(steps)
        while True:
            statement = steps.send(carry(*statement))
    except StopIteration as end:
        return bool(end.value)
    except Exception as error:
        _raise_if_missing(error)
        raise


async def asettle_on(conn: Any, steps: Visit) -> bool:
    """`settle_on` for asynchronous connections."""
    if _is(conn, psycopg.AsyncConnection):
        carry = _on_async_psycopg(conn)
    elif _is_sqlalchemy(conn, "AsyncConnection"):
        # SQLAlchemy carries its plain connection into a greenlet, where it may wait.
        return bool(await conn.run_sync(settle_on, steps))
    else:
        raise _stranger(conn, "psycopg.AsyncConnection or AsyncConnection of sqlalchemy.ext.asyncio")
    try:
        statement = next(steps)
        while True:
            statement = steps.send(await carry(*statement))
    except StopIteration as end:
        return bool(end.value)
    except Exception as error:
        _raise_if_missing(error)
        raise


def _on_psycopg(conn: psycopg.Connection[Any]) -> Callable[[str, tuple[Any, ...]], Sequence[Row]]:
    _check(conn)

    def carry(sql: str, values: tuple[Any, ...]) -> Sequence[Row]:
        with psycopg.Cursor[Row](conn, row_factory=tuple_row) as cursor:
            cursor.execute(POSTGRES.sql(sql).encode(), values)
            return cursor.fetchall() if cursor.description else ()

    return carry


def _on_async_psycopg(
    conn: psycopg.AsyncConnection[Any],
) -> Callable[[str, tuple[Any, ...]], Awaitable[Sequence[Row]]]:
    _check(conn)

    async def carry(sql: str, values: tuple[Any, ...]) -> Sequence[Row]:
        async with psycopg.AsyncCursor[Row](conn, row_factory=tuple_row) as cursor:
            await cursor.execute(POSTGRES.sql(sql).encode(), values)
            return await cursor.fetchall() if cursor.description else ()

    return carry


def _on_sqlalchemy(conn: Any) -> Callable[[str, tuple[Any, ...]], Sequence[Row]]:
    if conn.dialect.name != "postgresql":
        raise _stranger(conn, f"a connection to PostgreSQL, not to {conn.dialect.name}")
    held = conn.connection
    level = str(getattr(held.dbapi_connection, "isolation_level", ""))
    if getattr(held.driver_connection, "autocommit", False) or level.lower() == "autocommit":
        raise StoreError(_ALONE)
    numbered = conn.dialect.paramstyle == "numeric_dollar"

    def carry(sql: str, values: tuple[Any, ...]) -> Sequence[Row]:
        result = conn.exec_driver_sql(_numbered(sql) if numbered else POSTGRES.sql(sql), values)
        return [tuple(row) for row in result] if result.returns_rows else ()

    return carry


def _numbered(sql: str) -> str:
    first, *rest = POSTGRES.sql(sql).split(POSTGRES.placeholder)
    return first + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))


def _check(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    if conn.autocommit and conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
        raise StoreError(_ALONE)


def _is(conn: Any, kind: type) -> bool:
    return isinstance(conn, kind)


def _is_sqlalchemy(conn: Any, kind: str) -> bool:
    """Whether it is a connection of SQLAlchemy, which is not imported for that."""
    return any(one.__name__ == kind and one.__module__.startswith("sqlalchemy.") for one in type(conn).__mro__)


def _stranger(conn: Any, wanted: str) -> StoreError:
    return StoreError(f"{type(conn).__module__}.{type(conn).__name__} cannot complete an effect here: pass {wanted}")


def _raise_if_missing(error: Exception) -> None:
    cause = getattr(error, "orig", error)  # SQLAlchemy wraps the driver's
    if getattr(cause, "sqlstate", None) == _NO_TABLE or getattr(cause, "pgcode", None) == _NO_TABLE:
        raise StoreError("the connection leads to no ledger: complete the effect in the store's database") from error
