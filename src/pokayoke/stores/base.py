"""What every store can do. The rules are the core's; a store only reads and writes in one act."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, TypeVar

from pokayoke.core.ledger.admission import AdmissionRequest, Approval
from pokayoke.core.ledger.records import Admission, Record, Resolution, Settlement, SettleResult
from pokayoke.core.state.kill_switch import OutputObservation, OutputRate, Switch
from pokayoke.core.state.run_state import RunState
from pokayoke.errors import StoreError
from pokayoke.stores import operations as acts
from pokayoke.stores.operations import Operation
from pokayoke.stores.values import AuditEntry, RecordQuery, RunChange, SwitchCommand

__all__ = ["AuditEntry", "RecordQuery", "RunChange", "Store", "SwitchCommand"]

T = TypeVar("T")
_NO_DATABASE = "{} holds no database that a {} could reach, so the effect {} cannot be completed in its transaction"


class Store(ABC):
    """The ledger, the limits, the approvals, the switches and the state of runs.

    Every method is one act: nobody else sees or changes anything in between. Every method may raise
    `StoreError` or the driver's own error; a call answers that with a refusal. The methods with an
    `a` are for asynchronous callers; a store that never waits serves them with the plain ones.

    Attributes:
        durable: True if what it holds survives the process.
        sealed: True if what it holds of values is encrypted, or never leaves the process.
    """

    durable: bool = False
    sealed: bool = True

    @property
    def needs_await(self) -> bool:
        """Whether asynchronous callers really wait: False if the plain methods serve them, too."""
        kind = type(self)
        return kind.arun is not Store.arun or kind.asettle is not Store.asettle

    # -- what a kind of store has to know ----------------------------------------------------------

    @abstractmethod
    def run(self, act: Operation[T]) -> T:
        """Carry out an act in one transaction."""

    async def arun(self, act: Operation[T]) -> T:
        """`run` for asynchronous callers."""
        return self.run(act)

    @abstractmethod
    def load_run(self, run_id: str) -> RunState | None:
        """Return what a run left behind, or None if it is new."""

    @abstractmethod
    def approvals(self) -> tuple[Approval, ...]:
        """Return all questions, oldest first; arguments that cannot be opened with the keys at hand are `SEALED`."""

    def approval(self, approval_id: str) -> Approval | None:
        """Return one question, or None if there is none of that id.

        Raises:
            StoreError: there are several of that id.
        """
        return acts.find_unique([known for known in self.approvals() if known.id == approval_id], approval_id)

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
        """Return the lines of the audit after a number, oldest first."""

    @abstractmethod
    def prune(self, before: float, *, by: str, now: float) -> int:
        """Forget settled records, answered questions and idle runs from before a wall-clock second.

        Limits per day and per run are forgotten with their day and their run; all others stay. What is executing
        or in doubt stays, and so does a run that was stopped or is latched. Returns how many records went.
        """

    def weaknesses(self) -> tuple[str, ...]:
        """Return what holds less here than the documentation promises, one sentence each."""
        return ()

    def close(self) -> None:  # noqa: B027 - most stores hold something, memory does not
        """Let go of what is held outside the process."""

    # -- calls -----------------------------------------------------------------------------------

    def admit(self, request: AdmissionRequest) -> Admission:
        """Decide over a request and keep the consequences. The same request again gets the same answer."""
        return self.run(acts.admit_operation(request))

    async def aadmit(self, request: AdmissionRequest) -> Admission:
        """`admit` for asynchronous callers."""
        return await self.arun(acts.admit_operation(request))

    def settle(self, settlement: Settlement) -> SettleResult:
        """Record what became of a claim. A completion whose claim was lost is kept as a late effect."""
        return self.run(acts.settle_operation(settlement))

    async def asettle(self, settlement: Settlement) -> SettleResult:
        """`settle` for asynchronous callers."""
        return await self.arun(acts.settle_operation(settlement))

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
        """Change a run's state by a pure function; from now on admissions see it. Returns it before and after."""
        return self.run(acts.change_run_operation(run_id, change))

    async def achange_run(self, run_id: str, change: RunChange) -> tuple[RunState, RunState]:
        """`change_run` for asynchronous callers."""
        return await self.arun(acts.change_run_operation(run_id, change))

    def observe(self, seen: Iterable[OutputObservation], now: float) -> tuple[Switch, ...]:
        """Count outputs. Returns the switches that flipped because of them."""
        return self.run(acts.observe_operation(seen, now))

    # -- people ----------------------------------------------------------------------------------

    def propose(self, approval: Approval) -> None:
        """Keep a question to a person, unless it is known."""
        self.run(acts.propose_operation(approval))

    def answer(self, approval_id: str, *, approved: bool, by: str, reason: str, now: float) -> Approval:
        """Answer a question.

        Raises:
            StoreError: there is no such question, or several, or it is not waiting any more.
        """
        return self.run(acts.answer_operation(approval_id, approved=approved, by=by, reason=reason, now=now))

    def decide(self, decision: Resolution) -> Record:
        """Settle a doubt by a person's word.

        Raises:
            StoreError: there is no such record, or it is not in doubt.
        """
        return self.run(acts.decide_operation(decision))

    def flip(self, flip: SwitchCommand) -> Switch:
        """Open or close a switch by hand. Returns it as it stands."""
        return self.run(acts.flip_operation(flip))

    def note(self, entry: AuditEntry) -> None:
        """Add a line to the audit."""
        self.run(acts.note_operation(entry))
