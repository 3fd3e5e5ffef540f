"""Serves an ASGI application of this room with uvicorn, until the process is told to stop.

In: an application, and the address to listen on.
Out: a server.
Never: a client that holds a connection open without saying anything.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import Any, Final, cast

from pokayoke.dashboard.gate import AsgiApp
from pokayoke.errors import ConfigurationError, MissingExtraError

try:
    import uvicorn
except ImportError as missing:
    raise MissingExtraError("uvicorn", "dashboard") from missing

from pokayoke.runtime.network.timed_protocol import TimedProtocol

_KEEP_ALIVE_SECONDS: Final = 30
_STOP_SECONDS: Final = 2
_MOST_REQUESTS: Final = 500
_LAST_PORT: Final = 65_535


def listen_on(text: str, option: str) -> socket.socket:
    """Return a socket that listens.

    Args:
        text: `host:port` or `[host]:port`; port 0 takes any free one.
        option: names the address in messages.

    Raises:
        ConfigurationError: the address is invalid, or cannot be listened on.
    """
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > _LAST_PORT:
        raise ConfigurationError(f"{option} {text!r}: expected HOST:PORT, such as 127.0.0.1:8787")
    listening: socket.socket | None = None
    try:
        listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, int(port)))
        listening.listen(128)
    except OSError as error:
        if listening is not None:
            listening.close()
        raise ConfigurationError(f"cannot listen on {text}: {error.strerror}. Name another with {option}") from None
    return listening


def is_local(listening: socket.socket) -> bool:
    """Return whether only this machine can reach a socket."""
    return ipaddress.ip_address(str(listening.getsockname()[0])).is_loopback


def address_of(listening: socket.socket) -> str:
    """Return host and port of a socket, as they stand in a URL."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def build_server(app: AsgiApp, *, ready: Callable[[], object] = lambda: None) -> uvicorn.Server:
    """Return a server for an application; `run(sockets=[...])` serves until `should_exit`, Ctrl-C or SIGTERM.

    Args:
        app: the application.
        ready: called once requests are answered.
    """
    config = uvicorn.Config(
        cast("Any", app),
        http=TimedProtocol,
        ws="none",
        lifespan="auto",
        access_log=False,
        log_level="error",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_REQUESTS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    return _ReadyServer(config, ready)


def serve(app: AsgiApp, listening: socket.socket, *, ready: Callable[[], object] = lambda: None) -> None:
    """Serve until Ctrl-C or SIGTERM; arguments as in `build_server`, and a socket from `listen_on`."""
    try:
        build_server(app, ready=ready).run(sockets=[listening])
    except KeyboardInterrupt:
        return


class _ReadyServer(uvicorn.Server):
    """Uvicorn, which says when requests are answered."""

    def __init__(self, config: Any, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._call_ready = ready

    async def startup(self, sockets: Any = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        if self.started:
            self._call_ready()
