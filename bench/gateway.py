"""P20 and P21: a call over HTTP, through the gateway and through hops that do nothing else; memory after many calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path

from bench.goal import Goal
from bench.measure import Effort
from bench.place import Place
from pokayoke.stores import open_store

HOPS = Path(__file__).with_name("gateway_hops.py")
FASTMCP = Path(__file__).parents[1] / ".frameworks" / "fastmcp" / "bin" / "python"
WARM_UP, BLOCK = 60, 40


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start_hops(folder: str) -> dict[str, tuple[subprocess.Popen[bytes], str]]:
    """Start each hop as a process of its own; return them with their addresses, the server itself as `direct`."""
    ports = {name: free_port() for name in ("direct", "raw", "sdk", "ours", "fastmcp")}
    urls = {name: f"http://127.0.0.1:{port}/mcp" for name, port in ports.items()}
    servers = Path(folder, "servers.json")
    servers.write_text(json.dumps({"mcpServers": {"echo": {"url": urls["direct"]}}}))
    words = {
        name: [sys.executable, str(HOPS), "server" if name == "direct" else name, str(port), urls["direct"]]
        for name, port in ports.items()
    }
    words["ours"] = [
        sys.executable,
        "-m",
        "pokayoke",
        "gateway",
        str(servers),
        "--port",
        str(ports["ours"]),
        "--trust-hints",
    ]
    if FASTMCP.exists():
        words["fastmcp"][0] = str(FASTMCP)
    else:
        del words["fastmcp"]
    log = Path(folder, "hops.log").open("wb")  # noqa: SIM115 - the processes write to it
    started = {}
    for name, line in words.items():
        started[name] = (subprocess.Popen(line, stdout=log, stderr=log), urls[name])
        wait_for(ports[name])
    return started


def wait_for(port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port}")


async def measure(hops: dict[str, tuple[subprocess.Popen[bytes], str]], rounds: int) -> dict[str, tuple[float, float]]:
    """Return p50 of a call and CPU seconds of the hop per call; the hops take turns, in random order."""
    from mcp import Client  # noqa: PLC0415 - as slow to import as all the rest

    order, times = random.Random(7), {name: [] for name in hops}
    used = dict.fromkeys(hops, 0.0)
    async with contextlib.AsyncExitStack() as stack:
        clients = {name: await stack.enter_async_context(Client(url)) for name, (_, url) in hops.items()}
        for client in clients.values():
            await client.list_tools()
            for _ in range(WARM_UP):
                await client.call_tool("echo", {"text": "x" * 100})
        for _ in range(rounds):
            for name in order.sample(list(hops), len(hops)):
                before = cpu_seconds(hops[name][0])
                for _ in range(BLOCK):
                    begin = time.perf_counter()
                    result = await clients[name].call_tool("echo", {"text": "x" * 100})
                    times[name].append(time.perf_counter() - begin)
                    assert not result.is_error, (name, result)
                used[name] += cpu_seconds(hops[name][0]) - before
    return {name: (sorted(taken)[len(taken) // 2], used[name] / len(taken)) for name, taken in times.items()}


def http(place: Place, effort: Effort) -> Iterator[Goal]:
    """P20: p50 of sequential calls with the official Python SDK's client, and CPU of each hop per call."""
    hops = start_hops(place.root)
    try:
        found = asyncio.run(measure(hops, 8 if effort.is_quick else 40))
    finally:
        for process, _ in hops.values():
            process.terminate()
        for process, _ in hops.values():
            process.wait(10)
    p50, cpu = ({name: one[at] for name, one in found.items()} for at in (0, 1))
    note = f"{p50['ours'] * 1e3:.2f} ms; direct {p50['direct'] * 1e3:.2f} ms; client: mcp (Python SDK)"
    yield Goal("P20", "HTTP call, gateway over an empty SDK relay", p50["ours"] / p50["sdk"], 0.9, 0.8, note=note)
    note = f"raw {p50['raw'] * 1e3:.2f} ms, SDK relay {p50['sdk'] * 1e3:.2f} ms"
    yield Goal("P20", "HTTP call, gateway over a raw ASGI relay", p50["ours"] / p50["raw"], 1.4, 1.25, note=note)
    yield Goal("-", "HTTP call, gateway over direct", p50["ours"] / p50["direct"], inf, inf)
    if "fastmcp" in found:
        note = f"{cpu['fastmcp'] * 1e3:.2f} ms over {cpu['ours'] * 1e3:.2f} ms; p50 {p50['fastmcp'] * 1e3:.2f} ms"
        yield Goal(
            "-",
            "CPU of the hop per call, FastMCP's proxy over the gateway",
            cpu["fastmcp"] / cpu["ours"],
            inf,
            inf,
            note=note,
        )
    else:
        yield Goal(
            "-",
            "CPU of the hop per call, FastMCP's proxy over the gateway",
            None,
            inf,
            inf,
            note="make frameworks ARGS=fastmcp",
        )
    others = ", ".join(f"{name} {cpu[name] * 1e3:.2f}" for name in ("direct", "raw", "sdk"))
    yield Goal(
        "-", "CPU of the gateway per HTTP call in ms", cpu["ours"] * 1e3, inf, inf, note=f"of the others: {others}"
    )


async def send_calls(url: str, first: int, count: int) -> None:
    """Send calls to ten servers, eight at a time; one in ten is a write, and each has an id and a text of its own."""
    import httpx  # noqa: PLC0415 - only here

    numbers = iter(range(first, first + count))
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}

    async def work(client: httpx.AsyncClient) -> None:
        for number in numbers:
            # The tens digit tells the kind, so that each server gets both.
            server, kind = f"s{number % 10}", "add_note" if number // 10 % 10 == 0 else "echo"
            params = {"name": f"{server}__{kind}", "arguments": {"text": f"call {number}"}, "_meta": meta}
            body = {"jsonrpc": "2.0", "id": f"id-{number}", "method": "tools/call", "params": params}
            headers = {
                "accept": "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28",
                "mcp-method": "tools/call", "mcp-name": params["name"],
            }  # fmt: skip
            answer = (await client.post(url, json=body, headers=headers)).json()
            assert answer["id"] == body["id"], answer
            assert answer["result"]["content"][0]["text"] == f"/{server} call {number}", answer

    async with httpx.AsyncClient(timeout=60) as client:
        await asyncio.gather(*(work(client) for _ in range(8)))


def resident_mb(process: subprocess.Popen[bytes]) -> float:
    pages = int(Path(f"/proc/{process.pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def memory(place: Place, effort: Effort) -> Iterator[Goal]:
    """P21: resident memory of the gateway in front of ten servers, with a ledger on SQLite."""
    few, many = (500, 2_000) if effort.is_quick else (10_000, 100_000)
    plain, ours = free_port(), free_port()
    servers = Path(place.root, "ten.json")
    servers.write_text(
        json.dumps({"mcpServers": {f"s{n}": {"url": f"http://127.0.0.1:{plain}/s{n}"} for n in range(10)}})
    )
    store = f"sqlite:///{place.root}/ledger.db"
    open_store(store, create=True).close()
    words = [
        "-m",
        "pokayoke",
        "gateway",
        str(servers),
        "--port",
        str(ours),
        "--trust-hints",
        "--run",
        "bench",
        "--store",
        store,
    ]
    log = Path(place.root, "memory.log").open("wb")  # noqa: SIM115 - the processes write to it
    upstream = subprocess.Popen([sys.executable, str(HOPS), "plain", str(plain)], stdout=log, stderr=log)
    wait_for(plain)
    gateway = subprocess.Popen([sys.executable, *words], stdout=log, stderr=log)
    try:
        wait_for(ours)
        begin, url = time.perf_counter(), f"http://127.0.0.1:{ours}/mcp"
        asyncio.run(send_calls(url, 0, few))
        before = resident_mb(gateway)
        asyncio.run(send_calls(url, few, many - few))
        after, took = resident_mb(gateway), time.perf_counter() - begin
    finally:
        for process in (gateway, upstream):
            process.terminate()
            process.wait(20)
    note = f"{after:.1f} MB over {before:.1f} MB; {many / took:.0f} calls a second, nothing lost or crossed"
    yield Goal(
        "P21", f"resident memory after call {many:,} over that after {few:,}", after / before, 1.1, 1.05, note=note
    )
