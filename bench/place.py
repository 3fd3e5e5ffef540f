"""The folder of a measurement, and the process whose instructions are counted.

`python -m bench.place CASE CALLS` makes so many calls and nothing else: it imports no peer.
"""

from __future__ import annotations

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


def loop_case(case: str, place: Place) -> Case:
    """Return one of the cases that are counted under callgrind."""
    arguments, output = place.source.arguments(1_000), place.source.output(10_000)
    if case == "floor":
        return floor(arguments, output)
    if case == "small":
        return place.product(arguments, place.source.output(1_500), clock=EvenClock())
    return place.product(arguments, output, clock=EvenClock())


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="bench-")


if __name__ == "__main__":
    with temporary_folder() as folder:
        case = loop_case(sys.argv[1], Place(folder))
        for _ in range(int(sys.argv[2])):
            case()
