"""Names the process that holds a claim, and proves its death.

In: the name of a process.
Out: whether it is proven dead: only for a process of this boot, machine and process space.
Never: a living process taken for dead. That would be a second effect.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from pokayoke.system import register_fork_hooks

_SEPARATOR = "|"
_PARTS = 5


def current_owner() -> str:
    """Return the name of this process: machine, boot, process space, pid and start time; "" where it has none."""
    return _name_process(os.getpid())


@lru_cache(maxsize=4)
def _name_process(pid: int) -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = str(Path("/proc/self/ns/pid").readlink())
        started = _start_tick(pid)
    except OSError:
        return ""
    if started is None or not hasattr(os, "uname"):
        return ""
    return _SEPARATOR.join((os.uname().nodename, boot, space, str(pid), started))


def is_dead(name: str) -> bool:
    """Return True if the process of that name is proven dead; False if it lives or its state is unknown.

    Args:
        name: from `current_owner()` of any process.
    """
    own = current_owner().split(_SEPARATOR)
    other = name.split(_SEPARATOR)
    if len(own) != _PARTS or len(other) != _PARTS or own[:3] != other[:3]:
        return False
    try:
        pid = int(other[3])
        started = _start_tick(pid)
        return started != other[4] and not (started is None and _is_hidden(pid))
    except (OSError, ValueError):
        return False


def _start_tick(pid: int) -> str | None:
    """The clock tick at which a process started; None if there is no such process, or only what is left of one.

    A process whose first thread has ended counts as there until its last thread has: that one may be
    in the middle of the effect, even while a kill is being carried out.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything; what follows the last one is regular.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") and int(fields[17]) <= 1 else fields[19]


def _is_hidden(pid: int) -> bool:
    """Whether a process exists that /proc does not show: it may be mounted so that users see their own only."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # What is left of a process can still be signalled, and is none.
    return not Path(f"/proc/{pid}/stat").exists()


# A child may get the pid of an ancestor that is gone: the name of that one would be its own death certificate.
register_fork_hooks(after_in_child=_name_process.cache_clear)
