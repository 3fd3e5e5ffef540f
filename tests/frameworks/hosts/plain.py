"""No framework: the SDKs of OpenAI and Anthropic, and the loop around them.

Guarded it is `guard.loop`; alone it is the loop everybody writes: parse, look up, call, append.
"""

import asyncio
import inspect
import json

import anthropic
import openai
from job import Job, schema

import pokayoke
from pokayoke.adapters.anthropic import AsyncMessagesModel, MessagesModel
from pokayoke.adapters.openai import AsyncChatModel, AsyncResponsesModel, ChatModel, ResponsesModel

TITLE = "plain messages"
PACKAGE = "openai"
MODULES: tuple[str, ...] = ()
UNLIKE = dict.fromkeys(
    ("test_without_the_framework_the_extra_is_named", "test_the_adapter_names_what_it_exports"),
    "plain messages have no framework, and so no adapter of its name",
)
MODES = ("sync", "async", "stream")
WIRES = ("chat", "responses", "anthropic")
IMPOSSIBLE: dict[str, str] = {}
DEMANDS_OUTPUT = True
MODELS = {
    "chat": (ChatModel, AsyncChatModel),
    "responses": (ResponsesModel, AsyncResponsesModel),
    "anthropic": (MessagesModel, AsyncMessagesModel),
}


def play(job: Job) -> str:
    """Have the conversation."""
    if job.guarded:
        return _guarded(job)
    if job.mode == "sync":
        steps = _alone(job)
        return _driven(steps, lambda step: step())
    return asyncio.run(_adriven(_alone(job)))


def _client(job: Job, asynchronous: bool):
    kind = "Async" if asynchronous else ""
    if job.wire == "anthropic":
        return getattr(anthropic, f"{kind}Anthropic")(base_url=job.url, api_key="k", max_retries=0, timeout=30)
    return getattr(openai, f"{kind}OpenAI")(base_url=f"{job.url}/v1", api_key="k", max_retries=0, timeout=30)


# -- guarded -----------------------------------------------------------------------------------------


def _guarded(job: Job) -> str:
    guard = pokayoke.Guard(job.contracts, config=job.config, store=job.store)
    plain, asynchronous = MODELS[job.wire]
    try:
        if job.mode == "sync":
            with _client(job, asynchronous=False) as client:
                return guard.loop(plain("m", client), job.prompt, run_id=job.run_id).text

        async def main() -> str:
            async with _client(job, asynchronous=True) as client:
                model = asynchronous("m", client, stream=job.mode == "stream")
                return (await guard.aloop(model, job.prompt, run_id=job.run_id)).text

        return asyncio.run(main())
    finally:
        guard.close()


# -- alone -------------------------------------------------------------------------------------------


def _alone(job: Job):
    """The loop everybody writes, as steps: a callable that may return an awaitable is yielded."""
    asynchronous = job.mode != "sync"
    client = _client(job, asynchronous)
    tools = {one.__name__: one for one in job.functions}
    messages = [{"role": "user", "content": job.prompt}]

    def ask():
        return ASK[job.wire](client, messages, tools, stream=job.mode == "stream")

    while True:
        reply = yield ask
        text, asked, kept = READ[job.wire](reply)
        messages += kept
        if not asked:
            return text
        results = []
        for ident, name, arguments in asked:
            given = json.loads(arguments) if isinstance(arguments, str) else arguments
            value = yield lambda tool=tools[name], given=given: tool(**given)
            results.append((ident, value if isinstance(value, str) else json.dumps(value, default=str)))
        messages += ANSWERS[job.wire](results)


def _driven(steps, do):
    value = None
    try:
        while True:
            value = do(steps.send(value))
    except StopIteration as end:
        return end.value


async def _adriven(steps) -> str:
    value = None
    try:
        while True:
            value = steps.send(value)()
            if inspect.isawaitable(value):
                value = await value
    except StopIteration as end:
        return end.value


def _ask_chat(client, messages, tools, *, stream):
    offered = [
        {"type": "function", "function": {"name": name, "description": one.__doc__, "parameters": schema(one)}}
        for name, one in tools.items()
    ]
    request = {"model": "m", "messages": messages, "tools": offered}
    if stream:
        return _streamed(client.chat.completions.stream(**request), "get_final_completion")
    return client.chat.completions.create(**request)


def _ask_responses(client, messages, tools, *, stream):
    offered = [
        {"type": "function", "name": name, "description": one.__doc__, "parameters": schema(one), "strict": False}
        for name, one in tools.items()
    ]
    request = {"model": "m", "input": messages, "tools": offered}
    if stream:
        return _streamed(client.responses.stream(**request), "get_final_response")
    return client.responses.create(**request)


def _ask_anthropic(client, messages, tools, *, stream):
    offered = [{"name": name, "description": one.__doc__, "input_schema": schema(one)} for name, one in tools.items()]
    request = {"model": "m", "max_tokens": 1_000, "messages": messages, "tools": offered}
    if stream:
        return _streamed(client.messages.stream(**request), "get_final_message")
    return client.messages.create(**request)


async def _streamed(manager, last):
    """What the SDK's own helper puts together."""
    async with manager as stream:
        async for _ in stream:
            pass
        return await getattr(stream, last)()


def _read_chat(reply):
    message = reply.choices[0].message
    calls = message.tool_calls or []
    kept = message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True)
    return message.content, [(one.id, one.function.name, one.function.arguments) for one in calls], [kept]


def _read_responses(reply):
    calls = [(one.call_id, one.name, one.arguments) for one in reply.output if one.type == "function_call"]
    return reply.output_text, calls, [one.model_dump(exclude_none=True) for one in reply.output]


def _read_anthropic(reply):
    text = "".join(one.text for one in reply.content if one.type == "text")
    calls = [(one.id, one.name, one.input) for one in reply.content if one.type == "tool_use"]
    kept = [one.model_dump(include={"type", "text", "id", "name", "input"}) for one in reply.content]
    return text, calls, [{"role": "assistant", "content": kept}]


ASK = {"chat": _ask_chat, "responses": _ask_responses, "anthropic": _ask_anthropic}
READ = {"chat": _read_chat, "responses": _read_responses, "anthropic": _read_anthropic}
ANSWERS = {
    "chat": lambda results: [{"role": "tool", "tool_call_id": ident, "content": text} for ident, text in results],
    "responses": lambda results: [
        {"type": "function_call_output", "call_id": ident, "output": text} for ident, text in results
    ],
    "anthropic": lambda results: [
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": ident, "content": text} for ident, text in results],
        }
    ],
}


# -- what it costs -----------------------------------------------------------------------------------


def measured(hooks: str, calls: int):
    """A run of `calls` tool turns in chat completions' shape. There is no framework, so hooks "empty" is "none"."""
    schema = {"type": "object", "properties": {"key": {"type": "integer"}}, "required": ["key"]}

    def get(key: int) -> dict:
        return {"key": key}

    replies = [_reply(number) for number in range(calls)] + [{"choices": [{"message": {"content": DONE}}]}]
    if hooks == "guarded":
        contract = pokayoke.Contract.from_schema(
            "get", schema, effect="read", handler=get, output_schema={"type": "object"}
        )
        guard = pokayoke.Guard([contract])

        def guarded():
            script = iter(replies)
            return guard.loop(lambda messages, tools: next(script), "go", rounds=calls + 1)

        return guarded

    def naive():
        messages = [{"role": "user", "content": "go"}]
        for reply in replies:
            message = reply["choices"][0]["message"]
            messages.append(message)
            for one in message.get("tool_calls", ()):
                value = get(**json.loads(one["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": one["id"], "content": json.dumps(value)})
        return messages

    return naive


DONE = "Done."


def _reply(number: int) -> dict:
    function = {"name": "get", "arguments": json.dumps({"key": number})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"choices": [{"message": message, "finish_reason": "tool_calls"}]}
