"""Threads for functions that must be cut."""

import contextvars
import os
import threading
import time

import pytest

from pokayoke.core.flow.steps import NotStarted, Raised, Returned, TimedOut
from pokayoke.runtime.driver.tool_call import capture_result
from pokayoke.runtime.threads import worker_pool as module
from pokayoke.runtime.threads.worker_pool import WorkerPool, start_thread

pytestmark = pytest.mark.xdist_group("timing")  # its deadlines are short


def _hanging():
    gate = threading.Event()
    return gate, lambda: gate.wait(30)


def _soon(condition):
    """Wait for a condition; the bound only catches hangs."""
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    assert condition()


def test_a_result_comes_back():
    """What the function returns is the reaction."""
    assert WorkerPool().run_with_deadline(lambda: 41 + 1, 5) == Returned(42)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), GeneratorExit()])
def test_whatever_a_function_raises_is_a_value(error):
    """Even SystemExit does not end the host or the worker."""

    def raising():
        raise error

    workers = WorkerPool()
    assert workers.run_with_deadline(raising, 5) == Raised(error)
    assert capture_result(raising) == Raised(error)
    assert workers.run_with_deadline(lambda: 1, 5) == Returned(1)


def test_ctrl_c_goes_through_in_the_callers_thread():
    """KeyboardInterrupt is the host's, not the tool's."""

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        capture_result(interrupted)
    assert isinstance(WorkerPool().run_with_deadline(interrupted, 5), Raised)


def test_one_thread_serves_call_after_call():
    """The thread is reused: one handoff per call, not one thread."""
    workers = WorkerPool()
    names = {workers.run_with_deadline(threading.get_ident, 5).value for _ in range(50)}
    assert len(names) == 1
    assert names != {threading.get_ident()}


def test_a_hanging_function_is_left_behind_and_its_result_told_late():
    """The caller gets TimedOut at the deadline; what comes later goes to `late` only."""
    gate, hanging = _hanging()
    late = []
    workers = WorkerPool()
    assert workers.run_with_deadline(hanging, 0.02, late.append) == TimedOut(0.02)
    assert (workers.lost_count, late) == (1, [])
    gate.set()
    _soon(lambda: late)
    assert late == [Returned(True)]
    _soon(lambda: workers.lost_count == 0)


def test_lost_threads_are_bounded():
    """Beyond the limit nothing is started, and that is said; when one comes back, work goes on."""
    gate, hanging = _hanging()
    workers = WorkerPool(max_lost=2)
    for _ in range(2):
        assert isinstance(workers.run_with_deadline(hanging, 0.01), TimedOut)
    started = []
    assert isinstance(workers.run_with_deadline(lambda: started.append(1), 5), NotStarted)
    assert started == []
    gate.set()
    _soon(lambda: workers.lost_count == 0)
    assert workers.run_with_deadline(lambda: 1, 5) == Returned(1)


def test_context_variables_reach_the_function():
    """A function in a worker sees the caller's context."""
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("seen")
    assert WorkerPool().run_with_deadline(variable.get, 5) == Returned("seen")


def test_a_job_is_taken_by_exactly_one_side():
    """Giving up a job whose result is there is refused, so no result is both used and called late."""
    workers = WorkerPool()
    ready = threading.Event()
    job = workers.start_job(lambda: 1, ready.set)
    assert ready.wait(5)
    assert workers.give_up(job, None) is False
    assert workers.lost_count == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork_the_pool_starts_anew():
    """A child process does not wait for threads that only its parent has."""
    workers = WorkerPool()
    assert workers.run_with_deadline(lambda: 1, 5) == Returned(1)
    child = os.fork()
    if child == 0:
        os._exit(0 if workers.run_with_deadline(lambda: 7, 5) == Returned(7) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_closing_ends_the_threads_that_wait_for_work():
    """A guard that is closed leaves no idle thread behind; used again, it starts new ones."""
    workers, seen = WorkerPool(), []
    workers.run_with_deadline(lambda: seen.append(threading.current_thread()), 5)
    _soon(lambda: len(workers._idle) == 1)
    workers.close()
    _soon(lambda: not seen[0].is_alive())
    assert workers.run_with_deadline(lambda: 1, 5) == Returned(1)


def test_a_deadline_beyond_what_a_lock_can_wait_is_a_long_wait():
    """No number of seconds is too large: the function has begun, so its result is waited for."""
    assert WorkerPool().run_with_deadline(lambda: 1, 1e12) == Returned(1)


def test_a_thread_that_the_system_does_not_give_is_none(monkeypatch):
    """Whoever wants one hears of it as a value, at once."""

    def refused(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert start_thread("t", lambda: None) is None
    assert isinstance(WorkerPool().run_with_deadline(lambda: 1, 5), NotStarted)


def test_a_pool_that_nobody_closed_leaves_no_thread_behind():
    """A host that makes a guard for each request and forgets to close it does not run out of threads."""
    before = set(threading.enumerate())
    workers = WorkerPool()
    assert workers.run_with_deadline(lambda: 1, 5) == Returned(1)
    begun = set(threading.enumerate()) - before
    assert len(begun) == 1
    del workers
    _soon(lambda: not any(thread.is_alive() for thread in begun))


def test_a_thread_that_outlives_its_pool_ends_when_it_comes_back():
    """What hung when the pool was forgotten is told late, and its thread is not kept for nobody."""
    gate, hanging = _hanging()
    late = []
    before = set(threading.enumerate())
    workers = WorkerPool()
    assert workers.run_with_deadline(hanging, 0.02, late.append) == TimedOut(0.02)
    begun = set(threading.enumerate()) - before
    del workers
    gate.set()
    _soon(lambda: late and not any(thread.is_alive() for thread in begun))
    assert late == [Returned(True)]


def test_what_has_not_begun_by_its_deadline_never_does(monkeypatch):
    """A thread that comes too late finds the function given up: nothing happens after the deadline was reported."""
    gate, ran, workers = threading.Event(), [], WorkerPool()
    monkeypatch.setattr(
        module, "start_thread", lambda name, work, *args: start_thread(name, lambda: gate.wait(30) and work(*args))
    )
    assert isinstance(workers.run_with_deadline(lambda: ran.append(1), 0.02), NotStarted)
    assert workers.lost_count == 0
    gate.set()
    _soon(lambda: workers._idle)
    assert workers.run_with_deadline(lambda: 2, 5) == Returned(2)
    assert ran == []


@pytest.mark.parametrize("round", range(100))
def test_a_function_begins_or_is_given_up(round):  # noqa: A002 - each is another race
    """Whichever comes first wins: what is told as not begun has not run, and whatever ran has been told."""
    workers, ran, late = WorkerPool(), [], []
    workers.run_with_deadline(lambda: 1, 5)
    job = workers.start_job(lambda: ran.append(1), lambda: None)
    lost = workers.give_up(job, late.append)
    _soon(lambda: workers.lost_count == 0 and workers._idle)
    begun = not isinstance(job.reaction, NotStarted)
    assert (len(ran), len(late)) == (begun, lost)


def test_a_thread_that_tells_what_came_late_is_not_free():
    """Who is told may take its time: the next function does not wait behind it."""
    gate, hanging = _hanging()
    hears, may = threading.Event(), threading.Event()
    workers = WorkerPool()
    assert workers.run_with_deadline(hanging, 0.02, lambda _: (hears.set(), may.wait(30))) == TimedOut(0.02)
    gate.set()
    assert hears.wait(5)
    assert workers.run_with_deadline(lambda: 1, 5) == Returned(1)
    may.set()
    _soon(lambda: workers.lost_count == 0)


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_who_is_told_late_and_raises_costs_no_thread(error):
    """The thread counts as come back, and serves the next function."""

    def late(_):
        raise error

    gate, hanging = _hanging()
    before = set(threading.enumerate())
    workers = WorkerPool()
    assert workers.run_with_deadline(hanging, 0.02, late) == TimedOut(0.02)
    (thread,) = set(threading.enumerate()) - before
    gate.set()
    _soon(lambda: workers.lost_count == 0 and workers._idle)
    assert workers.run_with_deadline(threading.get_ident, 5) == Returned(thread.ident)
