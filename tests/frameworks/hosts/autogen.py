"""AutoGen: an assistant agent over its OpenAI client."""

import asyncio
import itertools
import logging
import warnings

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, ModelInfo, RequestUsage
from autogen_core.tools import FunctionTool, StaticWorkbench
from autogen_ext.models.openai import OpenAIChatCompletionClient
from job import Job

import pokayoke
from pokayoke.adapters.autogen import contracts, guarded

TITLE = "AutoGen"
PACKAGE = "autogen-agentchat"
MODULES = ("autogen_core",)
MODES = ("async", "stream")
WIRES = ("chat",)
IMPOSSIBLE: dict[str, str] = {}
INFO = ModelInfo(vision=False, function_calling=True, json_output=False, family="unknown", structured_output=True)
MOST = 10

# AutoGen warns of every reply whose reason is not the one it expects.
warnings.filterwarnings("ignore", category=UserWarning, module="autogen_ext")
logging.getLogger("autogen_core").setLevel(logging.ERROR)


def client_of(url: str) -> OpenAIChatCompletionClient:
    """AutoGen's own client."""
    return OpenAIChatCompletionClient(
        model="m", base_url=f"{url}/v1", api_key="k", model_info=INFO, max_retries=0, timeout=30
    )


async def conversation(job: Job) -> str:
    """One conversation of the agent a user would build."""
    client, tools, stream = client_of(job.url), job.functions, job.mode == "stream"
    options = {"max_tool_iterations": MOST, "model_client_stream": stream}
    if job.guarded:
        guard = pokayoke.Guard(contracts(tools, **job.declared), config=job.config, store=job.store)
        agent = AssistantAgent("shop", **guarded(guard, client, tools, run_id=job.run_id), **options)
    else:
        agent = AssistantAgent("shop", model_client=client, tools=tools, **options)
    pieces = []
    if stream:
        async for item in agent.run_stream(task=job.prompt):
            pieces += [item.content] if type(item).__name__ == "ModelClientStreamingChunkEvent" else []
            result = item
    else:
        result = await agent.run(task=job.prompt)
    await client.close()
    text = result.messages[-1].content
    assert not stream or not job.guarded or text in "".join(pieces), (pieces, text)
    return text


def play(job: Job) -> str:
    """Have the conversation."""
    return asyncio.run(conversation(job))


# -- what a turn costs -------------------------------------------------------------------------------


class Scripted(ChatCompletionClient):
    """A model in this process: it calls `look_up` as often as it is told, then ends."""

    component_type = "model"

    def __init__(self, calls: int):
        self.calls, self.asked = calls, itertools.count()

    async def create(self, messages, **more):
        """Reply."""
        number = next(self.asked) % (self.calls + 1)
        content = "Done."
        if number < self.calls:
            content = [FunctionCall(f"call_{number}", f'{{"number": {number}}}', "look_up")]
        usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
        return CreateResult(finish_reason="stop", content=content, usage=usage, cached=False)

    def create_stream(self, messages, **more):
        """Not used."""
        raise NotImplementedError

    async def close(self):
        """Nothing to close."""

    def actual_usage(self):
        """Not used."""

    total_usage = count_tokens = remaining_tokens = actual_usage
    capabilities = model_info = INFO


class Empty(Scripted):
    """The point where the adapter looks at requests and replies."""

    def __init__(self, inner):
        self.inner = inner

    async def create(self, messages, **more):
        """Reply."""
        return await self.inner.create(messages, **more)


class EmptyWorkbench(StaticWorkbench):
    """The point where it looks at calls."""

    async def call_tool(self, name, arguments=None, cancellation_token=None, call_id=None):
        """Call."""
        return await super().call_tool(name, arguments, cancellation_token, call_id)


def measured(hooks: str, calls: int):
    """A run of `calls` tool turns."""

    async def look_up(number: int) -> dict:
        """Look up a number."""
        return {"found": number}

    loop = asyncio.new_event_loop()
    client = Scripted(calls)

    def agent():
        # An agent keeps its conversation, so each run has its own; building it is part of every run alike.
        if hooks == "guarded":
            return AssistantAgent("a", **guarded(guard, client, [tool]), max_tool_iterations=calls + 1)
        if hooks == "empty":
            bench = EmptyWorkbench([tool])
            return AssistantAgent("a", model_client=Empty(client), workbench=bench, max_tool_iterations=calls + 1)
        return AssistantAgent("a", model_client=client, tools=[tool], max_tool_iterations=calls + 1)

    tool = FunctionTool(look_up, description="Look up a number.")
    declared = {"look_up": {"output_schema": {"type": "object"}}}
    guard = pokayoke.Guard(contracts([tool], reads=("look_up",), fields=declared))

    def run():
        result = loop.run_until_complete(agent().run(task="Look up."))
        assert result.messages[-1].content == "Done."

    return run
