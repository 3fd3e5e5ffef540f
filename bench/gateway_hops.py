"""Hops between an MCP client and a server over HTTP: `python bench/gateway_hops.py KIND PORT [UPSTREAM]`.

It imports nothing of the package, so that FastMCP's environment can run it too.
"""

# ruff: noqa: PLC0415 - a hop imports what it needs, as its imports are its weight
from __future__ import annotations

import contextlib
import json
import sys

import uvicorn

KIND, PORT = sys.argv[1], int(sys.argv[2])
UPSTREAM = sys.argv[3] if len(sys.argv) > 3 else ""


def server():
    """An ordinary server on the SDK's low level, with one tool that only reads."""
    import mcp_types as types
    from mcp.server.lowlevel import Server

    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    tool = types.Tool(
        name="echo",
        description="Say it again.",
        input_schema=schema,
        annotations=types.ToolAnnotations(read_only_hint=True),
    )

    async def list_tools(_context, _params):
        return types.ListToolsResult(tools=[tool])

    async def call_tool(_context, params):
        return types.CallToolResult(content=[types.TextContent(type="text", text=params.arguments["text"])])

    return Server("echo", on_list_tools=list_tools, on_call_tool=call_tool).streamable_http_app()


def sdk():
    """An empty relay on the SDK: its low-level server in front of its client."""
    from mcp import Client
    from mcp.server.lowlevel import Server

    held = []

    @contextlib.asynccontextmanager
    async def lifespan(_server):
        async with Client(UPSTREAM) as client:
            held.append(client)
            yield {}

    async def list_tools(_context, _params):
        return await held[0].session.list_tools()

    async def call_tool(_context, params):
        return await held[0].session.call_tool(params.name, params.arguments)

    return Server("relay", lifespan=lifespan, on_list_tools=list_tools, on_call_tool=call_tool).streamable_http_app()


def raw():
    """A raw relay: Starlette and the HTTP client, bodies parsed both ways, streams passed on."""
    import httpx2
    from starlette.applications import Starlette
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    client = httpx2.AsyncClient(timeout=60)
    left_out = {"host", "content-length", "connection", "transfer-encoding", "accept-encoding"}

    async def relay(request):
        body = await request.body()
        if body:
            json.loads(body)
        headers = {name: value for name, value in request.headers.items() if name not in left_out}
        sent = client.build_request(request.method, UPSTREAM, headers=headers, content=body)
        response = await client.send(sent, stream=True)
        kept = {name: value for name, value in response.headers.items() if name not in left_out}
        if kept.get("content-type", "").startswith("text/event-stream"):
            return StreamingResponse(response.aiter_raw(), response.status_code, kept)
        answer = await response.aread()
        if answer:
            json.loads(answer)
        return Response(answer, response.status_code, kept)

    return Starlette(routes=[Route("/mcp", relay, methods=["GET", "POST", "DELETE"])])


def fastmcp():
    """FastMCP's proxy."""
    from fastmcp.server import create_proxy

    return create_proxy(UPSTREAM).http_app(path="/mcp")


def plain():
    """Ten small servers, at any path, that answer revision 2026-07-28 and nothing else."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    tools = [
        {"name": "echo", "inputSchema": schema, "annotations": {"readOnlyHint": True}},
        {"name": "add_note", "inputSchema": schema, "annotations": {"destructiveHint": False}},
    ]
    lasting = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    answers = {
        "server/discover": {**lasting, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
        "tools/list": {**lasting, "tools": tools},
    }

    async def answer(scope, receive, send):
        if scope["type"] != "http":
            return
        data = b""
        while (message := await receive()).get("more_body"):
            data += message["body"]
        body = json.loads(data + message["body"])
        result = answers.get(body["method"])
        if result is None:
            text = f"{scope['path']} {body['params']['arguments']['text']}"
            result = {"resultType": "complete", "content": [{"type": "text", "text": text}]}
        told = json.dumps({"jsonrpc": "2.0", "id": body["id"], "result": result}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(told)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": told})

    return answer


if __name__ == "__main__":
    app = {"plain": plain, "server": server, "sdk": sdk, "raw": raw, "fastmcp": fastmcp}[KIND]()
    lifespan = "off" if KIND == "plain" else "auto"
    uvicorn.run(app, lifespan=lifespan, host="127.0.0.1", port=PORT, log_level="error", access_log=False)
