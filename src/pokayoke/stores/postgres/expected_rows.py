"""What an operation will most likely find: rows that this process wrote or read last.

The core may decide on expected rows before the server is asked. What it then wants to write goes into a statement
that writes only if the rows are as expected, under the same locks under which they would have been read: so what is
written was decided on what is there. It waits for no lock. A wrong expectation writes nothing and costs an exchange.

In: what operations have read and written.
Out: expected rows, and a write that depends on them.
Never: a rule of the ledger. The conditions compare rows; they do not know what the rows mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from pokayoke.stores.operations import ReadSet
from pokayoke.stores.postgres.exchange import Row
from pokayoke.stores.sql.dialect import Statement
from pokayoke.stores.sql.migrations import LedgerMeta
from pokayoke.stores.sql.rows import RECORD_COLUMNS
from pokayoke.stores.sql.statements import (
    READ_RECORD,
    READ_RUN,
    READ_SWITCHES,
    SETTLE_RECORD,
    WRITE_NEW_RECORD,
    WRITE_RECORD,
    WRITE_RUN,
    WRITE_SWITCH,
)

_MOST: Final = 4_096
"""Remembered rows; beyond that all are forgotten, which costs an exchange for each that is needed again."""
MOST_BYTES: Final = 12_000
"""Most bytes of values in a single exchange: what TCP sends at once. Of a longer one the server might have the locks,
but not the rest, for as long as its caller is stopped; in a transaction of two exchanges it ends such a caller."""
LOCKED: Final = "pokayoke.locked"
"""The setting in which the first statement of an exchange tells the next one whether it holds its locks."""
_CLAIM_ID, _STATE = RECORD_COLUMNS.index("claim_id"), RECORD_COLUMNS.index("state")

# How the rows of a read are compared.
_NO_RECORD: Final = "NOT EXISTS (SELECT 1 FROM pokayoke_records WHERE key = ?)"
# The row that this process has written, and no later version of it: xmin is the transaction that wrote it.
_SAME_RECORD: Final = "(claim_id, xmin::text) = (?, ?)"
_SAME_RUN: Final = "(SELECT body FROM pokayoke_runs WHERE run_id = ?) IS NOT DISTINCT FROM ?"
# The bodies are JSON on one line, so that the joined text holds each of them unchanged.
_SAME_SWITCHES: Final = (
    "(SELECT string_agg(body, chr(10) ORDER BY scope) FROM pokayoke_switches) IS NOT DISTINCT FROM ?"
)
# The locks; the isolation that BEGIN gives to other transactions; the time until which the caller waits, since a
# statement that a stalled server takes up later must not claim anything; and the ledger itself.
_USUAL: Final = (
    f"current_setting('{LOCKED}') = 'true' AND current_setting('transaction_isolation') = 'read committed' AND "  # noqa: S608 - as above
    "extract(epoch FROM clock_timestamp()) < ? AND "
    "(SELECT count(*) FROM pokayoke_meta WHERE (name, value) IN (('ledger_id', ?), ('schema_version', ?))) = 2"
)


class ExpectedRows:
    """Remembers rows for the next operation, from any thread: what it holds is compared before it counts.

    Args:
        ledger: the ledger and the version that are expected.
    """

    def __init__(self, ledger: LedgerMeta) -> None:
        """Start with nothing: no run, no record and no switch is expected."""
        self._ledger = (ledger.ledger_id, str(ledger.version))
        self._rows: dict[Statement, Sequence[Row]] = {}
        self._stamps: dict[Statement, str] = {}

    def find_rows(self, need: ReadSet, reads: Sequence[Statement]) -> list[Sequence[Row]] | None:
        """Return the expected rows of an operation's reads; None if nothing is expected of one of them."""
        if need.record is None or need.counters or need.fingerprint or need.approval or need.board == "all":
            return None
        if need.run is None and reads[0] not in self._rows:
            return None  # a report on a record that was claimed elsewhere
        return [self._rows.get(read, ()) for read in reads]

    def remember_reads(self, reads: Sequence[Statement], results: Sequence[Sequence[Row]]) -> None:
        """Remember what an operation has found."""
        if len(self._rows) > _MOST:
            self._rows.clear()
            self._stamps.clear()
        for read, rows in zip(reads, results, strict=True):
            if read[0] in (READ_RUN, READ_SWITCHES):
                self._rows[read] = rows

    def remember_writes(self, writes: Sequence[Statement], stamp: str) -> None:
        """Remember what an operation has committed.

        Args:
            writes: its statements.
            stamp: the number of its transaction as its rows hold it.
        """
        for sql, values in writes:
            if sql in (WRITE_NEW_RECORD, WRITE_RECORD, SETTLE_RECORD):
                read = (READ_RECORD, values[-1:] if sql == SETTLE_RECORD else values[:1])
                if sql != SETTLE_RECORD and values[_STATE] == "executing":
                    self._rows[read], self._stamps[read] = (values,), stamp
                else:
                    self._rows.pop(read, None)
                    self._stamps.pop(read, None)
            elif sql == WRITE_RUN:
                self._rows[READ_RUN, values[:1]] = (values[1:2],)
            elif sql == WRITE_SWITCH:
                self._rows.pop((READ_SWITCHES, ()), None)

    def write_if_expected(
        self, writes: Sequence[Statement], reads: Sequence[Statement], expected: Sequence[Sequence[Row]], until: float
    ) -> Statement | None:
        """Return a statement that writes, and returns its stamp, only if the rows are as expected.

        Args:
            writes: the statements to carry out. Only one can depend on a condition: a new record, or a settlement.
            reads: the statements whose rows are compared.
            expected: the rows of each.
            until: wall-clock second of the server from which on nothing is written.

        Returns:
            The statement, or None if these writes cannot depend on a condition.
        """
        if len(writes) != 1 or writes[0][0] not in (WRITE_NEW_RECORD, SETTLE_RECORD):
            return None
        ((write, values),) = writes
        if count_bytes(values) > MOST_BYTES:
            return None
        conditions, compared = [_USUAL], [until, *self._ledger]
        for read, rows in zip(reads, expected, strict=True):
            condition, more = self._compare_rows(read, rows)
            conditions.append(condition)
            compared += more
        return _conditional_sql(write, tuple(conditions)), (*values, *compared)

    def _compare_rows(self, read: Statement, rows: Sequence[Row]) -> tuple[str, Sequence[Any]]:
        sql, keys = read
        if sql == READ_RECORD:
            # The record is the one that is settled, so the condition can name its columns.
            return (_SAME_RECORD, (rows[0][_CLAIM_ID], self._stamps.get(read))) if rows else (_NO_RECORD, keys)
        if sql == READ_RUN:
            return _SAME_RUN, (*keys, rows[0][0] if rows else None)
        return _SAME_SWITCHES, ("\n".join(row[0] for row in rows) if rows else None,)


def count_bytes(values: tuple[Any, ...]) -> int:
    """Return about how many bytes values take in an exchange."""
    return sum([len(value) for value in values if type(value) is str or type(value) is bytes])


@lru_cache(maxsize=32)
def _conditional_sql(write: str, conditions: tuple[str, ...]) -> str:
    if write == WRITE_NEW_RECORD:
        head, _, values = write.partition(" VALUES ")
        return f"{head} SELECT {values[1:-1]} WHERE {' AND '.join(conditions)} RETURNING xmin::text"
    return f"{write} AND {' AND '.join(conditions)} RETURNING xmin::text"
