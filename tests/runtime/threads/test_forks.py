"""A process that forks while it guards: no child is its parent, and none waits for a thread it does not have."""

import gc
import os
import signal
import threading
from weakref import ref

import pytest

from pokayoke import Contract, Guard, ToolCall, open_store
from pokayoke.runtime.threads.forks import process_token
from pokayoke.runtime.threads.worker_pool import WorkerPool
from pokayoke.runtime.versions.rollout import Rollout

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),  # forking beside threads is what is tested
]
ANY = {"type": "object"}


def forked(child):
    """Begin a child that runs a function; what it hangs on ends it. Returns its pid."""
    gc.collect()  # the child must not tidy up after other tests
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        try:
            os._exit(child())
        finally:
            os._exit(99)
    return pid


def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_processes_that_inherit_a_run_do_an_equal_write_once(tmp_path):
    """Each child claims for itself: it does not take its brother's claim for its own."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    open_store(url, create=True).close()
    log = tmp_path / "paid"
    log.write_text("")
    out, into = os.pipe()

    def pay():
        with log.open("a") as file:
            file.write("paid ")
        for _ in range(3):  # until all others have been answered
            os.read(out, 1)
        return {}

    guard = Guard([Contract.from_schema("pay", ANY, output_schema=ANY, handler=pay)], store=url)
    run = guard.run("job")

    def work():
        outcome = run.call(ToolCall("c", "pay", {}))
        os.write(into, b".")
        return {"ok": 1, "refused": 2}.get(outcome.status, 3)

    children = [forked(work) for _ in range(4)]
    assert sorted(ended(child) for child in children) == [1, 2, 2, 2]
    assert log.read_text() == "paid "


def test_the_word_of_a_process_is_its_own():
    """Parent and children have different ones, and each keeps its own."""
    words = [process_token()]
    for _ in range(2):
        out, into = os.pipe()
        child = forked(lambda into=into: os.write(into, process_token().encode()) and 0)
        assert ended(child) == 0
        words.append(os.read(out, 100).decode())
    assert len(set(words)) == 3
    assert process_token() == words[0]


def test_a_lock_held_while_forking_does_not_hang_the_child(tmp_path):
    """Another thread of the parent may be anywhere: opening a run, changing it, keeping an answer, waiting for a tool."""
    config = tmp_path / "pokayoke.yaml"
    config.write_text("mode: enforce\n")
    look = Contract.from_schema("look", ANY, effect="read", output_schema=ANY, handler=dict, timeout=5)
    save = Contract.from_schema("save", ANY, output_schema=ANY, handler=dict)
    guard = Guard([look, save], config=config)
    run = guard.run("r")
    assert run.call(ToolCall("c", "look", {})).ok
    held = [guard._opening, guard._renewing, guard.last_good._lock, guard.workers._lock, guard._file._lock]
    held += [
        run.progress._lock,
        run.progress.matters._lock,
        run.progress.texts._lock,
        run.progress.written._lock,
        run.seen._lock,
        guard.alerts._lock,
        guard.switchboard._turn,
        guard.trace._lock,
    ]
    taken, done = threading.Event(), threading.Event()

    def busy():
        for lock in held:
            lock.acquire()
        taken.set()
        done.wait(30)
        for lock in reversed(held):
            lock.release()

    def child():
        guard._file.reload()
        run.user("go on")
        opened = guard.run("another")
        called = opened.call(ToolCall("c", "look", {})).ok and run.call(ToolCall("c", "look", {})).ok
        called = called and run.call(ToolCall("d", "save", {})).ok
        guard.workers.run_with_deadline(lambda: done.wait(5), 0.01)
        return 0 if called and guard.workers.lost_count == 1 else 1

    thread = threading.Thread(target=busy)
    thread.start()
    taken.wait(30)
    pid = forked(child)
    done.set()
    thread.join()
    assert ended(pid) == 0


def test_versions_of_tools_can_be_drawn_in_a_child(tmp_path):
    """The lock around the versions in force is free in a child, too."""
    rollout = Rollout(tmp_path / "contracts.lock", None, ())
    with rollout._lock:
        assert ended(forked(lambda: int(rollout._lock.locked()))) == 0


def test_a_pool_that_nobody_uses_any_more_is_not_kept():
    """What begins anew after a fork is not held on to for that."""
    pool = ref(WorkerPool())
    assert pool() is None
