"""Instructions per call under valgrind: independent of the load of the machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

FLUSHES = 4


def is_available() -> bool:
    return shutil.which("valgrind") is not None


def count_instructions(*words: str) -> tuple[int, int]:
    """Return all instructions of a process of `bench.place`, and the calls that it says it made."""
    counter = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    done = subprocess.run(
        [*counter, sys.executable, "-m", "bench.place", *words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found, done.stderr[-500:]
    return int(found.group(1)), int(done.stdout)


def instructions_per_call(case: str, after: int = 20) -> float:
    """Return the instructions of one call: the difference of two processes, over that of their calls.

    Args:
        case: a case of `bench.place`.
        after: calls before those that are counted. Where a trace is written, both processes end right after a flush,
            so that a call has its share of them.
    """
    (least, few), (most, many) = (count_instructions(case, str(after), str(flushes)) for flushes in (0, FLUSHES))
    return (most - least) / (many - few)
