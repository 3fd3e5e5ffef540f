"""P9 and P10: what a durable claim and its completion cost, beside the disk and beside plain SQLite."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sqlite3
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from math import inf
from pathlib import Path

from bench import slow_flush
from bench.goal import Goal
from bench.measure import Case, Effort
from bench.place import Place, in_a_folder
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.records import Claim, Settlement
from pokayoke.stores import Store, open_store

OUTPUT = b'{"status": "done", "id": "' + b"x" * 1_000 + b'"}'
WORKERS = 16


def keys() -> Iterator[str]:
    """Ledger keys as they are: digests, spread over everything."""
    return (hashlib.sha256(b"%d" % number).hexdigest() for number in itertools.count())


def pair(store: Store, key: str) -> None:
    """One write: its claim and its completion."""
    wish = Claim(key, key, key[:32], "charge_card", "charge_card@1", "run_1", time.time(), 60.0, owner="host|boot|1|2")
    answer = store.admit(AdmissionRequest("run_1", "charge_card", "write", None, wish.now, wish))
    assert answer.kind == "execute", answer
    assert store.settle(Settlement(key, wish.claim_id, "completed", time.time(), OUTPUT)).accepted


def one_worker(place: Place, effort: Effort) -> Iterator[Goal]:
    """P9: claim and completion of one worker, over one appended and flushed block."""
    store = open_store(f"sqlite:///{place.root}/p9.db", create=True)
    new = keys()
    log = os.open(Path(place.root, "p9.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def flush() -> None:
        os.write(log, OUTPUT)
        os.fdatasync(log)

    got = interleaved({"pair": lambda: pair(store, next(new)), "flush": flush}, effort.rounds, 100)
    store.close()
    os.close(log)
    ours, least = statistics.median(got["pair"]), statistics.median(got["flush"])
    title = "durable claim and completion, one worker, over one append and fdatasync"
    yield Goal("P9", title, ours / least, 3.0, 2.2, note=f"{ours * 1e6:.0f} us over {least * 1e6:.0f} us")


def interleaved(cases: dict[str, Case], rounds: int, calls: int) -> dict[str, list[float]]:
    """Mean seconds per call in each round; the cases take turns, so that a slow disk is slow for all."""
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            begin = time.perf_counter()
            for _ in range(calls):
                case()
            taken[name].append((time.perf_counter() - begin) / calls)
    return taken


def many_workers(place: Place, effort: Effort) -> Iterator[Goal]:
    """P10: sixteen threads of one process, over the same threads with a connection each."""
    store = open_store(f"sqlite:///{place.root}/p10.db", create=True)
    path = str(Path(place.root, "plain.db"))
    with sqlite3.connect(path) as conn:
        conn.execute("PRAGMA journal_mode=WAL")
        conn.execute("CREATE TABLE ledger (key TEXT PRIMARY KEY, state TEXT, claim_id TEXT, lease REAL, output BLOB)")
    conn.close()
    new, also = keys(), keys()
    lock, pairs = threading.Lock(), 100 if effort.rounds < 10 else 200
    rates, tails, longest, notes = [], [], [], []
    for _ in range(3 if effort.rounds < 10 else 5):
        ours = together(lambda: lambda: pair(store, drawn(new, lock)), pairs)
        plain = together(lambda: plain_pair(path, also, lock), pairs)
        rates.append(rate(ours) / rate(plain))
        tails.append(p99(ours) / p99(plain))
        longest.append(max(ours[0]) / max(plain[0]))
        notes.append(
            (rate(ours), rate(plain), p99(ours) * 1e3, p99(plain) * 1e3, max(ours[0]) * 1e3, max(plain[0]) * 1e3)
        )
    store.close()
    (fast, slow), (short, long), (least, most) = [
        [statistics.median(one[n] for one in notes) for n in two] for two in ((0, 1), (2, 3), (4, 5))
    ]
    what = f"{WORKERS} threads on one store over {WORKERS} with a SQLite connection each"
    note = f"{fast:.0f}/s over {slow:.0f}/s"
    yield Goal("P10", f"rate, {what}", statistics.median(rates), 5.0, 8.0, most=False, note=note)
    note = f"{short:.1f} ms over {long:.0f} ms"
    yield Goal("P10", f"99th percentile, {what}", statistics.median(tails), 0.1, 0.05, note=note)
    # On a quick disk plain SQLite starves fewer than one call in a hundred, but those for seconds.
    note = f"{least:.0f} ms over {most:.0f} ms"
    yield Goal("-", f"longest wait, {what}", statistics.median(longest), inf, inf, note=note)


def drawn(new: Iterator[str], lock: threading.Lock) -> str:
    with lock:
        return next(new)


def plain_pair(path: str, new: Iterator[str], lock: threading.Lock) -> Case:
    """The usual ledger: a connection of one's own, two statements, each of them committed."""
    conn = sqlite3.connect(path, isolation_level=None, timeout=60)
    conn.execute("PRAGMA synchronous=FULL")

    def one() -> None:
        key = drawn(new, lock)
        conn.execute(
            "INSERT INTO ledger VALUES (?, 'executing', ?, ?, NULL) ON CONFLICT DO NOTHING",
            (key, key[:32], time.time()),
        )
        conn.execute(
            "UPDATE ledger SET state = 'completed', output = ? WHERE key = ? AND claim_id = ?", (OUTPUT, key, key[:32])
        )

    return one


def together(make: Callable[[], Case], pairs: int) -> tuple[list[float], float]:
    """Let sixteen threads do so many pairs each. Returns the seconds of each pair, and of all.

    Each thread has the same work to do: if they worked for a fixed time instead, a few that hold the lock
    would make most of the calls, and those that starve beside them would hardly be seen.
    """
    taken: list[float] = []
    start = threading.Barrier(WORKERS + 1)

    def work() -> None:
        case, own = make(), []
        start.wait()
        for _ in range(pairs):
            begin = time.perf_counter()
            case()
            own.append(time.perf_counter() - begin)
        taken.extend(own)

    threads = [threading.Thread(target=work) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    start.wait()
    begin = time.perf_counter()
    for thread in threads:
        thread.join()
    return taken, time.perf_counter() - begin


def rate(run: tuple[list[float], float]) -> float:
    return len(run[0]) / run[1]


def p99(run: tuple[list[float], float]) -> float:
    return statistics.quantiles(run[0], n=100)[98]


def many_on_a_slow_disk(place: Place, effort: Effort) -> Iterator[Goal]:
    """P10 once more, where a flush takes as long as on the disks that its bounds were taken from."""
    title = "the same where a flush takes 2 ms"
    # Half as many pairs, in fewer rounds: plain SQLite does 200 in a second there.
    found = slow_flush.goals(place, "bench.stores", str(min(effort.rounds, 7)))
    if found is None:
        yield Goal("P10", f"rate, {title}", None, 5.0, 8.0, most=False, note="there is no C compiler")
        return
    for goal in (Goal(**row) for row in found):
        yield replace(goal, title=f"{goal.title.partition(',')[0]}, {title}")


def durable(place: Place, effort: Effort) -> Iterator[Goal]:
    """P9 and P10."""
    yield from one_worker(place, effort)
    yield from many_workers(place, effort)
    yield from many_on_a_slow_disk(place, effort)


if __name__ == "__main__":
    with in_a_folder() as folder:
        print(json.dumps([asdict(goal) for goal in many_workers(Place(folder), Effort(rounds=int(sys.argv[1])))]))
