"""Workbenches, agents as tools, teams, contexts and cancellation."""

import asyncio

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import HandoffTermination, MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_core.tools import FunctionTool, StaticWorkbench
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_support import INFO, REFUND, Client, agent_of, asks, guard_of, made, said
from model_server import ModelServer, Turn

import pokayoke
from pokayoke.adapters.autogen import guarded
from pokayoke.stores.values import RecordQuery


async def test_the_tools_of_workbenches_are_guarded_too():
    """A workbench behind the guard is started by nobody else, its texts of exceptions stay here, and names are enough."""
    log = []
    refund, find = made(log)

    async def explode(order: str) -> str:
        """Explode."""
        raise RuntimeError("secret")

    bench = StaticWorkbench([FunctionTool(one, description="x") for one in (refund, explode)])
    listed = await bench.list_tools()
    guard = guard_of([*listed, find])
    client = Client(asks(REFUND, ("explode", "{'order': 'A1',}"), ("find", '{"order": "A1"}')), asks(REFUND), "Done.")
    parts = guarded(guard, client, [find, bench])
    await AssistantAgent("shop", **parts, max_tool_iterations=5).run(task="Go.")
    answers = [one.content for one in client.seen[1][0][-1].content]
    assert log == ["A1"]
    assert "refunded A1" in answers[0]
    assert "secret" not in str(client.seen)
    assert "A1 is open" in answers[2]
    with pytest.raises(pokayoke.errors.UsageError, match="refund has no contract"):
        await AssistantAgent("shop", **guarded(guard_of([find]), Client("x"), bench)).run(task="Go.")


async def test_what_an_agent_as_a_tool_says_is_streamed_and_its_result_is_checked():
    """Events of the inner agent come through; the result goes through the guard."""
    log = []
    tools = made(log)
    inner = agent_of(guard_of(tools), Client(asks(REFUND), "Refunded."), tools, name="cashier")
    tool = AgentTool(inner)
    client = Client(asks(("cashier", '{"task": "Refund A1."}')), "All done.")
    agent = agent_of(guard_of([tool]), client, [tool])
    seen = [type(item).__name__ async for item in agent.run_stream(task="Go.")]
    assert seen.count("ToolCallExecutionEvent") == 2
    assert log == ["A1"]
    assert "Refunded." in client.seen[1][0][-1].content[0].content


async def test_agents_of_a_team_hand_over_and_a_cut_message_hands_nobody_over():
    """A handoff is AutoGen's, unless its message was cut: then it is refused like any call."""

    async def play(stop):
        tools = made([])
        turns = [Turn(calls=(("call_1", "transfer_to_user", "{}"),), stop=stop), Turn("I stay.")]
        with ModelServer(turns) as server:
            client = OpenAIChatCompletionClient(model="m", base_url=f"{server.url}/v1", api_key="k", model_info=INFO)
            agent = agent_of(guard_of(tools), client, tools, handoffs=["user"])
            team = RoundRobinGroupChat(
                [agent], termination_condition=HandoffTermination("user") | MaxMessageTermination(2)
            )
            result = await team.run(task="Go.")
            await client.close()
            return type(result.messages[-1]).__name__, len(server.bodies)

    assert await play(None) == ("HandoffMessage", 1)
    assert await play("length") == ("TextMessage", 2)


@pytest.mark.parametrize(("run_id", "times"), [(None, 2), ("thread-1", 1)])
async def test_an_agent_that_was_reset_begins_a_new_run(run_id, times):
    """What a conversation did is no answer to the next one, unless both have the user's own id."""
    log = []
    tools = made(log)
    client = Client(*[asks(REFUND), "Done."] * 2)
    context = BufferedChatCompletionContext(20)
    agent = agent_of(guard_of(tools), client, tools, run_id=run_id, model_context=context)
    await said(agent)
    await agent.on_reset(CancellationToken())
    assert not await context.get_messages()
    await said(agent)
    assert len(log) == times


@pytest.mark.parametrize(("run_id", "times"), [(None, 2), ("thread-1", 1)])
async def test_an_agent_that_loads_another_conversation_begins_a_new_run(run_id, times):
    """What one customer's conversation did is no answer to another's, unless both have the user's own id."""
    log = []
    tools = made(log)
    guard = guard_of(tools)
    other = await agent_of(guard, Client(), tools).save_state()
    agent = agent_of(guard, Client(*[asks(REFUND), "Done."] * 2), tools, run_id=run_id)
    await said(agent)
    await agent.load_state(other)
    await said(agent)
    assert len(log) == times


async def test_a_context_may_go_from_agent_to_agent():
    """Each request of an application makes its agent anew over the same context; only the latest one listens to it."""
    log, context = [], BufferedChatCompletionContext(buffer_size=10)
    tools = made(log)
    guard = guard_of(tools)
    for _ in range(1_500):
        guarded(guard, None, (), model_context=context)
    agent = agent_of(guard, Client(*[asks(REFUND), "Done."] * 2), tools, model_context=context)
    await said(agent)
    await agent.on_reset(CancellationToken())
    await said(agent)
    assert log == ["A1", "A1"]


async def test_conversations_side_by_side_do_not_mix():
    """Ten agents over one guard, with equal ids and arguments: each refunds once, and no stuck one stops another."""
    log = []
    tools = made(log)
    guard = guard_of(tools)

    def client(number):
        return (
            Client(asks(("invent", "{}")), asks(("invent", "{}")), "No.") if number % 2 else Client(asks(REFUND), "Ok.")
        )

    agents = [agent_of(guard, client(number), tools) for number in range(10)]
    assert await asyncio.gather(*map(said, agents)) == ["Ok.", "No."] * 5
    assert log == ["A1"] * 5


async def test_a_cancelled_token_cancels_the_run():
    """The tool is cancelled and the model is not asked again; the write that was running is in doubt."""
    begun = asyncio.Event()

    async def refund(order: str) -> str:
        """Refund an order."""
        begun.set()
        await asyncio.sleep(30)

    token = CancellationToken()
    guard = guard_of([refund])
    agent = agent_of(guard, Client(asks(REFUND), "never"), [refund])
    running = asyncio.ensure_future(agent.run(task="Refund A1.", cancellation_token=token))
    await begun.wait()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 20)
    assert [record.state for record in guard.store.records(RecordQuery())] == ["in_doubt"]
