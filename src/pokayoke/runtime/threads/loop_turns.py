"""Spreads calls that begin at once over several iterations of an event loop.

In: the calls that an event loop begins.
Out: a future to wait for, for each call beyond those that one iteration takes.
Never: an iteration in which a thousand calls are admitted, so that nothing else in the loop runs meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Final

_CALLS_PER_ITERATION: Final = 32
"""About 4 ms of a small write's admissions: short for everything else in the loop, long beside the cost of a turn."""


class _LoopTurns:
    """The calls of one event loop: those of this iteration, and those that wait in the order in which they came."""

    __slots__ = ("_begun", "_waiting", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._begun = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> asyncio.Future[None] | None:
        """Begin a call now (None), or return the future that resolves when it may begin."""
        if self._begun < _CALLS_PER_ITERATION:
            if not self._begun:
                self.loop.call_soon(self._begin_iteration)
            self._begun += 1
            return None
        turn = self.loop.create_future()
        self._waiting.append(turn)
        return turn

    def _begin_iteration(self) -> None:
        self._begun = 0
        while self._waiting and self._begun < _CALLS_PER_ITERATION:
            turn = self._waiting.popleft()
            if not turn.done():  # else its caller was cancelled
                turn.set_result(None)
                self._begun += 1
        if self._begun:
            self.loop.call_soon(self._begin_iteration)


_of_thread = threading.local()


def take_turn() -> asyncio.Future[None] | None:
    """Let a call of the running event loop begin: None means now, a future is awaited first."""
    loop = asyncio.get_running_loop()
    turns: _LoopTurns | None = getattr(_of_thread, "turns", None)
    if turns is None or turns.loop is not loop:
        turns = _of_thread.turns = _LoopTurns(loop)
    return turns.take()
