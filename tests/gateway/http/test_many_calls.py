"""Many calls at once: nothing is lost, nothing is crossed, and memory stays where it is."""

import asyncio
import contextlib
import gc
import os
from pathlib import Path

import httpx
import pytest
from gateway_http import ask, call, demo_server, make_setup, modern, serve_app, serve_gateway

import pokayoke

CALLS = int(os.environ.get("POKAYOKE_GATEWAY_CALLS", "1000"))


@contextlib.asynccontextmanager
async def serve_ten(**options):
    """Serve ten servers over HTTP and a gateway in front of them; yield its address and what each has noted."""
    async with contextlib.AsyncExitStack() as stack:
        notes = [[] for _ in range(10)]
        servers = {}
        for number in range(10):
            app = demo_server(f"s{number}", notes[number]).streamable_http_app()
            port = await stack.enter_async_context(serve_app(app))
            servers[f"s{number}"] = {"url": f"http://127.0.0.1:{port}/mcp"}
        url = await stack.enter_async_context(serve_gateway(make_setup(servers, **options)))
        assert len((await ask(url, modern("tools/list"))).json()["result"]["tools"]) == 30
        yield url, notes


@pytest.mark.timeout(300)
async def test_calls_at_once_are_neither_lost_nor_crossed():
    """Each of 1,000 concurrent calls to ten servers gets the answer of its own server to its own argument."""
    async with serve_ten() as (url, notes), contextlib.AsyncExitStack() as stack:
        # A pool of httpx searches all its connections for each request, so that one for all would be what is slow.
        made = [httpx.AsyncClient(timeout=120) for _ in range(CALLS // 50)]
        clients = [await stack.enter_async_context(one) for one in made]

        async def one(number):
            server = f"s{number % 10}"
            kind = "add_note" if number % 4 == 3 else "echo"
            client = clients[number % len(clients)]
            result = await call(url, f"{server}__{kind}", client, ident=f"c{number}", text=f"call {number}")
            return number, result["structuredContent"]["result"]

        found = await asyncio.gather(*map(one, range(CALLS)))
    assert [number for number, _ in found] == [*range(CALLS)]
    for number, text in found:
        assert text.startswith("note ") if number % 4 == 3 else text == f"s{number % 10}: call {number}"
    for server, kept in enumerate(notes):
        assert sorted(kept) == sorted(f"call {n}" for n in range(CALLS) if n % 4 == 3 and n % 10 == server)


def resident():
    """Return the resident memory of this process in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.timeout(600)
async def test_memory_does_not_grow_with_calls():
    """After 750 calls with as many ids it is at most 1.1 times what it was after 250."""
    guard = pokayoke.Guard([])
    async with serve_ten(guard=guard, scope="one") as (url, _), httpx.AsyncClient(timeout=60) as client:
        sizes = []
        for round_ in range(3):
            for number in range(250):
                await call(url, f"s{number % 10}__echo", client, ident=f"r{round_}-{number}", text=f"{round_} {number}")
            sizes.append(resident())
    assert sizes[2] <= 1.1 * sizes[0]
