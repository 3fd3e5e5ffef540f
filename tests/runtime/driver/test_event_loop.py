"""A store that waits never holds up the event loop of a run that is awaited."""

import asyncio
import threading

import pytest

from pokayoke import Contract, Guard, ToolCall
from pokayoke.stores.base import RecordQuery
from pokayoke.stores.memory import MemoryStore

ANY = {"type": "object"}


class Distant(MemoryStore):
    """A store behind a network. It keeps the names of what was asked of it plainly where an event loop runs."""

    durable = True

    def __init__(self):
        super().__init__()
        self.blocking, self.down, self.writes = [], False, 0

    def run(self, act):
        self._plainly(act.name)
        return self._carried_out(act)

    def admit(self, request):
        self._plainly("admit")
        return super().admit(request)

    def settle(self, settlement):
        self._plainly("settle")
        return super().settle(settlement)

    async def arun(self, act):
        await asyncio.sleep(0)
        return self._carried_out(act)

    def _carried_out(self, act):
        if self.down:
            raise OSError("gone")
        self.writes += 1
        return MemoryStore.run(self, act)

    def _plainly(self, name):
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # a thread without one may wait
            return
        self.blocking.append(name)


def contract(name="pay", effect="write", output_schema=ANY, handler=dict, **fields):
    return Contract.from_schema(name, ANY, effect=effect, output_schema=output_schema, handler=handler, **fields)


def call(name="pay", **arguments):
    return ToolCall("c", name, arguments)


async def heard(run):
    """Wait until it is told what came late; the bound only catches hangs."""
    async with asyncio.timeout(10):
        while not any(event["event"] == "late_effect" for event in run.trace):  # noqa: ASYNC110 - a trace sets no event
            await asyncio.sleep(0.005)


@pytest.fixture
def store():
    """Open for the test; afterwards nothing of it has held up an event loop."""
    distant = Distant()
    yield distant
    assert distant.blocking == []


def test_what_could_not_be_kept_is_tried_again_before_the_next_write(store):
    """As long as the store does not know the latch nothing is written, and then the latch is what holds."""
    broken = contract("get", "read", {"type": "object", "required": ["id"]})

    async def main():
        run = Guard([contract(), broken], store=store).run("r")
        store.down = True
        await run.acall(call("get"))
        first = await run.acall(call(order=1))
        store.down = False
        return first, await run.acall(call(order=2))

    first, second = asyncio.run(main())
    assert first.findings[0].code == "store_unavailable"
    assert second.stop_reason == "invalid_tool_output"
    assert [taint.tool for taint in store.load_run("r").taints] == ["get"]


def test_a_budget_that_is_used_up_is_kept(store):
    """The call beyond it is refused, and a restart finds that only an answer is left."""

    async def main():
        run = Guard([contract()], store=store, config={"budgets": {"calls": 1}}).run("r")
        return [(await run.acall(call(order=number))).status for number in range(2)]

    assert asyncio.run(main()) == ["ok", "refused"]
    assert store.load_run("r").stop_reason == "budget_exhausted"


@pytest.mark.parametrize(("said", "status", "kept"), [(True, "ok", "approved"), (False, "refused", "denied")])
def test_the_answer_of_a_callback_is_kept(store, said, status, kept):
    """A yes and a no of the person behind the callback are in the store, by its name."""

    async def on_ask(approval):
        return said

    async def main():
        guard = Guard([contract()], store=store, on_ask=on_ask, config={"approvals": {"tools": ["pay"]}})
        return (await guard.run("r").acall(call())).status

    assert asyncio.run(main()) == status
    assert [(one.status, one.by) for one in store.approvals()] == [(kept, "on_ask")]


async def stubborn():
    """A tool that answers when it is cancelled, as if it had just come to its end."""
    try:
        await asyncio.sleep(20)
    except asyncio.CancelledError:
        return {}


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_write_that_ends_late_in_the_event_loop_is_settled(store, cancelled):
    """It goes on after its deadline, or after its caller was cancelled, and its doubt is settled all the same."""

    async def main():
        guard = Guard([contract(handler=stubborn, timeout=20 if cancelled else 0.02)], store=store)
        run = guard.run("r")
        task = asyncio.ensure_future(run.acall(call()))
        await asyncio.wait({task}, timeout=0.05)
        task.cancel()
        await asyncio.wait({task})
        await heard(run)

    asyncio.run(main())
    assert [record.state for record in store.records(RecordQuery())] == ["completed"]


def test_a_write_that_ends_late_is_settled_although_every_thread_hangs(store):
    """Where no thread is left to tell the store, the event loop waits for it: better than a doubt that stays."""
    may = threading.Event()

    async def main():
        tools = [contract(handler=stubborn, timeout=0.1), contract("hang", "read", handler=may.wait, timeout=0.02)]
        guard = Guard(tools, store=store, config={"execution": {"max_lost_workers": 1}})
        run = guard.run("r")
        await run.acall(call("hang"))
        await run.acall(call())
        await heard(run)

    asyncio.run(main())
    may.set()
    assert [record.state for record in store.records(RecordQuery())] == ["completed"]
    assert store.blocking == ["settle"]
    store.blocking.clear()


def test_the_end_of_a_round_and_of_a_run_is_kept(store):
    """A message's calls count as one round, the loop guard takes the tools away, and a restart finds both."""

    def handler():
        raise ConnectionError

    config = {"budgets": {"rounds": 9}, "loop": {"self_repair": 1}}

    async def main():
        get = contract("get", "read", handler=handler)
        async with Guard([get], store=store, config=config).run("r") as run:
            for number in range(2):
                await run.acall_batch([call("get", number=number), call("get", number=-number)])
                assert store.load_run("r").rounds == number + 1
            run.usage(7_777)
        return [event["reason"] for event in run.trace if event["event"] == "stop"]

    assert asyncio.run(main()) == ["tool_failure"]
    state = store.load_run("r")
    assert (state.mode, state.rounds, state.tokens) == ("final_answer", 2, 7_777)


def test_totals_are_kept_although_the_caller_is_cancelled_while_the_run_closes(store):
    """A run that ends in a cancelled scope gives no budget back."""

    async def closing(run):
        async with run:
            run.usage(7_777)

    async def main():
        task = asyncio.ensure_future(closing(Guard([contract()], store=store).run("r")))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    asyncio.run(main())
    assert store.load_run("r").tokens == 7_777


def test_where_nothing_has_to_be_kept_no_step_of_its_own_is_taken(store):
    """Neither a healthy write nor a round without a budget asks the store for more than its claim and its settling."""

    async def main():
        run = Guard([contract()], store=store).run("r")
        await run.acall_batch([call()])

    asyncio.run(main())
    assert store.writes == 2
