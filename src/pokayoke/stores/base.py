"""The interface of every store.

In: operations, and queries by people and reports.
Out: rows as values of the core.
Never: a rule. The core decides; a store only reads and writes, in one transaction per operation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, TypeVar

from pokayoke.core.ledger.admission import AdmissionRequest, Approval
from pokayoke.core.ledger.records import Admission, Record, Resolution, Settlement, SettleResult
from pokayoke.core.state.kill_switch import OutputObservation, OutputRate, Switch
from pokayoke.core.state.run_state import RunState
from pokayoke.errors import StoreError
from pokayoke.stores import lists, operations
from pokayoke.stores.lists import AuditFilter, EffectFilter, Overview, Pulse, RunEntry, RunFilter
from pokayoke.stores.operations import Operation
from pokayoke.stores.values import AuditEntry, RecordQuery, RunChange, SwitchCommand

__all__ = ["AuditEntry", "RecordQuery", "RunChange", "Store", "SwitchCommand"]

T = TypeVar("T")
_EVERY = 1_000_000_000
_EVERY_RECORD = RecordQuery(limit=_EVERY)
_LAST_LINE = AuditFilter(limit=1)
_NO_DATABASE = "{} holds no database that a {} could reach, so the effect {} cannot be completed in its transaction"


class Store(ABC):
    """The ledger, the limits, the approvals, the switches and the state of runs.

    Every method is one atomic operation. Every method may raise `StoreError` or the driver's own error;
    a call answers either with a refusal. The methods with the prefix `a` are for asynchronous callers;
    a store that never waits serves them with the synchronous ones.

    Attributes:
        durable: True if its content survives the process.
        sealed: True if stored values are encrypted, or never leave the process.
    """

    durable: bool = False
    sealed: bool = True

    @property
    def needs_await(self) -> bool:
        """Whether asynchronous callers have to wait: False if the synchronous methods serve them too."""
        kind = type(self)
        return kind.arun is not Store.arun or kind.asettle is not Store.asettle

    # -- what each kind of store implements --------------------------------------------------------

    @abstractmethod
    def run(self, operation: Operation[T]) -> T:
        """Carry out an operation in one transaction."""

    async def arun(self, operation: Operation[T]) -> T:
        """`run` for asynchronous callers."""
        return self.run(operation)

    @abstractmethod
    def load_run(self, run_id: str) -> RunState | None:
        """Return the stored state of a run, or None if it is new."""

    @abstractmethod
    def approvals(self) -> tuple[Approval, ...]:
        """Return all questions, oldest first; arguments that no present key can open are `SEALED`."""

    def approval(self, approval_id: str) -> Approval | None:
        """Return the question with this id, or None.

        Raises:
            StoreError: several questions have that id.
        """
        return operations.find_unique([known for known in self.approvals() if known.id == approval_id], approval_id)

    @abstractmethod
    def switches(self) -> tuple[Switch, ...]:
        """Return every switch that was ever flipped, by scope."""

    @abstractmethod
    def rates(self) -> tuple[OutputRate, ...]:
        """Return the latest outputs of every tool, by name."""

    @abstractmethod
    def record(self, key: str) -> Record | None:
        """Return the ledger record of a key."""

    @abstractmethod
    def records(self, query: RecordQuery) -> tuple[Record, ...]:
        """Return records in the order of their keys, without their outputs."""

    @abstractmethod
    def audit(self, *, after: int = 0, limit: int = 1_000) -> tuple[AuditEntry, ...]:
        """Return audit lines after a number, oldest first."""

    # A store without a database finds pages among everything; one with a database overrides these.

    def effects(self, wanted: EffectFilter) -> tuple[Record, ...]:
        """Return a page of effects without their outputs: the latest claim first, of doubts the oldest."""
        return lists.select_effects(self.records(_EVERY_RECORD), wanted)

    def count_effects(self, wanted: EffectFilter) -> int:
        """Return how many effects a filter finds, wherever its page begins, up to `lists.MOST_COUNTED` + 1."""
        return lists.count_effects(self.records(_EVERY_RECORD), wanted)

    def waiting_approvals(
        self, now: float, *, after: tuple[float, str] | None = None, limit: int = lists.PAGE
    ) -> tuple[Approval, ...]:
        """Return a page of waiting questions; the one that expires first comes first.

        Args:
            now: wall-clock second; what has expired by then waits no more.
            after: time of expiry and fingerprint of the last row of the page before.
            limit: how many at most.
        """
        return lists.select_waiting(self.approvals(), now, after, limit)

    def audit_lines(self, wanted: AuditFilter) -> tuple[AuditEntry, ...]:
        """Return a page of the audit, the latest line first."""
        return lists.select_lines(self.audit(limit=_EVERY), wanted)

    def runs(self, wanted: RunFilter) -> tuple[RunEntry, ...]:
        """Return a page of the stored runs, the latest change first. A run that was never changed is not stored."""
        return lists.select_runs((), wanted)

    def overview(self, now: float) -> Overview:
        """Return the figures that say whether a person is needed."""
        runs = self.runs(RunFilter(limit=_EVERY))
        return lists.build_overview(self.approvals(), self.records(_EVERY_RECORD), runs, now)

    def board(self) -> tuple[tuple[Switch, ...], tuple[OutputRate, ...]]:
        """Return `switches()` and `rates()`, read at one moment."""
        return self.switches(), self.rates()

    def pulse(self, now: float) -> Pulse:
        """Return what changes with every change that a page shows; it costs a store little."""
        records, approvals = self.records(_EVERY_RECORD), self.approvals()
        times = [max(one.claimed_at, one.settled_at or 0.0) for one in records]
        mark = (sum(times), float(len(approvals)), *(float(entry.number) for entry in self.audit_lines(_LAST_LINE)))
        return Pulse(
            len(self.waiting_approvals(now, limit=lists.MOST_COUNTED + 1)),
            self.count_effects(EffectFilter(doubtful_at=now)),
            mark,
        )

    @abstractmethod
    def prune(self, before: float, *, by: str, now: float) -> int:
        """Delete settled records, answered questions and idle runs from before a wall-clock second.

        Limits per day and per run go with their day and their run; all other limits stay. Records that are
        executing or in doubt stay, and so does a run that was stopped or is latched. Returns the number of
        deleted records.
        """

    def weaknesses(self) -> tuple[str, ...]:
        """Return where this store guarantees less than the documentation promises, one sentence each."""
        return ()

    def close(self) -> None:  # noqa: B027 - most stores hold something, memory does not
        """Release what the store holds outside the process."""

    # -- calls -----------------------------------------------------------------------------------

    def admit(self, request: AdmissionRequest) -> Admission:
        """Decide a request and store the consequences. The same request again gets the same answer."""
        return self.run(operations.admit_operation(request))

    async def aadmit(self, request: AdmissionRequest) -> Admission:
        """`admit` for asynchronous callers."""
        return await self.arun(operations.admit_operation(request))

    def settle(self, settlement: Settlement) -> SettleResult:
        """Record how a claim ended. A completion whose claim was lost is stored as a late effect."""
        return self.run(operations.settle_operation(settlement))

    async def asettle(self, settlement: Settlement) -> SettleResult:
        """`settle` for asynchronous callers."""
        return await self.arun(operations.settle_operation(settlement))

    def settle_on(self, conn: Any, settlement: Settlement) -> bool:
        """`settle` inside a transaction of the user's own connection. Returns whether it was accepted.

        Raises:
            StoreError: this kind of store has no database that the connection could reach.
        """
        raise StoreError(_NO_DATABASE.format(type(self).__name__, type(conn).__name__, settlement.key[:12]))

    async def asettle_on(self, conn: Any, settlement: Settlement) -> bool:
        """`settle_on` for an asynchronous connection."""
        return self.settle_on(conn, settlement)

    def change_run(self, run_id: str, change: RunChange) -> tuple[RunState, RunState]:
        """Change a run's state by a pure function. Returns the state before and after; later admissions see it."""
        return self.run(operations.change_run_operation(run_id, change))

    async def achange_run(self, run_id: str, change: RunChange) -> tuple[RunState, RunState]:
        """`change_run` for asynchronous callers."""
        return await self.arun(operations.change_run_operation(run_id, change))

    def observe(self, seen: Iterable[OutputObservation], now: float) -> tuple[Switch, ...]:
        """Count outputs. Returns the switches that they flipped."""
        return self.run(operations.observe_operation(seen, now))

    # -- people ----------------------------------------------------------------------------------

    def propose(self, approval: Approval) -> None:
        """Store a question to a person, unless it is stored already."""
        self.run(operations.propose_operation(approval))

    def answer(self, approval_id: str, *, approved: bool, by: str, reason: str, now: float) -> Approval:
        """Answer a question.

        Raises:
            StoreError: there is no such question, there are several, or it no longer waits.
        """
        return self.run(operations.answer_operation(approval_id, approved=approved, by=by, reason=reason, now=now))

    def decide(self, decision: Resolution) -> Record:
        """Resolve a doubt by a person's decision.

        Raises:
            StoreError: there is no such record, or it is not in doubt.
        """
        return self.run(operations.decide_operation(decision))

    def flip(self, flip: SwitchCommand) -> Switch:
        """Open or close a switch by hand. Returns the switch after that."""
        return self.run(operations.flip_operation(flip))

    def note(self, entry: AuditEntry) -> None:
        """Add a line to the audit."""
        self.run(operations.note_operation(entry))
