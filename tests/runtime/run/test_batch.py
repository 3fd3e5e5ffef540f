"""All calls of one message: order, parallel reads, barriers, siblings."""

import asyncio
import threading

import pytest

from pokayoke import Contract, Guard, ToolCall
from pokayoke.errors import UsageError
from pokayoke.testing import FrozenClock

ANY = {"type": "object"}


class Log:
    """Tools that write down when they begin and end."""

    def __init__(self):
        self.lines = []
        self.running = 0
        self.most = 0
        self.lock = threading.Lock()
        self.together = threading.Barrier(2, timeout=10)

    def note(self, line):
        with self.lock:
            self.lines.append(line)

    def read(self, n):
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.note(f"read {n}")
        with self.lock:
            self.running -= 1
        return {"n": n}

    def meet(self, n):
        self.together.wait()
        return {"n": n}

    async def ameet(self, n):
        self.note(f"begin {n}")
        await asyncio.sleep(0.02)
        self.note(f"end {n}")
        return {"n": n}

    def write(self, n):
        self.note(f"write {n}")
        return {"n": n}

    def broken(self, n):
        raise RuntimeError

    def guard(self, **options):
        def read(name, handler):
            return Contract.from_schema(name, ANY, effect="read", output_schema=ANY, handler=handler)

        return Guard(
            [
                read("read", self.read),
                read("meet", self.meet),
                read("ameet", self.ameet),
                read("broken", self.broken),
                read("bad", lambda n: None),
                Contract.from_schema("write", ANY, output_schema=ANY, handler=self.write),
            ],
            **options,
        )


@pytest.fixture
def log():
    return Log()


def calls(*names):
    return [ToolCall(f"c{n}", name, {"n": n}) for n, name in enumerate(names)]


def test_every_call_is_answered_once_and_in_order(log, driver):
    """Outcomes stand in the order of the calls, whatever became of each."""
    outcomes = driver.batch(log.guard().run("r"), calls("read", "nothing", "write", "broken", "read"))
    assert [(o.call_id, o.status) for o in outcomes] == [
        ("c0", "ok"), ("c1", "refused"), ("c2", "ok"), ("c3", "failed"), ("c4", "ok"),
    ]  # fmt: skip


def test_equal_call_ids_are_different_calls(log, driver):
    """Ids repeat in real recordings; two calls with one id are both run and both answered."""
    twice = [ToolCall("same", "write", {"n": 1}), ToolCall("same", "write", {"n": 2})]
    outcomes = driver.batch(log.guard().run("r"), twice)
    assert [o.value for o in outcomes] == [{"n": 1}, {"n": 2}]


def test_an_equal_write_in_one_message_runs_once(log, driver):
    """The parallel double of a write is answered from the ledger."""
    twice = [ToolCall("a", "write", {"n": 1}), ToolCall("b", "write", {"n": 1})]
    outcomes = driver.batch(log.guard().run("r"), twice)
    assert [o.status for o in outcomes] == ["ok", "replayed"]
    assert log.lines == ["write 1"]


def test_neighbouring_synchronous_reads_run_side_by_side(log):
    """Two reads that wait for each other both come back."""
    outcomes = log.guard().run("r").call_batch(calls("meet", "meet"))
    assert [o.status for o in outcomes] == ["ok", "ok"]


def test_neighbouring_asynchronous_reads_run_side_by_side(log):
    """The second begins before the first has ended, up to the limit of the policy."""
    asyncio.run(log.guard().run("r").acall_batch(calls("ameet", "ameet")))
    assert log.lines[:2] == ["begin 0", "begin 1"]
    log.lines.clear()
    asyncio.run(log.guard(config={"execution": {"concurrency": 1}}).run("r").acall_batch(calls("ameet", "ameet")))
    assert log.lines == ["begin 0", "end 0", "begin 1", "end 1"]


def test_a_write_waits_for_the_reads_before_it(log, driver):
    """A read that turns out invalid stops the write behind it in the same message."""
    outcomes = driver.batch(log.guard().run("r"), calls("read", "bad", "write", "read"))
    assert [o.status for o in outcomes] == ["ok", "degraded", "refused", "ok"]
    assert [line for line in log.lines if line.startswith("write")] == []


@pytest.mark.parametrize("place", [None, 0, 1])
def test_a_cut_message_runs_none_of_its_calls(log, driver, place):
    """Told for the message or for any one call, a cut stops all siblings."""
    message = [ToolCall(f"c{n}", "write", {"n": n}, stop_reason="length" if n == place else None) for n in range(2)]
    outcomes = driver.batch(log.guard().run("r"), message, stop_reason="length" if place is None else "tool_calls")
    assert [o.findings[0].code for o in outcomes] == ["cut_message"] * 2
    assert log.lines == []


def test_a_batch_is_one_round(log, driver):
    """Budgets of rounds count messages, not calls."""
    run = log.guard(config={"budgets": {"rounds": 2}}).run("r")
    assert all(o.ok for o in driver.batch(run, calls("read", "write", "read")))
    assert all(o.ok for o in driver.batch(run, calls("read")))
    assert driver.batch(run, calls("read"))[0].stop_reason == "budget_exhausted"


def test_an_empty_batch_has_no_outcomes(log, driver):
    """Nothing in, nothing out."""
    assert driver.batch(log.guard().run("r"), []) == []


def test_a_batch_hands_each_call_to_the_continuation(log, driver):
    """The continuation sees which call it runs."""
    seen = []
    outcomes = driver.batch(
        log.guard().run("r"), calls("read", "write"), invoke=lambda call, a: seen.append(call.name) or {"n": -a["n"]}
    )
    assert ([o.value for o in outcomes], sorted(seen)) == ([{"n": 0}, {"n": -1}], ["read", "write"])


def test_a_cancelled_write_is_in_doubt_at_once(log):
    """Cancellation goes through; the write is not repeated, and nobody is told that it still runs."""
    clock = FrozenClock()
    entered = asyncio.Event()

    async def hang(n):
        entered.set()
        await asyncio.sleep(30)

    guard = Guard([Contract.from_schema("write", ANY, output_schema=ANY, handler=hang)], clock=clock)

    async def main():
        run = guard.run("r")
        task = asyncio.create_task(run.acall(ToolCall("c", "write", {"n": 1})))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        soon = await run.acall(ToolCall("c", "write", {"n": 1}))
        clock.advance(3600)
        return soon.status, (await run.acall(ToolCall("c", "write", {"n": 1}))).status

    assert asyncio.run(main()) == ("in_doubt", "in_doubt")


@pytest.fixture
def no_threads(monkeypatch):
    """The system gives no thread."""

    def refused(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)


def test_without_threads_the_caller_reads_by_itself(no_threads):
    """Neighbouring reads then run one after the other, and each has its outcome."""
    log = Log()
    outcomes = log.guard().run("r").call_batch([ToolCall(str(n), "read", {"n": n}) for n in range(3)])
    assert [outcome.value for outcome in outcomes] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert log.lines == ["read 0", "read 1", "read 2"]


def test_a_tool_that_nobody_can_run_is_noticed_before_the_first_call(driver):
    """The mistake is the host's, and costs no outcome of a call that was made before it was noticed."""
    log = Log()
    contracts = [*log.guard().tools, Contract.from_schema("bare", ANY, effect="read", output_schema=ANY)]
    run = Guard(contracts).run("r")
    calls = [ToolCall("1", "write", {"n": 1}), ToolCall("2", "bare", {}), ToolCall("3", "nowhere", {})]
    with pytest.raises(UsageError, match="bare has no handler"):
        driver.batch(run, calls)
    assert log.lines == []
    assert [one.status for one in driver.batch(run, calls, invoke=lambda call, given: given)] == ["ok", "ok", "refused"]


def test_what_a_read_raises_waits_for_its_siblings(driver):
    """An interruption of one read is not raised while another still runs."""
    ended = []

    class StopError(BaseException):
        """Ends the host."""

    def on_step(step):
        if step == "after_invoke" and not ended:
            ended.append(step)
            raise StopError

    log = Log()
    run = log.guard(on_step=on_step).run("r")
    with pytest.raises(StopError):
        driver.batch(run, [ToolCall(str(n), "read", {"n": n}) for n in range(2)])
    assert log.running == 0


def test_a_cut_message_is_refused_also_if_nobody_could_run_its_tool(driver):
    """Nothing is run, so nothing that would run it is missed."""
    guard = Guard([Contract.from_schema("write", ANY, output_schema=ANY)])
    message = [ToolCall(f"c{n}", "write", {"n": n}) for n in range(2)]
    outcomes = driver.batch(guard.run("r"), message, stop_reason="length")
    assert [o.findings[0].code for o in outcomes] == ["cut_message"] * 2
