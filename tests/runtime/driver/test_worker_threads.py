"""Where a sync tool runs: in a worker that can be cut, or in its caller's thread."""

import asyncio
import contextvars
import threading
import time

import pytest

import pokayoke
from pokayoke import Contract, ContractError, Guard, ToolCall

ANY = {"type": "object"}
SHORT = {"execution": {"timeout": 0.05}}
HANG = 20
"""Seconds that only a test which hangs waits for."""


def reading(handler, name="look", **fields):
    return Contract.from_schema(name, ANY, effect="read", output_schema=ANY, handler=handler, **fields)


def calls(count, name="look"):
    return [ToolCall(f"c{number}", name, {"number": number}) for number in range(count)]


def place(**_):
    return {"thread": threading.get_ident()}


def nothing():
    return {}


@pytest.fixture
def hanging():
    """A tool that hangs until the test is over; `running` counts those that have begun and not ended."""

    class Hanging:
        def __init__(self):
            self.may_end, self.running = threading.Event(), 0

        def __call__(self, **_):
            self.running += 1
            self.may_end.wait(HANG)
            self.running -= 1
            return {}

    tool = Hanging()
    yield tool
    tool.may_end.set()


def test_a_batch_of_sync_reads_keeps_the_event_loop_alive():
    """Three that sleep run side by side, and the loop does other work meanwhile."""
    together = threading.Barrier(3, timeout=HANG)

    def slow(**_):
        together.wait()
        time.sleep(0.5)
        return {}

    async def main():
        beats = 0
        batch = asyncio.ensure_future(Guard([reading(slow)]).run().acall_batch(calls(3)))
        while not batch.done():
            await asyncio.sleep(0.01)
            beats += 1
        return beats, [outcome.status for outcome in batch.result()]

    beats, ended = asyncio.run(main())
    assert ended == ["ok"] * 3
    assert beats >= 10


def test_a_worker_has_a_copy_of_the_context():
    """The tool sees its caller's variables; what it sets stays with it."""
    user = contextvars.ContextVar("user", default="nobody")
    seen = []

    def look(**_):
        seen.append(user.get())
        user.set("tool")
        return {"thread": threading.get_ident()}

    async def main():
        user.set("caller")
        run = Guard([reading(look)]).run()
        one, two = await run.acall(calls(1)[0]), await run.acall_batch(calls(2)[1:])
        return one.value["thread"], two[0].value["thread"], user.get()

    *threads, left = asyncio.run(main())
    assert threading.get_ident() not in threads
    assert (seen, left) == (["caller"] * 2, "caller")


@pytest.mark.parametrize("effect", ["read", "write"])
def test_a_sync_tool_that_hangs_is_cut_at_the_default_deadline(hanging, effect):
    """It declares none, so that of the policy holds in an asynchronous run; of a write nobody knows what it did."""
    tool = Contract.from_schema("look", ANY, effect=effect, output_schema=ANY, handler=hanging)

    async def main():
        async with asyncio.timeout(HANG):
            return await Guard([tool], config=SHORT).run().acall(calls(1)[0])

    outcome = asyncio.run(main())
    assert outcome.findings[0].code == "tool_timeout"
    assert outcome.effect == ("none" if effect == "read" else "unknown")


def test_a_write_knows_the_deadline_it_is_cut_at():
    """`this_effect()` has the default deadline in an asynchronous run, and none in a synchronous one."""

    def pay(**_):
        return {"left": pokayoke.this_effect().seconds_left}

    tool = Contract.from_schema("look", ANY, output_schema=ANY, handler=pay)
    run = Guard([tool]).run()
    one, two = calls(2)
    left = asyncio.run(run.acall(one)).value["left"]
    assert 0 < left <= 30
    assert run.call(two).value["left"] is None


def test_a_sync_run_has_no_worker_for_a_tool_without_a_deadline():
    """There the tool runs in the thread of its caller, and in a worker once it declares a deadline."""
    run = Guard([reading(place), reading(place, "timed", timeout=HANG)]).run()
    assert run.call(calls(1)[0]).value["thread"] == threading.get_ident()
    assert run.call(calls(1, "timed")[0]).value["thread"] != threading.get_ident()


def test_a_tool_may_stay_in_its_callers_thread():
    """`thread="caller"` keeps a handler and a continuation where the event loop is."""

    async def main():
        run = Guard([reading(place, thread="caller")]).run()
        alone, continued = await run.acall(calls(1)[0]), await run.acall(calls(2)[1], invoke=lambda _: place())
        return [one.value["thread"] for one in (alone, continued, *await run.acall_batch(calls(4)[2:]))]

    assert set(asyncio.run(main())) == {threading.get_ident()}


def test_a_sync_continuation_does_not_block_the_event_loop():
    """An `invoke` that is no coroutine function runs in a worker; what it returns to be awaited is awaited here."""

    async def look():
        return place()

    async def main():
        run = Guard([reading(None)]).run()
        return [
            (await run.acall(call, invoke=invoke)).value["thread"]
            for call, invoke in zip(calls(2), (lambda _: place(), lambda _: look()), strict=True)
        ]

    plain, awaited = asyncio.run(main())
    assert plain != threading.get_ident()
    assert awaited == threading.get_ident()


def test_a_coroutine_function_gets_no_worker():
    """A handler, a continuation and that of a batch are awaited in the event loop; no thread is started for them."""

    async def look(*_, **__):
        return place()

    async def main():
        guard = Guard([reading(look), reading(None, "other")])
        guard.workers.start_job = None
        run = guard.run()
        return [
            await run.acall(calls(1)[0]),
            await run.acall(calls(1, "other")[0], invoke=look),
            *await run.acall_batch(calls(2, "other"), invoke=look),
        ]

    assert [one.status for one in asyncio.run(main())] == ["ok"] * 4


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_worker_that_was_left_behind_counts_against_the_limit(hanging, asynchronous):
    """Two of two slots hang: of the rest of the batch one runs at a time, and as many as before once they ended."""
    together, one = threading.Barrier(2, timeout=HANG), threading.Lock()

    def look(number, **_):
        if number < 2:
            return hanging()
        if hanging.may_end.is_set():
            together.wait()
            return {}
        assert one.acquire(blocking=False), "a second call runs beside this one"
        time.sleep(0.02)
        one.release()
        return {}

    schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
    tool = Contract.from_schema("look", schema, effect="read", output_schema=ANY, handler=look, timeout=0.3)
    guard = Guard([tool], config={"execution": {"concurrency": 2}})

    def run_batch(batch):
        run = guard.run()
        outcomes = asyncio.run(run.acall_batch(batch)) if asynchronous else run.call_batch(batch)
        return [outcome.ok for outcome in outcomes]

    assert run_batch(calls(6)) == [False] * 2 + [True] * 4
    assert hanging.running == 2
    hanging.may_end.set()
    while guard.workers.lost_count:
        time.sleep(0.01)
    assert run_batch(calls(6)[2:]) == [True] * 4


def test_nothing_starts_once_too_many_workers_hang(hanging):
    """In an asynchronous run the bound holds for tools without a deadline of their own, too."""

    async def main():
        run = Guard(
            [reading(hanging), reading(place, "other")], config={"execution": {"timeout": 0.05, "max_lost_workers": 1}}
        ).run()
        return await run.acall(calls(1)[0]), await run.acall(calls(1, "other")[0])

    hung, refused = asyncio.run(main())
    assert hung.findings[0].code == "tool_timeout"
    assert "no thread is free" in refused.findings[0].message


@pytest.mark.parametrize("make", [
    lambda **fields: reading(place, **fields),
    lambda **fields: pokayoke.tool(effect="read", output=ANY, name="look", **fields)(nothing),
    lambda **fields: Contract.from_mapping({"name": "look", "input_schema": ANY, **fields}),
])  # fmt: skip
def test_a_deadline_in_the_callers_thread_is_refused(make):
    """Nothing could cut it there, so the contract is not built, and the message names both fields."""
    assert make(thread="caller").thread == "caller"
    with pytest.raises(ContractError, match=r"look: thread='caller' and timeout=3 .* Leave thread out, or the timeout"):
        make(thread="caller", timeout=3)


def test_a_thread_is_said_of_sync_handlers_only():
    """An async handler is awaited in the event loop anyway; another word than `caller` means nothing."""

    async def look(**_):
        return {}

    with pytest.raises(ContractError, match="thread='caller' is for a sync handler"):
        reading(look, thread="caller")
    with pytest.raises(ContractError, match="thread must be caller, or left out, not 'worker'"):
        reading(place, thread="worker")


def test_the_thread_of_a_contract_is_data():
    """A file of contracts can say it, and gets it back."""
    contract = Contract.from_mapping({"name": "look", "input_schema": ANY, "thread": "caller"})
    assert contract.to_mapping()["thread"] == "caller"
    assert "thread" not in reading(place).to_mapping()
