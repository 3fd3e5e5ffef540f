"""Which process holds a claim, and whether it is proven dead.

Death is proven only where it can be: for a process of this boot of this machine and of this process
space. Everything else stays unknown: a claim wrongly taken for dead is a second effect.
"""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path

_SEPARATOR = "|"


def owner() -> str:
    """Return the name of this process: machine, boot, process space, pid and start time; "" where it has none."""
    return _named(os.getpid())


@lru_cache(maxsize=4)
def _named(pid: int) -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = str(Path("/proc/self/ns/pid").readlink())
        started = _started(pid)
    except OSError:
        return ""
    if started is None:
        return ""
    return _SEPARATOR.join((socket.gethostname(), boot, space, str(pid), started))


def is_dead(name: str) -> bool:
    """Return True if the process of that name is proven dead; False if it lives or nobody can know.

    Args:
        name: from `owner()` of any process.
    """
    own = owner().split(_SEPARATOR)
    other = name.split(_SEPARATOR)
    if len(own) != len(other) or own[:3] != other[:3]:
        return False
    try:
        return _started(int(other[3])) != other[4]
    except (OSError, ValueError):
        return False


def _started(pid: int) -> str | None:
    """The clock tick at which a process started; None if there is no such process, or only what is left of one."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything; what follows the last one is regular.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]
