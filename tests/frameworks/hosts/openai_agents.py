"""OpenAI Agents SDK: an agent over its own two models, chat completions and responses."""

import asyncio
import itertools

from agents import (
    Agent,
    Model,
    ModelResponse,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
)
from job import Job, own_event_loop
from openai import AsyncOpenAI

import pokayoke
from pokayoke.adapters.openai_agents import GuardedRunner, contracts

TITLE = "OpenAI Agents"
PACKAGE = "openai-agents"
MODULES = ("agents",)
MODES = ("sync", "async", "stream")
WIRES = ("chat", "responses")
IMPOSSIBLE: dict[str, str] = {}
UNLIKE = {"test_a_stream_that_breaks_off_runs_nothing @responses": "the SDK itself raises, so nothing runs"}
MODELS = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}
QUIET = RunConfig(tracing_disabled=True)


def agent_of(job: Job, **options) -> Agent:
    """The agent a user would build."""
    client = AsyncOpenAI(base_url=f"{job.url}/v1", api_key="k", max_retries=0, timeout=30)
    tools = [function_tool(one) for one in job.functions]
    return Agent(name="shop", model=MODELS[job.wire]("m", client), tools=tools, **options)


def runner_of(job: Job, agent: Agent, **options):
    """What starts it: the framework's own runner, or the guarded one."""
    if not job.guarded:
        return Runner
    declared = contracts(agent.tools, **job.declared)
    return GuardedRunner(pokayoke.Guard(declared, config=job.config, store=job.store, **options))


async def streamed(runner, agent, prompt, **options):
    """Listen to the end; returns the result and the text that came in pieces."""
    result = runner.run_streamed(agent, prompt, **options)
    pieces = [
        event.data.delta
        async for event in result.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    return result, "".join(pieces)


def play(job: Job) -> str:
    """Have the conversation."""
    agent = agent_of(job)
    runner = runner_of(job, agent)
    options = {"run_config": QUIET, "session": SQLiteSession(job.run_id) if job.run_id else None}
    if job.mode == "sync":
        with own_event_loop():
            return runner.run_sync(agent, job.prompt, **options).final_output
    if job.mode == "async":
        return asyncio.run(runner.run(agent, job.prompt, **options)).final_output
    result, pieces = asyncio.run(streamed(runner, agent, job.prompt, **options))
    assert pieces.endswith(result.final_output), (pieces, result.final_output)
    return result.final_output


# -- what a turn costs -------------------------------------------------------------------------------


class Scripted(Model):
    """A model in this process: it calls `look_up` as often as it is told, then ends."""

    def __init__(self, calls: int):
        self.calls, self.asked = calls, itertools.count()

    async def get_response(self, *args, **kwargs):
        """Reply."""
        number = next(self.asked) % (self.calls + 1)
        from agents.testing import assistant_message, function_call  # noqa: PLC0415 - older versions lack it

        item = assistant_message("Done.")
        if number < self.calls:
            item = function_call("look_up", f'{{"number": {number}}}', call_id=f"call_{number}")
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        """Not used."""
        raise NotImplementedError


class Empty(Model):
    """The point where the adapter looks at requests and replies."""

    def __init__(self, inner):
        self.inner = inner

    async def get_response(self, *args, **kwargs):
        """Reply."""
        return await self.inner.get_response(*args, **kwargs)

    def stream_response(self, *args, **kwargs):
        """Not used."""
        raise NotImplementedError


def emptied(tool):
    """The point where it looks at calls."""
    inner = tool.on_invoke_tool

    async def invoke(context, text):
        return await inner(context, text)

    tool.on_invoke_tool = invoke
    return tool


def measured(hooks: str, calls: int):
    """A run of `calls` tool turns."""

    @function_tool
    async def look_up(number: int) -> dict:
        """Look up a number."""
        return {"found": number}

    model, runner = Scripted(calls), Runner
    if hooks == "empty":
        model, look_up = Empty(model), emptied(look_up)
    if hooks == "guarded":
        fields = {"look_up": {"output_schema": {"type": "object"}}}
        runner = GuardedRunner(pokayoke.Guard(contracts([look_up], reads=("look_up",), fields=fields)))
    agent = Agent(name="a", model=model, tools=[look_up])
    loop = asyncio.new_event_loop()

    def run():
        result = loop.run_until_complete(runner.run(agent, "Look up.", max_turns=calls + 2, run_config=QUIET))
        assert result.final_output == "Done."

    return run
