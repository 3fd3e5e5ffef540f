"""Files as a whole: one written beside the old one and put in its place, and one that is read again and again."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def atomic_write(name: str | os.PathLike[str]) -> Generator[IO[bytes]]:
    """Open a file to write; it takes its place, and the old one's, once all of it is on the disk.

    Nobody ever sees half of it, and where it cannot be written to its end the old one is as it was. A link
    stays one, rights stay as they were, and what is no file (a pipe, a device) is written to as it is.

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
        path.open("ab").close()  # what may not be written to may not be replaced either
    draft = path.with_name(f".pokayoke-{os.urandom(8).hex()}")
    try:
        file = draft.open("xb")
    except OSError as error:
        error.filename = os.fspath(name)
        raise
    try:
        with file:
            if there:
                draft.chmod(stat.S_IMODE(path.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def read_followed(path: Path) -> bytes:
    """Return the content of a file that is looked at while calls run.

    Raises:
        OSError: it cannot be read, or is no regular file any more: a pipe would be waited for.
    """
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with open(fd, "rb") as file:  # noqa: PTH123 - what is open already
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file any more")
        return file.read()
