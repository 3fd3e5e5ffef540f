"""Conversations of one agent: turns, last words, approvals, restarts."""

import asyncio

import pytest
from autogen_core.models import AssistantMessage, SystemMessage, UserMessage
from autogen_core.tools import FunctionTool
from autogen_support import REFUND, Client, agent_of, asks, guard_of, made, said
from pydantic import BaseModel

import pokayoke
from pokayoke.adapters.autogen import calls, contracts, guarded, message


async def test_after_two_bad_rounds_the_tools_go_and_the_instruction_stays_out_of_the_history():
    """The instruction is a system message of that request, beside the agent's own, and the context never holds it."""
    client = Client(asks(("invent", "{}")), asks(("invent", "{}")), "I could not.")
    tools = made([])
    agent = agent_of(guard_of(tools), client, tools)
    assert await said(agent) == "I could not."
    messages, offered = client.seen[-1]
    assert not offered
    assert "Tools are off" in messages[1].content
    assert isinstance(messages[1], SystemMessage)
    assert "Tools are off" not in str(await agent.model_context.get_messages())


async def test_each_task_is_a_turn():
    """The next task has its tools again; an equal write of a task that says the same is a new effect after an answer."""
    log = []
    tools = made(log)
    stuck = [asks(("invent", "{}")), asks(("invent", "{}")), "No."]
    agent = agent_of(guard_of(tools), Client(*stuck, asks(REFUND), "Done.", asks(REFUND), "Again."), tools)
    assert [await said(agent), await said(agent), await said(agent)] == ["No.", "Done.", "Again."]
    assert log == ["A1", "A1"]


async def test_a_result_that_is_the_last_word_is_the_plain_value_and_a_failure_says_so():
    """With the default of one iteration, the summary is what the user reads: no page, no markup, no exception's text."""

    async def refund(order: str) -> str:
        """Refund an order."""
        if order == "B2":
            raise RuntimeError("secret")
        return "<!doctype html><html>502</html>" if order == "C3" else f"refunded {order}"

    fields = {"refund": {"output_schema": {"type": "string"}, "content_type": "application/json"}}
    unknown = "It is not known whether refund took effect."
    for order, text in (("A1", "refunded A1"), ("B2", unknown), ("C3", unknown)):
        guard = pokayoke.Guard(contracts([refund], fields=fields))
        client = Client(asks(("refund", f'{{"order": "{order}"}}')))
        last = await said(agent_of(guard, client, [refund], max_tool_iterations=1))
        assert last == text
        assert "secret" not in last
        assert "502" not in last


async def test_a_reflection_that_calls_tools_is_answered_with_words():
    """`reflect_on_tool_use` raises by itself if the model calls a tool once more; here its thought counts, or the fallback."""
    log = []
    tools = made(log)
    client = Client(asks(REFUND), asks(REFUND, thought="It is refunded."))
    agent = agent_of(guard_of(tools), client, tools, max_tool_iterations=1, reflect_on_tool_use=True)
    assert await said(agent) == "It is refunded."
    assert log == ["A1"]


async def test_a_typed_answer_is_left_alone():
    """A note beside the JSON of an `output_content_type` would break it."""

    class Answer(BaseModel):
        done: bool

    async def refund(order: str) -> str:
        """Refund an order."""
        raise RuntimeError("no")

    client = Client(asks(REFUND), '{"done": false}')
    agent = agent_of(guard_of([refund]), client, [refund], output_content_type=Answer)
    assert (await said(agent)) == Answer(done=False)


async def test_a_demand_for_a_tool_that_is_denied_is_dropped():
    """Providers refuse a request that demands a tool it does not offer; the words for all of them stay."""
    functions = made([])
    refund, find = tools = [FunctionTool(function, description="") for function in functions]
    client, heard = Client("Done.", "Done.", "Done."), []
    inner, client.create = client.create, lambda messages, **more: heard.append(more) or inner(messages, **more)
    asked = guarded(guard_of(functions, config={"access": {"deny": ["refund"]}}), client, functions)["model_client"]
    for choice in (refund, find, "required"):
        await asked.create([UserMessage(content="Go.", source="user")], tools=tools, tool_choice=choice)
    assert [more["tool_choice"] for more in heard] == ["auto", find, "required"]


async def test_a_call_that_needs_approval_is_answered_and_runs_once_approved():
    """AutoGen has no interrupt: the run ends, the question waits in the store, and the next task finds the answer."""
    log = []
    tools = made(log)
    guard = guard_of(tools, {"approvals": {"tools": ["refund"]}})
    agent = agent_of(guard, Client(asks(REFUND), "It waits for approval.", asks(REFUND), "Done."), tools)
    assert (await said(agent)).startswith("It waits for approval.")
    assert not log
    guard.approvals.approve(guard.approvals.list()[0].id, by="bob")
    assert await said(agent, "Go on.") == "Done."
    assert log == ["A1"]


async def test_a_callback_can_ask_while_the_agent_waits():
    """`on_ask` may await a person; the agent goes on with the answer."""
    log = []
    tools = made(log)

    async def ask(question):
        await asyncio.sleep(0)
        return question.arguments == {"order": "A1"}

    fields = {one.__name__: {"output_schema": "text"} for one in tools}
    config = {"approvals": {"tools": ["refund"]}}
    guard = pokayoke.Guard(contracts(tools, fields=fields), config=config, on_ask=ask)
    assert await said(agent_of(guard, Client(asks(REFUND), "Done."), tools)) == "Done."
    assert log == ["A1"]


def test_a_tool_without_a_contract_is_said_at_once():
    """It is the programmer's mistake."""
    refund, find = made([])
    with pytest.raises(pokayoke.errors.UsageError, match="refund has no contract"):
        guarded(guard_of([find]), Client(), [refund, find])


def test_a_guarded_agent_is_not_dumped():
    """What is read back from a dump would not be guarded."""
    tools = made([])
    with pytest.raises(pokayoke.errors.UsageError, match="cannot be dumped"):
        agent_of(guard_of(tools), Client(), tools).dump_component()


def test_calls_and_message_are_for_loops_of_ones_own():
    """A reply's calls go through a run by hand, and the outcome becomes a result."""
    with guard_of(made([])).run() as run:
        outcome = run.call(calls(asks(("find", "{'order': 'A1'}")), run)[0], invoke=lambda arguments: "open")
    result = message(outcome)
    assert (result.call_id, result.name, result.is_error) == ("call_1", "find", False)


async def test_a_conversation_that_was_saved_goes_on_with_fresh_ids(tmp_path):
    """State loaded into a new agent under the same id: a wish after its answer is a new one, and no id comes again."""
    store = f"sqlite:///{tmp_path / 'ledger.db'}"
    pokayoke.open_store(store, create=True).close()
    log = []
    tools = made(log)
    guard = guard_of(tools, store=store)
    first = agent_of(guard, Client(asks(REFUND), "Done."), tools, run_id="thread-7")
    await said(first)
    client = Client(asks(REFUND), "Again.")
    second = agent_of(guard, client, tools, run_id="thread-7")
    await second.load_state(await first.save_state())
    assert await said(second) == "Again."
    assert log == ["A1", "A1"]
    asked = [
        call.id
        for one in client.seen[-1][0]
        if isinstance(one, AssistantMessage) and not isinstance(one.content, str)
        for call in one.content
    ]
    assert len(asked) == len({*asked}) == 2
    guard.close()
