"""Calls of a history that nobody answered: what the model reads of them."""

import pytest
from agent_framework import Agent, Content, Message
from agent_framework_support import REFUND, Scripted, guarded_write

from pokayoke.core.context.groups import UNANSWERED


def refund(order_id: str, amount: int) -> dict:
    """Refund an order."""
    return {"refunded": order_id}


def asks(*idents):
    return Message("assistant", [Content.from_function_call(one, "refund", arguments=REFUND) for one in idents])


def history(*between):
    return [Message("user", ["Refund A1."]), *between, Message("user", ["Hello?"])]


def sent(client):
    """The messages of the latest request: the role, and the ids of calls and of results."""
    return [
        (one.role, [part.call_id for part in one.contents if part.type in ("function_call", "function_result")])
        for one in client.asked[-1]["messages"]
    ]


async def test_the_framework_alone_sends_an_open_call():
    """A provider refuses the request."""
    client = Scripted("Hello.")
    await Agent(client, tools=[refund]).run(history(asks("c1")))
    assert sent(client) == [("user", []), ("assistant", ["c1"]), ("user", [])]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("done", [False, True])
async def test_an_open_call_is_sent_with_what_the_ledger_knows(done, stream):
    """A write that is done reads so, one without a record that nothing is known; the caller's messages stay."""
    client = Scripted(*([[("c1", "refund", REFUND)], "Done."] if done else []), "Hello.")
    agent, _ = guarded_write([refund], client)
    session = agent.create_session(session_id="s")
    if done:
        await agent.run("Refund A1.", session=session)
        session.state.clear()
    given = history(asks("c1"))
    if stream:
        async for _ in agent.run(given, session=session, stream=True):
            pass
    else:
        await agent.run(given, session=session)
    assert sent(client)[-4:] == [("user", []), ("assistant", ["c1"]), ("tool", ["c1"]), ("user", [])]
    (text,) = client.read()
    assert text.startswith("Not run again: refund already ran at ") if done else text == UNANSWERED
    assert len(given) == 3


async def test_an_open_call_beside_an_answered_one_joins_its_results():
    """The results of a message stay together, as providers want them; the caller's message of results stays as it was."""
    client = Scripted("Hello.")
    agent, _ = guarded_write([refund], client)
    known = Message("tool", [Content.from_function_result("c2", result="done")])
    await agent.run(history(asks("c1", "c2"), known))
    assert sent(client)[1:3] == [("assistant", ["c1", "c2"]), ("tool", ["c1", "c2"])]
    assert client.read() == [UNANSWERED, "done"]
    assert len(known.contents) == 1


async def test_results_whose_calls_a_service_keeps_stay():
    """Such a request brings the end of a history only."""
    client = Scripted("Hello.")
    agent, _ = guarded_write([refund], client)
    await agent.run(history(asks("c1")), options={"conversation_id": "conv_1"})
    assert sent(client)[-3:] == [("user", []), ("assistant", ["c1"]), ("user", [])]


async def test_a_call_that_the_provider_runs_gets_no_result():
    """Its result is the provider's."""
    client = Scripted("Hello.")
    agent, _ = guarded_write([refund], client)
    call = Content.from_function_call("c1", "search", arguments="{}", informational_only=True)
    await agent.run(history(Message("assistant", [call])))
    assert client.read() == []
