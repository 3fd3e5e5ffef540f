"""Questions to people: list them, answer them, wait for an answer.

A question lives in the store and nowhere else. So it survives a restart, any process may answer it, and waiting
for it holds no transaction, no connection and no thread.

In: ids and answers of people.
Out: questions in their present state.
Never: an answer to another question than the one it names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator

import msgspec

from pokayoke.core.flow.questions import apply_approved_review
from pokayoke.core.host_input import as_text_id
from pokayoke.core.ledger.admission import Approval
from pokayoke.core.state.run_state import RunState
from pokayoke.errors import StoreError
from pokayoke.runtime.threads.clock import Clock, SystemClock
from pokayoke.stores.base import Store
from pokayoke.stores.operations import Operation, ReadRows, ReadSet, WriteSet, answer_operation

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_REVIEW = "rv-"


class Approvals:
    """The questions of a store. A question is bound to one call; an edited call asks again.

    Args:
        store: holds the questions.
        clock: gives the time.
        reviewed: called when a person consents to go on after an invalid output; the run's latch is open by then.
    """

    def __init__(
        self, store: Store, clock: Clock | None = None, reviewed: Callable[[Approval], None] | None = None
    ) -> None:
        self._store, self._reviewed = store, reviewed
        self._clock: Clock = clock or SystemClock()

    def list(self, *, waiting: bool = True) -> tuple[Approval, ...]:
        """Return the questions, oldest first; with `waiting`, only those that wait for an answer."""
        now = self._clock.now()
        known = (approval.at(now) for approval in self._store.approvals())
        return tuple(a for a in known if a.status == "waiting" or not waiting)

    def get(self, approval_id: str) -> Approval:
        """Return one question in its present state.

        Raises:
            StoreError: there is no such question, there are several, or no present key opens its arguments.
        """
        found = self._store.approval(approval_id)
        if found is None:
            raise StoreError(f"there is no approval {approval_id!r}; `pokayoke approvals list` shows those that wait")
        return found.at(self._clock.now())

    def approve(self, approval_id: str, *, by: str = "unnamed", reason: str = "") -> Approval:
        """Approve. The same call then runs when it is sent again; one that needs two people waits for the second.

        Errors as in `answer`.
        """
        return self.answer(approval_id, approved=True, by=by, reason=reason)

    def deny(self, approval_id: str, *, by: str = "unnamed", reason: str = "") -> Approval:
        """Deny. The same call stays refused when it is sent again. Errors as in `answer`."""
        return self.answer(approval_id, approved=False, by=by, reason=reason)

    def answer(self, approval_id: str, *, approved: bool, by: str, reason: str) -> Approval:
        """Answer a question. Approving a review opens the latch of its run in the same transaction.

        Raises:
            StoreError: there is no such question, there are several, it no longer waits, or it needs a second person
                and this is the first one again.
            UsageError: the id is not a text.
        """
        approval_id, now = as_text_id(approval_id, "approval_id"), self._clock.now()
        if approved and approval_id.startswith(_REVIEW):
            act = review_operation(self.get(approval_id), by=by, reason=reason, now=now)
            decided = self._store.run(act)
            if self._reviewed is not None:
                self._reviewed(decided)
            return decided
        return self._store.answer(approval_id, approved=approved, by=by, reason=reason, now=now)

    def wait(self, approval_id: str, timeout: float | None = 60.0) -> Approval:
        """Block until the question is answered or has expired, at most `timeout` seconds (None: no limit).

        Raises:
            StoreError: there is no such question.
        """
        for pause in self._poll_pauses(timeout):
            known = self.get(approval_id)
            if known.status != "waiting" or pause is None:
                return known
            self._clock.sleep(pause)
        raise AssertionError("the last round returns")

    async def await_(self, approval_id: str, timeout: float | None = 60.0) -> Approval:  # noqa: ASYNC109 - as in `wait`
        """`wait` without blocking the event loop."""
        from asyncio import to_thread  # noqa: PLC0415 - 20 ms of import, needed by asynchronous callers only

        for pause in self._poll_pauses(timeout):
            # A durable store reads from a disk or a network.
            known = await to_thread(self.get, approval_id) if self._store.durable else self.get(approval_id)
            if known.status != "waiting" or pause is None:
                return known
            await self._clock.asleep(pause)
        raise AssertionError("the last round returns")

    def _poll_pauses(self, timeout: float | None) -> Generator[float | None]:
        """Yield the seconds to wait before each further check, growing; None when the time is over."""
        end = math.inf if timeout is None else self._clock.monotonic() + timeout
        pause = _FIRST_PAUSE
        while (left := end - self._clock.monotonic()) > 0:
            yield min(pause, left)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
        yield None


def review_operation(review: Approval, *, by: str, reason: str, now: float) -> Operation[Approval]:
    """Approve a review and open the latch of its run, in one transaction.

    Args:
        review: the question, of kind `output`.
        by: the person.
        reason: why.
        now: wall-clock second.
    """
    plain = answer_operation(review.id, approved=True, by=by, reason=reason, now=now)
    if review.kind != "output":
        return plain

    def decide_review(books: ReadRows) -> tuple[WriteSet, Approval]:
        changes, after = plain.decide(books)
        before = books.run or RunState(review.run_id)
        opened = apply_approved_review(before, review)
        if changes.approval is None or opened is before:
            return changes, after
        opened = msgspec.structs.replace(opened, version=before.version + 1)
        return msgspec.structs.replace(changes, run=opened), after

    return Operation(plain.name, ReadSet(approval=review.id, run=review.run_id, keeps_run=False), decide_review)
