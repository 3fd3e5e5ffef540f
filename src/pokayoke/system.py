"""What the operating system offers, and what takes its place where it does not.

Every function here works on every system; where a system lacks an ability, `weaknesses()` names what is weaker.
Nothing asks for the name of the system: what is missing in a container or a sandbox is missing there too.

In: descriptors, processes, callbacks.
Out: the same calls on Linux, macOS and Windows.
Never: an import or a call that fails because of the system it runs on.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import subprocess

try:
    import fcntl as _fcntl
except ImportError:  # Windows
    _locks: ModuleType | None = None
else:
    _locks = _fcntl

HAS_FILE_MODES: Final = hasattr(os, "fchmod") and hasattr(os, "geteuid")
"""True if a file's mode says who may read it. Elsewhere the rights of its folder do."""
MAY_RENAME_OPEN_FILES: Final = HAS_FILE_MODES
"""True if a file that a process has open can be renamed and removed. Windows refuses that."""
BINARY: Final[int] = getattr(os, "O_BINARY", 0)
"""Flag of `os.open` that keeps Windows from writing a carriage return before each newline."""
KILL_SIGNAL: Final[int] = getattr(signal, "SIGKILL", signal.SIGTERM)
"""Ends a process at once. On Windows, SIGTERM does that."""
KILLED_CODE: Final[int] = -KILL_SIGNAL if hasattr(signal, "SIGKILL") else KILL_SIGNAL
"""The return code of a process that `KILL_SIGNAL` has ended."""
CAN_FORK: Final = hasattr(os, "fork")
"""True if a process can make a copy of itself."""
CAN_WAIT_FOR_PIPES: Final = hasattr(select, "poll")
"""True if a read from a pipe, and a write into it, can have a deadline."""
HAS_PROCESS_GROUPS: Final = hasattr(os, "killpg")
"""True if a signal reaches a process together with its children."""
_PROCESS_TABLE: Final = Path("/proc/self/stat")


def register_fork_hooks(
    *,
    before: Callable[[], object] | None = None,
    after_in_parent: Callable[[], object] | None = None,
    after_in_child: Callable[[], object] | None = None,
) -> None:
    """Call functions when this process forks, as `os.register_at_fork` does; nothing where no process can fork."""
    register: Any = getattr(os, "register_at_fork", None)
    if register is None:
        return
    given = {"before": before, "after_in_parent": after_in_parent, "after_in_child": after_in_child}
    register(**{when: hook for when, hook in given.items() if hook is not None})


def try_lock(fd: int) -> bool:
    """Return True if this process has the lock of an open file now. Never waits; True where there are no locks."""
    if _locks is None:
        return True
    try:
        _locks.flock(fd, _locks.LOCK_EX | _locks.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def hold_folder(folder: Path) -> Generator[None]:
    """Hold the lock of a folder for the with block, and wait for it first; nothing where there are no locks.

    Raises:
        OSError: the folder cannot be opened or locked (on entering).
    """
    if _locks is None:
        yield
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        _locks.flock(fd, _locks.LOCK_EX)
        yield
    finally:
        os.close(fd)


def has_input(fd: int) -> bool:
    """Return True if a read from a socket would not wait."""
    if not CAN_WAIT_FOR_PIPES:
        return bool(select.select([fd], [], [], 0)[0])
    return _poll(fd, "POLLIN", 0)


def wait_until_writable(fd: int, patience: float | None) -> bool:
    """Return True once a pipe takes some bytes. Only where `CAN_WAIT_FOR_PIPES`.

    Args:
        fd: the descriptor.
        patience: seconds after which the answer is False; None waits without end.
    """
    return _poll(fd, "POLLOUT", None if patience is None else patience * 1_000)


def _poll(fd: int, event: str, milliseconds: float | None) -> bool:
    """Return True once a descriptor is ready; False if that takes too long."""
    lacking: Any = select  # to the type checker of a system that lacks it
    poll = lacking.poll()
    poll.register(fd, getattr(lacking, event))
    return bool(poll.poll(milliseconds))


def find_program(name: str) -> str:
    """Return what starts a program: where names leave their ending out (`npx` for `npx.cmd`), its whole path."""
    if "PATHEXT" not in os.environ:  # the endings, which only Windows has
        return name
    import shutil  # noqa: PLC0415 - the import of the package needs none of it

    return shutil.which(name) or name


def end_session(process: subprocess.Popen[bytes], patience: float, *, grace: float = 0.0) -> None:
    """Wait for a process that began a session of its own, then end it and its children.

    Where there are no process groups, its children are left: they see that their input has ended.

    Args:
        process: started with `start_new_session=True`, and not waited for yet.
        patience: seconds in which it may end by itself.
        grace: seconds in which it may end after SIGTERM; 0 sends none.
    """
    if not _wait_for_end(process, patience) and grace:
        _signal_session(process, signal.SIGTERM)
        _wait_for_end(process, grace)
    _signal_session(process, KILL_SIGNAL)  # always: its children may outlive it
    process.wait()


def _wait_for_end(process: subprocess.Popen[bytes], patience: float) -> bool:
    """Return True if a process ends in time."""
    until = time.monotonic() + patience
    while not _has_ended(process):
        if time.monotonic() >= until:
            return False
        time.sleep(0.01)
    return True


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return True if a process has ended; if possible without releasing its pid, which names its group."""
    lacking: Any = os
    if not hasattr(lacking, "waitid"):  # Windows, and macOS before Python 3.13: there the signal follows at once
        return process.poll() is not None
    how = lacking.WEXITED | lacking.WNOWAIT | lacking.WNOHANG
    return lacking.waitid(lacking.P_PID, process.pid, how) is not None


def _signal_session(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


def weaknesses() -> Iterator[str]:
    """Yield what is weaker on this system than the documentation says, a sentence each."""
    if not _PROCESS_TABLE.exists():
        yield (
            "no /proc here: the claim of a process that was killed is in doubt when its lease ends (deadline and 10 "
            "seconds), not at once; and a ledger that sqlite3 has open in this process, or that is mounted by itself, "
            "is not recognised."
        )
    if os.open not in os.supports_dir_fd:
        yield "no folder descriptors here: between the check and the use of a path its folders could be exchanged."
    if _locks is None:
        yield (
            "no file locks here: processes that share a trace file may rotate it twice, and of two changes of "
            "contracts.lock at the same moment one may be lost."
        )
    if not MAY_RENAME_OPEN_FILES:
        yield "open files cannot be renamed here: a trace file that several processes share grows past its limit."
    if not HAS_FILE_MODES:
        yield "no file modes here: ledgers, traces and key files are as private as the folders that hold them."
    if not CAN_FORK:
        yield "no process can fork here: `replay` uses one process, whatever --jobs says."
    if not CAN_WAIT_FOR_PIPES:
        yield (
            "pipes have no deadlines here: `learn` cannot ask an MCP server, and reads its saved tools/list answer; "
            "and `mcp` notices a server that reads nothing when its --deadline has passed, not after 30 seconds."
        )
    if not HAS_PROCESS_GROUPS:
        yield (
            "no process groups here: an MCP server is ended alone, at once if it does not end with its input; its "
            "children end when they see that their input has ended."
        )
