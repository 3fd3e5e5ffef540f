"""The tables: numbered migrations, the ledger's id, and which versions a program may write to.

In: the rows of `pokayoke_meta`.
Out: the statements that bring a database up to date.
Never: a write to a ledger that is newer than this program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from importlib import resources
from typing import Final

import msgspec

from pokayoke.errors import StoreError
from pokayoke.stores.sql.dialect import Dialect, Statement
from pokayoke.stores.sql.rows import Row

CREATE_META: Final = "CREATE TABLE IF NOT EXISTS pokayoke_meta (name VARCHAR(64) PRIMARY KEY, value TEXT NOT NULL)"
READ_META: Final = "SELECT name, value FROM pokayoke_meta"
_WRITE_META: Final = (
    "INSERT INTO pokayoke_meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)


class LedgerMeta(msgspec.Struct, frozen=True, gc=False):
    """A ledger's id and version, as its database states them.

    Args:
        ledger_id: id of the ledger, created by the first migration. Empty if there is none.
        version: number of the last migration; 0 if there is none.
    """

    ledger_id: str = ""
    version: int = 0


class Migration(msgspec.Struct, frozen=True, gc=False):
    """One numbered step of the migrations."""

    number: int
    statements: tuple[str, ...]


@lru_cache(maxsize=2)
def load_migrations(dialect: Dialect) -> tuple[Migration, ...]:
    """Return all migrations in order, in the SQL of one database."""
    folder = resources.files("pokayoke.stores.sql") / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(
        Migration(int(file.name[:4]), _split_statements(dialect.with_types(file.read_text(encoding="utf-8"))))
        for file in files
    )


def latest_version() -> int:
    """Return the version that this program writes."""
    from pokayoke.stores.sql.dialect import SQLITE  # noqa: PLC0415 - any dialect has the same numbers

    return load_migrations(SQLITE)[-1].number


def parse_meta(rows: Iterable[Row]) -> LedgerMeta:
    """Return the meta of a ledger from the rows of `READ_META`.

    Raises:
        StoreError: the version is not a number.
    """
    found = {str(row[0]): str(row[1]) for row in rows}
    version = found.get("schema_version", "0")
    if not version.isdecimal():
        raise StoreError(f"the ledger says that its version is {version!r}, which is not a number: restore a backup")
    return LedgerMeta(found.get("ledger_id", ""), int(version))


def migration_statements(found: LedgerMeta, dialect: Dialect, new_id: str) -> tuple[Statement, ...]:
    """Return the statements that bring a database to this program's version; none if it is there.

    Run them in one transaction that excludes other migrations, after `CREATE_META` and with what `READ_META`
    then returned.

    Args:
        found: the meta of the database.
        dialect: of the database.
        new_id: the id of the ledger if it is a new one.

    Raises:
        StoreError: the database is newer than this program.
    """
    refuse_newer(found)
    steps = [step for step in load_migrations(dialect) if step.number > found.version]
    if not steps:
        return ()
    statements: list[Statement] = [(sql, ()) for step in steps for sql in step.statements]
    if not found.ledger_id:
        statements.append((_WRITE_META, ("ledger_id", new_id)))
    statements.append((_WRITE_META, ("schema_version", str(steps[-1].number))))
    return tuple(statements)


def refuse_newer(found: LedgerMeta) -> None:
    """Refuse a database whose tables this program does not know.

    Raises:
        StoreError: its version is newer than this program's.
    """
    if found.version > latest_version():
        raise StoreError(
            f"the ledger has version {found.version} and this pokayoke writes up to version {latest_version()}: "
            "nothing is written; upgrade pokayoke"
        )


def refuse_unready(found: LedgerMeta, url: str) -> None:
    """Refuse a database without tables, or with tables that have to be migrated first.

    A newer one can be opened and read; writes to it are refused.

    Args:
        found: the meta of the database.
        url: of the store, for the suggested command.

    Raises:
        StoreError: there is no ledger, or an older one.
    """
    if found.version == 0:
        raise StoreError(f"there is no ledger at {url}: run `pokayoke ledger init --store {url}`")
    if found.version < latest_version():
        raise StoreError(
            f"the ledger has version {found.version} and this pokayoke works with version {latest_version()}: "
            f"run `pokayoke ledger migrate --store {url}`; programs with an older pokayoke can then only read it"
        )


def _split_statements(text: str) -> tuple[str, ...]:
    lines = re.sub(r"^--.*$", "", text, flags=re.MULTILINE)
    return tuple(statement.strip() for statement in lines.split(";") if statement.strip())
