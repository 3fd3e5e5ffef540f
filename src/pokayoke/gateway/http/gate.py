"""The door of the HTTP gateway: what is looked at before a request is read.

In: HTTP requests, of anybody.
Out: the request with its body, to the application behind; or the answer that turns it away.
Never: a request of a foreign page, a body without an end, or a caller without the token that is asked for.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import msgspec

from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import is_object
from pokayoke.errors import ConfigurationError
from pokayoke.gateway.auth.tokens import CallerIdentity, Verifier

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

IDENTITY: Final = "pokayoke.identity"
"""The member of an ASGI scope that holds the caller's `CallerIdentity`."""
BODY: Final = "pokayoke.body"
"""The member that holds the parsed body of a POST, an object."""

MCP_PATH: Final = "/mcp"
METADATA_PATH: Final = "/.well-known/oauth-protected-resource"
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600
_MAX_ID: Final = 1_024
_DRAIN_SECONDS: Final = 1.0
_MAX_DEPTH: Final = 200
_METHODS: Final = frozenset({"POST", "GET", "DELETE"})


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """Whom the gateway lets in.

    Attributes:
        hosts: values of `Host` that are meant for it, without a port; those of this machine by default. Anything
            else is a page whose name was bound to this address (DNS rebinding).
        origins: web pages that may call it, such as `https://app.example`; none by default but those of `hosts`.
        verifiers: who can verify tokens; with none, everybody is let in.
        scopes: scopes that a token must have.
        public_url: its address as clients write it; it is in the metadata of RFC 9728.
        issuers: authorization servers whose tokens are accepted.
        max_body: the most bytes of a body.
        body_seconds: the most seconds until a body is complete.
        max_requests: the most requests at a time.
    """

    hosts: tuple[str, ...] = _LOOPBACK
    origins: tuple[str, ...] = ()
    verifiers: tuple[Verifier, ...] = ()
    scopes: tuple[str, ...] = ()
    public_url: str = ""
    issuers: tuple[str, ...] = ()
    max_body: int = 4 * 1024 * 1024
    body_seconds: float = 10.0
    max_requests: int = 2_000


class RequestTurnedAway(Exception):  # noqa: N818 - the answer to a request
    """A request is answered with this status instead."""

    def __init__(self, status: int, message: str, *, code: int | None = None, challenge: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.challenge = status, message, code, challenge


class Gate:
    """An ASGI application in front of the one that serves `/mcp`.

    Args:
        app: serves the requests that are let in.
        door: whom to let in.
        status: returns the states of the servers, for `GET /servers`.
    """

    def __init__(self, app: App, door: Door, status: Callable[[], Any]) -> None:
        self._app, self._door, self._status = app, door, status
        self._hosts = frozenset(one.lower() for one in door.hosts)
        self._origins = frozenset(one.lower().rstrip("/") for one in door.origins)
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or pass the application's start and end through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._open >= self._door.max_requests:
            await _send_error(send, RequestTurnedAway(503, "too many requests at a time: try again in a second"))
            return
        self._open += 1
        try:
            await self._serve(scope, receive, send)
        except RequestTurnedAway as refused:
            await _send_error(send, refused)
        finally:
            self._open -= 1

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = read_headers(scope)
        self._check_host(headers)
        path, method = scope["path"].rstrip("/") or "/", scope["method"]
        if path == "/health" and method == "GET":
            await _send_json(send, 200, {"status": "ok"})
            return
        if path in (METADATA_PATH, METADATA_PATH + MCP_PATH) and method == "GET" and self._door.verifiers:
            await _send_json(send, 200, self._metadata(headers))
            return
        if path not in (MCP_PATH, "/servers"):
            raise RequestTurnedAway(404, f"there is nothing here: the gateway is at {MCP_PATH}")
        scope[IDENTITY] = identity = await self._identify(headers)
        if path == "/servers":
            if method != "GET":
                raise RequestTurnedAway(405, "the states of the servers can only be read")
            await _send_json(send, 200, self._status())
            return
        if method not in _METHODS:
            raise RequestTurnedAway(405, "the gateway takes POST, GET and DELETE")
        if identity is not None:
            scope["user"] = _as_user(identity)
        if method == "POST":
            body = await self._read_body(headers, receive)
            scope[BODY] = _read_message(body)
            receive = _replay(body, receive)
        await self._app(scope, receive, send)

    def _check_host(self, headers: Mapping[str, str]) -> None:
        """Turn away what is meant for another host, and pages that may not call."""
        host = headers.get("host", "")
        if _without_port(host).lower() not in self._hosts:
            raise RequestTurnedAway(421, "this host name is not served here: --allow-host serves it")
        origin = headers.get("origin")
        if origin is None:
            return
        try:
            parts = urlsplit(origin.lower())
            own = bool(parts.scheme in ("http", "https") and _without_port(parts.netloc) in self._hosts)
        except ValueError:
            own = False
        if not own and origin.lower() not in self._origins:
            raise RequestTurnedAway(403, "pages of this origin may not call the gateway: --allow-origin lets them")

    async def _identify(self, headers: Mapping[str, str]) -> CallerIdentity | None:
        """Return whose token the request carries; None if nobody has to have one."""
        if not self._door.verifiers:
            return None
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise RequestTurnedAway(401, "a token is needed", challenge=self._challenge(headers))
        for verifier in self._door.verifiers:
            if (found := await verifier.verify(token.strip())) is not None:
                if missing := [one for one in self._door.scopes if one not in found.scopes]:
                    told = f'error="insufficient_scope", scope="{" ".join(self._door.scopes)}"'
                    words = f"the token lacks the scope {' '.join(missing)}"
                    raise RequestTurnedAway(403, words, challenge=self._challenge(headers, told))
                return found
        told = 'error="invalid_token"'
        raise RequestTurnedAway(
            401, "the token is not valid, or not any more", challenge=self._challenge(headers, told)
        )

    def _challenge(self, headers: Mapping[str, str], told: str = "") -> str:
        """Return the value of WWW-Authenticate (RFC 6750, RFC 9728)."""
        place = f'resource_metadata="{self._base(headers)}{METADATA_PATH}{MCP_PATH}"'
        return f"Bearer {told}, {place}" if told else f"Bearer {place}"

    def _base(self, headers: Mapping[str, str]) -> str:
        if self._door.public_url:
            parts = urlsplit(self._door.public_url)
            return f"{parts.scheme}://{parts.netloc}"
        return f"http://{headers.get('host', '')}"

    def _metadata(self, headers: Mapping[str, str]) -> dict[str, Any]:
        """Return the metadata of a protected resource (RFC 9728)."""
        found: dict[str, Any] = {
            "resource": self._door.public_url or self._base(headers) + MCP_PATH,
            "bearer_methods_supported": ["header"],
            "resource_name": "pokayoke gateway",
        }
        if self._door.issuers:
            found["authorization_servers"] = list(self._door.issuers)
        if self._door.scopes:
            found["scopes_supported"] = list(self._door.scopes)
        return found

    async def _read_body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        most = self._door.max_body
        too_long = f"the body is longer than {most} bytes"
        declared = headers.get("content-length", "")
        if declared.isdecimal() and (len(declared) > 18 or int(declared) > most):  # noqa: PLR2004 - digits of a large number
            await _drain(receive, most)
            raise RequestTurnedAway(413, too_long, code=_INVALID_REQUEST)
        body = bytearray()
        with anyio.move_on_after(self._door.body_seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestTurnedAway(400, "the body is not complete", code=_INVALID_REQUEST)
                body += message.get("body", b"")
                if len(body) > most:
                    await _drain(receive, most)
                    raise RequestTurnedAway(413, too_long, code=_INVALID_REQUEST)
                if not message.get("more_body", False):
                    return bytes(body)
        raise RequestTurnedAway(408, f"the body was not complete within {self._door.body_seconds:g} seconds")


async def _drain(receive: Receive, most: int) -> None:
    """Read on for a moment: a client that is still sending would not see its answer."""
    with anyio.move_on_after(_DRAIN_SECONDS):
        while most > 0:
            message = await receive()
            most -= len(message.get("body", b""))
            if not message.get("more_body", False):
                return


def require_door(door: Door, bind: str, *, anybody: bool = False) -> None:
    """Refuse to open a door to other machines that lets everybody in.

    Args:
        door: whom to let in.
        bind: the address to listen on.
        anybody: True if the operator wants just that.

    Raises:
        ConfigurationError: other machines can reach it, and it asks for no token; or it serves no host name.
    """
    if not is_loopback(bind) and not door.verifiers and not anybody:
        raise ConfigurationError(
            f"{bind} can be reached by other machines, and no token is asked for: give --tokens or --jwt-issuer, or "
            "--no-auth if something in front of the gateway asks for one"
        )
    if not door.hosts:
        raise ConfigurationError("no host name is served: give --allow-host")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def read_headers(scope: Scope) -> dict[str, str]:
    """Return the headers of a request by name; of one that repeats, the first."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return found


def error_body(code: int, message: str, ident: Any = None) -> bytes:
    """Return a JSON-RPC error."""
    return dump_compact({"jsonrpc": "2.0", "id": ident, "error": {"code": code, "message": message}})


def _read_message(body: bytes) -> dict[str, Any]:
    """Return the one JSON-RPC message of a body."""
    try:
        value, _ = parse(body, max_depth=_MAX_DEPTH, equal_duplicates=False, exact=False)
    except StrictError as error:
        raise RequestTurnedAway(400, f"the body is not JSON: {error}", code=_PARSE_ERROR) from None
    if not is_object(value):
        words = "a body holds one JSON-RPC message, not a batch" if isinstance(value, list) else "expected an object"
        raise RequestTurnedAway(400, words, code=_INVALID_REQUEST)
    ident = value.get("id")
    if isinstance(ident, str) and len(ident) > _MAX_ID:
        raise RequestTurnedAway(400, f"an id has up to {_MAX_ID} characters", code=_INVALID_REQUEST)
    if isinstance(ident, float | bool | list | dict) or ("id" in value and ident is None):
        raise RequestTurnedAway(400, "an id is a text or an integer", code=_INVALID_REQUEST)
    if value.get("jsonrpc") != "2.0":
        raise RequestTurnedAway(400, 'expected "jsonrpc": "2.0"', code=_INVALID_REQUEST)
    return value


def _without_port(host: str) -> str:
    """Return a host without its port; an IPv6 address keeps its brackets."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.rpartition(":")[0] if ":" in host else host


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body, and then what the connection says."""
    pending = [body]

    async def next_message() -> Message:
        if pending:
            return {"type": "http.request", "body": pending.pop(), "more_body": False}
        return await receive()

    return next_message


def _as_user(identity: CallerIdentity) -> Any:
    """Return the caller as the SDK knows it: a session of its own is served to its own token only."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser  # noqa: PLC0415 - optional
    from mcp.server.auth.provider import AccessToken  # noqa: PLC0415 - as above

    return AuthenticatedUser(
        AccessToken(token="", client_id=identity.subject, subject=identity.subject, scopes=list(identity.scopes))
    )


async def _send_error(send: Send, refused: RequestTurnedAway) -> None:
    body = (
        dump_compact({"error": refused.message}) if refused.code is None else error_body(refused.code, refused.message)
    )
    extra = [(b"www-authenticate", refused.challenge.encode("latin-1", "replace"))] if refused.challenge else []
    if refused.status in (413, 408):
        extra.append((b"connection", b"close"))
    await _send_bytes(send, refused.status, body, extra)


async def _send_json(send: Send, status: int, value: Any) -> None:
    await _send_bytes(send, status, dump_compact(value), [(b"cache-control", b"no-store")])


async def _send_bytes(send: Send, status: int, body: bytes, extra: Sequence[tuple[bytes, bytes]] = ()) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
