"""Calls of a conversation that nobody answered: what the model reads of them."""

import pytest
from autogen_core import FunctionCall
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    UserMessage,
)
from autogen_support import REFUND, Client, agent_of, asks, guard_of, made, said

from pokayoke.core.context.groups import UNANSWERED


def context(*idents, results=()):
    """A conversation that ends behind these calls."""
    calls = [FunctionCall(one, REFUND[1], REFUND[0]) for one in idents]
    messages = [UserMessage(content="Refund A1.", source="user"), AssistantMessage(content=calls, source="shop")]
    return UnboundedChatCompletionContext(initial_messages=[*messages, *results])


def results(messages):
    """The results in a request, each list one message."""
    found = [one.content for one in messages if isinstance(one, FunctionExecutionResultMessage)]
    return [[(one.call_id, one.content, one.is_error) for one in content] for content in found]


@pytest.mark.parametrize("done", [False, True])
async def test_an_open_call_is_sent_with_what_the_ledger_knows(done):
    """A write that is done reads so and is no error, one without a record that nothing is known; nothing runs."""
    log = []
    tools = made(log)
    guard = guard_of(tools)
    if done:
        await said(agent_of(guard, Client(asks(REFUND), "Done."), tools, run_id="r"))
    before, client, held = [*log], Client("Hello."), context("call_1")
    await said(agent_of(guard, client, tools, run_id="r", model_context=held), "Hello?")
    seen = client.seen[-1][0]
    assert [one.type for one in seen[1:]] == [
        "UserMessage", "AssistantMessage", "FunctionExecutionResultMessage", "UserMessage"
    ]  # fmt: skip
    ((_, text, is_error),) = results(seen)[0]
    assert text.startswith("Not run again: refund already ran at ") if done else text == UNANSWERED
    assert (is_error, log) == (not done, before)
    assert results(await held.get_messages()) == []


async def test_an_open_call_beside_an_answered_one_joins_its_results():
    """The results of a message stay together, as providers want them."""
    known = FunctionExecutionResult(content="done", name="refund", call_id="call_2", is_error=False)
    tools, client = made([]), Client("Hello.")
    held = context("call_1", "call_2", results=[FunctionExecutionResultMessage(content=[known])])
    await said(agent_of(guard_of(tools), client, tools, run_id="r", model_context=held), "Hello?")
    assert results(client.seen[-1][0]) == [[("call_1", UNANSWERED, True), ("call_2", "done", False)]]


async def test_a_call_gets_no_id_of_the_open_one():
    """The history holds it before the run's first request."""
    log = []
    tools, client = made(log), Client(asks(REFUND), "Done.")
    await said(agent_of(guard_of(tools), client, tools, run_id="r", model_context=context("call_1")), "Again.")
    assert [ids for ((ids, _, _),) in results(client.seen[-1][0])] == ["call_1", "call_1_2"]
    assert log == ["A1"]
