"""Which run a call belongs to: histories, turns, runs side by side, and processes that die."""

import asyncio
import copy

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai_agents import REFUND, FunctionScript, Script, Shop, call, guarded
from pydantic_ai_process import Nursery, effects

import pokayoke
from pokayoke.adapters.pydantic_ai import Guarded, contracts


async def test_a_history_with_open_calls_is_gone_on_from():
    """Nobody heard these calls: unknown names are answered, a cut message runs nothing, and the budget stays whole."""
    shop = Shop()
    for response, done in (
        (
            ModelResponse([call("nothing", "c1"), call("nothing", "c2"), call("Find", "c3", order="A1")]),
            [("find", "A1")],
        ),
        (ModelResponse([REFUND], finish_reason="length"), []),
    ):
        shop.done.clear()
        script = Script("Done.")
        agent, _ = guarded([shop.find, shop.refund], script)
        asked = ModelRequest([UserPromptPart("go")])
        assert (await agent.run(message_history=[asked, response])).output.startswith("Done.")
        assert shop.done == done
        assert len(script.answers) == len(response.parts)


async def test_a_history_that_is_handed_in_stays_as_it_is():
    """Names and arguments are corrected in the run's own messages alone."""
    shop = Shop()
    asked = ModelRequest([UserPromptPart("go")])
    history = [asked, ModelResponse([ToolCallPart("Refund", "{'order': 'A1', 'amount': 5}", "c1")])]
    before = copy.deepcopy(history)
    agent, _ = guarded([shop.refund], Script("Done."), reads=())
    result = await agent.run(message_history=history)
    assert history == before
    said = result.all_messages()[1].tool_calls[0]
    assert (said.tool_name, said.args) == ("refund", {"order": "A1", "amount": 5})
    assert shop.done == [("refund", "A1", 5)]


async def test_on_whose_behalf_a_run_acts_is_said_by_its_context():
    """A tool that a principal may not use is not offered, and a call of it is refused."""
    shop = Shop()
    made = contracts([shop.refund], fields={"refund": {"roles": ("clerk",)}})
    guard = pokayoke.Guard(made)
    for roles, done in ((["clerk"], 1), ([], 0)):
        shop.done.clear()
        script = Script([REFUND], "Done.")
        who = Guarded(guard, who=lambda ctx: {"principal": {"id": "ada", "roles": ctx.deps}, "tenant": "t"})
        await Agent(script.model, tools=[shop.refund], capabilities=[who], deps_type=list).run("go", deps=roles)
        assert len(shop.done) == done
        assert script.offered[0] == ["refund"] * done


async def test_runs_side_by_side_do_not_mix():
    """Twenty runs of one agent at once each do their own write once, and one that is stuck stops alone."""
    shop = Shop()

    def said(messages, info):
        order = messages[0].parts[-1].content
        if order == "stuck":
            return ModelResponse([call("nothing", f"c{len(messages)}")] if info.function_tools else [TextPart("No.")])
        turn = sum(isinstance(one, ModelResponse) for one in messages)
        return ModelResponse([call("refund", "c1", order=order, amount=5)] if turn < 2 else [TextPart(order)])

    agent, _ = guarded([shop.refund], FunctionScript(said), reads=())
    orders = [f"A{number}" for number in range(19)]
    results = await asyncio.gather(*(agent.run(order) for order in [*orders, "stuck"]))
    assert [result.output for result in results] == [
        *(f"{order}\n\n[Not run a second time: refund.]" for order in orders),
        "No.",
    ]
    assert sorted(shop.done) == sorted(("refund", order, 5) for order in orders)


async def test_a_stuck_model_is_followed_by_a_turn_with_tools():
    """The next text of the user begins a turn: the tools are back, and the instruction is gone."""
    shop = Shop()
    script = Script([call("nothing", "c1")], [call("nothing", "c2")], "I cannot.", [REFUND], "Done.")
    agent, _ = guarded([shop.refund], script, reads=())
    first = await agent.run("go")
    assert first.output == "I cannot."
    second = await agent.run("again", message_history=first.all_messages())
    assert second.output == "Done."
    assert shop.done == [("refund", "A1", 5)]


async def test_a_user_who_speaks_in_the_history_begins_a_turn():
    """As web frontends hand it over, without a prompt; what stands beside a tool's result is no user."""
    bad = [call("invent", "c1")], [call("invent", "c2")], "Stuck."
    for told, shown in (([], ["find"]), ([ToolReturnPart("find", "A1", "c9")], [])):
        script = Script(*bad, "Done.")
        agent, _ = guarded([Shop().find], script)
        history = (await agent.run("go", conversation_id="c")).all_messages()
        if told:
            history.append(ModelResponse([call("find", "c9", order="A1")]))
        history.append(ModelRequest([*told, UserPromptPart("once more")]))
        await agent.run(message_history=history, conversation_id="c")
        assert script.offered[-1] == shown


@pytest.fixture(scope="module")
def nursery():
    """Where processes come from."""
    with Nursery() as mother:
        yield mother


def test_a_process_killed_in_mid_write_leaves_a_doubt_and_one_effect(nursery, tmp_path):
    """After the kill the new process goes on with the history it finds: the model is told that nobody knows."""
    assert nursery.run(tmp_path, "human", dies=True) == (-9, None)
    assert len(effects(tmp_path)) == 1
    _, after = nursery.run(tmp_path, "human", again=True)
    assert after["output"] == "Done.\n\n[It is not known whether pay took effect.]"
    assert after["ledger"] == [["in_doubt", 1]]
    assert len(after["answers"]) == 2
    assert all("not known" in answer for answer in after["answers"])
    assert len(effects(tmp_path)) == 1


def test_a_lookup_finds_the_effect_of_a_killed_process(nursery, tmp_path):
    """The service says that it happened: the write is completed without being run again."""
    assert nursery.run(tmp_path, "lookup", dies=True) == (-9, None)
    _, after = nursery.run(tmp_path, "lookup", again=True)
    assert after["ledger"] == [["completed", 1]]
    assert all('"paid":"A1"' in answer for answer in after["answers"])
    assert len(effects(tmp_path)) == 1


def test_a_key_that_the_service_knows_makes_a_second_start_harmless(nursery, tmp_path):
    """The tool is started again with the same key, which the model never sees; the effect exists once."""
    assert nursery.run(tmp_path, "key", dies=True) == (-9, None)
    _, after = nursery.run(tmp_path, "key")
    assert after["ledger"] == [["completed", 2]]
    assert '"paid":"A1"' in after["answers"][0]
    (effect,) = effects(tmp_path)
    assert effect["key"]


@pytest.mark.parametrize(("answer", "happens"), [(True, 1), (False, 0)])
def test_a_person_answers_in_another_process(nursery, tmp_path, answer, happens):
    """The run ends with the question; a new process has the answer, and only a yes runs the call, once."""
    asks = {"approvals": {"tools": ["pay"]}}
    assert nursery.run(tmp_path, "human", config=asks)[1]["output"] == ["c0"]
    assert effects(tmp_path) == []
    _, after = nursery.run(tmp_path, "human", config=asks, answers={"c0": answer}, again=True)
    assert after["output"] == (
        "Done.\n\n[Not run a second time: pay.]" if answer else "Done.\n\n[Not done: pay (a person said no).]"
    )
    assert len(effects(tmp_path)) == happens


def test_without_an_id_a_durable_ledger_refuses_to_write(nursery, tmp_path):
    """No restart could know the run again, so nothing is written, and the model is told."""
    _, after = nursery.run(tmp_path, "human", conversation=None)
    assert effects(tmp_path) == []
    assert after["ledger"] == []
    assert after["output"] == "Done.\n\n[Not done: pay (the tool failed).]"


async def test_a_run_id_names_a_run_that_has_no_conversation(tmp_path):
    """The same run, started again under its id, writes nothing twice."""
    shop = Shop()
    store = pokayoke.open_store(f"sqlite:///{tmp_path}/ledger.db", create=True)
    for _ in range(2):
        agent, guard = guarded([shop.refund], Script([REFUND], "Done."), reads=(), store=store)
        assert (await agent.run("go", run_id="job-7")).output == "Done."
    assert shop.done == [("refund", "A1", 5)]
    guard.close()


def test_a_conversation_that_begins_anew_writes_nothing_twice(nursery, tmp_path):
    """The history is lost and the id of the conversation is not: the ledger answers."""
    nursery.run(tmp_path, "human")
    (tmp_path / "history.json").unlink()
    _, after = nursery.run(tmp_path, "human")
    assert "already" in after["answers"][0]
    assert len(effects(tmp_path)) == 1
