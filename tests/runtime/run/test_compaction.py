"""What becomes of outcomes when the history that holds them is shortened, and what a run does about it."""

import asyncio
import json
import time

import pytest

import pokayoke
from pokayoke.core.context import CompletedWrite, Facts, OpenEffect, Refusal
from pokayoke.core.ledger.reconcile import Comparison, build_compensations
from pokayoke.runtime.compensate import Compensator
from pokayoke.runtime.run.compaction import collect_facts
from pokayoke.stores import MemoryStore
from pokayoke.stores.values import RecordQuery
from pokayoke.testing import ScriptedModel, ask

BALANCE = {"type": "object", "required": ["balance"], "properties": {"balance": {"type": "integer"}}}


@pokayoke.tool(effect="write", output="text", identity=("order",))
def refund(order: str) -> str:
    """Refund an order."""
    raise TimeoutError


@pokayoke.tool(effect="read", output=BALANCE)
def balance(account: str) -> dict:
    """Look a balance up."""
    if account == "broken":
        raise ValueError
    return {"balance": "none"} if account == "damaged" else {"balance": 12}


@pokayoke.tool(effect="read", output="text", approval=True)
def secret(name: str) -> str:
    """Look a secret up."""
    return name


@pokayoke.tool(effect="read", output="text", timeout=0.05)
def slow(name: str) -> str:
    """Take long."""
    time.sleep(0.3)
    return name


CALLS = [
    ("balance", {"account": "7"}, "ok"),
    ("refund", {"order": "A-1"}, "in_doubt"),
    ("refund", {"order": "A-1"}, "in_doubt"),
    ("refunds", {}, "refused"),
    ("balance", {}, "refused"),
    ("secret", {"name": "x"}, "pending"),
    ("slow", {"name": "x"}, "failed"),
    ("balance", {"account": "broken"}, "failed"),
    ("balance", {"account": "damaged"}, "degraded"),
    ("refund", {"order": "A-2"}, "refused"),
]


@pytest.fixture(scope="module")
def recorded():
    """A history with an outcome of every kind in it, and the outcomes."""
    messages, outcomes = [{"role": "user", "content": "Refund A-1."}], []
    with pokayoke.Guard([refund, balance, secret, slow], config={"retry": {"retries": 0}}).run() as run:
        for number, (tool, arguments, status) in enumerate(CALLS):
            outcome = run.call(pokayoke.ToolCall(f"c{number}", tool, arguments))
            assert outcome.status == status
            called = {"name": tool, "arguments": json.dumps(arguments)}
            call = {"id": f"c{number}", "type": "function", "function": called}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": outcome.text})
            outcomes.append(outcome)
    return messages, outcomes


def test_a_note_never_calls_answered_what_was_not(recorded):
    """Of a plain list of messages, a note says `answered` of the good outcomes alone, and quotes what the others say."""
    messages, outcomes = recorded
    padding = [{"role": "assistant", "content": "Let me see. " * 90}] * 20
    noted = pokayoke.compact([*messages, *padding], 6_000, keep_last=5)
    lines = [line for line in noted[1]["content"].splitlines() if line.startswith("call: ")]
    assert len(lines) == len(outcomes)
    for line, outcome in zip(lines, outcomes, strict=True):
        assert (", answered" in line) == outcome.ok
        assert outcome.ok or ', said: "' in line
    assert "It is not known whether it took effect." in lines[1]
    assert "Nothing was written" in lines[9]


@pokayoke.tool(effect="read", output="text")
def find(number: int) -> str:
    """Find a parcel."""
    return f"Parcel {number} left the depot and was seen again in Lyon. " * 20


@pokayoke.tool(effect="read", output="text")
def listed(number: int) -> str:
    """List parcels."""
    return f"Parcel {number} is lost, and nobody knows where it may be. " * 200


@pokayoke.tool(effect="read", output="text", roles=("admin",))
def closed(name: str) -> str:
    """Show what only some may see."""
    return name


@pokayoke.tool(effect="write", output="text", approval=True)
def pay(order: str) -> str:
    """Pay an order."""
    return f"paid {order}"


@pytest.fixture(params=["sync", "async"])
def looped(request):
    """Runs a loop with one of the two drivers; returns how it ended, the model, and the trace of its run."""

    def run(guard, turns, prompt="go", **options):
        model, traced = ScriptedModel(turns), []
        told = guard.trace.record
        guard.trace.record = lambda event: traced.append(event) or told(event)
        if request.param == "sync":
            return guard.loop(model, prompt, **options), model, traced
        return asyncio.run(guard.aloop(model, prompt, **options)), model, traced

    return run


def facts_in(messages):
    """The facts of the note in a history, without their keys."""
    noted = next(one["content"] for one in messages if str(one["content"]).startswith("<context_note"))
    facts = [json.loads(line.removeprefix("fact: ")) for line in noted.splitlines() if line.startswith("fact: ")]
    return [{name: value for name, value in fact.items() if name not in ("key", "identity")} for fact in facts]


def test_a_loop_never_forgets_what_is_open(looped):
    """What is in doubt, tainted or refused for good stands in the note of a long loop, and goes when it is over."""
    guard = pokayoke.Guard([refund, balance, pay, find], config={"retry": {"retries": 0}})
    turns = [
        [ask("refund", order="A-1"), ask("pay", order="A-2"), ask("find", number=90)],
        [ask("balance", account="damaged"), ask("find", number=91)],
        *[ask("find", number=number) for number in range(30)],
    ]
    ended, model, traced = looped(guard, [*turns, "Done."], window=6_000)
    assert ended.stop_reason == "invalid_tool_output" or not ended.verified
    effects = {"kind": "effect", "tool": "refund", "state": "in_doubt", "about": '{"order":"A-1"}'}
    waiting = {"kind": "effect", "tool": "pay", "state": "pending", "about": '{"order":"A-2"}'}
    taint = {"kind": "taint", "tool": "balance", "step": 4, "reason": "wrong_type:/balance"}
    assert facts_in(model.seen[-1]) == [effects, waiting, taint]
    events = [event for event in traced if event["event"] == "context"]
    assert 1 <= len(events) < 12
    assert all(event["before"] > event["after"] and event["ok"] for event in events)
    assert sum(event["dropped"] for event in events) > 20
    assert {event["run_id"] for event in events} == {ended.run_id}


def test_a_loop_never_forgets_what_it_has_written(looped):
    """A completed write stands in every note with its arguments and what it is called, however many reads follow."""
    ran = []

    @pokayoke.tool(output={"type": "object", "properties": {"id": {"type": "string"}}})
    def send_message(to: str, text: str) -> dict:
        """Send a message."""
        ran.append(text)
        return {"id": f"M-{len(ran)}"}

    first = [ask("send_message", to="ann", text=f"hi {number}") for number in range(2)]
    turns = [*first, *[ask("find", number=number) for number in range(40)], "Sent."]
    ended, model, _ = looped(pokayoke.Guard([send_message, find]), turns, window=6_000)
    assert (ended.text, ran) == ("Sent.", ["hi 0", "hi 1"])
    done = [
        {"kind": "done", "tool": "send_message", "about": f'{{"to":"ann","text":"hi {number}"}}', "reference": f"M-{number + 1}"}
        for number in range(2)
    ]  # fmt: skip
    assert facts_in(model.seen[-1]) == done


def test_what_was_written_before_a_restart_is_a_fact():
    """The ledger knows the tool, here or elsewhere, and the target's name of the effect; an undone write is no fact."""
    store = MemoryStore()

    @pokayoke.tool(output="text", compensate=lambda what: True)
    def book(day: str) -> str:
        """Book a day."""
        return f"It is B-{day} now."

    def facts(run):
        return [(one.tool, one.about, one.reference) for one in collect_facts(run).done]

    with pokayoke.Guard([book], store=store).run("r") as run:
        for day in ("1", "2"):
            run.call(pokayoke.ToolCall(day, "book", {"day": day}))
        assert facts(run) == [("book", '{"day":"1"}', "B-1"), ("book", '{"day":"2"}', "B-2")]
        store.records = None  # a store that cannot be reached
        assert [one[:2] for one in facts(run)] == [("book", '{"day":"1"}'), ("book", '{"day":"2"}')]
        del store.records
    again = pokayoke.Guard([book], store=store).run("r")
    assert facts(again) == [("book", "", "B-1"), ("book", "", "B-2")]
    first = min(store.records(RecordQuery()), key=lambda record: record.claimed_at)
    (step,) = build_compensations(Comparison("matched", first.key, record=first, surplus=(None,)), "chosen")
    Compensator(store, by="ann").undo_effect(book, step)
    assert facts(again) == [("book", "", "B-2")]


def test_a_loop_puts_large_outputs_aside_and_lets_the_model_read_them(looped):
    """Outputs that do not fit together, each below the guard's own limit, are offered in pages; the run goes on."""
    model_reads = lambda messages: ask("read_more", handle=messages[-1]["content"].split('handle="')[1].split('"')[0])  # noqa: E731
    turns = [[ask("listed", number=number) for number in range(3)], model_reads, "All are lost."]
    ended, model, traced = looped(pokayoke.Guard([listed]), turns, window=4_500)
    assert (ended.text, ended.verified) == ("All are lost.", True)
    assert [[tool["function"]["name"] for tool in offered] for offered in model.offered] == [
        ["listed"],
        ["listed", "read_more"],
        ["listed", "read_more"],
    ]
    assert "Parcel 2 is lost" in model.seen[2][-1]["content"]
    assert [event["event"] for event in traced].count("context") == 1


def test_facts_of_a_run():
    """They are what the run knows, and of what it did before it was opened what the ledger knows."""
    store = MemoryStore()
    guard = pokayoke.Guard([refund, closed, find], store=store)
    with guard.run("r") as run:
        assert collect_facts(run) == Facts()
        for number, (tool, arguments) in enumerate([("refund", '{"order": "A-1"}'), ("closed", {"name": "x"})] * 2):
            run.call(pokayoke.ToolCall(f"c{number}", tool, arguments))
        run.call(pokayoke.ToolCall("f", "find", {"number": "x"}))
        found = collect_facts(run)
        assert [(one.tool, one.state, one.about) for one in found.effects] == [
            ("refund", "in_doubt", '{"order":"A-1"}')
        ]
        assert found.refusals == (Refusal("closed", "permission_denied", '{"name":"x"}'),)
        for number in range(30):
            run.call(pokayoke.ToolCall(f"d{number}", "closed", {"name": f"{number} {'x' * 900}"}))
        assert len(collect_facts(run).refusals) == 20
        assert max(len(one.about) for one in collect_facts(run).refusals) == 200
    again = pokayoke.Guard([refund], store=store).run("r")
    assert collect_facts(again) == Facts(effects=(OpenEffect("refund", found.effects[0].key),))


def test_what_is_allowed_again_is_no_fact():
    """A refusal is forgotten when the same call went well, and a call that waited when a person let it go."""
    guard = pokayoke.Guard([closed, pay], store=MemoryStore())
    with guard.run("r") as run:
        calls = [pokayoke.ToolCall("p", "pay", {"order": "A-1"}), pokayoke.ToolCall("c", "closed", {"name": "x"})]
        waits, _ = run.call_batch(calls)
        found = collect_facts(run)
        assert ([one.state for one in found.effects], len(found.refusals)) == (["pending"], 1)
        guard.approvals.approve(waits.approval, by="eve")
        run.principal = pokayoke.Principal("ada", ("admin",))
        assert [outcome.status for outcome in run.call_batch(calls)] == ["ok", "ok"]
        assert collect_facts(run) == Facts(done=(CompletedWrite("pay", '{"order":"A-1"}', "A-1"),))
