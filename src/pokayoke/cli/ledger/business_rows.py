"""Business rows for `pokayoke ledger reconcile`, from a JSON Lines file or a database, one at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import urlsplit

from pokayoke.core.json.canonical import canonical_bytes, sha256_hex
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import is_object
from pokayoke.core.ledger.compensation import BusinessRow
from pokayoke.core.ledger.reconcile import row_text
from pokayoke.errors import ConfigurationError, MissingExtraError
from pokayoke.replay.readers.lines import LONGEST_LINE

if TYPE_CHECKING:
    import psycopg

COLUMNS: Final = ("key", "reference", "digest", "arguments", "amount", "tool")
"""The columns of a row; `--map` gives their names in the source."""
_FETCH_SIZE: Final = 1_000
RowCounter = Callable[[int], None]


def parse_column_map(text: str | None) -> dict[str, str]:
    """Return column to its name in the source, from `key=order_key,reference=id`.

    Raises:
        ConfigurationError: a part is not `column=name`, or names an unknown column.
    """
    names = {column: column for column in COLUMNS}
    for part in (text or "").split(","):
        column, found, name = part.strip().partition("=")
        if not part.strip():
            continue
        if not found or column not in COLUMNS or not name:
            raise ConfigurationError(
                f"--map {part!r}: expected as in key=YOUR_COLUMN; what a row may tell: {', '.join(COLUMNS)}"
            )
        names[column] = name
    return names


def read_file_rows(name: str, names: Mapping[str, str], told: RowCounter) -> Iterator[BusinessRow]:
    """Read rows from a JSON Lines file; `-` is stdin.

    Args:
        name: of the file.
        names: from `parse_column_map`.
        told: called with 1 for each line.

    Raises:
        ConfigurationError: a line is no JSON object. An unreadable row could be any row, so the others could not
            be judged either.
        OSError: the file cannot be read.
    """
    if name == "-":
        yield from _read_lines(sys.stdin.buffer, name, names, told)
        return
    with Path(name).open("rb") as file:
        yield from _read_lines(file, name, names, told)


def _read_lines(file: BinaryIO, name: str, names: Mapping[str, str], told: RowCounter) -> Iterator[BusinessRow]:
    number = 0
    while line := file.readline(LONGEST_LINE):
        number += 1
        told(1)
        if not line.strip():
            continue
        try:
            value = parse(line)[0]
        except StrictError as error:
            raise ConfigurationError(f"{name}, line {number}: no strict JSON: {error}") from None
        if not is_object(value):
            raise ConfigurationError(f"{name}, line {number}: expected an object such as {{'key': ..., 'amount': ...}}")
        yield build_row(number, value, names)


def build_row(number: int, value: Mapping[str, Any], names: Mapping[str, str]) -> BusinessRow:
    """Return a row for comparison, without the blanks that databases pad columns of a fixed width with.

    Args:
        number: its place in the source.
        value: its columns.
        names: from `parse_column_map`.

    Raises:
        ConfigurationError: its arguments are no JSON object, or another column is neither text nor number.
    """
    told = {column: value.get(names[column]) for column in COLUMNS}
    arguments = told.pop("arguments")
    for column, found in told.items():
        if isinstance(found, (list, dict, bytes)):
            raise ConfigurationError(f"row {number}: its {column} is no text")
    said = {column: row_text(found).strip() for column, found in told.items()}
    mark = said["digest"].lower() or _arguments_digest(arguments, number)
    return BusinessRow(number, said["key"].lower(), said["reference"], mark, said["amount"], said["tool"])


def _arguments_digest(arguments: Any, number: int) -> str:
    """Return the digest of a row's arguments; databases return them as text."""
    if arguments is None:
        return ""
    if isinstance(arguments, (str, bytes)):
        try:
            arguments = parse(arguments)[0]
        except StrictError as error:
            raise ConfigurationError(f"row {number}: its arguments are no strict JSON: {error}") from None
    if not is_object(arguments):
        raise ConfigurationError(f"row {number}: its arguments are no JSON object")
    return sha256_hex(canonical_bytes(arguments))


def read_database_rows(url: str, query: str, names: Mapping[str, str], told: RowCounter) -> Iterator[BusinessRow]:
    """Read rows from a query, in a connection that cannot write.

    Args:
        url: `sqlite:///file.db` or `postgresql://...`.
        query: one SELECT.
        names: from `parse_column_map`.
        told: called with 1 for each row.

    Raises:
        ConfigurationError: the URL is of another kind, the database cannot be read, it is not one query, or the query
            has no column for the key or the reference, or one column twice.
    """
    kind = urlsplit(url).scheme
    if kind == "sqlite":
        yield from _read_sqlite(url, query, names, told)
    elif kind in ("postgresql", "postgres"):
        yield from _read_postgres(url, query, names, told)
    else:
        raise ConfigurationError(
            f"{kind or url!r} is no database that can be read: use sqlite:///FILE or postgresql://"
        )


def _read_sqlite(url: str, query: str, names: Mapping[str, str], told: RowCounter) -> Iterator[BusinessRow]:
    # It may be the ledger's own file: two SQLite libraries on one file would break each other's locks.
    import apsw  # noqa: PLC0415 - loaded for a database only

    path = Path(url.removeprefix("sqlite:///").partition("?")[0])
    if not path.is_file():
        raise ConfigurationError(f"{path}: no such file")
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            connection.set_busy_timeout(10_000)
            cursor: Any = connection.cursor()
            columns: list[str] = []

            def collect_columns(cursor: Any, _: str, __: Any) -> bool:
                found = [column[0] for column in cursor.get_description()]
                if columns and found:
                    raise ConfigurationError("--sql holds several queries: give one SELECT")
                columns.extend(_require_columns(found, names) if found else ())
                return True

            cursor.exec_trace = collect_columns
            cursor.execute(query)
            for number, values in enumerate(cursor, 1):
                told(1)
                yield build_row(number, dict(zip(columns, values, strict=True)), names)
            if not columns:
                raise ConfigurationError("--sql holds no query: give one SELECT")
    except apsw.Error as error:
        raise ConfigurationError(f"{path}: {error}") from None


def _read_postgres(url: str, query: str, names: Mapping[str, str], told: RowCounter) -> Iterator[BusinessRow]:
    try:
        import psycopg  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("psycopg", "postgres") from None
    try:
        # A server-side cursor returns the rows in portions, so that a large table needs no memory here.
        with (
            _set_read_only(psycopg.connect(url, connect_timeout=10)) as connection,
            connection.cursor("reconcile") as cursor,
        ):
            cursor.itersize = _FETCH_SIZE
            cursor.execute(query.encode())
            columns = _require_columns([column.name for column in cursor.description or ()], names)
            for number, values in enumerate(cursor, 1):
                told(1)
                yield build_row(number, dict(zip(columns, values, strict=True)), names)
    except psycopg.Error as error:
        raise ConfigurationError(f"the business database: {error}") from None


def _set_read_only(connection: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    connection.read_only = True
    return connection


def _require_columns(columns: list[str], names: Mapping[str, str]) -> list[str]:
    if names["key"] not in columns and names["reference"] not in columns:
        raise ConfigurationError(
            f"the query gives {', '.join(columns)}: name the column that holds the ledger key, or the reference, "
            "with --map key=...,reference=..."
        )
    for name in names.values():
        if columns.count(name) > 1:
            raise ConfigurationError(f"the query gives {name!r} more than once, and which is meant cannot be told")
    return columns
