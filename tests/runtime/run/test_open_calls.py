"""Calls that nobody answered: what the model reads of them, from the ledger where it knows."""

import asyncio
import json

import pytest

from pokayoke import Contract, Guard, ToolCall, ToolError, open_store
from pokayoke.core.context.groups import UNANSWERED
from pokayoke.core.ledger.reconcile import Comparison, build_compensations
from pokayoke.runtime.compensate import Compensator
from pokayoke.stores.memory import MemoryStore
from pokayoke.testing import ScriptedModel

ANY = {"type": "object"}
ASKED = {"role": "user", "content": "Switch on."}


def switch_on(effect="write", **fields):
    fields = {"handler": lambda **_: {"on": True}, **fields}
    return Contract.from_schema("switch", ANY, effect=effect, output_schema=ANY, **fields)


def asks(*calls):
    """Return the model's message with these calls: id, and what to switch."""
    made = [
        {"id": ident, "type": "function", "function": {"name": "switch", "arguments": json.dumps({"to": to})}}
        for ident, to in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(ident, text="{}"):
    return {"role": "tool", "tool_call_id": ident, "content": text}


def call(ident="c1", to="on"):
    return ToolCall(ident, "switch", {"to": to})


def fail(**_):
    raise ValueError("broken")


def refuse(**_):
    raise ToolError("There is no such switch.")


def say_no(**_):
    return {"ok": False, "message": "No."}


@pytest.fixture(params=["sync", "async"])
def answer(request):
    """Return a history with its answers, by either driver."""

    def answered(run, messages):
        if request.param == "sync":
            return run.answer_open_calls(messages)
        return asyncio.run(run.aanswer_open_calls(messages))

    return answered


def texts(messages):
    return {one["tool_call_id"]: one["content"] for one in messages if one["role"] == "tool"}


def test_the_loop_sends_no_open_call():
    """The request holds a result for it, with and without a window, and the history goes on with it."""
    for options in ({}, {"window": 100_000}):
        model = ScriptedModel(["Hello."])
        ended = Guard([switch_on()]).loop(model, "Hello?", messages=[ASKED, asks(("c1", "on"))], **options)
        assert [one["role"] for one in model.seen[0]] == ["user", "assistant", "tool", "user"]
        assert texts(model.seen[0]) == texts(ended.messages) == {"c1": UNANSWERED}


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("window", [None, 100_000])
def test_the_loop_says_that_a_write_is_done(asynchronous, window):
    """The ledger knows its result, so the model reads that instead of a doubt."""
    guard, model = Guard([switch_on()]), ScriptedModel(["Hello."])
    assert guard.run("r").call(call()).ok
    history = [ASKED, asks(("c1", "on"))]
    if asynchronous:
        asyncio.run(guard.aloop(model, "Hello?", messages=history, run_id="r", window=window))
    else:
        guard.loop(model, "Hello?", messages=history, run_id="r", window=window)
    said = texts(model.seen[0])["c1"]
    assert said.startswith("Not run again: switch already ran at ")
    assert '{"on":true}' in said


def test_a_call_behind_the_users_last_words_is_run():
    """The loop goes on where a process before it stopped; only what the user has spoken over is not run any more."""
    done, model = [], ScriptedModel(["Done."])
    guard = Guard([switch_on(handler=lambda **given: done.append(given["to"]) or {})])
    guard.loop(model, messages=[ASKED, asks(("c1", "on")), ASKED, asks(("c2", "off"))], run_id="r")
    assert done == ["off"]
    assert texts(model.seen[0])["c1"] == UNANSWERED


def test_only_the_open_call_of_a_message_is_answered(answer):
    """The result of its neighbour stays the object it was; a history without open calls comes back itself."""
    run = Guard([switch_on()]).run()
    known = result("c2")
    history = [ASKED, asks(("c1", "on"), ("c2", "off")), known, ASKED]
    answered = answer(run, history)
    assert texts(answered) == {"c1": UNANSWERED, "c2": "{}"}
    assert known in answered
    assert len(history) == 4
    whole = [ASKED, asks(("c1", "on")), result("c1")]
    assert answer(run, whole) is whole


@pytest.mark.parametrize(
    ("before", "said", "unsaid"),
    [
        (None, UNANSWERED, None),
        ({}, "Not run again: switch already ran", "may or may not"),
        ({"handler": fail}, "It is not known whether switch took effect", "again to"),
        ({"handler": refuse}, "switch failed and took no effect", "may or may not"),
        ({"handler": say_no}, "switch already failed", "may or may not"),
        ({"handler": lambda **_: 5}, "its answer was unusable", "may or may not"),
    ],
)
def test_the_ledger_says_what_became_of_a_write(answer, before, said, unsaid):
    """Never started, done, in doubt, failed with or without a doubt, done with an unusable answer: each in its own words; nothing runs."""
    contract = switch_on(**(before or {}))
    run = Guard([contract]).run("r")
    if before is not None:
        run.call(call())
    trace = len(run.trace)
    text = texts(answer(run, [ASKED, asks(("c1", "on")), ASKED]))["c1"]
    assert said in text
    assert unsaid is None or unsaid not in text
    assert len(run.trace) == trace


def test_a_text_that_says_that_nothing_is_known_is_replaced(answer):
    """An earlier request, or a shortened history, had no better answer; the ledger has one now."""
    run = Guard([switch_on()]).run("r")
    history = answer(run, [ASKED, asks(("c1", "on"))])
    run.call(call())
    assert texts(answer(run, history))["c1"].startswith("Not run again")


def test_an_open_read_may_be_called_again(answer):
    """It changed nothing by itself, and no ledger knows it."""
    run = Guard([switch_on("read")]).run("r")
    run.call(call())
    text = texts(answer(run, [ASKED, asks(("c1", "on")), ASKED]))["c1"]
    assert "It changed nothing by itself: call it again" in text


def test_a_call_that_no_contract_takes_is_only_unanswered(answer):
    """An unknown tool, or arguments that nobody can read: nothing is known of them."""
    run = Guard([switch_on()]).run("r")
    unknown = asks(("c1", "on"), ("c2", "on"))
    unknown["tool_calls"][0]["function"]["name"] = "invent"
    unknown["tool_calls"][1]["function"]["arguments"] = '{"to": '
    assert texts(answer(run, [ASKED, unknown, ASKED])) == {"c1": UNANSWERED, "c2": UNANSWERED}


def test_an_id_of_an_older_turn_means_its_own_call(answer):
    """An answered call of the same id and arguments has had the first effect; the open one has the second, or none."""
    run = Guard([switch_on(repeats="turn")]).run("r", prompt="Switch on.")
    first = run.call(call())
    history = [ASKED, asks(("c1", "on")), result("c1", first.text), {"role": "assistant", "content": "Done."},
               {"role": "user", "content": "Once more."}, asks(("c1", "on")), {"role": "user", "content": "Hello?"}]  # fmt: skip
    assert texts(answer(run, history)[5:])["c1"] == UNANSWERED
    run.user("Once more.")
    run.set_history(history[:5])
    assert run.call(call()).repeated
    assert "already ran (number 2)" in texts(answer(run, history)[5:])["c1"]


def test_an_open_call_that_another_call_has_done_reads_that(answer):
    """The equal write ran under another id: the model reads when, and its result."""
    run = Guard([switch_on()]).run("r")
    run.call(call("c0"))
    assert "switch already ran at" in texts(answer(run, [ASKED, asks(("c1", "on")), ASKED]))["c1"]


def test_what_was_answered_so_counts_as_seen():
    """The model has read that the write is done, so an equal call of the next turn is a new wish."""
    guard = Guard([switch_on(repeats="turn")])
    guard.run("r", prompt="Switch on.").call(call())
    model = ScriptedModel([call("c9"), "Done."])
    ended = guard.loop(model, "Once more.", messages=[ASKED, asks(("c1", "on"))], run_id="r")
    assert ended.done == ("switch", "switch")


@pytest.mark.parametrize(
    ("done", "failed"), [(True, None), (False, True)]
)  # fmt: skip
def test_a_result_block_says_whether_it_is_one(answer, done, failed):
    """Anthropic's blocks mark an error; a write that is done is none."""
    run = Guard([switch_on()]).run("r")
    if done:
        run.call(call())
    use = {"type": "tool_use", "id": "c1", "name": "switch", "input": {"to": "on"}}
    answered = answer(run, [ASKED, {"role": "assistant", "content": [use]}, {"role": "user", "content": "Hello?"}])
    block, words = answered[2]["content"]
    assert (block["tool_use_id"], block.get("is_error"), words["text"]) == ("c1", failed, "Hello?")
    assert ("already ran" in block["content"]) is done


def test_an_open_call_of_the_responses_api_is_answered(answer):
    """There calls and results are items of their own."""
    run = Guard([switch_on()]).run("r")
    run.call(call())
    item = {"type": "function_call", "call_id": "c1", "name": "switch", "arguments": '{"to": "on"}'}
    answered = answer(run, [ASKED, item, {"role": "user", "content": "Hello?"}])
    assert (answered[2]["type"], answered[2]["call_id"]) == ("function_call_output", "c1")
    assert "already ran" in answered[2]["output"]


def test_a_store_that_cannot_be_read_knows_nothing(answer):
    """The text is that of a call of which nothing is known; no exception."""

    class Gone(MemoryStore):
        def run(self, operation):
            if operation.name == "record":
                raise OSError("gone")
            return super().run(operation)

    run = Guard([switch_on()], store=Gone()).run("r")
    assert texts(answer(run, [ASKED, asks(("c1", "on")), ASKED]))["c1"] == UNANSWERED


def test_an_undone_write_is_said_to_be_undone(answer):
    """The recorded result no longer holds."""
    contract = switch_on(compensate=lambda _: True)
    run = Guard([contract]).run("r")
    record = run.guard.store.record(run.call(call()).key)
    (step,) = build_compensations(Comparison("matched", record.key, record=record, surplus=(None,)), "chosen")
    Compensator(run.guard.store, by="ann").undo_effect(contract, step)
    assert "was undone" in texts(answer(run, [ASKED, asks(("c1", "on")), ASKED]))["c1"]


def test_a_run_without_a_scope_knows_nothing(answer, tmp_path):
    """A durable ledger has no effects of a run that nobody named."""
    open_store(f"sqlite:///{tmp_path}/l.db", create=True).close()
    with Guard([switch_on()], store=f"sqlite:///{tmp_path}/l.db") as guard:
        with pytest.warns(UserWarning, match="needs a run"):
            run = guard.run()
        assert texts(answer(run, [ASKED, asks(("c1", "on")), ASKED]))["c1"] == UNANSWERED


def test_a_rebuilt_history_may_give_a_call_another_id(answer):
    """Anthropic takes no id twice, and no sign in a name: what the ledger is asked for is the call as it was written."""
    run = Guard([switch_on()]).run("r")
    run.call(call())
    use = {"type": "tool_use", "id": "c1", "name": "switch", "input": {"to": "off"}}
    done = {"type": "tool_result", "tool_use_id": "c1", "content": "{}"}
    again = {**use, "name": "functions.switch!", "input": {"to": "on"}}
    history = [ASKED, {"role": "assistant", "content": [use]}, {"role": "user", "content": [done]},
               {"role": "assistant", "content": [again]}, ASKED]  # fmt: skip
    answered = answer(run, history)
    assert answered[4]["content"][0]["tool_use_id"] != "c1"
