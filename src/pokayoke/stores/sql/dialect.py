"""The differences between SQLite's SQL and PostgreSQL's.

In: SQL with `?` for values and `{names}` for types.
Out: SQL for one database.
Never: a value inside the SQL.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

Statement = tuple[str, tuple[Any, ...]]
"""SQL with `?` for each value, and the values."""


class Dialect(msgspec.Struct, frozen=True, gc=False):
    """The SQL words of one database.

    Args:
        name: sqlite or postgres.
        placeholder: stands for a value.
        text: the type of a text that is compared and sorted by its code points.
        bytes: the type of bytes.
        double: the type of a float of 64 bits.
        serial: type and constraint of a primary key that the database numbers.
        skip_locked: ends a SELECT whose rows are changed next, where other sessions may change them too.
    """

    name: str
    placeholder: str
    text: str
    bytes: str
    double: str
    serial: str
    skip_locked: str = ""

    def with_placeholders(self, sql: str) -> str:
        """Return a statement's SQL with this database's placeholders."""
        return sql if self.placeholder == "?" else _replace_placeholders(sql, self.placeholder)

    def with_types(self, sql: str) -> str:
        """Return a migration's SQL with this database's types."""
        return sql.format(text=self.text, bytes=self.bytes, double=self.double, serial=self.serial)


SQLITE = Dialect("sqlite", "?", "TEXT", "BLOB", "REAL", "INTEGER PRIMARY KEY AUTOINCREMENT")
POSTGRES = Dialect(
    "postgres",
    "%s",
    'TEXT COLLATE "C"',
    "BYTEA",
    "DOUBLE PRECISION",
    "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    " FOR UPDATE SKIP LOCKED",
)


@lru_cache(maxsize=256)
def _replace_placeholders(sql: str, placeholder: str) -> str:
    return sql.replace("?", placeholder)


@lru_cache(maxsize=256)
def number_placeholders(sql: str) -> str:
    """Return a statement's SQL with the placeholders of PostgreSQL's protocol: $1, $2, ..."""
    first, *rest = sql.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))
