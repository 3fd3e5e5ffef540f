"""One writer at a time for all threads of a process: what waits together is committed together.

A flush to the disk costs as much as hundreds of statements. So callers queue their acts, and whoever finds nobody
writing carries out everything that waits in one transaction, answers everybody, and hands over to one of those who
came meanwhile. A caller that is alone so needs no other thread, which would have to be woken twice.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pokayoke.errors import StoreError
from pokayoke.stores.sqlite.connection import Connection, concerns_all, is_busy
from pokayoke.stores.sqlite.fork_safety import Pausing
from pokayoke.stores.sqlite.reader import CLOSED, FORKED

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
_MOST_TOGETHER: Final = 256
"""Acts in one transaction; more would make the first of them wait."""
_GATHERING: Final = 0.5
"""Share of a transaction's time that the next one waits for those who were in it, but never longer than"""
_GATHERING_MOST: Final = 0.002
_GONE: Final = "the writer of the ledger has ended; nothing is known of what was asked of it last"
_NO_THREAD: Final = "the system gives no thread that could write the ledger; nothing was written"
_LOOK_AFTER: Final = 1.0
"""Seconds after which a waiting caller looks whether anybody still works for it."""


class Job(Generic[T]):
    """One piece of work that waits for its turn.

    Args:
        work: reads and writes; it may be called again if others of its transaction fail.
        wake: lets the caller look, when result or error stands or it has to lead. It may raise a RuntimeError if
            the caller was woken before, and has not looked.
        thread: that of a caller who may be asked to write for all; None if it may not, or waits no more.

    Attributes:
        next: whom the caller wakes when it goes on; at most one.
    """

    __slots__ = ("_wake", "asked", "error", "leads", "next", "result", "stands", "thread", "work")

    def __init__(
        self, work: Callable[[Connection], T], wake: Callable[[], object], thread: threading.Thread | None = None
    ) -> None:
        self.work, self._wake, self.thread = work, wake, thread
        self.asked = time.monotonic()
        self.stands = self.leads = False
        self.next: list[Job[Any]] = []
        self.result: T | None = None
        self.error: BaseException | None = None

    def done(self) -> None:
        """Say that result or error stands."""
        self.stands = True
        self.wake()

    def wake(self) -> None:
        """Wake the caller. One that was thrown out of its waiting does not look any more."""
        with suppress(RuntimeError):
            self._wake()

    def go_on(self) -> None:
        """Wake the next, once: the caller does when it goes on, or who answers it if it has left meanwhile."""
        with suppress(IndexError):
            self.next.pop().wake()

    def outcome(self) -> T:
        """Return what the work returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]  # no error: it stands


class Writer(Pausing):
    """Carries out jobs in the order in which they come, many in one transaction.

    Args:
        connection: used by one thread at a time, the one that leads.
        limit: seconds a job waits for other processes.
        name: of the thread that leads when no caller can.
    """

    _led: bool
    _leader: threading.Thread

    def __init__(self, connection: Connection, limit: float, name: str) -> None:
        super().__init__(connection)
        # No longer than a lock can be waited for, twice over.
        self._limit, self._name = min(limit, threading.TIMEOUT_MAX / 4), name

    def do(self, work: Callable[[Connection], T]) -> T:
        """Have it done and wait for it. A caller that is interrupted leaves it to the others.

        Raises:
            StoreError: the store is closed, or the work was not carried out.
        """
        turn = threading.Lock()
        turn.acquire()
        thread = threading.current_thread()
        # An interrupt reaches the main thread between any two steps; it never leads by request.
        job = Job(work, turn.release, None if thread is threading.main_thread() else thread)
        try:
            with self._state:
                self._queue(job)
                if not self._led:
                    job.leads, self._leader, self._led = True, thread, True
            if not job.leads:
                self._await(job, turn, thread)
            if job.leads:
                self._lead(job)
        finally:
            if not job.stands:  # thrown out of its waiting: it is asked to lead before this, or not any more
                with self._state:
                    job.thread = None
            job.thread = None
            if job.next:
                job.go_on()
            if job.leads:
                try:
                    self._hand_over()
                except BaseException:  # an interrupt; if it comes first thing, nobody would ever lead again
                    self._hand_over()
                    raise
        return job.outcome()

    async def ado(self, work: Callable[[Connection], T]) -> T:
        """`do` without blocking the event loop. A caller that is cancelled leaves it to the others."""
        import asyncio  # noqa: PLC0415 - 20 ms of import, for those whose tools are asynchronous

        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        def done() -> None:
            try:
                loop.call_soon_threadsafe(wake)
            except RuntimeError:
                return  # the loop was closed: nobody waits any more

        job = Job(work, done)
        with self._state:
            self._queue(job)
            if not self._led:
                self._serve_now()
        self._watch(loop)
        await future
        return job.outcome()

    def close(self) -> None:
        """Finish what waits, then let go of the file. Closing twice does no harm."""
        ended = threading.Lock()
        with self._state:
            if self._closed:
                return
            self._closed = True
            if self._led and self._leader is threading.current_thread():
                return  # collected in the middle of leading: it lets go when it hands over
            if self._led:
                ended.acquire()
                self._waiting.append(Job(lambda _: None, ended.release))
        # Other processes can make the last transaction wait that long, and no longer.
        ended.acquire(timeout=2 * self._limit + _LOOK_AFTER)
        self._let_go()
        if self._thread is not None:
            self._thread.join(2 * self._limit + _LOOK_AFTER)

    def begin_in_child(self) -> None:
        """Begin anew after a fork: what waits, and the threads, belong to the parent."""
        self._waiting: deque[Job[Any]] = deque()
        # Reentrant: a store that is collected in the middle of anything closes itself.
        self._gate, self._state = threading.Lock(), threading.RLock()
        self._led, self._leader = False, threading.current_thread()
        self._thread: threading.Thread | None = None
        self._calls: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._process = os.getpid()
        self._watching: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
        self._size, self._seconds = 1, 0.0
        self._full: threading.Lock | None = None

    # -- who leads ---------------------------------------------------------------------------------

    def _queue(self, job: Job[Any]) -> None:
        """Let a job wait; if nobody leads, somebody is expected to."""
        if self._closed:
            raise StoreError(CLOSED)
        if self._process != os.getpid():
            raise StoreError(FORKED)
        self._waiting.append(job)
        if len(self._waiting) >= self._size:
            full, self._full = self._full, None  # at once: a signal's handler may come here in the middle of it
            if full is not None:
                full.release()

    def _await(self, job: Job[Any], turn: threading.Lock, thread: threading.Thread) -> None:
        """Wait until a job is done or its caller is asked to lead."""
        while not turn.acquire(timeout=_LOOK_AFTER) and not job.stands:
            # A signal's handler may ask in the middle of its own thread's leading, which cannot go on meanwhile.
            if self._leader is thread and not job.leads:
                raise StoreError(_GONE)
            self._look()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look once in a while, as long as anybody waits in an event loop."""
        if loop not in self._watching:
            self._watching.add(loop)
            loop.call_later(_LOOK_AFTER, self._watched, loop)

    def _watched(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watching.discard(loop)
        self._look()
        if self._waiting:
            self._watch(loop)

    def _look(self) -> None:
        """If who led is gone without a word, tell those who wait; the next caller leads."""
        with self._state:
            if self._led and not self._leader.is_alive():
                self._led = False
                self._refuse_all(_GONE, None)

    def _open(self) -> list[Job[Any]]:
        """The first of those who wait. They stay in the queue until they are answered, whatever interrupts."""
        with self._state:
            waiting = self._waiting
            while waiting and waiting[0].stands:
                waiting.popleft()
            return [job for job in islice(waiting, _MOST_TOGETHER) if not job.stands] if waiting else []

    def _lead(self, own: Job[Any] | None) -> None:
        """Carry out what waits; with a job of one's own, until that is done."""
        while True:
            self._gather()
            jobs = self._open()
            self._size, begun = len(jobs), time.monotonic()
            # When one's own is done, others go on with the rest.
            while jobs and not (own is not None and own.stands):
                with self._gate:
                    jobs = self._together(jobs)
            self._seconds = time.monotonic() - begun
            if own is None or own.stands:
                return

    def _gather(self) -> None:
        """Wait a moment for those who were just answered: together they need one flush, not two."""
        if self._size > 1:
            full = threading.Lock()
            full.acquire()
            self._full = full
            if len(self._waiting) < self._size:  # the last of them may have come before it could say so
                full.acquire(timeout=min(self._seconds * _GATHERING, _GATHERING_MOST))
            self._full = None

    def _hand_over(self) -> None:
        """Let one of those who wait lead; without one, nobody does. Whoever does not lead hands over nothing."""
        with self._state:
            if not self._led or self._leader is not threading.current_thread():
                return
            left = self._open()
            heir = next((job for job in left if job.thread is not None), None)
            if heir is not None and heir.thread is not None:
                heir.leads, self._leader = True, heir.thread
                heir.wake()
            elif left:
                self._serve_now()
            else:
                self._led = False
                if self._closed:
                    self._let_go()

    def _serve_now(self) -> None:
        """Let the thread lead that no caller waits in; without one, whoever waits is told so."""
        if self._thread is None or not self._thread.is_alive():
            self._calls = queue.SimpleQueue()
            thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            try:
                thread.start()
            except Exception as error:  # noqa: BLE001 - the system gives none now; the next caller tries again
                self._led = False
                self._refuse_all(_NO_THREAD, error)
                return
            self._thread = thread
        self._led, self._leader = True, self._thread
        self._calls.put(True)

    def _serve(self) -> None:
        """Do what the thread is for, until the store is closed."""
        while self._calls.get():
            try:
                self._lead(None)
            finally:
                self._hand_over()

    def _let_go(self) -> None:
        self._calls.put(False)
        with self._gate:
            self._connection.close()

    # -- a transaction -----------------------------------------------------------------------------

    def _together(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Carry out jobs in one transaction and answer them. Returns those that have to be done (again)."""
        connection = self._connection
        connection.patience = max(0.0, jobs[0].asked + self._limit - time.monotonic())
        try:
            connection.begin()
            for job in jobs:
                if not self._one(job):
                    connection.roll_back()
                    job.done()
                    return [other for other in jobs if other is not job]
            connection.commit()
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
            return self._failed(jobs, error)
        except BaseException:
            connection.roll_back()
            raise
        _answer(jobs)
        return []

    def _one(self, job: Job[Any]) -> bool:
        """Carry out one job. Returns False if it failed half-way: then the others have to be done without it."""
        before = self._connection.changes()
        job.error = None
        try:
            job.result = job.work(self._connection)
        except Exception as error:
            if concerns_all(error):
                raise
            job.error = error
            return self._connection.changes() == before
        return True

    def _failed(self, jobs: list[Job[Any]], error: Exception) -> list[Job[Any]]:
        """Nothing was written. Whoever has waited long enough is told why, the others go on waiting."""
        said = self._connection.give_up(error)
        now = time.monotonic()
        left = [job for job in jobs[1:] if is_busy(error) and now < job.asked + self._limit]
        self._refuse([job for job in jobs if job not in left], said, error)
        return left

    def _refuse_all(self, why: str, cause: Exception | None) -> None:
        while left := self._open():
            self._refuse(left, why, cause)

    def _refuse(self, jobs: list[Job[Any]], why: str, cause: Exception | None) -> None:
        for job in jobs:
            job.error = StoreError(why)
            job.error.__cause__ = cause
            job.done()


def _answer(jobs: list[Job[Any]]) -> None:
    """Say that results stand, and let each thread that goes on wake the next.

    Only one of them can run at a time: woken at once, they would only wake up to wait for each other again.
    """
    first: Job[Any] | None = None
    for job in reversed(jobs):
        if job.thread is None:
            job.done()
        else:
            if first is not None:
                job.next.append(first)
            first = job
            job.stands = True  # last: who happens to look goes on at once
    if first is not None:
        first.wake()
    for job in jobs:
        if job.next and job.thread is None:  # thrown out of its waiting just now, and it may not have seen the next
            job.go_on()
