"""The trace file: whole lines, appended by any number of processes, rotated by size.

A process that is killed while it writes may leave half a line, because the kernel ends a write between two
pages. Another process that has written after it writes its line again.

In: lines without their newlines.
Out: whole lines in the file, or a count of dropped ones.
Never: an exception or an endless wait during a call, because of a full disk, a lost folder or another process.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from pokayoke.errors import ConfigurationError
from pokayoke.system import BINARY, MAY_RENAME_OPEN_FILES, try_lock

# O_NONBLOCK: opening a pipe without a reader must not wait. O_APPEND: the kernel places each write.
_FLAGS: Final = os.O_APPEND | os.O_CREAT | BINARY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_NO_POSITION: Final = -1  # no write of this file has ended yet
_LOOK_SECONDS: Final = 0.1
"""Seconds between checks of the path. Lines written to a file that was deleted meanwhile are written again."""
_MOST_UNSURE: Final = 1_048_576  # bytes


class TraceFile:
    """An append-only file of lines.

    Args:
        path: relative to the current folder. Its folder must exist.
        max_bytes: size at which the file becomes `path.1`, and so on.
        backups: how many rotated files to keep.
        option: name of the option in the configuration, for messages.

    Attributes:
        dropped: lines that could not be written.
        problem: the latest reason, or None.
        is_closed: True once it was closed on purpose.

    Raises:
        ConfigurationError: the file cannot be opened for appending, or there is no space left.
    """

    _fd: int
    _ours: tuple[int, int]
    _torn: bool  # the last write stopped in the middle
    _end: int  # position in the file at which the last write ended
    # When the path was checked, how many more bytes may be written before the next check, and the lines since then.
    _looked: float
    _room: int
    _unsure: list[bytes]

    def __init__(
        self, path: str | os.PathLike[str], *, max_bytes: int, backups: int, option: str = "trace.path"
    ) -> None:
        self.path = os.fspath(path)
        with suppress(OSError):  # without a current folder, opening the file reports it
            self.path = str(Path(path).absolute())
        self.dropped = 0
        self.problem: str | None = None
        self.is_closed = False
        self._max_bytes, self._backups, self._option = max_bytes, backups, option
        self._adopt_descriptor(self._open_or_refuse())

    def append(self, lines: list[bytes]) -> None:
        """Pass lines (without their newlines) to the operating system, all in one write.

        The caller ensures that only one thread appends at a time.
        """
        data, done, torn = b"\n".join([*lines, b""]), 0, False
        try:
            if gone := self._follow_or_rotate(len(data)):
                lines = gone + lines
                data = b"\n".join([*lines, b""])
            torn = self._torn
            if torn:  # the last write stopped in the middle: begin a new line
                data = b"\n" + data
            # One write for all: with O_APPEND it lands in one piece, even if other processes write too.
            while done < len(data):
                done += os.write(self._fd, data[done:])
            self.problem = None
        except OSError as error:
            self.problem = error.strerror or str(error)
        if done < len(data):
            self.dropped += len(lines) - max(0, data[:done].count(b"\n") - torn)
        if done:
            self._torn = data[done - 1 : done] != b"\n"
        if done == len(data):
            behind = self._is_behind_half_a_line(done) and not torn
            self._room = min(self._room - done, self._max_bytes - self._end)
            self._unsure += lines[1:] if behind else lines
            if behind:
                self.append(lines[:1])

    def close(self) -> None:
        """Close the file. A closed file drops appended lines."""
        with suppress(OSError):
            if self._fd >= 0 and self._unsure and os.fstat(self._fd).st_nlink == 0:
                gone, self._unsure, self._looked = self._unsure, [], -math.inf
                self.append(gone)
        self._close_descriptor()
        self.is_closed = True

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()

    def reset_after_fork(self) -> None:
        """Start anew in a child process: lines written so far are the parent's to write again."""
        self._unsure = []
        if self._fd >= 0:
            try:
                # Open a file description of our own: the parent's shares its lock.
                self._reopen()
            except OSError as error:
                self.problem = str(error)

    def _open_or_refuse(self) -> int:
        try:
            fd = _open_file(self.path)
        except _OtherKindError:
            raise ConfigurationError(f"{self._option} {self.path!r} is not a regular file. Name another one.") from None
        except OSError as error:
            raise ConfigurationError(
                f"{self._option} {self.path!r} cannot be opened for appending: {error.strerror}. Create its folder, "
                "give this user the right to write there, or name another file."
            ) from None
        if _is_full(fd):
            os.close(fd)
            raise ConfigurationError(f"{self._option} {self.path!r}: no space left on its disk.")
        return fd

    def _follow_or_rotate(self, coming: int) -> list[bytes]:
        """Check the path: another process may have rotated the file, or it was moved or deleted.

        A check costs more than a write: after a file's times were read, the next write has to record a new one.

        Returns:
            The lines that were written since the last check, if the file was deleted, else none.
        """
        if self._fd < 0:
            raise OSError(errno.EBADF, "the trace is closed")
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS and coming <= self._room:
            return []
        there, size = self._stat_own_file(), 0
        gone: list[bytes] = []
        if there is None:
            if os.fstat(self._fd).st_nlink == 0:
                gone = self._unsure
            self._reopen()
        elif there.st_size > 0 and there.st_size + coming > self._max_bytes and self._may_rotate():
            self._rotate()
        else:
            size = there.st_size
        self._looked, self._unsure, self._room = now, [], min(_MOST_UNSURE, self._max_bytes - size)
        return gone

    def _stat_own_file(self) -> os.stat_result | None:
        """Return the path's status if it still leads to the open file."""
        try:
            there = os.stat(self.path)  # noqa: PTH116 - a quarter of the time of a Path's
        except FileNotFoundError:
            return None
        # An inode number is not reused while our descriptor holds the inode.
        return there if _file_identity(there) == self._ours else None

    def _may_rotate(self) -> bool:
        """Return True for one process at a time. Never waits: a stopped process may hold the lock indefinitely."""
        # A process that waited for this inode after it was moved must not move its successor.
        return try_lock(self._fd) and self._stat_own_file() is not None

    def _rotate(self) -> None:
        if MAY_RENAME_OPEN_FILES:
            self._rotate_files()
            self._reopen()
            return
        self._close_descriptor()
        try:
            with suppress(PermissionError):  # another process has it open, so it grows until that one ends
                self._rotate_files()
        finally:
            self._adopt_descriptor(_open_file(self.path))

    def _rotate_files(self) -> None:
        if self._backups == 0:
            Path(self.path).unlink()
            return
        for number in range(self._backups - 1, 0, -1):
            older = Path(f"{self.path}.{number}")
            if older.exists():
                older.replace(f"{self.path}.{number + 1}")
        Path(self.path).replace(f"{self.path}.1")

    def _reopen(self) -> None:
        fresh = _open_file(self.path)
        self._close_descriptor()
        self._adopt_descriptor(fresh)

    def _close_descriptor(self) -> None:
        """Close the descriptor. It is forgotten first: its number may belong to another file at once."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):  # a network file system may report lost data only now
                os.close(fd)

    def _adopt_descriptor(self, fd: int) -> None:
        self._fd, self._ours, self._torn = fd, _file_identity(os.fstat(fd)), False
        self._end, self._looked, self._room, self._unsure = _NO_POSITION, -math.inf, 0, []

    def _is_behind_half_a_line(self, size: int) -> bool:
        """Whether the last write, of so many bytes, landed after half a line that another process left there."""
        if not hasattr(os, "pread"):  # Windows, where a started write is not cut
            return False
        try:
            before, self._end = self._end, os.lseek(self._fd, 0, os.SEEK_CUR)
            begin = self._end - size
            return begin not in (0, before) and os.pread(self._fd, 1, begin - 1) != b"\n"
        except OSError:  # it is not readable, or a finalizer has closed it
            return False


def _open_file(path: str) -> int:
    """Open a regular file for appending, created if needed, and for reading if that is permitted.

    Raises:
        OSError: that is not possible; `_OtherKindError` if something else than a file is there.
    """
    try:
        fd = os.open(path, os.O_RDWR | _FLAGS, 0o600)
    except PermissionError:
        fd = os.open(path, os.O_WRONLY | _FLAGS, 0o600)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise _OtherKindError(errno.EINVAL, "it is not a regular file")


class _OtherKindError(OSError):
    """A folder, pipe or device is where a file should be."""


def _file_identity(found: os.stat_result) -> tuple[int, int]:
    """Return what identifies a file among all others."""
    return found.st_ino, found.st_dev


def _is_full(fd: int) -> bool:
    """True if not even one block is free. File systems that do not report it count as having space."""
    if not hasattr(os, "fstatvfs"):
        return False
    try:
        space = os.fstatvfs(fd)
    except OSError:
        return False
    return bool(space.f_blocks > 0 and space.f_bavail == 0)
