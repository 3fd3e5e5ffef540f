"""The guard's questions and ADK's confirmations."""

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import ResumabilityConfig
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google_adk_agents import SPELT, Script, answer, picked, questions, runner, say, text

import pokayoke
from pokayoke.adapters.google_adk import contracts

ASKS = {"refund": {"approval": True}}


@pytest.mark.parametrize("resumable", [False, True])
@pytest.mark.parametrize("confirmed", [True, False])
async def test_an_approval_is_a_confirmation_of_adk(shop, confirmed, resumable):
    """The run pauses with ADK's question, in the host's words. A yes runs the write once, a no never, and both end the run in order."""
    tools, guard = picked(shop, "refund", fields=ASKS, config={"words": {"may_run": "Darf {tool} das?"}})
    model = Script(turns=[[("refund", {"order_id": "A1", "amount": "5"})], "Done."])
    agent = LlmAgent(name="clerk", model=model, tools=tools)
    more = {"resumability_config": ResumabilityConfig(is_resumable=True)} if resumable else {}
    run = runner(agent, guard, **more)
    events = await say(run)
    (question,) = questions(events)
    assert shop.happened() == []
    assert len(model.asked) == 1
    (waiting,) = guard.approvals.list()
    assert question.args["toolConfirmation"]["payload"] == {"approval": waiting.id}
    assert question.args["toolConfirmation"]["hint"] == "Darf refund das?"
    again = {"invocation_id": events[0].invocation_id} if resumable else {}
    events = await say(run, answer(question, confirmed), **again)
    assert len(shop.happened()) == int(confirmed)
    assert ("result" in model.told[-1]) is confirmed
    assert text(events).startswith("Done.")
    assert ("Not done: refund" in text(events)) is not confirmed
    decided = guard.approvals.get(waiting.id)
    assert (decided.status, decided.by) == ("approved" if confirmed else "denied", "ada")


async def test_an_approval_may_also_come_from_outside(shop):
    """Who answers with the command line needs no confirmation: the same call, asked for again, runs."""
    tools, guard = picked(shop, "refund", fields=ASKS)
    refund = [("refund", {"order_id": "A1", "amount": 5})]
    agent = LlmAgent(name="clerk", model=Script(turns=[refund, refund, "Done."]), tools=tools)
    run = runner(agent, guard)
    await say(run)
    guard.approvals.approve(guard.approvals.list()[0].id, by="boss")
    events = await say(run, "It is approved, try again.")
    assert text(events) == "Done."
    assert len(shop.happened()) == 1


async def test_adks_own_gate_stays_and_asks_about_what_will_run(shop):
    """`require_confirmation` asks before the guard claims anything, and its question shows corrected arguments."""
    tools, guard = picked(shop, "refund")
    seen = []
    gated = FunctionTool(tools[0], require_confirmation=lambda **given: seen.append(given) or True)
    model = Script(turns=[[("refund", {"order_id": "A1", "amount": "5"})], "Done."])
    run = runner(LlmAgent(name="clerk", model=model, tools=[gated]), guard)
    (question,) = questions(await say(run))
    assert seen[0] == {"order_id": "A1", "amount": 5}
    assert shop.happened() == []
    events = await say(run, answer(question, True))
    assert text(events) == "Done."
    assert [one["amount"] for one in shop.happened()] == [5]


async def test_a_tool_that_asks_by_itself_is_called_again():
    """What it returned while it waited is no result: with the answer it runs, instead of being replayed."""
    ran = []

    def transfer(amount: int, tool_context: ToolContext) -> dict:
        """Transfer money."""
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="Really?")
            return {"status": "waits"}
        ran.append(amount)
        return {"status": "sent"}

    guard = pokayoke.Guard(contracts([transfer]))
    model = Script(turns=[[("transfer", {"amount": 5})], "Done."])
    run = runner(LlmAgent(name="clerk", model=model, tools=[transfer]), guard)
    events = await say(run)
    (question,) = questions(events)
    assert ran == []
    assert {"status": "waits"} in [one.response for event in events for one in event.get_function_responses()]
    events = await say(run, answer(question, True))
    assert ran == [5]
    assert "sent" in model.told[-1]["result"]
    assert text(events) == "Done."


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_the_answer_to_the_guard_is_none_to_the_tools_own_question(elsewhere):
    """However the guard's question was settled, the tool hears only what it has asked itself."""
    heard = []

    def time_off(days: int, tool_context: ToolContext) -> dict:
        """Ask for days off."""
        said = tool_context.tool_confirmation
        if said is None:
            tool_context.request_confirmation(hint="how many days?", payload={"days": 0})
            return {"status": "waits"}
        heard.append(said.payload)
        return {"status": "sent"}

    guard = pokayoke.Guard(contracts([time_off], fields={"time_off": {"approval": True}}))
    calls_ = [("time_off", {"days": 5})]
    model = Script(turns=[calls_, calls_, "Done."])
    run = runner(LlmAgent(name="a", model=model, tools=[time_off]), guard)
    (question,) = questions(await say(run))
    (waiting,) = guard.approvals.list()
    if elsewhere:
        guard.approvals.approve(waiting.id, by="boss")
    (question,) = questions(await say(run, answer(question, True)))
    assert question.args["toolConfirmation"]["hint"] == "how many days?"
    assert guard.approvals.get(waiting.id).status == "approved"
    assert heard == []
    said = answer(question, True)
    said.parts[0].function_response.response["payload"] = {"days": 3}
    assert text(await say(run, said)) == "Done."
    assert heard == [{"days": 3}]


@pytest.mark.parametrize("args", SPELT)
async def test_a_rule_of_adks_own_gate_and_the_person_see_what_will_run(shop, args):
    """The rule judges the same arguments when the yes comes, and the question shows them to whoever says it."""
    tools, guard = picked(shop, "refund")
    gated = FunctionTool(tools[0], require_confirmation=lambda order_id, amount: amount == 500)
    model = Script(turns=[[("refund", args)], "Done."])
    run = runner(LlmAgent(name="clerk", model=model, tools=[gated]), guard)
    (question,) = questions(await say(run))
    assert question.args["originalFunctionCall"]["args"] == {"order_id": "A1", "amount": 500}
    assert text(await say(run, answer(question, True))) == "Done."
    assert [one["amount"] for one in shop.happened()] == [500]


@pytest.mark.parametrize("yes", [True, False])
async def test_a_write_that_a_user_wants_once_more_is_a_confirmation(shop, yes):
    """A write that repeats only if a person says so pauses the run in a later turn, and a yes is for one more."""
    tools, guard = picked(shop, "refund", fields={"refund": {"repeats": "once"}})
    asks = [("refund", {"order_id": "A1", "amount": 5})]
    agent = LlmAgent(name="clerk", model=Script(turns=[asks, "Done.", asks, "Done again."]), tools=tools)
    run = runner(agent, guard)
    assert questions(await say(run)) == []
    (question,) = questions(await say(run, "Once more."))
    assert len(shop.happened()) == 1
    await say(run, answer(question, yes))
    assert len(shop.happened()) == 1 + yes
    assert guard.approvals.list() == ()
