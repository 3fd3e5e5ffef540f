"""One connection to a server, in whichever era it speaks, over stdio or streamable HTTP.

In: JSON-RPC requests as plain objects.
Out: results as the server wrote them, unchecked and complete.
Never: a result reshaped by the SDK's models, which drop unknown members; a header that contradicts the body.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import metadata
from typing import Any, Final, NamedTuple, Self, cast

import anyio
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from pokayoke.gateway.auth.references import References
from pokayoke.gateway.servers.http_client import ServerHttpClient
from pokayoke.gateway.servers.process import open_process
from pokayoke.gateway.servers.server_file import UpstreamEntry

VERSION: Final = metadata.version("pokayoke")
_MAX_PAGES: Final = 100
_MAX_EVENT_BYTES: Final = 16 * 1024 * 1024

Progress = Callable[[float, float | None, str | None], Awaitable[None]]


class Listing(NamedTuple):
    """What a server lists.

    Attributes:
        items: as it listed them, all pages.
        dropped: name and reason of each tool that a client must leave out, as its header annotations are illegal.
    """

    items: list[dict[str, Any]]
    dropped: list[tuple[str, str]]


class ServerConnection:
    """An open connection; `open_connection` makes it.

    Args:
        session: the SDK's session, whose handshake is done.
        dispatcher: sends its requests.
    """

    def __init__(self, session: Any, dispatcher: Any) -> None:
        self._session, self._dispatcher = session, dispatcher
        self._header_maps: dict[str, Any] = {}

    @property
    def protocol_version(self) -> str:
        """The revision that both sides speak."""
        return str(self._session.protocol_version)

    @property
    def is_modern(self) -> bool:
        """True if requests stand for themselves, since revision 2026-07-28."""
        return self.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def capabilities(self) -> dict[str, Any]:
        """What the server says it can do."""
        found: dict[str, Any] = self._session.server_capabilities.model_dump(by_alias=True, exclude_none=True)
        return found

    @property
    def instructions(self) -> str:
        """What the server tells models about itself; "" if nothing."""
        return str(self._session.instructions or "")

    async def send_request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float,  # noqa: ASYNC109 - the SDK tells the server when it ends
        on_progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its result, as the server wrote it.

        Args:
            method: of the protocol, or of an extension.
            params: its parameters. A `_meta` in it is kept; what belongs to one connection only is replaced.
            timeout: the most seconds until it is answered; the server is told that it is cancelled then.
            on_progress: called for each progress notification.

        Raises:
            MCPError: the server answered with an error, did not answer in time, or the connection has ended.
        """
        sent = dict(params or {})
        own = _OWN_META if self.is_modern else _OWN_META | {types.CLIENT_CAPABILITIES_META_KEY}
        meta = {key: value for key, value in (sent.get("_meta") or {}).items() if key not in own}
        headers = {MCP_PROTOCOL_VERSION_HEADER: self.protocol_version}
        if self.is_modern:
            meta = self._envelope() | meta
            # Extensions, such as tasks, would have results come by ways that are not watched here.
            offered = meta[types.CLIENT_CAPABILITIES_META_KEY]
            if isinstance(offered, dict) and "extensions" in offered:
                meta[types.CLIENT_CAPABILITIES_META_KEY] = {k: v for k, v in offered.items() if k != "extensions"}
            headers |= self._routing_headers(method, sent)
        if meta:
            sent["_meta"] = meta
        else:
            sent.pop("_meta", None)
        options: dict[str, Any] = {"timeout": timeout, "headers": headers}
        if on_progress is not None:
            options["on_progress"] = on_progress
        found: dict[str, Any] = await self._dispatcher.send_raw_request(method, sent, options)
        return found

    async def list_all(self, method: str, member: str, *, timeout: float) -> Listing:  # noqa: ASYNC109 - as above
        """Return all pages of a listing.

        Args:
            method: such as `tools/list`.
            member: of the result that holds the items, such as `tools`.
            timeout: the most seconds for each page.

        Raises:
            MCPError: the server does not list them.
            ValueError: a page is no listing, or the pages do not end.
        """
        items: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            result = await self.send_request(method, {"cursor": cursor} if cursor else None, timeout=timeout)
            page: Any = result.get(member)
            if not isinstance(page, list) or not all(map(_is_named, page)):  # pyright: ignore[reportUnknownArgumentType]
                raise ValueError(f"its answer to {method} holds no list of {member} with names")
            items += page  # pyright: ignore[reportUnknownArgumentType]
            following = result.get("nextCursor")
            if not isinstance(following, str) or not following:
                break
            if following == cursor:
                raise ValueError(f"its pages of {method} do not end: one names itself as the next")
            cursor = following
        else:
            raise ValueError(f"its pages of {method} do not end: {_MAX_PAGES} were read")
        return self._read_headers(items) if member == "tools" and self.is_modern else Listing(items, [])

    def _envelope(self) -> dict[str, Any]:
        return {
            types.PROTOCOL_VERSION_META_KEY: self.protocol_version,
            types.CLIENT_INFO_META_KEY: {"name": "pokayoke", "version": VERSION},
            types.CLIENT_CAPABILITIES_META_KEY: {},
        }

    def _routing_headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """Return the headers that repeat the body: method, name, and arguments that the schema marks."""
        headers = {MCP_METHOD_HEADER: method}
        name = params.get(NAME_BEARING_METHODS.get(method, ""))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            arguments = params.get("arguments")
            if method == "tools/call" and name in self._header_maps and isinstance(arguments, dict):
                headers |= mcp_param_headers(self._header_maps[name], arguments)
        return headers

    def _read_headers(self, tools: list[dict[str, Any]]) -> Listing:
        """Keep which arguments are repeated in headers, and leave out tools whose annotation is illegal."""
        items: list[dict[str, Any]] = []
        dropped: list[tuple[str, str]] = []
        maps: dict[str, Any] = {}
        for tool in tools:
            schema = tool.get("inputSchema")
            if (reason := find_invalid_x_mcp_header(schema)) is not None:
                dropped.append((tool["name"], f"its annotation x-mcp-header is illegal: {reason}"))
                continue
            if header_map := x_mcp_header_map(schema):
                maps[tool["name"]] = header_map
            items.append(tool)
        self._header_maps = maps
        return Listing(items, dropped)


_OWN_META: Final = frozenset({
    types.PROTOCOL_VERSION_META_KEY, types.CLIENT_INFO_META_KEY, types.LOG_LEVEL_META_KEY, "progressToken",
})  # fmt: skip
"""Members of `_meta` that describe the client's own connection to the gateway."""


def _is_named(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("name"), str)  # pyright: ignore[reportUnknownMemberType]


class ConnectionHandlers(NamedTuple):
    """What a connection does with messages that the server begins.

    Attributes:
        on_message: called with each notification, as the SDK reads it.
        errlog: the text stream that takes the stderr of a stdio server.
        ended: set as soon as the connection has ended.
    """

    on_message: Callable[[Any], Awaitable[None]]
    errlog: Any
    ended: anyio.Event


@asynccontextmanager
async def open_connection(
    entry: UpstreamEntry, references: References, handlers: ConnectionHandlers, auth: Any = None
) -> AsyncGenerator[ServerConnection]:
    """Open a connection, negotiate the era, and close everything it started at the end.

    Args:
        entry: the server.
        references: resolves its references.
        handlers: for what the server sends by itself.
        auth: signs its HTTP requests, or None.

    Raises:
        ConfigurationError: a reference cannot be resolved.
        OSError: the program cannot be started.
        MCPError: the address cannot be reached, or what is there does not speak the protocol.
    """
    async with AsyncExitStack() as stack:
        if entry.is_http:
            client = ServerHttpClient(references.resolve_all(entry.headers), auth, entry.timeout, handlers.ended)
            await stack.enter_async_context(client)
            transport = streamable_http_client(
                references.resolve(entry.url), http_client=client, max_sse_event_size=_MAX_EVENT_BYTES
            )
        else:
            transport = _start_process(entry, references, handlers.errlog)
        read, write = await stack.enter_async_context(transport)
        watched: Any = _WatchedStream(read, handlers.ended)
        dispatcher: Any = JSONRPCDispatcher(watched, write)
        session = await stack.enter_async_context(
            ClientSession(
                dispatcher=dispatcher,
                client_info=types.Implementation(name="pokayoke", version=VERSION),
                message_handler=cast("Any", handlers.on_message),
            )
        )
        with anyio.fail_after(entry.start_timeout):
            await _negotiate(session)
        yield ServerConnection(session, dispatcher)


async def _negotiate(session: Any) -> None:
    """Agree on a revision: probe for a modern one; anything but a modern answer means the handshake."""
    try:
        await session.discover()
    except MCPError as refused:
        supported = (refused.error.data or {}).get("supported") if isinstance(refused.error.data, dict) else None
        if supported and not any(one in HANDSHAKE_PROTOCOL_VERSIONS for one in supported):
            raise
        await session.initialize()
    except (ValueError, RuntimeError):  # no answer to a probe: an older server that answers anything
        await session.initialize()


def _start_process(entry: UpstreamEntry, references: References, errlog: Any) -> Any:
    command = [references.resolve(one) for one in (entry.command, *entry.args)]
    return open_process(
        command, env=references.resolve_all(entry.env), cwd=references.resolve(entry.cwd), errlog=errlog
    )


class _WatchedStream:
    """The messages of a server, and the event that they have ended."""

    def __init__(self, stream: Any, ended: anyio.Event) -> None:
        self._stream, self._ended = stream, ended

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except BaseException:
            self._ended.set()
            raise

    async def aclose(self) -> None:
        self._ended.set()
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._ended.set()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def last_context(self) -> Any:
        """The context of the task that sent the latest message, which the SDK reads."""
        return getattr(self._stream, "last_context", None)
