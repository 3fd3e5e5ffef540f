"""Calls that begin at once are spread over several iterations of their event loop."""

import asyncio
import json

import pokayoke
from pokayoke.runtime.threads.loop_turns import take_turn

MANY = 200


async def _iterations(stop):
    count = 0
    while not stop.is_set():
        await asyncio.sleep(0)
        count += 1
    return count


async def test_many_calls_leave_the_loop_to_others():
    """While 200 writes are admitted, everything else in the loop gets its turns, and no call is lost."""

    @pokayoke.tool(effect="write")
    async def put(key: int) -> dict:
        """Write a record."""
        return {"key": key}

    run, stop = pokayoke.Guard([put]).run(), asyncio.Event()
    others = asyncio.create_task(_iterations(stop))
    calls = [pokayoke.ToolCall(f"c{key}", "put", json.dumps({"key": key})) for key in range(MANY)]
    outcomes = await asyncio.gather(*map(run.acall, calls))
    stop.set()
    assert [outcome.value for outcome in outcomes] == [{"key": key} for key in range(MANY)]
    assert await others >= MANY // 50


async def test_turns_keep_their_order_and_skip_who_has_gone():
    """Whoever came first begins first; a cancelled caller takes nobody's turn."""
    begun = []

    async def begin(number):
        if (turn := take_turn()) is not None:
            await turn
        begun.append(number)

    tasks = [asyncio.create_task(begin(number)) for number in range(MANY)]
    await asyncio.sleep(0)
    for number in range(50, 150):
        tasks[number].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert begun == [*range(50), *range(150, MANY)]


def test_a_new_loop_begins_anew():
    """Callers whom a closed loop left behind hold up nobody in the next one."""

    async def begin_many():
        for _ in range(MANY):
            waits = take_turn()
        return waits

    async def begin_one():
        return take_turn()

    assert asyncio.run(begin_many()) is not None
    assert asyncio.run(begin_one()) is None
