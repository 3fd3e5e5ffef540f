"""Agents of Google ADK over scripted models, their runners, and the messages between them."""

from google.adk.apps import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types
from pydantic import Field

import pokayoke
from pokayoke.adapters.google_adk import GuardPlugin, contracts


class Script(BaseLlm):
    """Says its turns one after the other: a text, or calls as (name, arguments). Keeps what it was asked."""

    model: str = "script"
    turns: list
    asked: list = Field(default_factory=list)
    stop: types.FinishReason = types.FinishReason.STOP

    async def generate_content_async(self, llm_request, stream=False):
        turn = self.turns[min(len(self.asked), len(self.turns) - 1)]
        self.asked.append(llm_request)
        if isinstance(turn, str):
            parts = [types.Part(text=turn)]
        else:
            parts = [types.Part(function_call=types.FunctionCall(name=name, args=args)) for name, args in turn]
        yield LlmResponse(content=types.Content(role="model", parts=parts), finish_reason=self.stop)

    @property
    def told(self):
        """Every answer of a tool in the latest request."""
        parts = [part for content in self.asked[-1].contents for part in content.parts]
        return [part.function_response.response for part in parts if part.function_response]


def runner(agent, guard, *, sessions=None, plugin=None, **app):
    """A runner over one guarded app."""
    made = App(name="shop", root_agent=agent, plugins=[plugin or GuardPlugin(guard)], **app)
    return Runner(app=made, session_service=sessions or InMemorySessionService())


async def say(run, message="go", *, session="s", user="ada", **more):
    """Send a message and return the events."""
    if await run.session_service.get_session(app_name="shop", user_id=user, session_id=session) is None:
        await run.session_service.create_session(app_name="shop", user_id=user, session_id=session)
    content = types.UserContent(message) if isinstance(message, str) else message
    return [event async for event in run.run_async(user_id=user, session_id=session, new_message=content, **more)]


def text(events):
    """What the last event with content says."""
    said = [event for event in events if event.content]
    return "".join(part.text or "" for part in said[-1].content.parts)


def questions(events):
    """The confirmations that events ask for."""
    found = [call for event in events for call in event.get_function_calls()]
    return [call for call in found if call.name == "adk_request_confirmation"]


def answer(question, confirmed):
    """What an application sends back."""
    response = types.FunctionResponse(id=question.id, name=question.name, response={"confirmed": confirmed})
    return types.Content(role="user", parts=[types.Part(function_response=response)])


def picked(shop, *names, fields=None, **guard):
    """Tools, and a guard of them."""
    tools = shop.functions(names)
    reads = [name for name in names if name not in ("refund", "ship")]
    return tools, pokayoke.Guard(contracts(tools, reads=reads, fields=fields), **guard)


SPELT = [{"order_id": "A1", "amount": "500"}, {"arguments": {"order_id": "A1", "amount": 500}}]
