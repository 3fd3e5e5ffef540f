"""A real HTTP server in a thread: the service the agent reads profiles, prices and stock from."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Response = tuple[int, str, str]
"""Status, content type and body."""

MAINTENANCE_PAGE = (
    "<!doctype html>\n<html><head><title>Maintenance</title></head>\n"
    "<body>We'll be back soon. Enterprise customers: please call your account manager.</body></html>"
)

_RECORDS: dict[str, dict[str, Any]] = {
    "prices": {"sku": "S1", "cents": 1700},
    "stock": {"sku": "S1", "units": 70},
}


class Upstream:
    """The service. It starts with the first request and answers on 127.0.0.1 only."""

    def __init__(self) -> None:
        self._spoil: Callable[[dict[str, Any]], Response] | None = None
        self._server: ThreadingHTTPServer | None = None
        # A proxy of the user's environment must not see requests to this machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def break_with(self, spoil: Callable[[dict[str, Any]], Response] | None) -> None:
        """Answer with what `spoil` makes of a good record from now on; None ends that."""
        self._spoil = spoil

    def fetch_record(self, path: str) -> dict[str, Any]:
        """GET a record; returns the response unchanged."""
        with self._opener.open(f"{self._server_url()}/{path}", timeout=10.0) as response:
            return {
                "status": response.status,
                "content_type": response.headers["Content-Type"],
                "body": response.read().decode(),
            }

    def close(self) -> None:
        """Stop the server, if it ever started."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def build_response(self, path: str) -> Response:
        """Return the response to a path such as `/profiles/U01`."""
        kind, _, key = path.strip("/").partition("/")
        record = _RECORDS.get(kind) or {"user_id": key, "plan": "pro", "seats": 3}
        return self._spoil(record) if self._spoil else (200, "application/json", json.dumps(record))

    # The tools.

    def get_profile(self, user_id: str) -> dict[str, Any]:
        """Read a customer's profile: their plan and number of seats."""
        return self.fetch_record(f"profiles/{user_id}")

    def get_price(self, sku: str) -> dict[str, Any]:
        """Read the supplier's recommended price of an item, in cents."""
        return self.fetch_record(f"prices/{sku}")

    def get_stock(self, sku: str) -> dict[str, Any]:
        """Read how many units of an item the warehouse holds."""
        return self.fetch_record(f"stock/{sku}")

    def _server_url(self) -> str:
        if self._server is None:
            self._server = ThreadingHTTPServer(("127.0.0.1", 0), _build_handler(self))
            self._server.daemon_threads = True
            threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_address[1]}"


def _build_handler(upstream: Upstream) -> type[BaseHTTPRequestHandler]:
    class UpstreamHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content_type, body = upstream.build_response(self.path)
            payload = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name the base class uses
            """Stay silent."""

    return UpstreamHandler
