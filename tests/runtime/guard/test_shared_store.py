"""One run in several hands at once: threads, handles opened twice, answers that arrive out of order."""

import sys
import threading
import time

import pytest

from pokayoke import Contract, Guard, ToolCall, ToolError, open_store
from pokayoke.errors import UsageError
from pokayoke.stores.memory import MemoryStore
from pokayoke.testing import FrozenClock

ID = {"type": "object", "properties": {"ident": {"type": "string"}}, "required": ["ident"]}
ANY = {"type": "object"}


def contracts(answers=None):
    return [
        Contract.from_schema(
            "look", ID, effect="read", output_schema=ANY, handler=lambda ident: (answers or {}).get(ident, {})
        ),
        Contract.from_schema("write", ID, output_schema=ANY, handler=lambda ident: {}),
    ]


def call(name="write", ident="1", **fields):
    return ToolCall("c", name, {"ident": ident}, **fields)


def test_a_late_answer_to_an_earlier_question_does_not_open_the_latch(driver):
    """A slow read asked before the invalid one answers after it: writes stay refused."""
    run = Guard(contracts()).run("r")
    slow = driver.begin(run, call("look"))
    assert driver.call(run, call("look"), invoke=lambda given: "<html>").status == "degraded"
    assert driver.finish(run, slow, result={}).ok
    assert driver.call(run, call()).findings[0].code == "latched"
    assert driver.call(run, call("look")).ok
    assert driver.call(run, call()).ok


def test_an_invalid_output_that_monitor_mode_lets_pass_does_not_open_the_latch(tmp_path):
    """A latch closed under enforcement stays closed until an output is really valid."""
    path = tmp_path / "pokayoke.yaml"
    path.write_text("mode: enforce\n")
    guard = Guard(contracts({"1": "<html>"}), config=path)
    run = guard.run("r")
    assert run.call(call("look")).status == "degraded"
    path.write_text("mode: monitor\nloop:\n  identical_failures: 9\n")
    time.sleep(0.25)  # a change younger than 0.2 s may be half-written and waits
    guard.refresh()
    assert guard.policy.mode == "monitor"
    assert run.call(call("look")).ok
    assert run.mode == "safe_mode"


def test_two_handles_of_one_run_share_its_latch(driver):
    """A run opened a second time while the first is in use cannot lose what the first one found out."""
    guard = Guard(contracts({"1": "<html>"}))
    first, second = guard.run("r"), guard.run("r")
    assert driver.call(first, call("look")).status == "degraded"
    second.user("go on")
    assert [driver.call(run, call()).findings[0].code for run in (first, second)] == ["latched", "latched"]
    second.clear_latch("look", by="ann", reason="checked")
    assert driver.call(first, call()).ok


def test_a_run_in_use_cannot_be_opened_for_another_tenant():
    """One id, two tenants: that would mix their states."""
    guard = Guard(contracts())
    run = guard.run("r", tenant="a")
    with pytest.raises(UsageError, match="tenant"):
        guard.run("r", tenant="b")
    assert guard.run("r", tenant="a").id == run.id


def test_a_reopened_run_is_still_its_tenants():
    """After a restart the store knows whose run it is; one that was kept without a tenant opens for any."""
    store = MemoryStore()
    for ident, tenant in (("r", "a"), ("old", None)):
        Guard(contracts(), store=store).run(ident, tenant=tenant).user("go on")
    with pytest.raises(UsageError, match="tenant 'a'"):
        Guard(contracts(), store=store).run("r", tenant="b")
    assert Guard(contracts(), store=store).run("r", tenant="a").tenant == "a"
    assert Guard(contracts(), store=store).run("old", tenant="b").tenant == "b"


def test_a_run_that_the_store_forgets_while_it_is_open_goes_on_as_it_was(driver, tmp_path):
    """Pruning an idle run gives it no second beginning: its totals stay, and it can still be stopped."""
    store = open_store(f"sqlite:///{tmp_path}/ledger.db", create=True)
    run = Guard(contracts(), store=store).run("r")
    for number in range(3):
        run.user(f"go on to {number}")
        assert driver.call(run, call("look")).ok
    store.prune(time.time() + 60, by="ann", now=time.time())
    assert store.load_run("r") is None
    run.stop()
    assert (run.mode, driver.call(run, call("look")).findings[0].code) == ("stopped", "run_stopped")
    kept = store.load_run("r")
    assert (kept.mode, kept.turn, kept.calls) == ("stopped", 3, 3)
    store.close()


@pytest.mark.parametrize("budget", [{"tokens": 100}, {"seconds": 10.0}, {"calls": 1}])
def test_budgets_go_on_where_a_run_was_left(driver, budget):
    """Closing and reopening a run gives it no new budget."""
    clock = FrozenClock()
    guard = Guard(contracts(), config={"budgets": budget}, clock=clock)
    with guard.run("r") as run:
        assert driver.call(run, call("look")).ok
        run.usage(1_000)
    del run
    clock.advance(60.0)
    assert driver.call(guard.run("r"), call("look")).stop_reason == "budget_exhausted"


def test_a_last_good_answer_is_its_users_own(driver):
    """What one user's read gave never stands in for another's, also without tenants."""
    guard = Guard(contracts())

    def degraded(**who):
        return driver.call(guard.run(**who), call("look"), invoke=lambda given: "<html>").value

    driver.call(guard.run(principal="ann", tenant="t"), call("look"), invoke=lambda given: {"of": "ann"})
    assert degraded(principal="ann", tenant="t")["of"] == "ann"
    others = ({"principal": "bob", "tenant": "t"}, {"principal": "ann"}, {"tenant": "t"}, {})
    assert [degraded(**who) for who in others] == [None] * 4


def test_a_last_good_answer_of_nobody_named_is_its_runs_own(driver):
    """A host that names neither tenants nor users may serve many of them: no run hands on what another one read."""
    guard = Guard(contracts())
    broken = lambda given: "<html>"  # noqa: E731 - an answer
    mine, other = guard.run(), guard.run(session="s")
    assert driver.call(mine, call("look"), invoke=lambda given: {"of": "ann"}).ok
    assert driver.call(other, call("look"), invoke=broken).value is None
    assert driver.call(mine, call("look"), invoke=broken).value["of"] == "ann"


def test_a_page_of_a_secret_output_is_written_down_nowhere(driver):
    """The pager hands out what it kept, and leaves no copy in the trace."""
    text = {"text": " ".join(f"zebra-{number}" for number in range(5_000))}
    secret = Contract.from_schema(
        "vault", ID, effect="read", output_schema=ANY, secret=True, handler=lambda ident: text
    )
    run = Guard([secret]).run("r")
    assert driver.call(run, call("vault")).ok
    page = driver.call(run, ToolCall("c", "read_more", {"handle": "out-1", "limit": 100}))
    assert "zebra-7" in page.value
    assert "zebra" not in repr(list(run.trace))


def test_threads_that_fail_and_succeed_at_the_same_time_all_get_outcomes():
    """Failures are counted while others are forgotten; no call ends in an exception."""

    def fail(ident):
        raise ToolError("no")

    bad = Contract.from_schema("bad", ID, effect="read", output_schema=ANY, handler=fail)
    run = Guard([*contracts(), bad]).run("r")
    ended, before = [], sys.getswitchinterval()

    def work(name):
        for number in range(300):
            ended.append(run.call(call("bad", f"{name}-{number}")).status)
            ended.append(run.call(call("look", f"{name}-{number}")).status)

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert sorted(set(ended)) == ["failed", "ok"]
    assert len(ended) == 2_400


def test_a_ticket_is_finished_in_its_own_run(driver):
    """What its tool answered would otherwise close the latch of another run."""
    guard = Guard(contracts())
    run, other = guard.run("r"), guard.run("other")
    ticket = driver.begin(run, call("look"))
    with pytest.raises(UsageError, match="this ticket is of run 'r'"):
        driver.finish(other, ticket, result="<html>")
    assert driver.finish(guard.run("r"), ticket, result={}).ok
