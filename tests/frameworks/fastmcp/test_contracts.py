"""Contracts from a server's listing, and the tools that a client is shown."""

import pytest
from fastmcp import Client, FastMCP
from fastmcp.server import create_proxy
from guarded_servers import REFUND, guarded
from mcp_types import (
    ToolAnnotations,
)

import pokayoke
from pokayoke.adapters.fastmcp import contracts, guard_server
from pokayoke.errors import UsageError


async def test_contracts_come_from_the_servers_own_listing(shop):
    """Schemas of both directions are the server's; hints count only if they are trusted; a running loop is no matter."""
    server = FastMCP("shop")
    server.tool(shop.functions(["get_order"])[0], annotations=ToolAnnotations(read_only_hint=True))
    server.tool(shop.functions(["page"])[0], annotations=ToolAnnotations(destructive_hint=True))
    plain = {one.name: one for one in contracts(server)}
    trusted = {one.name: one for one in contracts(server, trust_hints=True)}
    assert plain["get_order"].input_schema["required"] == ["order_id"]
    assert plain["page"].output_schema == "text"
    assert [plain[name].effect for name in ("get_order", "page")] == ["write", "write"]
    assert [trusted[name].effect for name in ("get_order", "page")] == ["read", "destructive"]
    assert contracts(await server.list_tools(), reads=["page"])[1].effect == "read"


async def test_a_tool_without_a_contract_is_neither_listed_nor_run(shop):
    """At installation it is the programmer's mistake; one that comes later waits until it is declared."""
    ping, ship = shop.functions(["ping", "ship"])
    server = FastMCP("shop")
    server.tool(ping)
    guard = pokayoke.Guard(contracts(server, reads=["ping"]))
    server.tool(ship)
    with pytest.raises(UsageError, match="no contract for ship"):
        guard_server(server, guard)
    server.local_provider.remove_tool("ship")
    guard_server(server, guard)
    server.tool(ship)
    async with Client(server) as client:
        assert [one.name for one in await client.list_tools()] == ["ping", "read_more"]
        result = await client.call_tool("ship", {"order_id": "A1"}, raise_on_error=False)
    assert result.is_error
    assert shop.happened() == []


@pytest.mark.parametrize("mode", ["enforce", "monitor"])
async def test_a_tool_that_is_denied_is_not_listed(shop, mode):
    """Nor does a call of it run; monitor mode lists and runs what it would deny. The guard's own tool is no other."""
    config = {"mode": mode, "access": {"deny": ["refund", "read_more"]}}
    server = guarded(*shop.functions(["ping", "refund"]), reads=["ping"], guard={"config": config})
    async with Client(server) as client:
        listed = [one.name for one in await client.list_tools()]
        await client.call_tool("refund", REFUND, raise_on_error=False)
    shown = mode == "monitor"
    assert listed == (["ping", "refund", "read_more"] if shown else ["ping"])
    assert len(shop.happened()) == shown


async def test_an_allow_list_leaves_the_guards_own_tool(shop):
    """What is listed is what is allowed, and the tool by which the model reads on."""
    config = {"access": {"allow": ["ping"]}}
    server = guarded(*shop.functions(["ping", "refund"]), reads=["ping"], guard={"config": config})
    async with Client(server) as client:
        assert [one.name for one in await client.list_tools()] == ["ping", "read_more"]


async def test_an_unguarded_tool_is_run_as_it_is(shop):
    """Its name is the only thing the guard knows of it."""
    server = FastMCP("shop")
    ping, ship = shop.functions(["ping", "ship"])
    server.tool(ping)
    guard = pokayoke.Guard(contracts(server, reads=["ping"]))
    server.tool(ship)
    guard_server(server, guard, unguarded=["ship"])
    async with Client(server) as client:
        for _ in range(2):
            assert (await client.call_tool("ship", {"order_id": "A1"})).data == {"shipped": "A1"}
    assert len(shop.happened()) == 2


async def test_mounted_servers_are_guarded_too(shop):
    """Their tools have the names under which they are listed."""
    inner = FastMCP("inner")
    inner.tool(shop.functions(["refund"])[0])
    outer = FastMCP("outer")
    outer.mount(inner, namespace="till")
    guard_server(outer, pokayoke.Guard(contracts(outer)))
    async with Client(outer) as client:
        for _ in range(2):
            await client.call_tool("till_refund", REFUND)
    assert len(shop.happened()) == 1


async def test_a_server_that_is_somebody_elses_is_guarded_in_front_of_it(shop):
    """A proxy's contracts come from the other server's listing, and its results are checked like any."""
    other = FastMCP("other")
    for tool in shop.functions(["refund", "page"]):
        other.tool(tool)
    front = create_proxy(other)
    fields = {"page": {"output_schema": {"type": "object"}}}
    guard_server(front, pokayoke.Guard(contracts(front, reads=["page"], fields=fields)))
    async with Client(front) as client:
        for _ in range(2):
            await client.call_tool("refund", REFUND)
        page = await client.call_tool("page", {"order_id": "A1"}, raise_on_error=False)
    assert page.is_error
    assert [one["tool"] for one in shop.happened()] == ["refund", "page"]
