"""Performs the steps of a call for asynchronous callers. Loaded by the first run that awaits.

In: the generator of a call, and the run it belongs to.
Out: what the generator returns.
Never: a blocked event loop, or a finished effect that a cancelled caller leaves unrecorded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pokayoke.core.call import Finding
from pokayoke.core.flow.steps import (
    Invoke,
    NotStarted,
    Reaction,
    Settle,
    Step,
    TimedOut,
)
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.records import Admission, Claim, Record, Settlement
from pokayoke.runtime.driver.awaiting import await_in_current_task, await_in_own_task, run_to_end
from pokayoke.runtime.driver.sync import HANDLERS, SyncDriver, is_running_write, refuse_unreachable
from pokayoke.runtime.memory.call_log import OpenCall
from pokayoke.runtime.threads.coroutines import run_in_thread
from pokayoke.runtime.threads.loop_turns import take_turn
from pokayoke.runtime.threads.worker_pool import LateCallback, ignore_result

if TYPE_CHECKING:
    from pokayoke.runtime.ports import RunPort

T = TypeVar("T")
_WITHDRAWN: Final = "the caller was cancelled before the tool began"


class AsyncDriver(SyncDriver):
    """Performs the steps of one call for an asynchronous caller, without blocking the event loop."""

    __slots__ = ()
    may_wait = True

    # -- an effect that has happened is recorded, whatever becomes of the caller -----------------

    async def admit_at_store(self, request: AdmissionRequest) -> Admission:
        """Ask the store for admission, and withdraw the claim if the caller is cancelled meanwhile."""
        asking = self._await_admission(request)
        if request.claim is None or not self._guard.store.needs_await:
            return await asking
        task = run_to_end(asking)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            run_to_end(self._withdraw_claim(request.tool, request.claim, task, self._count_in_doubt(request.claim)))
            raise

    async def _await_admission(self, request: AdmissionRequest) -> Admission:
        try:
            return self._handle_admission(request, await self._guard.store.aadmit(request))
        except Exception as error:  # noqa: BLE001 - as in `SyncDriver.admit_at_store`
            return refuse_unreachable(request, error)

    def _count_in_doubt(self, claim: Claim) -> OpenCall | None:
        """Count a write as in doubt until its claim is answered; the loop may end before that."""
        matters = self._run.progress.matters
        return None if claim.key in matters.open else matters.begin_claim(claim)

    async def _withdraw_claim(
        self, tool: str, claim: Claim, asking: Awaitable[Admission], waited: OpenCall | None
    ) -> None:
        """Release a claim whose caller was cancelled before the tool started."""
        answer, matters = await asking, self._run.progress.matters
        kind, record = answer.kind, answer.record
        if kind == "execute":
            report = Settlement(
                claim.key, claim.claim_id, "failed_retriable", claim.now, failure=_WITHDRAWN,
                unstarted=record is not None and record.claimed_at == claim.now,  # else it is one that was renewed
            )  # fmt: skip
            await self.settle_with_pauses(Settle(report, tool))
        elif waited is not None and kind != "in_doubt" and matters.open.get(claim.key) is waited:
            matters.forget_key(claim.key)

    async def settle_claim(self, step: Settle) -> Finding | Record | None:
        """Report to the ledger even if the caller is cancelled or the event loop ends."""
        if not self._guard.store.needs_await:
            # Nothing is awaited, so nothing can be cancelled and no task is needed.
            with contextlib.suppress(Exception):  # then it is reported again, with pauses
                return self.settle_at_once(step)
        thread = SyncDriver(self._run, None)
        return await asyncio.shield(
            run_to_end(self.settle_with_pauses(step), lambda: run_in_thread(thread.settle_with_pauses(step)))
        )

    async def aend_without_caller(self, walk: Generator[Step, Any, Any]) -> None:
        """`end_without_caller`, which a second cancellation does not stop."""
        if not self._guard.store.needs_await:
            self.end_without_caller(walk)
            return
        ending = run_to_end(adrive_steps(walk, AsyncDriver(self._run, None), (self.gone, 0.0)))
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(ending)

    # -- how an asynchronous caller waits --------------------------------------------------------

    async def pause(self, seconds: float) -> None:
        """Sleep in the event loop."""
        await self._guard.clock.asleep(seconds)

    def await_tool(self, function: Callable[[], Any], step: Invoke) -> Coroutine[Any, Any, Reaction]:
        """Await what a tool returns, up to its deadline or that of the policy.

        A declared deadline holds whatever the tool does. The policy's holds for every tool that accepts its
        cancellation: a task for each call would cost more than the rest of the path.
        """
        if step.timeout is None:
            return await_in_current_task(function, self._limit(step))
        return super().await_tool(function, step)

    async def await_apart(self, function: Callable[[], Any], limit: float, late: LateCallback) -> Reaction:
        """Await what a function returns, in a task of its own."""
        if late is not ignore_result and self._guard.store.needs_await:  # the loop must not wait for the store
            late = partial(self._guard.workers.deliver_late, late)
        return await await_in_own_task(function, limit, late)

    async def run_in_worker(self, function: Callable[[], Any], limit: float, late: LateCallback | None) -> Reaction:
        """Run a function in a worker and wait in the event loop, at most `limit` seconds."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def set_done() -> None:
            if not done.done():
                done.set_result(None)

        def signal_loop() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile; no caller waits
                loop.call_soon_threadsafe(set_done)

        job = self._guard.workers.start_job(function, signal_loop)
        if job is None:
            return self._guard.workers.no_thread_reaction()
        try:
            await asyncio.wait({done}, timeout=limit)
        except asyncio.CancelledError:
            self._guard.workers.desert_job(job, late)
            if isinstance(job.reaction, NotStarted):
                self.gone = job.reaction
            raise
        if job.reaction is None and self._guard.workers.give_up(job, late):
            return TimedOut(limit)
        assert job.reaction is not None, "a finished job has a reaction"
        return job.reaction


_ASYNC_HANDLERS: Final[dict[type, Callable[[AsyncDriver, Any], Any]]] = {**HANDLERS, Settle: AsyncDriver.settle_claim}


async def wait_for_turn() -> None:
    """Wait until the event loop takes another call: many that begin at once must not hold it."""
    if (turn := take_turn()) is not None:
        await turn


async def adrive_steps(walk: Generator[Step, Any, T], world: AsyncDriver, first: Any = None) -> T:
    """`drive_steps` for asynchronous callers."""
    try:
        step = walk.send(first)
        while True:
            try:
                answer: Any = _ASYNC_HANDLERS[type(step)](world, step)
                if type(answer) is CoroutineType:
                    answer = await cast("Awaitable[Any]", answer)
            except (asyncio.CancelledError, KeyboardInterrupt):
                if is_running_write(step):
                    await world.aend_without_caller(walk)
                raise
            step = walk.send(answer)
    except StopIteration as end:
        if world.misuse is not None:
            raise world.misuse from None
        ended: T = end.value
        return ended


async def save_run_totals(run: RunPort) -> str | None:
    """Store a run's totals even if the caller is cancelled. Returns why that failed, or None."""
    progress = run.progress
    if not run.guard.store.needs_await:
        return progress.save_totals()
    await asyncio.shield(run_to_end(progress.achange_state(progress.with_totals), progress.save_totals))
    return progress.unsaved
