"""Microsoft Agent Framework: an agent over its OpenAI clients."""

import asyncio
import itertools
import logging

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddleware,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    FunctionMiddleware,
    Message,
)
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from job import Job
from openai import AsyncOpenAI

import pokayoke
from pokayoke.adapters.agent_framework import contracts, middleware

TITLE = "Agent Framework"
PACKAGE = "agent-framework-core"
MODULES = ("agent_framework",)
MODES = ("async", "stream")
WIRES = ("chat", "responses")
IMPOSSIBLE: dict[str, str] = {}
CLIENTS = {"chat": OpenAIChatCompletionClient, "responses": OpenAIChatClient}

logging.getLogger("agent_framework").setLevel(logging.ERROR)


def agent_of(job: Job, **options) -> tuple[Agent, pokayoke.Guard | None]:
    """The agent a user would build, and its guard."""
    client = CLIENTS[job.wire](
        model="m", async_client=AsyncOpenAI(base_url=f"{job.url}/v1", api_key="k", max_retries=0, timeout=30)
    )
    # Every request carries the whole history, where it can be looked at.
    more = {"default_options": {"store": False}} if job.wire == "responses" else {}
    if not job.guarded:
        return Agent(client, tools=job.functions, **more, **options), None
    guard = pokayoke.Guard(contracts(job.functions, **job.declared), config=job.config, store=job.store)
    return Agent(client, tools=job.functions, middleware=middleware(guard), **more, **options), guard


async def said(agent: Agent, what, *, stream: bool = False, session: AgentSession | None = None):
    """Let the agent answer; returns its response."""
    if not stream:
        return await agent.run(what, session=session)
    whole = agent.run(what, session=session, stream=True)
    pieces = [update.text async for update in whole]
    response = await whole.get_final_response()
    assert response.text.strip() in "".join(pieces), (response.text, pieces)
    return response


def play(job: Job) -> str:
    """Have the conversation."""
    agent, _ = agent_of(job)
    session = AgentSession(session_id=job.run_id) if job.run_id else None
    return asyncio.run(said(agent, job.prompt, stream=job.mode == "stream", session=session)).text


# -- what a turn costs -------------------------------------------------------------------------------


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """A model in this process: it calls `look_up` as often as it is told, then ends."""

    def __init__(self, calls: int, **kwargs):
        super().__init__(**kwargs)
        self.calls, self.asked = calls, itertools.count()

    async def _inner_get_response(self, *, messages, stream, options, **kwargs):
        number = next(self.asked) % (self.calls + 1)
        if number == self.calls:
            content = Content.from_text("Done.")
        else:
            content = Content.from_function_call(f"call_{number}", "look_up", arguments=f'{{"number": {number}}}')
        return ChatResponse(messages=[Message("assistant", [content])], finish_reason="stop")


class EmptyChat(ChatMiddleware):
    """The point where the adapter looks at requests."""

    async def process(self, context, call_next):
        await call_next()


class EmptyFunctions(FunctionMiddleware):
    """The point where it looks at calls."""

    async def process(self, context, call_next):
        await call_next()


def measured(hooks: str, calls: int):
    """A run of `calls` tool turns."""

    async def look_up(number: int) -> dict:
        """Look up a number."""
        return {"found": number}

    installed = {"none": list, "empty": lambda: [EmptyChat(), EmptyFunctions()]}.get(hooks)
    if installed is None:
        declared = {"look_up": {"output_schema": {"type": "object"}}}
        guard = pokayoke.Guard(contracts([look_up], reads=("look_up",), fields=declared))
        installed = lambda: middleware(guard)  # noqa: E731 - beside the two above
    client = Scripted(calls, function_invocation_configuration={"max_iterations": calls + 1})
    agent = Agent(client, tools=[look_up], middleware=installed())
    loop = asyncio.new_event_loop()

    def run():
        response = loop.run_until_complete(agent.run("Look up."))
        assert response.text == "Done."

    return run
