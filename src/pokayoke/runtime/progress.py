"""What a run remembers while it is open: its state, what it has used up, what it has put aside."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager

import msgspec

from pokayoke.core.admission import Approval, Request
from pokayoke.core.answer import remember
from pokayoke.core.call import SUCCESSFUL, Finding, Outcome, StopReason, ToolCall
from pokayoke.core.ledger import EXECUTE, Answer, Claim, Record, compensation_key
from pokayoke.core.loop import Rounds, counted, exhausted, instruction
from pokayoke.core.plan import Snapshot
from pokayoke.core.policy import BudgetPolicy
from pokayoke.core.preview import page
from pokayoke.core.resolve import taken_back
from pokayoke.core.rollout import pinned
from pokayoke.core.state import LoopCount, RunState, begin_turn, blocked, over_budget, worsen
from pokayoke.core.tokens import TokenCounter
from pokayoke.errors import ToolError
from pokayoke.runtime.clock import Clock
from pokayoke.runtime.matter import Matter
from pokayoke.stores.acts import proposing
from pokayoke.stores.base import Query, Store

Change = Callable[[RunState], RunState]
_KEPT_TEXTS = 16
_FOOTER = 100  # characters that say how to go on
_KEPT_REFUSALS = 20
_ALL = 2**31 - 1
# Findings that an equal call would meet again.
_LASTING = frozenset({"permission_denied", "approval_denied", "failed_before"})


class Progress:
    """The moving parts of a run, behind one lock.

    Attributes:
        state: what a restart would find.
        rounds: what this turn has seen.
        tenant: whose run it is, if there are several tenants.
        tokens: the token counter.
        keeps_texts: True if there is something to page through.
        not_done: what did not end well, with reasons, in order; see `remember`.
        unmet: writes that were tried and not done, as the tool's name and the reason.
        open: calls in doubt or under way, and those that wait for a person, by key (a read: by tool).
        refused: calls that would be refused again.
    """

    def __init__(
        self, state: RunState, store: Store, clock: Clock, tenant: str | None = None, *, named: bool = False
    ) -> None:
        """Go on from `state`. Only a run the host has named may have been open before."""
        self.state, self.tenant = state, tenant
        self.rounds, self._loop = Rounds(), state.loop
        self.tokens = TokenCounter()
        if state.tokens:
            self.tokens.report(state.tokens)
        self._done: dict[str, str] = {}
        self._here: set[str] = set()
        self.not_done: dict[str, None] = {}
        self.unmet: dict[str, tuple[str, str]] = {}
        self._store, self._clock = store, clock
        self._lock = threading.RLock()
        self._step, self._calls, self._in_batch = state.step, state.calls, 0
        self._rounds = self._kept_rounds = state.rounds
        # What is counted is the time since the first opening; a wall clock that was set back adds nothing.
        self._begun = clock.monotonic() - (max(0.0, clock.now() - state.started) if state.started else 0.0)
        self._unsaved: str | None = None
        self._pending: dict[int, Change] = {}
        self._numbers = itertools.count()
        self.open: dict[str, Matter] = {}
        self.refused: OrderedDict[tuple[str, str], Matter] = OrderedDict()
        self._recalled, self._new_turn = not named, False
        self._texts: OrderedDict[str, str] = OrderedDict()
        self.keeps_texts, self._handles = False, 0

    def forked(self) -> None:
        """Begin anew in a child process, whose parent may have held the lock."""
        self._lock = threading.RLock()

    @property
    def step(self) -> int:
        """The number of the latest call."""
        return self._step

    def next_step(self) -> int:
        """Count a call and return its number."""
        with self._lock:
            self._step += 1
            self._calls += 1
            if not self._in_batch:
                self._rounds += 1
            return self._step

    @contextmanager
    def one_round(self) -> Generator[None]:
        """Count everything inside as one round."""
        with self._lock:
            self._rounds += 1
            self._in_batch += 1
        try:
            yield
        finally:
            with self._lock:
                self._in_batch -= 1

    def change(self, how: Change, review: Approval | None = None) -> tuple[RunState, RunState]:
        """Change the state where every process finds it. Returns the states before and after."""
        with self._lock:
            waiting = self._waiting_with(how)
            try:
                before, after = self._store.change_run(self.state.run_id, self._composed(waiting))
            except BaseException as error:  # noqa: BLE001 - a store may raise anything; until it is reached, writes are refused
                return self._unchanged(how, error)
            self._changed(after, waiting)
            if review is not None:
                self._keep_question(review)
        return before, after

    async def achange(self, how: Change, review: Approval | None = None) -> tuple[RunState, RunState]:
        """`change` without blocking the event loop."""
        with self._lock:
            waiting = self._waiting_with(how)
        try:
            before, after = await self._store.achange_run(self.state.run_id, self._composed(waiting))
        except BaseException as error:  # noqa: BLE001 - as in `change`
            with self._lock:
                return self._unchanged(how, error)
        with self._lock:
            self._changed(after, waiting)
        if review is not None:
            await self._akeep_question(review)
        return before, after

    def pin(self, versions: Mapping[str, str]) -> str | None:
        """Keep to these versions of tools, where nothing is pinned yet. Returns why it could not be kept, or None."""
        self.change(lambda state: pinned(state, versions))
        return self._unsaved

    def save(self) -> str | None:
        """Keep the totals, and what could not be kept so far. Returns why that was impossible, or None."""
        with self._lock:
            totals = self._with_totals  # the latest ones are enough, however often they could not be kept
            self._pending = {number: how for number, how in self._pending.items() if how != totals}
            self.change(totals)
            return self._unsaved

    def unsaved(self) -> str | None:
        """Try again to keep what could not be kept; a store that does not know the latch must admit nothing."""
        return None if self._unsaved is None else self.save()

    @property
    def open_matter(self) -> StopReason | None:
        """What keeps the run from being a success: a write in doubt, or one that waits for a person."""
        return "in_doubt" if self.doubts else "awaiting_approval" if self.open else None

    @property
    def doubts(self) -> dict[str, None]:
        """Names of the tools of which a write is in doubt, each once."""
        return {matter.tool: None for matter in tuple(self.open.values()) if matter.reason == "in_doubt"}

    def begin_turn(self) -> None:
        """Begin the user's next turn."""
        self.rounds.clear()
        self.unmet.clear()
        self._new_turn = True
        self._loop = LoopCount()
        self.change(begin_turn)

    def end_round(self, snapshot: Snapshot) -> StopReason | None:
        """Count the round that has ended, unless a wider one is open. Says why the tools are taken away, if they are.

        The count is written down only when it grows: after a restart a streak may be longer than it was.
        """
        if self._in_batch:
            return None
        if snapshot.budgeted and self._rounds != self._kept_rounds:
            self._kept_rounds = self._rounds  # a process that is killed must not give a budget back
            self.save()
        if not (marks := self.rounds.close()):
            return None
        policy, kinds = snapshot.policy.loop, {kind.name: kind for kind in snapshot.kinds}
        with self._lock:
            before = self._loop
            after = counted(before, marks, kinds)
            if after is before:
                return None
            self._loop = after
            if after.bad == before.bad:
                return None
            reason = exhausted(after, policy, kinds)
            if reason is None or snapshot.policy.mode != "enforce":
                self.save()
                return None
            if not after.why:
                tools = (plan.contract.name for plan in snapshot.plans.values())
                self._loop = msgspec.structs.replace(after, why=instruction(after, policy, kinds, tools))
            was, now = self.change(lambda state: worsen(state, "final_answer", reason))
        return reason if was.mode != now.mode else None

    def overspent(self, budgets: BudgetPolicy, call: int) -> Finding | None:
        """Say which budget is used up for this call (by its number), if one is: then only an answer is allowed."""
        with self._lock:
            used: tuple[tuple[str, float, float | None], ...] = (
                ("calls", call, budgets.calls),
                ("rounds", self._rounds, budgets.rounds),
                ("tokens", self.tokens.total, budgets.tokens),
                ("seconds", self._clock.monotonic() - self._begun, budgets.seconds),
            )
            for kind, amount, allowed in used:
                if allowed is not None and amount > allowed:
                    self.change(lambda state: worsen(state, "final_answer", "budget_exhausted"))
                    return over_budget(kind, amount, allowed)
        return None

    def admit(self, request: Request) -> Answer:
        """Admit a call that nothing but this run's own state can stop."""
        finding = blocked(self.state, request.effect, request.sources)
        return EXECUTE if finding is None else Answer("refuse", finding)

    def begun(self, claim: Claim) -> None:
        """Count a write as in doubt from its claim on: whoever waits for it may be cancelled or interrupted."""
        self._here.add(claim.key)
        self.unmet[claim.key] = (claim.tool, "in_doubt")
        self.open[claim.key] = Matter(claim.tool, "in_doubt")

    def forget(self, key: str) -> None:
        """Nothing is open under this key any more, or nothing has happened."""
        self.unmet.pop(key, None)
        self.open.pop(key, None)

    def ended(self, outcome: Outcome, call: ToolCall, *, writes: bool = False) -> Outcome:
        """Remember what became of a call. `writes` tells whether its tool is one that does."""
        self.tokens.note(outcome.text)
        key, tool = outcome.key or "", outcome.tool
        if outcome.status == "in_doubt" or (outcome.status not in SUCCESSFUL and outcome.effect != "done"):
            self._left(outcome, call, key, writes=writes)
            return outcome
        if self.open or self.unmet:
            self.forget(key)
            self.forget(tool)
        if self.refused:
            self.refused.pop((tool, str(call.arguments)), None)
        if outcome.effect == "done":
            self._done.setdefault(key, tool)  # a replay is the same effect
        return outcome

    def _left(self, outcome: Outcome, call: ToolCall, key: str, *, writes: bool) -> None:
        tool, reason, in_doubt = outcome.tool, outcome.stop_reason or outcome.status, outcome.status == "in_doubt"
        waits = in_doubt or outcome.status == "pending"
        if not in_doubt:
            remember(self.not_done, outcome)
        if writes:
            # A mistake is put right by another call of the tool; a doubt, or a person's no, only by that very one.
            mark = key if waits or reason == "approval_denied" else ""
            if outcome.status != "refused":  # it began, and this is how it ended
                self.unmet.pop(key, None)
            self.unmet[mark or tool] = (tool, reason)
        if waits:
            self.open[key or tool] = Matter(tool, "in_doubt" if in_doubt else "awaiting_approval", call.arguments)
        elif outcome.status != "refused" or reason == "approval_denied":
            self.open.pop(key or tool, None)  # whatever it waited for is decided
        if outcome.findings and (code := outcome.findings[0].code) in _LASTING:
            self._refuse(Matter(tool, code, call.arguments))

    def _refuse(self, matter: Matter) -> None:
        with self._lock:
            self.refused[matter.tool, str(matter.arguments)] = matter
            if len(self.refused) > _KEPT_REFUSALS:
                self.refused.popitem(last=False)

    @property
    def done(self) -> list[str]:
        """Names of the tools whose effect happened, in order, one for each effect."""
        return list(self._done.values())

    def recall(self) -> bool:
        """Learn from the ledger what this run did, here or elsewhere. Returns False if it cannot be read."""
        if self._recalled:
            return True
        try:
            found = self._store.records(Query(run_id=self.state.run_id, limit=_ALL))
            undone = {one.key for one in found if one.state == "completed" and self._undone(one)}
        except Exception:  # noqa: BLE001 - a store may raise anything; then it is said that nobody knows
            return False
        with self._lock:
            self._recalled = True
            known = sorted(found, key=lambda record: record.claimed_at)
            stands = {record.key: record.tool for record in known if record.state == "completed"}
            self._done = {key: tool for key, tool in stands.items() if key not in undone} | self._done
            for record in known:
                if self._new_turn or record.key in self._here:  # how that ended is known here, or will be
                    continue
                if record.state in ("executing", "resolving", "in_doubt"):
                    self.unmet.setdefault(record.key, (record.tool, "in_doubt"))
                    self.open.setdefault(record.key, Matter(record.tool, "in_doubt"))
        return True

    def _undone(self, record: Record) -> bool:
        undoing = self._store.record(compensation_key(record.key))
        return undoing is not None and taken_back(record, undoing) is not None

    def keep(self, text: str, handle: str | None = None) -> str:
        """Keep a large text for paging; the oldest is dropped beyond sixteen. Returns its handle, a new one if None."""
        with self._lock:
            if handle is None:
                self._handles += 1
                handle = f"out-{self._handles}"
            self._texts[handle] = text
            self.keeps_texts = True
            if len(self._texts) > _KEPT_TEXTS:
                self._texts.popitem(last=False)
        return handle

    def page(self, handle: str, offset: int = 0, limit: int = 4_000, *, most: int) -> str:
        """Return `limit` characters of a kept text from `offset` on, and how to go on, in `most` characters at most.

        Raises:
            ToolError: nothing is kept under that handle (any more).
        """
        text = self._texts.get(handle)
        if text is None:
            raise ToolError(f"there is no kept output {handle!r}; call the tool again")
        part = page(text, offset, min(limit, most - _FOOTER))  # a longer one would itself be put aside
        end = part.offset + len(part.text)
        rest = "" if part.next_offset is None else f" Continue with offset {part.next_offset}."
        return f"{part.text}\n[characters {part.offset} to {end} of {part.total}.{rest}]"

    def _waiting_with(self, how: Change) -> dict[int, Change]:
        """One more change, and everything that waits to be kept."""
        self._pending[next(self._numbers)] = how
        return dict(self._pending)

    def _composed(self, waiting: dict[int, Change]) -> Change:
        """All of these as one change of whatever the store holds by now."""

        def composed(state: RunState) -> RunState:
            after = state if state.version >= self.state.version else self.state  # the store has forgotten the run
            for how in waiting.values():
                after = how(after)
            return after if after is state else self._with_totals(after)

        return composed

    def _with_totals(self, state: RunState) -> RunState:
        totals = {
            "step": max(state.step, self._step),
            "calls": max(state.calls, self._calls),
            "rounds": max(state.rounds, self._rounds),
            "tokens": max(state.tokens, self.tokens.total),
            "started": state.started or self.state.started,
            "loop": self._loop,
            "tenant": self.tenant if state.tenant is None else state.tenant,
        }
        if all(getattr(state, name) == value for name, value in totals.items()):
            return state
        return msgspec.structs.replace(state, **totals)

    def _changed(self, after: RunState, kept: Iterable[int]) -> None:
        """The store took these changes. Those of other tasks, under way or not taken, hold here all the same."""
        for number in kept:
            self._pending.pop(number, None)
        if not self._pending:
            self._unsaved = None
        if after.version >= self.state.version:
            for how in self._pending.values():
                after = how(after)
            self.state = after

    def _unchanged(self, how: Change, error: BaseException) -> tuple[RunState, RunState]:
        """The store did not take a change: it holds here, and is kept with the next one.

        So it does if the caller was cancelled or interrupted, who then gets to know that: what happened has happened.
        """
        before = self.state
        self.state = how(before)
        self._unsaved = type(error).__name__
        if not isinstance(error, Exception):
            raise error
        return before, self.state

    def _keep_question(self, review: Approval) -> None:
        try:
            self._store.propose(review)
        except Exception as error:  # noqa: BLE001 - as above; without the question the latch simply stays closed
            self._unsaved = type(error).__name__

    async def _akeep_question(self, review: Approval) -> None:
        try:
            await self._store.arun(proposing(review))
        except Exception as error:  # noqa: BLE001 - as above
            self._unsaved = type(error).__name__
