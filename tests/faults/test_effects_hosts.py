"""What tools, clocks, hosts and new versions do to one effect."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest
from effects_stage import (
    LOOKUP,
    RECEIPT,
    Skewed,
    call,
    called,
    charge,
    guarded,
    late_effects,
    only_record,
    receipts,
    source_of,
    staged,
)
from effects_target import Ground, receipt_of

from pokayoke import Contract, open_store, this_effect
from pokayoke.testing import FailingStore, died

HOUR = 3_600.0


def changed(spec, **fields):
    return msgspec.structs.replace(spec, **fields)


def eventually(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not become true in 20 s"
        time.sleep(0.01)


@pytest.fixture(params=["sync", "async"])
def both(request, spec):
    """The instructions, once for each driver."""
    return changed(spec, asynchronous=request.param == "async")


@contextlib.contextmanager
def beside(spec):
    """Run the call of `spec` in a process that waits in its tool until the file `go` is there; yields the process."""
    child = subprocess.Popen(
        [sys.executable, "-c", source_of(changed(spec, holds=True))], stdout=subprocess.PIPE, text=True
    )
    try:
        eventually(lambda: list(Ground(spec.folder).lines("starts")) or child.poll() is not None)
        yield child
    finally:
        child.kill()
        child.wait(10)
        child.stdout.close()


def let_go(spec):
    (Path(spec.folder) / "go").touch()


def writes(spec, handler, **fields):
    """A contract whose handler is the test's own."""
    return charge(spec, Ground(spec.folder), **{"handler": handler, **fields})


# -- the store is gone when the effect has happened, as far as that is the same for every store --------------------


def test_an_effect_that_cannot_be_recorded_is_told_with_its_output_and_never_repeated(both):
    """The report is tried again; then the host gets the output with a doubt, and nobody executes again."""
    store = FailingStore(open_store(both.url), "settle")
    outcome = call(changed(both, fields={"timeout": 1.0}), store=store)
    (done,) = receipts(both)
    assert (outcome.status, outcome.findings[0].code, outcome.effect) == ("in_doubt", "not_recorded", "done")
    assert outcome.value == {"receipt": done}
    assert store.failed == ["settle"] * 4
    assert only_record(both).state == "executing"
    store.fail_on(())
    for _ in range(2):
        assert call(both).status == "in_doubt"
    assert (only_record(both).state, receipts(both)) == ("in_doubt", [done])
    store.close()


def test_a_report_that_gets_through_late_is_a_success(both):
    """Two lost reports are made up for by the third; a lost receipt is recognised."""
    store = FailingStore(open_store(both.url), {"settle": [1, 2]})
    assert call(both, store=store).status == "ok"
    store.close()
    store = FailingStore(open_store(both.url), {"settle": [1]}, after=True)
    assert call(changed(both, arguments={"n": 2}), store=store).status == "ok"
    store.close()
    assert [outcome.status for outcome in (call(both), call(changed(both, arguments={"n": 2})))] == ["replayed"] * 2
    assert len(receipts(both)) == 2


# -- clocks that are wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
@pytest.mark.parametrize("fields", [{}, LOOKUP], ids=["human", "lookup"])
def test_a_clock_that_is_an_hour_off_starts_nothing_again(both, seconds, fields):
    """While the executor works, others with a wrong clock are told so; its word is then the answer for all."""
    with beside(changed(both, fields=fields)) as child:
        guard = guarded(changed(both, clock=seconds, fields=fields))
        for _ in range(3):
            assert called(guard, both).findings[0].code in ("in_progress", "in_doubt")
        guard.close()
        let_go(both)
        assert child.wait(20) == 0
    (done,) = receipts(both)
    assert call(changed(both, clock=seconds)).value == call(both).value == {"receipt": done}


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_clock_that_jumps_during_the_tool_changes_nothing(both, seconds):
    """The executor's own deadline is monotonic and its claim its own, whatever the wall clock says meanwhile."""
    clock = Skewed()

    def handler(n, memo="m"):
        clock.seconds = seconds
        Ground(both.folder).note("effects", n, receipt_of(n), memo)
        return {"receipt": receipts(both)[0]}

    contract = writes(both, handler, timeout=5.0)
    assert call(both, contract=contract, clock=clock).status == "ok"
    clock.seconds = 0.0
    assert call(both, contract=contract, clock=clock).status == "replayed"
    assert len(receipts(both)) == 1


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_dead_executor_is_resolved_once_under_any_clock(both, seconds):
    """Death is proven by the system, not by a clock: the lookup brings one effect, also with the hour wrong."""
    assert died(staged(changed(both, crash="before_effect")).returncode)
    assert call(changed(both, clock=seconds, fields=LOOKUP)).status == "ok"
    assert call(changed(both, fields=LOOKUP)).status == "replayed"
    assert len(receipts(both)) == 1


def settled_after(seconds):
    return {"on_ambiguous": "lookup", "lookup_safe": "settled", "settle_after": seconds}


def test_what_is_under_way_gets_its_time_by_no_wall_clock(both):
    """A clock an hour ahead does not let the target's longest time have passed; nothing is started before it has."""
    assert died(staged(changed(both, crash="before_effect")).returncode)
    first = call(changed(both, fields=settled_after(60.0)))
    assert first.status == "in_doubt"
    assert 30 < first.retry_after <= 60
    for seconds in (HOUR, -HOUR, 24 * HOUR):
        outcome = call(changed(both, fields=settled_after(60.0), clock=seconds))
        assert (outcome.status, outcome.retry_after <= 60) == ("in_doubt", True)
    assert receipts(both) == []


@pytest.mark.parametrize("seconds", [0.0, HOUR, -HOUR])
def test_what_has_had_its_time_is_started_once_under_any_clock(both, seconds):
    """When the time has really passed, a clock that went back does not hold it up either."""
    assert died(staged(changed(both, crash="before_effect")).returncode)
    assert call(changed(both, fields=settled_after(0.3))).status == "in_doubt"
    time.sleep(0.4)
    assert call(changed(both, fields=settled_after(0.3), clock=seconds)).status == "ok"
    assert len(receipts(both)) == 1


def test_another_machine_does_not_count_the_time_of_a_death_here(both, monkeypatch):
    """Where the executor cannot be looked at, the clock that noted its death is not there either: a doubt, for good."""
    assert died(staged(changed(both, crash="before_effect")).returncode)
    assert call(changed(both, fields=settled_after(0.1))).status == "in_doubt"
    time.sleep(0.2)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("pokayoke.runtime.driver.sync.is_dead", lambda name: False)
        outcome = call(changed(both, fields=settled_after(0.1)))
    assert (outcome.status, outcome.retry_after, receipts(both)) == ("in_doubt", None, [])


# -- executors that were suspended ---------------------------------------------------------------------------------


def test_a_suspended_executor_may_still_report(both):
    """Others see a doubt once its lease has lapsed; what it reports after that by its own claim is taken."""
    with beside(changed(both, fields={"timeout": 0.6})) as child:
        child.send_signal(signal.SIGSTOP)
        assert call(both).status == "in_doubt"
        assert only_record(both).state == "in_doubt"
        let_go(both)
        child.send_signal(signal.SIGCONT)
        eventually(lambda: only_record(both).state == "completed")
        child.wait(20)
    assert call(both).status == "replayed"
    assert len(receipts(both)) == 1


def test_a_report_after_the_claim_was_lost_is_a_late_effect(both):
    """Somebody else did it meanwhile, as the target drops repeats: the ledger's answer stands, the late word is noted."""
    # The files count every request here: the target of this test would have dropped the second.
    fields = {"on_ambiguous": "downstream_key", "forwards_key": True}
    with beside(changed(both, fields={**fields, "timeout": 0.3})) as child:
        child.send_signal(signal.SIGSTOP)
        second = call(changed(both, fields=fields))
        assert second.status == "ok"
        let_go(both)
        child.send_signal(signal.SIGCONT)
        eventually(lambda: late_effects(both) == 1)
        child.wait(20)
    assert call(both).value == second.value
    assert only_record(both).attempt == 2


# -- tools that hang, act late or raise ----------------------------------------------------------------------------


def test_a_tool_that_acts_after_its_deadline(both):
    """The caller hears of the doubt at the deadline; the late effect settles it, and nobody repeats it."""
    acts = threading.Event()

    def handler(n, memo="m"):
        acts.wait(20)
        Ground(both.folder).note("effects", n, receipt_of(n), memo)
        return {"receipt": "late"}

    contract = writes(both, handler, timeout=0.1)
    guard = guarded(both, contract=contract)
    begun = time.monotonic()
    outcome = called(guard, both)
    assert time.monotonic() - begun < 10
    assert (outcome.status, outcome.findings[0].code) == ("in_doubt", "tool_timeout")
    assert called(guard, both).findings[0].code == "in_doubt"
    acts.set()
    eventually(lambda: only_record(both).state == "completed")
    assert called(guard, both).status == "replayed"
    assert len(receipts(both)) == 1
    guard.close()


def test_an_awaited_tool_that_acts_after_its_deadline(spec):
    """A task that swallows its cancellation and acts is a late effect too."""

    async def handler(n, memo="m"):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(20)
        await asyncio.sleep(0.05)
        Ground(spec.folder).note("effects", n, receipt_of(n), memo)
        return {"receipt": "late"}

    guard = guarded(spec, contract=writes(spec, handler, timeout=0.1))

    async def main():
        run = guard.run("r")
        from pokayoke import ToolCall  # noqa: PLC0415 - beside its use

        first = await run.acall(ToolCall("c", "charge", {"n": 1}))
        await asyncio.sleep(0.3)
        return first, await run.acall(ToolCall("c", "charge", {"n": 1}))

    first, second = asyncio.run(main())
    assert (first.status, second.status) == ("in_doubt", "replayed")
    assert len(receipts(spec)) == 1
    guard.close()


def test_a_tool_that_cannot_be_stopped_costs_a_bounded_slot(both):
    """Callers return at the deadline; beyond the limit of lost slots nothing is started, and nothing claimed for good."""
    stop = threading.Event()

    def handler(n, memo="m"):
        while not stop.is_set():
            sum(range(1_000))
        return {"receipt": "late"}

    contract = writes(both, handler, timeout=0.1)
    guard = guarded(changed(both, policy={"lease_margin_seconds": 0.2, "max_lost_workers": 2}), contract=contract)
    said = [called(guard, changed(both, arguments={"n": n})).findings[0].code for n in range(4)]
    assert said == ["tool_timeout", "tool_timeout", "not_started", "not_started"]
    stop.set()
    eventually(lambda: guard.workers.lost_count == 0)
    assert called(guard, changed(both, arguments={"n": 3})).ok
    guard.close()


@pytest.mark.parametrize("error", [ValueError("read timed out"), SystemExit(3), GeneratorExit(), MemoryError()])
def test_an_exception_after_the_effect_is_a_doubt(both, error):
    """Whatever a write raises says nothing about its effect: in doubt, not failed, and never repeated."""

    def handler(n, memo="m"):
        Ground(both.folder).note("effects", n, receipt_of(n), memo)
        raise error

    contract = writes(both, handler)
    for _ in range(2):
        outcome = call(both, contract=contract)
        assert (outcome.status, outcome.effect) == ("in_doubt", "unknown")
    assert (only_record(both).state, len(receipts(both))) == ("in_doubt", 1)


# -- outputs that break their contract -----------------------------------------------------------------------------


def test_an_invalid_output_after_a_write_that_succeeded(both):
    """The effect is recorded and never repeated, its output is never used, and the run is latched in every process."""

    def handler(n, memo="m"):
        Ground(both.folder).note("effects", n, receipt_of(n), memo)
        return {"receipt": 7}

    contract = writes(both, handler)
    outcome = call(both, contract=contract)
    assert (outcome.status, outcome.effect) == ("invalid_output", "done")
    record = only_record(both)
    assert (record.state, record.output_ok) == ("completed", False)
    guard = guarded(both, contract=contract)
    assert called(guard, changed(both, arguments={"n": 2})).stop_reason == "invalid_tool_output"
    assert guard.run(both.run).stop_reason == "invalid_tool_output"
    guard.run(both.run).clear_latch("charge", by="t", reason="t")
    again = called(guard, both)
    assert (again.status, again.value, again.findings[0].code) == ("invalid_output", None, "invalid_before")
    assert len(receipts(both)) == 1
    guard.close()


# -- new versions, and other arguments -----------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["after_effect", "after_invoke", "after_settle"])
def test_a_contract_that_was_upgraded_between_attempt_and_retry(both, point):
    """The key is that of the old version, so the retry finds the old record and executes nothing."""
    assert died(staged(changed(both, crash=point)).returncode)
    upgraded = writes(
        both,
        lambda n, memo="m", extra=None: pytest.fail("it was executed again"),
        version="2",
        input_schema={
            "type": "object",
            "properties": {"n": {"type": "integer"}, "memo": {"type": "string"}, "extra": {"type": "string"}},
            "required": ["n"],
            "additionalProperties": False,
        },
    )
    outcome = call(both, contract=upgraded)
    assert outcome.status == ("replayed" if point == "after_settle" else "in_doubt")
    with_more = call(changed(both, arguments={"n": 1, "extra": "new"}), contract=upgraded)
    assert with_more.findings[0].code == "conflict"
    assert len(receipts(both)) == 1


@pytest.mark.parametrize("point", ["before_effect", "after_effect", "after_settle"])
def test_the_same_key_with_other_arguments(both, point):
    """In every state of the record it is a conflict: nothing executes, the record stays as it is."""
    assert died(staged(changed(both, crash=point)).returncode)
    before, done = only_record(both), receipts(both)
    for fields in ({}, LOOKUP, {"on_ambiguous": "downstream_key", "forwards_key": True}):
        other = changed(both, arguments={"n": 1, "memo": "other"}, fields=fields)
        outcome = call(other)
        assert (outcome.status, outcome.findings[0].code, outcome.effect) == ("refused", "conflict", "none")
    assert (only_record(both), receipts(both)) == (before, done)


def test_other_arguments_while_it_runs(both):
    """A conflict does not wait for the executor, nor does it disturb it."""
    with beside(both) as child:
        outcome = call(changed(both, arguments={"n": 1, "memo": "other"}))
        assert outcome.findings[0].code == "conflict"
        let_go(both)
        assert child.wait(20) == 0
    assert len(receipts(both)) == 1


def test_the_tool_is_told_its_attempt(both):
    """The number of an execution never goes back: a target can tell a late one from its successor."""
    assert died(staged(changed(both, crash="before_effect")).returncode)
    seen = []

    def handler(n, memo="m"):
        seen.append(this_effect().attempt)
        return {"receipt": "r"}

    contract = Contract.from_schema(
        "charge", charge(both, Ground(both.folder)).input_schema, output_schema=RECEIPT, handler=handler,
        identity=("n",), on_ambiguous="downstream_key", forwards_key=True,
    )  # fmt: skip
    assert call(both, contract=contract).status == "ok"
    assert seen == [2]
