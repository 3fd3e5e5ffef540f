"""P16: the cost of a guarded write on PostgreSQL, next to psycopg alone; `python -m bench.postgres` prints rates."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import socket
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from math import inf
from urllib.parse import urlsplit

import pokayoke
from bench.goal import Goal, format_us
from bench.measure import Case, Effort
from bench.payloads import INPUT, OUTPUT, Source
from bench.place import Place, temporary_folder
from bench.stores import OUTPUT as STORED
from bench.stores import WORKERS, new_keys

SERVER = os.environ.get("POKAYOKE_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
BURST = 5
"""Calls in one burst: short, so that few of them are interrupted by other processes of the machine."""


@contextlib.contextmanager
def empty_schema() -> Iterator[str | None]:
    """Yield the URL of an empty schema, or None if there is no server."""
    try:
        import psycopg  # noqa: PLC0415 - an extra

        conn = psycopg.connect(SERVER, autocommit=True, connect_timeout=5)
    except (ImportError, OSError, psycopg.Error):
        yield None
        return
    name = f"bench_{uuid.uuid4().hex[:12]}"
    with conn:
        conn.execute(f"CREATE SCHEMA {name}")
        try:
            yield SERVER + ("&" if "?" in SERVER else "?") + f"options=-csearch_path%3D{name}"
        finally:
            conn.execute(f"DROP SCHEMA {name} CASCADE")


def open_run(url: str, folder: str, untrusted: str = "note") -> pokayoke.Run:
    """Return a run of one write tool whose ledger is at the URL; `untrusted` is the mode, by default the default."""
    answer = Source().output(1_000)
    fields = {"output_schema": OUTPUT, "effect": "write"}
    contract = pokayoke.Contract.from_schema("write_file", INPUT, handler=lambda **_: answer, **fields)

    async def awaited(**_: object) -> str:
        return answer

    also = pokayoke.Contract.from_schema("write_later", INPUT, handler=awaited, **fields)
    config = {"trace": {"path": f"{folder}/{uuid.uuid4().hex}.jsonl"}, "untrusted": {"mode": untrusted}}
    store = pokayoke.open_store(url, create=True)
    return pokayoke.Guard([contract, also], config=config, store=store).run(run_id=f"bench-{uuid.uuid4().hex}")


def guarded_write(run: pokayoke.Run) -> Case:
    """Return a function that makes one new effect."""
    arguments, turns = Source().arguments(200), itertools.count()

    def write() -> None:
        outcome = run.call(pokayoke.ToolCall("call_1", "write_file", arguments, occurrence=next(turns)))
        assert outcome.status == "ok", outcome

    return write


def plain_write(url: str) -> Case:
    """Return the usual ledger: an insert and an update by psycopg, each of them committed."""
    import psycopg  # noqa: PLC0415 - as above

    conn, new = psycopg.connect(url, autocommit=True), new_keys()
    conn.execute("CREATE TABLE plain (key TEXT PRIMARY KEY, state TEXT, claim_id TEXT, lease FLOAT8, output BYTEA)")

    def write() -> None:
        key = next(new)
        conn.execute("INSERT INTO plain VALUES (%s, 'executing', %s, %s, NULL)", (key, key[:32], time.time()))
        conn.execute(
            "UPDATE plain SET state = 'completed', output = %s WHERE key = %s AND claim_id = %s",
            (STORED, key, key[:32]),
        )

    return write


def cpu_side_by_side(cases: dict[str, Case], rounds: int) -> dict[str, float]:
    """Return seconds of this thread per call: the 10th percentile of short bursts, interleaved in random order."""
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for case in cases.values():
        for _ in range(100):
            case()
    order = random.Random(3)
    for _ in range(rounds):
        for name in order.sample(list(cases), len(cases)):
            begin = time.thread_time()
            for _ in range(BURST):
                cases[name]()
            taken[name].append((time.thread_time() - begin) / BURST)
    return {name: statistics.quantiles(times, n=10)[0] for name, times in taken.items()}


class Relay:
    """A connection through a socket of our own, which counts how often the server is written to after it spoke."""

    def __init__(self) -> None:
        self.turns, self._to = 0, urlsplit(SERVER)
        self._door = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        """The server's URL, by way of the relay."""
        host, port = self._door.getsockname()
        user = self._to.netloc.rpartition("@")[0]
        return self._to._replace(netloc=f"{user}@{host}:{port}" if user else f"{host}:{port}").geturl()

    def _serve(self) -> None:
        while True:
            near, _ = self._door.accept()
            far = socket.create_connection((self._to.hostname, self._to.port or 5432))
            self._spoke = True
            for source, target, is_ours in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._pass_on, args=(source, target, is_ours), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_ours: bool) -> None:
        while chunk := source.recv(65_536):
            self.turns += is_ours and self._spoke
            self._spoke = not is_ours
            target.sendall(chunk)


def exchanges(url: str, folder: str) -> float:
    """Return how many exchanges with the server one guarded write takes."""
    relay = Relay()
    run = open_run(url.replace(SERVER, relay.url), folder)
    write = guarded_write(run)
    for _ in range(20):
        write()
    before = relay.turns
    for _ in range(20):
        write()
    found = (relay.turns - before) / 20
    run.guard.store.close()
    return found


def shared(place: Place, effort: Effort) -> Iterator[Goal]:
    """P16: processor time of a guarded write in this process, its exchanges, and its ratio to psycopg alone."""
    with empty_schema() as url:
        if url is None:
            yield Goal("P16", "guarded write on PostgreSQL", None, 4.0, 2.5, note=f"no PostgreSQL at {SERVER}")
            return
        run, off = open_run(url, place.root), open_run(url, place.root, "off")
        cases = {"ours": guarded_write(run), "off": guarded_write(off), "plain": plain_write(url)}
        got = cpu_side_by_side(cases, 60 if effort.is_quick else 300)
        run.guard.store.close()
        off.guard.store.close()
        turns = exchanges(url, place.root)
    note = f"{format_us(got['ours'])} over {format_us(got['plain'])}, processor time of this process"
    yield Goal("P16", "guarded write on PostgreSQL, us", got["ours"] * 1e6, 900, 500, note="moves with the machine")
    yield Goal("P16", "the same over insert and update by psycopg", got["ours"] / got["plain"], 4.0, 2.5, note=note)
    title = "the same without following values (untrusted.mode: off)"
    yield Goal("-", title, got["off"] / got["plain"], inf, inf, note=format_us(got["off"]))
    yield Goal("P16", "exchanges with the server in a guarded write", turns, 4, 2)


def rates(url: str, folder: str, seconds: float) -> dict[str, float]:
    """Return guarded writes per second of sixteen threads, and of sixteen tasks of one event loop."""
    found = {}
    for name in ("threads", "tasks"):
        run = open_run(url + f"&pool_size={WORKERS}", folder)
        count, elapsed = (write_in_threads if name == "threads" else write_in_tasks)(run, seconds)
        run.guard.store.close()
        found[name] = count / elapsed
    return found


def write_in_threads(run: pokayoke.Run, seconds: float) -> tuple[int, float]:
    write, done, stop = guarded_write(run), itertools.count(), inf
    start = threading.Barrier(WORKERS + 1)

    def work() -> None:
        write()
        start.wait()
        while time.perf_counter() < stop:
            write()
            next(done)

    threads = [threading.Thread(target=work) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    stop = time.perf_counter() + seconds + 1
    start.wait()
    begin = time.perf_counter()
    stop = begin + seconds
    for thread in threads:
        thread.join()
    return next(done), time.perf_counter() - begin


def write_in_tasks(run: pokayoke.Run, seconds: float) -> tuple[int, float]:
    arguments, turns = Source().arguments(200), itertools.count()

    async def write() -> None:
        call = pokayoke.ToolCall("call_1", "write_later", arguments, occurrence=next(turns))
        outcome = await run.acall(call)
        assert outcome.status == "ok", outcome

    async def work(stop: float) -> None:
        while time.perf_counter() < stop:
            await write()

    async def together() -> tuple[int, float]:
        await asyncio.gather(*(write() for _ in range(WORKERS)))
        before, begin = next(turns), time.perf_counter()
        await asyncio.gather(*(work(begin + seconds) for _ in range(WORKERS)))
        return next(turns) - before - 1, time.perf_counter() - begin

    return asyncio.run(together())


if __name__ == "__main__":
    with temporary_folder() as folder, empty_schema() as url:
        if url is None:
            sys.exit(f"no PostgreSQL at {SERVER}")
        print(json.dumps(rates(url, folder, float(sys.argv[1]) if len(sys.argv) > 1 else 3.0)))
