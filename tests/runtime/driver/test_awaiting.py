"""Tools that are awaited in their caller's own task: from the first step to the last, whatever happens between."""

import asyncio
import time

import pytest

import pokayoke
from pokayoke.core.flow.steps import Raised, Returned, TimedOut
from pokayoke.runtime.driver.awaiting import await_in_current_task

LONG = 30.0


def reaction(tool, limit=LONG):
    """What a tool comes to in an event loop of its own."""
    return asyncio.run(await_in_current_task(tool, limit))


async def never_waits():
    return "at once"


async def waits_often():
    seen = []
    for number in range(3):
        await asyncio.sleep(0)
        seen.append(await asyncio.get_running_loop().run_in_executor(None, lambda: number))  # noqa: B023 - awaited here
    return seen


async def gathers():
    return await asyncio.gather(never_waits(), asyncio.sleep(0.001, "slept"))


class Awaitable:
    """An awaitable that is no coroutine."""

    def __await__(self):
        yield from asyncio.sleep(0).__await__()
        return "awaited"


@pytest.mark.parametrize(
    ("tool", "value"),
    [
        (never_waits, "at once"),
        (waits_often, [0, 1, 2]),
        (gathers, ["at once", "slept"]),
        (Awaitable, "awaited"),
        (lambda: "no awaitable", "no awaitable"),
    ],
)
def test_what_a_tool_returns_arrives(tool, value):
    """However often a tool waits, and for what, its value is the reaction."""
    assert reaction(tool) == Returned(value)


@pytest.mark.parametrize("waits", [0, 1, 2])
@pytest.mark.parametrize("error", [ValueError, TimeoutError, StopAsyncIteration, SystemExit, asyncio.CancelledError])
def test_what_a_tool_raises_arrives(error, waits):
    """In its first step or later, a tool's exception is the tool's own, a `TimeoutError` included."""

    async def tool():
        for _ in range(waits):
            await asyncio.sleep(0)
        raise error("why")

    got = reaction(tool)
    assert isinstance(got, Raised)
    assert type(got.error) is error


def test_a_failed_wait_reaches_the_tool_which_may_go_on():
    """What a tool waits for may fail: the tool hears of it, handles it, and its value counts."""

    async def tool():
        loop = asyncio.get_running_loop()
        said = []
        for _ in range(2):
            future = loop.create_future()
            loop.call_soon(future.set_exception, OSError("gone"))
            try:
                await future
            except OSError as problem:
                said.append(str(problem))
        return said

    assert reaction(tool) == Returned(["gone", "gone"])


@pytest.mark.parametrize("steps", [0, 1])
def test_the_deadline_cancels_a_tool_that_waits(steps):
    """A tool that waits past its deadline is cancelled where it waits, and cleans up."""
    cleaned = []

    async def tool():
        for _ in range(steps):
            await asyncio.sleep(0)
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(True)

    assert reaction(tool, 0.02) == TimedOut(0.02)
    assert cleaned == [True]


@pytest.mark.parametrize(("first", "limit"), [(0.1, 0.05), (0.15, 0.2)])
def test_the_time_before_a_tool_first_waits_counts(first, limit):
    """A tool that works before it waits has only what is left of its time, and none if nothing is left."""

    async def tool():
        time.sleep(first)  # noqa: ASYNC251 - a tool that holds the loop up
        await asyncio.sleep(0.1)
        return "too late"

    assert reaction(tool, limit) == TimedOut(limit)


def test_a_cancelled_caller_stays_cancelled():
    """The caller's cancellation reaches the tool and goes on to the caller; it is no reaction."""
    heard = []

    async def tool():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            heard.append("tool")
            raise

    async def main():
        task = asyncio.ensure_future(await_in_current_task(tool, LONG))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert heard == ["tool"]


def test_a_caller_that_is_dropped_closes_the_tool():
    """A coroutine that nobody awaits to its end closes the tool it was waiting for."""
    closed = []

    async def tool():
        try:
            await asyncio.sleep(60)
        finally:
            closed.append(True)

    async def main():
        pending = await_in_current_task(tool, LONG)
        pending.send(None)
        pending.close()

    asyncio.run(main())
    assert closed == [True]


def test_a_tool_that_never_waits_sets_no_clock(monkeypatch):
    """Only a tool that waits can be late: the others do not pay for a timer."""
    timed = []
    real = asyncio.timeout
    monkeypatch.setattr(asyncio, "timeout", lambda limit: timed.append(limit) or real(limit))
    assert reaction(never_waits) == Returned("at once")
    assert timed == []
    assert reaction(waits_often) == Returned([0, 1, 2])
    (left,) = timed
    assert LONG - 5 < left < LONG


def test_what_a_tool_calls_may_see_its_effect_in_every_step():
    """The write a tool is doing is known to it before and after it has waited."""

    @pokayoke.tool(effect="write", output={"type": "object"})
    async def pay(order: str):
        """Pay an order."""
        first = pokayoke.this_effect().key
        await asyncio.sleep(0)
        return {"same": first == pokayoke.this_effect().key}

    async def main():
        async with pokayoke.Guard([pay]).run("r") as run:
            return await run.acall(pokayoke.ToolCall("c", "pay", {"order": "o"}))

    assert asyncio.run(main()).value == {"same": True}
