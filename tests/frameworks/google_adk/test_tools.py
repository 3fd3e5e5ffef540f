"""Callbacks, threads, media and long-running tools around a guarded call."""

import threading

import pytest
from google.adk.agents import LlmAgent, LoopAgent
from google.adk.apps import App
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import Workflow
from google.adk.workflow._errors import NodeInterruptedError
from google.genai import types
from google_adk_agents import SPELT, Script, picked, runner, say, text

import pokayoke
from pokayoke.adapters.google_adk import GuardPlugin, contracts


async def test_a_tool_that_adk_interrupts_has_done_nothing_yet():
    """What interrupts it goes on to ADK, and the claim of the write is given back: asked for again, it runs."""
    ran = []

    async def transfer(amount: int) -> dict:
        """Transfer money."""
        ran.append(amount)
        if len(ran) == 1:
            raise NodeInterruptedError
        return {"status": "sent"}

    guard = pokayoke.Guard(contracts([transfer]))
    model = Script(turns=[[("transfer", {"amount": 5})], [("transfer", {"amount": 5})], "Done."])
    run = runner(LlmAgent(name="clerk", model=model, tools=[transfer]), guard)
    events = await say(run)
    assert ran == [5]
    assert not any(event.get_function_responses() for event in events)
    events = await say(run, "again")
    assert ran == [5, 5]
    assert "sent" in model.told[-1]["result"]
    assert text(events) == "Done."


async def test_callbacks_of_the_agent_see_and_change_what_runs(shop):
    """They get corrected arguments; what they make of them is checked again; what they answer themselves counts."""
    tools, guard = picked(shop, "get_order", "ping")
    seen = []

    def before(tool, args, tool_context):
        seen.append((tool.name, dict(args)))
        if tool.name == "ping":
            return {"mine": True}
        args["qty"] = 7 if args["qty"] == 2 else "many"
        return None

    turns = [
        [("get_order", {"order_id": "A1", "qty": "2"}), ("ping", {})],
        [("get_order", {"order_id": "B2", "qty": 3})],
        "Done.",
    ]
    model = Script(turns=turns)
    agent = LlmAgent(name="clerk", model=model, tools=tools, before_tool_callback=before)
    await say(runner(agent, guard))
    assert seen[:2] == [("get_order", {"order_id": "A1", "qty": 2}), ("ping", {})]
    assert [(one["order_id"], one["qty"]) for one in shop.happened()] == [("A1", 7)]
    assert model.told[1] == {"mine": True}
    assert "qty" in model.told[2]["error"]


@pytest.mark.parametrize("amount", [50, "50"])
async def test_what_a_plugin_before_the_guard_makes_of_arguments_counts(shop, amount):
    """The tool gets what it changed, checked like anything else; of a call that cannot be read there is nothing."""
    tools, guard = picked(shop, "refund")

    class Capped(BasePlugin):
        async def before_tool_callback(self, *, tool, tool_args, tool_context):
            tool_args["amount"] = "7" if tool_args.get("order_id") == "A1" else "much"

    first = [("refund", {"order_id": "A1", "amount": amount}), ("refund", {"order_id": "B2", "amount": amount})]
    model = Script(turns=[first, "Done."])
    app = App(
        name="shop",
        root_agent=LlmAgent(name="clerk", model=model, tools=tools),
        plugins=[Capped(name="capped"), GuardPlugin(guard)],
    )
    await say(Runner(app=app, session_service=InMemorySessionService()))
    assert [(one["order_id"], one["amount"]) for one in shop.happened()] == [("A1", 7)]
    assert "amount" in model.told[1]["error"]


@pytest.mark.parametrize("args", SPELT)
@pytest.mark.parametrize("name", ["refund", "Refund"])
async def test_a_plugin_before_the_guard_judges_what_would_run(shop, name, args):
    """A plugin that refuses large amounts refuses one that the guard would have put right behind it."""
    tools, guard = picked(shop, "refund")

    class Strict(BasePlugin):
        async def before_tool_callback(self, *, tool, tool_args, tool_context):
            amount = tool_args.get("amount")
            return {"error": "too much"} if isinstance(amount, int) and amount > 100 else None

    model = Script(turns=[[(name, args)], "Done."])
    app = App(
        name="shop",
        root_agent=LlmAgent(name="clerk", model=model, tools=tools),
        plugins=[Strict(name="strict"), GuardPlugin(guard)],
    )
    await say(Runner(app=app, session_service=InMemorySessionService()))
    assert shop.happened() == []
    assert model.told == [{"error": "too much"}]


async def test_a_synchronous_tool_leaves_the_loop_free():
    """It runs in a thread, so that it can be given up; with threads=0 it stays where ADK runs it."""
    where = []

    def look() -> str:
        """Look."""
        where.append(threading.current_thread() is threading.main_thread())
        return "seen"

    for threads in (16, 0):
        guard = pokayoke.Guard(contracts([look], reads=["look"]))
        agent = LlmAgent(name="clerk", model=Script(turns=[[("look", {})], "Done."]), tools=[look])
        await say(runner(agent, guard, plugin=GuardPlugin(guard, threads=threads)))
    assert where == [False, True]


async def test_media_of_a_tool_reaches_the_model_beside_the_text():
    """A picture is not data to be checked; ADK finds it where it looks for it."""

    def draw() -> dict:
        """Draw a map."""
        return {"name": "map", "image": types.Part.from_bytes(data=b"\x89PNG", mime_type="image/png")}

    guard = pokayoke.Guard(contracts([draw], reads=["draw"]))
    model = Script(turns=[[("draw", {})], "Done."])
    await say(runner(LlmAgent(name="clerk", model=model, tools=[draw]), guard))
    parts = [part.function_response for one in model.asked[-1].contents for part in one.parts if part.function_response]
    assert parts[0].parts[0].inline_data.data == b"\x89PNG"
    assert '"map"' in parts[0].response["result"]


async def test_a_long_running_tool_is_started_once_and_may_answer_later():
    """Nothing yet is no result; asked for again, the write is not started again."""
    started = []

    def order(item: str) -> None:
        """Order something; the answer takes days."""
        started.append(item)

    guard = pokayoke.Guard(contracts([order]))
    tool = LongRunningFunctionTool(order)
    model = Script(turns=[[("order", {"item": "a"})], [("order", {"item": "a"})], "Done."])
    run = runner(LlmAgent(name="clerk", model=model, tools=[tool]), guard)
    events = await say(run)
    assert not any(event.get_function_responses() for event in events)
    await say(run, "Well?")
    assert started == ["a"]


async def test_a_replayed_call_ends_a_loop_as_it_did_before():
    """A tool of your own may leave a `LoopAgent`; in the next turn its call is replayed, and leaves it again."""
    left = []

    def leave(tool_context: ToolContext) -> dict:
        """Leave the loop."""
        left.append(1)
        tool_context.actions.escalate = True
        tool_context.actions.skip_summarization = True
        return {}

    critic = LlmAgent(name="critic", model=Script(turns=[[("leave", {})]] * 2 + ["On."]), tools=[leave])
    run = runner(LoopAgent(name="loop", sub_agents=[critic], max_iterations=3), pokayoke.Guard(contracts([leave])))
    for turn in (1, 2):
        await say(run)
        assert len(critic.model.asked) == turn
    assert left == [1]


def graph(tool, guard, *, then):
    """A runner over a workflow in which the program itself calls a tool with A1, and hands on what that brings."""

    def first(node_input):
        return {"order_id": "A1", "amount": 5}

    flow = Workflow(name="flow", edges=[("START", first, tool, then)])
    return runner(flow, guard)


async def test_a_tool_of_a_workflow_hands_its_value_on(shop):
    """No model reads what a node brings, so the next node gets the value itself, also where the call is replayed."""
    (refund,), guard = picked(shop, "refund", fields={"refund": {"repeats": "once"}})
    got = []

    def then(node_input):
        got.append(node_input)

    run = graph(FunctionTool(refund), guard, then=then)
    await say(run)
    await say(run, "again")
    assert got == [{"refunded": "A1", "amount": 5}] * 2
    assert len(shop.happened()) == 1


@pytest.mark.parametrize("fields", [{"approval": True}, {"roles": ("boss",)}], ids=["pending", "refused"])
async def test_a_workflow_does_not_go_on_without_the_value_of_a_tool(shop, fields):
    """A call that did not end ok fails its node with the reason; nothing else is handed on for its value."""
    (refund,), guard = picked(shop, "refund", fields={"refund": fields})
    got = []

    def then(node_input):
        got.append(node_input)

    with pytest.raises(Exception, match="refund"):
        await say(graph(FunctionTool(refund), guard, then=then))
    assert got == shop.happened() == []
