"""Calls that a framework starts side by side: reads go together, a write goes alone."""

import asyncio
import contextvars
import threading

import pytest

from pokayoke.adapters._host.ordering import CallOrdering, CallSlot
from pokayoke.errors import UsageError

LONG = 20
"""Seconds after which a wait counts as a hang."""


class Visit(threading.Thread):
    """A call in a thread of its own that stays inside until it is let go."""

    def __init__(self, turnstile, reads):
        super().__init__(daemon=True)
        self.turnstile, self.reads = turnstile, reads
        self.inside, self.leave = threading.Event(), threading.Event()
        self.start()

    def run(self):
        with self.turnstile.call_slot(self.reads):
            self.inside.set()
            assert self.leave.wait(LONG)

    def end(self):
        """Let it go."""
        self.leave.set()
        self.join(LONG)


def waits(turnstile, count):
    """Whether so many calls stand at the turnstile; those that are not inside wait."""
    for _ in range(LONG * 100):
        if len(turnstile._open) == count:
            return True
        threading.Event().wait(0.01)
    return False


def test_reads_go_together():
    """Two reads are inside at the same time."""
    turnstile = CallOrdering()
    visits = [Visit(turnstile, reads=True) for _ in range(2)]
    assert all(one.inside.wait(LONG) for one in visits)
    for one in visits:
        one.end()


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (False, False)])
def test_a_write_goes_alone(first, second):
    """Whatever begins behind a write waits for it, and a write waits for whatever began before it."""
    turnstile = CallOrdering()
    one = Visit(turnstile, first)
    assert one.inside.wait(LONG)
    two = Visit(turnstile, second)
    assert waits(turnstile, 2)
    assert not two.inside.is_set()
    one.end()
    assert two.inside.wait(LONG)
    two.end()
    assert turnstile._open == []


def test_a_read_does_not_overtake_a_write_that_waits():
    """A read that began behind a waiting write waits with it, so no stream of reads keeps a write out."""
    turnstile = CallOrdering()
    visits = []
    for at, reads in enumerate((True, False, True), 1):
        visits.append(Visit(turnstile, reads))
        assert waits(turnstile, at)
    read, write, late = visits
    assert read.inside.wait(LONG)
    assert not late.inside.is_set()
    read.end()
    assert write.inside.wait(LONG)
    assert not late.inside.is_set()
    write.end()
    assert late.inside.wait(LONG)
    late.end()


def test_a_call_inside_another_one_never_waits():
    """A tool that calls a tool of its own run does not wait for itself; the outer call still goes alone."""
    turnstile = CallOrdering()
    with turnstile.call_slot(reads=False):
        with turnstile.call_slot(reads=False), turnstile.call_slot(reads=True):
            pass
        other = Visit(turnstile, reads=True)
        assert waits(turnstile, 2)
        assert not other.inside.is_set()
    assert other.inside.wait(LONG)
    other.end()


def test_a_call_of_another_run_inside_waits_as_ever():
    """Being inside one run's turnstile opens no other's."""
    one, two = CallOrdering(), CallOrdering()
    holder = Visit(two, reads=False)
    assert holder.inside.wait(LONG)
    done = threading.Event()

    def nested():
        with one.call_slot(reads=False), two.call_slot(reads=False):
            done.set()

    thread = threading.Thread(target=nested, daemon=True)
    thread.start()
    assert waits(two, 2)
    assert not done.is_set()
    holder.end()
    thread.join(LONG)
    assert done.is_set()


def test_a_call_that_raises_lets_the_next_one_go():
    """An error inside ends the passage like a result."""
    turnstile = CallOrdering()
    with pytest.raises(ValueError, match="broken"), turnstile.call_slot(reads=False):
        raise ValueError("broken")
    assert turnstile._open == []
    with turnstile.call_slot(reads=False):
        assert len(turnstile._open) == 1


async def test_those_who_await_keep_the_same_order():
    """Tasks pass in the order in which they began; reads next to each other are inside together."""
    turnstile, order, most = CallOrdering(), [], 0
    inside = set()

    async def visit(name, reads):
        nonlocal most
        async with turnstile.call_slot(reads):
            order.append(name)
            inside.add(name)
            most = max(most, len(inside))
            assert len(inside) == 1 or all(one.startswith("read") for one in inside)
            for _ in range(5):
                await asyncio.sleep(0)
            inside.discard(name)

    names = ["read 1", "read 2", "write 3", "write 4", "read 5", "read 6"]
    async with asyncio.timeout(LONG):
        await asyncio.gather(*(visit(name, name.startswith("read")) for name in names))
    assert (order, most) == (names, 2)


async def test_what_many_calls_wait_for_does_not_multiply(monkeypatch):
    """Each of two hundred writes at once waits for the one before it, and no more; they still go one by one."""
    turnstile, waited, order = CallOrdering(), [], []
    wait = CallSlot.add_waiter
    monkeypatch.setattr(CallSlot, "add_waiter", lambda passage: waited.append(passage) or wait(passage))

    async def visit(name):
        async with turnstile.call_slot(reads=False):
            assert len(order) == name
            await asyncio.sleep(0)
            order.append(name)

    async with asyncio.timeout(LONG):
        await asyncio.gather(*map(visit, range(200)))
    assert (len(waited), turnstile._open) == (199, [])


async def test_a_write_that_gave_up_opens_no_way_past_those_it_waited_for():
    """Who stood behind it waits for the calls before it, although it was to wait for them itself."""
    turnstile, ran, leave = CallOrdering(), [], asyncio.Event()

    async def visit(name, *, reads, stays=False):
        async with turnstile.call_slot(reads):
            ran.append(name)
            if stays:
                await leave.wait()

    async with asyncio.timeout(LONG):
        first = asyncio.create_task(visit("first", reads=False, stays=True))
        gone, read, write = [
            asyncio.create_task(visit(name, reads=name == "read")) for name in ("gone", "read", "write")
        ]
        await asyncio.sleep(0)
        gone.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert ran == ["first"]
        leave.set()
        await asyncio.gather(first, read, write)
    assert ran == ["first", "read", "write"]


async def test_a_task_that_is_cancelled_while_it_waits_holds_nobody_up():
    """Cancelled before its turn, it never was inside, and those behind it wait for the others only."""
    turnstile = CallOrdering()
    ran = []

    async def visit(name):
        async with turnstile.call_slot(reads=False):
            ran.append(name)

    async with asyncio.timeout(LONG):
        async with turnstile.call_slot(reads=False):
            # Tasks begin in a context in which nobody is inside, as a framework's own do.
            waiting, behind = [
                asyncio.create_task(visit(name), context=contextvars.Context()) for name in ("waiting", "behind")
            ]
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert ran == []
        await behind
    assert (ran, turnstile._open) == (["behind"], [])


async def test_threads_and_tasks_wait_for_each_other():
    """A task waits for a call in a thread without blocking its loop, and a thread for a task."""
    turnstile = CallOrdering()
    blocking = Visit(turnstile, reads=False)
    assert await asyncio.to_thread(blocking.inside.wait, LONG)

    async def visit():
        async with turnstile.call_slot(reads=False):
            behind = Visit(turnstile, reads=True)
            assert await asyncio.to_thread(waits, turnstile, 2)
            assert not behind.inside.is_set()
        assert await asyncio.to_thread(behind.inside.wait, LONG)
        behind.end()

    async with asyncio.timeout(LONG):
        task = asyncio.create_task(visit())
        await asyncio.sleep(0.01)
        blocking.end()
        await task


async def test_a_blocking_call_never_waits_for_its_own_loop():
    """Waiting there would be for ever, so it is an error that says what to do; nothing is left behind."""
    turnstile = CallOrdering()
    inside, leave = asyncio.Event(), asyncio.Event()

    async def visit():
        async with turnstile.call_slot(reads=False):
            inside.set()
            await leave.wait()

    task = asyncio.create_task(visit())
    await inside.wait()
    with pytest.raises(UsageError, match="asynchronous form"), turnstile.call_slot(reads=True):
        pytest.fail("it must not get inside")
    assert len(turnstile._open) == 1
    leave.set()
    await task
