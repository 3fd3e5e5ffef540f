"""What is counted for the kill switch: when, in which order, and what a store that cannot be reached does to it."""

import os
import signal
import threading
import time

import pytest

from pokayoke import Contract, Guard, ToolCall
from pokayoke.core.state.kill_switch import OutputObservation
from pokayoke.runtime.guard.output_counter import OutputMonitor
from pokayoke.runtime.threads.worker_pool import WorkerPool
from pokayoke.stores import MemoryStore
from pokayoke.testing import FailingStore, FrozenClock


class Durable(MemoryStore):
    """A memory store that claims to survive, and keeps every batch it was given."""

    durable = True

    def __init__(self):
        super().__init__()
        self.batches, self.threads = [], []

    def observe(self, seen, now):
        """Keep the batch and who brought it."""
        self.batches.append(tuple(seen))
        self.threads.append(threading.current_thread().name)
        return super().observe(self.batches[-1], now)


class Listener:
    """Takes the place of the alerts."""

    def __init__(self, on=False):
        self.on, self.taken = on, []

    def take_outputs(self, outputs):
        """Keep them."""
        self.taken.extend(outputs)


class Desk:
    """A switchboard with everything around it."""

    def __init__(self, store, *, alerts=None, workers=None):
        self.clock, self.flips, self.problems = FrozenClock(1000.0), [], []
        self.alerts = alerts or Listener()
        self.workers = workers or WorkerPool()
        self.board = OutputMonitor(
            store, self.clock, self.workers, self.alerts, told=self.flips.append, problem=self.problems.append
        )

    def bad(self, *tools):
        """Report invalid outputs."""
        for tool in tools:
            self.board.count_invalid(OutputObservation(tool, False, self.clock.now()))
            self.board.flush()

    def good(self, tool="crm"):
        """Note a valid output."""
        self.board.count_valid(tool, self.clock.now(), True)


def until(condition, seconds=10.0):
    """Wait for something that another thread does; the bound only catches hangs."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_invalid_output_is_counted_before_the_call_ends(driver):
    """The very call that brings the third invalid output trips the switch: the next write is refused already."""
    store = Durable()
    read = Contract.from_schema(
        "crm", {"type": "object"}, effect="read", output_schema={"type": "object"}, handler=lambda: 5
    )
    write = Contract.from_schema("pay", {"type": "object"}, output_schema={}, handler=dict)
    guard = Guard([read, write], store=store)
    for number in range(3):
        driver.call(guard.run(f"r{number}"), ToolCall("c", "crm", {}))
        assert len(store.batches) == number + 1
    assert store.switches()[0].mode == "open"
    outcome = driver.call(guard.run("another"), ToolCall("c", "pay", {}))
    assert (outcome.status, outcome.stop_reason, outcome.findings[0].code) == ("refused", "kill_switch", "kill_switch")
    assert driver.call(guard.run("another"), ToolCall("c", "crm", {})).status == "degraded"
    guard.close()


def test_a_valid_output_reaches_a_durable_store_within_a_second_or_so_by_itself():
    """A worker brings it, without another call: a single output is not forgotten, and no call waits for the store."""
    store = Durable()
    desk = Desk(store)
    begun = time.monotonic()
    desk.good()
    desk.good("tax")
    assert store.batches == []
    until(lambda: store.batches)
    assert time.monotonic() - begun >= 0.9
    assert [[seen.tool for seen in batch] for batch in store.batches] == [["crm", "tax"]]
    assert store.threads == ["pokayoke-worker"]
    desk.good()
    until(lambda: len(store.batches) == 2)


def test_valid_outputs_of_a_store_in_memory_are_counted_once_a_second():
    """Nobody else looks at it, so the first of each second brings what waits, in the caller's thread."""
    store = MemoryStore()
    desk = Desk(store)
    for seconds in (0.0, 0.5, 0.4, 0.2):
        desk.clock.advance(seconds)
        desk.good()
    assert len(store.rates()[0].recent) == 4
    desk.good()
    assert len(store.rates()[0].recent) == 4
    desk.clock.set_back(60)
    desk.good()
    assert len(store.rates()[0].recent) == 6


@pytest.mark.parametrize(("valid", "status"), [(4, "refused"), (5, "ok")])
def test_a_write_finds_the_switch_as_all_outputs_before_it_left_it(driver, valid, status):
    """In memory, valid outputs that came at one moment close a switch for the next write, however late that comes."""
    answers, clock = [5, 5, 5, *[{}] * 9], FrozenClock()
    read = Contract.from_schema(
        "crm", {"type": "object"}, effect="read", output_schema={"type": "object"}, handler=lambda: answers.pop(0)
    )
    write = Contract.from_schema("note", {"type": "object"}, output_schema="text", handler=lambda: "ok")
    guard = Guard([read, write], clock=clock)
    for number in range(3):
        driver.call(guard.run(f"bad{number}"), ToolCall("1", "crm", {}))
    clock.advance(61)
    for number in range(valid):
        driver.call(guard.run(f"good{number}"), ToolCall("1", "crm", {}))
    clock.advance(3_600)
    for number in range(2):
        assert driver.call(guard.run(f"late{number}"), ToolCall("1", "note", {})).status == status


def test_an_invalid_output_comes_after_all_that_came_before_it():
    """Valid outputs that wait go with it, in front: the streak ends with them."""
    store = Durable()
    desk = Desk(store)
    desk.bad("crm", "crm")
    desk.good()
    desk.bad("crm", "crm")
    assert [[seen.valid for seen in batch] for batch in store.batches] == [[False], [False], [True, False], [False]]
    assert store.switches() == ()
    desk.bad("crm")
    assert [switch.scope for switch in desk.flips] == ["crm"]


def test_batches_of_many_threads_reach_the_store_one_after_the_other():
    """While one batch is on its way, the next waits: no output overtakes another."""

    class Slow(Durable):
        def observe(self, seen, now):
            inside.append(1)
            assert len(inside) == 1
            time.sleep(0.01)
            inside.pop()
            return super().observe(seen, now)

    inside, store = [], Slow()
    desk = Desk(store)
    threads = [threading.Thread(target=desk.bad, args=(f"t{n}", f"t{n}")) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen.tool for batch in store.batches for seen in batch) == sorted(
        f"t{n}" for n in range(8) for _ in "12"
    )
    assert desk.problems == []


def test_a_store_that_hangs_holds_few_threads_up(monkeypatch):
    """However many outputs come meanwhile, one thread is with the store and one waits for it; then all are counted."""
    monkeypatch.setattr("pokayoke.runtime.guard.output_counter._SECONDS", 0.01)
    store, goes_on = Durable(), threading.Event()
    counted = store.observe
    store.observe = lambda seen, now: goes_on.wait(30) and counted(seen, now)
    workers = WorkerPool()
    started, start = [], workers.start_job
    workers.start_job = lambda function, ready: started.append(function) or start(function, ready)
    desk = Desk(store, workers=workers)
    for _ in range(20):
        desk.good()
        time.sleep(0.02)
    assert len(started) == 2
    goes_on.set()
    until(lambda: sum(map(len, store.batches)) == 20)


def test_what_an_unreachable_store_does_not_take_is_kept_in_order():
    """The call goes on, the host is told, and the next report brings everything, the oldest first."""
    shelf = Durable()
    store = FailingStore(shelf, "observe")
    desk = Desk(store)
    desk.bad("a", "b")
    desk.good("c")
    assert desk.problems == ["OSError", "OSError"]
    store.fail_on(())
    desk.bad("d")
    assert [rate.tool for rate in shelf.rates()] == ["a", "b", "c", "d"]
    desk.bad("d", "d")
    assert [switch.scope for switch in desk.flips] == ["d"]


def test_if_it_stays_away_the_oldest_outputs_go():
    """A thousand are kept; what was seen last counts most."""
    shelf = MemoryStore()
    store = FailingStore(shelf, "observe")
    desk = Desk(store)
    desk.bad("first")
    desk.bad(*["crm"] * 1_000)
    store.fail_on(())
    desk.bad("last")
    assert [rate.tool for rate in shelf.rates()] == ["crm", "last"]
    assert desk.board._kept == ()


def test_alerts_hear_of_every_output_once():
    """Also of one that the store takes only at the second try."""
    store = FailingStore(MemoryStore(), {"observe": [1, 2]})
    desk = Desk(store, alerts=Listener(on=True))
    desk.bad("a")
    desk.good("b")
    desk.bad("c", "d")
    assert [seen.tool for seen in desk.alerts.taken] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(("alerts", "taken"), [(True, ["crm", "crm"]), (False, ["crm"])])
def test_a_disabled_switch_counts_nothing(alerts, taken):
    """In monitor mode no rate changes and no switch trips; alerts still hear what they want to hear."""
    store = MemoryStore()
    desk = Desk(store, alerts=Listener(on=alerts))
    desk.board.enabled = False
    desk.good()
    desk.bad("crm")
    assert store.rates() == ()
    assert [seen.tool for seen in desk.alerts.taken] == taken


def test_an_answer_to_an_alert_may_lead_back_here():
    """A callback that makes another guarded call, in its own or in another thread, does not lock anybody out."""
    store = MemoryStore()

    class Answering(Listener):
        def take_outputs(self, outputs):
            super().take_outputs(outputs)
            if len(self.taken) == 1:
                desk.bad("again")
                thread = threading.Thread(target=desk.bad, args=("other",))
                thread.start()
                thread.join(5)
                assert not thread.is_alive()

    desk = Desk(store, alerts=Answering(on=True))
    desk.bad("first")
    assert [rate.tool for rate in store.rates()] == ["again", "first", "other"]


def test_closing_a_guard_counts_what_waits():
    """The last valid outputs of a process are not lost with it."""
    store = Durable()
    read = Contract.from_schema("crm", {"type": "object"}, effect="read", output_schema={}, handler=dict)
    guard = Guard([read], store=store)
    guard.run("r").call(ToolCall("c", "crm", {}))
    assert store.batches == []
    guard.close()
    assert [seen.tool for seen in store.batches[0]] == ["crm"]


def test_with_no_thread_to_spare_the_next_output_tries_again(driver):
    """Hanging tools have taken all threads: valid outputs wait for the next one, an invalid one is counted anyway."""
    store = Durable()
    workers = WorkerPool(max_lost=0)
    desk = Desk(store, workers=workers)
    desk.good()
    desk.good()
    assert store.batches == []
    workers._max_lost = 1
    desk.good()
    until(lambda: store.batches)
    assert len(store.batches[0]) == 3
    read = Contract.from_schema(
        "crm", {"type": "object"}, effect="read", output_schema={"type": "object"}, handler=lambda: 5, thread="caller"
    )
    guard = Guard([read], store=store)
    guard.workers._max_lost = 0
    driver.call(guard.run("r"), ToolCall("c", "crm", {}))
    assert [seen.valid for seen in store.batches[1]] == [False]


def test_what_the_host_raises_when_it_is_told_of_a_flip_is_not_hidden(driver):
    """The trace that cannot be written to is the host's problem, in both drivers."""
    read = Contract.from_schema(
        "crm", {"type": "object"}, effect="read", output_schema={"type": "object"}, handler=lambda: 5
    )
    guard = Guard([read], store=Durable(), config={"loop": {"identical_failures": 99}})

    def broken(_):
        raise LookupError("no place left")

    guard.switchboard._told = broken
    runs = [guard.run(f"r{n}") for n in range(3)]
    for run in runs[:2]:
        driver.call(run, ToolCall("c", "crm", {}))
    with pytest.raises(LookupError, match="no place left"):
        driver.call(runs[2], ToolCall("c", "crm", {}))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # forking beside threads is what is tested
def test_a_child_process_begins_anew():
    """After a fork the parent counts what waits, once, and a held turn does not hold the child."""
    store = Durable()
    desk = Desk(store)
    desk.good()
    desk.board._turn.acquire()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            thread = threading.Thread(target=desk.board.flush)
            thread.start()
            thread.join(5)
            if not thread.is_alive() and store.batches == []:
                desk.good()
                until(lambda: store.batches)
                status = 0 if len(store.batches[0]) == 1 else 2
        finally:
            os._exit(status)
    desk.board._turn.release()
    end = time.monotonic() + 20
    while not (done := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    assert os.waitstatus_to_exitcode(done[1]) == 0
    until(lambda: store.batches)
    assert [len(batch) for batch in store.batches] == [1]
