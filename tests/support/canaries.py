"""Canary secrets: what makes a text secret, how it is repeated, and the search for it in bytes.

A row of `NAMED` or `SHAPES` says where the canary stands and what makes it known as a secret, one of `ECHOES` how it is
repeated.
"""

import base64
import http.client
import http.server
import json
import logging
import random
import string
import threading
import time
from urllib.parse import quote

from pokayoke.runtime.approvals.approvals import Approvals
from pokayoke.runtime.approvals.signature import secrets_from_environment, sign
from pokayoke.runtime.config.config import load_policy
from pokayoke.runtime.trace.redaction import build_redactor

LETTERS = string.ascii_letters + string.digits


def _luhn(digits):
    total = sum(int(d) for d in digits[-2::-2]) + sum(sum(divmod(2 * int(d), 10)) for d in digits[-1::-2])
    return digits + str(-total % 10)


def _jwt(text):
    parts = (
        base64.urlsafe_b64encode(json.dumps({"typ": "JWT", "v": text[:8]}).encode()).decode().rstrip("="),
        text,
        text[::-1],
    )
    return ".".join(parts)


# Structure alone makes each of these a secret: the text to write, and the part of it that must not be found.
SHAPES = {
    "sk": lambda t: (f"sk-{t}", t),
    "github": lambda t: (f"ghp_{t}", t),
    "aws": lambda t: (f"AKIA{t[:16].upper()}", t[:16].upper()),
    "jwt": lambda t: (_jwt(t), t),
    "pem": lambda t: (f"-----BEGIN RSA PRIVATE KEY-----\n{t[:12]}\n{t}\n-----END RSA PRIVATE KEY-----", t),
    "url": lambda t: (f"postgresql://app:{t}@db.example.org/x", t),
    "assignment": lambda t: (f"login failed: password={t} for ann", t),
    "json in text": lambda t: (json.dumps(json.dumps({"a": {"api_key": t}})), t),
    "card": lambda t: (card := _luhn("4" + str(int.from_bytes(t.encode(), "big"))[-14:]), card),
    "iban": lambda t: (iban := _iban(t), iban),
    "header": lambda t: (f"Authorization: Bearer {t}", t),
}  # fmt: skip


def _iban(text):
    number = str(int.from_bytes(text.encode(), "big"))[-18:]
    return f"DE{98 - int(number + '131400') % 97:02d}{number}"


# Places of a secret that only a mark or a name reveals: the arguments, and the texts that repeat it.
NAMED = {
    "marked": lambda s: {"nip": s},
    "named": lambda s: {"more": {"password": s}},
    "nested": lambda s: {"more": [{"a": {"client_secret": [s, {"b": s}]}}]},
    "header list": lambda s: {"more": [["Authorization", s]]},
    "setting": lambda s: {"more": [{"name": "DB_PASSWORD", "value": s}]},
}
# How a tool, or the text after it, repeats a secret that was named in the arguments.
ECHOES = {
    "plain": lambda s: f"no: {s}!",
    "repr": lambda s: repr({"x": s}),
    "json": lambda s: json.dumps(json.dumps({"x": s})),
    "url": lambda s: f"https://h/{quote(s, safe='')}",
    "base64": lambda s: "raw " + base64.b64encode(s.encode()).decode(),
    "base64 inside": lambda s: base64.b64encode(f"user:{s}:end".encode()).decode(),
    "hex": lambda s: s.encode().hex(),
    "bytes": lambda s: str(s.encode()),
}


class Receiver:
    """A real HTTP server that keeps the bodies it is sent."""

    def __init__(self):
        self.got, self.arrived = [], threading.Event()
        there = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                there.got.append(str(self.headers).encode() + self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()
                there.arrived.set()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Logged(logging.Handler):
    """Keeps what is logged."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(self.format(record))


def forms(secret):
    """The spellings of a secret that must not be found: plain, in base64 and in hexadecimal."""
    data = secret.encode()
    inner = [base64.b64encode(b"\0" * lead + data)[(8 * lead + 5) // 6 :].rstrip(b"=")[:-1] for lead in range(3)]
    return [data, data.hex().encode(), *inner]


def served_questions(store):
    """What `pokayoke approvals serve` answers a signed request for the waiting questions of a store."""
    from pokayoke.dashboard.machine import SignedApprovals  # noqa: PLC0415 - an extra
    from pokayoke.dashboard.serve import build_server, listen_on  # noqa: PLC0415 - as above

    secrets, ready = secrets_from_environment(), threading.Event()
    endpoint = SignedApprovals(Approvals(store), secrets, build_redactor(load_policy(None).trace), print)
    with listen_on("127.0.0.1:0", "--listen") as listening:
        server = build_server(endpoint, ready=ready.set)
        thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
        thread.start()
        assert ready.wait(30)
        connection = http.client.HTTPConnection("127.0.0.1", listening.getsockname()[1], timeout=30)
        try:
            connection.request("GET", "/approvals", headers=sign(secrets, "msg-1", b"", time.time()))
            answer = connection.getresponse()
            assert answer.status == 200
            return str(answer.headers).encode() + answer.read()
        finally:
            connection.close()
            server.should_exit = True
            thread.join(30)


def database_rows(url):
    """Every row of every table of the schema, as bytes."""
    import psycopg  # noqa: PLC0415 - an extra

    with psycopg.connect(url) as conn:
        tables = [r[0] for r in conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")]
        dumped = b""
        for table in tables:
            with conn.cursor().copy(f'COPY "{table}" TO STDOUT (FORMAT binary)') as copy:
                dumped += b"".join(bytes(block) for block in copy)
        return dumped


def hits(sinks, secret):
    """The sinks in which a spelling of a secret is found."""
    return sorted({name for name, data in sinks.items() for form in forms(secret) if form in data})


def assert_clean(sinks, secret, about):
    """Fail with the sinks in which a spelling of the secret is found."""
    assert hits(sinks, secret) == [], about


def draw_letters(seed):
    """Random letters, the same for the same seed."""
    return "".join(random.Random(seed).choices(LETTERS, k=24))


def pick(rows, full):
    """Every row at full size; else every ninth, so that each place, form and way still occurs."""
    return rows if full else rows[::9]
