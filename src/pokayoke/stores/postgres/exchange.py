"""Statements of one exchange with the server, over libpq's pipeline: sent together, answered together.

psycopg connects; what it does for each statement (a cursor, a query object, a lookup of types) would take longer
than everything else an operation does, so the few types of the tables are written and read here.

In: statements, and the deadline of the connection.
Out: the rows of each statement, or the first failure.
Never: a statement that the server may run after an earlier one of the same exchange has failed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from struct import Struct
from typing import Any, Final

import psycopg
from psycopg import pq, waiting

from pokayoke.stores.sql.dialect import Statement, number_placeholders

Row = tuple[Any, ...]

PIPELINE: Final = psycopg.Pipeline.is_supported()
"""Whether libpq (14 or later) sends several statements in one round trip."""

_MOST_PREPARED: Final = 100
_TEXT, _BINARY = int(pq.Format.TEXT), int(pq.Format.BINARY)
_read_double: Final = Struct(">d").unpack


class DeadlineExceeded(psycopg.OperationalError):
    """The server did not answer in time; the connection is closed."""


def _read_integer(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


_READERS: Final[dict[int, Callable[[bytes], Any]]] = {
    16: lambda value: value != b"\x00",  # bool
    17: bytes,  # bytea
    19: bytes.decode,  # name
    20: _read_integer,  # int8
    21: _read_integer,  # int2
    23: _read_integer,  # int4
    25: bytes.decode,  # text
    701: lambda value: _read_double(value)[0],  # float8
    1043: bytes.decode,  # varchar
    2278: lambda _: None,  # void
}
"""How a value of each type of a column is read, by the type's number, which PostgreSQL never changes."""


# A text in binary, so that the server refuses a NUL: in text format libpq would end the value there.
_FORMATS: Final[dict[type, int]] = {str: _BINARY, bytes: _BINARY, int: _TEXT, float: _TEXT, type(None): _TEXT}


class Exchanger:
    """Sends statements and reads their rows: the part that connections of threads and of event loops share.

    Attributes:
        deadline: `time.monotonic()` second at which waiting ends.
        prepared: names of prepared statements by their SQL; None prepares none.
    """

    pgconn: pq.abc.PGconn
    deadline: float = math.inf
    prepared: dict[str, bytes] | None = None

    def exchange(self, statements: Sequence[Statement]) -> Generator[waiting.Wait, int, list[list[Row]]]:
        """Send statements, wait for all answers, and return the rows of each. Yields as psycopg's `waiting` expects.

        Outside BEGIN and COMMIT the statements are one transaction, in which each has a snapshot of its own. Without
        pipelines (`PIPELINE`) each one is sent alone, and is a transaction of its own there.

        Raises:
            psycopg.Error: the first failure. The state of the connection is unknown then.
        """
        if not PIPELINE:
            rows: list[list[Row]] = []
            for sql, values in statements:
                written, formats = _write_values(values)
                command = number_placeholders(sql).encode()
                self.pgconn.send_query_params(command, written, param_formats=formats, result_format=_BINARY)
                rows += map(_read_rows, (yield from self._receive()))
            return rows
        self.pgconn.enter_pipeline_mode()
        count = [self._send(sql, values) for sql, values in statements]
        self.pgconn.pipeline_sync()
        results = iter((yield from self._receive()))
        self.pgconn.exit_pipeline_mode()
        return [_read_rows([next(results) for _ in range(number)][-1]) for number in count]

    def _send(self, sql: str, values: tuple[Any, ...]) -> int:
        """Send a statement, prepared if that is allowed. Returns how many answers it gets."""
        pgconn, prepared = self.pgconn, self.prepared
        written, formats = _write_values(values)
        name = None if prepared is None else prepared.get(sql)
        if name is not None:
            pgconn.send_query_prepared(name, written, formats, _BINARY)
            return 1
        command = number_placeholders(sql).encode()
        if prepared is None or len(prepared) >= _MOST_PREPARED:
            pgconn.send_query_params(command, written, param_formats=formats, result_format=_BINARY)
            return 1
        name = prepared[sql] = b"pokayoke%d" % len(prepared)
        pgconn.send_prepare(name, command)
        pgconn.send_query_prepared(name, written, formats, _BINARY)
        return 2

    def _receive(self) -> Generator[waiting.Wait, int, list[pq.abc.PGresult]]:
        """Send what is left to send, and return the results up to the end of the exchange."""
        pgconn = self.pgconn
        while pgconn.flush():
            yield from self._wait(waiting.WAIT_RW)
        found: list[pq.abc.PGresult] = []
        while True:
            while pgconn.is_busy():
                yield from self._wait(waiting.WAIT_R)
            result = pgconn.get_result()
            if result is None:
                if not PIPELINE:
                    return found
                continue  # the end of one statement
            status = result.status
            if status == pq.ExecStatus.PIPELINE_SYNC:
                return found
            if status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
                raise _read_error(result)
            found.append(result)

    def _wait(self, wanted: waiting.Wait) -> Generator[waiting.Wait, int, None]:
        ready = yield wanted
        if ready & waiting.READY_R:
            self.pgconn.consume_input()
        if time.monotonic() >= self.deadline:  # also if something has come: a trickle must not last for ever
            raise DeadlineExceeded("the server did not answer in time")


def _write_values(values: tuple[Any, ...]) -> tuple[list[bytes | None], list[int]]:
    formats = [_FORMATS[type(value)] for value in values]
    written = [
        value if value is None or type(value) is bytes else (value if type(value) is str else repr(value)).encode()
        for value in values
    ]
    return written, formats


def _read_rows(result: pq.abc.PGresult) -> list[Row]:
    if not result.ntuples:
        return []
    columns = [(column, _READERS[result.ftype(column)]) for column in range(result.nfields)]
    get_value = result.get_value
    return [
        tuple(None if (value := get_value(row, column)) is None else read(value) for column, read in columns)
        for row in range(result.ntuples)
    ]


def _read_error(result: pq.abc.PGresult) -> psycopg.Error:
    if result.error_field(pq.DiagnosticField.SQLSTATE):
        return psycopg.errors.error_from_result(result)
    return psycopg.OperationalError(result.get_error_message())  # libpq's own: the connection is lost
