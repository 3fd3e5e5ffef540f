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

_inside: ContextVar[tuple[Turnstile, ...]] = ContextVar("pokayoke_turnstile", default=())


def inside() -> bool:
    """Return whether this code is part of a guarded call, such as that of a tool that asks another agent."""
    return bool(_inside.get())


class Turnstile:
    """Lets calls of one run pass. Thread-safe, for threads and event loops alike."""

    def __init__(self) -> None:
        """Begin empty."""
        self._lock = threading.Lock()
        self._passing: list[Passage] = []

    def passing(self, reads: bool) -> Passage:
        """Return the passage of one call: a context manager, synchronous and asynchronous."""
        return Passage(self, reads)

    def enter(self, passage: Passage) -> list[Passage]:
        """Let a call begin; returns the calls it has to wait for."""
        with self._lock:
            passing = self._passing
            ahead = [one for one in passing if not (one.reads and passage.reads)] if passing else []
            passing.append(passage)
            return ahead

    def ends(self, ahead: list[Passage]) -> Future[None] | None:
        """Return what ends with the latest of some calls, without those that are over; None if all are.

        One at a time: a write among them waits for those before it by itself, so most are over with it.
        """
        with self._lock:
            while ahead and ahead[-1].over:
                ahead.pop()
            return ahead[-1].wait() if ahead else None

    def leave(self, passage: Passage) -> None:
        """Let a call end; from then on, none that begins waits for it."""
        with self._lock:
            passage.over = True
            self._passing.remove(passage)


class Passage:
    """One call on its way. A call made inside another one of the same run never waits: it would wait for ever."""

    __slots__ = ("_owner", "_token", "_waiting", "loop", "over", "reads")

    def __init__(self, owner: Turnstile, reads: bool) -> None:
        """Begin outside."""
        self._owner, self.reads, self.over = owner, reads, False
        self._waiting: list[Future[None]] = []
        self._token: Token[tuple[Turnstile, ...]] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    def wait(self) -> Future[None]:
        """Return what ends with this call."""
        future: Future[None] = Future()
        self._waiting.append(future)
        return future

    def must_not_block(self) -> None:
        """Make sure that whoever is about to block for this call does not block what it needs to end."""
        if self.loop is not None and self.loop is _running():
            raise UsageError(
                "a call of this run is awaited in this event loop, and a blocking one would wait for it for ever: "
                "use the asynchronous form of the call, or make it in a thread"
            )

    def __enter__(self) -> Self:
        """Wait for those before, blocking.

        Raises:
            UsageError: it would block the event loop that one of them needs to end.
        """
        ahead = self._begun()
        try:
            for one in ahead:
                one.must_not_block()
            while (future := self._owner.ends(ahead)) is not None:
                future.result()
        except BaseException:
            self._ended()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Let the next go."""
        self._ended()

    async def __aenter__(self) -> Self:
        """Wait for those before."""
        self.loop = asyncio.get_running_loop()
        ahead = self._begun()
        try:
            while (future := self._owner.ends(ahead)) is not None:
                await asyncio.wrap_future(future)
        except BaseException:
            self._ended()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Let the next go."""
        self._ended()

    def _begun(self) -> list[Passage]:
        outer = _inside.get()
        if self._owner in outer:
            return []
        self._token = _inside.set((*outer, self._owner))
        return self._owner.enter(self)

    def _ended(self) -> None:
        if self._token is not None:
            _inside.reset(self._token)
            self._token = None
            self._owner.leave(self)
            for future in self._waiting:
                if future.set_running_or_notify_cancel():
                    future.set_result(None)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
