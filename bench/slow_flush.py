"""A disk whose flush takes two milliseconds, on any machine: the flushing system calls are delayed.

The gain from sharing a flush depends on its cost: 0.2 ms on a disk that answers from its cache, 1 to 10 ms where a
flush reaches the medium or another machine. The bounds of P10 come from a disk of the second kind.
"""

from __future__ import annotations

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
#define AFTER_A_WAIT(name) int name(int fd) { usleep(%d); return ((int (*)(int))dlsym(RTLD_NEXT, #name))(fd); }
AFTER_A_WAIT(fsync)
AFTER_A_WAIT(fdatasync)
"""


def goals(place: Place, module: str, *arguments: str) -> list[dict[str, Any]] | None:
    """Return what a module prints as JSON on such a disk; None if it cannot be simulated (that takes `cc`)."""
    source, library = Path(place.root, "waiting.c"), Path(place.root, "waiting.so")
    source.write_text(_WAITING % FLUSH_US)
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
