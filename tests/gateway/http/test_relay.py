"""The relay in front of one HTTP server: transparent but where the guard acts."""

import asyncio
import contextlib
import json

import httpx
import pytest
from gateway_http import ACCEPT, ask, call, demo_server, make_setup, modern, routed, serve_app, serve_gateway
from mcp import Client

import pokayoke
from pokayoke.gateway.auth.tokens import StaticTokens, create_token
from pokayoke.gateway.http.gate import Door


def recording(app, seen):
    """Return an application that keeps the headers of each request before it passes it on."""

    async def record(scope, receive, send):
        if scope["type"] == "http":
            seen.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await app(scope, receive, send)

    return record


@contextlib.asynccontextmanager
async def relayed(app, door=None, *, entry=None, **options):
    """Serve an application and a gateway in front of it; yield both addresses."""
    async with serve_app(app) as port:
        direct = f"http://127.0.0.1:{port}/mcp"
        async with serve_gateway(make_setup({"one": {"url": direct, **(entry or {})}}, **options), door) as url:
            yield direct, url


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_sees_the_server_as_it_is(mode):
    """Version, listing, results and progress are the same as direct, in both eras."""
    async with relayed(demo_server().streamable_http_app()) as addresses:
        found = []
        for address in addresses:
            async with Client(address, mode=mode) as client:
                result = await client.call_tool("echo", {"text": "ü"})
                found.append(
                    (
                        client.protocol_version,
                        (await client.list_tools()).model_dump(exclude={"ttl_ms"}),
                        result.model_dump(exclude={"meta"}),
                        (await client.call_tool("nothing", {})).is_error,
                    )
                )
        assert found[0] == found[1]


async def test_bytes_pass_unchanged():
    """A listing and an unknown method come back byte for byte, unknown members included."""
    listing = b'{"jsonrpc": "2.0",  "id":7, "result": {"tools": [{"name":"t","inputSchema":{"type":"object"},"odd":null}], "x": 1.50}}'

    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        body = json.loads((await receive())["body"])
        answer = listing if body["method"] == "tools/list" else b'{"jsonrpc":"2.0","id":7,"result":{"odd" : 1e2}}'
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": answer})

    async with relayed(app) as (_, url):
        assert (await ask(url, modern("tools/list", 7))).content == listing
        assert (await ask(url, modern("odd/method", 7))).content == b'{"jsonrpc":"2.0","id":7,"result":{"odd" : 1e2}}'


async def test_the_server_gets_the_gateways_credentials_and_not_the_callers(monkeypatch, tmp_path):
    """The caller's token, cookies and origin stay here; the configured header goes to the server."""
    monkeypatch.setenv("DEMO_TOKEN", "for-the-server")
    text, line = create_token("ada")
    (tmp_path / "tokens").write_text(line)
    door = Door(verifiers=(StaticTokens(tmp_path / "tokens"),))
    seen = []
    entry = {"headers": {"authorization": "Bearer ${DEMO_TOKEN}"}}
    app = recording(demo_server().streamable_http_app(), seen)
    async with relayed(app, door, entry=entry) as (_, url):
        seen.clear()
        headers = {"authorization": f"Bearer {text}", "cookie": "a=b", "origin": "http://localhost"}
        response = await ask(url, modern("tools/call", name="echo", arguments={"text": "x"}), **headers)
        assert response.json()["result"]["structuredContent"] == {"result": "demo: x"}
    assert seen[-1]["authorization"] == "Bearer for-the-server"
    assert not {"cookie", "origin"} & seen[-1].keys()
    assert not any(text in value for one in seen for value in one.values())


async def test_headers_that_repeat_what_the_guard_corrects_are_rebuilt():
    """A name and an argument that the guard corrects are corrected in the headers too, or the server would refuse."""
    seen = []
    schema = {
        "type": "object", "required": ["level"],
        "properties": {"level": {"type": "integer", "x-mcp-header": "Level"}},
    }  # fmt: skip

    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        body = json.loads((await receive())["body"])
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        result = {"resultType": "complete", "content": [{"type": "text", "text": "ok"}]}
        if body["method"] == "tools/list":
            tool = {"name": "set_level", "inputSchema": schema, "annotations": {"readOnlyHint": True}}
            result = {"resultType": "complete", "tools": [tool], "ttlMs": 0, "cacheScope": "private"}
        elif body["method"] == "server/discover":
            result = {
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "ttlMs": 0,
                "cacheScope": "private",
            }
        else:
            seen.append((headers, body["params"]))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send(
            {
                "type": "http.response.body",
                "body": json.dumps({"jsonrpc": "2.0", "id": body["id"], "result": result}).encode(),
            }
        )

    async with relayed(app) as (_, url):
        message = modern("tools/call", name="set_level", arguments={"level": "7"})
        response = await ask(url, message, **{"mcp-param-level": "7", "mcp-param-other": "stale"})
        assert not response.json()["result"].get("isError")
    headers, params = seen[-1]
    assert params["arguments"] == {"level": 7}
    assert (headers["mcp-name"], headers["mcp-param-level"]) == ("set_level", "7")
    assert "mcp-param-other" not in headers


async def test_a_write_that_is_sent_again_is_done_once():
    """The protocol's own retry, the same call under a new id, replays the answer of the first."""
    notes = []
    guard = pokayoke.Guard([])
    async with relayed(demo_server(notes=notes).streamable_http_app(), guard=guard, scope="desk") as (_, url):
        first = await call(url, "add_note", ident=1, text="once")
        again = await call(url, "add_note", ident="another", text="once")
    assert notes == ["once"]
    assert first["structuredContent"] == {"result": "note 1"}
    assert again["_meta"]["io.github.pokayoke/outcome"]["status"] == "replayed"
    assert again["structuredContent"] == {"result": "note 1"}


async def test_a_client_that_leaves_ends_the_request_to_the_server():
    """Closing the stream is a cancellation, which the server sees; the gateway goes on."""
    left = asyncio.Event()

    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        body = json.loads((await receive())["body"])
        if body.get("params", {}).get("name") != "wait":
            await demo(scope, _again(json.dumps(body).encode()), send)
            return
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    inner = demo_server()
    demo = inner.streamable_http_app()
    async with inner.session_manager.run(), relayed(app) as (_, url):
        message = modern("tools/call", name="wait", arguments={"seconds": 60})
        with pytest.raises(httpx.ReadTimeout):
            async with httpx.AsyncClient(timeout=1) as client:
                await client.post(url, json=message, headers=routed(message))
        async with asyncio.timeout(5):
            await left.wait()
        assert (await call(url, "echo", text="x"))["structuredContent"] == {"result": "demo: x"}


def _again(body):
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return messages.pop() if messages else await asyncio.Event().wait()

    return receive


ANSWERS = {
    "a page": (200, "text/html", b"<html>Sign in</html>"),
    "nothing": (200, "application/json", b""),
    "NaN": (
        200,
        "application/json",
        b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"structuredContent":{"rate":NaN}}}',
    ),
    "half": (200, "application/json", b'{"jsonrpc":"2.0","id":1,"resu'),
    "a list": (200, "application/json", b"[1]"),
    "no result": (200, "application/json", b'{"jsonrpc":"2.0","id":1}'),
    "17 MB": (200, "application/json", b" " * 17_000_000),
    "a stream that ends": (200, "text/event-stream", b": ping\n\n"),
    "a stream of pages": (200, "text/event-stream", b"data: <html>\n\n"),
    "an event of 17 MB": (200, "text/event-stream", b"data: " + b"x" * 17_000_000),
    "another id": (200, "text/event-stream", b'data: {"jsonrpc":"2.0","id":9,"result":{"content":[]}}\n\n'),
    "broken": (500, "text/plain", b"Internal Server Error"),
    "locked": (401, "text/plain", b"no"),
}


@pytest.mark.parametrize("row", ANSWERS, ids=list(ANSWERS))
async def test_an_answer_that_cannot_be_checked_is_withheld(row):
    """Each row is answered in time with a tool error that says so, and nothing of the server's answer."""
    status, kind, body = ANSWERS[row]

    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        message = json.loads((await receive())["body"])
        if message["method"] == "tools/call":
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind.encode())]})
            with contextlib.suppress(OSError):
                await send({"type": "http.response.body", "body": body})
            return
        await demo(scope, _again(json.dumps(message).encode()), send)

    inner = demo_server()
    demo = inner.streamable_http_app()
    async with inner.session_manager.run(), relayed(app) as (_, url):
        message = modern("tools/call", name="add_note", arguments={"text": "x"})
        async with httpx.AsyncClient(timeout=10) as client:
            response = await client.post(url, json=message, headers=routed(message))
        final = json.loads(response.text.rpartition("data: ")[2] or response.text)
        assert final["id"] == 1
        assert final["result"]["isError"] is True
        assert "html" not in final["result"]["content"][0]["text"]


async def test_a_server_that_hangs_is_given_up():
    """A call that gets no answer within the server's `timeout` is answered, and a write is in doubt."""

    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        message = json.loads((await receive())["body"])
        if message["method"] == "tools/call":
            await asyncio.sleep(30)
        await demo(scope, _again(json.dumps(message).encode()), send)

    inner = demo_server()
    demo = inner.streamable_http_app()
    async with inner.session_manager.run(), relayed(app, entry={"timeout": 1}, scope="desk") as (_, url):
        async with asyncio.timeout(10):
            result = await call(url, "add_note", text="x")
    assert result["_meta"]["io.github.pokayoke/outcome"]["status"] == "in_doubt"


async def test_a_relayed_session_belongs_to_the_token_that_began_it(tmp_path):
    """Another caller who knows the id gets 404, as if there were no such session."""
    (ada, line), (bob, other) = create_token("ada"), create_token("bob")
    (tmp_path / "tokens").write_text(f"{line}\n{other}\n")
    door = Door(verifiers=(StaticTokens(tmp_path / "tokens"),))
    hello = {
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }  # fmt: skip
    async with relayed(demo_server().streamable_http_app(), door) as (_, url), httpx.AsyncClient() as client:
        headers = {**ACCEPT, "authorization": f"Bearer {ada}"}
        session = (await client.post(url, json=hello, headers=headers)).headers["mcp-session-id"]
        named = {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await client.post(url, json=ping, headers={**headers, **named})).status_code == 200
        stolen = {**ACCEPT, **named, "authorization": f"Bearer {bob}"}
        assert (await client.post(url, json=ping, headers=stolen)).status_code == 404


async def test_a_server_that_is_not_there_is_an_error():
    """Each request is answered, and says which server cannot be reached."""
    async with (
        serve_gateway(make_setup({"gone": {"url": "http://127.0.0.1:9/mcp"}})) as url,
        httpx.AsyncClient() as client,
    ):
        for message in (modern("tools/list"), modern("server/discover")):
            response = await client.post(url, json=message, headers=routed(message))
            assert response.status_code == 502
            assert "'gone' cannot be reached" in response.json()["error"]["message"]
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}
        assert (await client.post(url, json=hello, headers=ACCEPT)).status_code == 502
