"""HTTP clients of httpx2 that stay under a rule.

In: a rule, limits, and requests as httpx2 builds them.
Out: responses, whose URL, addresses, redirects, size and time were checked.
Never: a proxy, a netrc file or a connection of another request. Each request, and each redirect, is checked, resolved
and connected by itself.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from typing import Any, cast

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.contract.url_rule import DEFAULT_PORTS, UrlRule
from pokayoke.core.gate.urls import UrlParts, parse_url
from pokayoke.errors import MissingExtraError, UrlRefused, UsageError
from pokayoke.runtime.network.limits import BodyReader, Deadline, HttpLimits
from pokayoke.runtime.network.resolve import Resolver, resolve_name

try:
    import httpcore2
    import httpx2

    from pokayoke.runtime.network.backend import AsyncCheckedBackend, CheckedBackend
except ImportError as missing:
    raise MissingExtraError("httpx2", "urls") from missing

_DEADLINE = "pokayoke.deadline"
_LIMITS = HttpLimits()
_OWN_OPTIONS = frozenset(
    ("cert", "http1", "http2", "max_redirects", "mounts", "proxy", "transport", "trust_env", "verify")
)
_BODY_HEADERS = frozenset((b"content-encoding", b"content-length"))


class CheckedTransport(httpx2.BaseTransport):
    """A transport of httpx2 that sends requests only where a rule allows.

    Args:
        rule: what may be reached.
        limits: how much a request may take; a client follows redirects itself, within the same time.
        resolve: resolves names; the system's resolver if not given.
        ssl_context: how servers are verified; the default of httpx2 if not given.
    """

    def __init__(
        self,
        rule: UrlRule,
        *,
        limits: HttpLimits = _LIMITS,
        resolve: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._rule, self._limits, self._resolve = rule, limits, resolve or resolve_name
        self._ssl = ssl_context or httpx2.create_ssl_context(trust_env=False)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request.

        Raises:
            UrlRefused: its URL, an address of its host or the answer is refused.
            TransportError: (of httpx2) it could not be sent, or took too long.
        """
        parts, deadline = _check_request(request, self._rule, self._limits)
        backend = CheckedBackend(self._rule, self._resolve, deadline)
        pool = httpcore2.ConnectionPool(
            self._ssl, max_connections=1, max_keepalive_connections=0, network_backend=backend
        )
        try:
            with _mapped_errors(request):
                answer = pool.handle_request(_core_request(request, parts, self._limits))
            body = _Body(answer, pool, request, _read_body(answer, self._limits))
        except BaseException:
            pool.close()
            raise
        return _build_response(answer, body)


class AsyncCheckedTransport(httpx2.AsyncBaseTransport):
    """`CheckedTransport` for asyncio. Names are resolved in a thread."""

    def __init__(
        self,
        rule: UrlRule,
        *,
        limits: HttpLimits = _LIMITS,
        resolve: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._rule, self._limits, self._resolve = rule, limits, resolve or resolve_name
        self._ssl = ssl_context or httpx2.create_ssl_context(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; see `CheckedTransport.handle_request`."""
        parts, deadline = _check_request(request, self._rule, self._limits)
        backend = AsyncCheckedBackend(self._rule, self._resolve, deadline)
        pool = httpcore2.AsyncConnectionPool(
            self._ssl, max_connections=1, max_keepalive_connections=0, network_backend=backend
        )
        try:
            with _mapped_errors(request):
                answer = await pool.handle_async_request(_core_request(request, parts, self._limits))
            body = _AsyncBody(answer, pool, request, _read_body(answer, self._limits))
        except BaseException:
            await pool.aclose()
            raise
        return _build_response(answer, body)


class _Body(httpx2.SyncByteStream):
    """The body of a response, counted and decompressed. Closing it closes the connection."""

    def __init__(
        self, answer: httpcore2.Response, pool: httpcore2.ConnectionPool, request: httpx2.Request, reader: BodyReader
    ) -> None:
        self._answer, self._pool, self._request, self._reader = answer, pool, request, reader

    def __iter__(self) -> Iterator[bytes]:
        with _mapped_errors(self._request):
            for piece in self._answer.iter_stream():
                yield from self._reader.read(piece)
            self._reader.end()

    def close(self) -> None:
        """Close the connection."""
        self._answer.close()
        self._pool.close()


class _AsyncBody(httpx2.AsyncByteStream):
    """`_Body` for asyncio."""

    def __init__(
        self,
        answer: httpcore2.Response,
        pool: httpcore2.AsyncConnectionPool,
        request: httpx2.Request,
        reader: BodyReader,
    ) -> None:
        self._answer, self._pool, self._request, self._reader = answer, pool, request, reader

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _mapped_errors(self._request):
            async for piece in self._answer.aiter_stream():
                for decoded in self._reader.read(piece):
                    yield decoded
            self._reader.end()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._answer.aclose()
        await self._pool.aclose()


def open_client(
    rule: UrlRule,
    *,
    limits: HttpLimits = _LIMITS,
    resolve: Resolver | None = None,
    ssl_context: ssl.SSLContext | None = None,
    **options: Any,
) -> httpx2.Client:
    """Return an `httpx2.Client` that reaches only what a rule allows, and follows redirects under it.

    Args:
        rule: what may be reached.
        limits: how much one request, with its redirects, may take.
        resolve: resolves names: takes a host and a port, returns addresses; the system's resolver if not given.
        ssl_context: how servers are verified; the default of httpx2 if not given.
        options: others of `httpx2.Client`, such as headers or auth.

    Returns:
        the client; a context manager. Its requests raise `UrlRefused` where the rule or a size is broken, and the
        exceptions of httpx2 for everything else (`TooManyRedirects`, `TimeoutException`).

    Raises:
        MissingExtraError: httpx2 is not installed.
        UsageError: an option would lead around the rule.
    """
    transport = CheckedTransport(rule, limits=limits, resolve=resolve, ssl_context=ssl_context)
    hooks = _take_hooks(options)

    def start_clock(request: httpx2.Request) -> None:
        request.extensions.setdefault(_DEADLINE, Deadline(limits.seconds))

    hooks["request"] = [start_clock, *hooks.get("request", ())]
    return httpx2.Client(transport=transport, event_hooks=hooks, **_client_options(options, limits))


def open_async_client(
    rule: UrlRule,
    *,
    limits: HttpLimits = _LIMITS,
    resolve: Resolver | None = None,
    ssl_context: ssl.SSLContext | None = None,
    **options: Any,
) -> httpx2.AsyncClient:
    """Return an `httpx2.AsyncClient` that reaches only what a rule allows; see `open_client`."""
    transport = AsyncCheckedTransport(rule, limits=limits, resolve=resolve, ssl_context=ssl_context)
    hooks = _take_hooks(options)

    async def start_clock(request: httpx2.Request) -> None:
        request.extensions.setdefault(_DEADLINE, Deadline(limits.seconds))

    hooks["request"] = [start_clock, *hooks.get("request", ())]
    return httpx2.AsyncClient(transport=transport, event_hooks=hooks, **_client_options(options, limits))


def _take_hooks(options: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the hooks among the options, and refuse options that lead around the rule."""
    if wrong := sorted(_OWN_OPTIONS & options.keys()):
        raise UsageError(f"{', '.join(wrong)}: decided by the rule and its limits. Leave it out")
    return dict(options.pop("event_hooks", None) or {})


def _client_options(options: dict[str, Any], limits: HttpLimits) -> dict[str, Any]:
    fixed = {"trust_env": False, "max_redirects": limits.redirects}
    return {"follow_redirects": True, "timeout": limits.seconds, **options, **fixed}


def _check_request(request: httpx2.Request, rule: UrlRule, limits: HttpLimits) -> tuple[UrlParts, Deadline]:
    """Return the URL of a request in its one form, and the time by which it has to be answered."""
    parts = parse_url(str(request.url), rule)
    if isinstance(parts, Finding):
        raise UrlRefused(parts.message, msgspec.structs.replace(parts, at=""))
    deadline = request.extensions.get(_DEADLINE)
    return parts, deadline if isinstance(deadline, Deadline) else Deadline(limits.seconds)


def _core_request(request: httpx2.Request, parts: UrlParts, limits: HttpLimits) -> httpcore2.Request:
    """Return the request as it is sent: every part of its address comes from the URL that was checked."""
    port = "" if parts.port == DEFAULT_PORTS[parts.scheme] else f":{parts.port}"
    own = {b"host": f"{parts.host.url_text}{port}".encode(), b"accept-encoding": b"gzip", b"connection": b"close"}
    sent = [(name, value) for name, value in request.headers.raw if name.lower() not in own]
    url = httpcore2.URL(
        scheme=parts.scheme.encode(), host=parts.host.text.encode(), port=parts.port, target=parts.target.encode()
    )
    timeouts: Any = request.extensions.get("timeout") or dict.fromkeys(("connect", "read", "write"), limits.seconds)
    return httpcore2.Request(
        request.method, url, headers=[*own.items(), *sent], content=request.stream, extensions={"timeout": timeouts}
    )


def _read_body(answer: httpcore2.Response, limits: HttpLimits) -> BodyReader:
    found = {name.lower(): value.decode("latin-1") for name, value in answer.headers}
    return BodyReader(found.get(b"content-encoding", ""), found.get(b"content-length", ""), limits.max_bytes)


def _build_response(answer: httpcore2.Response, body: _Body | _AsyncBody) -> httpx2.Response:
    """Return the response as httpx2 has it. Its body is decompressed, so the headers about that are left out."""
    headers = [(name, value) for name, value in answer.headers if name.lower() not in _BODY_HEADERS]
    told = cast("dict[str, Any]", cast("Any", answer).extensions)
    known: dict[str, Any] = {name: told[name] for name in ("http_version", "reason_phrase") if name in told}
    return httpx2.Response(answer.status, headers=headers, stream=body, extensions=known)


@contextmanager
def _mapped_errors(request: httpx2.Request) -> Generator[None]:
    """Raise errors of httpcore2 as those of httpx2, which have the same names."""
    try:
        yield
    except tuple(_CORE_ERRORS) as error:
        raise _CORE_ERRORS[type(error)](str(error), request=request) from error


_CORE_ERRORS: dict[type[Exception], type[httpx2.TransportError]] = {
    getattr(httpcore2, name): getattr(httpx2, name)
    for name in (
        *("ConnectTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout", "ConnectError", "ReadError", "WriteError"),
        *("LocalProtocolError", "RemoteProtocolError", "ProxyError", "UnsupportedProtocol"),
    )
}
