"""The endpoint of programs: signed questions out, signed answers in.

In: signed requests below `/approvals`.
Out: JSON.
Never: an unsigned answer accepted, one for another question, or one that was recorded and replayed to a question
    asked later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio
import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers

from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import is_object
from pokayoke.core.redaction.redactor import Redactor
from pokayoke.dashboard.gate import Receive, Scope, Send
from pokayoke.errors import StoreError
from pokayoke.runtime.approvals.approvals import Approvals
from pokayoke.runtime.approvals.signature import verify
from pokayoke.runtime.approvals.webhook import question_data
from pokayoke.runtime.threads.clock import Clock, SystemClock

_PATH: Final = re.compile(rb"/approvals/([a-z]{2}-[0-9a-f]{1,64})")
_MAX_BODY_BYTES: Final = 16_384
_BODY_SECONDS: Final = 10.0
"""Seconds until a body is complete."""
_DECISIONS: Final = {"approve": True, "deny": False}
_KEYS: Final = frozenset({"id", "decision", "by", "reason"})


class RequestRefused(Exception):  # noqa: N818 - the answer to a request
    """A request is answered with this error instead."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class SignedApprovals:
    """An ASGI application that serves the questions of a store to whoever holds a secret.

    Args:
        approvals: the questions.
        secrets: shared by both sides.
        redactor: removes secrets from what is shown.
        report: called with one line for each request; the line holds foreign text.
        clock: gives the time.
    """

    def __init__(
        self,
        approvals: Approvals,
        secrets: Sequence[bytes],
        redactor: Redactor,
        report: Callable[[str], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        self._approvals, self._secrets, self._redactor, self._report = approvals, secrets, redactor, report
        self._clock: Clock = clock or SystemClock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; the start and the end of the server need nothing."""
        if scope["type"] != "http":
            await _answer_lifespan(receive, send)
            return
        try:
            status, value = 200, await self._route_request(scope, receive)
        except RequestRefused as refused:
            status, value = refused.status, {"error": refused.message}
        except Exception as error:  # noqa: BLE001 - a store may raise anything; the client learns that nothing was stored
            self._report(f"error: {type(error).__name__}: {error}")
            status, value = 503, {"error": f"the store cannot be used ({type(error).__name__})"}
        address = (scope.get("client") or ("-", 0))[0]
        self._report(f"{address} {scope['method']} {scope['path']} {status}")
        await _send_json(send, status, value)

    async def _route_request(self, scope: Scope, receive: Receive) -> Any:
        root = scope.get("root_path", "").rstrip("/").encode()
        method, path = scope["method"], (scope.get("raw_path") or scope["path"].encode()).removeprefix(root)
        headers = Headers(scope=scope)
        body = await _read_body(headers, receive) if method == "POST" else b""
        at = verify(self._secrets, body, headers=headers, now=self._clock.now())
        if at is None:
            raise RequestRefused(401, "the signature does not hold: see the guide on approvals for what is signed")
        is_plain = not scope["query_string"]
        if method == "GET" and path == b"/approvals" and is_plain:
            return await run_in_threadpool(self._list_questions)
        found = _PATH.fullmatch(path)
        if method != "POST" or found is None or not is_plain:
            raise RequestRefused(404, "there are GET /approvals and POST /approvals/ID")
        approval_id = found[1].decode()
        return await run_in_threadpool(self._apply_decision, approval_id, at, *_parse_decision(body, approval_id))

    def _list_questions(self) -> list[Any]:
        return [question_data(approval, self._redactor) for approval in self._approvals.list()]

    def _apply_decision(self, approval_id: str, at: float, approved: bool, by: str, reason: str) -> Any:
        try:
            known = self._approvals.get(approval_id)
        except StoreError as error:
            raise RequestRefused(404, str(error)) from None
        # A question may be asked again under the same id: an answer signed before is not about this one.
        if at < int(known.asked_at):
            raise RequestRefused(409, "this answer was signed before the question was asked")
        if known.status == "waiting":
            try:
                known = self._approvals.answer(approval_id, approved=approved, by=by, reason=reason)
            except StoreError:  # it was answered meanwhile, or it has expired
                known = self._approvals.get(approval_id)
        is_first = approved and known.first is not None and known.first.by == by  # another person decides
        if not (known.granted or is_first if approved else known.status == "denied"):
            raise RequestRefused(409, f"{approval_id} is {known.status} already")
        return {"id": known.id, "status": known.status, "by": known.by}


async def _read_body(headers: Headers, receive: Receive) -> bytes:
    lengths = headers.getlist("content-length")
    if headers.get("transfer-encoding") is not None or len(lengths) != 1:
        raise RequestRefused(411, "one Content-Length is needed")
    length = lengths[0]
    if not (length.isascii() and length.isdecimal()):
        raise RequestRefused(400, "the Content-Length is no number")
    if len(length) > len(str(_MAX_BODY_BYTES)) or int(length) > _MAX_BODY_BYTES:
        raise RequestRefused(413, f"a decision takes at most {_MAX_BODY_BYTES} bytes")
    body = bytearray()
    with anyio.move_on_after(_BODY_SECONDS):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestRefused(400, "the body is shorter than its Content-Length")
            body += message.get("body", b"")
            if not message.get("more_body", False):
                return bytes(body)
    raise RequestRefused(408, f"the body was not complete within {_BODY_SECONDS:g} seconds")


def _parse_decision(body: bytes, approval_id: str) -> tuple[bool, str, str]:
    """Return the decision in a body, which names the question: the signature does not cover the path."""
    try:
        value = parse(body)[0]
    except StrictError as error:
        raise RequestRefused(400, f"no strict JSON: {error}") from None
    if not is_object(value) or not value.keys() <= _KEYS:
        raise RequestRefused(400, "expected an object with id, decision, by and reason")
    if value.get("id") != approval_id:
        raise RequestRefused(400, "id names the question, as the path does")
    decision, by, reason = value.get("decision"), value.get("by"), value.get("reason", "")
    if not isinstance(decision, str) or decision not in _DECISIONS:
        raise RequestRefused(400, "decision is approve or deny")
    if not isinstance(by, str) or not by.strip() or not isinstance(reason, str):
        raise RequestRefused(400, "by is needed, and by and reason are texts")
    return _DECISIONS[decision], by, reason


async def _answer_lifespan(receive: Receive, send: Send) -> None:
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": f"{message['type']}.complete"})
    await send({"type": "lifespan.shutdown.complete"})


async def _send_json(send: Send, status: int, value: Any) -> None:
    body = msgspec.json.encode(value)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
