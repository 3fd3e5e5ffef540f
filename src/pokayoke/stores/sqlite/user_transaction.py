"""The user's own connection to the ledger's file: an operation inside their transaction.

In: the user's connection, with an open transaction.
Out: rows, and writes that the user commits.
Never: a commit or rollback, or a write to another file than the store's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from pokayoke.errors import StoreError
from pokayoke.stores.sql import migrations
from pokayoke.stores.sql.rows import Row
from pokayoke.stores.sqlite.connection import Identity, SqliteLocation, refuse_mounted, refuse_other_names

_DRIVER_ATTRIBUTES: Final = ("driver_connection", "dbapi_connection")


class _Cursor(Protocol):
    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Any: ...


class UserTransaction:
    """Reads and writes on a user's connection, in the transaction that they began and will end.

    Args:
        conn: a connection of the store's own SQLite library, or a wrapper around one as SQLAlchemy's.
        place: location of the ledger.
        identity: the ledger to expect there.

    Raises:
        StoreError: the connection is of another kind, leads elsewhere, or has no open transaction.
    """

    def __init__(self, conn: Any, place: SqliteLocation, identity: Identity) -> None:
        raw = _driver_connection(conn)
        kind = cast("type[object]", type(raw))
        module = next((base.__module__ for base in kind.__mro__ if base.__name__ == "Connection"), kind.__module__)
        if module != place.library.name:
            raise StoreError(_wrong_connection_text(f"{kind.__module__}.{kind.__qualname__}", place))
        if not raw.in_transaction:
            raise StoreError("your connection has no open transaction: execute BEGIN IMMEDIATE first, COMMIT after it")
        self._cursor = _open_cursor(raw, place.library.name)
        self._check_ledger(place, identity)

    def fetch(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one statement and return its rows."""
        return list(self._cursor.execute(sql, values))

    def execute_write(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Run one statement that changes rows."""
        self._cursor.execute(sql, values)

    def _check_ledger(self, place: SqliteLocation, identity: Identity) -> None:
        """Check file and ledger id: a copy has the same id, and another file may have taken the name."""
        path = next(str(row[2]) for row in self.fetch("PRAGMA database_list") if row[1] == "main")
        try:
            found = os.stat(path)  # noqa: PTH116 - an empty path is a database in memory, which Path would take for "."
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != (identity.device, identity.inode):
            raise StoreError(
                f"your connection leads to {path or 'a database in memory'}, the ledger is in {place.path}"
            )
        refuse_other_names(path, found)
        refuse_mounted(path)
        meta = migrations.parse_meta(self.fetch(migrations.READ_META))
        if meta.ledger_id != identity.ledger_id:
            raise StoreError(f"{place.path} holds another ledger than before; nothing is written")
        migrations.refuse_newer(meta)


def _open_cursor(raw: Any, library: str) -> _Cursor:
    """Return a cursor that returns plain rows, whatever row factory the user's connection has."""
    cursor = raw.cursor()
    if library == "apsw":
        cursor.row_trace, cursor.exec_trace = _return_row, _allow_statement
    else:
        cursor.row_factory = None
    return cast("_Cursor", cursor)


def _return_row(_: object, row: Row) -> Row:
    return row


def _allow_statement(*_: object) -> bool:
    return True


def _driver_connection(conn: Any) -> Any:
    """Return the driver's connection behind the user's."""
    inner: Any = getattr(conn, "connection", conn)
    for name in _DRIVER_ATTRIBUTES:
        found: Any = getattr(inner, name, None)
        if found is not None:
            return found
    return inner


def _wrong_connection_text(name: str, place: SqliteLocation) -> str:
    return (
        f"{name} cannot complete an effect in {place.path}, which this store has open through {place.library.name}: "
        "two SQLite libraries in one process destroy a file. Use a connection of that library, or give the store "
        "yours: ?library=sqlite3 or ?library=apsw at the end of its URL"
    )
