"""The only source of time. Everything else receives its readings, so a test can stop the clock.

In: nothing.
Out: seconds.
Never: a wait that overflows.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from pokayoke.core.flow.steps import Wait

LONGEST_WAIT = threading.TIMEOUT_MAX / 2
"""Most seconds to wait; more would overflow in Python or in the system."""


class Clock(Protocol):
    """A guard's source of time."""

    def now(self) -> float:
        """Wall-clock seconds since the epoch, for people and records."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards, shared by all processes of a machine: for deadlines and durations."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Wait before a retry."""
        ...

    async def asleep(self, seconds: float, /) -> None:
        """Wait before a retry in asynchronous code."""
        ...


class SystemClock:
    """The machine's clocks."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    def sleep(self, seconds: float) -> None:
        """Wait before a retry; at most as long as the machine can count."""
        time.sleep(min(seconds, LONGEST_WAIT))

    async def asleep(self, seconds: float) -> None:
        """Wait before a retry without blocking the event loop."""
        from asyncio import sleep  # noqa: PLC0415 - 20 ms of import, needed by asynchronous callers only

        await sleep(seconds)


def add_jitter(step: Wait) -> float:
    """Return the delay, spread to both sides so that many callers do not return at the same moment."""
    from random import uniform  # noqa: PLC0415 - a millisecond of import, needed by waits only

    return step.seconds * (1 + step.jitter * uniform(-1, 1))  # noqa: S311 - not a secret
