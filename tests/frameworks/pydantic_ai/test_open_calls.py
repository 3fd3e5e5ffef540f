"""Calls of a history that nobody answered: what the model reads of them."""

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolReturnPart, UserPromptPart
from pydantic_ai_agents import REFUND, Script, Shop, call, guarded

from pokayoke.adapters.pydantic_ai import Guarded
from pokayoke.core.context.groups import UNANSWERED

ASKED = [ModelRequest([UserPromptPart("Refund A1.")]), ModelResponse([REFUND])]
LATER = ModelRequest([UserPromptPart("And now?")])
SPOKEN = [*ASKED, LATER, ModelResponse([TextPart("Wait.")])]


def results(messages):
    """The results of calls, as `Script` keeps a request."""
    parts = [part for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]
    return [(part.tool_call_id, part.content, part.outcome) for part in parts]


async def test_the_framework_says_of_an_open_call_that_it_was_interrupted():
    """The text that the guard knows it by; a prompt right behind such a call it refuses itself."""
    script = Script("Hello.")
    await Agent(script.model, tools=[Shop().refund]).run("Hello?", message_history=SPOKEN)
    text = "The tool call was interrupted before a result was produced."
    assert results(script.asked[0]) == [("c1", text, "interrupted")]
    agent, _ = guarded([Shop().refund], script, reads=())
    with pytest.raises(UserError, match="unprocessed tool calls"):
        await agent.run("Hello?", message_history=ASKED)


@pytest.mark.parametrize("history", [SPOKEN, [*ASKED, LATER]])
@pytest.mark.parametrize("frame", ["history", "wire"])
@pytest.mark.parametrize("done", [False, True])
async def test_an_open_call_is_sent_with_what_the_ledger_knows(done, frame, history):
    """A write that is done reads so and is a success, one without a record that nothing is known; nothing runs."""
    shop, script = Shop(), Script(*([[REFUND], "Done."] if done else []), "Hello.")
    _, guard = guarded([shop.refund], script, reads=())
    agent = Agent(script.model, tools=[shop.refund], capabilities=[Guarded(guard, frame=frame)])
    if done:
        await agent.run("Refund A1.", conversation_id="r")
    before = [*shop.done]
    await agent.run("Hello?", conversation_id="r", message_history=history)
    ((ident, text, outcome),) = results(script.asked[-1])
    assert text.startswith("Not run again: refund already ran at ") if done else text == UNANSWERED
    assert (ident, outcome) == ("c1", "success" if done else "interrupted")
    assert shop.done == before


async def test_an_answered_neighbour_of_an_open_call_keeps_its_result():
    """The results of a message stay together."""
    shop, script = Shop(), Script("Hello.")
    agent, _ = guarded([shop.refund, shop.find], script)
    reply = ModelResponse([REFUND, call("find", "c2", order="A1")])
    known = ModelRequest([ToolReturnPart("find", "open", "c2"), UserPromptPart("And now?")])
    await agent.run("Hello?", message_history=[ASKED[0], reply, known, ModelResponse([TextPart("Wait.")])])
    found = {ident: text for ident, text, _ in results(script.asked[-1])}
    assert found == {"c1": UNANSWERED, "c2": "open"}
