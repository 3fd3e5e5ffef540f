"""The store of `store=None`: everything in this process, one lock, nothing survives."""

from __future__ import annotations

import threading
from collections import deque

import msgspec

from pokayoke.core import admission
from pokayoke.core.admission import Approval, Held, Request, Used
from pokayoke.core.ledger import Answer, Record, Settlement, settle
from pokayoke.core.state import RunState
from pokayoke.errors import StoreError
from pokayoke.stores.base import Store


class MemoryStore(Store):
    """Stops duplicates within a run of this process; `doctor` says that it cannot do more.

    Records are kept as long as the store lives: forgetting one would allow the effect again. Their
    outputs are kept up to a limit, the oldest go first: a repetition of theirs is then answered
    without its value.

    Args:
        max_output_bytes: bytes of recorded outputs that are kept.
    """

    durable = False

    def __init__(self, max_output_bytes: int = 32_000_000) -> None:
        """Begin empty."""
        self._lock = threading.Lock()
        self._max_output_bytes = max_output_bytes
        self._output_bytes = 0
        self._with_output: deque[str] = deque()
        self._records: dict[str, Record] = {}
        self._runs: dict[str, RunState] = {}
        self._used: dict[str, Used] = {}
        self._approvals: dict[str, Approval] = {}

    def admit(self, request: Request) -> Answer:
        """Decide over a request while the lock is held."""
        claim, asked = request.claim, request.approval
        with self._lock:
            held = Held(
                self._runs.get(request.run_id) or RunState(request.run_id),
                self._records.get(claim.key) if claim else None,
                {c.counter: self._used[c.counter] for c in request.charges if c.counter in self._used},
                self._approvals.get(asked.fingerprint) if asked else None,
            )
            kept = admission.admit(request, held)
            if kept.record is not None:
                self._records[kept.record.key] = kept.record
            if kept.used:
                self._used.update(kept.used)
            if kept.approval is not None:
                self._approvals[kept.approval.fingerprint] = kept.approval
        return kept.answer

    def settle(self, settlement: Settlement) -> bool:
        """Record what became of a claim."""
        with self._lock:
            record, accepted = settle(self._records.get(settlement.key), settlement)
            if record is not None:
                self._records[record.key] = record
                if record.output is not None:
                    self._keep_output(record.key, record.output)
        return accepted

    def _keep_output(self, key: str, output: bytes) -> None:
        self._with_output.append(key)
        self._output_bytes += len(output)
        while self._output_bytes > self._max_output_bytes:
            oldest = self._records[self._with_output.popleft()]
            self._output_bytes -= len(oldest.output or b"")
            self._records[oldest.key] = msgspec.structs.replace(oldest, output=None)

    def record(self, key: str) -> Record | None:
        """Return the ledger record of a key."""
        return self._records.get(key)

    def load_run(self, run_id: str) -> RunState | None:
        """Return what a run of this process left behind."""
        return self._runs.get(run_id)

    def save_run(self, state: RunState) -> None:
        """Keep a run's state."""
        with self._lock:
            self._runs[state.run_id] = state

    def propose(self, approval: Approval) -> None:
        """Keep a question, unless it is known."""
        with self._lock:
            self._approvals.setdefault(approval.fingerprint, approval)

    def approvals(self) -> tuple[Approval, ...]:
        """Return all questions, oldest first."""
        with self._lock:
            return tuple(sorted(self._approvals.values(), key=lambda approval: approval.asked_at))

    def decide(self, approval_id: str, *, approved: bool, by: str, reason: str, now: float) -> Approval:
        """Answer a question that waits."""
        with self._lock:
            known = next((a for a in self._approvals.values() if a.id == approval_id), None)
            if known is None:
                raise StoreError(f"there is no approval {approval_id!r}; see guard.approvals.list()")
            known = known.at(now)
            if known.status != "waiting":
                raise StoreError(f"approval {approval_id!r} is {known.status} already; the call has to ask again")
            decided = msgspec.structs.replace(
                known, status="approved" if approved else "denied", by=by, reason=reason, decided_at=now
            )
            self._approvals[decided.fingerprint] = decided
        return decided
