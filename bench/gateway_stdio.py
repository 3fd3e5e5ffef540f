"""G1: a call of a read-only tool through `pokayoke mcp`, over an empty pump of two threads; direct printed beside.

`python -m bench.gateway_stdio`. Sequential calls in short blocks, which alternate between the ways in random order, so
that a busy machine affects each alike; the median of all calls of a way. The client of the goal is that of the official
SDK in its handshake era, on an event loop; a bare client that writes and reads lines is printed beside, as it spends a
quarter of the time itself and so shows more of the hop. CPU is that of the hop's process, per call.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path

from bench.__main__ import format_goal
from bench.goal import Goal
from bench.measure import QUICK, Effort
from bench.place import Place, temporary_folder

PUMP = str(Path(__file__).with_name("pump.py"))
ECHO = [sys.executable, PUMP, "echo"]
WAYS = {
    "direct": ECHO,
    "pump": [sys.executable, PUMP, "pump", *ECHO],
    "guarded": [sys.executable, "-m", "pokayoke", "mcp", "--read", "echo", "--", *ECHO],
}
BLOCK = 20
TEXT = "x" * 200


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU of all threads of a process; `schedstat` counts nanoseconds, `stat` only ticks."""
    return sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


class BareClient:
    """Writes a line, reads a line."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.reader = self.process.stdout.fileno()
        self.pid, self.number = self.process.pid, 0
        self.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})
        self.request("tools/list", {})

    def request(self, method, params):
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        os.write(self.process.stdin.fileno(), json.dumps(message).encode() + b"\n")
        got = b""
        while not got.endswith(b"\n"):
            got += os.read(self.reader, 65_536)
        return json.loads(got)["result"]

    def call(self):
        assert not self.request("tools/call", {"name": "echo", "arguments": {"text": TEXT}}).get("isError")

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


def rotate(effort: Effort) -> Iterator[str]:
    order = random.Random(5)
    for _ in range(effort.rounds):
        yield from order.sample(list(WAYS), len(WAYS))


def time_bare(effort: Effort) -> tuple[dict[str, list[float]], dict[str, float]]:
    clients = {way: BareClient(command) for way, command in WAYS.items()}
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    for client in clients.values():
        for _ in range(5 * BLOCK):
            client.call()
    before = {way: cpu_of(client.pid) for way, client in clients.items()}
    for way in rotate(effort):
        call = clients[way].call
        for _ in range(BLOCK):
            begun = time.perf_counter()
            call()
            taken[way].append(time.perf_counter() - begun)
    cpu = {way: (cpu_of(client.pid) - before[way]) / (effort.rounds * BLOCK) for way, client in clients.items()}
    for client in clients.values():
        client.close()
    return taken, cpu


async def time_sdk(effort: Effort) -> dict[str, list[float]]:
    from mcp.client.client import Client  # noqa: PLC0415 - an extra
    from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: PLC0415 - as above

    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    async with contextlib.AsyncExitStack() as stack:
        clients = {}
        for way, command in WAYS.items():
            place = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
            clients[way] = await stack.enter_async_context(Client(stdio_client(place), mode="legacy"))
            await clients[way].list_tools()
            for _ in range(5 * BLOCK):
                await clients[way].call_tool("echo", {"text": TEXT})
        for way in rotate(effort):
            call = clients[way].call_tool
            for _ in range(BLOCK):
                begun = time.perf_counter()
                await call("echo", {"text": TEXT})
                taken[way].append(time.perf_counter() - begun)
    return taken


def describe(taken: dict[str, list[float]], way: str) -> tuple[float, float]:
    middle = {name: statistics.median(times) for name, times in taken.items()}
    return middle[way] / middle["pump"], middle[way] / middle["direct"]


def stdio(_: Place, effort: Effort) -> Iterator[Goal]:
    """G1: the whole hop, seen by two clients."""
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1] / "src")
    bare, cpu = time_bare(effort)
    title = "call through pokayoke mcp over an empty pump, p50, SDK client"
    if importlib.util.find_spec("mcp") is None:
        yield Goal("G1", title, None, 1.4, 1.25, note="mcp is not installed")
    else:
        taken = asyncio.run(time_sdk(effort))
        value, direct = describe(taken, "guarded")
        note = f"{direct:.2f} of direct; the pump {describe(taken, 'pump')[1]:.2f}"
        yield Goal("G1", title, value, 1.4, 1.25, note=note)
    value, direct = describe(bare, "guarded")
    note = f"{direct:.2f} of direct; the pump {describe(bare, 'pump')[1]:.2f}"
    yield Goal("G1", "the same, with a client of bare lines", value, inf, inf, note=note)
    note = f"{cpu['guarded'] * 1e6:.0f} over {cpu['pump'] * 1e6:.0f} microseconds a call"
    yield Goal("G1", "CPU of the hop over that of the pump", cpu["guarded"] / cpu["pump"], inf, inf, note=note)


def main() -> int:
    missed = False
    with temporary_folder() as root:
        place = Place(root)
        for goal in stdio(place, QUICK if "--quick" in sys.argv else Effort()):
            print(format_goal(goal))
            missed = missed or not goal.is_met
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
