"""Tells open pages that something has changed, and nothing else.

One watcher looks at the store twice a second as long as a page is open, however many are. It tells of a change at
once, and of the next one when what the pages read after it, spread over the time, stays below five reads a second:
fifty pages over a busy ledger cost no more than one. A poll works with every store; a notification of the database
would make every commit of a busy ledger wait for the one before it.

In: the pulse of a store, and the sizes of trace files.
Out: server-sent events without content, at most one a second for each page.
Never: a row of the store in an event, or a watcher that looks for nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Final

from pokayoke.stores.lists import Pulse

LOOK_SECONDS: Final = 0.5
_EVENT_SECONDS: Final = 1.0
_READS_A_SECOND: Final = 2.0
"""Of all pages together; beside them the watcher reads twice."""
_LONGEST_WAIT: Final = 10.0
"""Seconds after which a change is told, whatever pages read."""
_SILENCE_SECONDS: Final = 15.0
"""After so long without a change a comment is sent, so that a dead connection is noticed."""


class Watcher:
    """Looks at a store for all open pages of one event loop.

    Args:
        read_pulse: reads the pulse of the store; may block.
        read_files: returns what changes with the trace files; may block.
        count_reads: returns how many lists pages have read since it was last called.
    """

    def __init__(
        self,
        read_pulse: Callable[[], Pulse],
        read_files: Callable[[], object],
        count_reads: Callable[[], int] = lambda: 0,
    ) -> None:
        self._read_pulse, self._read_files, self._count_reads = read_pulse, read_files, count_reads
        self._pages: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None
        self.looks = 0

    @property
    def pages(self) -> int:
        """How many pages are open."""
        return len(self._pages)

    async def stream(self) -> AsyncGenerator[str]:
        """Yield the events of one page, until it is closed."""
        changed = asyncio.Event()
        self._pages.add(changed)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._watch())
        try:
            yield "retry: 1000\nevent: open\ndata:\n\n"
            while True:
                try:
                    await asyncio.wait_for(changed.wait(), _SILENCE_SECONDS)
                except TimeoutError:
                    yield ": nothing new\n\n"
                    continue
                changed.clear()
                yield "event: changed\ndata:\n\n"
                await asyncio.sleep(_EVENT_SECONDS)
        finally:
            self._pages.discard(changed)

    async def _watch(self) -> None:
        known: object = None
        is_changed, told_at, now = False, float("-inf"), asyncio.get_running_loop().time
        reads = 0
        while self._pages:
            found = await asyncio.to_thread(self._look)
            is_changed = is_changed or (known is not None and found != known)
            known = found
            reads += self._count_reads()
            if is_changed and now() - told_at >= min(reads / _READS_A_SECOND, _LONGEST_WAIT):
                is_changed, told_at, reads = False, now(), 0
                for page in self._pages:
                    page.set()
            await asyncio.sleep(LOOK_SECONDS)

    def _look(self) -> object:
        self.looks += 1
        try:
            pulse: object = self._read_pulse()
        except Exception as error:  # noqa: BLE001 - a store that is away is a change too, and the page tells it
            pulse = type(error).__name__
        return pulse, self._read_files()
