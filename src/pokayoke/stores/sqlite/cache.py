"""Rows that the writer of a file knows without reading: what it wrote itself while no other connection wrote.

A settlement follows its claim, and switches rarely change. SQLite reports whether another connection has
committed in between (`PRAGMA data_version`); if not, rows that were read or written here are still current.

In: the rows an operation needs, and those it wrote.
Out: the same rows, from memory where possible.
Never: a row that another connection may have changed.
"""

from __future__ import annotations

from typing import Final

from pokayoke.core.ledger.records import Record
from pokayoke.core.state.kill_switch import SwitchState
from pokayoke.core.state.run_state import RunState
from pokayoke.stores.encryption import Seal
from pokayoke.stores.operations import ReadRows, ReadSet, WriteSet
from pokayoke.stores.sql import statements
from pokayoke.stores.sqlite.connection import SqliteConnection

_MOST: Final = 4_096
"""Cached runs and open records; beyond that the cache is emptied."""
_NO_READS: Final = ReadSet()
_NO_ROWS: Final = ReadRows()


class WriterCache:
    """Caches open records, runs and switches, for the thread that holds the writer's connection in a transaction.

    Settled records are not cached: their outputs may be long, and they are rarely needed again soon.

    Args:
        seal: opens outputs and arguments.
    """

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self._version = -1
        self._records: dict[str, Record] = {}
        self._runs: dict[str, RunState | None] = {}
        self._board: SwitchState | None = None

    def read_rows(self, connection: SqliteConnection, need: ReadSet) -> ReadRows:
        """Return the rows an operation needs; read only those that are not cached."""
        if self._version != connection.version:
            self._clear_rows(connection.version)
        record = None if need.record is None else self._records.get(need.record)
        run_known = need.run in self._runs
        board = self._board if need.board == "switches" else None
        lacks = ReadSet(
            need.record if record is None else None,
            None if run_known else need.run,
            need.keeps_run,
            need.counters,
            need.fingerprint,
            need.approval,
            "none" if board is not None else need.board,
        )
        found = self._read_missing(connection, lacks) if lacks != _NO_READS else _NO_ROWS
        run = self._runs[need.run] if need.run is not None and run_known else found.run
        if need.run is not None and not run_known:
            self._runs[need.run] = run
        if need.board != "none" and board is None:
            board = self._board = SwitchState(switches=found.board.switches)
        return ReadRows(
            record or found.record,
            run,
            found.used,
            found.approval,
            found.board if need.board == "all" else board or SwitchState(),
        )

    def _read_missing(self, connection: SqliteConnection, lacks: ReadSet) -> ReadRows:
        rows = [connection.fetch(*statement) for statement in statements.read_statements(lacks)]
        return statements.parse_rows(lacks, rows, self._seal)

    def remember_writes(self, changes: WriteSet) -> None:
        """Cache the rows an operation has written."""
        record, run = changes.record, changes.run
        if record is not None:
            if record.state == "executing":
                self._records[record.key] = record
            else:
                self._records.pop(record.key, None)
        if run is not None:
            self._runs[run.run_id] = run
        if changes.board is not None:
            self._board = None
        if len(self._records) > _MOST or len(self._runs) > _MOST:
            self._clear_rows(self._version)

    def _clear_rows(self, version: int) -> None:
        self._version, self._board = version, None
        self._records.clear()
        self._runs.clear()
