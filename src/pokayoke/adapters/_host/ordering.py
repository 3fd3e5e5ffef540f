"""In a framework that starts the calls of one message side by side, reads go together and a write goes alone.

As in a batch of our own: a write waits for what began before it, so that it is never built on a read that turns
out invalid, and two equal writes are one effect and one replay. Only calls that have begun are waited for, so a
call that the framework never makes holds nobody up.
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
    """Return whether this code is part of a guarded call, such as that of a tool that asks another agent."""
    return bool(_orderings_var.get())


class CallOrdering:
    """Lets calls of one run pass. Thread-safe, for threads and event loops alike."""

    def __init__(self) -> None:
        """Begin empty."""
        self._lock = threading.Lock()
        self._passing: list[CallSlot] = []

    def call_slot(self, reads: bool) -> CallSlot:
        """Return the passage of one call: a context manager, synchronous and asynchronous."""
        return CallSlot(self, reads)

    def begin_call(self, passage: CallSlot) -> list[CallSlot]:
        """Let a call begin; returns the calls it has to wait for."""
        with self._lock:
            passing = self._passing
            ahead = [one for one in passing if not (one.reads and passage.reads)] if passing else []
            passing.append(passage)
            return ahead

    def latest_waiter(self, ahead: list[CallSlot]) -> Future[None] | None:
        """Return what ends with the latest of some calls, without those that are over; None if all are.

        One at a time: a write among them waits for those before it by itself, so most are over with it.
        """
        with self._lock:
            while ahead and ahead[-1].over:
                ahead.pop()
            return ahead[-1].add_waiter() if ahead else None

    def end_call(self, passage: CallSlot) -> None:
        """Let a call end; from then on, none that begins waits for it."""
        with self._lock:
            passage.over = True
            self._passing.remove(passage)


class CallSlot:
    """One call on its way. A call made inside another one of the same run never waits: it would wait for ever."""

    __slots__ = ("_owner", "_token", "_waiting", "loop", "over", "reads")

    def __init__(self, owner: CallOrdering, reads: bool) -> None:
        """Begin outside."""
        self._owner, self.reads, self.over = owner, reads, False
        self._waiting: list[Future[None]] = []
        self._token: Token[tuple[CallOrdering, ...]] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    def add_waiter(self) -> Future[None]:
        """Return what ends with this call."""
        future: Future[None] = Future()
        self._waiting.append(future)
        return future

    def check_deadlock(self) -> None:
        """Make sure that whoever is about to block for this call does not block what it needs to end."""
        if self.loop is not None and self.loop is _running_loop():
            raise UsageError(
                "a call of this run is awaited in this event loop, and a blocking one would wait for it for ever: "
                "use the asynchronous form of the call, or make it in a thread"
            )

    def __enter__(self) -> Self:
        """Wait for those before, blocking.

        Raises:
            UsageError: it would block the event loop that one of them needs to end.
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
        """Let the next go."""
        self._leave_slot()

    async def __aenter__(self) -> Self:
        """Wait for those before."""
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
        """Let the next go."""
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
