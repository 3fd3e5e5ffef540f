"""Pydantic AI: an `Agent` with its own model classes; streams are `run_stream_events`."""

import asyncio
import warnings

import httpx2
from job import Job, own_event_loop
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.run import AgentRunResultEvent

import pokayoke
from pokayoke.adapters.pydantic_ai import Guarded, contracts

TITLE = "Pydantic AI"
PACKAGE = "pydantic-ai-slim"
MODULES = ("pydantic_ai",)
MODES = ("sync", "async", "stream")
WIRES = ("chat", "responses", "anthropic")
NULL = (
    "The framework's client class validates a whole chat completion before any hook, and raises: neither "
    "`on_model_request_error` nor a wrapped model ever holds the reply."
)
IMPOSSIBLE = {"null id @chat/sync": NULL, "null id @chat/async": NULL}

warnings.filterwarnings("ignore", module=r"pydantic_ai\.")


def play(job: Job) -> str:
    """Have the conversation."""
    guard = pokayoke.Guard(contracts(job.functions, **job.declared), config=job.config, store=job.store)
    try:
        agent = Agent(model(job), tools=job.functions, capabilities=[Guarded(guard)] if job.guarded else [])
        if job.mode == "sync":
            with own_event_loop():
                return agent.run_sync(job.prompt, conversation_id=job.run_id).output
        return asyncio.run(_play(job, agent))
    finally:
        guard.close()


def model(job: Job):
    """The model of a job's wire, at its server."""
    client = httpx2.AsyncClient(timeout=30)
    if job.wire == "anthropic":
        return AnthropicModel("claude-m", provider=AnthropicProvider(api_key="k", base_url=job.url, http_client=client))
    provider = OpenAIProvider(base_url=f"{job.url}/v1", api_key="k", http_client=client)
    return (OpenAIChatModel if job.wire == "chat" else OpenAIResponsesModel)("m", provider=provider)


async def _play(job: Job, agent: Agent) -> str:
    if job.mode == "async":
        return (await agent.run(job.prompt, conversation_id=job.run_id)).output
    async with agent.run_stream_events(job.prompt, conversation_id=job.run_id) as events:
        async for event in events:
            if isinstance(event, AgentRunResultEvent):
                return event.result.output
    raise AssertionError("a stream of events ends with the result")


# -- what it costs -----------------------------------------------------------------------------------


class Empty(AbstractCapability):
    """Hooks at the points the adapter uses; they do nothing."""

    async def for_run(self, ctx):
        """Do nothing."""
        return Empty()

    async def wrap_run(self, ctx, *, handler):
        """Do nothing."""
        return await handler()

    async def before_node_run(self, ctx, *, node):
        """Do nothing."""
        return node

    async def before_model_request(self, ctx, request_context):
        """Do nothing."""
        return request_context

    async def after_model_request(self, ctx, *, request_context, response):
        """Do nothing."""
        return response

    async def wrap_tool_validate(self, ctx, *, call, tool_def, args, handler):
        """Do nothing."""
        return await handler(args)

    async def wrap_tool_execute(self, ctx, *, call, tool_def, args, handler):
        """Do nothing."""
        return await handler(args)


async def get(key: int) -> dict:
    """Get a value."""
    return {"key": key}


def measured(hooks: str, calls: int):
    """A run of `calls` tool turns."""

    def said(messages, info):
        turn = len(messages) // 2
        if turn == calls:
            return ModelResponse([TextPart("Done.")])
        return ModelResponse([ToolCallPart("get", f'{{"key": {turn}}}', f"call_{turn}")])

    capabilities = {"none": list, "empty": lambda: [Empty()], "guarded": _guarded}[hooks]()
    agent = Agent(FunctionModel(said), tools=[get], capabilities=capabilities)
    loop = asyncio.new_event_loop()
    return lambda: loop.run_until_complete(agent.run("go"))


def _guarded() -> list:
    fields = {"get": {"output_schema": {"type": "object"}}}
    return [Guarded(pokayoke.Guard(contracts([get], reads=["get"], fields=fields)))]
