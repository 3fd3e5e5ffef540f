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
from typing import Any, Final, Generic, TypeVar

from pokayoke.errors import StoreError
from pokayoke.stores.sql.dialect import Statement
from pokayoke.stores.sql.rows import Row
from pokayoke.stores.sqlite_file import Connection, concerns_all, is_busy

T = TypeVar("T")
_MOST_TOGETHER: Final = 256
"""Acts in one transaction; more would make the first of them wait."""
_GATHERING: Final = 0.5
"""Share of a transaction's time that the next one waits for those who were in it, but never longer than"""
_GATHERING_MOST: Final = 0.002
_GLANCE: Final = 50e-6
_CLOSED: Final = "the store is closed: open it again with open_store"
_FORKED: Final = "this process was forked behind Python's back: open the store after the fork"
_GONE: Final = "the writer of the ledger has ended; nothing is known of what was asked of it last"
_LOOK_AFTER: Final = 1.0
"""Seconds after which a waiting caller looks whether anybody still works for it."""


class Job(Generic[T]):
    """One piece of work that waits for its turn.

    Args:
        work: reads and writes; it may be called again if others of its transaction fail.
        wake: called once, when result or error stands.
        thread: that of a caller who may be asked to write for all; None if it may not.
    """

    __slots__ = ("asked", "error", "leads", "result", "stands", "thread", "wake", "work")

    def __init__(
        self, work: Callable[[Connection], T], wake: Callable[[], object], thread: threading.Thread | None = None
    ) -> None:
        self.work, self.wake, self.thread = work, wake, thread
        self.asked = time.monotonic()
        self.stands = self.leads = False
        self.result: T | None = None
        self.error: BaseException | None = None

    def done(self) -> None:
        """Say that result or error stands."""
        self.stands = True
        self.wake()

    def outcome(self) -> T:
        """Return what the work returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]  # no error: it stands


class Writer:
    """Carries out jobs in the order in which they come, many in one transaction.

    Args:
        connection: used by one thread at a time, the one that leads.
        limit: seconds a job waits for other processes.
        name: of the thread that leads when no caller can.
    """

    def __init__(self, connection: Connection, limit: float, name: str) -> None:
        self._connection, self._limit, self._name = connection, limit, name
        self._closed = False
        self._begin_anew()
        _shared.add(self)

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
        if not self._led_through(job, thread):
            while not turn.acquire(timeout=_LOOK_AFTER):
                if not self._leader.is_alive():
                    raise StoreError(_GONE)
            if job.leads and not job.stands:
                self._leading(job)
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
            begins = self._queued(job)
            if begins:
                self._serve_now()
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

    def pause(self) -> None:
        """Wait for the transaction that runs, let go of the file, and begin none until `go_on`."""
        self._gate.acquire()
        self._connection.close()

    def go_on(self) -> None:
        """End a pause."""
        self._gate.release()

    def begin_in_child(self) -> None:
        """Begin anew after a fork: what waits, and the threads, belong to the parent."""
        self._begin_anew()

    # -- who leads ---------------------------------------------------------------------------------

    def _begin_anew(self) -> None:
        self._waiting: deque[Job[Any]] = deque()
        # Reentrant: a store that is collected in the middle of anything closes itself.
        self._gate, self._state = threading.Lock(), threading.RLock()
        self._led, self._leader = False, threading.current_thread()
        self._thread: threading.Thread | None = None
        self._calls: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._process = os.getpid()
        self._size, self._seconds = 1, 0.0

    def _queued(self, job: Job[Any]) -> bool:
        """Let a job wait. Returns True if nobody leads; then somebody is expected to."""
        if self._closed:
            raise StoreError(_CLOSED)
        if self._process != os.getpid():
            raise StoreError(_FORKED)
        self._waiting.append(job)
        if self._led:
            return False
        self._led = True
        return True

    def _led_through(self, job: Job[Any], thread: threading.Thread) -> bool:
        """Queue a job; if nobody leads, lead until it is done. Returns whether that was so."""
        leads = False
        try:
            with self._state:
                if leads := self._queued(job):
                    self._leader = thread
            if leads:
                self._lead(job)
        finally:
            if leads:
                self._hand_over()
        return leads

    def _leading(self, job: Job[Any]) -> None:
        """Lead as the one who was asked to."""
        try:
            self._lead(job)
        finally:
            self._hand_over()

    def _lead(self, own: Job[Any] | None) -> None:
        """Carry out what waits; with a job of one's own, until that is done."""
        while True:
            self._gather()
            jobs: list[Job[Any]] = []
            while self._waiting and len(jobs) < _MOST_TOGETHER:
                jobs.append(self._waiting.popleft())
            self._size, begun = len(jobs), time.monotonic()
            try:
                while jobs and not (own is not None and own.stands):
                    with self._gate:
                        jobs = self._together(jobs)
            finally:
                # Interrupted, or one's own is done: others go on with the rest. An act recognises its own work.
                self._waiting.extendleft(reversed([job for job in jobs if not job.stands]))
            self._seconds = time.monotonic() - begun
            if own is None or own.stands:
                return

    def _gather(self) -> None:
        """Wait a moment for those who were just answered: together they need one flush, not two."""
        if self._size > 1:
            end = time.monotonic() + min(self._seconds * _GATHERING, _GATHERING_MOST)
            while len(self._waiting) < self._size and time.monotonic() < end:
                time.sleep(_GLANCE)

    def _hand_over(self) -> None:
        """Let one of those who wait lead; without one, nobody does."""
        with self._state:
            heir = next((job for job in self._waiting if job.thread is not None), None)
            if heir is not None and heir.thread is not None:
                heir.leads, self._leader = True, heir.thread
                heir.wake()
            elif self._waiting:
                self._serve_now()
            else:
                self._led = False
                if self._closed:
                    self._let_go()

    def _serve_now(self) -> None:
        """Let the thread lead that no caller waits in."""
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            thread.start()  # if the system gives none now, the next caller tries again
            self._thread = thread
        self._leader = self._thread
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
        for job in jobs:
            job.done()
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

    def _failed(self, jobs: list[Job[Any]], error: BaseException) -> list[Job[Any]]:
        """Nothing was written. Whoever has waited long enough is told why, the others go on waiting."""
        said = self._connection.give_up(error)
        now = time.monotonic()
        left: list[Job[Any]] = []
        for place, job in enumerate(jobs):
            if place and is_busy(error) and now < job.asked + self._limit:
                left.append(job)
                continue
            job.error = StoreError(said)
            job.error.__cause__ = error
            job.done()
        return left


class Reader:
    """Reads beside the writer, in the caller's thread.

    Args:
        connection: used under the reader's lock only.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._closed = False
        self.begin_in_child()
        _shared.add(self)

    def fetch(self, statement: Statement) -> list[Row]:
        """Return the rows of a statement.

        Raises:
            StoreError: the store is closed, or the file cannot be read.
        """
        with self._gate:
            if self._closed:
                raise StoreError(_CLOSED)
            if self._process != os.getpid():
                raise StoreError(_FORKED)
            try:
                self._connection.look()
                return self._connection.fetch(*statement)
            except Exception as error:
                raise StoreError(self._connection.give_up(error)) from error

    def close(self) -> None:
        """Let go of the file."""
        with self._gate:
            self._closed = True
            self._connection.close()

    def pause(self) -> None:
        """Wait for the read that runs and let go of the file, until `go_on`."""
        self._gate.acquire()
        self._connection.close()

    def go_on(self) -> None:
        """End a pause."""
        self._gate.release()

    def begin_in_child(self) -> None:
        """Begin anew after a fork."""
        self._gate, self._process = threading.RLock(), os.getpid()


_shared: weakref.WeakSet[Writer | Reader] = weakref.WeakSet()
_paused: list[Writer | Reader] = []


def _before_fork() -> None:
    # SQLite must not be carried over a fork: what is closed now is opened again by whoever needs it.
    for one in tuple(_shared):
        one.pause()
        _paused.append(one)


def _after_fork_in_parent() -> None:
    while _paused:
        _paused.pop().go_on()


def _after_fork_in_child() -> None:
    while _paused:
        _paused.pop().begin_in_child()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
