"""`replay --on` with a cluster of real processes: equal reports, a killed worker, its speed, cost and memory.

`python -m bench.clusters dask` measures Dask, `.frameworks/ray/bin/python -m bench.clusters ray` Ray (`make ray`
builds that environment). `--calls 1000000` is full size. The yardstick is the process pool of `replay` without `--on`:
same interpreter, same parts. Exit code 1 if a report differs or a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bench.cluster_engines import ENGINES, Cluster, Meter
from bench.goal import Goal, format_goal

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
from recorded_calls import shop_rows, write_rows  # noqa: E402

FILES = 4
WORKERS = 2
PER_FILE = (1, 2, 7)
COST_PART = 4_000_000  # that of the pool


@dataclass(frozen=True)
class Took:
    """What one replay took: seconds of its parts, CPU seconds of all processes, peak MB of the driver, its report."""

    calls: int
    parts: int
    lost: int
    wall: float
    cpu: float
    peak: float
    report: bytes


class Replays:
    """Runs replays of the same recordings and prints a line for each.

    Args:
        folder: where the recordings are written.
        calls: about how many calls they hold.
    """

    def __init__(self, folder: str, calls: int) -> None:
        self.folder = folder
        rows = shop_rows(calls)
        self.names = [write_rows(Path(folder, f"{n}.jsonl"), islice(rows, calls // FILES)) for n in range(FILES)]
        self.bytes = [os.path.getsize(name) for name in self.names]

    def run(self, label: str, cluster: Cluster | None, size: int, *, jobs: int = 1, kill: bool = False) -> Took:
        """Score everything in a process of its own; kill a worker after the first part if asked to."""
        target = Path(self.folder, "report")
        asked = {"names": self.names, "size": size, "jobs": jobs, "on": cluster and cluster.on, "report": str(target)}
        words = [sys.executable, "-m", "bench.cluster_job", json.dumps(asked)]
        environment = {**os.environ, **(cluster.environment if cluster else {})}
        with Meter(cluster.roots) if cluster else nullcontext() as meter:
            child = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
            child.stdout.readline()
            if kill:
                cluster.kill_worker()
            told = child.stdout.read()
            _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise subprocess.CalledProcessError(child.returncode, words)
        cpu = used.ru_utime + used.ru_stime + (meter.seconds if meter else 0.0)
        took = Took(**json.loads(told), cpu=cpu, report=target.read_bytes())
        print(
            f"  {label:34} {took.parts:6,} parts {took.calls:9,} calls {took.wall:7.1f} s {took.cpu:7.1f} s CPU "
            f"{took.peak:6.0f} MB {took.lost} lost",
            flush=True,
        )
        return took


def compare_reports(engine: str, replays: Replays, totals: list[int]) -> Iterator[Goal]:
    """C1 and C2: the report with any number of parts and a killed worker, and what the driver holds."""
    expected = replays.run("one process", None, COST_PART).report
    found: list[Took] = []
    with ENGINES[engine](WORKERS, replays.folder) as cluster:
        for count in PER_FILE:
            size = -(-max(replays.bytes) // count)
            found.append(replays.run(f"{engine}, {count} a file", cluster, size))
        found.append(replays.run(f"{engine}, a worker killed", cluster, size, kill=True))
        for total in totals:
            size = sum(replays.bytes) // total
            found.append(replays.run(f"{engine}, {total:,} in all", cluster, size))
    differing = sum(one.report != expected or one.lost > 0 for one in found)
    yield Goal("C1", f"{engine}: reports that differ from one process's", differing, 0, 0, note=f"of {len(found)}")
    few, many = found[0], max(found, key=lambda one: one.parts)
    note = f"{many.peak:.0f} MB with {many.parts:,} parts, {few.peak:.0f} MB with {few.parts:,}"
    yield Goal("C2", f"{engine}: memory of the driver, many parts over few", many.peak / few.peak, 1.3, 1.1, note=note)


def compare_costs(engine: str, replays: Replays, rounds: int) -> Iterator[Goal]:
    """C3 and C4: two workers against one, and against a pool of two processes, in turns."""
    start = ENGINES[engine]
    runs: dict[str, list[Took]] = {"pool": [], "one": [], "two": []}
    for _ in range(rounds):
        runs["pool"].append(replays.run("pool of 2", None, COST_PART, jobs=WORKERS))
        for name, workers in (("one", 1), ("two", WORKERS)):
            with start(workers, replays.folder) as cluster:
                runs[name].append(replays.run(f"{engine}, {name} of a new cluster", cluster, COST_PART))
    wall = {name: min(one.wall for one in took) for name, took in runs.items()}
    cpu = {name: min(one.cpu for one in took) for name, took in runs.items()}
    note = f"{wall['one']:.1f} s and {wall['two']:.1f} s, least of {rounds}; the pool {wall['pool']:.1f} s"
    speed = wall["one"] / wall["two"]
    yield Goal("C3", f"{engine}: speed of two workers over one", speed, 1.4, 1.8, most=False, note=note)
    note = f"{cpu['two']:.1f} s over {cpu['pool']:.1f} s, least of {rounds}"
    yield Goal("C4", f"{engine}: CPU of two workers over a pool of two", cpu["two"] / cpu["pool"], 1.3, 1.1, note=note)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.clusters", description=__doc__.splitlines()[0])
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--calls", type=int, default=50_000, help="recorded calls; 1,000,000 is full size")
    parser.add_argument("--parts", type=int, nargs="*", default=[1_000], help="full size: 1000 10000")
    parser.add_argument("--rounds", type=int, default=2, help="replays of which the least time counts; 0: no costs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        replays = Replays(folder, given.calls)
        print("  replay: seconds of its parts, CPU of all processes, peak memory of the driver")
        goals = list(compare_reports(given.engine, replays, given.parts))
        if given.rounds:
            goals += compare_costs(given.engine, replays, given.rounds)
    print(*map(format_goal, goals), sep="\n")
    return 0 if all(goal.is_met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
