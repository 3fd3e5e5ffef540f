"""What a run remembers when its store is slow, fails, or is left in the middle."""

import asyncio
import threading

import pytest

from pokayoke import Contract, Guard
from pokayoke.core.call import Finding, Outcome, ToolCall
from pokayoke.core.state.run_state import RunState, Taint, latch
from pokayoke.runtime.memory.run_memory import RunMemory
from pokayoke.runtime.threads.clock import SystemClock
from pokayoke.stores import MemoryStore
from pokayoke.testing import FailingStore


class Door(MemoryStore):
    """A store whose changes wait until they are let through, each with what then becomes of it."""

    def __init__(self):
        super().__init__()
        self.waiting = []

    async def achange_run(self, run_id, change):
        verdict = asyncio.get_running_loop().create_future()
        self.waiting.append(verdict)
        await verdict
        return self.change_run(run_id, change)


def marking(tool, step):
    taint = Taint(tool=tool, identity="", step=step, reason="html")
    return lambda state: latch(state, taint)


async def under_way(progress, *changes):
    """Begin changes one after the other; each waits in the store."""
    tasks = []
    for change in changes:
        tasks.append(asyncio.ensure_future(progress.achange_state(change)))
        await asyncio.sleep(0)  # it runs as far as the store
    assert len(progress._store.waiting) == len(tasks)
    return tasks


def tools(state):
    return sorted(taint.tool for taint in state.taints)


@pytest.fixture
def progress():
    return RunMemory(RunState("r"), Door(), SystemClock(), named=True)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_change_that_fails_beside_one_that_lands_is_not_lost(progress, order):
    """Two outputs break their contracts at once and one of the two marks is not taken: both hold, and both are kept."""

    async def main():
        tasks = await under_way(progress, marking("a", 1), marking("b", 2))
        for number in order:
            verdict = progress._store.waiting[number]
            verdict.set_result(None) if number == 0 else verdict.set_exception(OSError("gone"))
            await tasks[number]
        assert tools(progress.state) == ["a", "b"]

    asyncio.run(main())
    assert progress.save_totals() is None
    assert tools(progress._store.load_run("r")) == tools(progress.state) == ["a", "b"]


def test_nothing_counts_as_kept_while_a_mark_is_not(progress):
    """A change that lands after another one was not taken does not hide that: writes are still refused."""

    async def main():
        tasks = await under_way(progress, marking("a", 1), marking("b", 2))
        first, second = progress._store.waiting
        second.set_exception(OSError("gone"))
        await tasks[1]
        first.set_result(None)
        await tasks[0]

    asyncio.run(main())
    assert progress.unsaved == "OSError"


def test_a_mark_holds_although_its_caller_was_cancelled(progress):
    """A caller that goes away while the mark is being kept does not take it along."""

    async def main():
        (task,) = await under_way(progress, marking("a", 1))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert tools(progress.state) == ["a"]

    asyncio.run(main())
    assert progress.save_totals() is None
    assert tools(progress._store.load_run("r")) == ["a"]


def test_a_mark_holds_although_its_caller_was_interrupted():
    """Ctrl-C in the middle of keeping a mark reaches the host, and the mark stays."""
    store = FailingStore(MemoryStore(), {"change_run": [1]}, error=KeyboardInterrupt)
    progress = RunMemory(RunState("r"), store, SystemClock(), named=True)
    with pytest.raises(KeyboardInterrupt):
        progress.change_state(marking("a", 1))
    assert tools(progress.state) == ["a"]
    assert progress.save_totals() is None
    assert tools(store.load_run("r")) == ["a"]


def test_an_outage_does_not_pile_up_totals():
    """A thousand rounds that could not be written down wait as one, and arrive when the store is back."""
    store = FailingStore(MemoryStore(), {"change_run": range(1, 1_001)})
    progress = RunMemory(RunState("r"), store, SystemClock(), named=True)
    for _ in range(1_000):
        progress.next_step()
        assert progress.save_totals() is not None
    assert len(progress._pending) == 1
    assert progress.save_totals() is None
    assert not progress._pending
    assert store.load_run("r").step == 1_000


def test_a_call_that_is_made_while_another_is_remembered_does_not_hang():
    """Telling what was refused runs users' code (the text of an argument), which may call a tool of the same run."""
    matters = RunMemory(RunState(run_id="r"), MemoryStore(), SystemClock()).matters
    denied = Outcome(status="refused", call_id="c", tool="put", findings=(Finding(code="permission_denied"),))

    class Nosy:
        asked = False

        def __repr__(self):
            if not self.asked:
                self.asked = True
                matters.record_outcome(denied, ToolCall("c2", "put", "{}"))
            return "nosy"

    calls = [ToolCall("c1", "put", {"who": Nosy()})]
    thread = threading.Thread(target=lambda: matters.record_outcome(denied, calls[0]), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert set(matters.refused) == {("put", "{}"), ("put", "{'who': nosy}")}


def test_rounds_are_kept_although_the_tools_are_off(driver):
    """A model that goes on calling after its tools were taken away uses up its budget of rounds, also for a restart."""

    def handler():
        raise ConnectionError

    store = MemoryStore()
    get = Contract.from_schema("get", {"type": "object"}, effect="read", output_schema={}, handler=handler)
    run = Guard([get], store=store, config={"budgets": {"rounds": 99}}).run("r")
    for number in range(1, 6):
        driver.batch(run, [ToolCall("c", "get", {"n": number})])
        assert store.load_run("r").rounds == number
    assert run.mode == "final_answer"
