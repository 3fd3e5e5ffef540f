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
from pokayoke.stores.sqlite.connection import SqliteConnection, is_busy, is_file_failure
from pokayoke.stores.sqlite.fork_safety import ForkSafe
from pokayoke.stores.sqlite.reader import PROCESS_FORKED, STORE_CLOSED

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
_MAX_BATCH: Final = 256
"""Acts in one transaction; more would make the first of them wait."""
_GATHERING: Final = 0.5
"""Share of a transaction's time that the next one waits for those who were in it, but never longer than"""
_GATHERING_MOST: Final = 0.002
_WRITER_ENDED: Final = "the writer of the ledger has ended; nothing is known of what was asked of it last"
_NO_THREAD: Final = "the system gives no thread that could write the ledger; nothing was written"
_LOOK_AFTER: Final = 1.0
"""Seconds after which a waiting caller looks whether anybody still works for it."""


class WriteJob(Generic[T]):
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
        self, work: Callable[[SqliteConnection], T], wake: Callable[[], object], thread: threading.Thread | None = None
    ) -> None:
        self.work, self._wake, self.thread = work, wake, thread
        self.asked = time.monotonic()
        self.stands = self.leads = False
        self.next: list[WriteJob[Any]] = []
        self.result: T | None = None
        self.error: BaseException | None = None

    def mark_done(self) -> None:
        """Say that result or error stands."""
        self.stands = True
        self.wake_caller()

    def wake_caller(self) -> None:
        """Wake the caller. One that was thrown out of its waiting does not look any more."""
        with suppress(RuntimeError):
            self._wake()

    def wake_next(self) -> None:
        """Wake the next, once: the caller does when it goes on, or who answers it if it has left meanwhile."""
        with suppress(IndexError):
            self.next.pop().wake_caller()

    def result_or_raise(self) -> T:
        """Return what the work returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]  # no error: it stands


class SqliteWriter(ForkSafe):
    """Carries out jobs in the order in which they come, many in one transaction.

    Args:
        connection: used by one thread at a time, the one that leads.
        limit: seconds a job waits for other processes.
        name: of the thread that leads when no caller can.
    """

    _led: bool
    _leader: threading.Thread

    def __init__(self, connection: SqliteConnection, limit: float, name: str) -> None:
        super().__init__(connection)
        # No longer than a lock can be waited for, twice over.
        self._limit, self._name = min(limit, threading.TIMEOUT_MAX / 4), name

    def run_work(self, work: Callable[[SqliteConnection], T]) -> T:
        """Have it done and wait for it. A caller that is interrupted leaves it to the others.

        Raises:
            StoreError: the store is closed, or the work was not carried out.
        """
        turn = threading.Lock()
        turn.acquire()
        thread = threading.current_thread()
        # An interrupt reaches the main thread between any two steps; it never leads by request.
        job = WriteJob(work, turn.release, None if thread is threading.main_thread() else thread)
        try:
            with self._state:
                self._enqueue_job(job)
                if not self._led:
                    job.leads, self._leader, self._led = True, thread, True
            if not job.leads:
                self._wait_for_turn(job, turn, thread)
            if job.leads:
                self._lead_writes(job)
        finally:
            if not job.stands:  # thrown out of its waiting: it is asked to lead before this, or not any more
                with self._state:
                    job.thread = None
            job.thread = None
            if job.next:
                job.wake_next()
            if job.leads:
                try:
                    self._hand_over()
                except BaseException:  # an interrupt; if it comes first thing, nobody would ever lead again
                    self._hand_over()
                    raise
        return job.result_or_raise()

    async def arun_work(self, work: Callable[[SqliteConnection], T]) -> T:
        """`run_work` without blocking the event loop. A caller that is cancelled leaves it to the others."""
        import asyncio  # noqa: PLC0415 - 20 ms of import, for those whose tools are asynchronous

        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def resolve_future() -> None:
            if not future.done():
                future.set_result(None)

        def wake_loop() -> None:
            try:
                loop.call_soon_threadsafe(resolve_future)
            except RuntimeError:
                return  # the loop was closed: nobody waits any more

        job = WriteJob(work, wake_loop)
        with self._state:
            self._enqueue_job(job)
            if not self._led:
                self._lead_in_thread()
        self._schedule_check(loop)
        await future
        return job.result_or_raise()

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
                self._waiting.append(WriteJob(lambda _: None, ended.release))
        # Other processes can make the last transaction wait that long, and no longer.
        ended.acquire(timeout=2 * self._limit + _LOOK_AFTER)
        self._release_file()
        if self._thread is not None:
            self._thread.join(2 * self._limit + _LOOK_AFTER)

    def reset_in_child(self) -> None:
        """Begin anew after a fork: what waits, and the threads, belong to the parent."""
        self._waiting: deque[WriteJob[Any]] = deque()
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

    def _enqueue_job(self, job: WriteJob[Any]) -> None:
        """Let a job wait; if nobody leads, somebody is expected to."""
        if self._closed:
            raise StoreError(STORE_CLOSED)
        if self._process != os.getpid():
            raise StoreError(PROCESS_FORKED)
        self._waiting.append(job)
        if len(self._waiting) >= self._size:
            full, self._full = self._full, None  # at once: a signal's handler may come here in the middle of it
            if full is not None:
                full.release()

    def _wait_for_turn(self, job: WriteJob[Any], turn: threading.Lock, thread: threading.Thread) -> None:
        """Wait until a job is done or its caller is asked to lead."""
        while not turn.acquire(timeout=_LOOK_AFTER) and not job.stands:
            # A signal's handler may ask in the middle of its own thread's leading, which cannot go on meanwhile.
            if self._leader is thread and not job.leads:
                raise StoreError(_WRITER_ENDED)
            self._check_leader()

    def _schedule_check(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look once in a while, as long as anybody waits in an event loop."""
        if loop not in self._watching:
            self._watching.add(loop)
            loop.call_later(_LOOK_AFTER, self._run_scheduled_check, loop)

    def _run_scheduled_check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watching.discard(loop)
        self._check_leader()
        if self._waiting:
            self._schedule_check(loop)

    def _check_leader(self) -> None:
        """If who led is gone without a word, tell those who wait; the next caller leads."""
        with self._state:
            if self._led and not self._leader.is_alive():
                self._led = False
                self._refuse_all(_WRITER_ENDED, None)

    def _pending_jobs(self) -> list[WriteJob[Any]]:
        """The first of those who wait. They stay in the queue until they are answered, whatever interrupts."""
        with self._state:
            waiting = self._waiting
            while waiting and waiting[0].stands:
                waiting.popleft()
            return [job for job in islice(waiting, _MAX_BATCH) if not job.stands] if waiting else []

    def _lead_writes(self, own: WriteJob[Any] | None) -> None:
        """Carry out what waits; with a job of one's own, until that is done."""
        while True:
            self._wait_for_batch()
            jobs = self._pending_jobs()
            self._size, begun = len(jobs), time.monotonic()
            # When one's own is done, others go on with the rest.
            while jobs and not (own is not None and own.stands):
                with self._gate:
                    jobs = self._run_batch(jobs)
            self._seconds = time.monotonic() - begun
            if own is None or own.stands:
                return

    def _wait_for_batch(self) -> None:
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
            left = self._pending_jobs()
            heir = next((job for job in left if job.thread is not None), None)
            if heir is not None and heir.thread is not None:
                heir.leads, self._leader = True, heir.thread
                heir.wake_caller()
            elif left:
                self._lead_in_thread()
            else:
                self._led = False
                if self._closed:
                    self._release_file()

    def _lead_in_thread(self) -> None:
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
                self._lead_writes(None)
            finally:
                self._hand_over()

    def _release_file(self) -> None:
        self._calls.put(False)
        with self._gate:
            self._connection.close()

    # -- a transaction -----------------------------------------------------------------------------

    def _run_batch(self, jobs: list[WriteJob[Any]]) -> list[WriteJob[Any]]:
        """Carry out jobs in one transaction and answer them. Returns those that have to be done (again)."""
        connection = self._connection
        connection.patience = max(0.0, jobs[0].asked + self._limit - time.monotonic())
        try:
            connection.begin()
            for job in jobs:
                if not self._run_job(job):
                    connection.roll_back()
                    job.mark_done()
                    return [other for other in jobs if other is not job]
            connection.commit()
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
            return self._handle_failure(jobs, error)
        except BaseException:
            connection.roll_back()
            raise
        _answer_jobs(jobs)
        return []

    def _run_job(self, job: WriteJob[Any]) -> bool:
        """Carry out one job. Returns False if it failed half-way: then the others have to be done without it."""
        before = self._connection.count_changes()
        job.error = None
        try:
            job.result = job.work(self._connection)
        except Exception as error:
            if is_file_failure(error):
                raise
            job.error = error
            return self._connection.count_changes() == before
        return True

    def _handle_failure(self, jobs: list[WriteJob[Any]], error: Exception) -> list[WriteJob[Any]]:
        """Nothing was written. Whoever has waited long enough is told why, the others go on waiting."""
        said = self._connection.handle_failure(error)
        now = time.monotonic()
        left = [job for job in jobs[1:] if is_busy(error) and now < job.asked + self._limit]
        self._refuse_jobs([job for job in jobs if job not in left], said, error)
        return left

    def _refuse_all(self, why: str, cause: Exception | None) -> None:
        while left := self._pending_jobs():
            self._refuse_jobs(left, why, cause)

    def _refuse_jobs(self, jobs: list[WriteJob[Any]], why: str, cause: Exception | None) -> None:
        for job in jobs:
            job.error = StoreError(why)
            job.error.__cause__ = cause
            job.mark_done()


def _answer_jobs(jobs: list[WriteJob[Any]]) -> None:
    """Say that results stand, and let each thread that goes on wake the next.

    Only one of them can run at a time: woken at once, they would only wake up to wait for each other again.
    """
    first: WriteJob[Any] | None = None
    for job in reversed(jobs):
        if job.thread is None:
            job.mark_done()
        else:
            if first is not None:
                job.next.append(first)
            first = job
            job.stands = True  # last: who happens to look goes on at once
    if first is not None:
        first.wake_caller()
    for job in jobs:
        if job.next and job.thread is None:  # thrown out of its waiting just now, and it may not have seen the next
            job.wake_next()
