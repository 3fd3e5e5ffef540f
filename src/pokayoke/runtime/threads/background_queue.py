"""A bounded queue with one worker thread, for slow work off the path of a call.

In: items of any kind.
Out: calls of one function, in order, in another thread.
Never: a call that waits, or memory that fills while the worker cannot keep up.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from pokayoke.runtime.threads.clock import LONGEST_WAIT
from pokayoke.runtime.threads.forks import on_fork
from pokayoke.runtime.threads.worker_pool import start_thread

T = TypeVar("T")
_PAUSE: Final = 0.05  # between two checks of a busy queue: waking a thread per item would cost the caller more
_AT_EXIT: Final = 2.0


class BackgroundQueue(Generic[T]):
    """Hands items over to a worker thread, which starts with the first one.

    Args:
        consume: called with each item, in the worker. An exception drops that item.
        most: items that may wait; more are dropped.
        name: of the thread.
    """

    def __init__(self, consume: Callable[[T], object], most: int, name: str) -> None:
        """Start no thread yet."""
        self._consume, self._most, self._name = consume, most, name
        self._dropped = 0
        self.problem: str | None = None
        self._thread: threading.Thread | None = None
        self._reset_state()
        _open_queues.add(self)
        on_fork(self, type(self).reset_after_fork)

    @property
    def dropped_count(self) -> int:
        """Items that were not consumed: the queue was full, or consuming failed."""
        return self._dropped

    def offer(self, item: T) -> None:
        """Hand an item over, or drop it if too many wait. Never waits."""
        if self._closed or len(self._items) >= self._most:
            with self._lock:
                self._dropped += 1
            return
        self._items.append(item)
        if not self._awake.is_set():
            if self._thread is None:
                self._start_worker()
            if self._thread is not None:  # otherwise the next item tries again
                self._awake.set()

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until everything offered so far is consumed.

        Args:
            timeout: the longest wait, in seconds.

        Returns:
            False if the time was too short.
        """
        if self._thread is None or threading.current_thread() is self._thread:
            return not self._items
        end = time.monotonic() + min(timeout, LONGEST_WAIT)
        self._hurry.set()
        self._awake.set()
        with self._done:
            # The worker signals when the queue is empty; `_busy` covers the item it is consuming.
            return self._done.wait_for(lambda: not self._items and not self._busy, max(0.0, end - time.monotonic()))

    def close(self, timeout: float = 5.0) -> bool:
        """Consume waiting items and end the worker; later items are dropped. Returns as `flush` does."""
        self._closed = True
        flushed = self.flush(timeout)
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            self._awake.set()
            self._hurry.set()
            thread.join(max(0.1, min(timeout, LONGEST_WAIT)))
        return flushed

    def reset_after_fork(self) -> None:
        """Start anew in a child process: waiting items are the parent's, and its worker does not exist here."""
        closed = self._closed
        self._reset_state()
        self._closed = closed

    def _reset_state(self) -> None:
        self._items: deque[T] = deque()
        self._lock = threading.Lock()
        self._done = threading.Condition()
        self._awake, self._hurry = threading.Event(), threading.Event()
        self._thread = None
        self._busy = self._closed = False

    def _start_worker(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = start_thread(self._name, self._run_worker)

    def _run_worker(self) -> None:
        while True:
            self._awake.wait()
            self._busy = True
            self._awake.clear()
            while self._items:
                self._consume_item(self._items.popleft())
            self._busy = False
            with self._done:
                self._done.notify_all()
            if self._closed and not self._items:
                return
            self._hurry.wait(_PAUSE)
            self._hurry.clear()

    def _consume_item(self, item: T) -> None:
        try:
            self._consume(item)
        except BaseException as error:  # noqa: BLE001 - an exporter's failure must not drop other items or the thread
            self.problem = type(error).__name__
            with self._lock:
                self._dropped += 1


_open_queues: weakref.WeakSet[BackgroundQueue[Any]] = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    for handoff in list(_open_queues):
        handoff.close(_AT_EXIT)
