"""The driver. It performs the hallway's steps; `runtime/driver/asynchronous.py` adds those that are awaited.

A step that fails is answered with a value: an unreachable store is a refused call, a raising tool is a reaction.
Only `BaseException`s that end the host (Ctrl-C, cancellation) go through; then a begun claim becomes in doubt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.contract.rules import is_async
from pokayoke.core.flow.failures import not_recorded, trouble
from pokayoke.core.flow.steps import (
    Admit,
    Ask,
    Compute,
    Emit,
    Gone,
    Invoke,
    Keep,
    Locate,
    Look,
    Mark,
    NotStarted,
    Observe,
    Raised,
    Reaction,
    Recall,
    Returned,
    Settle,
    Step,
    TimedOut,
    Wait,
)
from pokayoke.core.host_input import function_of
from pokayoke.core.json.canonical import dump
from pokayoke.core.ledger.admission import Approval, Request
from pokayoke.core.ledger.findings import store_unavailable
from pokayoke.core.ledger.transitions import Admission, Claim, Record, Settled, Settlement
from pokayoke.core.redaction.known_secrets import Seen
from pokayoke.errors import UsageError
from pokayoke.runtime.driver.ask import ask, asked_now
from pokayoke.runtime.driver.claim_owner import is_dead, owner
from pokayoke.runtime.driver.effect import Checks, Effect, current, within
from pokayoke.runtime.driver.late_result import came_late, forget, is_unfinished
from pokayoke.runtime.driver.path_arguments import locate
from pokayoke.runtime.driver.tool_arguments import handed_over
from pokayoke.runtime.memory.run_memory import Change, without_budget
from pokayoke.runtime.threads.clock import spread
from pokayoke.runtime.threads.worker_pool import Late, react, unheard
from pokayoke.stores.operations import recalling

if TYPE_CHECKING:
    from pokayoke.runtime.run.run import Run

T = TypeVar("T")
_CANCEL_GRACE = 0.5
SETTLE_AGAIN = (0.05, 0.2, 0.5, None)
"""Seconds between the attempts to report an effect that has happened; None after the last one."""
Continuation = Callable[[dict[str, Any]], Any]


class World:
    """Everything a call can reach outside the core.

    Args:
        run: the run the call belongs to.
        invoke: a framework's continuation that runs the tool; None calls the contract's handler.
    """

    __slots__ = ("_guard", "_invoke", "_run", "misuse")

    def __init__(self, run: Run, invoke: Continuation | None) -> None:
        """Keep what the steps need; an `invoke` that is no function is refused before anything is claimed."""
        self._run, self._guard = run, run.guard
        self._invoke = None if invoke is None else function_of(invoke, "invoke")
        self.misuse: UsageError | None = None

    # -- steps that never wait ---------------------------------------------------------------

    def locate(self, step: Locate) -> Any:
        """Resolve path arguments."""
        return locate(step.contract, step.arguments)

    def keep(self, step: Keep) -> str:
        """Keep a large text aside."""
        return self._run.progress.texts.keep(step.text)

    def emit(self, step: Emit) -> None:
        """Write a trace event."""
        self._run.trace.append(self._guard.trace.record(step.event))

    def gone(self, step: Gone) -> float | None:
        """Look whether a process is proven dead."""
        return self._guard.clock.monotonic() if is_dead(step.owner) else None

    # -- steps that may wait: synchronous ------------------------------------------------------

    def mark(self, step: Mark) -> Any:
        """Change the run's state."""
        review = asked_now(self._run, step.review)
        changed = self._run.progress.change(step.change, review)
        if review is not None:
            self._guard.announce(review)
        return changed

    def observe(self, step: Observe) -> None:
        """Count an output that must not be used."""
        self._guard.switchboard.note(step.seen)
        self._guard.switchboard.flush()

    def compute(self, step: Compute) -> Reaction:
        """Run a pure function that calls users' code: in a worker if it has a deadline, else in this thread."""
        if step.timeout is None:
            return react(step.function)
        return self._guard.workers.run(step.function, step.timeout)

    def admit(self, step: Admit) -> Admission:
        """Ask the run, then the store."""
        request = step.request
        change, spent = self._due(request)
        if change is not None:
            self._run.progress.change(change)
        if (answer := self._admitted_here(request, spent)) is not None:
            return answer
        request = self._stamped(request)
        try:
            return self._claimed(request, self._guard.store.admit(request))
        except Exception as error:  # noqa: BLE001 - a store may raise anything; the write is then refused
            return Admission("refuse", store_unavailable(request.tool, trouble(error)))

    def recall(self, step: Recall) -> Record | Finding | None:
        """Read a record."""
        try:
            return self._guard.store.run(recalling(step.key))
        except Exception as error:  # noqa: BLE001 - as in `admit`
            return store_unavailable(step.tool, trouble(error))

    def ask(self, step: Ask) -> bool | None:
        """Put a question to the callback."""
        said = ask(self._run, step.approval)
        if said is None:
            self._guard.announce(step.approval)
        return said

    def look(self, step: Look) -> Reaction:
        """Ask the target, in a worker: a lookup that hangs is given up."""
        lookup = step.contract.lookup
        assert lookup is not None, "a contract with a lookup has one"
        if is_async(lookup):
            return self._awaited_apart(lambda: lookup(step.key, step.arguments), step.timeout, unheard)
        return self._guard.workers.run(lambda: lookup(step.key, step.arguments), step.timeout)

    def invoke(self, step: Invoke) -> tuple[Reaction, float]:
        """Run the tool in this thread, or in a worker if it declares a deadline."""
        watched = self._guard.on_step is not None
        if watched:
            self._run.notice("before_invoke")
        begun = time.perf_counter()
        try:
            function = self._function(step)
        except UsageError as error:
            return self._not_startable(error)
        if step.contract.is_async and self._invoke is None:
            reaction = self._in_own_loop(function, step)
        elif step.timeout is None:
            reaction = react(function)
        else:
            reaction = self._guard.workers.run(function, step.timeout, self._late(step))
        if is_unfinished(reaction):
            pending = reaction.value
            reaction = self._in_own_loop(lambda: pending, step)
            if isinstance(reaction, NotStarted):  # the rest was not; what handed it out has run
                forget(pending)
                reaction = Raised(RuntimeError(reaction.reason))
        seconds = time.perf_counter() - begun
        if watched:
            self._run.notice("after_invoke")
        return reaction, seconds

    def wait(self, step: Wait) -> None:
        """Sleep before a retry."""
        self._guard.clock.sleep(spread(step))

    def settle(self, step: Settle) -> Finding | Record | None:
        """Report to the ledger, again if it cannot be reached: a report is recognised if it came through."""
        for pause in SETTLE_AGAIN:
            try:
                return self._settled(step, self._guard.store.settle(self._report(step)))
            except Exception as error:  # noqa: BLE001 - a store may raise anything; the effect stays in doubt
                if pause is None:
                    return self._unsettled(step, trouble(error))
            self._guard.clock.sleep(pause)
        raise AssertionError("the last round returns")

    # -- parts -----------------------------------------------------------------------------------

    def _function(self, step: Invoke) -> Callable[[], Any]:
        contract, claim = step.contract, step.claim
        key = None if claim is None else claim.key
        arguments = handed_over(contract, step.arguments, step.located, key, own=step.own)
        function: Callable[[], Any]
        if self._invoke is not None:
            function = partial(self._invoke, arguments)
        else:
            function = partial(contract.handler or self._run.handler(contract), **arguments)
        if claim is None and current() is None:
            return function
        checks: Checks = []
        effect = None if claim is None else self._effect(step, claim, checks)
        return partial(within, effect, function, checks)

    def _effect(self, step: Invoke, claim: Claim, checks: Checks) -> Effect:
        deadline = None if step.timeout is None else time.monotonic() + step.timeout
        guard = self._guard
        now = guard.clock.now
        return Effect(claim.key, step.attempt, deadline, claim.claim_id, guard.store, now, checks, current())

    def _stamped(self, request: Request) -> Request:
        """The request with the time at which it is asked, which may be long after the call began, and by whom."""
        now = self._guard.clock.now()
        claim, approval = request.claim, request.approval
        if claim is not None:
            claim = msgspec.structs.replace(claim, now=now, owner=owner())
        if approval is not None:
            approval = approval.asked(now)
            approval = approval if self._guard.store.sealed else self._veiled(approval)
        return msgspec.structs.replace(request, now=now, claim=claim, approval=approval)

    def _veiled(self, approval: Approval) -> Approval:
        """The question without secrets, for a store that would write them down as they are."""
        shown = self._guard.trace.redactor.payload(dump(approval.arguments), marks=approval.marks)
        return msgspec.structs.replace(approval, arguments=msgspec.json.decode(shown), marks=())

    def _report(self, step: Settle) -> Settlement:
        """The report as of now, without an output that a store would write down although it holds a secret."""
        settlement = step.settlement
        output = settlement.output
        if output is not None and not self._guard.store.sealed:
            redactor, seen = self._guard.trace.redactor, Seen()
            redactor.payload(step.arguments, marks=step.marks, seen=seen)
            clean = redactor.payload(output, marks=step.marks, seen=seen)
            output = output if clean == output else None
        return msgspec.structs.replace(settlement, now=self._guard.clock.now(), output=output)

    def _not_startable(self, error: UsageError) -> tuple[Reaction, float]:
        """Let the claim be settled as "nothing happened" first; the caller's mistake is raised after that."""
        self.misuse = error
        return NotStarted(str(error)), 0.0

    def _in_own_loop(self, function: Callable[[], Any], step: Invoke) -> Reaction:
        """An asynchronous tool called from synchronous code gets an event loop in a worker.

        The worker's own limit is a little longer: it only matters if the tool ignores its cancellation.
        """
        limit = step.timeout or self._guard.snapshot.policy.execution.timeout
        return self._awaited_apart(function, limit, self._late(step))

    def _awaited_apart(self, function: Callable[[], Any], limit: float, late: Late) -> Reaction:
        import asyncio  # noqa: PLC0415 - 20 ms of import, for those whose tools are asynchronous

        from pokayoke.runtime.driver.asynchronous import awaited  # noqa: PLC0415 - as above

        def last(outer: Reaction) -> None:
            reaction = cast("Reaction", outer.value) if isinstance(outer, Returned) else outer
            if not isinstance(reaction, TimedOut):  # by then it is cancelled, or has been heard
                late(reaction)

        outer = self._guard.workers.run(
            lambda: asyncio.run(awaited(function, limit, late)), limit + _CANCEL_GRACE, last
        )
        if isinstance(outer, TimedOut):
            return TimedOut(limit)
        return cast("Reaction", outer.value) if isinstance(outer, Returned) else outer

    def _late(self, step: Invoke) -> Late:
        run, contract, claim = self._run, step.contract, step.claim
        return lambda reaction: came_late(run, contract, claim, reaction)

    def _due(self, request: Request) -> tuple[Change | None, Finding | None]:
        """What has to be kept before a call is admitted, if anything, and the budget that is used up, if one is.

        A store that does not know the run's latch must admit nothing: what could not be kept is tried again.
        """
        force, progress = self._guard.snapshot, self._run.progress
        if force.budgeted and (spent := progress.overspent(force.policy.budgets, request.step)) is not None:
            return without_budget, spent
        return progress.with_totals if request.shared and progress.unsaved is not None else None, None

    def _admitted_here(self, request: Request, spent: Finding | None) -> Admission | None:
        """Admit or refuse what needs no store; None if the store has to decide."""
        progress = self._run.progress
        if spent is not None:
            return Admission("refuse", spent)
        if not request.shared:
            return progress.admit(request)
        problem = progress.unsaved
        return None if problem is None else Admission("refuse", store_unavailable(request.tool, problem))

    def _claimed(self, request: Request, answer: Admission) -> Admission:
        if answer.finding and answer.finding.code == "kill_switch" and self._guard.switchboard.caught_up():
            answer = self._guard.store.admit(request)
        if answer.kind == "execute" and request.claim is not None:
            self._run.progress.matters.begun(request.claim)
            if self._guard.on_step is not None:
                self._run.notice("after_claim")
        question = request.approval
        if question is not None and self._guard.on_ask is None and asks_anew(answer):
            self._guard.announce(msgspec.structs.replace(question, id=answer.approval or question.id))
        return answer

    def _settled(self, step: Settle, settled: Settled) -> Finding | Record | None:
        if self._guard.on_step is not None:
            self._run.notice("after_settle")
        record = settled.record
        if step.settlement.state.startswith("failed") and record is not None and not record.state.startswith("failed"):
            return record  # what this execution has not done, another one may have
        if settled.accepted:
            if record is not None:
                self._run.progress.matters.settled(record)
            return None
        if step.settlement.state != "completed":
            # What the ledger knows to have happened has, whatever went wrong afterwards; any other doubt stays one.
            return record if record is not None and record.answers else None
        return record or not_recorded(step.tool, "the ledger does not know the claim")

    def _unsettled(self, step: Settle, problem: str) -> Finding | None:
        self._run.notice("after_settle")
        return None if step.settlement.state == "in_doubt" else not_recorded(step.tool, problem)


def asks_anew(answer: Admission) -> bool:
    """Whether a question waits for a person because of this answer."""
    return answer.kind == "pending" or (answer.finding is not None and answer.finding.code == "approval_expired")


PERFORM: dict[type, Callable[[World, Any], Any]] = {
    Locate: World.locate,
    Mark: World.mark,
    Keep: World.keep,
    Emit: World.emit,
    Compute: World.compute,
    Admit: World.admit,
    Recall: World.recall,
    Ask: World.ask,
    Invoke: World.invoke,
    Wait: World.wait,
    Settle: World.settle,
    Look: World.look,
    Gone: World.gone,
    Observe: World.observe,
}


def drive(walk: Generator[Step, Any, T], world: World) -> T:
    """Perform a walk's steps one after the other and return what it returns."""
    try:
        step = next(walk)
        while True:
            step = walk.send(PERFORM[type(step)](world, step))
    except StopIteration as end:
        if world.misuse is not None:
            raise world.misuse from None
        ended: T = end.value
        return ended
