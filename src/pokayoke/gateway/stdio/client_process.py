"""Which client has started this process, so that all servers of one client share one run.

In: the process table, where the system shows it.
Out: a name that another client, or the same one started again, does not have.
Never: an environment variable or a word of the client: both can be the same for two of them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

_START_FIELD: Final = 19
"""Of `/proc/PID/stat`, counted behind the name: the start of the process in ticks since the system began (proc(5))."""
_PARENT_FIELD: Final = 1
_MOST_LAUNCHERS: Final = 8


def name_client() -> str:
    """Return a name for the process that uses this one; launchers between them (`uvx`, a shell) are passed over."""
    words = [os.fsencode(word) for word in sys.argv[1:]]
    pid = os.getppid()
    for _ in range(_MOST_LAUNCHERS):
        parent = _read_stat(pid, _PARENT_FIELD)
        if parent in (None, "0", "1") or not _ends_with(pid, words):
            break
        pid = int(parent or 0)
    return f"{pid}-{_read_stat(pid, _START_FIELD) or 'unknown'}"


def _ends_with(pid: int, words: list[bytes]) -> bool:
    """Return whether a process was started with the words that we were started with: it only passed them on."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    known = line.rstrip(b"\0").split(b"\0")
    return bool(words) and known[-len(words) :] == words


def _read_stat(pid: int, field: int) -> str | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # another system
        return None
    return text.rpartition(")")[2].split()[field]
