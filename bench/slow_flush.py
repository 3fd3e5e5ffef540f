"""A disk whose flush takes two milliseconds, on any machine: the flushing system calls are counted and delayed.

The gain from sharing a flush depends on its cost: 0.2 ms on a disk that answers from its cache, 1 to 10 ms where a
flush reaches the medium or another machine. The bounds of P10 come from a disk of the second kind.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.place import Place

FLUSH_US = 2_000
_WAITING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
int flushes;
#define AFTER_A_WAIT(name) int name(int fd) { \
  __sync_fetch_and_add(&flushes, 1); if (%d) usleep(%d); return ((int (*)(int))dlsym(RTLD_NEXT, #name))(fd); }
AFTER_A_WAIT(fsync)
AFTER_A_WAIT(fdatasync)
"""


def goals(place: Place, module: str, *arguments: str, wait_us: int = FLUSH_US) -> list[dict[str, Any]] | None:
    """Return what a module prints as JSON on such a disk; None if it cannot be simulated (that takes `cc`)."""
    source, library = Path(place.root, f"waiting{wait_us}.c"), Path(place.root, f"waiting{wait_us}.so")
    source.write_text(_WAITING % (wait_us, wait_us))
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "LD_PRELOAD": str(library)},
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def count_flushes() -> int:
    """Return how many flushes this process has asked for; only where `goals` has started it."""
    return ctypes.c_int.in_dll(ctypes.CDLL(os.environ["LD_PRELOAD"]), "flushes").value
