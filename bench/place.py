"""The folder of a measurement, and the process whose instructions are counted.

`python -m bench.place CASE CALLS FLUSHES` makes so many calls, goes on to the next flush of the trace and so many
flushes more, and prints how many calls that were. It imports no peer.
"""

from __future__ import annotations

import gc
import itertools
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.floor import floor
from bench.measure import Case
from bench.payloads import INPUT, OUTPUT, PATH, TOOL, Source
from bench.product import build_guarded
from pokayoke.runtime.threads.clock import SystemClock
from pokayoke.runtime.trace.file import TraceFile


@dataclass
class Place:
    """A folder with the file that path arguments name, and payloads of every size."""

    root: str
    source: Source = field(default_factory=Source)

    def __post_init__(self) -> None:
        target = Path(self.root, PATH)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("x")

    def spec(self, output: str, **more: Any) -> dict[str, Any]:
        return {
            "name": TOOL, "tool": lambda **_: output, "input_schema": INPUT, "output_schema": OUTPUT,
            "path_fields": ["target"], "root": self.root, "ledger": None, **more,
        }  # fmt: skip

    def product(self, arguments: str, output: str, **more: Any) -> Case:
        guarded = build_guarded(self.spec(output, **more))
        guarded(arguments)
        return lambda: guarded(arguments)


class EvenClock(SystemClock):
    """A clock that advances by 50 microseconds with every reading.

    Under valgrind a call takes a hundred times as long. Work that is done once a second (writing the trace, counting
    valid outputs) would come with every hundredth call instead of every ten thousandth.
    """

    def __init__(self) -> None:
        super().__init__()
        looks = itertools.count()
        self.now = lambda: 1_790_000_000 + next(looks) * 50e-6


UNFOLLOWED = {"untrusted": {"mode": "off"}}
SIZES = {"": (1_000, 10_000), "small": (200, 1_000), "long": (1_000, 1_500)}
KINDS: dict[str, dict[str, Any]] = {
    "ours": {},
    "first_write": {"ledger": "memory", "first": True},  # its run has read nothing yet
    "off": {"config": UNFOLLOWED},
    "first_write_off": {"config": UNFOLLOWED, "ledger": "memory", "first": True},
}


def loop_case(case: str, place: Place) -> Case:
    """Return one of the cases that are counted under callgrind: `floor` or one of `KINDS`, with a size of `SIZES`."""
    kind, _, size = case.partition("-")
    few, many = SIZES[size]
    arguments, output = place.source.arguments(few), place.source.output(many)
    if kind == "floor":
        return floor(arguments, output)
    return place.product(arguments, output, clock=EvenClock(), **KINDS[kind])


def count_flushes() -> list[int]:
    """Count the flushes of every trace from now on, in the list's only item."""
    count, append = [0], TraceFile.append

    def append_and_count(file: TraceFile, lines: list[bytes]) -> None:
        append(file, lines)
        count[0] += 1

    TraceFile.append = append_and_count
    return count


def make_calls(case: str, place: Place, least: int, flushes: int) -> int:
    """Make at least so many calls, to the next flush and so many flushes more. Returns the calls made."""
    flushed, one = count_flushes(), loop_case(case, place)
    gc.disable()  # a pass of the collector costs more than a call, and comes when it comes
    for _ in range(least):
        one()
    made = least
    if case.startswith("floor"):  # it has no trace
        for _ in range(flushes * 100):
            one()
        return least + flushes * 100
    until = flushed[0] + 1 + flushes
    while flushed[0] < until:
        one()
        made += 1
    return made


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="bench-")


if __name__ == "__main__":
    with temporary_folder() as folder:
        print(make_calls(sys.argv[1], Place(folder), int(sys.argv[2]), int(sys.argv[3])))
