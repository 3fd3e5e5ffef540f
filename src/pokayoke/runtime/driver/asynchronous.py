"""The asynchronous driver: the steps of a walk that have to be awaited. Loaded by the first run that awaits."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pokayoke.core.call import Finding
from pokayoke.core.contract.rules import is_async
from pokayoke.core.flow.failures import trouble
from pokayoke.core.flow.steps import (
    Admit,
    Ask,
    Compute,
    Invoke,
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
from pokayoke.core.json.values import kind_of
from pokayoke.core.ledger.admission import Request
from pokayoke.core.ledger.findings import store_unavailable
from pokayoke.core.ledger.transitions import Admission, Claim, Record, Settlement
from pokayoke.errors import UsageError
from pokayoke.runtime.driver.ask import aask, asked_now
from pokayoke.runtime.driver.late_result import is_unfinished
from pokayoke.runtime.driver.sync import PERFORM, SETTLE_AGAIN, World
from pokayoke.runtime.memory.call_log import Matter
from pokayoke.runtime.threads.clock import spread
from pokayoke.runtime.threads.worker_pool import Late, react, unheard
from pokayoke.stores.operations import recalling

if TYPE_CHECKING:
    from pokayoke.runtime.run.run import Run

T = TypeVar("T")
_WITHDRAWN: Final = "the caller was cancelled before the tool began"
_going_on: Final[set[asyncio.Task[Any]]] = set()


class AsyncWorld(World):
    """The world of a call whose caller awaits: every step that may wait leaves the event loop free."""

    __slots__ = ()

    async def acompute(self, step: Compute) -> Reaction:
        """`compute` without blocking the event loop."""
        if step.timeout is None:
            return react(step.function)
        return await self._in_worker(step.function, step.timeout, None)

    async def aadmit(self, step: Admit) -> Admission:
        """`admit` without blocking the event loop."""
        request = step.request
        change, spent = self._due(request)
        if change is not None:
            await self._run.progress.achange(change)
        if (answer := self._admitted_here(request, spent)) is not None:
            return answer
        request = self._stamped(request)
        if request.claim is None or not self._guard.store.waits:
            return await self._asked(request)
        asking = _kept(self._asked(request))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            _kept(self._withdrawn(request.tool, request.claim, asking, self._counted(request.claim)))
            raise

    async def _asked(self, request: Request) -> Admission:
        try:
            return self._claimed(request, await self._guard.store.aadmit(request))
        except Exception as error:  # noqa: BLE001 - as in `admit`
            return Admission("refuse", store_unavailable(request.tool, trouble(error)))

    async def arecall(self, step: Recall) -> Record | Finding | None:
        """`recall` without blocking the event loop."""
        try:
            return await self._guard.store.arun(recalling(step.key))
        except Exception as error:  # noqa: BLE001 - as in `admit`
            return store_unavailable(step.tool, trouble(error))

    def _counted(self, claim: Claim) -> Matter | None:
        """Count a write as in doubt until it is known what became of its claim; the loop may end before that."""
        matters = self._run.progress.matters
        return None if claim.key in matters.open else matters.begun(claim)

    async def _withdrawn(self, tool: str, claim: Claim, asking: Awaitable[Admission], waited: Matter | None) -> None:
        """Give back a claim whose caller was cancelled while it waited for it: its tool has not begun."""
        answer, matters = await asking, self._run.progress.matters
        kind, record = answer.kind, answer.record
        if kind == "execute":
            report = Settlement(
                claim.key, claim.claim_id, "failed_retriable", claim.now, failure=_WITHDRAWN,
                unstarted=record is not None and record.claimed_at == claim.now,  # else it is one that was renewed
            )  # fmt: skip
            await self._reported(Settle(report, tool))
        elif waited is not None and kind != "in_doubt" and matters.open.get(claim.key) is waited:
            matters.forget(claim.key)

    async def aask(self, step: Ask) -> bool | None:
        """`ask`; an awaitable answer is awaited."""
        said = await aask(self._run, step.approval)
        if said is None:
            self._guard.announce(step.approval)
        return said

    async def ainvoke(self, step: Invoke) -> tuple[Reaction, float]:
        """Run the tool; an asynchronous one always has a deadline.

        A declared one is kept whatever the tool does. The policy's is kept by every tool that lets itself be
        cancelled: a task of its own for each call would cost more than the rest of the way.
        """
        watched = self._guard.on_step is not None
        if watched:
            self._run.notice("before_invoke")
        begun = time.perf_counter()
        try:
            function = self._function(step)
        except UsageError as error:
            return self._not_startable(error)
        limit = step.timeout or self._guard.snapshot.policy.execution.timeout
        if step.contract.is_async or self._invoke is not None:
            if step.timeout is None:
                reaction = await awaited_here(function, limit)
            else:
                reaction = await awaited(function, limit, self._late_here(step))
        elif step.timeout is None:
            reaction = react(function)
        else:
            reaction = await self._in_worker(function, step.timeout, self._late(step))
        if is_unfinished(reaction):
            pending = reaction.value
            reaction = await awaited(lambda: pending, limit, self._late_here(step))
        seconds = time.perf_counter() - begun
        if watched:
            self._run.notice("after_invoke")
        return reaction, seconds

    async def await_(self, step: Wait) -> None:
        """`wait` without blocking the event loop."""
        await self._guard.clock.asleep(spread(step))

    async def asettle(self, step: Settle) -> Finding | Record | None:
        """`settle`, shielded: neither a cancelled caller nor an ended loop leaves a finished effect unrecorded."""
        store = self._guard.store
        if not store.waits:
            # Nothing is awaited, so nothing can be cancelled, and a task of its own would be for nothing.
            with contextlib.suppress(Exception):  # then it is reported again, with patience
                return self._settled(step, store.settle(self._report(step)))
        return await asyncio.shield(_kept(self._reported(step), lambda: self.settle(step)))

    async def _reported(self, step: Settle) -> Finding | Record | None:
        for pause in SETTLE_AGAIN:
            try:
                return self._settled(step, await self._guard.store.asettle(self._report(step)))
            except Exception as error:  # noqa: BLE001 - as in `settle`
                if pause is None:
                    return self._unsettled(step, trouble(error))
            await self._guard.clock.asleep(pause)
        raise AssertionError("the last round returns")

    async def alook(self, step: Look) -> Reaction:
        """`look` without blocking the event loop."""
        lookup = step.contract.lookup
        assert lookup is not None, "a contract with a lookup has one"
        if is_async(lookup):
            return await awaited(lambda: lookup(step.key, step.arguments), step.timeout, unheard)
        return await self._in_worker(lambda: lookup(step.key, step.arguments), step.timeout, None)

    async def amark(self, step: Mark) -> Any:
        """`mark` without blocking the event loop."""
        review = asked_now(self._run, step.review)
        changed = await self._run.progress.achange(step.change, review)
        if review is not None:
            self._guard.announce(review)
        return changed

    async def aobserve(self, step: Observe) -> None:
        """`observe` without blocking the event loop."""
        board = self._guard.switchboard
        board.note(step.seen)
        if not self._guard.store.durable:
            board.flush()
            return
        limit = self._guard.snapshot.policy.execution.timeout
        reaction = await self._in_worker(board.flush, limit, None)
        if isinstance(reaction, NotStarted):  # every thread hangs; better late than not at all
            board.flush()
        elif isinstance(reaction, Raised):
            raise reaction.error

    def _late_here(self, step: Invoke) -> Late:
        """`_late` for what is heard in the event loop, which does not wait for a store."""
        late, workers = self._late(step), self._guard.workers
        return partial(workers.tell, late) if self._guard.store.waits else late

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
            self._guard.workers.desert(job, late)
            raise
        if job.reaction is None and self._guard.workers.give_up(job, late):
            return TimedOut(limit)
        assert job.reaction is not None, "a finished job has a reaction"
        return job.reaction


_AWAIT: dict[type, Callable[[AsyncWorld, Any], Awaitable[Any]]] = {
    Compute: AsyncWorld.acompute,
    Admit: AsyncWorld.aadmit,
    Recall: AsyncWorld.arecall,
    Ask: AsyncWorld.aask,
    Invoke: AsyncWorld.ainvoke,
    Wait: AsyncWorld.await_,
    Settle: AsyncWorld.asettle,
    Look: AsyncWorld.alook,
    Mark: AsyncWorld.amark,
    Observe: AsyncWorld.aobserve,
}


async def adrive(walk: Generator[Step, Any, T], world: AsyncWorld) -> T:
    """`drive` for asynchronous callers."""
    try:
        step = next(walk)
        while True:
            waiting = _AWAIT.get(type(step))
            answer = PERFORM[type(step)](world, step) if waiting is None else await waiting(world, step)
            step = walk.send(answer)
    except StopIteration as end:
        if world.misuse is not None:
            raise world.misuse from None
        ended: T = end.value
        return ended


def _kept(work: Coroutine[Any, Any, T], otherwise: Callable[[], object] | None = None) -> asyncio.Task[T]:
    """Begin what has to end even if its caller is cancelled; the event loop itself would not hold on to it.

    Args:
        work: what is to be done.
        otherwise: does it without a loop, if the loop ends first and cancels all that it has.
    """

    def ended(task: asyncio.Task[T]) -> None:
        _going_on.discard(task)
        if task.cancelled() and otherwise is not None:
            otherwise()

    task = asyncio.ensure_future(work)
    _going_on.add(task)
    task.add_done_callback(ended)
    return task


async def saved(run: Run) -> str | None:
    """Keep a run's totals, whether the caller is cancelled or not. Returns why that was impossible, or None."""
    progress = run.progress
    if not run.guard.store.waits:
        return progress.save()
    return await asyncio.shield(_kept(progress.asave(), progress.save))


async def awaited_here(function: Callable[[], Any], limit: float) -> Reaction:
    """Await what `function` returns in the caller's own task, which is cancelled at the deadline."""
    task = asyncio.current_task()
    cancelled = 0 if task is None else task.cancelling()  # a host may have ignored a cancellation long ago
    try:
        value = function()
        if not hasattr(kind_of(value), "__await__"):
            return Returned(value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit in a tool must not end the host
        return Raised(error)
    try:
        return await _reaction(value, limit, task, cancelled)
    except TimeoutError:
        return TimedOut(limit)


async def _reaction(pending: Awaitable[Any], limit: float, task: asyncio.Task[Any] | None, cancelled: int) -> Reaction:
    """Await something for so many seconds from now; what never waits sets no timer, which is dear.

    Raises:
        TimeoutError: the seconds passed first.
    """
    begun = time.monotonic()
    try:
        steps = pending.__await__()
        try:
            first = next(steps)
        except StopIteration as end:
            return Returned(end.value)
    except BaseException as error:  # noqa: BLE001 - as above
        return _raised(error, task, cancelled)
    # What the first step took counts: if it took all, the rest is cancelled where it waits first.
    async with asyncio.timeout(limit - (time.monotonic() - begun)):
        try:
            return Returned(await _going_on_from(first, steps))
        except BaseException as error:  # noqa: BLE001 - as above
            return _raised(error, task, cancelled)


def _raised(error: BaseException, task: asyncio.Task[Any] | None, cancelled: int) -> Raised:
    """What a tool raised. Raises what ends the host, and the cancellation of the caller."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > cancelled:
        raise error
    return Raised(error)  # a cancellation without a caller's is the tool's own


@types.coroutine
def _going_on_from(first: Any, steps: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await the rest of what waits for `first` by now: PEP 380's delegation, one step in."""
    waiting = first
    try:
        while True:
            try:
                answer = yield waiting
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is for the one that waits
                waiting = steps.throw(error)
            else:
                waiting = steps.send(answer)
    except StopIteration as end:
        ended: T = end.value
        return ended


def _left_behind(task: asyncio.Task[Reaction], late: Late) -> None:
    """Cancel a tool that nobody waits for any more; one that comes to its end all the same is heard."""
    task.cancel()
    task.add_done_callback(lambda ended: None if ended.cancelled() else late(ended.result()))


async def awaited(function: Callable[[], Any], limit: float, late: Late) -> Reaction:
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
        _left_behind(task, late)
        raise
    if not done:
        _left_behind(task, late)
        return TimedOut(limit)
    if task.cancelled():
        return Raised(asyncio.CancelledError("the tool cancelled itself"))
    return task.result()
