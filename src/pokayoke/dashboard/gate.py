"""The door of the dashboard: what is looked at before a page sees a request, and the headers of every answer.

In: HTTP requests, of anybody.
Out: the request with its visitor and its form, to the pages behind; or the answer that turns it away.
Never: a request for another host, a form of another page, a body without an end, or an answer that may be cached.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import anyio
import msgspec

from pokayoke.dashboard.access import Access, Visitor

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

CSRF_FIELD: Final = "csrf"
_MAX_FORM_BYTES: Final = 65_536
_MAX_FIELDS: Final = 300
_BODY_SECONDS: Final = 10.0
_OPEN_PATHS: Final = ("/healthz", "/enter", "/static/")
"""Paths that need no visitor."""
_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_PLAIN_POLICY: Final = b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'"


class RequestState(msgspec.Struct):
    """What the gate knows of a request; a page finds it in its scope.

    Args:
        visitor: who sends it; None on the few paths that need nobody.
        form: the fields of a POST.
        cookies: of the request.
    """

    visitor: Visitor | None = None
    form: dict[str, str] = {}
    cookies: dict[str, str] = {}


class EntryRefused(Exception):  # noqa: N818 - the answer to a request
    """A request is answered with this status instead."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class DashboardGate:
    """An ASGI application in front of the pages.

    Args:
        pages: serves the requests that are let in.
        access: whom to let in.
        machine: serves signed requests of programs below `/approvals`, which have no visitor; None for none.
        refuse: answers a request that was turned away.
    """

    def __init__(
        self,
        pages: AsgiApp,
        access: Access,
        machine: AsgiApp | None,
        refuse: Callable[[Scope, EntryRefused], AsgiApp],
    ) -> None:
        self._pages, self._access, self._machine, self._refuse = pages, access, machine, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; everything else is passed through."""
        if scope["type"] != "http":
            await self._pages(scope, receive, send)
            return
        guarded = _with_headers(send)
        if self._machine is not None and _path(scope).split("/")[1] == "approvals":
            await self._machine(scope, receive, guarded)
            return
        try:
            state = await self._admit(scope, receive)
        except EntryRefused as refused:
            scope["pokayoke"] = RequestState()
            await self._refuse(scope, refused)(scope, receive, guarded)
            return
        scope["pokayoke"] = state
        await self._pages(scope, receive, guarded)

    async def _admit(self, scope: Scope, receive: Receive) -> RequestState:
        headers = _read_headers(scope)
        host = headers.get("host", "")
        if _without_port(host).lower() not in self._access.hosts:
            raise EntryRefused(421, "This host name is not served here.")
        method, path = scope["method"], _path(scope)
        if method not in ("GET", "HEAD", "POST"):
            raise EntryRefused(405, "Pages take GET and POST.")
        if "\x00" in path or b"%00" in scope["query_string"]:  # no database finds a text with one
            raise EntryRefused(400, "This address cannot be read.")
        cookies = _read_cookies(headers.get("cookie", ""))
        address = (scope.get("client") or ("", 0))[0]
        visitor = self._access.identify(headers, cookies, address)
        is_open = any(path == one or (one.endswith("/") and path.startswith(one)) for one in _OPEN_PATHS)
        is_open = is_open or (path == "/metrics" and self._access.may_scrape(address))
        if visitor is None and not is_open:
            raise EntryRefused(401, "Nobody has signed in here.")
        if method != "POST":
            return RequestState(visitor, cookies=cookies)
        _check_origin(headers, host)
        form = _parse_form(headers, await _read_body(receive))
        if path != "/enter":
            assert visitor is not None, "of the open paths only this one takes a form"
            if not hmac.compare_digest(form.get(CSRF_FIELD, "").encode(), visitor.csrf.encode()):
                raise EntryRefused(
                    403, "This form is not one of yours, or is older than this server: load the page anew."
                )
            if not visitor.may_decide:
                raise EntryRefused(403, "You may look here, not decide.")
        return RequestState(visitor, form, cookies)


def request_state(scope: Scope) -> RequestState:
    """Return what the gate knows of a request."""
    found: RequestState = scope["pokayoke"]
    return found


def _check_origin(headers: Mapping[str, str], host: str) -> None:
    """Turn away a form that another page has sent.

    A page with `Referrer-Policy: no-referrer` sends its forms with the origin `null`, so `Sec-Fetch-Site`, which no
    page can set, decides where a browser sends it (https, and this machine).
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    own = origin is not None and urlsplit(origin).netloc.lower() == host.lower()
    if (site is not None and site != "same-origin") or (site is None and not own):
        raise EntryRefused(403, "This form was sent by another page.")
    if origin not in (None, "null") and not own:
        raise EntryRefused(403, "This form was sent by a page of another origin.")


async def _read_body(receive: Receive) -> bytes:
    body = bytearray()
    with anyio.move_on_after(_BODY_SECONDS):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise EntryRefused(400, "The form is not complete.")
            body += message.get("body", b"")
            if len(body) > _MAX_FORM_BYTES:
                raise EntryRefused(413, f"A form takes at most {_MAX_FORM_BYTES} bytes.")
            if not message.get("more_body", False):
                return bytes(body)
    raise EntryRefused(408, "The form was not complete in time.")


def _parse_form(headers: Mapping[str, str], body: bytes) -> dict[str, str]:
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise EntryRefused(415, "A form is sent as application/x-www-form-urlencoded.")
    try:
        return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS))
    except ValueError:
        raise EntryRefused(400, "The form cannot be read.") from None


def _read_headers(scope: Scope) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return found


def _read_cookies(header: str) -> dict[str, str]:
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(header).items()}
    except CookieError:
        return {}


def _path(scope: Scope) -> str:
    """Return the path of a request below the place where the application is mounted."""
    path, root = scope["path"], scope.get("root_path", "").rstrip("/")
    below = path[len(root) :] if root and path.startswith(f"{root}/") else path
    return below or "/"


def _without_port(host: str) -> str:
    if host.startswith("["):
        head, bracket, _ = host.partition("]")
        return head + bracket
    return host.rpartition(":")[0] if ":" in host else host


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message["headers"]}
            more = [(name, value) for name, value in _HEADERS if name not in names]
            if b"content-security-policy" not in names:
                more.append((b"content-security-policy", _PLAIN_POLICY))
            message["headers"] = [*message["headers"], *more]
        await send(message)

    return send_with_headers
