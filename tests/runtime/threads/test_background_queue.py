"""The handoff: in order, in another thread, and never in the way of the thread that offers."""

import os
import subprocess
import sys
import threading
import time
import warnings

import pytest

from pokayoke.runtime.threads.background_queue import BackgroundQueue

pytestmark = pytest.mark.xdist_group("timing")  # its deadlines are short


@pytest.fixture
def handoff():
    """Makes handoffs and ends their workers after the test."""
    made = []

    def make(consume, most=1_000):
        made.append(BackgroundQueue(consume, most, "pokayoke-test"))
        return made[-1]

    yield make
    for one in made:
        assert one.close()


@pytest.mark.parametrize("timeout", [1e10, float("inf")])
def test_a_wait_for_ever_is_no_overflow(timeout):
    """Longer than a lock can be waited for is as long as it can."""
    queue, may = BackgroundQueue(lambda item: may.wait(), 10, "pokayoke-test"), threading.Event()
    queue.offer(1)
    threading.Timer(0.05, may.set).start()
    assert queue.flush(timeout)
    assert queue.close(timeout)


def test_items_arrive_in_order_in_one_other_thread(handoff):
    """What one thread offers is consumed in its order, by a thread that is not its own."""
    seen, threads = [], set()
    queue = handoff(lambda item: (seen.append(item), threads.add(threading.get_ident())))
    for number in range(500):
        queue.offer(number)
    assert queue.flush()
    assert seen == list(range(500))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_no_item_is_lost_between_threads(handoff):
    """Four threads that offer and flush at once lose nothing, and a flush covers all that its thread offered."""
    seen, missing = [], []
    queue = handoff(seen.append, 100_000)

    def offer(who):
        for number in range(300):
            queue.offer((who, number))
            if number % 50 == 49 and (not queue.flush() or (who, number) not in seen):
                missing.append((who, number))

    threads = [threading.Thread(target=offer, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert queue.flush()
    assert missing == []
    assert sorted(seen) == [(who, number) for who in range(4) for number in range(300)]
    assert queue.dropped_count == 0


def test_a_full_queue_drops_and_counts(handoff):
    """While the worker hangs, no more than the limit waits; offering returns at once and the rest is counted."""
    hangs, held = threading.Event(), threading.Event()
    seen = []

    def consume(item):
        held.set()
        assert hangs.wait(30)
        seen.append(item)

    queue = handoff(consume, 10)
    queue.offer(0)
    assert held.wait(30)
    for number in range(1, 101):
        queue.offer(number)
    assert queue.dropped_count == 90
    assert not queue.flush(0.01)
    hangs.set()
    assert queue.flush()
    assert seen == list(range(11))


def test_a_flush_waits_for_the_item_in_the_workers_hands(handoff):
    """An item that has left the queue and is still being consumed is not yet through."""
    hangs, held = threading.Event(), threading.Event()
    queue = handoff(lambda item: (held.set(), hangs.wait(30)))
    queue.offer(1)
    assert held.wait(30)
    assert not queue.flush(0.05)
    hangs.set()
    assert queue.flush()


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_item_that_fails_costs_itself(handoff, error):
    """What consuming raises is counted and named, even if it would end a thread, and the next item is consumed."""
    seen = []

    def consume(item):
        if item == 1:
            raise error("CANARY")
        seen.append(item)

    queue = handoff(consume)
    for number in range(3):
        queue.offer(number)
    assert queue.flush()
    assert (seen, queue.dropped_count) == ([0, 2], 1)
    assert queue.problem == error.__name__


def test_nothing_starts_before_the_first_item(handoff):
    """A queue that is never used has no thread; flushing and closing it return at once."""
    before = set(threading.enumerate())
    queue = handoff(print)
    assert queue.flush()
    assert set(threading.enumerate()) <= before


def test_closing_consumes_what_waits_and_ends_the_worker():
    """After closing, everything offered before was consumed, the thread is gone, and later items are dropped."""
    seen = []
    queue = BackgroundQueue(lambda item: (time.sleep(0.001), seen.append(item)), 1_000, "pokayoke-test")
    for number in range(50):
        queue.offer(number)
    worker = queue._thread
    assert queue.close()
    assert not worker.is_alive()
    queue.offer(50)
    assert (seen, queue.dropped_count) == (list(range(50)), 1)
    assert queue.close()


def test_a_worker_may_flush_its_own_queue(handoff):
    """Flushing inside the worker does not wait for itself."""
    answers = []
    queue = handoff(lambda item: answers.append(queue.flush()))
    queue.offer(1)
    assert queue.flush()
    assert answers == [True]


def test_a_forked_child_has_a_worker_of_its_own(handoff):
    """In a child the queue is empty and works, whatever the parent's thread was doing."""
    seen, hangs = [], threading.Event()
    queue = handoff(lambda item: (seen.append(item), item == "parent" and hangs.wait(30)))
    queue.offer("parent")
    queue.offer("parent")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of what this test is about
        child = os.fork()
    if child == 0:
        seen.clear()
        queue.offer("child")
        os._exit(7 if queue.flush() and seen == ["child"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    hangs.set()


def test_the_end_of_the_process_waits_for_what_waits():
    """Items offered right before the interpreter ends are still consumed."""
    script = (
        "import sys; from pokayoke.runtime.threads.background_queue import BackgroundQueue\n"
        "queue = BackgroundQueue(lambda item: print(item, flush=True), 100, 'pokayoke-test')\n"
        "for number in range(3): queue.offer(number)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout.split(), done.returncode, done.stderr) == (["0", "1", "2"], 0, "")


def test_without_a_thread_items_wait_for_the_next_one(handoff, monkeypatch):
    """No call fails for want of a thread; the next item tries again, and all are consumed."""
    seen, start = [], threading.Thread.start

    def refused(thread):
        raise RuntimeError("can't start new thread")

    queue = handoff(seen.append)
    monkeypatch.setattr(threading.Thread, "start", refused)
    queue.offer(1)
    assert not queue.flush()
    monkeypatch.setattr(threading.Thread, "start", start)
    queue.offer(2)
    assert queue.flush()
    assert seen == [1, 2]
