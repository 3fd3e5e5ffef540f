"""Calls of a session that nobody answered."""

from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.genai import types
from google_adk_agents import Script, runner, say

import pokayoke
from pokayoke.adapters.google_adk import contracts


def refund(order_id: str) -> dict:
    """Refund an order."""
    return {"refunded": order_id}


async def test_adk_drops_an_open_call_before_the_guard_sees_the_request():
    """A process that died leaves it in the session; ADK sends neither the call nor a result."""
    script = Script(turns=["Hello."])
    run = runner(LlmAgent(name="clerk", model=script, tools=[refund]), pokayoke.Guard(contracts([refund])))
    session = await run.session_service.create_session(app_name="shop", user_id="ada", session_id="s")
    call = types.Part(function_call=types.FunctionCall(id="adk-1", name="refund", args={"order_id": "A1"}))
    for author, content in (("user", types.UserContent("Refund A1.")), ("clerk", types.ModelContent([call]))):
        await run.session_service.append_event(session, Event(author=author, invocation_id="i", content=content))
    await say(run, "Hello?")
    assert [one.role for one in script.asked[0].contents] == ["user", "user"]
