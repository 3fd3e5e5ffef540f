"""Live events: only that something has changed, for any number of pages at the price of one."""

import asyncio

from pokayoke.dashboard.live import LOOK_SECONDS, Watcher
from pokayoke.stores.lists import Pulse


async def take(stream, number, seconds=30.0):
    """The next events of a stream."""
    return [await asyncio.wait_for(anext(stream), seconds) for _ in range(number)]


async def test_fifty_pages_cost_what_one_costs():
    """All of them hear of a change, and the store is asked at most five times a second."""
    pulses = [Pulse(0, 0, (0.0,))]
    looks = []

    def read():
        looks.append(1)
        return pulses[-1]

    watcher = Watcher(read, lambda: None)
    pages = [watcher.stream() for _ in range(50)]
    for page in pages:
        assert "event: open" in (await take(page, 1))[0]
    begun = asyncio.get_running_loop().time()
    waiting = [asyncio.ensure_future(take(page, 1)) for page in pages]
    await asyncio.sleep(2.0)
    pulses.append(Pulse(1, 0, (1.0,)))
    events = await asyncio.gather(*waiting)
    took = asyncio.get_running_loop().time() - begun
    assert {event for (event,) in events} == {"event: changed\ndata:\n\n"}
    assert len(looks) <= took * 5 + 5
    for page in pages:
        await page.aclose()


async def test_nobody_looks_for_nobody():
    """Once the last page is closed, the store is left alone; a page that comes later is served again."""
    looks = []
    watcher = Watcher(lambda: looks.append(1) or Pulse(0, 0, ()), lambda: None)
    page = watcher.stream()
    await take(page, 1)
    await asyncio.sleep(LOOK_SECONDS * 2)
    await page.aclose()
    await asyncio.sleep(LOOK_SECONDS * 3)
    seen = len(looks)
    await asyncio.sleep(LOOK_SECONDS * 4)
    assert len(looks) == seen
    again = watcher.stream()
    await take(again, 1)
    await asyncio.sleep(LOOK_SECONDS * 2)
    assert len(looks) > seen
    await again.aclose()


async def test_a_store_that_goes_away_and_comes_back_is_a_change_each_time():
    """The page asks for its rows and shows what it is told."""
    state = {"away": False}

    def read():
        if state["away"]:
            raise OSError("gone")
        return Pulse(0, 0, ())

    page = Watcher(read, lambda: None).stream()
    await take(page, 1)
    await asyncio.sleep(LOOK_SECONDS * 3)
    for away in (True, False):
        state["away"] = away
        assert (await take(page, 1))[0].startswith("event: changed")
    await page.aclose()
