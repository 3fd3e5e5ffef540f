"""Which calls are the same: keys, sessions, callers and processes."""

import asyncio
import json
import sys
import textwrap
from pathlib import Path

import pytest
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from fastmcp.server import create_proxy
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from guarded_servers import REFUND, guarded, host

import pokayoke
from pokayoke.adapters.fastmcp import contracts, guard_server
from pokayoke.errors import UsageError


@pytest.mark.parametrize(("stateless", "mode", "times"), [(False, "legacy", 1), (True, "auto", 2), (True, "legacy", 2)])
async def test_over_http_a_session_is_a_run_and_without_one_nobody_can_tell(shop, stateless, mode, times):
    """In a session an equal write is a retry. A stateless client that names no key may mean it twice."""
    server = guarded(*shop.functions(["refund"]))
    async with host.over_http(server, stateless_http=stateless) as url, Client(url, mode=mode) as client:
        for _ in range(2):
            await client.call_tool("refund", REFUND)
    assert len(shop.happened()) == times


async def test_a_key_in_the_meta_data_makes_a_retry_the_same_call(shop):
    """It holds across sessions and reconnections; another key is another wish."""
    server = guarded(*shop.functions(["refund"]))
    async with host.over_http(server) as url:
        for key in ("k1", "k1", "k2"):
            async with Client(url) as client:
                await client.call_tool("refund", REFUND, meta={"idempotencyKey": key})
    assert len(shop.happened()) == 2


async def test_a_host_says_what_belongs_together(shop):
    """`run_id` may be a function of the request: here every client has a desk."""
    server = guarded(
        *shop.functions(["refund"]), run_id=lambda context: context.fastmcp_context.request_context.meta["desk"]
    )
    async with Client(server) as client:
        for desk in ("north", "north", "south"):
            await client.call_tool("refund", REFUND, meta={"desk": desk})
    assert len(shop.happened()) == 2


async def test_who_calls_is_who_the_token_says(shop):
    """Scopes are roles, and a key is a caller's own: with the same one, another caller makes another call."""
    tokens = {
        "t-ada": {"client_id": "ada", "scopes": ["cashier"]},
        "t-bob": {"client_id": "bob", "scopes": ["cashier"]},
        "t-eve": {"client_id": "eve", "scopes": []},
    }
    server = FastMCP("shop", auth=StaticTokenVerifier(tokens))
    server.tool(shop.functions(["refund"])[0])
    guard_server(server, pokayoke.Guard(contracts(server, fields={"refund": {"roles": ("cashier",)}})))
    failed = []
    async with host.over_http(server) as url:
        for token in ("t-ada", "t-ada", "t-bob", "t-eve"):
            async with Client(url, auth=token) as client:
                meta = {"idempotencyKey": "k"}
                result = await client.call_tool("refund", REFUND, meta=meta, raise_on_error=False)
                failed.append(result.is_error)
    assert failed == [False, False, False, True]
    assert len(shop.happened()) == 2


async def test_no_key_reaches_what_another_caller_has_done(shop):
    """A client without users of its own cannot write a user's name into its key and get that user's result."""
    tokens = {
        "ann": {"client_id": "app", "sub": "ann", "scopes": []},
        "app": {"client_id": "app", "scopes": []},
        "slash": {"client_id": "app/ann", "scopes": []},
    }
    server = FastMCP("shop", auth=StaticTokenVerifier(tokens))
    server.tool(shop.functions(["refund"])[0])
    guard_server(server, pokayoke.Guard(contracts(server)))
    texts = []
    async with host.over_http(server) as url:
        for token, key in (("ann", "k"), ("app", "ann/k"), ("slash", "k")):
            async with Client(url, auth=token) as client:
                texts.append((await client.call_tool("refund", REFUND, meta={"idempotencyKey": key})).content[0].text)
    assert not any("already" in text for text in texts)
    assert len(shop.happened()) == 3


async def test_a_durable_ledger_wants_to_know_what_belongs_together(shop, tmp_path):
    """Without a key or a run id a restart could not find the write again, so it does not happen."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    pokayoke.open_store(url, create=True).close()
    server = guarded(*shop.functions(["refund"]), guard={"store": url})
    async with Client(server) as client:
        with pytest.warns(UserWarning, match="durable store"):
            refused = await client.call_tool("refund", REFUND, raise_on_error=False)
        done = await client.call_tool("refund", REFUND, meta={"idempotencyKey": "k"})
    assert refused.is_error
    assert done.data["refunded"] == "A1"
    assert len(shop.happened()) == 1


async def test_clients_at_once_do_not_mix(shop):
    """Forty clients with keys of their own: forty effects, each answer to its own call."""
    server = guarded(*shop.functions(["refund"]))

    async def one(number):
        async with Client(server) as client:
            meta = {"idempotencyKey": f"k{number}"}
            return (await client.call_tool("refund", {"order_id": str(number), "amount": 1}, meta=meta)).data

    done = await asyncio.gather(*(one(number) for number in range(40)))
    assert [each["refunded"] for each in done] == [str(number) for number in range(40)]
    assert len(shop.happened()) == 40


async def test_a_call_that_failed_before_may_be_made_again():
    """A server hears no user begin a turn, so however often a call has failed, it works again when its target does."""
    asked = []

    def status(order: str) -> dict:
        """Read the status."""
        asked.append(order)
        if len(asked) < 6:
            raise ToolError("down")
        return {"order": order}

    async with Client(guarded(status, reads=["status"])) as client:
        failed = [(await client.call_tool("status", {"order": "A"}, raise_on_error=False)).is_error for _ in range(6)]
    assert failed == [True] * 5 + [False]


async def test_an_approval_is_awaited_outside(shop):
    """The client reads that a person has to agree; the same call, sent again after that, runs once."""
    server = FastMCP("shop")
    server.tool(shop.functions(["refund"])[0])
    guard = pokayoke.Guard(contracts(server, fields={"refund": {"approval": True}}))
    guard_server(server, guard, run_id="desk")
    async with Client(server) as client:
        waits = await client.call_tool("refund", REFUND, raise_on_error=False)
        assert waits.is_error
        guard.approvals.approve(guard.approvals.list()[0].id, by="boss")
        done = await client.call_tool("refund", REFUND)
    assert done.data["refunded"] == "A1"
    assert len(shop.happened()) == 1


STDIO = """
import sys
sys.path[:0] = {path!r}
from fastmcp import FastMCP
from framework_shop import Shop
import pokayoke
from pokayoke.adapters.fastmcp import contracts, guard_server
server = FastMCP("shop")
server.tool(Shop({log!r}).functions(["refund"])[0])
guard_server(server, pokayoke.Guard(contracts(server)))
server.run(show_banner=False)
"""


async def test_over_stdio_the_process_is_the_run(shop, tmp_path):
    """A real client over a real pipe: its retry is answered from the first result."""
    script = tmp_path / "server.py"
    script.write_text(textwrap.dedent(STDIO).format(path=[str(Path(__file__).parents[1])], log=str(shop.log)))
    async with Client(StdioTransport(sys.executable, [str(script)])) as client:
        for _ in range(2):
            result = await client.call_tool("refund", REFUND)
    assert "already" in result.content[0].text
    assert len(shop.happened()) == 1


async def test_a_tool_that_is_listed_with_other_arguments_is_hidden_and_not_run(tmp_path):
    """A model is never held to a contract that it cannot read; the trace tells of the drift, once."""
    upstream = FastMCP("up")

    @upstream.tool(name="count")
    def first(duration: str) -> dict:
        """Count."""
        return {"n": 1}

    proxy = create_proxy(upstream)
    trace = {"trace": {"path": str(tmp_path / "t.jsonl")}}
    guard = pokayoke.Guard(contracts(proxy, reads=["count"]), config=trace)
    guard_server(proxy, guard)
    async with Client(proxy) as client:
        assert [one.name for one in await client.list_tools()] == ["count", "read_more"]
        upstream.local_provider.remove_tool("count")

        @upstream.tool(name="count")
        def second(lookback: str) -> dict:
            """Count."""
            return {"n": 1}

        for _ in range(2):
            assert [one.name for one in await client.list_tools()] == ["read_more"]
        refused = await client.call_tool_mcp("count", {"lookback": "1h"})
        assert refused.is_error
        assert "lists other arguments" in refused.content[0].text
        upstream.local_provider.remove_tool("count")
        upstream.tool(first, name="count")
        assert [one.name for one in await client.list_tools()] == ["count", "read_more"]
        assert not (await client.call_tool_mcp("count", {"duration": "1h"})).is_error
    guard.close()
    events = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [(one["tool"], one["ok"]) for one in events if one["event"] == "contracts"] == [("count", False)]


async def test_an_equal_call_after_another_effect_is_not_run_again():
    """No user's turn can be known behind MCP: a client's retry may come late, so nothing runs a second time."""
    effects = []
    server = FastMCP("lamp")

    @server.tool
    def switch(to: str) -> str:
        """Switch the lamp."""
        effects.append(to)
        return to

    guard_server(server, pokayoke.Guard(contracts(server)))
    async with Client(server) as client:
        for to in ("on", "off", "on"):
            answer = await client.call_tool_mcp("switch", {"to": to})
    assert effects == ["on", "off"]
    assert "Not run again" in answer.content[0].text


def test_a_server_cannot_frame_what_the_client_sends_to_its_model():
    """The option of other adapters is an error that says where the plain value is."""
    with pytest.raises(UsageError, match="structuredContent"):
        guard_server(FastMCP("shop"), pokayoke.Guard([]), frame="wire")
