"""Threads for functions with a deadline: reused, one handover per call.

Python cannot stop a thread. The result of a function that outlives its deadline is ignored; its thread counts as
lost until it returns, and the number of lost threads is bounded. A function that has not started by its deadline
never starts.

In: functions and deadlines.
Out: reactions.
Never: an exception of a function in the wrong thread, or an unbounded number of threads.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from pokayoke.core.flow.steps import NotStarted, Raised, Reaction, Returned, TimedOut
from pokayoke.runtime.threads.clock import LONGEST_WAIT
from pokayoke.runtime.threads.forks import on_fork

LateCallback = Callable[[Reaction], None]


def ignore_result(_: Reaction) -> None:
    """Ignore a reaction that comes after its deadline."""


def start_thread(name: str, target: Callable[..., object], *args: Any) -> threading.Thread | None:
    """Start a daemon thread; None if the system has none left."""
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        return None
    return thread


def _capture_in_worker(function: Callable[[], Any]) -> Reaction:
    """Call a user's function in a worker. No Ctrl-C arrives there: a KeyboardInterrupt is the function's own."""
    try:
        return Returned(function())
    except BaseException as error:  # noqa: BLE001 - nothing a function raises may end the worker
        return Raised(error)


class WorkerJob:
    """One function on its way through a worker. Exactly one side starts it, and one takes its result."""

    __slots__ = ("_begun", "_context", "_function", "_late", "_lock", "_ready", "_taken", "reaction")

    def __init__(self, function: Callable[[], Any], ready: Callable[[], None]) -> None:
        """Call `ready` in the worker's thread once the reaction is there and still awaited."""
        self._function = function
        self._context = contextvars.copy_context()
        self._ready = ready
        self._lock = threading.Lock()
        self._begun = self._taken = False
        self._late: LateCallback | None = None
        self.reaction: Reaction | None = None

    def run(self, free: Callable[[], None]) -> bool:
        """Run in the worker, unless the caller has given up.

        Args:
            free: called before the waiting side wakes up, so that its next call finds this thread.

        Returns:
            False if it was given up while it ran: the thread was lost, and `free` was not called.
        """
        with self._lock:
            if self._taken:
                free()
                return True
            self._begun = True
        reaction = _capture_in_worker(lambda: self._context.run(self._function))
        with self._lock:
            self.reaction = reaction
            if not self._taken:
                self._taken = True
                free()
                self._ready()
                return True
        if (late := self._late) is not None:
            _capture_in_worker(lambda: late(reaction))
        return False

    def abandon(self, late: LateCallback | None) -> bool:
        """Stop waiting. Returns False if there is a reaction: it has just arrived, or the function never starts."""
        with self._lock:
            if self._taken:
                return False
            self._taken, self._late = True, late
            if not self._begun:
                self.reaction = NotStarted("it was given up before a thread took it up")
            return self._begun


class WorkerPool:
    """A pool of daemon threads that grows as needed and forgets the threads that hang.

    Args:
        max_lost: most hanging threads; beyond that nothing is started.
    """

    def __init__(self, max_lost: int = 32) -> None:
        """Start no threads yet."""
        self._max_lost = max_lost
        self._idle: list[SimpleQueue[WorkerJob | None]] = []
        self._lost = 0
        self._lock = threading.Lock()
        on_fork(self, WorkerPool.reset_after_fork)

    @property
    def lost_count(self) -> int:
        """Threads that hang past their deadline at this moment."""
        return self._lost

    def run_with_deadline(
        self, function: Callable[[], Any], timeout: float, late: LateCallback | None = None
    ) -> Reaction:
        """Run `function` and wait at most `timeout` seconds for it.

        Args:
            function: what to run; it keeps running after its deadline.
            timeout: seconds.
            late: called (in the worker) with a reaction that comes after the deadline.

        Returns:
            Its reaction; `NotStarted` if no thread was free, or none started it in time.
        """
        done = threading.Lock()
        done.acquire()
        job = self.start_job(function, done.release)
        if job is None:
            return self.no_thread_reaction()
        try:
            came = done.acquire(timeout=min(timeout, LONGEST_WAIT))
        except BaseException:  # Ctrl-C, which stops no worker
            self.desert_job(job, late)
            raise
        if not came and self.give_up(job, late):
            return TimedOut(timeout)
        assert job.reaction is not None, "a finished job has a reaction"
        return job.reaction

    def start_job(self, function: Callable[[], Any], ready: Callable[[], None]) -> WorkerJob | None:
        """Hand a function to a thread; None if there is none: too many hang, or the system has none left."""
        if self._lost >= self._max_lost:
            return None
        job = WorkerJob(function, ready)
        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = SimpleQueue[WorkerJob | None]()
            if start_thread("pokayoke-worker", _run_thread, weakref.ref(self), inbox) is None:
                return None
        inbox.put(job)
        return job

    def give_up(self, job: WorkerJob, late: LateCallback | None) -> bool:
        """Count the job's thread as lost. Returns False if the job has a reaction, or has not started."""
        with self._lock:
            if not job.abandon(late):
                return False
            self._lost += 1
        return True

    def desert_job(self, job: WorkerJob, late: LateCallback | None) -> None:
        """Leave a job whose caller was interrupted or cancelled: its result is late, even if it is there now."""
        if not self.give_up(job, late) and late is not None:
            reaction = job.reaction
            assert reaction is not None, "a finished job has a reaction"
            self.deliver_late(late, reaction)

    def deliver_late(self, late: LateCallback, reaction: Reaction) -> None:
        """Report a late result in a thread; without one, in the caller's."""
        if self.start_job(lambda: late(reaction), lambda: None) is None:
            _capture_in_worker(lambda: late(reaction))

    def no_thread_reaction(self) -> NotStarted:
        """Return the reaction for a function that found no thread."""
        return NotStarted(f"no thread is free for it; {self._lost} earlier calls hang past their deadline")

    def close(self) -> None:
        """End the idle threads; a busy one ends with the process."""
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().put(None)

    def __del__(self) -> None:
        """End the threads of a pool that was never closed."""
        self.close()

    def reset_after_fork(self) -> None:
        """Start anew in a child process: the parent's threads do not exist there."""
        self._idle, self._lost, self._lock = [], 0, threading.Lock()

    def take_back(self, inbox: SimpleQueue[WorkerJob | None]) -> None:
        """Take back an idle thread."""
        self._idle.append(inbox)

    def count_returned(self) -> None:
        """Count a hanging thread as returned."""
        with self._lock:
            self._lost -= 1


def _run_thread(pool: weakref.ref[WorkerPool], inbox: SimpleQueue[WorkerJob | None]) -> None:
    """Run a thread of the pool. It does not hold its pool, so that an unused pool ends its threads."""

    def free_thread() -> None:
        if (workers := pool()) is None:
            inbox.put(None)
        else:
            workers.take_back(inbox)

    while (job := inbox.get()) is not None:
        if not job.run(free_thread):
            if (workers := pool()) is not None:
                workers.count_returned()
            del workers
            free_thread()
        del job  # an idle thread must not keep its last job alive
