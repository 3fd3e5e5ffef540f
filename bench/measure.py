"""CPU time of cases side by side: short bursts in random order, so that a busy machine affects every case alike.

Wall time measures the neighbours of a shared machine. The CPU time of a burst of a millisecond does so least where it
is lowest: the tenth percentile of many interleaved rounds repeats within a few per cent at any load.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Case = Callable[[], object]


@dataclass(frozen=True)
class Effort:
    """How long to measure: rounds, seconds per case and round, and seconds per case before the first round.

    Work that is done once per process (compiling searches, specialising byte code, filling the ring) is over then.
    """

    rounds: int = 150
    seconds: float = 0.001
    warm_up: float = 0.5

    @property
    def is_quick(self) -> bool:
        return self.rounds < 100


QUICK = Effort(rounds=40, warm_up=0.1)


def low_percentile(values: Sequence[float]) -> float:
    """Return the tenth percentile."""
    return sorted(values)[len(values) // 10]


def time_side_by_side(cases: dict[str, Case], effort: Effort) -> dict[str, float]:
    """Return CPU seconds per call of each case; in every round each case has one burst, in random order."""
    repeats: dict[str, int] = {}
    for name, case in cases.items():
        case()
        begin = time.perf_counter()
        for _ in range(5):
            case()
        each_takes = max(time.perf_counter() - begin, 1e-7) / 5
        repeats[name] = max(1, round(effort.seconds / each_takes))
        for _ in range(round(effort.warm_up / each_takes)):
            case()
    order, taken = random.Random(3), {name: [] for name in cases}
    gc.collect()
    for _ in range(effort.rounds):
        for name in order.sample(list(cases), len(cases)):
            case, loop = cases[name], range(repeats[name])
            begin = time.thread_time()
            for _ in loop:
                case()
            taken[name].append((time.thread_time() - begin) / len(loop))
    return {name: low_percentile(times) for name, times in taken.items()}


def time_each(case: Case, calls: int) -> list[float]:
    """Return the CPU seconds of every single one of so many calls."""
    times = []
    clock = time.thread_time
    for _ in range(calls):
        begin = clock()
        case()
        times.append(clock() - begin)
    return times


@dataclass(frozen=True)
class Process:
    """What a process took: CPU seconds of all its threads and children, and its largest resident memory in MB."""

    cpu: float
    memory: float


def run_process(words: Sequence[str], folder: str) -> Process:
    """Run a process of this Python to its end.

    Its byte code is cached in the folder, as that of every installed package is, whatever this shell's setting.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(Path(folder, "bytecode"))
    command = [sys.executable, *words]
    # Waited for by hand: only `wait4` tells the use of this one child. Its largest memory there is that of this
    # process, if it was larger when it forked, so the child's own is read while it runs.
    child = subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL)
    largest = 0
    while not (waited := os.wait4(child.pid, os.WNOHANG))[0]:
        largest = max(largest, _peak_kilobytes(child.pid))
        time.sleep(0.002)
    _, status, used = waited
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return Process(used.ru_utime + used.ru_stime, largest / 1024)


def _peak_kilobytes(pid: int) -> int:
    """Return the largest resident memory of a process since it began its program; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)
