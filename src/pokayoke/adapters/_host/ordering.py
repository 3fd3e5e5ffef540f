"""The order of calls in a framework that starts the calls of one message side by side.

In: calls that begin and end. Out: reads that run together, and writes that run alone. Never: a call that waits for a
call that has not begun.

A write waits for every call that began before it, as in a batch of our own: it must not build on a read that turns out
invalid, and of two equal writes the second has to find the first. A call that the framework never makes delays nothing.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self

from pokayoke.errors import UsageError

_orderings_var: ContextVar[tuple[CallOrdering, ...]] = ContextVar("pokayoke_turnstile", default=())


def is_inside_call() -> bool:
    """Return whether this code runs inside a guarded call, such as one of a tool that asks another agent."""
    return bool(_orderings_var.get())


class CallOrdering:
    """The order of the calls of one run. Thread-safe, for threads and event loops alike."""

    def __init__(self) -> None:
        """Begin empty."""
        self._lock = threading.Lock()
        self._open: list[CallSlot] = []

    def call_slot(self, reads: bool) -> CallSlot:
        """Return the slot of one call: a context manager, synchronous and asynchronous."""
        return CallSlot(self, reads)

    def begin_call(self, slot: CallSlot) -> list[CallSlot]:
        """Register a call that begins; returns the calls that it has to wait for."""
        with self._lock:
            open_slots = self._open
            ahead = [one for one in open_slots if not (one.reads and slot.reads)] if open_slots else []
            open_slots.append(slot)
            return ahead

    def latest_waiter(self, ahead: list[CallSlot]) -> Future[None] | None:
        """Return a future that ends with the latest of some calls, after dropping those that are over; else None.

        One call at a time is enough: a write among them waits for the calls before it itself.
        """
        with self._lock:
            while ahead and ahead[-1].over:
                ahead.pop()
            return ahead[-1].add_waiter() if ahead else None

    def end_call(self, slot: CallSlot) -> None:
        """Remove a call that ends, so that no later call waits for it."""
        with self._lock:
            slot.over = True
            self._open.remove(slot)


class CallSlot:
    """The time of one call. A call inside another call of the same run never waits: that would be a deadlock."""

    __slots__ = ("_owner", "_token", "_waiting", "loop", "over", "reads")

    def __init__(self, owner: CallOrdering, reads: bool) -> None:
        """Wait for nothing yet."""
        self._owner, self.reads, self.over = owner, reads, False
        self._waiting: list[Future[None]] = []
        self._token: Token[tuple[CallOrdering, ...]] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    def add_waiter(self) -> Future[None]:
        """Return a future that ends with this call."""
        future: Future[None] = Future()
        self._waiting.append(future)
        return future

    def check_deadlock(self) -> None:
        """Refuse to block the event loop in which this call runs.

        Raises:
            UsageError: the caller is in that event loop.
        """
        if self.loop is not None and self.loop is _running_loop():
            raise UsageError(
                "a call of this run is awaited in this event loop, and a blocking one would wait for it for ever: "
                "use the asynchronous form of the call, or make it in a thread"
            )

    def __enter__(self) -> Self:
        """Wait for the calls before this one, blocking.

        Raises:
            UsageError: that would block the event loop in which one of them runs.
        """
        ahead = self._enter_slot()
        try:
            for one in ahead:
                one.check_deadlock()
            while (future := self._owner.latest_waiter(ahead)) is not None:
                future.result()
        except BaseException:
            self._leave_slot()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the call."""
        self._leave_slot()

    async def __aenter__(self) -> Self:
        """Wait for the calls before this one."""
        self.loop = asyncio.get_running_loop()
        ahead = self._enter_slot()
        try:
            while (future := self._owner.latest_waiter(ahead)) is not None:
                await asyncio.wrap_future(future)
        except BaseException:
            self._leave_slot()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """End the call."""
        self._leave_slot()

    def _enter_slot(self) -> list[CallSlot]:
        outer = _orderings_var.get()
        if self._owner in outer:
            return []
        self._token = _orderings_var.set((*outer, self._owner))
        return self._owner.begin_call(self)

    def _leave_slot(self) -> None:
        if self._token is not None:
            _orderings_var.reset(self._token)
            self._token = None
            self._owner.end_call(self)
            for future in self._waiting:
                if future.set_running_or_notify_cancel():
                    future.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
