"""A completion inside the user's own transaction: the effect and its record are committed together.

In: the user's connection, psycopg's or SQLAlchemy's, in a transaction.
Out: whether the settlement was accepted.
Never: a statement other than for the locks, the record and its settlement, or a commit of our own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row

from pokayoke.core.ledger.records import Settlement
from pokayoke.errors import StoreError
from pokayoke.stores import operations
from pokayoke.stores.encryption import Seal
from pokayoke.stores.postgres.exchange import Row
from pokayoke.stores.postgres.transaction import lock_statement
from pokayoke.stores.sql import migrations, statements
from pokayoke.stores.sql.dialect import POSTGRES, Statement, number_placeholders

_AUTOCOMMIT_ERROR: Final = (
    "the connection commits each statement by itself, so effect and record would be two commits: "
    "open a transaction first (psycopg: `with conn.transaction():`, SQLAlchemy: `with engine.begin() as conn:`)"
)
_NO_TABLE: Final = "42P01"

SettlementSteps = Generator[Statement, Sequence[Row], bool]


def settlement_steps(settlement: Settlement, ledger_id: str, seal: Seal, now: float) -> SettlementSteps:
    """Yield the statements that complete an effect, take the rows of each, and return whether it was accepted.

    Raises:
        StoreError: the connection leads to another ledger.
    """
    found = migrations.parse_meta((yield (migrations.READ_META, ())))
    if found.ledger_id != ledger_id:
        raise StoreError(
            f"the connection leads to the ledger {found.ledger_id or '(none)'}, the claim is in {ledger_id}: "
            "complete the effect in the database of the guard's store; roll back now"
        )
    migrations.refuse_newer(found)
    operation = operations.settle_operation(settlement)
    yield lock_statement(statements.required_locks(operation.need))
    results: list[Sequence[Row]] = []
    for statement in statements.read_statements(operation.need):
        results.append((yield statement))  # noqa: PERF401 - a comprehension cannot yield
    books = statements.parse_rows(operation.need, results, seal)
    changes, settled = operation.decide(books)
    for statement in statements.write_statements(changes, books, seal, now):
        yield statement
    return settled.accepted


def settle_on(conn: Any, steps: SettlementSteps) -> bool:
    """Run the steps on a user's connection.

    Raises:
        StoreError: it is no PostgreSQL connection, it is in no transaction, or it leads to no ledger.
    """
    if _is_instance(conn, psycopg.Connection):
        carry = _psycopg_executor(conn)
    elif _is_sqlalchemy(conn, "Connection"):
        carry = _sqlalchemy_executor(conn)
    else:
        raise _wrong_connection_error(conn, "psycopg.Connection or sqlalchemy.Connection")
    try:
        statement = next(steps)
        while True:
            statement = steps.send(carry(*statement))
    except StopIteration as end:
        return bool(end.value)
    except Exception as error:
        _raise_if_no_ledger(error)
        raise


async def asettle_on(conn: Any, steps: SettlementSteps) -> bool:
    """`settle_on` for asynchronous connections."""
    if _is_instance(conn, psycopg.AsyncConnection):
        carry = _async_psycopg_executor(conn)
    elif _is_sqlalchemy(conn, "AsyncConnection"):
        # SQLAlchemy runs its synchronous connection in a greenlet, which may wait.
        return bool(await conn.run_sync(settle_on, steps))
    else:
        raise _wrong_connection_error(conn, "psycopg.AsyncConnection or AsyncConnection of sqlalchemy.ext.asyncio")
    try:
        statement = next(steps)
        while True:
            statement = steps.send(await carry(*statement))
    except StopIteration as end:
        return bool(end.value)
    except Exception as error:
        _raise_if_no_ledger(error)
        raise


def _psycopg_executor(conn: psycopg.Connection[Any]) -> Callable[[str, tuple[Any, ...]], Sequence[Row]]:
    _check_transaction(conn)

    def execute_statement(sql: str, values: tuple[Any, ...]) -> Sequence[Row]:
        with psycopg.Cursor[Row](conn, row_factory=tuple_row) as cursor:
            cursor.execute(POSTGRES.with_placeholders(sql).encode(), values)
            return cursor.fetchall() if cursor.description else ()

    return execute_statement


def _async_psycopg_executor(
    conn: psycopg.AsyncConnection[Any],
) -> Callable[[str, tuple[Any, ...]], Awaitable[Sequence[Row]]]:
    _check_transaction(conn)

    async def execute_statement(sql: str, values: tuple[Any, ...]) -> Sequence[Row]:
        async with psycopg.AsyncCursor[Row](conn, row_factory=tuple_row) as cursor:
            await cursor.execute(POSTGRES.with_placeholders(sql).encode(), values)
            return await cursor.fetchall() if cursor.description else ()

    return execute_statement


def _sqlalchemy_executor(conn: Any) -> Callable[[str, tuple[Any, ...]], Sequence[Row]]:
    if conn.dialect.name != "postgresql":
        raise _wrong_connection_error(conn, f"a connection to PostgreSQL, not to {conn.dialect.name}")
    held = conn.connection
    level = str(getattr(held.dbapi_connection, "isolation_level", ""))
    if getattr(held.driver_connection, "autocommit", False) or level.lower() == "autocommit":
        raise StoreError(_AUTOCOMMIT_ERROR)
    numbered = conn.dialect.paramstyle == "numeric_dollar"

    def execute_statement(sql: str, values: tuple[Any, ...]) -> Sequence[Row]:
        result = conn.exec_driver_sql(number_placeholders(sql) if numbered else POSTGRES.with_placeholders(sql), values)
        return [tuple(row) for row in result] if result.returns_rows else ()

    return execute_statement


def _check_transaction(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    if conn.autocommit and conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
        raise StoreError(_AUTOCOMMIT_ERROR)


def _is_instance(conn: Any, kind: type) -> bool:
    return isinstance(conn, kind)


def _is_sqlalchemy(conn: Any, kind: str) -> bool:
    """Whether it is a connection of SQLAlchemy, which is not imported for this."""
    return any(one.__name__ == kind and one.__module__.startswith("sqlalchemy.") for one in type(conn).__mro__)


def _wrong_connection_error(conn: Any, wanted: str) -> StoreError:
    return StoreError(f"{type(conn).__module__}.{type(conn).__name__} cannot complete an effect here: pass {wanted}")


def _raise_if_no_ledger(error: Exception) -> None:
    cause = getattr(error, "orig", error)  # SQLAlchemy wraps the driver's
    if getattr(cause, "sqlstate", None) == _NO_TABLE or getattr(cause, "pgcode", None) == _NO_TABLE:
        raise StoreError("the connection leads to no ledger: complete the effect in the store's database") from error
