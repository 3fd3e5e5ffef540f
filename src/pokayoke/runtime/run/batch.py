"""Runs all calls of one message: reads concurrently, writes alone and in order.

In: the calls of a message.
Out: one outcome for each, by its place: call ids repeat in real recordings.
Never: a write that starts before the reads in front of it have ended.
"""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from pokayoke.core.call import Finding, Outcome, ToolCall
from pokayoke.core.host_input import as_calls, as_function
from pokayoke.core.intake import is_cut
from pokayoke.runtime.threads.worker_pool import start_thread

if TYPE_CHECKING:
    from pokayoke.runtime.ports import BatchInvoke, RunPort

Group = list[tuple[int, ToolCall]]


def run_batch(
    run: RunPort, calls: Sequence[ToolCall], stop_reason: str | None, invoke: BatchInvoke | None
) -> list[Outcome]:
    """Run the calls of one message and return their outcomes in order."""
    outcomes: dict[int, Outcome] = {}
    calls = _mark_cut(calls, stop_reason)
    _require_handlers(run, calls, invoke)
    for group in _split_groups(run, calls):
        if len(group) == 1:
            place, call = group[0]
            outcomes[place] = run.call(call, invoke=_bind_invoke(invoke, call))
            continue
        outcomes.update(_run_side_by_side(run, group, invoke))
    return [outcomes[place] for place in range(len(calls))]


def _run_side_by_side(run: RunPort, group: Group, invoke: BatchInvoke | None) -> dict[int, Outcome]:
    """Run neighbouring reads in threads, each in a copy of the caller's context.

    The caller takes its share: where the system gives no thread, it takes them all.
    """
    waiting = deque((place, call, contextvars.copy_context()) for place, call in group)
    outcomes: dict[int, Outcome] = {}
    errors: list[BaseException] = []

    def run_waiting(number: int) -> None:
        with suppress(IndexError):
            while number < _count_slots(run):
                place, call, context = waiting.popleft()
                try:
                    outcomes[place] = context.run(run.call, call, invoke=_bind_invoke(invoke, call))
                except BaseException as error:  # noqa: BLE001 - raised below, when no read is running any more
                    errors.append(error)
                    waiting.clear()

    threads = [
        start_thread("pokayoke-batch", run_waiting, number) for number in range(1, min(_count_slots(run), len(group)))
    ]
    run_waiting(0)
    for thread in threads:
        if thread is not None:
            thread.join()
    if errors:
        raise errors[0]
    return outcomes


async def arun_batch(
    run: RunPort, calls: Sequence[ToolCall], stop_reason: str | None, invoke: BatchInvoke | None
) -> list[Outcome]:
    """`run_batch` for asynchronous code."""
    import asyncio  # noqa: PLC0415 - 20 ms of import, for those who await

    outcomes: dict[int, Outcome] = {}
    calls = _mark_cut(calls, stop_reason)
    _require_handlers(run, calls, invoke)
    size = _count_slots(run)
    slots = asyncio.Semaphore(size)

    async def run_one(place: int, call: ToolCall) -> None:
        nonlocal size
        await slots.acquire()
        try:
            outcomes[place] = await run.acall(call, invoke=_bind_invoke(invoke, call))
        finally:
            if size > _count_slots(run):
                size -= 1  # a worker that was left behind keeps the slot
            else:
                slots.release()

    for group in _split_groups(run, calls):
        ended = await asyncio.gather(*(run_one(place, call) for place, call in group), return_exceptions=True)
        if (error := next((each for each in ended if each is not None), None)) is not None:
            raise error
    return [outcomes[place] for place in range(len(calls))]


def _count_slots(run: RunPort) -> int:
    """Return how many calls may run side by side. A worker that hangs past its deadline takes a slot, but the last."""
    return max(1, run.snapshot.policy.execution.concurrency - run.guard.workers.lost_count)


def _require_handlers(run: RunPort, calls: Sequence[ToolCall], invoke: BatchInvoke | None) -> None:
    """A tool that nobody can run is the host's mistake: say so before the first call has an outcome to lose.

    Raises:
        UsageError: a tool has no handler, and there is no `invoke`; or that is no function.
    """
    if invoke is not None:
        as_function(invoke, "invoke")
    for call in calls if invoke is None else ():
        plan = run.snapshot.find_plan(call.name)
        if not isinstance(plan, Finding) and not is_cut(call.stop_reason):
            run.handler(plan.contract)


def _mark_cut(calls: Sequence[ToolCall], stop_reason: str | None) -> Sequence[ToolCall]:
    """A cut anywhere in a message is a cut of the message: every call of it carries the proof."""
    calls = as_calls(calls)
    proof = next((reason for reason in (stop_reason, *(c.stop_reason for c in calls)) if is_cut(reason)), None)
    if proof is None:
        return calls
    return [msgspec.structs.replace(call, stop_reason=proof) for call in calls]


def _split_groups(run: RunPort, calls: Sequence[ToolCall]) -> Iterator[Group]:
    """Split into groups that may run side by side: neighbouring reads, or one call of another kind."""
    reads: Group = []
    for place, call in enumerate(calls):
        plan = run.snapshot.find_plan(call.name)
        if not isinstance(plan, Finding) and plan.contract.effect == "read":
            reads.append((place, call))
            continue
        if reads:
            yield reads
            reads = []
        yield [(place, call)]
    if reads:
        yield reads


def _bind_invoke(invoke: BatchInvoke | None, call: ToolCall) -> Callable[[dict[str, Any]], Any] | None:
    return None if invoke is None else partial(invoke, call)  # by which a coroutine function is still known as one
