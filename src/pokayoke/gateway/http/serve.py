"""Serves the gateway: over streamable HTTP, or over the stdin and stdout of this process.

In: servers, a guard, and whom to let in.
Out: a gateway that runs until it is told to stop.
Never: a connection that is held open by a client that sends nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, cast

import msgspec
import uvicorn
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.middleware.cors import CORSMiddleware

from pokayoke.gateway.auth.references import References
from pokayoke.gateway.http.gate import App, Door, Gate
from pokayoke.gateway.http.relay import Relay
from pokayoke.gateway.interceptor import Interceptor
from pokayoke.gateway.servers.front import Front
from pokayoke.gateway.servers.server_file import UpstreamEntry
from pokayoke.gateway.servers.upstream import UpstreamServer
from pokayoke.gateway.servers.upstreams import Upstreams, as_json, open_upstreams
from pokayoke.runtime.network.timed_protocol import TimedProtocol

_KEEP_ALIVE_SECONDS: Final = 30
_STOP_SECONDS: Final = 5
_EVENT_BYTES: Final = 65_536


class GatewaySetup(msgspec.Struct, kw_only=True):
    """What a gateway is made of.

    Attributes:
        entries: its servers.
        references: resolves references of the file.
        interceptor: guards the tools.
        report: called with one line for each change of a server.
        build_auth: returns what signs the HTTP requests of a server, or None.
        errlog: the text stream that takes the stderr of stdio servers.
    """

    entries: list[UpstreamEntry]
    references: References
    interceptor: Interceptor
    report: Callable[[str], None]
    build_auth: Callable[[UpstreamEntry], Any] | None = None
    errlog: Any = None

    @property
    def has_relay(self) -> bool:
        """True if one HTTP server stands behind it, whose bytes can be passed on."""
        return len(self.entries) == 1 and self.entries[0].is_http

    @asynccontextmanager
    async def open(self, *, relayed: bool) -> AsyncGenerator[tuple[Upstreams, Front | Relay]]:
        """Start the servers, and yield them with what answers clients.

        Args:
            relayed: True to relay the one HTTP server, see `has_relay`.
        """
        states: dict[str, str] = {}
        answerer: list[Front | Relay] = []

        async def on_change(changed: UpstreamServer) -> None:
            line = f"{changed.name}: {changed.state}" + (f" ({changed.reason})" if changed.reason else "")
            if states.get(changed.name) != line and changed.state != "starting":
                states[changed.name] = line
                self.report(line)
                is_up, count = changed.state == "ready", len(changed.listings.get("tools", ()))
                said = f"{count} tools" if is_up else f"{changed.state}: {changed.reason}"
                self.interceptor.report_server(changed.name, is_up=is_up, reason=said)
            for one in answerer:
                if isinstance(one, Front):
                    await one.on_change(changed)
                else:
                    one.set_listing(upstreams.items("tools"))

        upstreams = Upstreams(
            self.entries,
            self.references,
            on_change=on_change,
            errlog=self.errlog,
            build_auth=self.build_auth,
        )
        async with AsyncExitStack() as stack:
            if relayed:
                entry = self.entries[0]
                relay = Relay(entry, self.references, self.interceptor, upstreams.settle, lambda: upstreams.all[0].auth)
                await stack.enter_async_context(relay.open())
                answerer.append(relay)
            else:
                answerer.append(Front(upstreams, self.interceptor))
            await stack.enter_async_context(open_upstreams(upstreams))
            yield upstreams, answerer[0]


@asynccontextmanager
async def open_http_app(gateway: GatewaySetup, door: Door) -> AsyncGenerator[App]:
    """Start the servers and yield the ASGI application that serves them.

    Args:
        gateway: what to serve.
        door: whom to let in.
    """
    async with AsyncExitStack() as stack:
        relayed = gateway.has_relay
        upstreams, answerer = await stack.enter_async_context(gateway.open(relayed=relayed))
        if isinstance(answerer, Relay):
            app: App = answerer
        else:
            manager: Any = StreamableHTTPSessionManager(answerer.server, max_request_body_size=door.max_body)
            await stack.enter_async_context(manager.run())
            app = manager.handle_request
        gate: App = Gate(app, door, lambda: {"servers": [as_json(one) for one in upstreams.statuses()]})
        yield _with_cors(gate, door)


def _with_cors(app: App, door: Door) -> App:
    """Let pages of the allowed origins call; a browser asks before it does."""
    if not door.origins:
        return app
    return CORSMiddleware(
        cast("Any", app),
        allow_origins=door.origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=["mcp-session-id", "www-authenticate"],
    )


async def serve_http(
    gateway: GatewaySetup, door: Door, host: str, port: int, *, ready: Callable[[int], None] | None = None
) -> None:
    """Serve over streamable HTTP until the process is told to stop.

    Args:
        gateway: what to serve.
        door: whom to let in.
        host: the address to listen on.
        port: the port; 0 for any that is free.
        ready: called with the port once it is listened on.
    """
    async with open_http_app(gateway, door) as app:
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            http=TimedProtocol,
            ws="none",
            lifespan="off",
            access_log=False,
            log_level="error",
            server_header=False,
            date_header=False,
            limit_concurrency=door.max_requests * 2,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_STOP_SECONDS,
            h11_max_incomplete_event_size=_EVENT_BYTES,
        )
        server = _AnnouncingServer(config, ready)
        serving = asyncio.ensure_future(server.serve())
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            server.should_exit = True
            await serving
            raise


async def serve_stdio(gateway: GatewaySetup) -> None:
    """Serve one client over stdin and stdout, until it closes them."""
    async with gateway.open(relayed=False) as (_, front), stdio_server() as (read, write):
        assert isinstance(front, Front)
        await front.server.run(read, write, front.server.create_initialization_options())


class _AnnouncingServer(uvicorn.Server):
    """Uvicorn, which tells on which port it listens."""

    def __init__(self, config: Any, ready: Callable[[int], None] | None) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: Any = None) -> None:
        """Listen, and tell so."""
        await super().startup(sockets)
        if self.started and self._ready is not None:
            self._ready(self.servers[0].sockets[0].getsockname()[1])
