"""Interleaved rounds and medians."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Case = Callable[[], object]


@dataclass(frozen=True)
class Effort:
    """How long to measure: rounds, seconds per case and round, and seconds per case before the first round.

    Work that is done once per process (compiling searches, specialising byte code, filling the ring) is over then.
    """

    rounds: int = 15
    seconds: float = 0.012
    warm_up: float = 0.5


def time_side_by_side(cases: dict[str, Case], effort: Effort) -> dict[str, float]:
    """Return median seconds per call of each case; in every round each case runs once, in random order."""
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
            begin = time.perf_counter()
            for _ in loop:
                case()
            taken[name].append((time.perf_counter() - begin) / len(loop))
    return {name: statistics.median(times) for name, times in taken.items()}


def time_each(case: Case, calls: int) -> list[float]:
    """Return the seconds of every single one of so many calls."""
    times = []
    clock = time.perf_counter
    for _ in range(calls):
        begin = clock()
        case()
        times.append(clock() - begin)
    return times
