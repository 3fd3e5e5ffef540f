"""What stores that speak SQL have in common: how they are looked at."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from pokayoke.core.ledger.admission import Approval
from pokayoke.core.ledger.transitions import Record
from pokayoke.core.state.kill_switch import Rate, Switch
from pokayoke.core.state.run_state import RunState
from pokayoke.stores.base import Store
from pokayoke.stores.encryption import VARIABLE, Seal
from pokayoke.stores.operations import only
from pokayoke.stores.sql import queries, rows
from pokayoke.stores.sql.dialect import Statement
from pokayoke.stores.sql.rows import Row
from pokayoke.stores.values import Entry, Query


class SqlStore(Store):
    """A store in a database; it is durable.

    Args:
        seal: opens what is sealed.
    """

    durable = True

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self.sealed = seal.in_use

    @abstractmethod
    def _read(self, statement: Statement) -> Sequence[Row]:
        """Return the rows of a statement."""

    def load_run(self, run_id: str) -> RunState | None:
        """Return what a run left behind, or None if it is new."""
        found = self._read(queries.load_run(run_id))
        return rows.run(found[0]) if found else None

    def approvals(self) -> tuple[Approval, ...]:
        """Return all questions, oldest first."""
        return tuple(rows.listed(row, self._seal) for row in self._read(queries.approvals()))

    def approval(self, approval_id: str) -> Approval | None:
        """Return one question, or None if there is none of that id."""
        found = only(self._read(queries.approval(approval_id)), approval_id)
        return None if found is None else rows.approval(found, self._seal)

    def switches(self) -> tuple[Switch, ...]:
        """Return every switch that was ever flipped, by scope."""
        return tuple(map(rows.switch, self._read(queries.switches())))

    def rates(self) -> tuple[Rate, ...]:
        """Return the latest outputs of every tool, by name."""
        return tuple(map(rows.rate, self._read(queries.rates())))

    def record(self, key: str) -> Record | None:
        """Return the ledger record of a key."""
        found = self._read(queries.record(key))
        return rows.record(found[0], self._seal) if found else None

    def records(self, query: Query) -> tuple[Record, ...]:
        """Return records in the order of their keys, without their outputs."""
        return tuple(rows.record(row, self._seal) for row in self._read(queries.records(query)))

    def audit(self, *, after: int = 0, limit: int = 1_000) -> tuple[Entry, ...]:
        """Return the lines of the audit after a number, oldest first."""
        return tuple(map(rows.entry, self._read(queries.audit(after, limit))))

    def weaknesses(self) -> tuple[str, ...]:
        """Return what holds less here than the documentation promises, one sentence each."""
        if self.sealed:
            return ()
        return (f"recorded outputs are not sealed: set {VARIABLE}, or those with a secret are not kept",)
