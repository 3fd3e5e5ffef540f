"""P9 and P10: the cost of a durable claim and its completion, next to the disk and to plain SQLite."""

from __future__ import annotations

import hashlib
import itertools
import json
import sqlite3
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

from bench import slow_flush
from bench.goal import Goal
from bench.measure import Case, Effort, low_percentile
from bench.place import Place, temporary_folder
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.records import Claim, Settlement
from pokayoke.stores import Store, open_store

OUTPUT = b'{"status": "done", "id": "' + b"x" * 1_000 + b'"}'
WORKERS = 16


def new_keys() -> Iterator[str]:
    """Yield realistic ledger keys: digests, evenly distributed."""
    return (hashlib.sha256(b"%d" % number).hexdigest() for number in itertools.count())


def write_pair(store: Store, key: str) -> None:
    """Do one write: its claim and its completion."""
    wish = Claim(key, key, key[:32], "charge_card", "charge_card@1", "run_1", time.time(), 60.0, owner="host|boot|1|2")
    answer = store.admit(AdmissionRequest("run_1", "charge_card", "write", None, wish.now, wish))
    assert answer.kind == "execute", answer
    assert store.settle(Settlement(key, wish.claim_id, "completed", time.time(), OUTPUT)).accepted


def what_a_pair_takes(place: Place, effort: Effort) -> Iterator[Goal]:
    """P9: flushes and processor time of a claim and its completion, of one thread and of sixteen."""
    store = open_store(f"sqlite:///{place.root}/p9.db", create=True)
    new, lock = new_keys(), threading.Lock()
    for _ in range(100):
        write_pair(store, next(new))
    before, pairs, alone = slow_flush.count_flushes(), 5 * effort.rounds, []
    for _ in range(effort.rounds):
        begin = time.process_time()
        for _ in range(5):
            write_pair(store, next(new))
        alone.append((time.process_time() - begin) / 5)
    flushes = (slow_flush.count_flushes() - before) / pairs
    together = []
    for _ in range(20):
        begin = time.process_time()
        run_together(lambda: lambda: write_pair(store, draw_key(new, lock)), 50)
        together.append((time.process_time() - begin) / (50 * WORKERS))
    store.close()
    title = "durable claim and completion,"
    yield Goal("P9", f"{title} flushes asked for, one thread", flushes, 2.1, 2.0)
    yield Goal("P9", f"{title} us of CPU, one thread", low_percentile(alone) * 1e6, 700, 400)
    yield Goal("P9", f"{title} us of CPU, {WORKERS} threads", low_percentile(together) * 1e6, 350, 200)


def one_worker(place: Place, effort: Effort) -> Iterator[Goal]:
    """P9, in a process whose flushes are counted."""
    found = slow_flush.goals(place, "bench.stores", "P9", str(effort.rounds), wait_us=0)
    if found is None:
        yield Goal("P9", "durable claim and completion", None, 2.1, 2.0, note="there is no C compiler")
        return
    yield from (Goal(**row) for row in found)


def many_workers(place: Place, effort: Effort) -> Iterator[Goal]:
    """P10: sixteen threads of one process, over the same threads with a connection each."""
    store = open_store(f"sqlite:///{place.root}/p10.db", create=True)
    path = str(Path(place.root, "plain.db"))
    with sqlite3.connect(path) as conn:
        conn.execute("PRAGMA journal_mode=WAL")
        conn.execute("CREATE TABLE ledger (key TEXT PRIMARY KEY, state TEXT, claim_id TEXT, lease REAL, output BLOB)")
    conn.close()
    new, also = new_keys(), new_keys()
    lock, pairs = threading.Lock(), 100 if effort.is_quick else 200
    rounds = []
    for _ in range(3 if effort.is_quick else 5):
        ours = run_together(lambda: lambda: write_pair(store, draw_key(new, lock)), pairs)
        plain = run_together(lambda: build_plain_pair(path, also, lock), pairs)
        rounds.append((pairs_per_second(ours), pairs_per_second(plain), max(ours[0]), max(plain[0])))
    store.close()
    fast, slow, least, most = (statistics.median(column) for column in zip(*rounds, strict=True))
    what = f"{WORKERS} threads on one store over {WORKERS} with a SQLite connection each"
    rate = statistics.median(one[0] / one[1] for one in rounds)
    note = f"wall clock; {fast:.0f}/s over {slow:.0f}/s"
    yield Goal("P10", f"rate, {what}", rate, 5.0, 8.0, most=False, note=note)
    # Not a percentile: with a quick flush plain SQLite starves fewer than one call in a hundred, but those for seconds.
    wait = statistics.median(one[2] / one[3] for one in rounds)
    note = f"wall clock; {least * 1e3:.0f} ms over {most * 1e3:.0f} ms"
    yield Goal("P10", f"longest wait, {what}", wait, 0.1, 0.05, note=note)


def draw_key(new: Iterator[str], lock: threading.Lock) -> str:
    with lock:
        return next(new)


def build_plain_pair(path: str, new: Iterator[str], lock: threading.Lock) -> Case:
    """Return the usual ledger: a connection per thread, two statements, each of them committed."""
    conn = sqlite3.connect(path, isolation_level=None, timeout=60)
    conn.execute("PRAGMA synchronous=FULL")

    def one() -> None:
        key = draw_key(new, lock)
        conn.execute(
            "INSERT INTO ledger VALUES (?, 'executing', ?, ?, NULL) ON CONFLICT DO NOTHING",
            (key, key[:32], time.time()),
        )
        conn.execute(
            "UPDATE ledger SET state = 'completed', output = ? WHERE key = ? AND claim_id = ?", (OUTPUT, key, key[:32])
        )

    return one


def run_together(make: Callable[[], Case], pairs: int) -> tuple[list[float], float]:
    """Run so many pairs in each of sixteen threads. Returns the seconds of each pair, and of all.

    Each thread has the same work: with a fixed time instead, the few that hold the lock would make most of the calls,
    and the starving ones would hardly be seen.
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


def pairs_per_second(run: tuple[list[float], float]) -> float:
    return len(run[0]) / run[1]


def many_on_a_slow_disk(place: Place, effort: Effort) -> Iterator[Goal]:
    """P10 again, with flushes as slow as on the disks that its bounds come from."""
    title = "the same where a flush takes 2 ms"
    # Half as many pairs, in fewer rounds: plain SQLite does 200 in a second there.
    found = slow_flush.goals(place, "bench.stores", "P10", str(min(effort.rounds, 7)))
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
    which = {"P9": what_a_pair_takes, "P10": many_workers}[sys.argv[1]]
    with temporary_folder() as folder:
        print(json.dumps([asdict(goal) for goal in which(Place(folder), Effort(rounds=int(sys.argv[2])))]))
