"""People who approve and deny, deferred requests, and tools that run elsewhere."""

import pytest
from pydantic_ai import Agent, Tool
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_ai.messages import (
    ModelResponse,
    ToolCallPart,
)
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDefinition, ToolDenied
from pydantic_ai.toolsets import ExternalToolset, FunctionToolset
from pydantic_ai_agents import ASKS, MISWRITTEN, OBJECT, REFUND, Script, Shop, call, guarded

import pokayoke
from pokayoke.adapters.pydantic_ai import Guarded, contracts, definitions


async def test_a_call_that_waits_for_a_person_ends_the_run_and_runs_once_approved():
    """Nothing has happened when the requests come back; the approval lets the same call run, once."""
    shop = Shop()
    script = Script([REFUND, call("find", "c2", order="A1")], "Done.")
    agent, guard = guarded([shop.find, shop.refund], script, config=ASKS, output_type=[str, DeferredToolRequests])
    waiting = await agent.run("go")
    assert [one.tool_name for one in waiting.output.approvals] == ["refund"]
    (asked,) = guard.approvals.list()
    assert waiting.output.metadata["c1"]["approval"] == asked.id
    assert shop.done == [("find", "A1")]
    answers = DeferredToolResults(approvals={"c1": True}, metadata={"c1": {"by": "ada", "reason": "known customer"}})
    result = await agent.run(message_history=waiting.all_messages(), deferred_tool_results=answers)
    assert result.output == "Done."
    assert shop.done == [("find", "A1"), ("refund", "A1", 5)]
    decided = guard.approvals.get(asked.id)
    assert (decided.status, decided.by, decided.reason) == ("approved", "ada", "known customer")


async def test_the_question_in_the_metadata_may_be_the_hosts_own():
    """What a person reads beside a deferred call is from the host's words."""
    config = {**ASKS, "words": {"may_run": "Darf {tool} das?"}}
    shop = Shop()
    agent, _ = guarded(
        [shop.refund], Script([REFUND]), reads=(), config=config, output_type=[str, DeferredToolRequests]
    )
    assert (await agent.run("go")).output.metadata["c1"]["message"] == "Darf refund das?"


async def test_a_denial_is_passed_on():
    """The model reads it, nothing runs, and the same call is refused when it comes again."""
    shop = Shop()
    script = Script([REFUND], [call("refund", "c2", order="A1", amount=5)], "Not done.")
    agent, guard = guarded([shop.refund], script, reads=(), config=ASKS, output_type=[str, DeferredToolRequests])
    waiting = await agent.run("go")
    (asked,) = guard.approvals.list()
    answers = DeferredToolResults(approvals={"c1": ToolDenied("Not this customer.")})
    result = await agent.run(message_history=waiting.all_messages(), deferred_tool_results=answers)
    assert result.output == "Not done.\n\n[Not done: refund (a person said no).]"
    assert shop.done == []
    assert guard.approvals.get(asked.id).status == "denied"
    assert script.answers[0] == "Not this customer."
    assert "refund" in script.answers[1]


async def test_the_user_reads_of_a_denial_that_it_was_one():
    """A model that does not try again leaves nothing waiting."""
    script = Script([REFUND], "Well then.")
    agent, _ = guarded([Shop().refund], script, reads=(), config=ASKS, output_type=[str, DeferredToolRequests])
    waiting = await agent.run("go", conversation_id="a")
    no = DeferredToolResults(approvals={"c1": False})
    result = await agent.run(message_history=waiting.all_messages(), deferred_tool_results=no)
    assert result.output == "Well then.\n\n[Not done: refund (a person said no).]"


async def test_an_edited_approval_runs_what_was_edited():
    """The person who changes the arguments has approved the changed call and no other; none waits any more."""
    shop = Shop()
    script = Script([REFUND], "Done.")
    agent, guard = guarded([shop.refund], script, reads=(), config=ASKS, output_type=[str, DeferredToolRequests])
    waiting = await agent.run("go", conversation_id="a")
    answers = DeferredToolResults(approvals={"c1": ToolApproved(override_args={"order": "A1", "amount": 3})})
    result = await agent.run(message_history=waiting.all_messages(), deferred_tool_results=answers)
    assert (result.output, shop.done) == ("Done.", [("refund", "A1", 3)])
    known = {one.arguments["amount"]: one.status for one in guard.approvals.list(waiting=False)}
    assert known == {5: "denied", 3: "approved"}


async def test_an_edit_that_changes_nothing_is_a_yes():
    """Arguments that mean the same are the call that was asked about."""
    shop = Shop()
    script = Script([REFUND], "Done.")
    agent, guard = guarded([shop.refund], script, reads=(), config=ASKS, output_type=[str, DeferredToolRequests])
    waiting = await agent.run("go")
    answers = DeferredToolResults(approvals={"c1": ToolApproved(override_args={"amount": "5", "order": "A1"})})
    await agent.run(message_history=waiting.all_messages(), deferred_tool_results=answers)
    assert shop.done == [("refund", "A1", 5)]
    assert [one.status for one in guard.approvals.list(waiting=False)] == ["approved"]


async def test_a_person_decides_elsewhere_and_a_refusal_stands():
    """What was denied at the guard does not run because the framework's answer says yes."""
    shop = Shop()
    script = Script([REFUND], "Not done.")
    agent, guard = guarded([shop.refund], script, reads=(), config=ASKS, output_type=[str, DeferredToolRequests])
    waiting = await agent.run("go")
    guard.approvals.deny(guard.approvals.list()[0].id, by="ada")
    answers = DeferredToolResults(approvals={"c1": True})
    await agent.run(message_history=waiting.all_messages(), deferred_tool_results=answers)
    assert shop.done == []


async def test_without_deferred_requests_the_model_is_told_and_the_run_goes_on():
    """An agent whose output type does not know deferred requests is not made to fail by one."""
    shop = Shop()
    script = Script([REFUND], "It waits for an approval.")
    agent, guard = guarded([shop.refund], script, reads=(), config=ASKS)
    assert (await agent.run("go")).output == "It waits for an approval.\n\n[Not done: refund (it waits for a person).]"
    assert shop.done == []
    assert len(guard.approvals.list()) == 1
    guard.approvals.approve(guard.approvals.list()[0].id, by="ada")
    again = Script([REFUND], "Done.")
    with agent.override(model=again.model):
        await agent.run("go")
    assert shop.done == []  # another run: its question is another one


async def test_a_tool_that_the_framework_asks_about_is_judged_before_a_person_is():
    """Nobody is asked about arguments that do not fit; what fits is asked about once, then runs once."""
    shop = Shop()
    script = Script([call("refund", order="A1")], [REFUND], "Done.")
    tool = Tool(shop.refund, requires_approval=True)
    agent, _ = guarded([tool], script, reads=(), output_type=[str, DeferredToolRequests])
    waiting = await agent.run("go")
    assert len(script.asked) == 2
    assert "amount" in script.answers[0]
    answers = DeferredToolResults(approvals={waiting.output.approvals[0].tool_call_id: True})
    await agent.run(message_history=waiting.all_messages(), deferred_tool_results=answers)
    assert shop.done == [("refund", "A1", 5)]


async def test_a_tool_elsewhere_gets_only_what_fits_of_messages_that_are_whole():
    """The calls of an external tool are judged before they leave the run; its result comes back unguarded."""
    schema = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
    tool = ToolDefinition(name="ship", parameters_json_schema=schema)
    guard = pokayoke.Guard(contracts([tool]))
    cut = ModelResponse([call("ship", "c2", order="A1")], finish_reason="length")
    script = Script([call("ship")], cut, [call("ship", "c3", order="A1")], "Shipped.")
    agent = Agent(
        script.model,
        toolsets=[ExternalToolset([tool])],
        capabilities=[Guarded(guard)],
        output_type=[str, DeferredToolRequests],
    )
    assert isinstance((await agent.run("go")).output, str)  # two bad rounds: the tools are gone
    assert "order" in script.answers[0]
    assert "cut" in script.answers[1]
    script.turns = ([call("ship", "c4", order="A1")], "Shipped.")
    script.asked.clear()
    waiting = await agent.run("go")
    (asked,) = waiting.output.calls
    answers = DeferredToolResults(calls={asked.tool_call_id: {"tracking": "T1"}})
    result = await agent.run(message_history=waiting.all_messages(), deferred_tool_results=answers)
    assert result.output == "Shipped."


@pytest.mark.parametrize("text", MISWRITTEN)
@pytest.mark.parametrize("raised", [CallDeferred, ApprovalRequired])
async def test_a_tool_that_is_answered_elsewhere_hands_its_call_on_as_it_counts(text, raised):
    """A tool that raises the framework's own deferral has its call leave the run as the guard has read it."""

    def refund(order: str, amount: int) -> str:
        raise raised

    script = Script([ToolCallPart("refund", text, "c1")])
    agent, _ = guarded([refund], script, reads=(), output_type=[str, DeferredToolRequests])
    waiting = await agent.run("go")
    for one in (*waiting.output.calls, *waiting.output.approvals, *waiting.all_messages()[1].tool_calls):
        assert one.args_as_dict() == {"order": "A1", "amount": 5}


@pytest.mark.parametrize("text", MISWRITTEN)
async def test_a_tool_elsewhere_gets_a_call_as_it_counts(text):
    """What the guard could only read or fit with a change leaves the run changed, and stands so in the history."""
    (tool,) = await definitions(FunctionToolset([Shop().refund]))
    agent = Agent(
        Script([ToolCallPart("refund", text, "c1")]).model,
        toolsets=[ExternalToolset([tool])],
        capabilities=[Guarded(pokayoke.Guard(contracts([tool])))],
        output_type=[str, DeferredToolRequests],
    )
    result = await agent.run("go")
    for one in (*result.output.calls, *result.all_messages()[1].tool_calls):
        assert one.args_as_dict() == {"order": "A1", "amount": 5}


@pytest.mark.parametrize("text", MISWRITTEN)
@pytest.mark.parametrize("own", [False, True])
async def test_a_person_is_shown_a_call_as_it_counts(text, own):
    """Whoever is asked, by the guard or by the framework, reads the arguments that a yes will run, once."""
    shop = Shop()
    tool, config = Tool(shop.refund, requires_approval=own), None if own else ASKS
    script = Script([ToolCallPart("refund", text, "c1")], "Done.")
    agent, _ = guarded([tool], script, reads=(), config=config, output_type=[str, DeferredToolRequests])
    waiting = await agent.run("go")
    assert waiting.output.approvals[0].args_as_dict() == {"order": "A1", "amount": 5}
    yes = DeferredToolResults(approvals={"c1": True})
    assert (await agent.run(message_history=waiting.all_messages(), deferred_tool_results=yes)).output == "Done."
    assert shop.done == [("refund", "A1", 5)]


async def test_a_tool_elsewhere_that_a_person_has_to_approve_waits():
    """The framework has no approval for such a tool; the guard's holds all the same."""
    tool = ToolDefinition(name="ship", parameters_json_schema=OBJECT)
    guard = pokayoke.Guard(contracts([tool]), config={"approvals": {"tools": ["ship"]}})
    agent = Agent(
        Script([call("ship")], "It waits.").model,
        toolsets=[ExternalToolset([tool])],
        capabilities=[Guarded(guard)],
        output_type=[str, DeferredToolRequests],
    )
    assert (await agent.run("go", conversation_id="a")).output.startswith("It waits.")
    guard.approvals.approve(guard.approvals.list()[0].id, by="ada")
    with agent.override(model=Script([call("ship")]).model):
        assert (await agent.run("go", conversation_id="a")).output.calls


async def test_another_capability_may_answer_for_a_person_within_the_run():
    """It is asked although the output type knows no deferred requests, and its yes reaches the guard."""
    shop = Shop()
    guard = pokayoke.Guard(contracts([shop.refund]), config=ASKS)
    answers = HandleDeferredToolCalls(handler=lambda ctx, requests: requests.build_results(approve_all=True))
    script = Script([REFUND], "Done.")
    agent = Agent(script.model, tools=[shop.refund], capabilities=[Guarded(guard), answers])
    assert (await agent.run("go")).output == "Done."
    assert shop.done == [("refund", "A1", 5)]
    assert [one.status for one in guard.approvals.list(waiting=False)] == ["approved"]


@pytest.mark.parametrize("yes", [True, False])
@pytest.mark.parametrize("durable", [True, False])
async def test_a_write_that_a_user_wants_once_more_is_deferred(tmp_path, yes, durable):
    """A write that repeats only if a person says so ends the run in a later turn, and a yes is for one more."""
    url = f"sqlite:///{tmp_path}/l.db" if durable else None
    if url:
        pokayoke.open_store(url, create=True).close()
    shop = Shop()
    script = Script([REFUND], "Done.", [call("refund", "c2", order="A1", amount=5)], "Done again.")
    fields = {"refund": {"repeats": "once"}}
    output = [str, DeferredToolRequests]
    agent, guard = guarded([shop.refund], script, reads=(), fields=fields, store=url, output_type=output)
    first = await agent.run("go", conversation_id="a")
    waiting = await agent.run("Once more.", message_history=first.all_messages(), conversation_id="a")
    assert [one.tool_name for one in waiting.output.approvals] == ["refund"]
    assert len(shop.done) == 1
    answers = DeferredToolResults(approvals={"c2": yes})
    ended = await agent.run(message_history=waiting.all_messages(), deferred_tool_results=answers, conversation_id="a")
    assert len(shop.done) == 1 + yes
    assert guard.approvals.list() == ()
    assert ("refund" in ended.output) is not yes


async def test_an_agent_that_defers_nothing_replays_a_repetition():
    """Where nothing takes a deferred call, the model reads that the write was not run again."""
    shop = Shop()
    script = Script([REFUND], "Done.", [call("refund", "c2", order="A1", amount=5)], "Done again.")
    agent, _ = guarded([shop.refund], script, reads=(), fields={"refund": {"repeats": "once"}})
    first = await agent.run("go", conversation_id="a")
    await agent.run("Once more.", message_history=first.all_messages(), conversation_id="a")
    assert script.answers[-1].startswith("Not run again")
    assert len(shop.done) == 1
