"""Lists that open pages share, and how often they are told to read them again."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from pokayoke.dashboard import live
from pokayoke.dashboard.live import Watcher
from pokayoke.dashboard.shared_reads import SharedReads
from pokayoke.stores.lists import AuditFilter, EffectFilter, Pulse


@pytest.fixture
def store():
    """A store that counts how often it is read."""
    reads: list[object] = []

    def read(wanted):
        reads.append(wanted)
        return (len(reads),)

    return SimpleNamespace(reads=reads, effects=read, audit_lines=read)


def test_a_single_page_is_never_behind_its_store(store):
    """With one page open, each look is a read."""
    shared = SharedReads(store)
    assert [shared.audit_lines(AuditFilter()) for _ in range(3)] == [(1,), (2,), (3,)]
    assert (shared.take_count(), shared.take_count()) == (3, 0)


def test_several_pages_read_once_until_something_changes(store):
    """The same list is read once, also for effects in doubt at moments of one second; after a change, again."""
    shared = SharedReads(store)
    shared.is_shared = lambda: True
    for at in (5.1, 5.9):
        assert shared.effects(EffectFilter(doubtful_at=at)) == (1,)
    assert shared.effects(EffectFilter(doubtful_at=6.0)) == (2,)
    shared.forget()
    assert shared.effects(EffectFilter(doubtful_at=6.0)) == (3,)
    assert shared.take_count() == 3


def test_pages_that_ask_together_wait_for_one_read(store):
    """Twenty threads get what one of them reads; a read that fails is not kept."""
    began, go_on = threading.Event(), threading.Event()

    def read_slowly(wanted):
        store.reads.append(wanted)
        began.set()
        assert go_on.wait(30)
        return (len(store.reads),)

    store.audit_lines = read_slowly
    shared = SharedReads(store)
    shared.is_shared = lambda: True
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(shared.audit_lines(AuditFilter())), daemon=True) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    assert began.wait(30)
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert (len(store.reads), set(found)) == (1, {(1,)})
    shared.forget()
    store.audit_lines = lambda wanted: 1 / 0
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            shared.audit_lines(AuditFilter())


def test_what_was_read_before_a_change_is_not_kept(store):
    """A change that comes while a list is read lets the next page read again."""
    shared = SharedReads(store)
    shared.is_shared = lambda: True
    plain = store.audit_lines
    store.audit_lines = lambda wanted: (shared.forget(), plain(wanted))[1]
    assert shared.audit_lines(AuditFilter()) == (1,)
    store.audit_lines = plain
    assert shared.audit_lines(AuditFilter()) == (2,)


@pytest.mark.parametrize("reads", [6, 10_000])
async def test_a_busy_store_is_told_of_as_often_as_its_reads_allow(monkeypatch, reads):
    """What pages read after a change, at three a second, is how long the next one waits, but never for ever."""
    monkeypatch.setattr(live, "_LONGEST_WAIT", 2.0)
    pulses = iter(range(10_000))
    page = Watcher(lambda: Pulse(next(pulses), 0, ()), lambda: None, lambda: reads).stream()
    clock, told = asyncio.get_running_loop().time, []
    while len(told) < 2:
        if "changed" in await asyncio.wait_for(anext(page), 30):
            told.append(clock())
    await page.aclose()
    assert told[1] - told[0] >= 1.9
