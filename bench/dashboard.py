"""The pages of the dashboard over many calls: size, CPU, queries; how soon a change is seen; fifty open pages.

`python -m bench dashboard` fills a store and a trace with 20,000 calls. `POKAYOKE_BENCH_CALLS=1000000` fills them with
a million, and `POKAYOKE_BENCH_STORE=postgresql://...` takes an empty database instead of a file.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from math import inf
from pathlib import Path
from typing import Any

import httpx

import pokayoke
from bench.goal import Goal
from bench.measure import Effort
from bench.place import Place
from pokayoke.core.ledger.admission import AdmissionRequest, Approval
from pokayoke.core.ledger.records import Claim, Settlement
from pokayoke.core.state.run_state import step_down_to
from pokayoke.dashboard import TokenAccess, app
from pokayoke.dashboard.desk import Sources
from pokayoke.dashboard.serve import address_of, build_server, listen_on
from pokayoke.dashboard.trace_index import TraceIndex
from pokayoke.stores.base import Store
from pokayoke.stores.sql.rows import RECORD_COLUMNS

HOST = "127.0.0.1:8788"
TOOLS, RUNS, QUESTIONS, STOPPED = 40, 20_000, 200, 500
PAGES = (
    "/", "/questions", "/ledger", "/ledger?state=doubt", "/ledger?state=completed", "/ledger?tool=tool_7",
    "/ledger?tool=nothing", "/ledger?run=run-77", "/ledger?age=1h", "/audit", "/runs", "/runs?failed=1",
    "/runs?mode=stopped", "/runs/run-77", "/tools", "/tools/tool_7", "/replay", "/setup", "/switches?scope=*",
)  # fmt: skip
FIFTY = ("/", "/questions", "/ledger", "/ledger?state=doubt", "/audit", "/runs", "/tools")
WATCHED_SECONDS = 20.0
# Keys that are spread as digests are, and the numbers of the copies.
_SPREAD = "n * 2654435761 % 4294967296 * 2147483648 + n"
SQLITE = (
    f"printf('%064x', {_SPREAD})",
    "WITH RECURSIVE each(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM each WHERE n < %d)",
)
POSTGRES = (
    f"lpad(to_hex({_SPREAD}), 64, '0')",
    "WITH each AS MATERIALIZED (SELECT generate_series(1, %d)::bigint AS n)",
)


def fill_store(store: Store, url: str, calls: int, now: float) -> None:
    """Make one effect, and copy it in the database."""
    wish = Claim("0" * 64, "h", "c", "tool_0", "tool_0@1", "run-0", now, 60.0)
    store.admit(AdmissionRequest("run-0", "tool_0", "write", (), now, wish))
    store.settle(Settlement("0" * 64, "c", "completed", now, output=b'{"done": true}'))
    key, each = SQLITE if hasattr(store, "_writer") else POSTGRES
    doubtful = f"n % {max(calls // 100, 1)} = 0"
    given = {
        "key": key,
        "tool": f"'tool_' || (n % {TOOLS})",
        "contract": f"'tool_' || (n % {TOOLS}) || '@1'",
        "run_id": f"'run-' || (n % {RUNS})",
        "claimed_at": f"{now!r} - n * 0.5",
        "state": f"CASE WHEN {doubtful} THEN 'in_doubt' ELSE state END",
        "settled_at": f"{now!r} - n * 0.5",
    }
    chosen = ", ".join(given.get(name, name) for name in RECORD_COLUMNS)
    sql = (
        f"{each % calls} INSERT INTO pokayoke_records ({', '.join(RECORD_COLUMNS)}) SELECT {chosen} "
        f"FROM pokayoke_records, each WHERE key = '{'0' * 64}'"
    )
    run_statement(store, url, sql)
    for number in range(1, QUESTIONS + 1):
        mark = f"{number:064x}"
        store.propose(
            Approval(
                f"ap-{number:024x}", mark, "tool_7", "tool_7@1", {"n": number}, f"run-{number}", now, now + 9_000.0
            )
        )
    for number in range(STOPPED):
        store.change_run(f"run-{number}", lambda run: step_down_to(run, "stopped", "loop_detected"))


def run_statement(store: Any, url: str, sql: str) -> None:
    """Run a statement that no operation of a store has."""
    if hasattr(store, "_writer"):
        store._writer.run_work(lambda connection: connection.execute_write(sql))
    else:
        with __import__("psycopg").connect(url) as connection:
            connection.execute(sql)
            connection.execute("ANALYZE")


def fill_trace(path: Path, calls: int, now: float) -> None:
    """Write one line for each call, as a guard does."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(calls):
            event = {
                "ts": now - (calls - number) * 0.5, "run_id": f"run-{number % RUNS}", "step": number // RUNS + 1,
                "event": "tool_result", "tool": f"tool_{number % TOOLS}", "contract": f"tool_{number % TOOLS}@1",
                "call_id": f"c{number}", "ok": number % 97 != 0, "status": "ok" if number % 97 else "failed",
                "decision": "allow", "us": 900 + number % 5_000, "effect": "done", "arguments": {"n": number},
                "result": {"done": True},
            }  # fmt: skip
            if number % 97 == 0:
                event["findings"] = [{"code": "tool_error", "blame": "tool", "message": "it failed", "hint": ""}]
            file.write(json.dumps(event) + "\n")


class CountedStore:
    """Counts the statements of a store."""

    def __init__(self, store: Any) -> None:
        self.count, fetch = 0, store._fetch_rows

        def count_and_fetch(statement: Any) -> Any:
            self.count += 1
            return fetch(statement)

        store._fetch_rows = count_and_fetch


async def sign_in(client: httpx.AsyncClient, tokens: list[str]) -> None:
    sent = {"origin": "null", "sec-fetch-site": "same-origin"}
    answer = await client.post("/enter", data={"token": tokens[-1], "name": "bench"}, headers=sent)
    assert answer.status_code == 303, answer.text


async def measure_pages(
    application: Any, tokens: list[str], counted: CountedStore
) -> dict[str, tuple[int, float, int]]:
    """Return bytes, CPU seconds (the best of three) and statements of each page."""
    found: dict[str, tuple[int, float, int]] = {}
    transport = httpx.ASGITransport(application, client=("127.0.0.1", 50_000))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
        await sign_in(client, tokens)
        effect = (re.findall(r'href="(/ledger/[0-9a-f]+)"', (await client.get("/ledger?state=doubt")).text) or ["/"])[0]
        call = (re.findall(r'href="(/runs/[^"]*/calls/\d+)"', (await client.get("/runs/run-77")).text) or ["/"])[0]
        for page in (*PAGES, effect, call, f"/questions/ap-{7:024x}"):
            took, statements, size = inf, 0, 0
            for _ in range(3):
                before, begun = counted.count, time.process_time()
                answer = await client.get(page)
                took = min(took, time.process_time() - begun)
                statements, size = counted.count - before, len(answer.content)
                assert answer.status_code == 200, (page, answer.status_code)
            found[page] = (size, took, statements)
    return found


@contextmanager
def serve(application: Any, listening: Any) -> Iterator[str]:
    ready = threading.Event()
    server = build_server(application, ready=ready.set)
    thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
    thread.start()
    assert ready.wait(30)
    yield f"http://{address_of(listening)}"
    server.should_exit = True
    thread.join(30)


@asynccontextmanager
async def listen_to(client: httpx.AsyncClient) -> AsyncIterator[AsyncIterator[str]]:
    async with client.stream("GET", "/events", timeout=60.0) as answer:
        yield answer.aiter_lines()


def change_store(store: Store, number: int) -> str:
    """Leave one effect in doubt; returns its key."""
    key, now = f"{number:08x}" + "cd" * 28, time.time()
    wish = Claim(key, "h", "c", "tool_7", "tool_7@1", "run-other", now, 60.0)
    answer = store.admit(AdmissionRequest("run-other", "tool_7", "write", (), now, wish))
    assert answer.kind == "execute", answer
    store.settle(Settlement(key, "c", "in_doubt", now, failure="the answer was lost"))
    return key


async def measure_delay(url: str, tokens: list[str], store: Store) -> float:
    """Return the longest of five times from a write in the store to the row in the page."""
    longest = 0.0
    async with httpx.AsyncClient(base_url=url) as client:
        await sign_in(client, tokens)
        async with listen_to(client) as lines:
            for number in range(5):
                await asyncio.sleep(1.7)  # a page at rest
                begun = time.monotonic()
                key = await asyncio.to_thread(change_store, store, number)
                async for line in lines:
                    if line == "event: changed" and key in (await client.get("/ledger")).text:
                        break
                longest = max(longest, time.monotonic() - begun)
    return longest


async def keep_open(client: httpx.AsyncClient, page: str, views: list[float]) -> None:
    async with listen_to(client) as lines:
        async for line in lines:
            if line == "event: changed":
                assert (await client.get(page, timeout=60.0)).status_code == 200
                views.append(time.monotonic())


async def measure_fifty(url: str, tokens: list[str], store: Store, counted: CountedStore) -> tuple[float, float, int]:
    """Return statements a second with fifty open pages, while nothing changes and while everything does, and views."""
    async with httpx.AsyncClient(base_url=url, limits=httpx.Limits(max_connections=None)) as client:
        await sign_in(client, tokens)
        views: list[float] = []
        open_pages = [asyncio.ensure_future(keep_open(client, FIFTY[n % len(FIFTY)], views)) for n in range(50)]
        await asyncio.sleep(3.0)
        before = counted.count
        await asyncio.sleep(WATCHED_SECONDS / 2)
        quiet = (counted.count - before) / (WATCHED_SECONDS / 2)
        before, begun, number = counted.count, time.monotonic(), 1_000
        while time.monotonic() - begun < WATCHED_SECONDS:
            number += 1
            await asyncio.to_thread(change_store, store, number)
            await asyncio.sleep(0.1)
        busy = (counted.count - before) / (time.monotonic() - begun)
        for one in open_pages:
            one.cancel()
        await asyncio.gather(*open_pages, return_exceptions=True)
        return quiet, busy, len(views)


def pages(place: Place, effort: Effort) -> Iterator[Goal]:
    """Pages over many calls."""
    calls = int(os.environ.get("POKAYOKE_BENCH_CALLS", "2000" if effort.is_quick else "20000"))
    url = os.environ.get("POKAYOKE_BENCH_STORE") or f"sqlite:///{place.root}/dashboard.db"
    now = time.time()
    store: Any = pokayoke.open_store(url, create=True)
    fill_store(store, url, calls, now)
    path = Path(place.root, "trace.jsonl")
    fill_trace(path, calls, now)
    index = TraceIndex(path, Path(place.root, "index"))
    begun = time.monotonic()
    index.refresh_all()
    indexed = calls / (time.monotonic() - begun)
    tokens: list[str] = []
    listening = listen_on("127.0.0.1:0", "--port")
    access = TokenAccess(announce=tokens.append)
    application = app(store, access=access, sources=Sources(trace=index))
    counted = CountedStore(store)
    access.offer_link()
    found = asyncio.run(measure_pages(application, tokens, counted))
    rows = {
        name: max(found, key=lambda page: found[page][place]) for place, name in enumerate(("size", "cpu", "count"))
    }
    print_pages(found)
    yield Goal(
        "D1", f"KB of the largest page, {calls:,} calls", found[rows["size"]][0] / 1_000, 100, 50, note=rows["size"]
    )
    yield Goal("D2", "ms of CPU of the slowest page", found[rows["cpu"]][1] * 1e3, 50, 20, note=rows["cpu"])
    yield Goal("D3", "statements of the page with the most", found[rows["count"]][2], 3, 3, note=rows["count"])
    with serve(application, listening) as served:
        delay = asyncio.run(measure_delay(served, tokens, store))
        yield Goal("D4", "s from a write to the row in an open page, longest of 5", delay, 1.0, 0.5)
        quiet, busy, views = asyncio.run(measure_fifty(served, tokens, store, counted))
    yield Goal("D5", "statements a second of 50 open pages, nothing changes", quiet, 5, 3)
    yield Goal(
        "D5", "the same, 10 changes a second", busy, 5, 4, note=f"{views} views; {indexed:,.0f} lines indexed a second"
    )


def print_pages(found: dict[str, tuple[int, float, int]]) -> None:
    for page, (size, took, count) in found.items():
        print(f"       {page[:60]:60} {size / 1_000:6.1f} KB {took * 1e3:6.1f} ms {count} statements", flush=True)
