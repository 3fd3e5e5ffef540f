"""P17: a thousand calls that one event loop has to serve at once."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from math import inf

import pokayoke
from bench.goal import Goal
from bench.measure import Effort, low_percentile
from bench.place import Place

CALLS, SECONDS = 1_000, 0.01
BARE, OFF = "the bare tool", "write without following values (untrusted.mode: off)"


async def wait_and_answer(key: int) -> dict[str, int]:
    await asyncio.sleep(SECONDS)
    return {"key": key}


async def measure_pauses(stop: asyncio.Event) -> float:
    """Return the longest CPU time of the loop's thread between two turns of this task."""
    longest, last = 0.0, time.thread_time()
    while not stop.is_set():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    return longest


async def run_at_once(one: Callable[[int], Awaitable[object]]) -> tuple[float, float]:
    """Return CPU seconds per call of a thousand at once, and the longest pause of the loop among them."""
    gc.collect()
    begin = time.process_time()
    await asyncio.gather(*map(one, range(CALLS)))
    each = (time.process_time() - begin) / CALLS
    # Measured apart: whoever looks at every iteration takes as long as a call.
    stop = asyncio.Event()
    pauses = asyncio.create_task(measure_pauses(stop))
    await asyncio.sleep(0)
    await asyncio.gather(*map(one, range(CALLS, 2 * CALLS)))
    stop.set()
    return each, await pauses


def build_case(effect: str, untrusted: str = "note") -> Callable[[int], Awaitable[object]]:
    contract = pokayoke.tool(effect=effect)(wait_and_answer)
    run = pokayoke.Guard([contract], config={"untrusted": {"mode": untrusted}}).run()

    async def one(key: int) -> None:
        outcome = await run.acall(pokayoke.ToolCall(f"call_{key}", contract.name, json.dumps({"key": key})))
        assert outcome.status == "ok", outcome

    return one


def at_once(place: Place, effort: Effort) -> Iterator[Goal]:
    """P17: CPU per call of a read and of a write in the memory ledger, and the longest pause of the loop."""
    # What other parts have loaded is not looked at: a full collection would walk it in the middle of a burst.
    gc.collect()
    gc.freeze()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in (BARE, "read", "write", OFF)}
    for _ in range(5 if effort.is_quick else 20):
        for name, taken in found.items():
            case = wait_and_answer if name == BARE else build_case("write", "off") if name == OFF else build_case(name)
            taken.append(asyncio.run(run_at_once(case)))
    gc.unfreeze()
    for name, required, stretch in ((BARE, inf, inf), ("read", 100, 70), ("write", 160, 120), (OFF, inf, inf)):
        us = low_percentile([each for each, _ in found[name]]) * 1e6
        yield Goal(
            "-" if required == inf else "P17",
            f"{CALLS:,} calls at once, us of CPU each: {name}",
            us,
            required,
            stretch,
        )
    for name in ("read", "write"):
        pauses = sorted(pause for _, pause in found[name])
        title = f"{CALLS:,} calls at once, longest pause of the loop in ms of CPU: {name}"
        yield Goal("P17", title, pauses[len(pauses) // 2] * 1e3, 50, 50, note=f"at worst {pauses[-1] * 1e3:.1f}")
