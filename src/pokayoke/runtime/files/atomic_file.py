"""Files as a whole: atomic writes, and reads of files that are watched.

In: paths.
Out: a complete file, or its content.
Never: half a file in place of a whole one, or a wait for a pipe.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def atomic_write(name: str | os.PathLike[str]) -> Generator[IO[bytes]]:
    """Open a file for writing; it replaces the old one once all of it is on the disk.

    Readers never see half of it, and if writing fails the old file is unchanged. A link stays a link, permissions
    stay as they were, and so does the owner as far as this process may give a file away. Anything but a file (a pipe,
    a device) is written to directly.

    Args:
        name: of the file.

    Raises:
        OSError: it cannot be written, or its folder takes no file.
    """
    path = Path(name)
    there = path.exists()
    if there and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()
    if there:
        path.open("ab").close()  # a file without write permission must not be replaced either
    draft = path.with_name(f".pokayoke-{os.urandom(8).hex()}")
    try:
        file = draft.open("xb")
    except OSError as error:
        error.filename = os.fspath(name)
        raise
    try:
        with file:
            if there:
                copy_permissions(path, draft)
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def copy_permissions(source: Path, target: Path) -> None:
    """Give a file the permissions of another one, and its owner as far as this process may.

    Raises:
        OSError: the permissions cannot be set.
    """
    status = source.stat()
    given = target.stat()
    if hasattr(os, "chown") and (status.st_uid, status.st_gid) != (given.st_uid, given.st_gid):
        with suppress(PermissionError):
            os.chown(target, status.st_uid, status.st_gid)
    target.chmod(stat.S_IMODE(status.st_mode))


def read_followed(path: Path) -> bytes:
    """Return the content of a file that is watched while calls run.

    Raises:
        OSError: it cannot be read, or is no longer a regular file: reading a pipe would wait.
    """
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with open(fd, "rb") as file:  # noqa: PTH123 - an open descriptor
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file any more")
        return file.read()
