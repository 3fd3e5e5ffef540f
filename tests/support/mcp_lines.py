"""A client of MCP that speaks in lines, so that a test sees every byte."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
OUTCOME = "io.github.pokayoke/outcome"


class LineClient:
    """Starts a command; sends lines to it, and waits for what it answers."""

    def __init__(self, *command, env=None):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **(env or {})}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        self.lines = queue.Queue()
        self.seen, self.notes, self.raw = [], [], []
        self._ids = 0
        streams = ((self.process.stdout, self._take), (self.process.stderr, self.notes.append))
        self._threads = [threading.Thread(target=self._read, args=one, daemon=True) for one in streams]
        for thread in self._threads:
            thread.start()

    def _take(self, line):
        self.raw.append(line)
        self.lines.put((time.monotonic(), line))

    def _read(self, stream, take):
        for line in stream:
            take(line)
        if stream is self.process.stdout:
            self.lines.put(None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            for thread in self._threads:
                thread.join(5)
            self.process.stdout.close()
            self.process.stderr.close()

    def send(self, **message):
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def write(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def next_id(self):
        self._ids += 1
        return self._ids

    def request(self, method, params=None, *, within=20.0, ident=None):
        """Send a request and return the message that answers it."""
        ident = self.next_id() if ident is None else ident
        self.send(id=ident, method=method, params=params or {})
        return self.answer(ident, within=within)

    def answer(self, ident, within=20.0):
        """Return the message that answers a request; other messages go to `seen`."""
        for one in self.seen:
            if "method" not in one and one.get("id") == ident:
                self.seen.remove(one)
                return one
        return self.wait(lambda one: "method" not in one and one.get("id") == ident, within)

    def wait(self, wanted, within=20.0):
        """Return the next message of a kind; other messages go to `seen`."""
        end = time.monotonic() + within
        while True:
            got = self.lines.get(timeout=max(0.01, end - time.monotonic()))
            if got is None:
                raise EOFError(b"".join(self.notes).decode())
            message = json.loads(got[1])
            if wanted(message):
                return message
            if len(self.seen) < 1_000:
                self.seen.append(message)

    def initialize(self, capabilities=None):
        """Shake hands."""
        params = {"protocolVersion": "2025-06-18", "capabilities": capabilities or {}}
        answer = self.request("initialize", {**params, "clientInfo": {"name": "lines", "version": "1"}})
        self.send(method="notifications/initialized")
        return answer

    def call(self, name, arguments=None, *, within=20.0, ident=None, **meta):
        """Call a tool; return the result."""
        params = {"name": name, "arguments": arguments or {}, **({"_meta": meta} if meta else {})}
        answer = self.request("tools/call", params, within=within, ident=ident)
        return answer.get("result", answer)


def gateway(*options, server):
    """Return the words that start `pokayoke mcp` in front of a server."""
    return [sys.executable, "-m", "pokayoke", "mcp", *options, "--", *server]


def status(result):
    """Return what a result says of its call."""
    return result["_meta"][OUTCOME]["status"]


def text(result):
    """Return the first text of a result."""
    return result["content"][0]["text"]
