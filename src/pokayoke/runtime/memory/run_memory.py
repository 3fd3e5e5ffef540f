"""What a run remembers while it is open: its state, and what it has used up.

In: changes of the state, and counts.
Out: the state, here and in the store.
Never: a change that is lost because the store could not be reached.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Final

import msgspec

from pokayoke.core.call import Finding, StopReason
from pokayoke.core.context.tokens import TokenCounter
from pokayoke.core.flow.failures import store_error_text
from pokayoke.core.flow.plan import Snapshot
from pokayoke.core.ledger.admission import AdmissionRequest, Approval
from pokayoke.core.ledger.records import EXECUTE, Admission
from pokayoke.core.policy import BudgetPolicy
from pokayoke.core.state.loop_guard import TurnHistory, count_round, is_clean, tools_off_instruction, tools_off_reason
from pokayoke.core.state.run_state import (
    LoopCount,
    RunState,
    begin_turn,
    block_finding,
    budget_finding,
    is_same_turn,
    step_down_to,
    text_digest,
)
from pokayoke.core.versions.rollout import pin_versions
from pokayoke.runtime.memory.call_log import CallLog
from pokayoke.runtime.memory.completed_writes import CompletedWrites
from pokayoke.runtime.memory.offloaded_texts import OffloadedTexts
from pokayoke.runtime.memory.value_sources import ValueSources
from pokayoke.runtime.threads.clock import Clock
from pokayoke.runtime.threads.coroutines import run_in_thread
from pokayoke.stores.base import Store
from pokayoke.stores.operations import propose_operation

MOST_USER_TEXT: Final = 500
"""Characters of the user's text that a question to a person shows."""

StateChange = Callable[[RunState], RunState]


def exhaust_budget(state: RunState) -> RunState:
    """A change: a budget is used up, so only an answer is left."""
    return step_down_to(state, "final_answer", "budget_exhausted")


class RunMemory:
    """The moving parts of a run, behind one lock.

    Attributes:
        state: what a restart would find.
        rounds: what this turn has seen.
        tenant: whose run it is, if there are several tenants.
        tokens: the token counter.
        matters: what became of the calls.
        written: what it has written, for the note of a shortened history.
        texts: long texts that were put aside.
        values: where its values come from.
        user_text: the beginning of the user's text in this turn.
        unsaved: what failure kept the store from knowing all this, or None if it knows.
    """

    def __init__(
        self, state: RunState, store: Store, clock: Clock, tenant: str | None = None, *, named: bool = False
    ) -> None:
        """Go on from `state`. Only a run the host has named may have been open before."""
        self.state, self.tenant = state, tenant
        self.rounds = TurnHistory()
        self.user_text = ""
        self.tokens = TokenCounter()
        if state.tokens:
            self.tokens.report(state.tokens)
        self.matters = CallLog(store, state.run_id, named=named, was_open=state.step > 0)
        self.written = CompletedWrites(store, state.run_id)
        self.texts = OffloadedTexts()
        self.values = ValueSources(is_tainted=state.has_read)
        self._store, self._clock = store, clock
        self._lock = threading.RLock()
        self._loop, self._answered = state.loop, state.answered
        self._step = state.step
        self._other_calls = state.calls - state.step  # that were counted without a step of this run's
        self._rounds = self._kept_rounds = state.rounds
        self._in_batch = 0
        # What is counted is the time since the first opening; a wall clock that was set back adds nothing.
        self._begun = clock.monotonic() - (max(0.0, clock.now() - state.started) if state.started else 0.0)
        self.unsaved: str | None = None
        self._pending: dict[int, StateChange] = {}
        self._numbers = itertools.count()

    def reset_after_fork(self) -> None:
        """Begin anew in a child process, whose parent may have held the lock."""
        self._lock = threading.RLock()
        self.matters.reset_after_fork()
        self.written.reset_after_fork()
        self.texts.reset_after_fork()
        self.values.reset_after_fork()

    @property
    def step(self) -> int:
        """The number of the latest call."""
        return self._step

    @property
    def round_number(self) -> int:
        """The number of the round that is counted: one call, or the calls of one message."""
        return self._rounds

    @property
    def effects(self) -> int:
        """See `CallLog.effects`."""
        return self.matters.effects

    def next_step(self) -> int:
        """Count a call and return its number."""
        with self._lock:
            self._step = step = self._step + 1
            if not self._in_batch:
                self._rounds += 1
            return step

    @contextmanager
    def count_one_round(self) -> Generator[None]:
        """Count everything inside as one round."""
        with self._lock:
            self._rounds += 1
            self._in_batch += 1
        try:
            yield
        finally:
            with self._lock:
                self._in_batch -= 1

    def change_state(self, how: StateChange, review: Approval | None = None) -> tuple[RunState, RunState]:
        """Change the state where every process finds it. Returns the states before and after."""
        return run_in_thread(self.achange_state(how, review, may_wait=False))

    async def achange_state(
        self, how: StateChange, review: Approval | None = None, *, may_wait: bool = True
    ) -> tuple[RunState, RunState]:
        """`change_state` without blocking the event loop; with `may_wait=False` it blocks the thread after all."""
        with nullcontext() if may_wait else self._lock:  # a lock that is held across a wait would block the loop
            with self._lock:
                waiting = self._add_pending(how)
            store, run_id, change = self._store, self.state.run_id, self._compose_changes(waiting)
            try:
                before, after = (
                    await store.achange_run(run_id, change) if may_wait else store.change_run(run_id, change)
                )
            except BaseException as error:  # noqa: BLE001 - a store may raise anything; until it is reached, writes are refused
                with self._lock:
                    return self._apply_unsaved(how, error)
            with self._lock:
                self._confirm_changes(after, waiting)
            if review is not None:
                await self._keep_question(review, may_wait=may_wait)
        return before, after

    def pin_versions(self, versions: Mapping[str, str]) -> str | None:
        """Keep to these versions of tools, where nothing is pinned yet. Returns why it could not be kept, or None."""
        self.change_state(lambda state: pin_versions(state, versions))
        return self.unsaved

    def save_totals(self) -> str | None:
        """Keep the totals, and what could not be kept so far. Returns why that was impossible, or None."""
        self.change_state(self.with_totals)
        return self.unsaved

    def with_totals(self, state: RunState) -> RunState:
        """A change: the state with what this run has used up by now."""
        totals = {
            "step": max(state.step, self._step),
            "calls": max(state.calls, self._step + self._other_calls),
            "rounds": max(state.rounds, self._rounds),
            "tokens": max(state.tokens, self.tokens.total),
            "started": state.started or self.state.started,
            "loop": self._loop,
            "answered": self._answered,
            "tenant": self.tenant if state.tenant is None else state.tenant,
        }
        if all(getattr(state, name) == value for name, value in totals.items()):
            return state
        return msgspec.structs.replace(state, **totals)

    def begin_turn(self, text: str, message_id: str | None) -> None:
        """Begin the user's next turn, unless this message belongs to the present one."""
        self.values.add_words(text)
        self.user_text = text[:MOST_USER_TEXT].encode("utf-8", "replace").decode()
        asked, ident = text_digest(text), None if message_id is None else text_digest(message_id)
        if is_same_turn(self.state, asked, ident):
            return
        self.rounds.clear()
        self.matters.begin_turn()
        self._loop, self._answered = LoopCount(), False
        self.change_state(partial(begin_turn, asked=asked, message_id=ident))

    def end_turn(self) -> None:
        """Take note that the turn has its answer; the store learns it with the totals."""
        self._answered = True
        self.state = msgspec.structs.replace(self.state, answered=True)

    def end_round(self, snapshot: Snapshot) -> tuple[StateChange | None, StopReason | None]:
        """Count the round that has ended, unless a wider one is open.

        Returns:
            What has to be kept, if anything, and why that takes the tools away, if it does. The count is written down
            only when it grows: after a restart a streak may be longer than it was.
        """
        if self._in_batch:
            return None, None
        with self._lock:
            more = snapshot.budgeted and self._rounds != self._kept_rounds
            if more:
                self._kept_rounds = self._rounds  # a process that is killed must not give a budget back
            worse, reason = self._count_round(snapshot)
        if reason is not None:
            return (lambda state: self.with_totals(step_down_to(state, "final_answer", reason))), reason
        return self.with_totals if more or worse else None, None

    def find_spent_budget(self, budgets: BudgetPolicy, call: int) -> Finding | None:
        """Say which budget is used up for this call (by its number), if one is: then only an answer is allowed."""
        used: tuple[tuple[str, float, float | None], ...] = (
            ("calls", call, budgets.calls),
            ("rounds", self._rounds, budgets.rounds),
            ("tokens", self.tokens.total, budgets.tokens),
            ("seconds", self._clock.monotonic() - self._begun, budgets.seconds),
        )
        for kind, amount, allowed in used:
            if allowed is not None and amount > allowed:
                return budget_finding(kind, amount, allowed)
        return None

    def admit_locally(self, request: AdmissionRequest) -> Admission:
        """Admit a call that nothing but this run's own state can stop."""
        finding = block_finding(self.state, request.effect, request.sources)
        return EXECUTE if finding is None else Admission("refuse", finding)

    def _count_round(self, snapshot: Snapshot) -> tuple[bool, StopReason | None]:
        """Let the loop guard look at the round. Returns whether a streak grew, and whether that is too much."""
        marks = self.rounds.end_round()
        if not marks or is_clean(self._loop, marks):
            return False, None
        policy, kinds, before = snapshot.policy.loop, {kind.name: kind for kind in snapshot.kinds}, self._loop
        self._loop = after = count_round(before, marks, kinds)
        if after.bad == before.bad:
            return False, None
        reason = tools_off_reason(after, policy, kinds)
        if reason is None or snapshot.policy.mode != "enforce":
            return True, None
        if not after.why:
            tools = (plan.contract.name for plan in snapshot.plans.values())
            self._loop = msgspec.structs.replace(after, why=tools_off_instruction(after, policy, kinds, tools))
        return True, reason

    def _add_pending(self, how: StateChange) -> dict[int, StateChange]:
        """One more change, and everything that waits to be kept."""
        if how == self.with_totals:  # the latest ones are enough, however often they could not be kept
            self._pending = {number: waits for number, waits in self._pending.items() if waits != how}
        self._pending[next(self._numbers)] = how
        return dict(self._pending)

    def _compose_changes(self, waiting: dict[int, StateChange]) -> StateChange:
        """All of these as one change of whatever the store holds by now."""

        def apply_all(state: RunState) -> RunState:
            after = state if state.version >= self.state.version else self.state  # the store has forgotten the run
            for how in waiting.values():
                after = how(after)
            return after if after is state else self.with_totals(after)

        return apply_all

    def _confirm_changes(self, after: RunState, kept: Iterable[int]) -> None:
        """The store took these changes. Those of other tasks, under way or not taken, hold here all the same."""
        for number in kept:
            self._pending.pop(number, None)
        if not self._pending:
            self.unsaved = None
        if after.version >= self.state.version:
            for how in self._pending.values():
                after = how(after)
            self.state = after

    def _apply_unsaved(self, how: StateChange, error: BaseException) -> tuple[RunState, RunState]:
        """The store did not take a change: it holds here, and is kept with the next one.

        So it does if the caller was cancelled or interrupted, who then gets to know that: what happened has happened.
        """
        before = self.state
        self.state = how(before)
        self.unsaved = store_error_text(error)
        if not isinstance(error, Exception):
            raise error
        return before, self.state

    async def _keep_question(self, review: Approval, *, may_wait: bool) -> None:
        operation = propose_operation(review)
        try:
            await self._store.arun(operation) if may_wait else self._store.run(operation)
        except Exception as error:  # noqa: BLE001 - as above; without the question the latch simply stays closed
            self.unsaved = store_error_text(error)
