"""FastMCP: a server of the shop's tools, and a client that carries a model's calls to it, unread.

There is no model inside an MCP server, so the loop is the client's: a plain one that sends every call of a reply and
adds every result. Argument texts that are no JSON object go out as the text they are, in place of an object: the
nearest thing to a malformed call that a request can hold. `async` is a client in the same process, `stream` one over
streamable HTTP. What only a loop can do (stop a stuck model, see that a message was cut) a server cannot.
"""

import asyncio
import contextlib
import json
import logging
import socket
import urllib.request
import warnings
from typing import Any

import uvicorn
from fastmcp import Client, FastMCP
from fastmcp.server.middleware import Middleware
from job import Job
from mcp_types import CallToolResult, Request

import pokayoke
from pokayoke.adapters.fastmcp import contracts, guard_server
from pokayoke.adapters.openai import calls, history

TITLE = "FastMCP"
PACKAGE = "fastmcp"
MODULES = ("fastmcp",)
MODES = ("async", "stream")
WIRES = ("chat",)
LOOP = "the loop is the client's: a server cannot end it, take its tools away or answer its user"
NO_SIGNAL = "MCP carries no stop reason: what arrives whole is whole"
IMPOSSIBLE: dict[str, str] = {
    "cut, parses": NO_SIGNAL,
    "cut, one of two whole": NO_SIGNAL,
    "cut, unparsable": "MCP carries no stop reason: nothing runs, but what the model reads is that the text ends early",
    **dict.fromkeys(
        (
            "stuck on unknown",
            "stuck on raising",
            "stuck on malformed",
            "stuck on one read",
            "stuck, then answers",
            "calls after tools went",
            "empty answer",
        ),
        LOOP,
    ),
}
UNLIKE = {
    "test_an_answer_that_breaks_its_type_is_held_back[verify the content type]": (
        "the server makes structured content of an object before any middleware: over MCP it is no response"
    ),
    "test_a_key_that_stands_twice_is_seen": "the client parses the text of the model before a server sees it",
    "test_a_stream_that_breaks_off_runs_nothing": "the stream of the model ends at the client",
    "test_a_cut_that_a_stream_has_told_is_not_taken_back": "the stream of the model ends at the client",
    "test_an_agent_whose_tools_are_all_denied_asks_without_any": "a server always lists the guard's own tool",
    "test_a_large_output_can_be_paged_through": "a server always lists the guard's own tool",
    **dict.fromkeys(
        (
            "test_an_instruction_is_part_of_one_request_only",
            "test_an_unknown_effect_is_said_beside_the_last_word",
            "test_every_sentence_that_the_user_reads_may_be_the_hosts_own",
            "test_tokens_are_reported",
            "test_a_process_killed_in_mid_write_does_not_write_twice",
        ),
        LOOP,
    ),
}

warnings.filterwarnings("ignore", category=DeprecationWarning)
logging.disable(logging.CRITICAL)


def play(job: Job) -> str:
    """Have the conversation."""
    return asyncio.run(_play(job))


def serving(job: Job) -> FastMCP:
    """The server of a job."""
    server = FastMCP("shop")
    for function in job.functions:
        server.tool(function)
    if job.guarded:
        guard = pokayoke.Guard(contracts(server, **job.declared), config=job.config, store=job.store)
        guard_server(server, guard, run_id=job.run_id or "conversation")
    return server


async def _play(job: Job) -> str:
    server = serving(job)
    if job.mode == "async":
        async with Client(server) as client:
            return await _converse(job, client)
    async with over_http(server) as url, Client(url) as client:
        return await _converse(job, client)


@contextlib.asynccontextmanager
async def over_http(server: FastMCP, **options):
    """Serve streamable HTTP; yields the URL."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        app = server.http_app(path="/mcp", **options)
        served = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on", ws="none"))
        task = asyncio.create_task(served.serve(sockets=[bound]))
        while not served.started:  # noqa: ASYNC110 - it has no event for that
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/mcp"
        served.should_exit = True
        served.force_exit = True
        await task


async def _converse(job: Job, client: Client) -> str:
    tools = [
        {
            "type": "function",
            "function": {"name": one.name, "description": one.description, "parameters": one.input_schema},
        }
        for one in await client.list_tools()
    ]
    messages: list[dict] = [{"role": "user", "content": job.prompt}]
    taken: set[str] = set()
    while True:
        reply = await asyncio.to_thread(_asked, job, {"model": "m", "messages": messages, "tools": tools})
        asked = calls(reply)
        added = history(reply)
        messages += added
        if not asked:
            return reply["choices"][0]["message"]["content"] or ""
        results = await asyncio.gather(*(send(client, one.name, _object(one.arguments)) for one in asked))
        for place, (call, result) in enumerate(zip(asked, results, strict=True)):
            ident = call.id if call.id not in taken else f"{call.id}_{len(taken)}"
            added[-1]["tool_calls"][place]["id"] = ident  # a provider may begin to count again
            taken.add(ident)
            messages.append({"role": "tool", "tool_call_id": ident, "content": text(result)})


def _asked(job: Job, body: dict) -> dict:
    request = urllib.request.Request(f"{job.url}/v1/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _object(given: str) -> Any:
    try:
        value = json.loads(given)
    except ValueError:
        return given
    return value


async def send(client: Client, name: str, arguments: Any, **meta: Any) -> CallToolResult:
    """Send a call as it is, whatever its arguments are."""
    params = {"name": name, "arguments": arguments, **({"_meta": meta} if meta else {})}
    return await client.session.send_request(Request[Any, Any](method="tools/call", params=params), CallToolResult)


def text(result: CallToolResult) -> str:
    """What a model reads of a result."""
    return "\n".join(block.text for block in result.content if block.type == "text")


# -- what it costs -----------------------------------------------------------------------------------


def measured(hooks: str, calls: int):
    """A client in the same process that calls a tool a number of times."""

    class Empty(Middleware):
        async def on_call_tool(self, context, call_next):
            return await call_next(context)

        async def on_list_tools(self, context, call_next):
            return await call_next(context)

    async def get(key: int) -> dict:
        """Get a value."""
        return {"key": key}

    server = FastMCP("one")
    server.tool(get)
    if hooks == "empty":
        server.add_middleware(Empty())
    elif hooks == "guarded":
        guard_server(server, pokayoke.Guard(contracts(server, reads=["get"])))
    loop = asyncio.new_event_loop()
    opened: list[Client] = []

    async def run():
        if not opened:
            opened.append(await Client(server).__aenter__())
        for number in range(calls):
            await opened[0].call_tool("get", {"key": number})
        return "Done."

    return lambda: loop.run_until_complete(run())
