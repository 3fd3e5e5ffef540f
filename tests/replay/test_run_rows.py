"""The rows of a run: one for each call, whatever the trace holds."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke import Contract, Guard, ToolCall
from pokayoke.replay import run_rows
from pokayoke.replay.run_rows import CallRow, RunMark, build_run_rows

ORDER = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "amount": {"type": "integer"}},
    "required": ["order", "amount"],
    "additionalProperties": False,
}


@pytest.fixture
def traced(tmp_path):
    """The events of a real run: a read, a corrected write, its repetition, a refusal, a failure and a page."""
    path = tmp_path / "t.jsonl"

    def pay(order, amount):
        if order == "A-9":
            raise ConnectionError("lost")
        return {"receipt": order}

    tools = [
        Contract.from_schema("look_up", {"type": "object"}, output_schema={"type": "object"}, effect="read",
                             handler=lambda **given: "<html></html>" if given.get("bad") else {"plan": "free"}),
        Contract.from_schema("pay", ORDER, output_schema={"type": "object"}, handler=pay),
    ]  # fmt: skip
    with Guard(tools, config={"trace": {"path": str(path)}}) as guard, guard.run(run_id="r1") as run:
        run.call(ToolCall("c1", "look_up", {"customer": "C-1"}))
        run.call(ToolCall("c2", "pay", '{"order": "A-1", "amount": "7",}'))
        run.call(ToolCall("c3", "pay", {"order": "A-1", "amount": 7}))
        run.call(ToolCall("c4", "pay", {"amont": 7}))
        run.call(ToolCall("c5", "pay", {"order": "A-9", "amount": 1}))
        run.call(ToolCall("c6", "look_up", {"bad": 1}))
        with guard.run(run_id="r2") as other:
            other.call(ToolCall("c1", "look_up", {}))
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_is_told_call_by_call(traced):
    """Sent, read as, corrected, decided, answered, told: each stands in the row of its call, and in no other."""
    rows = build_run_rows(traced, "r1")
    calls = [row for row in rows if isinstance(row, CallRow)]
    assert [(row.step, row.call_id, row.status, row.is_write) for row in calls] == [
        (1, "c1", "ok", False), (2, "c2", "ok", True), (3, "c3", "replayed", True), (4, "c4", "refused", True),
        (5, "c5", "in_doubt", True), (6, "c6", "degraded", False),
    ]  # fmt: skip
    paid = calls[1]
    assert (paid.sent, paid.read_as) == ('{"order": "A-1", "amount": "7",}', ("trailing_comma",))
    assert [(one["at"], one["before"], one["after"]) for one in paid.corrected] == [("/amount", "7", 7)]
    assert (paid.arguments, paid.answered) == ({"order": "A-1", "amount": 7}, {"receipt": "A-1"})
    assert (paid.decision, paid.effect, paid.attempts) == ("allow", "done", 1)
    assert paid.seconds >= 0
    assert calls[3].decision == "refuse"
    assert any("amount" in hint for hint in calls[3].told)
    assert (calls[4].effect, calls[4].ok) == ("unknown", False)
    assert "It is not known whether it took effect" in calls[4].told[0]
    assert [row.event for row in rows if isinstance(row, RunMark)].count("stop") == 1


def test_a_call_without_an_end_is_unfinished():
    """A process that died: the call that was decided and never ended says so, and the next of its step is another."""
    begin = {"ts": 1.0, "run_id": "r", "step": 1, "event": "tool_call", "tool": "pay", "decision": "allow", "ok": True}
    end = {"ts": 2.0, "run_id": "r", "step": 1, "event": "tool_result", "tool": "pay", "status": "ok", "ok": True}
    rows = build_run_rows([begin, begin, end], "r")
    assert [row.status for row in rows] == ["unfinished", "ok"]


def test_the_end_of_a_call_that_began_elsewhere_is_shown():
    """A rotated trace begins in the middle of a call: what it has is shown."""
    end = {"ts": 2.0, "run_id": "r", "step": 1, "event": "tool_result", "tool": "pay", "status": "ok", "ok": True}
    (row,) = build_run_rows([end], "r")
    assert (row.tool, row.status, row.decision) == ("pay", "ok", None)


def test_a_run_without_end_has_an_end_here(monkeypatch):
    """Rows are bounded; calls that have begun still get their end."""
    monkeypatch.setattr(run_rows, "MOST_ROWS", 2)
    begin = {"run_id": "r", "event": "tool_call", "tool": "pay", "decision": "allow"}
    end = {"run_id": "r", "event": "tool_result", "tool": "pay", "status": "ok"}
    rows = build_run_rows([*({**begin, "step": n} for n in range(5)), *({**end, "step": n} for n in range(5))], "r")
    assert [(row.step, row.status) for row in rows] == [(0, "ok"), (1, "ok")]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("event", "step", "call_id", "decision", "status", "findings", "repairs", "corrections", "us", "tool", "ok")
EVENTS = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6).map(lambda found: {"run_id": "r"} | found)


@given(st.lists(VALUES | EVENTS | EVENTS.map(lambda found: found | {"event": "tool_result"}), max_size=8))
def test_any_lines_make_rows(events):
    """No damage of a trace raises, and no event of the run makes more than one row."""
    rows = build_run_rows(events, "r")
    assert len(rows) <= sum(isinstance(one, dict) and one.get("run_id") == "r" for one in events)
