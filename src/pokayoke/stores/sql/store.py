"""The queries that all SQL stores share.

In: keys and queries.
Out: rows as values of the core.
Never: a write.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from pokayoke.core.ledger.admission import Approval
from pokayoke.core.ledger.records import Record
from pokayoke.core.state.kill_switch import OutputRate, Switch
from pokayoke.core.state.run_state import RunState
from pokayoke.stores.base import Store
from pokayoke.stores.encryption import VARIABLE, Seal
from pokayoke.stores.operations import find_unique
from pokayoke.stores.sql import queries, rows
from pokayoke.stores.sql.dialect import Statement
from pokayoke.stores.sql.rows import Row
from pokayoke.stores.values import AuditEntry, RecordQuery


class SqlStore(Store):
    """A durable store in a database.

    Args:
        seal: opens sealed values.
    """

    durable = True

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self.sealed = seal.has_key

    @abstractmethod
    def _fetch_rows(self, statement: Statement) -> Sequence[Row]:
        """Return the rows of a statement."""

    def load_run(self, run_id: str) -> RunState | None:
        """Return the stored state of a run, or None if it is new."""
        found = self._fetch_rows(queries.select_run(run_id))
        return rows.parse_run(found[0]) if found else None

    def approvals(self) -> tuple[Approval, ...]:
        """Return all questions, oldest first."""
        return tuple(rows.parse_for_listing(row, self._seal) for row in self._fetch_rows(queries.select_approvals()))

    def approval(self, approval_id: str) -> Approval | None:
        """Return the question with this id, or None."""
        found = find_unique(self._fetch_rows(queries.select_approval(approval_id)), approval_id)
        return None if found is None else rows.parse_approval(found, self._seal)

    def switches(self) -> tuple[Switch, ...]:
        """Return every switch that was ever flipped, by scope."""
        return tuple(map(rows.parse_switch, self._fetch_rows(queries.select_switches())))

    def rates(self) -> tuple[OutputRate, ...]:
        """Return the latest outputs of every tool, by name."""
        return tuple(map(rows.parse_rate, self._fetch_rows(queries.select_rates())))

    def record(self, key: str) -> Record | None:
        """Return the ledger record of a key."""
        found = self._fetch_rows(queries.select_record(key))
        return rows.parse_record(found[0], self._seal) if found else None

    def records(self, query: RecordQuery) -> tuple[Record, ...]:
        """Return records in the order of their keys, without their outputs."""
        return tuple(rows.parse_record(row, self._seal) for row in self._fetch_rows(queries.select_records(query)))

    def audit(self, *, after: int = 0, limit: int = 1_000) -> tuple[AuditEntry, ...]:
        """Return audit lines after a number, oldest first."""
        return tuple(map(rows.parse_entry, self._fetch_rows(queries.select_audit(after, limit))))

    def weaknesses(self) -> tuple[str, ...]:
        """Return where this store guarantees less than the documentation promises, one sentence each."""
        if self.sealed:
            return ()
        return (f"recorded outputs are not sealed: set {VARIABLE}, or those with a secret are not kept",)
