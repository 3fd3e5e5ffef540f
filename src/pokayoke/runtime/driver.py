"""The two drivers. They perform the hallway's steps; nothing else exists twice.

A step that fails is answered with a value: an unreachable store is a refused call, a raising tool
is a reaction. Only `BaseException`s that end the host (Ctrl-C, cancellation) go through; a claim
that is open then stays open and becomes in doubt.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import time
from collections.abc import Awaitable, Callable, Generator
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
    Raised,
    Reaction,
    Returned,
    Settle,
    Step,
    TimedOut,
    Wait,
)
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

    __slots__ = ("_guard", "_invoke", "_run")

    def __init__(self, run: Run, invoke: Continuation | None) -> None:
        """Keep what the steps need."""
        self._run, self._guard = run, run.guard
        self._invoke = invoke

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
        self._run.notice("before_invoke")
        begun = time.perf_counter()
        function = self._function(step)
        if step.contract.is_async and self._invoke is None:
            reaction = self._in_own_loop(function, step)
        elif step.timeout is None:
            reaction = react(function)
        else:
            reaction = self._guard.workers.run(function, step.timeout, self._late(step))
        seconds = time.perf_counter() - begun
        self._run.notice("after_invoke")
        return reaction, seconds

    def wait(self, step: Wait) -> None:
        """Sleep before a retry."""
        self._guard.clock.sleep(_spread(step))

    def settle(self, step: Settle) -> Finding | None:
        """Report to the ledger."""
        try:
            accepted = self._guard.store.settle(msgspec.structs.replace(step.settlement, now=self._guard.clock.now()))
        except Exception as error:  # noqa: BLE001 - a store may raise anything; the effect stays in doubt
            return self._settled(step, type(error).__name__)
        return self._settled(step, None if accepted else "another caller owns the claim")

    # -- steps that may wait: asynchronous -----------------------------------------------------

    async def acompute(self, step: Compute) -> Reaction:
        """`compute` without blocking the event loop."""
        if step.timeout is None:
            return react(step.function)
        return await self._in_worker(step.function, step.timeout, None)

    async def aadmit(self, step: Admit) -> Answer:
        """`admit` without blocking the event loop."""
        request = step.request
        if (answer := self._admitted_here(request)) is not None:
            return answer
        try:
            return self._claimed(request, await self._guard.store.aadmit(request))
        except Exception as error:  # noqa: BLE001 - as in `admit`
            return Answer("refuse", store_unavailable(request.tool, type(error).__name__))

    async def aask(self, step: Ask) -> bool | None:
        """`ask`; an awaitable answer is awaited."""
        return await self._run.aask(step.approval)

    async def ainvoke(self, step: Invoke) -> tuple[Reaction, float]:
        """Run the tool; an asynchronous one always has a deadline."""
        self._run.notice("before_invoke")
        begun = time.perf_counter()
        function = self._function(step)
        limit = step.timeout or self._guard.snapshot.policy.execution.timeout
        if step.contract.is_async or self._invoke is not None:
            reaction = await _awaited(function, limit, self._late(step))
        elif step.timeout is None:
            reaction = react(function)
        else:
            reaction = await self._in_worker(function, step.timeout, self._late(step))
        seconds = time.perf_counter() - begun
        self._run.notice("after_invoke")
        return reaction, seconds

    async def await_(self, step: Wait) -> None:
        """`wait` without blocking the event loop."""
        await self._guard.clock.asleep(_spread(step))

    async def asettle(self, step: Settle) -> Finding | None:
        """`settle`, shielded: a cancelled caller must not leave a finished effect unrecorded."""
        settlement = msgspec.structs.replace(step.settlement, now=self._guard.clock.now())
        try:
            accepted = await asyncio.shield(asyncio.ensure_future(self._guard.store.asettle(settlement)))
        except Exception as error:  # noqa: BLE001 - as in `settle`
            return self._settled(step, type(error).__name__)
        return self._settled(step, None if accepted else "another caller owns the claim")

    # -- parts -----------------------------------------------------------------------------------

    def _function(self, step: Invoke) -> Callable[[], Any]:
        contract = step.contract
        arguments = dict(step.arguments)
        if contract.key_argument is not None:
            arguments[contract.key_argument] = step.key
        if self._invoke is not None:
            continuation = self._invoke
            return lambda: continuation(arguments)
        if step.located:
            arguments.update(step.located)
        handler = self._run.handler(contract)
        return lambda: handler(**arguments)

    def _in_own_loop(self, function: Callable[[], Any], step: Invoke) -> Reaction:
        """An asynchronous tool called from synchronous code gets an event loop in a worker.

        The worker's own limit is a little longer: it only matters if the tool ignores its cancellation.
        """
        limit = step.timeout or self._guard.snapshot.policy.execution.timeout
        late = self._late(step)
        outer = self._guard.workers.run(
            lambda: asyncio.run(_awaited(function, limit, late)), limit + _CANCEL_GRACE, late
        )
        return cast("Reaction", outer.value) if isinstance(outer, Returned) else outer

    def _late(self, step: Invoke) -> Late:
        run, tool, key = self._run, step.contract.name, step.key
        return lambda reaction: run.late(tool, key, reaction)

    async def _in_worker(self, function: Callable[[], Any], limit: float, late: Late | None) -> Reaction:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def finished() -> None:
            if not done.done():
                done.set_result(None)

        def ready() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile; nobody waits
                loop.call_soon_threadsafe(finished)

        job = self._guard.workers.start(function, ready)
        if job is None:
            return self._guard.workers.refusal()
        try:
            await asyncio.wait({done}, timeout=limit)
        except asyncio.CancelledError:
            self._guard.workers.give_up(job, late)
            raise
        if job.reaction is None and self._guard.workers.give_up(job, late):
            return TimedOut(limit)
        assert job.reaction is not None, "a finished job has a reaction"
        return job.reaction

    def _admitted_here(self, request: Request) -> Answer | None:
        """Admit or refuse what needs no store; None if the store has to decide."""
        progress = self._run.progress
        if (refusal := progress.spend(self._guard.snapshot.policy.budgets)) is not None:
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


_SYNC: dict[type, Callable[[World, Any], Any]] = {
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
_ASYNC: dict[type, Callable[[World, Any], Awaitable[Any]]] = {
    Compute: World.acompute,
    Admit: World.aadmit,
    Ask: World.aask,
    Invoke: World.ainvoke,
    Wait: World.await_,
    Settle: World.asettle,
}


def drive(walk: Generator[Step, Any, T], world: World) -> T:
    """Perform a walk's steps one after the other and return what it returns."""
    try:
        step = next(walk)
        while True:
            step = walk.send(_SYNC[type(step)](world, step))
    except StopIteration as end:
        return cast("T", end.value)


async def adrive(walk: Generator[Step, Any, T], world: World) -> T:
    """`drive` for asynchronous callers."""
    try:
        step = next(walk)
        while True:
            waiting = _ASYNC.get(type(step))
            answer = _SYNC[type(step)](world, step) if waiting is None else await waiting(world, step)
            step = walk.send(answer)
    except StopIteration as end:
        return cast("T", end.value)


def _spread(step: Wait) -> float:
    """The delay, spread to both sides so that many callers do not return at one moment."""
    return step.seconds * (1 + step.jitter * random.uniform(-1, 1))  # noqa: S311 - not a secret


async def _awaited(function: Callable[[], Any], limit: float, late: Late) -> Reaction:
    """Await what `function` returns; a task that ignores its cancellation at the deadline is left behind."""

    async def reacting() -> Reaction:
        try:
            value = function()
            return Returned(await value if inspect.isawaitable(value) else value)
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit in a tool must not end the host
            return Raised(error)

    task = asyncio.ensure_future(reacting())
    try:
        done, _ = await asyncio.wait({task}, timeout=limit)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not done:
        task.cancel()
        task.add_done_callback(lambda t: None if t.cancelled() else late(t.result()))
        return TimedOut(limit)
    if task.cancelled():
        return Raised(asyncio.CancelledError("the tool cancelled itself"))
    return task.result()
