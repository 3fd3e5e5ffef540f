"""Data that an earlier version of the code wrote: it opens, replays, and can be settled.

`ledger.sql` (a dump) and `trace.jsonl` come from the version in which the modules lay flat in one folder. They hold a
completed payment (A-1), one in doubt (A-3), an invalid read that latched run-2, and a question that waits.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import pokayoke
from pokayoke.replay.readers import Source
from pokayoke.replay.recording import Recording
from pokayoke.testing import FrozenClock

HERE = Path(__file__).parent
WRITTEN_AT = 1_795_647_400.0  # seconds since the epoch: a moment after the last line of the trace
PLAN = {"type": "object", "required": ["plan"], "properties": {"plan": {"type": "string"}}}


@pytest.fixture
def executed():
    """The calls that really ran."""
    return []


@pytest.fixture
def guard(tmp_path, executed):
    """A guard of today over the ledger of then."""

    @pokayoke.tool(effect="write", identity=("order",), output={"type": "object"})
    def pay(order: str, amount: int) -> dict:
        """Pay."""
        executed.append(order)
        return {"receipt": f"R-{order}", "amount": amount}

    @pokayoke.tool(effect="read", output=PLAN)
    def look_up(customer: str) -> dict:
        """Look up."""
        return {"plan": "free"}

    @pokayoke.tool(effect="destructive", approval=True, output="text")
    def close_account(customer: str) -> str:
        """Close."""
        executed.append(customer)
        return "closed"

    file = tmp_path / "ledger.db"
    connection = sqlite3.connect(file)
    connection.executescript((HERE / "ledger.sql").read_text(encoding="utf-8"))
    connection.close()
    file.chmod(0o600)
    with closing(pokayoke.open_store(f"sqlite:///{file}", create=True)) as store:
        yield pokayoke.Guard([pay, look_up, close_account], store=store, clock=FrozenClock(WRITTEN_AT))


def call(tool, **arguments):
    return pokayoke.ToolCall("c", tool, arguments)


def test_a_completed_effect_is_not_run_again(guard, executed):
    """An equal call of the same run gets the recorded result under the same key, and nothing runs."""
    outcome = guard.run("run-1").call(call("pay", order="A-1", amount=5))
    assert (outcome.status, outcome.value) == ("replayed", {"receipt": "R-A-1", "amount": 5})
    assert executed == []


def test_an_effect_in_doubt_stays_in_doubt(guard, executed):
    """A payment of which nobody knows is neither run nor answered, until a person settles it."""
    guard.run("run-2").clear_latch("look_up", by="ann", reason="looked at it")
    assert guard.run("run-2").call(call("pay", order="A-3", amount=9)).status == "in_doubt"
    assert executed == []


def test_a_latched_run_reopens_latched(guard):
    """The run whose read broke its contract is still in safe mode, and refuses a write."""
    run = guard.run("run-2")
    assert (run.mode, run.stop_reason) == ("safe_mode", "invalid_tool_output")
    assert run.call(call("pay", order="A-4", amount=9)).status == "refused"


def test_a_waiting_question_can_be_answered(guard, executed):
    """The approval that was asked then is listed now, and a yes lets just that call run."""
    [question] = guard.approvals.list()
    guard.approvals.approve(question.id, by="ann")
    assert guard.run("run-1").call(call("close_account", customer="C-1")).status == "ok"
    assert executed == ["C-1"]


def test_a_new_effect_still_runs(guard, executed):
    """What the old ledger does not know runs once."""
    run = guard.run("run-1")
    assert run.call(call("pay", order="A-9", amount=1)).status == "ok"
    assert run.call(call("pay", order="A-9", amount=1)).status == "replayed"
    assert executed == ["A-9"]


def test_the_trace_reads_as_a_recording():
    """Every call of the old trace is read, but for the one that the ledger answered, which ran no tool."""
    lines = [json.loads(line) for line in (HERE / "trace.jsonl").read_text(encoding="utf-8").splitlines()]
    calls = {(line["run_id"], line["step"]) for line in lines if line["event"] in ("tool_call", "tool_result")}
    replayed = {(line["run_id"], line["step"]) for line in lines if line.get("status") == "replayed"}
    with Source(str(HERE / "trace.jsonl")) as source:
        found = list(source.read_recordings())
    assert all(isinstance(one, Recording) for one in found)
    assert len(found) == len(calls - replayed)
    assert (found[0].tool, found[0].arguments, found[0].output) == ("look_up", {"customer": "C-1"}, {"plan": "free"})
