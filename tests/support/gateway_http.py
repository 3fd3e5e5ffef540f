"""A gateway and the servers behind it, inside a test."""

import asyncio
import contextlib
import json
import sys
from pathlib import Path

import httpx
import uvicorn
from mcp.server import MCPServer
from mcp_types import ToolAnnotations

import pokayoke
from pokayoke.gateway.auth.references import References
from pokayoke.gateway.http.gate import Door
from pokayoke.gateway.http.serve import GatewaySetup, open_http_app, serve_http
from pokayoke.gateway.interceptor import Interceptor
from pokayoke.gateway.listing import ListingSettings
from pokayoke.gateway.servers.server_file import parse_servers

SMALL = Path(__file__).with_name("small_mcp_server.py")
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
MODERN = {**ACCEPT, "mcp-protocol-version": "2026-07-28"}


def small(mode="good", file=None, **more):
    """Return the entry of a small stdio server that goes wrong in one way."""
    return {"command": sys.executable, "args": [str(SMALL), mode, *([str(file)] if file else [])], **more}


def demo_server(name="demo", notes=None):
    """Return a server of the official SDK with a read, a write that it keeps in `notes`, and a slow read."""
    server = MCPServer(name, log_level="ERROR")
    kept = [] if notes is None else notes

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def echo(text: str) -> str:
        """Say it again."""
        return f"{name}: {text}"

    @server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False))
    def add_note(text: str) -> str:
        """Add a note."""
        kept.append(text)
        return f"note {len(kept)}"

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def wait(seconds: float) -> str:
        """Wait."""
        await asyncio.sleep(seconds)
        return "waited"

    return server


@contextlib.asynccontextmanager
async def serve_app(app, lifespan="on"):
    """Serve an ASGI application; yield its port."""
    config = uvicorn.Config(
        app, port=0, log_level="error", access_log=False, lifespan=lifespan, ws="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    task = asyncio.ensure_future(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn offers no event
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


def make_setup(servers, *, guard=None, lines=None, scope=None):
    """Return a gateway of servers, and its guard."""
    guard = guard or pokayoke.Guard([])
    interceptor = Interceptor(guard, listing=ListingSettings(trust_hints=True), scope=scope)
    entries = parse_servers({"mcpServers": servers}, "servers.json")
    told = [] if lines is None else lines
    log = open("/dev/null", "w", encoding="utf-8")  # noqa: SIM115 - the servers write to it
    return GatewaySetup(
        entries=entries, references=References(), interceptor=interceptor, report=told.append, errlog=log
    )


@contextlib.asynccontextmanager
async def serve_gateway(setup, door=None):
    """Serve a gateway over HTTP; yield its address."""
    port = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(serve_http(setup, door or Door(), "127.0.0.1", 0, ready=port.set_result))
    await asyncio.wait((task, port), return_when=asyncio.FIRST_COMPLETED)
    try:
        yield f"http://127.0.0.1:{await port}/mcp"
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        setup.errlog.close()


def modern(method, ident=1, **params):
    """Return a request of revision 2026-07-28."""
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    return {
        "jsonrpc": "2.0",
        "id": ident,
        "method": method,
        "params": {**params, "_meta": {**meta, **params.pop("_meta", {})}},
    }


def routed(message):
    """Return the headers of a request of revision 2026-07-28."""
    params = message["params"]
    name = {"mcp-name": params["name"]} if "name" in params else {}
    return {**MODERN, "mcp-method": message["method"], **name}


async def ask(url, message, client=None, **headers):
    """Send a request of revision 2026-07-28 and return its response."""
    if client is None:
        async with httpx.AsyncClient(timeout=30) as own:
            return await ask(url, message, own, **headers)
    return await client.post(url, json=message, headers={**routed(message), **headers})


async def call(url, tool, client=None, ident=1, **arguments):
    """Call a tool and return the result."""
    response = await ask(url, modern("tools/call", ident, name=tool, arguments=arguments), client)
    return read_answer(response)["result"]


def read_answer(response):
    """Return the JSON-RPC answer of a response, which is a stream where the call took long."""
    if response.headers["content-type"].startswith("text/event-stream"):
        return json.loads(response.text.rpartition("data: ")[2])
    return response.json()


__all__ = [
    "ACCEPT",
    "MODERN",
    "ask",
    "call",
    "demo_server",
    "make_setup",
    "modern",
    "open_http_app",
    "routed",
    "serve_app",
    "serve_gateway",
    "small",
]
