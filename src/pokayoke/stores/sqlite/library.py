"""The two SQLite libraries of a Python process: that of `apsw`, and that of the standard library.

In: a path and the name of a library.
Out: open connections.
Never: one file open through two libraries in one process. File locks belong to the process, so neither
    library would see the other's, and the file would be destroyed within seconds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, cast
from urllib.parse import quote

import msgspec

from pokayoke.errors import StoreError
from pokayoke.stores.sql.rows import Row

Wait = Callable[[int], bool]
"""Called with the number of attempts so far; pauses and returns True, or returns False to give up."""
_ATTEMPTS: Final = 3
_OPEN_FILES: Final = Path("/proc/self/fd")


class RawConnection(Protocol):
    """A connection of either library."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Iterable[Row]:
        """Run one statement."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class Library(msgspec.Struct, frozen=True, gc=False):
    """One of the libraries.

    Args:
        name: of the Python module.
        version: of SQLite, as a number: 3_051_003 is 3.51.3.
        connect: opens an existing file; takes a function that waits for others, and how many seconds that may take.
        changes: returns how many rows a connection has changed so far.
        abandon: lets a connection close without touching the files at its path.
    """

    name: str
    version: int
    connect: Callable[[str, Wait, float], RawConnection]
    changes: Callable[[RawConnection], int]
    abandon: Callable[[RawConnection], object]


def load_library(name: str) -> Library:
    """Return a library by the name of its module.

    Raises:
        StoreError: there is no such library, or it is not installed.
    """
    if name == "apsw":
        return _load_apsw()
    if name == "sqlite3":
        return _load_sqlite3()
    raise StoreError(f"{name!r} is no SQLite library: use library=apsw (the default) or library=sqlite3")


def error_code(error: BaseException) -> int:
    """Return SQLite's primary error code, or 0 for an error of another origin."""
    code: Any = getattr(error, "result", None) or getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else 0


def open_connection(use: Library, path: str, found: os.stat_result, wait: Wait, limit: float) -> RawConnection:
    """Open an existing file, unless another library has it open in this process (where the system tells).

    Args:
        use: the library.
        path: of the file.
        found: its status.
        wait: waits for other processes.
        limit: seconds that may take.

    Raises:
        StoreError: another library has it open.
        Exception: the library's own error, if SQLite refuses.
    """
    file = (found.st_dev, found.st_ino)
    for _ in range(_ATTEMPTS):
        if not _is_open_elsewhere(use.name, file):
            break
        time.sleep(0.01)  # a thread may be about to open it with the right one
    else:
        raise StoreError(
            f"{path} is open in this process through another SQLite library, and two of them destroy a file: close it "
            f"there, or give the store the same one with ?library={'sqlite3' if use.name == 'apsw' else 'apsw'}"
        )
    raw = use.connect(path, wait, limit)
    _own_connections[id(raw)] = (use.name, *file)
    return raw


def close_connection(raw: RawConnection) -> None:
    """Close what `open_connection` has opened."""
    _own_connections.pop(id(raw), None)
    raw.close()


_own_connections: dict[int, tuple[str, int, int]] = {}


def _is_open_elsewhere(name: str, file: tuple[int, int]) -> bool:
    """Whether a file is open through another library, as far as that is known."""
    ours = tuple(_own_connections.values())
    through = {library for library, *held in ours if tuple(held) == file}
    if through:
        return through != {name}
    if name != "apsw" or _has_foreign_apsw(sum(library == "apsw" for library, *_ in ours)):
        return False  # an open file may be the user's own connection of the right library
    return any((one.st_dev, one.st_ino) == file for one in _iter_open_files())


def _has_foreign_apsw(ours: int) -> bool:
    """Whether the user has apsw connections. They are only counted: another thread may be using them."""
    module: Any = sys.modules.get("apsw")
    return module is not None and len(module.connections()) > ours


def _load_apsw() -> Library:
    try:
        import apsw  # noqa: PLC0415 - loaded on use
    except ImportError:
        raise StoreError("apsw is not installed: run `pip install apsw`, or add ?library=sqlite3 to the URL") from None

    def connect(path: str, wait: Wait, _: float) -> RawConnection:
        raw = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        raw.set_busy_handler(wait)
        return cast("RawConnection", raw)

    def count_changes(raw: RawConnection) -> int:
        return cast("apsw.Connection", raw).total_changes()

    def abandon(raw: RawConnection) -> None:
        cast("apsw.Connection", raw).config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    return Library("apsw", apsw.SQLITE_VERSION_NUMBER, connect, count_changes, abandon)


def _load_sqlite3() -> Library:
    import sqlite3  # noqa: PLC0415 - loaded on use

    def connect(path: str, _: Wait, limit: float) -> RawConnection:
        # The standard library takes no busy handler: it waits as SQLite does, in growing intervals.
        return sqlite3.connect(
            f"file:{quote(path)}?mode=rw", uri=True, timeout=limit, isolation_level=None, check_same_thread=False
        )

    major, minor, patch = sqlite3.sqlite_version_info
    version = major * 1_000_000 + minor * 1_000 + patch

    def count_changes(raw: RawConnection) -> int:
        return cast("sqlite3.Connection", raw).total_changes

    def abandon(_: RawConnection) -> None:
        """Do nothing: the module has no such option (before Python 3.12)."""

    return Library("sqlite3", version, connect, count_changes, abandon)


def _iter_open_files() -> Iterator[os.stat_result]:
    """Yield the status of every open file of this process; nothing where the system does not tell."""
    try:
        names = os.listdir(_OPEN_FILES)  # noqa: PTH208 - names are all we need
    except OSError:
        return
    for name in names:
        try:
            yield os.stat(_OPEN_FILES / name)  # noqa: PTH116 - the link's target; some are no files at all
        except OSError:
            continue
