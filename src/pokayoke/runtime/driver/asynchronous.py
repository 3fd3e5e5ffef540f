"""Performs the steps of a call for asynchronous callers. Loaded by the first run that awaits.

In: the generator of a call, and the run it belongs to.
Out: what the generator returns.
Never: a blocked event loop, or a finished effect that a cancelled caller leaves unrecorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pokayoke.core.call import Finding
from pokayoke.core.contract.arguments import is_async
from pokayoke.core.flow.failures import store_error_text
from pokayoke.core.flow.steps import (
    Admit,
    AskPerson,
    ChangeState,
    CountOutput,
    Invoke,
    LookUp,
    NotStarted,
    Raised,
    Reaction,
    ReadRecord,
    RunUserCode,
    Settle,
    Step,
    TimedOut,
    Wait,
)
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.findings import store_unavailable_finding
from pokayoke.core.ledger.records import Admission, Claim, Record, Settlement
from pokayoke.errors import UsageError
from pokayoke.runtime.driver.ask import ask_person_async, with_current_time
from pokayoke.runtime.driver.awaiting import await_in_current_task, await_in_own_task, run_to_end
from pokayoke.runtime.driver.sync import HANDLERS, SETTLE_PAUSES, SyncDriver
from pokayoke.runtime.driver.tool_call import capture_result, is_awaitable_result
from pokayoke.runtime.memory.call_log import OpenCall
from pokayoke.runtime.threads.clock import add_jitter
from pokayoke.runtime.threads.worker_pool import LateCallback, ignore_result
from pokayoke.stores.operations import read_record_operation

if TYPE_CHECKING:
    from pokayoke.runtime.ports import RunPort

T = TypeVar("T")
_WITHDRAWN: Final = "the caller was cancelled before the tool began"


class AsyncDriver(SyncDriver):
    """Performs the steps of one call for an asynchronous caller, without blocking the event loop."""

    __slots__ = ()

    async def arun_user_code(self, step: RunUserCode) -> Reaction:
        """`run_user_code` without blocking the event loop."""
        if step.timeout is None:
            return capture_result(step.function)
        return await self._run_in_worker(step.function, step.timeout, None)

    async def aadmit_request(self, step: Admit) -> Admission:
        """`admit_request` without blocking the event loop."""
        request = step.request
        is_shared = request.needs_shared_state
        change, spent = self._find_due_change(request, is_shared=is_shared)
        if change is not None:
            await self._run.progress.achange_state(change)
        if (answer := self._admit_without_store(request, spent, is_shared=is_shared)) is not None:
            return answer
        request = self._stamp_request(request)
        if request.claim is None or not self._guard.store.needs_await:
            return await self._admit_at_store(request)
        asking = run_to_end(self._admit_at_store(request))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            run_to_end(self._withdraw_claim(request.tool, request.claim, asking, self._count_in_doubt(request.claim)))
            raise

    async def _admit_at_store(self, request: AdmissionRequest) -> Admission:
        try:
            return self._handle_admission(request, await self._guard.store.aadmit(request))
        except Exception as error:  # noqa: BLE001 - as in `admit_request`
            return Admission("refuse", store_unavailable_finding(request.tool, store_error_text(error)))

    async def aread_record(self, step: ReadRecord) -> Record | Finding | None:
        """`read_record` without blocking the event loop."""
        try:
            return await self._guard.store.arun(read_record_operation(step.key))
        except Exception as error:  # noqa: BLE001 - as in `admit_request`
            return store_unavailable_finding(step.tool, store_error_text(error))

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
            await self._report_with_retries(Settle(report, tool))
        elif waited is not None and kind != "in_doubt" and matters.open.get(claim.key) is waited:
            matters.forget_key(claim.key)

    async def aask_person(self, step: AskPerson) -> bool | None:
        """`ask_person`; an awaitable answer is awaited."""
        said = await ask_person_async(self._run, step.approval)
        if said is None:
            self._guard.announce(step.approval)
        return said

    async def ainvoke_tool(self, step: Invoke) -> tuple[Reaction, float]:
        """Run the tool; an asynchronous one always has a deadline.

        A declared deadline holds whatever the tool does. The policy's holds for every tool that accepts its
        cancellation: a task for each call would cost more than the rest of the path.
        """
        watched = self._guard.on_step is not None
        if watched:
            self._run.notice("before_invoke")
        begun = time.perf_counter()
        try:
            function = self._bind_tool(step)
        except UsageError as error:
            return self._report_misuse(error)
        limit = step.timeout or self._guard.snapshot.policy.execution.timeout
        if step.contract.is_async or self._invoke is not None:
            if step.timeout is None:
                reaction = await await_in_current_task(function, limit)
            else:
                reaction = await await_in_own_task(function, limit, self._late_callback_in_loop(step))
        elif step.timeout is None:
            reaction = capture_result(function)
        else:
            reaction = await self._run_in_worker(function, step.timeout, self._late_callback(step))
        if is_awaitable_result(reaction):
            pending = reaction.value
            reaction = await await_in_own_task(lambda: pending, limit, self._late_callback_in_loop(step))
        seconds = time.perf_counter() - begun
        if watched:
            self._run.notice("after_invoke")
        return reaction, seconds

    async def apause_before_retry(self, step: Wait) -> None:
        """`pause_before_retry` without blocking the event loop."""
        await self._guard.clock.asleep(add_jitter(step))

    async def asettle_claim(self, step: Settle) -> Finding | Record | None:
        """`settle_claim`, shielded.

        Neither a cancelled caller nor an ended loop leaves a finished effect unrecorded.
        """
        store = self._guard.store
        if not store.needs_await:
            # Nothing is awaited, so nothing can be cancelled and no task is needed.
            with contextlib.suppress(Exception):  # then it is reported again, with pauses
                return self._handle_settlement(step, store.settle(self._build_report(step)))
        return await asyncio.shield(run_to_end(self._report_with_retries(step), lambda: self.settle_claim(step)))

    async def _report_with_retries(self, step: Settle) -> Finding | Record | None:
        for pause in SETTLE_PAUSES:
            try:
                return self._handle_settlement(step, await self._guard.store.asettle(self._build_report(step)))
            except Exception as error:  # noqa: BLE001 - as in `settle_claim`
                if pause is None:
                    return self._report_unsettled(step, store_error_text(error))
            await self._guard.clock.asleep(pause)
        raise AssertionError("the last round returns")

    async def alook_up(self, step: LookUp) -> Reaction:
        """`look_up` without blocking the event loop."""
        lookup = step.contract.lookup
        assert lookup is not None, "a contract with a lookup has one"
        if is_async(lookup):
            return await await_in_own_task(lambda: lookup(step.key, step.arguments), step.timeout, ignore_result)
        return await self._run_in_worker(lambda: lookup(step.key, step.arguments), step.timeout, None)

    async def achange_state(self, step: ChangeState) -> Any:
        """`change_state` without blocking the event loop."""
        review = with_current_time(self._run, step.review)
        changed = await self._run.progress.achange_state(step.change, review)
        if review is not None:
            self._guard.announce(review)
        return changed

    async def acount_output(self, step: CountOutput) -> None:
        """`count_output` without blocking the event loop."""
        board = self._guard.switchboard
        board.count_invalid(step.seen)
        if not self._guard.store.durable:
            board.flush()
            return
        limit = self._guard.snapshot.policy.execution.timeout
        reaction = await self._run_in_worker(board.flush, limit, None)
        if isinstance(reaction, NotStarted):  # every thread hangs; better late than not at all
            board.flush()
        elif isinstance(reaction, Raised):
            raise reaction.error

    def _late_callback_in_loop(self, step: Invoke) -> LateCallback:
        """`_late_callback` for results in the event loop, which must not wait for a store."""
        late, workers = self._late_callback(step), self._guard.workers
        return partial(workers.deliver_late, late) if self._guard.store.needs_await else late

    async def _run_in_worker(self, function: Callable[[], Any], limit: float, late: LateCallback | None) -> Reaction:
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
            raise
        if job.reaction is None and self._guard.workers.give_up(job, late):
            return TimedOut(limit)
        assert job.reaction is not None, "a finished job has a reaction"
        return job.reaction


_ASYNC_HANDLERS: dict[type, Callable[[AsyncDriver, Any], Awaitable[Any]]] = {
    RunUserCode: AsyncDriver.arun_user_code,
    Admit: AsyncDriver.aadmit_request,
    ReadRecord: AsyncDriver.aread_record,
    AskPerson: AsyncDriver.aask_person,
    Invoke: AsyncDriver.ainvoke_tool,
    Wait: AsyncDriver.apause_before_retry,
    Settle: AsyncDriver.asettle_claim,
    LookUp: AsyncDriver.alook_up,
    ChangeState: AsyncDriver.achange_state,
    CountOutput: AsyncDriver.acount_output,
}


async def adrive_steps(walk: Generator[Step, Any, T], world: AsyncDriver) -> T:
    """`drive_steps` for asynchronous callers."""
    try:
        step = next(walk)
        while True:
            waiting = _ASYNC_HANDLERS.get(type(step))
            answer = HANDLERS[type(step)](world, step) if waiting is None else await waiting(world, step)
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
    return await asyncio.shield(run_to_end(progress.asave_totals(), progress.save_totals))
