"""One writer at a time for all threads of a process, with group commit.

A flush to the disk costs as much as hundreds of statements. So callers queue their jobs. A caller that finds
no writer at work leads: it runs all waiting jobs in one transaction, answers them, and hands over to one of the
callers that arrived meanwhile. A single caller therefore needs no other thread, which would have to be woken twice.

In: functions that read and write on the connection.
Out: their results, after the commit.
Never: an answer before its commit, or a caller that waits without end.
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
"""Jobs in one transaction; more would delay the first of them."""
_GATHERING: Final = 0.5
"""Share of a transaction's time that the next one waits for its callers to return, but never longer than"""
_GATHERING_MOST: Final = 0.002
_WRITER_ENDED: Final = "the writer of the ledger has ended; nothing is known of what was asked of it last"
_NO_THREAD: Final = "the system gives no thread that could write the ledger; nothing was written"
_LOOK_AFTER: Final = 1.0
"""Seconds after which a waiting caller checks whether the leader is still alive."""


class WriteJob(Generic[T]):
    """One job that waits for its turn.

    Args:
        work: reads and writes; it may be called again if other jobs of its transaction fail.
        wake: wakes the caller when result or error is set or it has to lead. It may raise a RuntimeError if the
            caller was woken before and has not looked yet.
        thread: of a caller that may be asked to lead; None if it may not, or no longer waits.

    Attributes:
        next: the job whose caller this one wakes when it goes on; at most one.
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
        """Mark result or error as final."""
        self.stands = True
        self.wake_caller()

    def wake_caller(self) -> None:
        """Wake the caller. A caller whose wait was interrupted no longer checks."""
        with suppress(RuntimeError):
            self._wake()

    def wake_next(self) -> None:
        """Wake the next caller, once: by this caller when it goes on, or by the leader if it has left meanwhile."""
        with suppress(IndexError):
            self.next.pop().wake_caller()

    def result_or_raise(self) -> T:
        """Return the result of the work, or raise its error."""
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]  # no error: it is set


class SqliteWriter(ForkSafe):
    """Runs jobs in the order of arrival, many in one transaction.

    Args:
        connection: used by one thread at a time, the leader.
        limit: seconds a job waits for other processes.
        name: of the thread that leads when no caller can.
    """

    _led: bool
    _leader: threading.Thread

    def __init__(self, connection: SqliteConnection, limit: float, name: str) -> None:
        super().__init__(connection)
        # At most half of what a lock can be waited for, because it is waited for twice.
        self._limit, self._name = min(limit, threading.TIMEOUT_MAX / 4), name

    def run_work(self, work: Callable[[SqliteConnection], T]) -> T:
        """Run a job and wait for it. A caller that is interrupted leaves the job to the others.

        Raises:
            StoreError: the store is closed, or the job was not carried out.
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
            if not job.stands:  # its wait was interrupted: it was asked to lead before this, or never will be
                with self._state:
                    job.thread = None
            job.thread = None
            if job.next:
                job.wake_next()
            if job.leads:
                try:
                    self._hand_over()
                except BaseException:  # an interrupt at the first step would leave the writer without a leader
                    self._hand_over()
                    raise
        return job.result_or_raise()

    async def arun_work(self, work: Callable[[SqliteConnection], T]) -> T:
        """`run_work` without blocking the event loop. A caller that is cancelled leaves the job to the others."""
        import asyncio  # noqa: PLC0415 - 20 ms of import, needed by asynchronous callers only

        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def resolve_future() -> None:
            if not future.done():
                future.set_result(None)

        def wake_loop() -> None:
            try:
                loop.call_soon_threadsafe(resolve_future)
            except RuntimeError:
                return  # the loop was closed: no caller waits any more

        job = WriteJob(work, wake_loop)
        with self._state:
            self._enqueue_job(job)
            if not self._led:
                self._lead_in_thread()
        self._schedule_check(loop)
        await future
        return job.result_or_raise()

    def close(self) -> None:
        """Finish waiting jobs, then close the file. Closing twice does no harm."""
        ended = threading.Lock()
        with self._state:
            if self._closed:
                return
            self._closed = True
            if self._led and self._leader is threading.current_thread():
                return  # garbage-collected while leading: the file is closed at the hand-over
            if self._led:
                ended.acquire()
                self._waiting.append(WriteJob(lambda _: None, ended.release))
        # Other processes can delay the last transaction that long, and no longer.
        ended.acquire(timeout=2 * self._limit + _LOOK_AFTER)
        self._release_file()
        if self._thread is not None:
            self._thread.join(2 * self._limit + _LOOK_AFTER)

    def reset_in_child(self) -> None:
        """Start anew after a fork: waiting jobs and threads belong to the parent."""
        self._waiting: deque[WriteJob[Any]] = deque()
        # Reentrant: a store may be garbage-collected, and closed by that, at any point.
        self._gate, self._state = threading.Lock(), threading.RLock()
        self._led, self._leader = False, threading.current_thread()
        self._thread: threading.Thread | None = None
        self._calls: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._process = os.getpid()
        self._watching: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
        self._size, self._seconds = 1, 0.0
        self._full: threading.Lock | None = None

    # -- leading -----------------------------------------------------------------------------------

    def _enqueue_job(self, job: WriteJob[Any]) -> None:
        """Queue a job; if no thread leads, the caller has to see to it."""
        if self._closed:
            raise StoreError(STORE_CLOSED)
        if self._process != os.getpid():
            raise StoreError(PROCESS_FORKED)
        self._waiting.append(job)
        if len(self._waiting) >= self._size:
            full, self._full = self._full, None  # in one step: a signal handler may enter here in between
            if full is not None:
                full.release()

    def _wait_for_turn(self, job: WriteJob[Any], turn: threading.Lock, thread: threading.Thread) -> None:
        """Wait until a job is done or its caller has to lead."""
        while not turn.acquire(timeout=_LOOK_AFTER) and not job.stands:
            # A signal handler may call while its own thread leads, which cannot go on until the handler returns.
            if self._leader is thread and not job.leads:
                raise StoreError(_WRITER_ENDED)
            self._check_leader()

    def _schedule_check(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check the leader now and then, as long as a caller waits in an event loop."""
        if loop not in self._watching:
            self._watching.add(loop)
            loop.call_later(_LOOK_AFTER, self._run_scheduled_check, loop)

    def _run_scheduled_check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watching.discard(loop)
        self._check_leader()
        if self._waiting:
            self._schedule_check(loop)

    def _check_leader(self) -> None:
        """If the leader's thread has died, refuse all waiting jobs; the next caller leads."""
        with self._state:
            if self._led and not self._leader.is_alive():
                self._led = False
                self._refuse_all(_WRITER_ENDED, None)

    def _pending_jobs(self) -> list[WriteJob[Any]]:
        """Return the first waiting jobs. They stay queued until they are answered, even after an interrupt."""
        with self._state:
            waiting = self._waiting
            while waiting and waiting[0].stands:
                waiting.popleft()
            return [job for job in islice(waiting, _MAX_BATCH) if not job.stands] if waiting else []

    def _lead_writes(self, own: WriteJob[Any] | None) -> None:
        """Run waiting jobs; a leader with a job of its own stops when that is done."""
        while True:
            self._wait_for_batch()
            jobs = self._pending_jobs()
            self._size, begun = len(jobs), time.monotonic()
            # Once the leader's own job is done, another caller goes on with the rest.
            while jobs and not (own is not None and own.stands):
                with self._gate:
                    jobs = self._run_batch(jobs)
            self._seconds = time.monotonic() - begun
            if own is None or own.stands:
                return

    def _wait_for_batch(self) -> None:
        """Wait a moment for the callers that were just answered: together they need one flush, not two."""
        if self._size > 1:
            full = threading.Lock()
            full.acquire()
            self._full = full
            if len(self._waiting) < self._size:  # the last of them may have arrived before `_full` was set
                full.acquire(timeout=min(self._seconds * _GATHERING, _GATHERING_MOST))
            self._full = None

    def _hand_over(self) -> None:
        """Pass the lead to a waiting caller, if there is one. A thread that does not lead passes on nothing."""
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
        """Let the background thread lead; if it cannot be started, refuse all waiting jobs."""
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
        """Run the background thread, until the store is closed."""
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
        """Run jobs in one transaction and answer them. Returns those that have to run (again)."""
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
        except Exception as error:  # noqa: BLE001 - whatever the error, every caller needs an answer
            return self._handle_failure(jobs, error)
        except BaseException:
            connection.roll_back()
            raise
        _answer_jobs(jobs)
        return []

    def _run_job(self, job: WriteJob[Any]) -> bool:
        """Run one job. Returns False if it failed after a write: the others then have to run without it."""
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
        """Refuse the jobs that have waited long enough; the others go on waiting. Nothing was written."""
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
    """Mark results as final, and let each thread that goes on wake the next.

    Only one of them can run at a time: woken all at once, they would wait for each other again.
    """
    first: WriteJob[Any] | None = None
    for job in reversed(jobs):
        if job.thread is None:
            job.mark_done()
        else:
            if first is not None:
                job.next.append(first)
            first = job
            job.stands = True  # last: a caller that checks now goes on at once
    if first is not None:
        first.wake_caller()
    for job in jobs:
        if job.next and job.thread is None:  # its wait was interrupted just now, perhaps before it saw `next`
            job.wake_next()
