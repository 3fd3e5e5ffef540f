"""The HTTP server of `pokayoke approvals serve`: signed questions out, signed answers in.

In: signed requests.
Out: JSON.
Never: an unsigned answer accepted, one for another question, or one that was recorded and replayed to a question
    asked later.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast

import msgspec

from pokayoke.cli.output import print_message
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import is_object
from pokayoke.core.redaction.redactor import Redactor
from pokayoke.errors import ConfigurationError, StoreError
from pokayoke.runtime.approvals.approvals import Approvals
from pokayoke.runtime.approvals.signature import secrets_from_environment, verify
from pokayoke.runtime.approvals.webhook import question_data
from pokayoke.runtime.config.config import load_policy
from pokayoke.runtime.threads.clock import SystemClock
from pokayoke.runtime.trace.redaction import build_redactor
from pokayoke.stores.base import Store

_PATH: Final = re.compile(r"/approvals/([a-z]{2}-[0-9a-f]{1,64})", re.ASCII)
_MAX_BODY_BYTES: Final = 16_384
_SOCKET_TIMEOUT: Final = 10.0
"""Seconds a client may be silent."""
_CONNECTION_TIMEOUT: Final = 30.0
"""Most seconds for a connection."""
_MAX_CONNECTIONS: Final = 16
_LAST_PORT: Final = 65_535
_DECISIONS: Final = {"approve": True, "deny": False}
_KEYS: Final = frozenset({"id", "decision", "by", "reason"})


class RequestRefused(Exception):  # noqa: N818 - the answer to a request
    """A request is answered with this error instead."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class ApprovalServer(ThreadingHTTPServer):
    """Serves one store.

    Args:
        address: host and port.
        approvals: the questions.
        secrets: shared by both sides.
        redactor: removes secrets from what is shown.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(
        self, address: tuple[str, int], approvals: Approvals, secrets: tuple[bytes, ...], redactor: Redactor
    ) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.approvals, self.secrets, self.redactor = approvals, secrets, redactor
        self.clock = SystemClock()
        self.room = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        super().__init__(address, ApprovalHandler)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port on which it listens."""
        host, port = self.server_address[:2]
        return str(host), int(port)

    @property
    def is_local(self) -> bool:
        """True if only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.address[0]).is_loopback
        except ValueError:
            return False

    def process_request(self, request: Any, client_address: Any) -> None:
        """Accept a connection, if fewer than the limit are open."""
        if not self.room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except Exception:  # no thread could be started, so none releases the slot
            self.room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection and release its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection. A client that sends a byte now and then is cut off too."""
        cut = threading.Timer(_CONNECTION_TIMEOUT, lambda: request.shutdown(socket.SHUT_RDWR))
        cut.daemon = True
        cut.start()
        try:
            super().finish_request(request, client_address)
        finally:
            cut.cancel()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the signature of the base class
        """Report a broken connection on stderr, in one line."""
        error = sys.exc_info()[1]
        print_message(f"{client_address[0]} {type(error).__name__}: {error}")

    def run_until_interrupt(self) -> None:
        """Serve until Ctrl-C."""
        try:
            self.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return


@contextmanager
def open_server(store: Store, listen: str, config: str | None) -> Generator[ApprovalServer]:
    """Open the server of a store.

    Args:
        store: holds the questions.
        listen: `host:port`, `[host]:port`.
        config: the configuration whose redaction rules apply, or None for the built-in ones.

    Raises:
        ConfigurationError: the address is invalid or cannot be listened on, or there is no secret.
        PolicyError: the configuration is invalid.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > _LAST_PORT:
        raise ConfigurationError(f"--listen {listen!r}: expected HOST:PORT, such as 127.0.0.1:8787")
    redactor = build_redactor(load_policy(config).trace)
    secrets = secrets_from_environment()
    try:
        server = ApprovalServer((host.strip("[]"), int(port)), Approvals(store), secrets, redactor)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {listen}: {error.strerror}. Name another with --listen") from None
    try:
        yield server
    finally:
        server.server_close()


class ApprovalHandler(BaseHTTPRequestHandler):
    """One request. Nothing of it but its length is read before its signature is verified."""

    server_version = "pokayoke"
    sys_version = ""
    default_request_version = "HTTP/1.0"
    timeout = _SOCKET_TIMEOUT

    @property
    def _approval_server(self) -> ApprovalServer:
        return cast("ApprovalServer", self.server)

    def do_GET(self) -> None:
        """List the waiting questions."""
        self._answer_request("GET")

    def do_POST(self) -> None:
        """Record a decision."""
        self._answer_request("POST")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the signature of the base class
        """Log request and answer to stderr; a request line may hold anything, so it is escaped."""
        print_message(f"{self.client_address[0]} {format % args}")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002 - the signature of the base class
        """Refuse an unknown request, without repeating any of it."""
        self._send_json(code, {"error": "this is no request that is understood here"})

    def _answer_request(self, method: str) -> None:
        try:
            self._send_json(200, self._route_request(method))
        except RequestRefused as refusal:
            self._send_json(refusal.status, {"error": refusal.message})
        except TimeoutError:
            self.close_connection = True
        except Exception as error:  # noqa: BLE001 - a store may raise anything; the client learns that nothing was stored
            print_message(f"error: {type(error).__name__}: {error}")
            self._send_json(503, {"error": f"the store cannot be used ({type(error).__name__})"})

    def _route_request(self, method: str) -> Any:
        body = self._read_body() if method == "POST" else b""
        now = self._approval_server.clock.now()
        at = verify(self._approval_server.secrets, body, headers=cast("Mapping[str, str]", self.headers), now=now)
        if at is None:
            raise RequestRefused(401, "the signature does not hold: see the guide on approvals for what is signed")
        if method == "GET" and self.path == "/approvals":
            return [question_data(a, self._approval_server.redactor) for a in self._approval_server.approvals.list()]
        found = _PATH.fullmatch(self.path)
        if method != "POST" or found is None:
            raise RequestRefused(404, "there are GET /approvals and POST /approvals/ID")
        return self._apply_decision(found[1], at, *_parse_decision(body, found[1]))

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") is not None or len(self.headers.get_all("Content-Length", [])) != 1:
            raise RequestRefused(411, "one Content-Length is needed")
        length = self.headers["Content-Length"]
        if not (length.isascii() and length.isdecimal()):
            raise RequestRefused(400, "the Content-Length is no number")
        if len(length) > len(str(_MAX_BODY_BYTES)) or int(length) > _MAX_BODY_BYTES:
            raise RequestRefused(413, f"a decision takes at most {_MAX_BODY_BYTES} bytes")
        body = self.rfile.read(int(length))
        if len(body) != int(length):
            raise RequestRefused(400, "the body is shorter than its Content-Length")
        return body

    def _apply_decision(self, approval_id: str, at: float, approved: bool, by: str, reason: str) -> Any:
        approvals = self._approval_server.approvals
        try:
            known = approvals.get(approval_id)
        except StoreError as error:
            raise RequestRefused(404, str(error)) from None
        # A question may be asked again under the same id: an answer signed before is not about this one.
        if at < int(known.asked_at):
            raise RequestRefused(409, "this answer was signed before the question was asked")
        if known.status == "waiting":
            try:
                known = approvals.answer(approval_id, approved=approved, by=by, reason=reason)
            except StoreError:  # it was answered meanwhile, or it has expired
                known = approvals.get(approval_id)
        if not (known.granted if approved else known.status == "denied"):
            raise RequestRefused(409, f"{approval_id} is {known.status} already")
        return {"id": known.id, "status": known.status, "by": known.by}

    def _send_json(self, status: int, value: Any) -> None:
        body = msgspec.json.encode(value)
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)


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
