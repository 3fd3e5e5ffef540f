"""Awaits tools and reports: in the current task or in one of their own, up to a deadline.

In: a function whose result is awaited.
Out: a reaction.
Never: a cancellation of the caller that is taken for a failure of the tool.
"""

from __future__ import annotations

import asyncio
import inspect
import time
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

from pokayoke.core.flow.steps import (
    Raised,
    Reaction,
    Returned,
    TimedOut,
)
from pokayoke.core.json.values import kind_of
from pokayoke.runtime.threads.worker_pool import LateCallback

T = TypeVar("T")
_protected_tasks: Final[set[asyncio.Task[Any]]] = set()
"""Tasks that must end although no caller awaits them."""


def run_to_end(work: Coroutine[Any, Any, T], otherwise: Callable[[], object] | None = None) -> asyncio.Task[T]:
    """Start work that must end even if its caller is cancelled. The event loop keeps no strong reference to it.

    Args:
        work: the work.
        otherwise: does the work without a loop, if the loop ends first and cancels its tasks.
    """

    def discard_task(task: asyncio.Task[T]) -> None:
        _protected_tasks.discard(task)
        if task.cancelled() and otherwise is not None:
            otherwise()

    task = asyncio.ensure_future(work)
    _protected_tasks.add(task)
    task.add_done_callback(discard_task)
    return task


async def await_in_current_task(function: Callable[[], Any], limit: float) -> Reaction:
    """Await `function()` in the current task, with a deadline of `limit` seconds."""
    task = asyncio.current_task()
    cancelled = 0 if task is None else task.cancelling()  # the host may have ignored an earlier cancellation
    try:
        value = function()
        if not hasattr(kind_of(value), "__await__"):
            return Returned(value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit in a tool must not end the host
        return Raised(error)
    try:
        return await _await_with_deadline(value, limit, task, cancelled)
    except TimeoutError:
        return TimedOut(limit)


async def _await_with_deadline(
    pending: Awaitable[Any], limit: float, task: asyncio.Task[Any] | None, cancelled: int
) -> Reaction:
    """Await something for at most `limit` seconds. One that never waits sets no timer, which is expensive.

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
        return _reraise_or_wrap(error, task, cancelled)
    # The first step counts: if it took all the time, the rest is cancelled where it first waits.
    async with asyncio.timeout(limit - (time.monotonic() - begun)):
        try:
            return Returned(await _delegate_from(first, steps))
        except BaseException as error:  # noqa: BLE001 - as above
            return _reraise_or_wrap(error, task, cancelled)


def _reraise_or_wrap(error: BaseException, task: asyncio.Task[Any] | None, cancelled: int) -> Raised:
    """Return what a tool raised as a reaction. Raises what ends the host, and the caller's cancellation."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > cancelled:
        raise error
    return Raised(error)  # without a cancellation of the caller it is the tool's own


@types.coroutine
def _delegate_from(first: Any, steps: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await the rest of an awaitable that yielded `first`: PEP 380's delegation, one step in."""
    waiting = first
    try:
        while True:
            try:
                answer = yield waiting
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:  # noqa: BLE001 - whatever it is, the awaitable gets it
                waiting = steps.throw(error)
            else:
                waiting = steps.send(answer)
    except StopIteration as end:
        ended: T = end.value
        return ended


def _abandon_task(task: asyncio.Task[Reaction], late: LateCallback) -> None:
    """Cancel an abandoned tool. If it ends all the same, `late` gets its reaction."""
    task.cancel()
    task.add_done_callback(lambda ended: None if ended.cancelled() else late(ended.result()))


async def await_in_own_task(function: Callable[[], Any], limit: float, late: LateCallback) -> Reaction:
    """Await `function()` in a task of its own. One that ignores its cancellation at the deadline is abandoned."""

    async def capture_async_result() -> Reaction:
        try:
            value = function()
            return Returned(await value if inspect.isawaitable(value) else value)
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit in a tool must not end the host
            return Raised(error)

    task = asyncio.ensure_future(capture_async_result())
    try:
        done, _ = await asyncio.wait({task}, timeout=limit)
    except asyncio.CancelledError:
        _abandon_task(task, late)
        raise
    if not done:
        _abandon_task(task, late)
        return TimedOut(limit)
    if task.cancelled():
        return Raised(asyncio.CancelledError("the tool cancelled itself"))
    return task.result()
