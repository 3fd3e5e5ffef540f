"""The official SDK's client in front of the official SDK's server, once directly and once through the gateway."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from mcp_lines import OUTCOME, ROOT, LineClient, gateway

pytest.importorskip("mcp.client.client", reason="needs the extra gateway")

import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

SERVER = str(Path(__file__).parents[2] / "support" / "talkative_mcp_server.py")
CALLS = [
    ("add", {"a": 1, "b": 2}),
    ("write", {"text": "x"}),
    ("fail", {"text": "no"}),
    ("count", {"to": 3}),
    ("wish", {}),
    ("think", {}),
    ("roots", {}),
    ("grow", {}),
]
BACK = {"wish", "think", "roots"}
"""Tools that ask the client by a request of their own, which the era from 2026-07-28 on does not have."""


async def elicit(context, params):
    return types.ElicitResult(action="accept", content={"colour": "blue"})


async def sample(context, params):
    return types.CreateMessageResult(
        role="assistant", content=types.TextContent(type="text", text="thought"), model="m"
    )


async def list_roots(context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///tmp")])


async def converse(command, mode):
    """Use everything of a server; return what the client has seen of it."""
    seen, progress, notices = {}, [], []

    async def note(message):
        notices.append(type(getattr(message, "root", message)).__name__)

    async def report(done, total, message):
        progress.append((done, total, message))

    place = StdioServerParameters(command=command[0], args=command[1:], env={"PYTHONPATH": str(ROOT / "src")})
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: ASYNC230 - nothing waits there
        async with Client(
            stdio_client(place, errlog=nowhere),
            mode=mode,
            elicitation_callback=elicit,
            sampling_callback=sample,
            list_roots_callback=list_roots,
            message_handler=note,
        ) as client:
            seen["tools"] = [one.model_dump(by_alias=True) for one in (await client.list_tools()).tools]
            for name, arguments in CALLS:
                try:
                    result = await asyncio.wait_for(client.call_tool(name, arguments, progress_callback=report), 20)
                except Exception as error:
                    seen[name] = type(error).__name__
                else:
                    seen[name] = result.model_dump(by_alias=True)
            seen["resource"] = (await client.read_resource("memo://one")).model_dump(by_alias=True)
            seen["prompt"] = (await client.get_prompt("greet", {"name": "z"})).model_dump(by_alias=True)
            await asyncio.sleep(0.1)
    return {**seen, "progress": progress, "notices": notices}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28", "auto"])
def test_a_guarded_conversation_differs_only_in_its_marks(mode):
    """Same tools, results, progress, elicitation, sampling, roots and notices; each result has its mark besides."""
    direct = asyncio.run(converse([sys.executable, SERVER], mode))
    guarded = asyncio.run(converse([sys.executable, "-m", "pokayoke", "mcp", "--", sys.executable, SERVER], mode))
    statuses = {}
    for name, _ in CALLS:
        if isinstance(guarded[name], dict):
            statuses[name] = guarded[name]["_meta"].pop(OUTCOME)["status"]
            if isinstance(direct[name], dict) and direct[name]["_meta"] is None:
                direct[name]["_meta"] = {}
    if mode != "legacy":
        # Directly the client raises the protocol's error, which no model reads; the gateway makes it a result.
        assert {direct.pop(name) for name in BACK} == {"MCPError"}
        assert all(guarded.pop(name)["isError"] for name in BACK)
    assert guarded == direct
    assert statuses.pop("fail") == "failed"
    expected = {"ok"} if mode == "legacy" else {"ok", "failed"}
    assert set(statuses.values()) == expected
    assert len(guarded["progress"]) == 3
    assert ("ToolListChangedNotification" in guarded["notices"]) is (mode == "legacy")


SCRIPT = [
    ("tools/list", {}),
    ("resources/list", {}),
    ("resources/read", {"uri": "memo://one"}),
    ("resources/templates/list", {}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "greet", "arguments": {"name": "z"}}),
    ("prompts/get", {"name": "nobody"}),
    ("no/such/method", {"x": 1.50}),
    ("ping", {}),
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
    ("tools/call", {"name": "count", "arguments": {"to": 2}, "_meta": {"progressToken": "p"}}),
    ("tools/call", {"name": "write", "arguments": {"text": "é \u2028 x"}}),
    ("tools/call", {"name": "fail", "arguments": {"text": "no"}}),
]
MARK = re.compile(rb',"_meta":{"io.github.pokayoke/outcome":{[^{}]*}}(?=})')


def record(command):
    """Play the script with a server in the handshake era; return the very lines that came."""
    with LineClient(*command) as client:
        client.initialize()
        for method, params in SCRIPT:
            client.request(method, params)
        return list(client.raw)


def test_a_recorded_conversation_differs_in_no_byte_but_the_marks():
    """Line by line: what the guard has not acted on is what the server wrote, results of tools with their mark added."""
    direct = record([sys.executable, SERVER])
    guarded = record(gateway(server=[sys.executable, SERVER]))
    marked = [MARK.subn(b"", line) for line in guarded]
    assert [line for line, _ in marked] == direct
    assert sum(count for _, count in marked) == sum(method == "tools/call" for method, _ in SCRIPT)
