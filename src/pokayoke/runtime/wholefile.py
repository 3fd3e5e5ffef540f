"""A file that is there as a whole or not at all: written beside the old one, then put in its place."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def whole_file(name: str | os.PathLike[str]) -> Generator[IO[bytes]]:
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
    draft = path.with_name(f".pokayoke-{secrets.token_hex(8)}")
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
