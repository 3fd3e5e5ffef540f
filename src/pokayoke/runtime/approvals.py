"""Questions to people: list them, answer them, wait for an answer."""

from __future__ import annotations

from collections.abc import Callable

from pokayoke.core.admission import Approval
from pokayoke.errors import StoreError
from pokayoke.runtime.clock import Clock
from pokayoke.stores.base import Store

_POLL = 0.2


class Approvals:
    """`guard.approvals`. A question is bound to one call; an edited call asks anew."""

    def __init__(self, store: Store, clock: Clock, reviewed: Callable[[Approval], None]) -> None:
        """`reviewed` is told of a person's consent to go on after an invalid output."""
        self._store, self._clock, self._reviewed = store, clock, reviewed

    def list(self, *, waiting: bool = True) -> tuple[Approval, ...]:
        """Return the questions, oldest first; only those that wait, unless told otherwise."""
        now = self._clock.now()
        known = (approval.at(now) for approval in self._store.approvals())
        return tuple(a for a in known if a.status == "waiting" or not waiting)

    def approve(self, approval_id: str, *, by: str = "unnamed", reason: str = "") -> Approval:
        """Say yes. The same call, sent again, then runs. Errors as in `answer`."""
        return self.answer(approval_id, approved=True, by=by, reason=reason)

    def deny(self, approval_id: str, *, by: str = "unnamed", reason: str = "") -> Approval:
        """Say no. The same call, sent again, is refused. Errors as in `answer`."""
        return self.answer(approval_id, approved=False, by=by, reason=reason)

    def answer(self, approval_id: str, *, approved: bool, by: str, reason: str) -> Approval:
        """Answer a question.

        Raises:
            StoreError: there is no such question, or it does not wait any more.
        """
        decided = self._store.answer(approval_id, approved=approved, by=by, reason=reason, now=self._clock.now())
        if decided.kind == "output" and approved:
            self._reviewed(decided)
        return decided

    def wait(self, approval_id: str, timeout: float = 60.0) -> Approval:
        """Block until the question is answered or has expired, `timeout` seconds at most.

        Raises:
            StoreError: there is no such question.
        """
        end = self._clock.monotonic() + timeout
        while True:
            known = next((a for a in self.list(waiting=False) if a.id == approval_id), None)
            if known is None:
                raise StoreError(f"there is no approval {approval_id!r}; see guard.approvals.list()")
            if known.status != "waiting" or self._clock.monotonic() >= end:
                return known
            self._clock.sleep(_POLL)
