"""In front of one HTTP server: a relay that reads only listings of tools, calls and their results.

In: requests that the gate let in.
Out: what the server answers, byte for byte but where the guard acts.
Never: the caller's own token, cookies or address handed on; a header that contradicts a body that was changed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.shared.inbound import (
    MCP_NAME_HEADER,
    MCP_PARAM_HEADER_PREFIX,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)

from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.gateway.auth.references import References
from pokayoke.gateway.auth.tokens import CallerIdentity
from pokayoke.gateway.http.gate import BODY, IDENTITY, Receive, Scope, Send, error_body
from pokayoke.gateway.interceptor import Interceptor, ServerGoneError
from pokayoke.gateway.messages.results import Era
from pokayoke.gateway.runs import Caller
from pokayoke.gateway.servers.guarded_call import ServerErrorAnswer, guard_call
from pokayoke.gateway.servers.server_file import UpstreamEntry

_REQUEST_HEADERS: Final = frozenset({
    b"accept", b"content-type", b"last-event-id", b"mcp-session-id", b"mcp-protocol-version", b"mcp-method",
    b"traceparent", b"tracestate",
})  # fmt: skip
"""What a server is told of the client's headers, beside those that repeat names and arguments."""
_RESPONSE_HEADERS: Final = frozenset({b"content-type", b"mcp-session-id", b"cache-control", b"allow", b"retry-after"})
_NAME: Final = MCP_NAME_HEADER.encode()
_PARAM: Final = MCP_PARAM_HEADER_PREFIX.lower().encode()
_MAX_ANSWER: Final = 16 * 1024 * 1024
_MAX_SESSIONS: Final = 10_000
_MAX_CONNECTIONS: Final = 1_000
_WATCH_AFTER: Final = 0.25
"""Seconds after which it is worth to look whether the client is still there."""
_NO_ANSWER: Final = -32000


class Relay:
    """The ASGI application in front of one HTTP server.

    Args:
        entry: the server.
        references: resolves its references.
        interceptor: guards its tools.
        settle: waits until the server was listed once, or cannot be.
        auth: returns what signs the requests, or None.
    """

    def __init__(
        self,
        entry: UpstreamEntry,
        references: References,
        interceptor: Interceptor,
        settle: Callable[[], Awaitable[None]],
        auth: Callable[[], Any],
    ) -> None:
        self._settle = settle
        self._entry, self._references, self._interceptor, self._auth = entry, references, interceptor, auth
        self._client: Any = None
        self._url: Any = None
        self._schemas: dict[str, Any] = {}
        self._owners: OrderedDict[str, str] = OrderedDict()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Hold the connections to the server open."""
        limits = httpx2.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_CONNECTIONS)
        seconds = self._entry.timeout
        self._url = httpx2.URL(self._references.resolve(self._entry.url))
        async with httpx2.AsyncClient(
            headers=self._references.resolve_all(self._entry.headers),
            timeout=httpx2.Timeout(10.0, read=seconds, pool=seconds),
            limits=limits,
            trust_env=False,
        ) as self._client:
            yield

    def set_listing(self, tools: list[dict[str, Any]]) -> None:
        """Take in what the server lists: contracts for the guard, and which arguments are repeated in headers."""
        self._interceptor.tools.take(tools)
        self._schemas = {one["name"]: one.get("inputSchema") for one in tools}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Relay one request."""
        message: dict[str, Any] = scope.get(BODY) or {}
        identity: CallerIdentity | None = scope.get(IDENTITY)
        headers = [(name, value) for name, value in scope["headers"] if _is_passed_on(name)]
        session = next((value.decode("latin-1") for name, value in headers if name == b"mcp-session-id"), "")
        if identity is not None and session and self._owners.get(session) != identity.subject:
            await _send_error(send, 404, message.get("id"), "Session not found")
            return
        exchange = _RelayedRequest(self, scope, send, message, headers)
        caller = Caller("", (), session) if identity is None else Caller(identity.subject, identity.scopes)
        task = asyncio.ensure_future(exchange.run(caller, receive))
        try:
            done, _ = await asyncio.wait((task,), timeout=_WATCH_AFTER)
            if not done:
                await _wait_or_leave(task, receive)
        finally:
            if not task.done():
                task.cancel()
        if not task.cancelled():
            task.result()

    def note_session(self, response: Any, identity: CallerIdentity | None) -> None:
        """Remember whose session the server has begun."""
        session = response.headers.get("mcp-session-id")
        if session and identity is not None:
            self._owners[session] = identity.subject
            if len(self._owners) > _MAX_SESSIONS:
                self._owners.popitem(last=False)

    def build_request(self, method: str, headers: list[tuple[bytes, bytes]], body: bytes) -> Any:
        """Return the request to the server."""
        sent = [*headers, (b"accept-encoding", b"identity")]
        return self._client.build_request(method, self._url, headers=sent, content=body or None)

    async def send(self, request: Any) -> Any:
        """Send a request and return the response as soon as its headers are there.

        Raises:
            ToolNotStarted: the server did not get it.
            ServerGoneError: it may have got it, and there is no answer.
        """
        try:
            response = await self._client.send(request, stream=True, auth=self._auth())
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise ToolNotStarted(self._describe("cannot be reached", error), blame="tool") from None
        except httpx2.HTTPError as error:
            raise ServerGoneError(self._describe("did not answer", error)) from None
        except OAuthFlowError as error:
            raise ToolNotStarted(self._describe("needs a sign-in", error), blame="tool") from None
        if response.status_code in (401, 403):
            await response.aclose()
            raise ToolNotStarted(
                self._describe(f"refuses the gateway's credentials (HTTP {response.status_code})"), blame="tool"
            )
        return response

    def rebuild_headers(
        self, headers: list[tuple[bytes, bytes]], params: Mapping[str, Any]
    ) -> list[tuple[bytes, bytes]]:
        """Return headers that repeat the parameters as they are now."""
        if not any(name == b"mcp-method" for name, _ in headers):
            return headers
        kept = [(name, value) for name, value in headers if name != _NAME and not name.startswith(_PARAM)]
        rebuilt = {MCP_NAME_HEADER: encode_header_value(params["name"])}
        if header_map := x_mcp_header_map(self._schemas.get(params["name"])):
            rebuilt |= mcp_param_headers(header_map, params.get("arguments") or {})
        return kept + [(name.lower().encode(), value.encode("latin-1")) for name, value in rebuilt.items()]

    def take_listing(self, result: Mapping[str, Any], caller: Caller, era: Era) -> Mapping[str, Any]:
        """Take a listing that passes; return what the client is shown, the same object if nothing has to change."""
        given = result.get("tools")
        if isinstance(given, list):
            self._schemas |= {one["name"]: one.get("inputSchema") for one in given if _is_call(one)}
        return self._interceptor.take_listing(result, caller, era)

    async def guard_call(
        self, params: Mapping[str, Any], caller: Caller, forward: Any, era: Era, ident: Any
    ) -> dict[str, Any]:
        """Take a call to its result; one of an unknown tool waits for the first listing."""
        if params["name"] not in self._schemas:
            await self._settle()
        return await guard_call(self._interceptor, params, caller, forward, era=era, request_id=ident)

    def _describe(self, words: str, error: BaseException | None = None) -> str:
        told = f": {error or type(error).__name__}" if error is not None else ""
        return self._references.hide(f"the MCP server {self._entry.name!r} {words}{told}")


class _RelayedRequest:
    """One request and its answer."""

    def __init__(
        self, relay: Relay, scope: Scope, send: Send, message: dict[str, Any], headers: list[tuple[bytes, bytes]]
    ) -> None:
        self._relay, self._scope, self._send, self._message, self._headers = relay, scope, send, message, headers
        self._ident = message.get("id")
        self._era: Era = "modern" if any(name == b"mcp-method" for name, _ in headers) else "legacy"
        self._stream: Any = None
        self._started = False

    async def run(self, caller: Caller, receive: Receive) -> None:
        """Answer the request."""
        body = (await receive())["body"] if self._scope["method"] == "POST" else b""
        method, params = self._message.get("method"), self._message.get("params")
        try:
            if method == "tools/call" and self._ident is not None and _is_call(params):
                await self._call(body, cast("dict[str, Any]", params), caller)
            else:
                await self._pass_on(body, caller if method == "tools/list" and self._ident is not None else None)
        except (ToolNotStarted, ServerGoneError) as problem:
            await self._fail(str(problem))
        except ServerErrorAnswer as answered:
            await self._finish(None, dump_compact({"jsonrpc": "2.0", "id": self._ident, "error": answered.error}))
        finally:
            if self._stream is not None:
                await self._stream.aclose()

    async def _pass_on(self, body: bytes, lister: Caller | None) -> None:
        """Relay the answer; one that lists tools for a caller is read as well."""
        request = self._relay.build_request(self._scope["method"], self._headers, body)
        response = self._stream = await self._relay.send(request)
        self._relay.note_session(response, self._scope.get(IDENTITY))
        if lister is None:
            await self._start(response)
            async for chunk in _read_chunks(response):
                await self._body(chunk, more=True)
            await self._body(b"", more=False)
            return
        answer, text = await self._read_answer(response)
        result = answer.get("result")
        if isinstance(result, dict):
            shown = self._relay.take_listing(cast("dict[str, Any]", result), lister, self._era)
            if shown is not result:
                text = dump_compact({**answer, "result": shown})
        await self._finish(response, text)

    async def _call(self, body: bytes, params: dict[str, Any], caller: Caller) -> None:
        """Relay a call through the guard."""
        responses: list[Any] = []

        async def forward(sent: dict[str, Any]) -> dict[str, Any]:
            if sent == params:
                content, headers = body, self._headers
            else:
                content = dump_compact({**self._message, "params": sent})
                headers = self._relay.rebuild_headers(self._headers, sent)
            if self._stream is not None:
                await self._stream.aclose()
            response = self._stream = await self._relay.send(self._relay.build_request("POST", headers, content))
            responses.append(response)
            answer, _ = await self._read_answer(response)
            if isinstance(error := answer.get("error"), dict):
                raise ServerErrorAnswer(cast("dict[str, Any]", error))
            return cast("dict[str, Any]", answer.get("result"))

        result = await self._relay.guard_call(params, caller, forward, self._era, self._ident)
        answer = dump_compact({"jsonrpc": "2.0", "id": self._ident, "result": result})
        await self._finish(responses[-1] if responses else None, answer)

    async def _read_answer(self, response: Any) -> tuple[dict[str, Any], bytes]:
        """Return the answer to the request and its text; other messages of the stream go to the client as they come."""
        if response.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream":
            async for block in _read_events(response):
                message = _event_message(block)
                if message is not None and message.get("id") == self._ident and "method" not in message:
                    return message, _event_data(block)
                if not self._started:
                    await self._start(response)
                await self._body(block, more=True)
            raise ServerGoneError("its server ended the stream without an answer")
        data = bytearray()
        async for chunk in _read_chunks(response):
            data += chunk
            if len(data) > _MAX_ANSWER:
                raise ServerGoneError(f"its server answers with more than {_MAX_ANSWER} bytes")
        try:
            value, _ = parse(bytes(data), max_depth=200, exact=False)
        except StrictError as error:
            raise ServerGoneError(f"its server answers with no JSON (HTTP {response.status_code}): {error}") from None
        if not isinstance(value, dict):
            raise ServerGoneError("its server answers with no JSON-RPC message")
        return cast("dict[str, Any]", value), bytes(data)

    async def _start(self, response: Any) -> None:
        self._started = True
        headers = [(name.lower(), value) for name, value in response.headers.raw if name.lower() in _RESPONSE_HEADERS]
        await self._send({"type": "http.response.start", "status": response.status_code, "headers": headers})

    async def _body(self, data: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def _finish(self, response: Any, answer: bytes) -> None:
        """Send the answer, in the stream that has begun, else as JSON."""
        if self._started:
            await self._body(b"event: message\r\ndata: " + answer + b"\r\n\r\n", more=False)
            return
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        if response is not None and (session := response.headers.get("mcp-session-id")):
            headers.append((b"mcp-session-id", session.encode("latin-1")))
        self._started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._body(answer, more=False)

    async def _fail(self, words: str) -> None:
        if self._started:
            await self._finish(None, error_body(_NO_ANSWER, words, self._ident))
            return
        self._started = True
        await _send_error(self._send, 502, self._ident, words)


async def _wait_or_leave(task: asyncio.Task[None], receive: Receive) -> None:
    """Wait for an exchange; end it if its client leaves, which the protocol calls a cancellation."""
    watch = asyncio.ensure_future(_until_disconnected(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
    finally:
        watch.cancel()
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_chunks(response: Any) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.aiter_raw():
            yield chunk
    except httpx2.HTTPError as error:
        raise ServerGoneError(f"its connection broke: {error or type(error).__name__}") from None


async def _read_events(response: Any) -> AsyncIterator[bytes]:
    """Yield each event of a stream with its closing blank line, as it came."""
    pending = bytearray()
    searched = 0
    async for chunk in _read_chunks(response):
        pending += chunk
        while (end := _event_end(pending, max(searched - 3, 0))) > 0:
            yield bytes(pending[:end])
            del pending[:end]
            searched = 0
        searched = len(pending)
        if searched > _MAX_ANSWER:
            raise ServerGoneError(f"its server sends an event of more than {_MAX_ANSWER} bytes")


def _event_end(data: bytearray, start: int) -> int:
    """Return the index after the blank line that ends the first event; 0 if there is none from `start` on."""
    ends = [place + len(mark) for mark in (b"\r\n\r\n", b"\n\n", b"\r\r") if (place := data.find(mark, start)) >= 0]
    return min(ends, default=0)


def _event_data(block: bytes) -> bytes:
    lines = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))


def _event_message(block: bytes) -> dict[str, Any] | None:
    """Return the JSON-RPC message of an event; None if it has none."""
    data = _event_data(block)
    if not data:
        return None
    try:
        value, _ = parse(data, max_depth=200, exact=False)
    except StrictError as error:
        raise ServerGoneError(f"its server sends an event that is not JSON: {error}") from None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _is_passed_on(name: bytes) -> bool:
    return name in _REQUEST_HEADERS or name == _NAME or name.startswith(_PARAM)


def _is_call(params: Any) -> bool:
    return isinstance(params, dict) and isinstance(params.get("name"), str)  # pyright: ignore[reportUnknownMemberType]


async def _send_error(send: Send, status: int, ident: Any, words: str) -> None:
    body = error_body(_NO_ANSWER if status != 404 else -32600, words, ident)  # noqa: PLR2004 - not found
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
