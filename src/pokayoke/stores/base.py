"""What every store can do. The rules are the core's; a store only reads and writes in one act."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pokayoke.core.admission import Approval, Request
from pokayoke.core.ledger import Answer, Record, Settlement
from pokayoke.core.state import RunState


class Store(ABC):
    """The ledger, the limits, the approvals and the state of runs.

    Every method may raise `StoreError` or the driver's own error; a call answers that with a
    refusal. The methods with an `a` are for asynchronous callers; a store that never waits for
    anything outside the process serves them with the plain ones.

    Attributes:
        durable: True if what it holds survives the process.
    """

    durable: bool = False

    @abstractmethod
    def admit(self, request: Request) -> Answer:
        """Decide over a request and keep the consequences, atomically."""

    @abstractmethod
    def settle(self, settlement: Settlement) -> bool:
        """Record what became of a claim. Returns False if the claim was lost to somebody else."""

    @abstractmethod
    def record(self, key: str) -> Record | None:
        """Return the ledger record of a key."""

    @abstractmethod
    def load_run(self, run_id: str) -> RunState | None:
        """Return what a run left behind, or None if it is new."""

    @abstractmethod
    def save_run(self, state: RunState) -> None:
        """Keep a run's state; from now on admissions see it."""

    @abstractmethod
    def propose(self, approval: Approval) -> None:
        """Keep a question to a person, unless one with the same fingerprint waits already."""

    @abstractmethod
    def approvals(self) -> tuple[Approval, ...]:
        """Return all questions, oldest first."""

    @abstractmethod
    def decide(self, approval_id: str, *, approved: bool, by: str, reason: str, now: float) -> Approval:
        """Answer a question.

        Raises:
            StoreError: there is no such question, or it is not waiting any more.
        """

    def close(self) -> None:  # noqa: B027 - most stores hold something, memory does not
        """Let go of what is held outside the process."""

    async def aadmit(self, request: Request) -> Answer:
        """`admit` for asynchronous callers."""
        return self.admit(request)

    async def asettle(self, settlement: Settlement) -> bool:
        """`settle` for asynchronous callers."""
        return self.settle(settlement)
