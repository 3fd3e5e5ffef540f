"""What a tool leaves open: it comes back late, hands out what has yet to run, or goes on after a cancellation."""

import asyncio
import contextlib
import signal
import sys
import threading
import time

import pytest

from pokayoke import Contract, Envelope, Guard, Raw, ToolCall, ToolError, open_store, this_effect
from pokayoke.core.flow.steps import NotStarted, Returned
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.records import Claim
from pokayoke.errors import ContractError, UsageError
from pokayoke.runtime.driver.late_result import record_late_result
from pokayoke.runtime.run.compaction import collect_facts
from pokayoke.runtime.threads import worker_pool as pool
from pokayoke.runtime.threads.worker_pool import WorkerPool, start_thread
from pokayoke.stores.base import RecordQuery

ANY = {"type": "object"}


def written(handler, **fields):
    return Contract.from_schema("pay", ANY, output_schema=fields.pop("output_schema", ANY), handler=handler, **fields)


def pay():
    return ToolCall("c", "pay", {})


def state(guard):
    (record,) = guard.store.records(RecordQuery())
    return record.state


def until(condition):
    """Wait for what another thread does; the bound only catches hangs."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def lates(run):
    return [(event["reason"], event["settled"]) for event in run.trace if event["event"] == "late_effect"]


def raising():
    raise ConnectionError("declined")


def blocking():
    time.sleep(0.7)


async def rest():
    return {}


def items():
    yield {}


async def later_items():
    yield {}


LATE = [
    (lambda: {"id": 1}, {}, True),
    (lambda: "no JSON", {}, True),
    (raising, {}, None),
    (lambda: {"error": "declined"}, {"envelope": Envelope(error="/error")}, None),
    (lambda: {"error": None, "id": 1}, {"envelope": Envelope(error="/error")}, True),
    (lambda: Raw("{}", "application/json", 503), {}, None),
    (lambda: "<p>", {"extract": sys.exit}, True),
    (rest, {}, None),
    (items, {}, None),
]


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
@pytest.mark.parametrize(("end", "fields", "settled"), LATE)
def test_only_what_has_come_to_a_good_end_settles_its_doubt_late(driver, end, fields, settled):
    """An error, a declared failure and what was not even begun say no more than the deadline did: the doubt stays."""
    goes_on = threading.Event()
    handler = lambda: goes_on.wait(10) and end()  # noqa: E731 - a tool
    guard = Guard([written(handler, timeout=0.02, **fields)])
    run = guard.run("r")
    assert driver.call(run, pay()).status == "in_doubt"
    goes_on.set()
    until(lambda: lates(run) and not guard.workers.lost_count)
    assert [one for _, one in lates(run)] == [settled]
    assert state(guard) == ("completed" if settled else "in_doubt")
    assert driver.call(run, pay()).status == ("replayed" if settled else "in_doubt")


@pytest.mark.parametrize("at_once", [False, True])
def test_a_doubt_that_is_settled_late_is_none_of_the_run_any_more(driver, at_once):
    """What the run says at its end is what its ledger says, also where that settles between a call and its outcome."""
    goes_on = threading.Event()

    def ends(step=""):
        if step in ("", "after_settle") and not goes_on.is_set():
            goes_on.set()
            until(lambda: lates(run))

    guard = Guard([written(lambda: goes_on.wait(10) and {}, timeout=0.02)], on_step=ends if at_once else None)
    run = guard.run("r")
    assert driver.call(run, pay()).status == "in_doubt"
    ends()
    assert (run.answer("Paid.").text, run.answer("Paid.").verified) == ("Paid.", True)
    assert run.answer(None).text == "I could not finish this safely. Done: pay."
    run.close()
    assert run.stop_reason == "success"


def test_an_effect_is_done_whose_caller_was_cancelled_while_it_was_recorded(tmp_path):
    """The outcome reaches nobody, and the run knows what its ledger has taken."""
    guard = Guard([written(rest)], store=open_store(f"sqlite:///{tmp_path}/l.db", create=True))
    settle = guard.store.asettle

    async def main():
        async def cancelled(report):
            call.cancel()
            return await settle(report)

        guard.store.asettle = cancelled
        call = asyncio.ensure_future(run.acall(pay()))
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.to_thread(until, lambda: state(guard) == "completed")

    run = guard.run("r")
    asyncio.run(main())
    assert run.answer(None).text == "I could not finish this safely. Done: pay."
    run.close()
    assert run.stop_reason == "success"
    guard.close()


def test_what_never_began_leaves_the_doubt_of_an_attempt_before_it():
    """A tool that is given back says nothing of the first try, of which nobody knows."""
    contract = written(rest, idempotent=True, on_ambiguous="rerun_safe")
    guard = Guard([contract])
    run = guard.run("r")
    claim = Claim("k", "h", "c", "pay", "pay@1", "r", 0.0, 9e9, doubt="ConnectionError")
    guard.store.admit(AdmissionRequest("r", "pay", "write", (), 0.0, claim))
    guard.store.admit(AdmissionRequest("r", "pay", "write", (), 0.0, claim))
    run.progress.matters.begin_claim(claim)
    record_late_result(run, contract, claim, NotStarted("it was given up"))
    assert state(guard) == "in_doubt"
    assert run.answer(None).text == "I could not finish this safely. It is not known whether pay took effect."


@pytest.mark.parametrize("stubborn", [True, False])
def test_an_asynchronous_tool_that_blocks_in_synchronous_code_is_heard_as_it_ends(stubborn):
    """What comes late is what the tool did, not that its loop came back; and the deadline is named as declared."""

    async def handler():
        try:
            await asyncio.sleep(0 if stubborn else 5)
        finally:
            blocking()
        raise ConnectionError

    guard = Guard([written(handler, timeout=0.02)])
    run = guard.run("r")
    outcome = run.call(pay())
    assert (outcome.status, outcome.message) == ("in_doubt", "pay did not answer within 0.02 s")
    until(lambda: guard.workers.lost_count == 0)
    assert lates(run) == ([("raised", None)] if stubborn else [])
    assert state(guard) == "in_doubt"


def test_an_asynchronous_tool_that_ends_well_after_all_is_settled_in_synchronous_code():
    """It blocked its loop over the deadline, and then it came back."""

    async def handler():
        blocking()
        return {}

    guard = Guard([written(handler, timeout=0.02)])
    run = guard.run("r")
    assert run.call(pay()).status == "in_doubt"
    until(lambda: lates(run))
    assert (lates(run), state(guard)) == ([("returned", True)], "completed")


def test_a_write_that_ends_although_its_caller_was_cancelled_is_recorded():
    """The caller is gone, the effect is not: its record does not stay open."""
    entered = asyncio.Event()

    async def handler():
        entered.set()
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            return {}

    async def main():
        guard = Guard([written(handler, timeout=20)])
        run = guard.run("r")
        task = asyncio.ensure_future(run.acall(pay()))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.01)
        return lates(run), state(guard)

    assert asyncio.run(main()) == ([("returned", True)], "completed")


def test_a_write_that_ends_although_its_caller_was_interrupted_is_recorded():
    """Ctrl-C reaches the host while a worker runs the tool: what comes back afterwards is not lost."""
    go = threading.Event()

    def handler():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        go.wait(10)
        return {}

    guard = Guard([written(handler, timeout=20)])
    run = guard.run("r")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run.call(pay())
    finally:
        signal.signal(signal.SIGINT, before)
    assert state(guard) == "in_doubt"
    go.set()
    until(lambda: lates(run))
    assert (lates(run), state(guard)) == ([("returned", True)], "completed")


@pytest.fixture
def threads(monkeypatch):
    """An event that lets new threads of workers begin."""
    may = threading.Event()
    monkeypatch.setattr(
        pool, "start_thread", lambda name, work, *args: start_thread(name, lambda: may.wait(10) and work(*args))
    )
    yield may
    may.set()


def test_a_write_that_no_thread_took_up_in_time_has_not_happened(driver, threads):
    """Its deadline passed before it began: that is no doubt, and the same call may be sent again."""
    paid = []
    guard = Guard([written(lambda: paid.append(1) or {}, timeout=0.02)])
    run = guard.run("r")
    outcome = driver.call(run, pay())
    assert (outcome.status, outcome.effect, outcome.findings[0].code) == ("failed", "none", "not_started")
    assert state(guard) == "failed_retriable"
    threads.set()
    until(lambda: guard.workers._idle)
    assert paid == []
    assert driver.call(run, pay()).status == "ok"
    assert paid == [1]


def test_a_write_that_no_thread_took_up_before_its_caller_was_cancelled_is_given_back(threads):
    """Nothing has begun and nothing will: its claim does not stay open, and the run's last word has no doubt in it."""
    paid = []
    guard = Guard([written(lambda: paid.append(1) or {}, timeout=20)])
    run = guard.run("r")

    async def main():
        async with asyncio.timeout(0.02):
            await run.acall(pay())

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    threads.set()
    until(lambda: state(guard) == "failed_retriable" and not run.progress.matters.open)
    assert (paid, lates(run)) == ([], [])
    assert run.call(pay()).status == "ok"
    assert paid == [1]


@pytest.mark.parametrize("ended", [False, True])
def test_what_a_deserted_worker_returns_is_late(ended):
    """Also if it was there at the very moment in which its caller was interrupted."""
    workers, go, heard, ready, begun = WorkerPool(), threading.Event(), [], threading.Event(), threading.Event()
    job = workers.start_job(lambda: begun.set() or go.wait(10), ready.set)
    assert begun.wait(10)
    if ended:
        go.set()
        assert ready.wait(10)
    workers.desert_job(job, heard.append)
    go.set()
    until(lambda: heard)
    assert heard == [Returned(True)]
    until(lambda: workers.lost_count == 0)


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
def test_what_has_begun_is_in_doubt_if_its_rest_finds_no_thread():
    """A function did its work and handed out a coroutine: that nothing happened would be a lie, and a second effect."""
    paid, free = [], threading.Event()
    hanging = Contract.from_schema("hang", ANY, effect="read", output_schema=ANY, handler=free.wait, timeout=0.02)
    guard = Guard(
        [written(lambda: (paid.append(1), rest())[1]), hanging], config={"execution": {"max_lost_workers": 1}}
    )
    run = guard.run("r")
    run.call(ToolCall("h", "hang", {}))
    assert [run.call(pay()).status for _ in range(2)] == ["in_doubt"] * 2
    assert paid == [1]
    free.set()


@pytest.mark.parametrize("function", [items, later_items])
@pytest.mark.parametrize("where", ["handler", "lookup", "compensate"])
def test_a_generator_function_is_no_tool(function, where):
    """Where it can be seen, it is refused when the contract is made."""
    with pytest.raises(ContractError, match=f"{where} must be callable, and no generator"):
        written(function) if where == "handler" else written(dict, **{where: function})


async def awaited_items():
    return items()


@pytest.mark.parametrize("handler", [lambda: items(), lambda: later_items(), awaited_items])  # noqa: PLW0108 - no generator function
def test_a_write_that_hands_out_a_generator_is_not_called_done(driver, handler):
    """Nothing of a generator has run: the outcome names it, and nobody can know what came before it."""
    outcome = driver.call(Guard([written(handler)]).run("r"), pay())
    assert (outcome.status, outcome.effect) == ("in_doubt", "unknown")
    assert "returned a generator" in outcome.message


class Dot(dict):
    """An object whose keys are attributes; any other attribute is None."""

    __getattr__ = dict.get


def test_an_answer_that_has_every_attribute_is_not_awaited(driver):
    """Whether something can be awaited is asked of its type, as Python does."""
    assert driver.call(Guard([written(lambda: Dot(id=1))]).run("r"), pay()).value == {"id": 1}
    outcome = driver.call(Guard([written(None)]).run("r"), pay(), invoke=lambda given: Dot(id=1))
    assert (outcome.status, outcome.value) == ("ok", {"id": 1})


def test_a_read_inside_of_a_write_is_not_that_write(driver):
    """`this_effect` is of the tool that asks, however deep it was called."""

    def look():
        with pytest.raises(UsageError, match="no such call is running"):
            this_effect()
        return {"asked": True}

    async def alook():
        return look()

    reads = [
        Contract.from_schema(name, ANY, effect="read", output_schema=ANY, handler=handler)
        for name, handler in (("look", look), ("alook", alook))
    ]
    inner = Guard(reads)

    def handler():
        run = inner.run()
        said = [run.call(ToolCall("c", name, {})).value for name in ("look", "alook")]
        return {"said": said, "key": this_effect().key}

    outcome = driver.call(Guard([written(handler)]).run("r"), pay())
    assert outcome.value == {"said": [{"asked": True}] * 2, "key": outcome.key}


class WordlessError(ToolError):
    """An exception that ends the host when it is asked for its text."""

    def __str__(self):
        raise SystemExit(3)


def test_an_exception_that_cannot_be_read_ends_no_call(driver):
    """Not even by what it raises itself."""

    def handler():
        raise WordlessError

    outcome = driver.call(Guard([written(handler)]).run("r"), pay())
    assert (outcome.status, outcome.message) == ("failed", "pay raised WordlessError: (without a readable text)")


def test_a_tool_that_cancels_itself_does_not_cancel_a_host_that_ignored_a_cancellation():
    """Only a cancellation that arrives while the tool runs is the host's."""

    async def handler():
        raise asyncio.CancelledError

    async def main():
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        return await Guard([written(handler)]).run("r").acall(pay())

    assert asyncio.run(main()).status == "in_doubt"


@pytest.mark.parametrize("how", ["cancelled", "interrupted", "never finished"])
def test_a_write_that_nobody_waited_for_is_not_passed_over_in_silence(how):
    """Whoever waited is gone, and nobody knows whether it took effect: neither the answer nor the run says otherwise."""

    async def hang(x):
        await asyncio.sleep(30)

    def interrupted(x):
        raise KeyboardInterrupt

    handler = hang if how == "cancelled" else interrupted
    guard = Guard([Contract.from_schema("pay", {"type": "object"}, output_schema={}, handler=handler)])
    run, call = guard.run("r"), ToolCall("c", "pay", {"x": 1})

    async def impatient():
        async with asyncio.timeout(0.01):
            await run.acall(call)

    if how == "cancelled":
        with pytest.raises(TimeoutError):
            asyncio.run(impatient())
    elif how == "interrupted":
        with pytest.raises(KeyboardInterrupt):
            run.call(call)
    else:
        ticket = run.begin(call)
    said, silent = run.answer("I have paid."), run.answer(None)
    assert (said.text, said.verified) == ("I have paid.\n\n[It is not known whether pay took effect.]", False)
    assert silent.text == "I could not finish this safely. It is not known whether pay took effect."
    assert [effect.state for effect in collect_facts(run).effects] == ["in_doubt"]
    run.close()
    assert run.stop_reason == "in_doubt"
    if how == "never finished":
        run.finish(ticket, result={"ok": True})
        assert run.answer("I have paid.").verified
        assert run.stop_reason == "success"


def test_a_claim_that_is_given_back_leaves_no_doubt():
    """A caller's mistake that is found behind the claim is settled as "nothing happened", and the run knows it."""
    run = Guard([Contract.from_schema("pay", {"type": "object"}, output_schema={})]).run("r")
    with pytest.raises(UsageError, match="no handler"):
        run.call(ToolCall("c", "pay", {"x": 1}))
    assert run.answer("Well.").verified
    assert run.answer(None).text == "I could not finish this safely. Nothing was changed."


def test_a_write_whose_answer_is_unusable_ran_all_the_same():
    """The last word neither says that it was not done, nor that nothing was changed, nor that it was done well."""
    wanted = {"type": "object", "required": ["id"]}
    pay = Contract.from_schema("pay", {"type": "object"}, output_schema=wanted, handler=lambda x: {"status": 1})
    run = Guard([pay]).run("r")
    outcome = run.call(ToolCall("c", "pay", {"x": 1}))
    assert (outcome.status, outcome.effect) == ("invalid_output", "done")
    assert run.answer(None).text == "I could not finish this safely. pay ran, but its answer was unusable."
    said = "Paid.\n\n[pay ran, but its answer was unusable.]"
    assert (run.answer("Paid.").text, run.answer("Paid.").verified) == (said, False)


@pytest.mark.parametrize("reopened", [False, True])
def test_a_write_that_reports_a_failure_is_no_proof_that_nothing_was_changed(tmp_path, reopened):
    """Its word is all there is, so the last one claims no more, also after a restart."""
    url = f"sqlite:///{tmp_path}/l.db"
    open_store(url, create=True).close()
    contract = written(lambda: {"error": "declined"}, envelope=Envelope(error="/error"))
    guard = Guard([contract], store=url)
    run = guard.run("r")
    outcome = run.call(pay())
    assert (outcome.status, outcome.effect) == ("failed", "unknown")
    if reopened:
        guard.close()
        guard = Guard([contract], store=url)
        run = guard.run("r")
    assert run.answer(None).text == "I could not finish this safely. It is not known whether pay took effect."
    guard.close()


@pytest.mark.parametrize("timeout", [None, 5.0])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("how", ["wait_for", "cancel", "twice"])
def test_a_cancelled_write_is_in_doubt_at_once(tmp_path, how, kind, timeout):
    """With its event, whoever cancels it; an equal call does not hear that it is still running, and nothing runs twice."""
    url = f"sqlite:///{tmp_path}/l.db"
    if kind == "sqlite":
        open_store(url, create=True).close()
    begun = []

    async def slow():
        begun.append(1)
        await asyncio.sleep(30)

    async def main():
        guard = Guard([written(slow, timeout=timeout)], store=url if kind == "sqlite" else None)
        async with guard.run("r") as run:
            task = asyncio.ensure_future(run.acall(pay()))
            if how == "wait_for":
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(task, 0.05)
            else:
                await asyncio.sleep(0.05)
                task.cancel()
                if how == "twice":
                    await asyncio.sleep(0)
                    task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert task.cancelled()
                await asyncio.sleep(0.2 * (how == "twice"))
            (record,) = guard.store.records(RecordQuery(run_id="r"))
            assert (record.state, record.failure) == ("in_doubt", "CallerGoneError")
            assert [(event["event"], event.get("status")) for event in run.trace] == [
                ("tool_call", None),
                ("tool_result", "in_doubt"),
            ]
            again = await run.acall(pay())
            assert (again.status, again.findings[0].code) == ("in_doubt", "in_doubt")
            assert "still running" not in again.text
            assert run.answer("Paid.").text == "Paid.\n\n[It is not known whether pay took effect.]"
        guard.close()
        return again

    asyncio.run(main())
    assert len(begun) == 1


def test_an_interrupted_write_is_in_doubt_at_once():
    """Ctrl-C in a tool goes through to the host; by then the ledger and the trace know."""

    def handler():
        raise KeyboardInterrupt

    guard = Guard([written(handler)])
    run = guard.run("r")
    with pytest.raises(KeyboardInterrupt):
        run.call(pay())
    (record,) = guard.store.records(RecordQuery(run_id="r"))
    assert record.state == "in_doubt"
    assert [event["event"] for event in run.trace] == ["tool_call", "tool_result"]
