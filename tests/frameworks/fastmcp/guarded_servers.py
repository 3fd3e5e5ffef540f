"""Guarded FastMCP servers, and the host that serves them over HTTP."""

from fastmcp import FastMCP
from runner import load

import pokayoke
from pokayoke.adapters.fastmcp import contracts, guard_server

host = load("fastmcp")
REFUND = {"order_id": "A1", "amount": 5}


def guarded(*tools, reads=(), fields=None, guard=None, **options):
    """A guarded server of some tools."""
    server = FastMCP("shop")
    for tool in tools:
        server.tool(tool)
    made = pokayoke.Guard(contracts(server, reads=reads, fields=fields), **(guard or {}))
    guard_server(server, made, **options)
    return server
