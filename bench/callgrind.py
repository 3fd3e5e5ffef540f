"""Instructions per call under valgrind: independent of the load of the machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

FROM, TO = 10, 60


def is_available() -> bool:
    return shutil.which("valgrind") is not None


def count_instructions(case: str, calls: int) -> int:
    """Return all instructions of a process that makes so many calls."""
    counter = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    done = subprocess.run(
        [*counter, sys.executable, "-m", "bench.place", case, str(calls)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found, done.stderr[-500:]
    return int(found.group(1))


def instructions_per_call(case: str, begin: int = FROM, end: int = TO) -> float:
    """Return the instructions of one call: the difference of two processes, divided."""
    return (count_instructions(case, end) - count_instructions(case, begin)) / (end - begin)
