"""The whole way: a guarded run writes its trace, contracts are learnt from it, and the trace is replayed against them."""

import json
import os
import time

import pokayoke
from pokayoke.core.contract.contract import Contract
from pokayoke.replay.learn.learner import Learner
from pokayoke.replay.readers import Source
from pokayoke.replay.recording import Recording
from pokayoke.replay.score.evaluate import Judge
from pokayoke.replay.score.scorer import Scorer
from pokayoke.testing import FrozenClock

ITEM = {"type": "object", "properties": {"id": {"type": "string"}, "token": {"type": "string"}}, "required": ["id"]}


def traced(tmp_path):
    """A run with reads, writes, a correction, refusals, a failure and an invalid output; the trace file's name."""

    @pokayoke.tool(effect="read", output=ITEM)
    def find(order: str, password: str = "") -> dict:
        """Find."""
        if order == "gone":
            raise pokayoke.ToolError("gone")
        return {"id": 5} if order == "odd" else {"id": order, "token": "sk-abcdefghijklmnop"}

    @pokayoke.tool(effect="write", output="text")
    def send(amount: int) -> str:
        """Send."""
        if amount == 99:
            raise RuntimeError("the line broke")
        return f"sent {amount}"

    name = str(tmp_path / "trace.jsonl")
    guard = pokayoke.Guard([find, send], config={"trace": {"path": name}})
    for number in range(12):
        with guard.run(f"r{number}") as run:
            run.call(pokayoke.ToolCall("1", "find", {"order": f"A{number}", "password": "hunter2hunter2"}))
            run.call(pokayoke.ToolCall("2", "send", f'{{"amount": "{number}"}}'))
    with guard.run("bad") as run:
        run.call(pokayoke.ToolCall("1", "find", '{"order": "A'))
        run.call(pokayoke.ToolCall("2", "find", {"order": "gone", "password": "hunter2hunter2"}))
        run.call(pokayoke.ToolCall("3", "nothing", "{}"))
        run.call(pokayoke.ToolCall("4", "find", {"order": "odd", "password": "hunter2hunter2"}))
        run.call(pokayoke.ToolCall("5", "nothing", {"a": 1, "password": "hunter2hunter2"}))
    with guard.run("doubt") as run:
        run.call(pokayoke.ToolCall("1", "send", {"amount": 99}))
    guard.close()
    return name


def test_a_trace_teaches_effect_and_deadline(tmp_path):
    """What claims an effect is a write whatever its name, and what never does is a read; deadlines are measured ones."""
    name = str(tmp_path / "trace.jsonl")

    @pokayoke.tool(effect="read", output="text", name="stock")
    def look(n: int) -> str:
        """Look."""
        return str(n)

    @pokayoke.tool(effect="write", output="text", name="get_order")
    def order(n: int) -> str:
        """Order."""
        return str(n)

    clock = FrozenClock()
    guard = pokayoke.Guard([look, order], config={"trace": {"path": name}}, clock=clock)

    with guard.run("r") as run:
        for number in range(60):
            ticket = run.begin(pokayoke.ToolCall(f"l{number}", "stock", {"n": number}))
            clock.advance(2.0)
            run.finish(ticket, result="done")
            if number < 30:
                run.call(pokayoke.ToolCall(f"o{number}", "get_order", {"n": number}))
    guard.close()
    learners = [Learner(), Learner()]
    with Source(name) as source:
        learners[0].add_recordings(source.read_recordings())
    drafts = {draft.mapping["name"]: draft for draft in learners[0].build_drafts()[0]}
    assert [(drafts[one].mapping["effect"], drafts[one].mapping["timeout"]) for one in ("stock", "get_order")] == [
        ("read", 6), ("write", 1),
    ]  # fmt: skip
    assert drafts["stock"].notes["effect",] == "none of 60 calls claimed an effect; check it"
    assert drafts["get_order"].notes["effect",] == "30 of 30 calls claimed an effect; check it"
    assert drafts["stock"].notes["timeout",] == "seconds; 99 of 100 of 60 calls took up to 2 s, times 3"


def test_a_trace_teaches_what_ran_and_replays_as_it_went(tmp_path):
    """Good calls are learnt without their secrets; replay finds what was refused, failed, invalid and corrected again."""
    name = traced(tmp_path)
    learner = Learner()
    with Source(name) as source:
        assert source.kind.format == "trace"
        learner.add_recordings(source.read_recordings())
    drafts, skipped = learner.build_drafts()
    assert [(one.tool, one.why) for one in skipped] == [("nothing", "2 calls, and none of them ran")]
    find, send = (draft.mapping for draft in drafts)
    assert "password" in find["input_schema"]["properties"]
    assert find["output_schema"]["required"] == ["id", "token"]
    assert send["input_schema"]["required"] == ["amount"]
    assert send["input_schema"]["properties"]["amount"] == {"type": "integer"}  # what ran, not the text the model sent
    assert "12 calls" in drafts[0].notes["name",]
    assert "1 more failed" in drafts[0].notes["name",]
    assert "1 were refused" in drafts[0].notes["name",]
    assert "1 had an invalid answer" in drafts[0].notes["name",]
    assert drafts[1].notes["name",] == "12 calls; 1 more failed and taught nothing"
    assert "hunter2" not in str(drafts)
    contracts = [Contract.from_mapping(one) for one in (find, send)]
    with Source(name) as source:
        score = Scorer([Judge(contracts)]).score_recordings(source.read_recordings())
    reads, writes, unknown = (score.tallies[0].tools[tool] for tool in ("find@1", "send@1", "nothing"))
    assert (reads.calls, reads.refused, reads.failed, reads.invalid) == (15, 1, 1, 1)
    assert reads.faults == {"wrong_type": 1}
    assert (writes.calls, writes.allowed, writes.corrected, writes.failed) == (13, 13, 12, 1)
    assert unknown.refused == 2


def test_a_dict_that_was_corrected_replays_as_it_came(tmp_path):
    """Of arguments that came parsed, too, what the model sent is judged again, and not what was made of it.

    The trace holds it without secrets; a dict that its owner made unreadable meanwhile costs only itself.
    """
    sent = {"amount": "7", "password": "hunter2hunter2"}

    @pokayoke.tool(effect="read", output="text")
    def look(amount: int, password: str) -> str:
        """Look."""
        if amount == 8:
            sent["amount"] = object()
        return "seen"

    @pokayoke.tool(effect="write", output="text")
    def send(amount: int, password: str) -> str:
        """Send."""
        return "sent"

    name = tmp_path / "trace.jsonl"
    guard = pokayoke.Guard([look, send], config={"trace": {"path": str(name)}})
    for number, tool in enumerate(("look", "send")):
        outcome = guard.run(f"r{number}").call(pokayoke.ToolCall("1", tool, sent))
        assert (outcome.status, len(outcome.corrections)) == ("ok", 1)
    sent["amount"] = "8"
    assert guard.run("changed").call(pokayoke.ToolCall("1", "look", sent)).status == "ok"
    guard.close()
    assert "hunter2" not in name.read_text()
    with Source(str(name)) as source:
        found = list(source.read_recordings())
    assert [json.loads(one.arguments)["amount"] for one in found[:2]] == ["7", "7"]
    assert found[2].arguments["amount"] == 8
    tools = Scorer([Judge([look, send])]).score_recordings(found[:2]).tallies[0].tools
    assert {name: (one.calls, one.corrected) for name, one in tools.items()} == {"look@1": (1, 1), "send@1": (1, 1)}


def test_what_the_guard_itself_tells_is_no_line_that_cannot_be_read(tmp_path):
    """A reload and a kill switch are events of no run: a trace with them is read to its end, without a word."""
    name, config = tmp_path / "trace.jsonl", tmp_path / "pokayoke.yaml"
    config.write_text("trace: {path: trace.jsonl}\n")

    @pokayoke.tool(effect="read", output=ITEM)
    def find(order: str) -> dict:
        """Find."""
        return {"id": 5}

    guard = pokayoke.Guard([find], config=config)
    config.write_text("trace: {path: trace.jsonl}\nbudgets: {calls: 9}\n")
    os.utime(config, (0, 0))
    time.sleep(0.25)  # a changed file has to lie still
    for number in range(4):
        guard.run(f"r{number}").call(pokayoke.ToolCall("1", "find", {"order": f"A{number}"}))
    guard.close()
    alone = [event["event"] for event in map(json.loads, name.read_text().splitlines()) if "run_id" not in event]
    assert {"config", "switch"} <= set(alone)
    with Source(str(name)) as source:
        found = list(source.read_recordings())
    assert (source.kind.format, [type(one) for one in found]) == ("trace", [Recording] * 4)
