"""Clients that send what they should not: each is answered in time, and the next request is served."""

import asyncio
import contextlib
import json
import time

import httpx
import pytest
from gateway_http import ACCEPT, ask, call, make_setup, modern, routed, serve_gateway, small

from pokayoke.errors import ConfigurationError
from pokayoke.gateway.auth.tokens import StaticTokens, create_token
from pokayoke.gateway.http.gate import Door, require_door
from pokayoke.runtime.network import timed_protocol

DEADLINE = 5.0
GOOD = modern("tools/call", name="echo", arguments={"text": "still here"})


def text(value):
    """Return the JSON text of a value."""
    return json.dumps(value).encode()


async def chunks(size):
    """Yield a body without a length."""
    for _ in range(size // 65_536 + 1):
        yield b" " * 65_536


ROWS = {
    "not JSON": (b"<html>", {}, 400, -32700),
    "nothing": (b"", {}, 400, -32700),
    "cut off": (b'{"jsonrpc": "2.0", "id": 1, "meth', {}, 400, -32700),
    "NaN": (b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}', {}, 400, -32700),
    "two equal keys": (b'{"jsonrpc": "2.0", "id": 1, "id": 1, "method": "ping"}', {}, 400, -32700),
    "no UTF-8": (b'{"jsonrpc": "2.0", "id": "\xff", "method": "ping"}', {}, 400, -32700),
    "a million brackets": (b"[" * 1_000_000, {}, 400, -32700),
    "a batch": (text([GOOD, GOOD]), {}, 400, -32600),
    "a number": (b"7", {}, 400, -32600),
    "no version": (text({"id": 1, "method": "ping"}), {}, 400, -32600),
    "id null": (text({**GOOD, "id": None}), {}, 400, -32600),
    "id true": (text({**GOOD, "id": True}), {}, 400, -32600),
    "id a list": (text({**GOOD, "id": [1]}), {}, 400, -32600),
    "id 1.5": (text({**GOOD, "id": 1.5}), {}, 400, -32600),
    "id of a megabyte": (text({**GOOD, "id": "x" * 1_000_000}), {}, 400, -32600),
    "a body of 5 MB": (b" " * 5_000_000, {}, 413, -32600),
    "5 MB without a length": (lambda: chunks(5_000_000), {}, 413, -32600),
    "a foreign host": (text(GOOD), {"host": "evil.example"}, 421, None),
    "a host that begins alike": (text(GOOD), {"host": "127.0.0.1.evil.example"}, 421, None),
    "a foreign origin": (text(GOOD), {"origin": "https://evil.example"}, 403, None),
    "origin null": (text(GOOD), {"origin": "null"}, 403, None),
    "an origin that begins alike": (text(GOOD), {"origin": "http://localhost.evil.example"}, 403, None),
    "a header that contradicts": (text(GOOD), {"mcp-name": "add_note"}, 400, -32020),
}


@pytest.fixture
async def url():
    """Serve a gateway in front of one small server."""
    async with serve_gateway(make_setup({"small": small()})) as found:
        yield found


@pytest.mark.parametrize("row", ROWS, ids=list(ROWS))
async def test_a_bad_request_is_answered(url, row):
    """Each row gets its status and code within the deadline, and the next request is served."""
    body, headers, status, code = ROWS[row]
    async with httpx.AsyncClient(timeout=DEADLINE) as client:
        content = body() if callable(body) else body
        response = await client.post(url, content=content, headers={**routed(GOOD), **headers})
        assert response.status_code == status
        assert code is None or response.json()["error"]["code"] == code
        result = (await ask(url, GOOD, client)).json()["result"]
    assert result["content"][0]["text"] == "still here"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("PUT", "/mcp", 405), ("POST", "/servers", 405), ("GET", "/admin", 404), ("GET", "/health", 200)],
)
async def test_other_requests_are_answered(url, method, path, status):
    """What is not served is turned away by its status."""
    async with httpx.AsyncClient(timeout=DEADLINE) as client:
        assert (await client.request(method, url.replace("/mcp", path))).status_code == status


async def exchange(url, data, seconds):
    """Send bytes over a connection of its own; return what came back until it was closed, and how long that took."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(url).port)
    writer.write(data)
    found = b""
    async with asyncio.timeout(seconds):
        with contextlib.suppress(ConnectionResetError):  # closed while bytes were still on their way
            while more := await reader.read(65_536):
                found += more
    writer.close()
    return found, time.monotonic() - began


ENDLESS = b"GET /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nx-long: " + b"y" * 200_000


async def test_a_page_of_an_allowed_origin_can_call():
    """A browser's question is answered for that origin only, and the answer to a call may be read there."""
    page = "https://app.example"
    door = Door(origins=(page,))
    async with (
        serve_gateway(make_setup({"small": small()}), door) as url,
        httpx.AsyncClient(timeout=DEADLINE) as client,
    ):
        question = {"access-control-request-method": "POST", "access-control-request-headers": "mcp-method"}
        asked = await client.options(url, headers={**question, "origin": page})
        assert asked.headers["access-control-allow-origin"] == page
        other = await client.options(url, headers={**question, "origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers
        response = await client.post(url, json=GOOD, headers={**routed(GOOD), "origin": page})
        assert response.headers["access-control-allow-origin"] == page
        assert response.json()["result"]["content"][0]["text"] == "still here"
        foreign = await client.post(url, json=GOOD, headers={**routed(GOOD), "origin": "https://evil.example"})
        assert foreign.status_code == 403


SLOW = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"\x16\x03\x01\x02\x00" * 50 + b"\r\n\r\n", b"HTTP/1.1 400"),
        (ENDLESS, b"HTTP/1.1 400"),
        (b"POST /mcp HT", b""),
        (b"", b""),
        (SLOW, b"HTTP/1.1 408"),
    ],
    ids=["no HTTP", "endless headers", "half a request line", "silence", "half a body"],
)
async def test_a_connection_that_goes_nowhere_is_ended(monkeypatch, data, answer):
    """What is no request, or never becomes one, is answered or cut off; nobody else waits for it."""
    monkeypatch.setattr(timed_protocol, "_HEADER_SECONDS", 0.5)
    async with serve_gateway(make_setup({"small": small()}), Door(body_seconds=0.5)) as url:
        slow = asyncio.ensure_future(exchange(url, data, DEADLINE))
        assert (await call(url, "echo", text="meanwhile"))["content"][0]["text"] == "meanwhile"
        found, _ = await slow
        assert found.startswith(answer) or data == ENDLESS
        assert bool(found) == bool(answer) or data == ENDLESS


@pytest.fixture
async def guarded(tmp_path):
    """Serve a gateway that asks for tokens; yield its address and two tokens, of which the second lacks the scope."""
    (ada, line), (bob, other) = create_token("ada"), create_token("bob")
    (tmp_path / "tokens").write_text(f"{line} mcp:call\n{other}\n")
    door = Door(verifiers=(StaticTokens(tmp_path / "tokens"),), scopes=("mcp:call",), issuers=("https://id.example",))
    async with serve_gateway(make_setup({"small": small()}), door) as url:
        yield url, ada, bob


async def test_a_caller_without_a_token_is_told_where_to_get_one(guarded):
    """401 names the metadata, which names the authorization server (RFC 9728); a lacking scope is 403."""
    url, ada, bob = guarded
    async with httpx.AsyncClient(timeout=DEADLINE) as client:
        for headers in ({}, {"authorization": "Basic YTpi"}, {"authorization": "Bearer"}):
            response = await client.post(url, json=GOOD, headers={**routed(GOOD), **headers})
            assert response.status_code == 401
            place = response.headers["www-authenticate"].split('resource_metadata="')[1].rstrip('"')
        metadata = (await client.get(place)).json()
        assert metadata["resource"] == url
        assert metadata["authorization_servers"] == ["https://id.example"]
        assert metadata["scopes_supported"] == ["mcp:call"]
        bad = await client.post(url, json=GOOD, headers={**routed(GOOD), "authorization": "Bearer stolen"})
        assert (bad.status_code, 'error="invalid_token"' in bad.headers["www-authenticate"]) == (401, True)
        lacking = await client.post(url, json=GOOD, headers={**routed(GOOD), "authorization": f"Bearer {bob}"})
        assert lacking.status_code == 403
        assert 'error="insufficient_scope", scope="mcp:call"' in lacking.headers["www-authenticate"]
        assert (await client.get(url.replace("/mcp", "/servers"))).status_code == 401
        good = await client.post(url, json=GOOD, headers={**routed(GOOD), "authorization": f"Bearer {ada}"})
        assert good.json()["result"]["content"][0]["text"] == "still here"


async def test_a_session_is_served_to_its_own_token_only(tmp_path):
    """The session of one caller does not exist for another, who knows its id."""
    (ada, line), (bob, other) = create_token("ada"), create_token("bob")
    (tmp_path / "tokens").write_text(f"{line}\n{other}\n")
    door = Door(verifiers=(StaticTokens(tmp_path / "tokens"),))
    hello = {
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }  # fmt: skip
    async with (
        serve_gateway(make_setup({"small": small()}), door) as url,
        httpx.AsyncClient(timeout=DEADLINE) as client,
    ):
        headers = {**ACCEPT, "authorization": f"Bearer {ada}"}
        session = (await client.post(url, json=hello, headers=headers)).headers["mcp-session-id"]
        named = {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await client.post(url, json=ping, headers={**headers, **named})).status_code == 200
        stolen = {**ACCEPT, **named, "authorization": f"Bearer {bob}"}
        assert (await client.post(url, json=ping, headers=stolen)).status_code == 404


def test_a_door_to_other_machines_asks_for_a_token():
    """Listening for other machines without a token is refused, unless the operator wants just that."""
    with pytest.raises(ConfigurationError, match="--no-auth"):
        require_door(Door(), "0.0.0.0")
    require_door(Door(), "0.0.0.0", anybody=True)
    require_door(Door(), "127.0.0.1")
    require_door(Door(), "::1")
