"""A clock that stands still until a test advances it."""

from __future__ import annotations

import threading


class FrozenClock:
    """A wall clock and a monotonic clock that only move together, by `advance`: `Guard(..., clock=...)`.

    Args:
        now: the wall-clock time in seconds since the epoch (2026-01-01 00:00:00 UTC by default).
        monotonic: the reading of the monotonic clock in seconds.

    Attributes:
        slept: every sleep in seconds, in order.
    """

    def __init__(self, now: float = 1_767_225_600.0, *, monotonic: float = 1_000.0) -> None:
        self.slept: list[float] = []
        self._now = now
        self._monotonic = monotonic
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return the wall-clock time in seconds since the epoch."""
        return self._now

    def monotonic(self) -> float:
        """Return the reading of the monotonic clock in seconds."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Advance both clocks.

        Args:
            seconds: how far, zero or more.

        Raises:
            ValueError: `seconds` is negative; a monotonic clock never goes back. See `set_back`.
        """
        if seconds < 0:
            raise ValueError(f"a monotonic clock cannot go back by {-seconds} s; set_back() moves the wall clock alone")
        with self._lock:
            self._now += seconds
            self._monotonic += seconds

    def set_back(self, seconds: float) -> None:
        """Set the wall clock back by `seconds`, as a time server does; the monotonic clock stays."""
        with self._lock:
            self._now -= seconds

    def sleep(self, seconds: float) -> None:
        """Advance both clocks by `seconds`, and record them in `slept`."""
        self.slept.append(seconds)
        self.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        """Advance both clocks by `seconds` in async code. See `sleep`."""
        self.sleep(seconds)
