"""LiteLLM: the guard's own loop over `completion` and `acompletion`.

LiteLLM has no loop, so alone it is the one everybody writes around it.
"""

import asyncio
import contextlib
import inspect
import json
import logging
import os
import warnings

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it asks the network for prices otherwise

import litellm
from job import Job, schema

import pokayoke
from pokayoke.adapters.litellm import AsyncCompletionModel, CompletionModel

TITLE = "LiteLLM"
PACKAGE = "litellm"
MODULES = ("litellm",)
MODES = ("sync", "async", "stream")
WIRES = ("chat", "anthropic")
IMPOSSIBLE: dict[str, str] = {}
DEMANDS_OUTPUT = True

litellm.suppress_debug_info = True
logging.disable(logging.CRITICAL)
warnings.filterwarnings("ignore", module=r"litellm|pydantic")


def warm() -> None:
    """Have LiteLLM load what it loads with its first request: that takes seconds, and belongs to no conversation."""
    tool = {"type": "function", "function": {"name": "t", "parameters": {"type": "object", "properties": {}}}}
    asked = {"messages": [{"role": "user", "content": "Hi."}], "tools": [tool], "num_retries": 0, "timeout": 5}
    with contextlib.suppress(Exception):  # nobody listens there
        asyncio.run(litellm.acompletion("openai/m", api_base="http://127.0.0.1:9/v1", api_key="k", **asked))


warm()


def play(job: Job) -> str:
    """Have the conversation."""
    if not job.guarded:
        return asyncio.run(_alone(job))
    guard = pokayoke.Guard(job.contracts, config=job.config, store=job.store)
    try:
        if job.mode == "sync":
            return guard.loop(CompletionModel(**provider(job)), job.prompt, run_id=job.run_id).text
        model = AsyncCompletionModel(**provider(job), stream=job.mode == "stream")

        async def converse():
            return (await guard.aloop(model, job.prompt, run_id=job.run_id)).text

        return asyncio.run(converse())
    finally:
        guard.close()


def provider(job: Job) -> dict:
    """How LiteLLM reaches the scripted model."""
    where = {"api_base": job.url} if job.wire == "anthropic" else {"api_base": f"{job.url}/v1"}
    model = "anthropic/m" if job.wire == "anthropic" else "openai/m"
    return {"model": model, "api_key": "k", "num_retries": 0, "timeout": 30, **where}


async def _alone(job: Job) -> str:
    tools = {one.__name__: one for one in job.functions}
    offered = [
        {"type": "function", "function": {"name": name, "description": one.__doc__, "parameters": schema(one)}}
        for name, one in tools.items()
    ]
    messages: list = [{"role": "user", "content": job.prompt}]
    while True:
        request = {"messages": messages, "tools": offered, **provider(job)}
        if job.mode == "sync":
            reply = litellm.completion(**request)
        elif job.mode == "async":
            reply = await litellm.acompletion(**request)
        else:
            pieces = [piece async for piece in await litellm.acompletion(**request, stream=True)]
            reply = litellm.stream_chunk_builder(pieces, messages=messages)
        said = reply.choices[0].message
        messages.append(said)
        if not said.tool_calls:
            return said.content or ""
        for call in said.tool_calls:
            value = tools[call.function.name](**json.loads(call.function.arguments))
            value = await value if inspect.isawaitable(value) else value
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


# -- what it costs -----------------------------------------------------------------------------------


def measured(hooks: str, calls: int):
    """A run of `calls` tool turns over LiteLLM's own scripted replies. There are no hooks, so "empty" is "none"."""
    parameters = {"type": "object", "properties": {"key": {"type": "integer"}}, "required": ["key"]}

    def get(key: int) -> dict:
        return {"key": key}

    def replies():
        for number in range(calls):
            function = {"name": "get", "arguments": json.dumps({"key": number})}
            yield {"mock_tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]}
        yield {"mock_response": "Done."}

    def asked(script, messages, tools):
        return litellm.completion(model="openai/m", messages=messages, tools=tools or None, **next(script))

    if hooks == "guarded":
        fields = {"effect": "read", "handler": get, "output_schema": {"type": "object"}}
        guard = pokayoke.Guard([pokayoke.Contract.from_schema("get", parameters, **fields)])

        def guarded():
            script = replies()
            return guard.loop(lambda messages, tools: asked(script, messages, tools), "go", rounds=calls + 1)

        return guarded
    offered = [{"type": "function", "function": {"name": "get", "parameters": parameters}}]

    def naive():
        script, messages = replies(), [{"role": "user", "content": "go"}]
        for _ in range(calls + 1):
            said = asked(script, messages, offered).choices[0].message
            messages.append(said)
            for call in said.tool_calls or ():
                value = json.dumps(get(**json.loads(call.function.arguments)))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": value})
        return messages

    return naive
