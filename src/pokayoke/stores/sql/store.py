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
from pokayoke.stores.lists import PAGE, AuditFilter, EffectFilter, Overview, Pulse, RunEntry, RunFilter
from pokayoke.stores.operations import find_unique
from pokayoke.stores.sql import pages, queries, rows
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

    def effects(self, wanted: EffectFilter) -> tuple[Record, ...]:
        """Return a page of effects without their outputs."""
        return tuple(rows.parse_record(row, self._seal) for row in self._fetch_rows(pages.select_effects(wanted)))

    def count_effects(self, wanted: EffectFilter) -> int:
        """Return how many effects a filter finds, up to `lists.MOST_COUNTED` + 1."""
        return int(self._fetch_rows(pages.count_effects(wanted))[0][0])

    def waiting_approvals(
        self, now: float, *, after: tuple[float, str] | None = None, limit: int = PAGE
    ) -> tuple[Approval, ...]:
        """Return a page of waiting questions; the one that expires first comes first."""
        found = self._fetch_rows(pages.select_waiting(now, after, limit))
        return tuple(rows.parse_for_listing(row, self._seal) for row in found)

    def audit_lines(self, wanted: AuditFilter) -> tuple[AuditEntry, ...]:
        """Return a page of the audit, the latest line first."""
        return tuple(map(rows.parse_entry, self._fetch_rows(pages.select_lines(wanted))))

    def runs(self, wanted: RunFilter) -> tuple[RunEntry, ...]:
        """Return a page of the stored runs, the latest change first."""
        return tuple(map(rows.parse_run_entry, self._fetch_rows(pages.select_runs(wanted))))

    def overview(self, now: float) -> Overview:
        """Return the figures that say whether a person is needed."""
        return pages.parse_overview(self._fetch_rows(pages.select_overview(now)))

    def board(self) -> tuple[tuple[Switch, ...], tuple[OutputRate, ...]]:
        """Return `switches()` and `rates()`, read at one moment."""
        return pages.parse_board(self._fetch_rows(pages.select_board()))

    def pulse(self, now: float) -> Pulse:
        """Return what changes with every change that a page shows."""
        return pages.parse_pulse(self._fetch_rows(pages.select_pulse(now))[0])

    def weaknesses(self) -> tuple[str, ...]:
        """Return where this store guarantees less than the documentation promises, one sentence each."""
        if self.sealed:
            return ()
        return (f"recorded outputs are not sealed: set {VARIABLE}, or those with a secret are not kept",)
