"""The driver. It performs the hallway's steps; `runtime/adriver.py` adds those that are awaited.

A step that fails is answered with a value: an unreachable store is a refused call, a raising tool
is a reaction. Only `BaseException`s that end the host (Ctrl-C, cancellation) go through; a claim
that is open then stays open and becomes in doubt.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from pokayoke.core.admission import Request
from pokayoke.core.call import Finding
from pokayoke.core.ledger import Answer, store_unavailable
from pokayoke.core.result import not_recorded
from pokayoke.core.steps import (
    Admit,
    Ask,
    Compute,
    Emit,
    Invoke,
    Keep,
    Locate,
    Mark,
    NotStarted,
    Reaction,
    Returned,
    Settle,
    Step,
    Wait,
)
from pokayoke.errors import UsageError
from pokayoke.runtime.handover import handed_over
from pokayoke.runtime.locate import locate
from pokayoke.runtime.workers import Late, react

if TYPE_CHECKING:
    from pokayoke.runtime.run import Run

T = TypeVar("T")
_CANCEL_GRACE = 0.5
Continuation = Callable[[dict[str, Any]], Any]


class World:
    """Everything a call can reach outside the core.

    Args:
        run: the run the call belongs to.
        invoke: a framework's continuation that runs the tool; None calls the contract's handler.
    """

    __slots__ = ("_guard", "_invoke", "_run", "misuse")

    def __init__(self, run: Run, invoke: Continuation | None) -> None:
        """Keep what the steps need."""
        self._run, self._guard = run, run.guard
        self._invoke = invoke
        self.misuse: UsageError | None = None

    # -- steps that never wait ---------------------------------------------------------------

    def locate(self, step: Locate) -> Any:
        """Resolve path arguments."""
        return locate(step.contract, step.arguments)

    def mark(self, step: Mark) -> Any:
        """Change the run's state."""
        return self._run.progress.change(step.change, step.review)

    def keep(self, step: Keep) -> str:
        """Keep a large text aside."""
        return self._run.progress.keep(step.text)

    def emit(self, step: Emit) -> None:
        """Write a trace event."""
        self._run.emit(step.event)

    # -- steps that may wait: synchronous ------------------------------------------------------

    def compute(self, step: Compute) -> Reaction:
        """Run a pure function that calls users' code."""
        if step.timeout is None:
            return react(step.function)
        return self._guard.workers.run(step.function, step.timeout)

    def admit(self, step: Admit) -> Answer:
        """Ask the run, then the store."""
        request = step.request
        if (answer := self._admitted_here(request)) is not None:
            return answer
        try:
            return self._claimed(request, self._guard.store.admit(request))
        except Exception as error:  # noqa: BLE001 - a store may raise anything; the write is then refused
            return Answer("refuse", store_unavailable(request.tool, type(error).__name__))

    def ask(self, step: Ask) -> bool | None:
        """Put a question to the callback."""
        return self._run.ask(step.approval)

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
        if (pending := unfinished(reaction)) is not None:
            reaction = self._in_own_loop(lambda: pending, step)
        seconds = time.perf_counter() - begun
        if watched:
            self._run.notice("after_invoke")
        return reaction, seconds

    def wait(self, step: Wait) -> None:
        """Sleep before a retry."""
        self._guard.clock.sleep(spread(step))

    def settle(self, step: Settle) -> Finding | None:
        """Report to the ledger."""
        try:
            accepted = self._guard.store.settle(msgspec.structs.replace(step.settlement, now=self._guard.clock.now()))
        except Exception as error:  # noqa: BLE001 - a store may raise anything; the effect stays in doubt
            return self._settled(step, type(error).__name__)
        return self._settled(step, None if accepted else "another caller owns the claim")

    # -- parts -----------------------------------------------------------------------------------

    def _function(self, step: Invoke) -> Callable[[], Any]:
        arguments = handed_over(step.contract, step.arguments, step.located, step.key)
        if self._invoke is not None:
            continuation = self._invoke
            return lambda: continuation(arguments)
        handler = self._run.handler(step.contract)
        return lambda: handler(**arguments)

    def _not_startable(self, error: UsageError) -> tuple[Reaction, float]:
        """Let the claim be settled as "nothing happened" first; the caller's mistake is raised after that."""
        self.misuse = error
        return NotStarted(str(error)), 0.0

    def _in_own_loop(self, function: Callable[[], Any], step: Invoke) -> Reaction:
        """An asynchronous tool called from synchronous code gets an event loop in a worker.

        The worker's own limit is a little longer: it only matters if the tool ignores its cancellation.
        """
        import asyncio  # noqa: PLC0415 - 20 ms of import, for those whose tools are asynchronous

        from pokayoke.runtime.adriver import awaited  # noqa: PLC0415 - as above

        limit = step.timeout or self._guard.snapshot.policy.execution.timeout
        late = self._late(step)
        outer = self._guard.workers.run(
            lambda: asyncio.run(awaited(function, limit, late)), limit + _CANCEL_GRACE, late
        )
        return cast("Reaction", outer.value) if isinstance(outer, Returned) else outer

    def _late(self, step: Invoke) -> Late:
        run, tool, key = self._run, step.contract.name, step.key
        return lambda reaction: run.late(tool, key, reaction)

    def _admitted_here(self, request: Request) -> Answer | None:
        """Admit or refuse what needs no store; None if the store has to decide."""
        progress = self._run.progress
        force = self._guard.snapshot
        if force.budgeted and (refusal := progress.overspent(force.policy.budgets)) is not None:
            return Answer("refuse", refusal)
        if not request.shared:
            return progress.admit(request)
        problem = progress.unsaved()
        return None if problem is None else Answer("refuse", store_unavailable(request.tool, problem))

    def _claimed(self, request: Request, answer: Answer) -> Answer:
        if request.claim is not None and answer.kind == "execute":
            self._run.notice("after_claim")
        return answer

    def _settled(self, step: Settle, problem: str | None) -> Finding | None:
        self._run.notice("after_settle")
        if problem is None or step.settlement.state == "in_doubt":
            return None  # an effect that is in doubt anyway loses nothing if the report does
        return not_recorded(step.tool, problem)


PERFORM: dict[type, Callable[[World, Any], Any]] = {
    Locate: World.locate,
    Mark: World.mark,
    Keep: World.keep,
    Emit: World.emit,
    Compute: World.compute,
    Admit: World.admit,
    Ask: World.ask,
    Invoke: World.invoke,
    Wait: World.wait,
    Settle: World.settle,
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
        return cast("T", end.value)


def unfinished(reaction: Reaction) -> Any:
    """Return what has to be awaited before a tool has done anything: a plain function may hand out a coroutine."""
    value: Any = reaction.value if isinstance(reaction, Returned) else None
    return value if hasattr(cast("object", type(value)), "__await__") else None


def spread(step: Wait) -> float:
    """The delay, spread to both sides so that many callers do not return at one moment."""
    return step.seconds * (1 + step.jitter * random.uniform(-1, 1))  # noqa: S311 - not a secret
