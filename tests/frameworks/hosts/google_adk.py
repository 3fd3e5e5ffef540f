"""Google ADK: an `LlmAgent` in an `App`, its model reached through LiteLLM.

`Runner.run` is the synchronous API; streams are the SSE mode of `run_async`.
"""

import asyncio
import contextlib
import logging
import os
import warnings

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # LiteLLM asks the network for prices otherwise

import litellm
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.lite_llm import LiteLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types
from job import Job

import pokayoke
from pokayoke.adapters.google_adk import GuardClient, GuardPlugin, contracts

TITLE = "Google ADK"
PACKAGE = "google-adk"
MODULES = ("google.adk",)
MODES = ("sync", "async", "stream")
WIRES = ("chat",)
IMPOSSIBLE: dict[str, str] = {}

warnings.filterwarnings("ignore", module=r"google\.|litellm|pydantic")
logging.disable(logging.WARNING)


def warm() -> None:
    """Have LiteLLM load what it loads with its first request: that takes seconds, and belongs to no conversation."""
    tool = {"type": "function", "function": {"name": "t", "parameters": {"type": "object", "properties": {}}}}
    asked = {"messages": [{"role": "user", "content": "Hi."}], "tools": [tool], "num_retries": 0, "timeout": 5}
    with contextlib.suppress(Exception):  # nobody listens there
        asyncio.run(litellm.acompletion("openai/m", api_base="http://127.0.0.1:9/v1", api_key="k", **asked))


warm()


def play(job: Job) -> str:
    """Have the conversation."""
    guard = pokayoke.Guard(contracts(job.functions, **job.declared), config=job.config, store=job.store)
    try:
        runner = Runner(app=app(job, guard), session_service=InMemorySessionService())
        if job.mode == "sync":
            session = asyncio.run(_session(runner, job))
            return last(runner.run(user_id="ada", session_id=session.id, new_message=types.UserContent(job.prompt)))
        return asyncio.run(_play(job, runner))
    finally:
        guard.close()


def app(job: Job, guard: pokayoke.Guard) -> App:
    """The app of a job."""
    client = {"llm_client": GuardClient()} if job.guarded else {}
    model = LiteLlm(model="openai/m", api_base=f"{job.url}/v1", api_key="k", num_retries=0, timeout=30, **client)
    agent = LlmAgent(name="clerk", model=model, tools=job.functions)
    return App(name="shop", root_agent=agent, plugins=[GuardPlugin(guard)] if job.guarded else [])


def last(events) -> str:
    """The text of the last event that is whole."""
    said = [event for event in events if not event.partial and event.content]
    return "".join(part.text or "" for part in said[-1].content.parts or () if not part.thought) if said else ""


async def _session(runner: Runner, job: Job):
    return await runner.session_service.create_session(app_name="shop", user_id="ada", session_id=job.run_id)


async def _play(job: Job, runner: Runner) -> str:
    session = await _session(runner, job)
    config = RunConfig(streaming_mode=StreamingMode.SSE if job.mode == "stream" else StreamingMode.NONE)
    message = types.UserContent(job.prompt)
    return last([
        event
        async for event in runner.run_async(
            user_id="ada", session_id=session.id, new_message=message, run_config=config
        )
    ])  # fmt: skip


# -- what it costs -----------------------------------------------------------------------------------


class Scripted(BaseLlm):
    """A model that calls `get` a number of times, then answers. It keeps no state: the history says how far it is."""

    calls: int

    async def generate_content_async(self, llm_request, stream=False):
        """Say the next thing."""
        turn = len(llm_request.contents) // 2
        if turn < self.calls:
            call = types.FunctionCall(id=f"call_{turn}", name="get", args={"key": turn})
            part = types.Part(function_call=call)
        else:
            part = types.Part(text="Done.")
        yield LlmResponse(content=types.Content(role="model", parts=[part]), finish_reason=types.FinishReason.STOP)


class Empty(BasePlugin):
    """Hooks at the points the adapter uses; they do nothing."""

    async def on_user_message_callback(self, *, invocation_context, user_message):
        """Do nothing."""

    async def before_run_callback(self, *, invocation_context):
        """Do nothing."""

    async def after_run_callback(self, *, invocation_context):
        """Do nothing."""

    async def before_model_callback(self, *, callback_context, llm_request):
        """Do nothing."""

    async def after_model_callback(self, *, callback_context, llm_response):
        """Do nothing."""

    async def before_tool_callback(self, *, tool, tool_args, tool_context):
        """Do nothing."""


async def get(key: int) -> dict:
    """Get a value."""
    return {"key": key}


def measured(hooks: str, calls: int):
    """A run of `calls` tool turns."""
    plugins = {"none": list, "empty": lambda: [Empty(name="empty")], "guarded": _guarded}[hooks]()
    agent = LlmAgent(name="clerk", model=Scripted(model="scripted", calls=calls), tools=[get])
    runner = Runner(app=App(name="shop", root_agent=agent, plugins=plugins), session_service=InMemorySessionService())
    loop = asyncio.new_event_loop()

    async def run():
        session = await runner.session_service.create_session(app_name="shop", user_id="ada")
        message = types.UserContent("go")
        return last([
            event async for event in runner.run_async(user_id="ada", session_id=session.id, new_message=message)
        ])  # fmt: skip

    return lambda: loop.run_until_complete(run())


def _guarded() -> list:
    fields = {"get": {"output_schema": {"type": "object"}}}
    return [GuardPlugin(pokayoke.Guard(contracts([get], reads=["get"], fields=fields)))]
