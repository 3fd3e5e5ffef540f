"""The writer: what waits together is committed together, and nobody waits for ever."""

import asyncio
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import apsw
import pytest

from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.records import Claim, Record, Settlement
from pokayoke.errors import StoreError
from pokayoke.stores.operations import Operation, ReadSet, WriteSet
from pokayoke.stores.sqlite import connection as sqlite_file
from pokayoke.stores.sqlite import fork_safety as forking
from pokayoke.stores.sqlite import writer
from pokayoke.stores.sqlite.connection import SqliteConnection
from pokayoke.stores.sqlite.store import SqliteStore
from pokayoke.stores.sqlite.writer import SqliteWriter
from pokayoke.stores.values import AuditEntry, RecordQuery

pytestmark = pytest.mark.xdist_group("timing")  # its deadlines are short


def claim(store, key="k"):
    wish = Claim(key, "h", "c1", "pay", "pay@1", "r", 100.0, 10.0)
    return store.admit(AdmissionRequest("r", "pay", "write", None, 100.0, wish))


@pytest.fixture
def url(tmp_path):
    """Where the ledger lies."""
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture
def store(url):
    """A new ledger."""
    store = SqliteStore(url, create=True)
    yield store
    store.close()


@pytest.fixture
def locked(url):
    """Holds the write lock of the ledger until it is called."""
    conn = apsw.Connection(url.removeprefix("sqlite:///"))

    def let_go():
        if conn.in_transaction:
            conn.execute("ROLLBACK")

    def hold():
        conn.execute("BEGIN IMMEDIATE")
        return let_go

    yield hold
    let_go()
    conn.close()


@pytest.fixture
def interruptible():
    """Ctrl-C interrupts, also where the tests were started with it ignored (in the background of a shell)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def commits(monkeypatch):
    """How many transactions were committed."""
    seen = []
    commit = SqliteConnection.commit

    def counted(self):
        commit(self)
        seen.append(time.monotonic())

    monkeypatch.setattr(SqliteConnection, "commit", counted)
    return seen


def started(functions):
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    return threads


def line_up(store, first, *others):
    """Start threads so that one act waits for the lock and the others wait behind it, in one queue."""
    waiting = store._writer._waiting
    threads = started([first])
    time.sleep(0.1)
    threads += started(others)
    while len(waiting) < len(others):
        time.sleep(0.01)
    time.sleep(0.1)  # from the queue to the wait there are some steps yet
    return threads


def test_what_waits_together_is_committed_together(store, locked, commits):
    """Ten acts that wait for a lock end in at most two transactions, and every caller gets its own answer."""
    claim(store, "warm")
    commits.clear()
    let_go = locked()
    answers = {}
    threads = line_up(store, *[lambda n=n: answers.update({n: claim(store, f"k{n % 5}")}) for n in range(10)])
    let_go()
    for thread in threads:
        thread.join()
    assert len(commits) == 2
    assert {answer.record.key for answer in answers.values()} == {f"k{n}" for n in range(5)}
    assert len(store.records(RecordQuery())) == 6


def breaks(key):
    """An act that fails half-way: its record is written, its line in the audit has no time."""
    record = Record(key, "h", "executing", 1, "c", 1.0, "pay", "pay@1", "r", 1.0)
    return Operation(
        "test", ReadSet(), lambda _: (WriteSet(record, entries=(AuditEntry(float("nan"), "late_effect", key),)), None)
    )


def test_an_act_that_fails_half_way_takes_nobody_along(store, locked):
    """Of a group with an act that fails in the middle, the others are written and that one is not, not even in part."""
    claim(store, "warm")
    let_go = locked()
    errors = []

    def broken():
        try:
            store.run(breaks("bad"))
        except apsw.ConstraintError as error:
            errors.append(error)

    threads = line_up(
        store, lambda: claim(store, "k0"), lambda: claim(store, "k1"), broken, lambda: claim(store, "k2"), broken
    )
    let_go()
    for thread in threads:
        thread.join()
    assert [record.key for record in store.records(RecordQuery())] == ["k0", "k1", "k2", "warm"]
    assert len(errors) == 2
    assert store.audit() == ()


def test_an_act_that_decides_against_itself_takes_nobody_along(store, locked):
    """An act that raises before it writes gets its own error; the group is committed without it."""
    claim(store, "warm")
    let_go = locked()
    errors = []

    def refuses():
        try:
            store.answer("zz", approved=True, by="ann", reason="", now=1.0)
        except StoreError as error:
            errors.append(str(error))

    threads = line_up(
        store, lambda: claim(store, "k0"), lambda: claim(store, "k1"), refuses, lambda: claim(store, "k2")
    )
    let_go()
    for thread in threads:
        thread.join()
    assert [record.key for record in store.records(RecordQuery())] == ["k0", "k1", "k2", "warm"]
    assert "no approval 'zz'" in errors[0]


def test_those_who_came_later_go_on_waiting(url, locked):
    """When the oldest act has waited too long it is refused; one that came later still gets its full time."""
    store = SqliteStore(url, create=True, limit=0.6)
    claim(store, "warm")
    let_go = locked()
    said = []

    def first():
        with pytest.raises(StoreError, match="stayed locked"):
            claim(store, "k1")
        said.append("refused")
        let_go()

    def second():
        time.sleep(0.3)
        said.append(claim(store, "k2").kind)

    # One act keeps the writer busy, so that the two others are in one group.
    for thread in started([first, second]):
        thread.join()
    assert said == ["refused", "execute"]
    assert store.record("k1") is None
    store.close()


def test_an_error_of_the_file_reaches_everybody(store, locked, monkeypatch):
    """If the commit fails, every act of the group is refused with words, and nothing of it is there."""
    claim(store, "warm")
    real = SqliteConnection.commit
    error = apsw.FullError("full")
    error.result = 13

    def full(_):
        raise error

    monkeypatch.setattr(SqliteConnection, "commit", full)
    errors = []

    def tries(key):
        try:
            claim(store, key)
        except StoreError as error:
            errors.append(error)

    for thread in started([lambda n=n: tries(f"k{n}") for n in range(4)]):
        thread.join()
    assert len(errors) == len({id(error) for error in errors}) == 4
    assert all("the disk is full" in str(error) for error in errors)
    monkeypatch.setattr(SqliteConnection, "commit", real)
    assert [record.key for record in store.records(RecordQuery())] == ["warm"]
    assert claim(store, "k0").kind == "execute"


def test_whatever_goes_wrong_nobody_waits_for_ever(store, monkeypatch):
    """Even an error that nobody expects is told to who waits; the next act goes through."""

    def odd(_):
        raise MemoryError

    monkeypatch.setattr(SqliteConnection, "begin", odd)
    with pytest.raises(StoreError, match="cannot be used"):
        claim(store)
    monkeypatch.undo()
    assert claim(store).kind == "execute"


async def test_callers_notice_that_the_writer_is_gone(store, monkeypatch):
    """If the thread that leads ends without an answer, all that wait get an error within seconds; the next act goes on."""
    monkeypatch.setattr(SqliteWriter, "_serve", lambda _: None)
    read = AdmissionRequest("r", "pay", "read", None, 1.0)
    with pytest.raises(StoreError, match="the writer of the ledger has ended"):
        await asyncio.wait_for(store.aadmit(read), 30)
    task = asyncio.create_task(store.aadmit(read))
    await asyncio.sleep(0)
    with pytest.raises(StoreError, match="the writer of the ledger has ended"):
        claim(store)
    with pytest.raises(StoreError, match="the writer of the ledger has ended"):
        await task
    monkeypatch.undo()
    assert (await store.aadmit(read)).kind == claim(store, "k2").kind == "execute"


def no_thread(monkeypatch):
    """The system gives no thread of this store's."""
    start = threading.Thread.start

    def refused(thread):
        if thread.name.startswith("pokayoke"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)


async def test_without_a_thread_an_act_is_refused(store, monkeypatch):
    """If the system gives no thread, who needs one is told so; everybody else goes on, and so does the next one."""
    read = AdmissionRequest("r", "pay", "read", None, 1.0)
    no_thread(monkeypatch)
    for _ in range(2):
        with pytest.raises(StoreError, match="the system gives no thread"):
            await store.aadmit(read)
        assert claim(store).kind == "execute"
    monkeypatch.undo()
    assert (await asyncio.wait_for(store.aadmit(read), 30)).kind == "execute"


async def test_without_a_thread_nobody_is_left_waiting(store, locked, monkeypatch):
    """Who has led and finds no thread for those who wait still gets its own answer, and they are refused."""
    claim(store, "warm")
    no_thread(monkeypatch)
    let_go = locked()
    kinds = []
    thread = started([lambda: kinds.append(claim(store, "k0").kind)])[0]
    await asyncio.sleep(0.1)
    task = asyncio.create_task(store.aadmit(AdmissionRequest("r", "pay", "read", None, 1.0)))
    await asyncio.sleep(0.1)
    let_go()
    with pytest.raises(StoreError, match="the system gives no thread"):
        await asyncio.wait_for(task, 30)
    thread.join()
    assert kinds == ["execute"]
    assert claim(store, "k1").kind == "execute"


def test_one_of_those_who_wait_goes_on(store, locked, commits):
    """Who led goes home with its own answer; one of those who came meanwhile leads them all, and no thread is made."""
    claim(store, "warm")
    commits.clear()
    let_go = locked()
    leaders = []
    monkey = store._writer._lead_writes
    store._writer._lead_writes = lambda own: (leaders.append(threading.current_thread()), monkey(own))[1]
    before = set(threading.enumerate())
    threads = line_up(store, *[lambda n=n: claim(store, f"k{n}") for n in range(4)])
    assert len(set(threading.enumerate()) - before) == 4
    let_go()
    for thread in threads:
        thread.join()
    assert len(commits) == len(leaders) == len(set(leaders)) == 2
    assert set(leaders) < set(threads)


def test_those_who_were_answered_together_wait_for_each_other(store, commits, monkeypatch):
    """Who leads after a group waits until the group is whole again, and not a moment longer than it has to."""
    claim(store, "warm")
    commits.clear()
    store._writer._size, store._writer._seconds = 3, 100.0
    monkeypatch.setattr(writer, "_GATHERING_MOST", 60)
    begun = time.monotonic()
    threads = started([lambda n=n: claim(store, f"k{n}") for n in range(3)])
    for thread in threads:
        thread.join()
    assert len(commits) == 1
    assert time.monotonic() - begun < 30


def test_who_does_not_come_is_not_waited_for(store, commits):
    """If the others of the last group have no more to write, who leads goes on without them."""
    claim(store, "warm")
    commits.clear()
    store._writer._size, store._writer._seconds = 3, 100.0
    assert claim(store, "k").kind == "execute"
    assert len(commits) == 1
    assert store._writer._full is None


def test_each_who_is_answered_wakes_the_next(store, locked, monkeypatch):
    """All of a group go on as soon as their transaction is committed, and nobody only because they looked."""
    monkeypatch.setattr(writer, "_LOOK_AFTER", 60)
    claim(store, "warm")
    let_go = locked()
    kinds = []
    threads = line_up(store, *[lambda n=n: kinds.append(claim(store, f"k{n}").kind) for n in range(8)])
    let_go()
    begun = time.monotonic()
    for thread in threads:
        thread.join()
    assert time.monotonic() - begun < 30
    assert kinds == ["execute"] * 8


def throw_out(thread):
    """Raise a TimeoutError in a thread, wherever it is, as some libraries do that bound the time of a call."""
    ident = ctypes.c_ulong(thread.ident)
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(TimeoutError)) == 1


def thrown_out(store, then=lambda: None):
    """A caller that is thrown out while it waits, and does something else then."""
    with pytest.raises(TimeoutError):
        claim(store, "left")
    then()


def test_who_waits_no_more_still_wakes_the_next(store, locked, monkeypatch):
    """A thread that is thrown out while it waits leaves its act to the others, and keeps nobody waiting."""
    monkeypatch.setattr(writer, "_LOOK_AFTER", 60)
    claim(store, "warm")
    let_go = locked()
    kinds = []
    others = [lambda n=n: kinds.append(claim(store, f"k{n}").kind) for n in range(5)]
    threads = line_up(store, *others[:2], lambda: thrown_out(store), *others[2:])
    throw_out(threads[2])
    let_go()
    for thread in threads:
        thread.join(30)
    assert kinds == ["execute"] * 5
    assert store.record("left").state == "executing"


class Leaving(writer.WriteJob):
    """A job whose caller is thrown out in the very moment in which somebody looks whether it waits."""

    leave = staticmethod(lambda: None)
    looks = 0  # until it leaves
    _there = None

    @property
    def thread(self):
        """Who waits. Seen so often, it is gone."""
        there = self._there
        self.looks -= 1
        if self.looks == 0:
            self.leave()
        return there

    @thread.setter
    def thread(self, value):
        self._there = value


def test_who_leaves_while_it_is_answered_keeps_nobody_waiting():
    """Seen as one that waits, and gone when the next is written down for it: the next is woken all the same, once."""
    woken = []
    first, gone, last = (kind(None, lambda n=n: woken.append(n), threading.current_thread())
                         for n, kind in enumerate((writer.WriteJob, Leaving, writer.WriteJob)))  # fmt: skip

    def left():
        gone.thread = None
        gone.wake_next()

    gone.leave, gone.looks = left, 1
    writer._answer_jobs([first, gone, last])
    assert woken == [0, 2]
    first.wake_next()
    gone.wake_next()
    assert woken == [0, 2, 1]


@pytest.mark.parametrize("looks", [1, 2])
def test_who_leaves_while_it_is_asked_to_lead_hands_over(store, monkeypatch, looks):
    """Seen as one that waits, and thrown out before it is told to lead: somebody else leads, whatever it does then."""
    monkeypatch.setattr(writer, "_LOOK_AFTER", 0.05)
    claim(store, "warm")
    made, out, over, kinds, leading = [], threading.Event(), threading.Event(), [], store._writer
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "WriteJob", lambda *given: made.append(Leaving(*given)) or made[0])
        leading._led, leading._leader = True, threading.current_thread()
        [thread] = started([lambda: thrown_out(store, lambda: (out.set(), over.wait(30)))])
        while not (made and made[0] in leading._waiting):
            time.sleep(0.01)
    made[0].leave, made[0].looks = lambda: (throw_out(thread), out.wait(0.5)), looks
    leading._hand_over()
    assert out.wait(30)
    [other] = started([lambda: kinds.append(claim(store, "after").kind)])
    other.join(10)
    over.set()
    thread.join(30)
    assert kinds == ["execute"]
    assert store.record("left").state == "executing"


def test_who_waits_no_more_is_not_asked_to_lead(store, locked, monkeypatch):
    """A thread that was thrown out and does something else is passed over; another one leads, and takes its act along."""
    monkeypatch.setattr(writer, "_LOOK_AFTER", 0.1)
    claim(store, "warm")
    let_go = locked()
    out, over, kinds = threading.Event(), threading.Event(), []

    def leaves():
        thrown_out(store, lambda: (out.set(), over.wait(60)))

    threads = line_up(store, lambda: claim(store, "k0"), leaves)
    throw_out(threads[1])
    assert out.wait(30)
    threads += started([lambda: kinds.append(claim(store, "k1").kind)])
    while len(store._writer._waiting) < 2:
        time.sleep(0.01)
    let_go()
    threads[2].join(30)
    over.set()
    for thread in threads:
        thread.join(30)
    assert kinds == ["execute"]
    assert store.record("left").state == "executing"


def test_who_is_not_woken_looks(store, locked, monkeypatch):
    """If whoever should wake the others never does, they find their answers all the same."""

    def marked(jobs):
        for job in jobs:
            job.stands = True

    claim(store, "warm")
    let_go = locked()
    kinds = []
    threads = line_up(store, *[lambda n=n: kinds.append(claim(store, f"k{n}").kind) for n in range(3)])
    monkeypatch.setattr(writer, "_answer_jobs", marked)
    let_go()
    for thread in threads:
        thread.join(30)
    assert kinds == ["execute"] * 3


def test_the_main_thread_is_not_asked_to_lead(store, locked):
    """What waits in the main thread, where an interrupt may come at any time, is led by the store's own thread."""
    claim(store, "warm")
    let_go = locked()
    thread = started([lambda: claim(store, "k0")])[0]
    time.sleep(0.1)
    threading.Timer(0.1, let_go).start()
    assert claim(store, "k1").kind == "execute"
    thread.join()
    assert store._writer._thread is not None


def test_others_go_on_after_an_interrupt(store, locked, interruptible):
    """The main thread is interrupted while it leads: its own act and those that wait are carried out all the same."""
    claim(store, "warm")
    let_go = locked()
    answers = []
    threads = []

    def others():
        time.sleep(0.2)
        threads.extend(started([lambda n=n: answers.append(claim(store, f"k{n}").kind) for n in range(2)]))
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    helper = started([others])[0]
    with pytest.raises(KeyboardInterrupt):
        claim(store, "own")
    helper.join()
    let_go()
    for thread in threads:
        thread.join()
    assert answers == ["execute"] * 2
    assert store.record("own").state == "executing"


def test_an_interrupt_at_any_call_blocks_nobody(store, url):
    """Wherever in the writer Ctrl-C arrives, the store writes on for other threads."""
    claim(store, "warm")
    number, left = 0, True
    while left:
        number += 1
        left = number

        def trace(frame, event, _):
            nonlocal left
            if frame.f_code.co_filename == writer.__file__ and event == "call" and left:
                left -= 1
                if not left:
                    raise KeyboardInterrupt
            return trace

        before = sys.gettrace()  # coverage may watch
        sys.settrace(trace)
        try:
            claim(store, f"k{number}")
            interrupted = False
        except KeyboardInterrupt:
            interrupted = True
        finally:
            sys.settrace(before)
        answers = []
        thread = threading.Thread(target=lambda n=number, a=answers: a.append(claim(store, f"a{n}").kind), daemon=True)
        thread.start()
        thread.join(10)
        assert answers == ["execute"], number
        left = interrupted
    assert number > 10


def test_a_handler_of_a_signal_is_told_that_it_cannot_wait(store):
    """An act that is asked for in the middle of its own thread's leading is an error, never a wait without end."""
    errors = []

    def handler(_):
        try:
            store._writer.run_work(lambda _: None)
        except StoreError as error:
            errors.append(str(error))

    store._writer.run_work(handler)
    assert "has ended" in errors[0]
    assert claim(store).kind == "execute"


# -- callers that do not wait ----------------------------------------------------------------------


def test_an_interrupted_caller_leaves_its_act_to_the_writer(store, locked, interruptible):
    """Ctrl-C ends the waiting, not the act."""
    claim(store, "warm")
    let_go = locked()
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        claim(store)
    let_go()
    claim(store, "after")
    assert store.record("k").state == "executing"


async def test_a_cancelled_caller_leaves_its_act_to_the_writer(store, locked):
    """A cancelled task ends, its act is carried out, and nothing is reported to a loop that is not interested."""
    await store.aadmit(AdmissionRequest("r", "pay", "read", None, 1.0))
    let_go = locked()
    wish = Claim("k", "h", "c1", "pay", "pay@1", "r", 100.0, 10.0)
    task = asyncio.create_task(store.aadmit(AdmissionRequest("r", "pay", "write", None, 100.0, wish)))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    let_go()
    claim(store, "after")
    assert store.record("k").state == "executing"


async def test_the_event_loop_goes_on_while_an_act_waits(store, locked):
    """While the file is locked, other coroutines run."""
    claim(store, "warm")
    let_go = locked()
    wish = Claim("k", "h", "c1", "pay", "pay@1", "r", 100.0, 10.0)
    task = asyncio.create_task(store.aadmit(AdmissionRequest("r", "pay", "write", None, 100.0, wish)))
    for _ in range(20):
        await asyncio.sleep(0.005)
    assert not task.done()
    let_go()
    assert (await task).kind == "execute"


def test_a_closed_event_loop_does_no_harm(store, locked):
    """An answer for a loop that was closed meanwhile is dropped; the writer goes on."""
    claim(store, "warm")
    let_go = locked()

    async def asks():
        wish = Claim("k", "h", "c1", "pay", "pay@1", "r", 100.0, 10.0)
        asyncio.get_running_loop().create_task(store.aadmit(AdmissionRequest("r", "pay", "write", None, 100.0, wish)))
        await asyncio.sleep(0.05)

    asyncio.run(asks())
    let_go()
    claim(store, "after")
    assert store.record("k").state == "executing"


async def test_many_tasks_share_one_thread(store):
    """A hundred tasks at once start no thread but the store's own."""
    await store.aadmit(AdmissionRequest("r", "pay", "read", None, 1.0))
    before = set(threading.enumerate())
    wishes = [Claim(f"k{n}", "h", "c1", "pay", "pay@1", "r", 100.0, 10.0) for n in range(100)]
    answers = await asyncio.gather(
        *(store.aadmit(AdmissionRequest("r", "pay", "write", None, 100.0, wish)) for wish in wishes)
    )
    assert {answer.kind for answer in answers} == {"execute"}
    assert set(threading.enumerate()) <= before


# -- beginning and ending --------------------------------------------------------------------------


def test_a_thread_is_started_only_for_those_who_cannot_lead(url):
    """Looking and acting need no thread; the first asynchronous act begins one, which ends with the store."""
    before = set(threading.enumerate())
    store = SqliteStore(url, create=True)
    store.records(RecordQuery())
    claim(store)
    assert set(threading.enumerate()) <= before
    asyncio.run(store.aadmit(AdmissionRequest("r", "pay", "read", None, 1.0)))
    assert len(set(threading.enumerate()) - before) == 1
    store.close()
    assert set(threading.enumerate()) <= before


def test_closing_finishes_what_waits(store, locked):
    """Acts that were asked before the store was closed are carried out; later ones are refused."""
    claim(store, "warm")
    let_go = locked()
    answers = []
    threads = line_up(store, *[lambda n=n: answers.append(claim(store, f"k{n}").kind) for n in range(3)])
    threading.Timer(0.1, let_go).start()
    store.close()
    for thread in threads:
        thread.join()
    assert answers == ["execute"] * 3
    for late in (lambda: claim(store), lambda: store.records(RecordQuery())):
        with pytest.raises(StoreError, match="the store is closed"):
            late()
    store.close()


def test_a_store_that_nobody_holds_ends_its_thread(url):
    """Dropping a store without closing it leaves no thread behind."""
    before = set(threading.enumerate())
    store = SqliteStore(url, create=True)
    asyncio.run(store.aadmit(AdmissionRequest("r", "pay", "read", None, 1.0)))
    del store
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(
    "end", ["", "sys.exit(0)", "raise SystemExit", "threading.Thread(target=lambda: claim('k2')).start()"]
)
def test_the_interpreter_ends_without_closing(url, end):
    """A program that never closes its store ends at once, and what it wrote is there."""
    SqliteStore(url, create=True).close()
    code = f"""
import sys, threading
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.records import Claim
from pokayoke.stores import open_store
store = open_store({url!r})
def claim(key):
    wish = Claim(key, "h", "c1", "pay", "pay@1", "r", 100.0, 10.0)
    return store.admit(AdmissionRequest("r", "pay", "write", None, 100.0, wish))
claim("k")
{end}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    again = SqliteStore(url)
    assert again.record("k").state == "executing"
    assert ("Thread" in end) is (again.record("k2") is not None)
    again.close()


# -- forks ----------------------------------------------------------------------------------------


def in_child(act):
    """Fork, run a function in the child, and return whether it came to its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def test_a_fork_opens_the_file_anew(store):
    """Parent and child go on with the same store; each has its own connection, and the file stays whole."""
    claim(store, "before")

    def child():
        assert claim(store, "child").kind == "execute"
        assert store.record("before").state == "executing"
        store.close()

    for round_ in range(3):
        assert in_child(child)
        assert claim(store, f"parent{round_}").kind == "execute"
    assert store.record("child").state == "executing"
    connection = store._writer._connection
    assert connection.fetch("PRAGMA integrity_check") == [("ok",)]


def test_a_fork_while_acts_run(store):
    """Children that fork while threads write neither hang nor take acts of the parent along."""
    stop = threading.Event()
    kinds = []

    def write(name):
        number = 0
        while not stop.is_set():
            kinds.append(claim(store, f"{name}{number}").kind)
            number += 1

    threads = started([lambda n=n: write(f"t{n}-") for n in range(3)])
    for number in range(4):
        assert in_child(lambda number=number: claim(store, f"child{number}"))
    stop.set()
    for thread in threads:
        thread.join()
    assert set(kinds) == {"execute"}
    assert len(store.records(RecordQuery(limit=100_000))) == len(kinds) + 4


class Standing:
    """Notes when it stands still and when it goes on."""

    def __init__(self):
        self.seen = []

    def close_for_fork(self):
        """Take a while."""
        self.seen.append("pause")
        time.sleep(0.05)

    def resume_in_parent(self):
        """End the pause."""
        self.seen.append("go on")

    def reset_in_child(self):
        """Nothing is asked of the child."""


def test_threads_fork_one_after_the_other(monkeypatch):
    """What stands still for one fork goes on before the next one begins, or two would wait for each other in a circle."""
    standing = Standing()
    monkeypatch.setattr(forking, "fork_safe_objects", {standing})
    threads = started([lambda: in_child(lambda: None)] * 3)
    for thread in threads:
        thread.join()
    assert standing.seen == ["pause", "go on"] * 3


def test_processes_of_a_forking_pool(store):
    """`multiprocessing` with fork inherits the store and writes through it."""
    claim(store, "warm")
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=claim, args=(store, f"p{n}")) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert len(store.records(RecordQuery())) == 4


def test_a_fork_that_python_does_not_know_of_is_refused(store, monkeypatch):
    """A process whose id changed behind Python's back must not use the parent's connection."""
    claim(store)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    for act in (lambda: claim(store, "k2"), lambda: store.record("k")):
        with pytest.raises(StoreError, match="forked behind Python's back"):
            act()


def test_others_go_first_after_a_wait(store, locked, monkeypatch):
    """After a transaction that had to wait for another process, the next one leaves it a gap; then no more."""
    claim(store, "warm")
    let_go = locked()
    threading.Timer(0.1, let_go).start()
    claim(store, "waited")
    pauses = []
    monkeypatch.setattr(sqlite_file.time, "sleep", pauses.append)
    claim(store, "next")
    assert [0.0001 <= pause <= 0.0006 for pause in pauses] == [True]
    claim(store, "after")
    assert len(pauses) == 1


def test_a_settlement_is_durable_before_it_is_answered(store, commits):
    """The caller goes on only after its transaction was committed."""
    claim(store)
    before = len(commits)
    store.settle(Settlement("k", "c1", "completed", 101.0))
    assert len(commits) == before + 1


@pytest.mark.parametrize("limit", [1e10, 1e300])
def test_a_store_that_waits_for_ever_can_be_closed(url, limit):
    """A limit of centuries is a long one, and no overflow where a lock is waited for."""
    store = SqliteStore(url, create=True, limit=limit)
    claim(store, "k1")
    store.close()
