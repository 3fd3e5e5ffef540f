"""A file as blocks of whole lines, in constant memory.

In: a path, or `-` for stdin; gzip is recognised by its first bytes.
Out: blocks of lines. A line has at most 16 MB; of a longer one only the number is kept.
Never: a whole file in memory.
"""

from __future__ import annotations

import gzip
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec

from pokayoke.errors import ConfigurationError

LONGEST_LINE: Final = 16_000_000
LARGEST_DOCUMENT: Final = 64_000_000
_BLOCK_BYTES: Final = 1_000_000
TOO_LONG: Final = b"(a line of more than 16 MB)"
_GZIP: Final = b"\x1f\x8b"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class LineBlock(msgspec.Struct, frozen=True):
    """Some whole lines of a file.

    Attributes:
        line: number of the first one, from 1.
        data: the lines, with their ends.
        read: bytes of the file read so far, for progress; compressed bytes if it is compressed.
    """

    line: int
    data: bytes
    read: int = 0


class InputFile:
    """An open file, or stdin for `-`. Closed by `close`.

    Raises:
        ConfigurationError: it cannot be opened, or is a folder.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._raw: Any = sys.stdin.buffer if name == "-" else _open_file(name)
        about = os.fstat(self._raw.fileno()) if name != "-" else None
        self.size = about.st_size if about is not None and stat.S_ISREG(about.st_mode) else 0
        self._file: BinaryIO = self._raw
        if hasattr(self._raw, "peek") and self._raw.peek(2)[:2] == _GZIP:
            self._file = cast("BinaryIO", gzip.GzipFile(fileobj=self._raw, mode="rb"))

    def close(self) -> None:
        """Close the file; stdin stays open."""
        if self.name != "-":
            self._raw.close()

    def read_blocks(self, size: int = _BLOCK_BYTES) -> Iterator[LineBlock]:
        """Yield the file's lines, about `size` bytes at a time.

        Raises:
            ConfigurationError: a compressed file is damaged.
        """
        number, lines, held = 1, list[bytes](), 0
        for line in self.read_lines():
            lines.append(line)
            held += len(line)
            if held >= size:
                yield LineBlock(number, b"".join(lines), self.bytes_read())
                number, lines, held = number + len(lines), [], 0
        if lines:
            yield LineBlock(number, b"".join(lines), self.bytes_read())

    def bytes_read(self) -> int:
        """Return how many bytes of the file were read so far; compressed bytes if it is compressed."""
        return self._raw.tell() if self.size else 0

    def read_lines(self) -> Iterator[bytes]:
        """Yield the file's lines, one at a time, without a byte order mark.

        Raises:
            ConfigurationError: see `read_blocks`.
        """
        mark = _BYTE_ORDER_MARK
        try:
            while line := self._file.readline(LONGEST_LINE):
                line, mark = line.removeprefix(mark), b""
                yield line if len(line) < LONGEST_LINE or line.endswith(b"\n") else self._skip_line()
        except (EOFError, zlib.error, OSError) as error:
            raise ConfigurationError(f"{self.name}: cannot be read to its end: {error}") from None

    def _skip_line(self) -> bytes:
        """Skip the rest of a line that is too long."""
        while (rest := self._file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
            pass
        return TOO_LONG + b"\n"


def _open_file(name: str) -> Any:
    path = Path(name)
    if path.is_dir():
        raise ConfigurationError(f"{name}: is a folder. Name the files in it")
    try:
        return path.open("rb")
    except OSError as error:
        raise ConfigurationError(f"{name}: cannot be read: {error.strerror}") from None
