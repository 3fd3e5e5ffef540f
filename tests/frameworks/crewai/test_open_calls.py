"""Calls of a given history that nobody answered: what the model reads of them."""

import pytest
from crewai import Agent
from crewai.tools import tool
from crewai_script import REFUND, Scripted, guard_of

from pokayoke.adapters.crewai import guarded
from pokayoke.core.context.groups import UNANSWERED


@tool("Refund")
def refund(order_id: str, amount: int) -> dict:
    """Refund an order."""
    return {"refunded": order_id}


CALL = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": REFUND}}
HISTORY = [
    {"role": "user", "content": "Refund A1."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "user", "content": "Hello?"},
]


def agent_of(script, guard):
    llm, tools = guarded(guard, script, [refund], run_id="r")
    return Agent(role="Clerk", goal="Help.", backstory="A shop.", llm=llm, tools=tools)


@pytest.mark.parametrize("done", [False, True])
def test_an_open_call_is_sent_with_what_the_ledger_knows(done):
    """A write that is done reads so, one without a record that nothing is known."""
    guard = guard_of([refund])
    if done:
        agent_of(Scripted([("c1", "refund", REFUND)], "Done."), guard).kickoff("Refund A1.")
    script = Scripted("Hello.")
    agent_of(script, guard).kickoff(HISTORY)
    roles = [one["role"] for one in script.seen[-1]["messages"] if one["role"] != "system"]
    assert roles == ["user", "assistant", "tool", "user"]
    (text,) = script.read
    assert text.startswith("Not run again: refund already ran at ") if done else text == UNANSWERED


async def test_an_open_call_is_answered_in_asynchronous_code():
    """CrewAI then calls another method of the model; the caller's messages stay."""

    class Async(Scripted):
        async def acall(self, *given, **more):
            return Scripted.call(self, *given, **more)

    script = Async("Hello.")
    agent = agent_of(script, guard_of([refund]))
    await agent.llm.acall([*HISTORY], tools=[{"type": "function", "function": {"name": "refund", "parameters": {}}}])
    assert script.read == [UNANSWERED]
    assert len(HISTORY) == 3
