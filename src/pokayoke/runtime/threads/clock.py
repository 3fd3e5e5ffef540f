"""The only clock. Everything else is handed its readings, so a test can hold the time still."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from pokayoke.core.flow.steps import Wait

LONGEST_WAIT = threading.TIMEOUT_MAX / 2
"""Seconds that can be waited for; what is beyond them overflows, in Python or in the system."""


class Clock(Protocol):
    """Where a guard gets its time from."""

    def now(self) -> float:
        """Wall-clock seconds since the epoch: for people and for records."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards, the same for all processes of a machine: for deadlines and durations."""
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
        """Wait before a retry; for longer than the machine can count, as long as it can."""
        time.sleep(min(seconds, LONGEST_WAIT))

    async def asleep(self, seconds: float) -> None:
        """Wait before a retry without blocking the event loop."""
        from asyncio import sleep  # noqa: PLC0415 - 20 ms of import, for those who await

        await sleep(seconds)


def add_jitter(step: Wait) -> float:
    """The delay, spread to both sides so that many callers do not return at one moment."""
    from random import uniform  # noqa: PLC0415 - a millisecond of import, for who waits

    return step.seconds * (1 + step.jitter * uniform(-1, 1))  # noqa: S311 - not a secret
