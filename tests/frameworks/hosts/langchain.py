"""LangChain's `create_agent`, with LangChain's own models of OpenAI and Anthropic."""

import asyncio
import itertools

from job import Job
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_openai import ChatOpenAI

import pokayoke
from pokayoke.adapters.langchain import GuardMiddleware, contracts

TITLE = "LangChain"
PACKAGE = "langchain"
MODULES = ("langchain",)
MODES = ("sync", "async", "stream")
WIRES = ("chat", "responses", "anthropic")
IMPOSSIBLE: dict[str, str] = {}


def model_of(job: Job) -> BaseChatModel:
    """The model, at the scripted server."""
    if job.wire == "anthropic":
        return ChatAnthropic(model="m", base_url=job.url, api_key="k", max_retries=0, timeout=30)
    return ChatOpenAI(
        model="m",
        base_url=f"{job.url}/v1",
        api_key="k",
        max_retries=0,
        timeout=30,
        use_responses_api=job.wire == "responses",
        stream_usage=True,
    )


def play(job: Job) -> str:
    """Have the conversation."""
    tools = job.functions
    guard = pokayoke.Guard(contracts(tools, **job.declared), config=job.config, store=job.store)
    middleware = [GuardMiddleware(guard)] if job.guarded else []
    agent = create_agent(model_of(job), tools, middleware=middleware, checkpointer=job.options.get("checkpointer"))
    given = {"messages": [("user", job.prompt)]}
    config = {"configurable": {"thread_id": job.run_id}} if job.run_id else {}

    async def streamed() -> dict:
        last = None
        async for mode, part in agent.astream(given, config, stream_mode=["messages", "values"]):
            last = part if mode == "values" else last
        return last

    try:
        if job.mode == "sync":
            ended = agent.invoke(given, config)
        elif job.mode == "async":
            ended = asyncio.run(agent.ainvoke(given, config))
        else:
            ended = asyncio.run(streamed())
        return str(ended["messages"][-1].text)
    finally:
        guard.close()


class Scripted(BaseChatModel):
    """A model in this process: so many calls of `get`, then an answer; again and again."""

    replies: object

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **options):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **options):
        said = next(self.replies)
        return ChatResult(generations=[ChatGeneration(message=said.model_copy())])


class Nothing(AgentMiddleware):
    """Hooks that do nothing, where the guard's are."""

    def wrap_model_call(self, request, handler):
        return handler(request)

    async def awrap_model_call(self, request, handler):
        return await handler(request)

    def wrap_tool_call(self, request, handler):
        return handler(request)

    async def awrap_tool_call(self, request, handler):
        return await handler(request)


def get(key: int) -> dict:
    """Look something up."""
    return {"key": key}


def measured(hooks: str, calls: int):
    """A run of `calls` tool turns."""
    asked = [
        AIMessage(
            "",
            tool_calls=[{"name": "get", "args": {"key": number}, "id": f"call_{number}"}],
            response_metadata={"finish_reason": "tool_calls"},
        )
        for number in range(calls)
    ]
    replies = itertools.cycle([*asked, AIMessage("Done.")])
    middleware = []
    if hooks == "empty":
        middleware = [Nothing()]
    elif hooks == "guarded":
        guard = pokayoke.Guard(contracts([get], reads=["get"], fields={"get": {"output_schema": {"type": "object"}}}))
        middleware = [GuardMiddleware(guard)]
    agent = create_agent(Scripted(replies=replies), [get], middleware=middleware)
    return lambda: agent.invoke({"messages": [("user", "go")]})
