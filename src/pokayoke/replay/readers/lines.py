"""A file, or a part of one, as blocks of whole lines, in constant memory.

In: a path, a URL that fsspec opens, or `-` for stdin; gzip and Zstandard are recognised by their first bytes.
Out: blocks of lines. A line has at most 16 MB; of a longer one only the number is kept.
Never: a whole file in memory.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec

from pokayoke.errors import ConfigurationError
from pokayoke.replay.extras import import_extra

LONGEST_LINE: Final = 16_000_000
LARGEST_DOCUMENT: Final = 64_000_000
_BLOCK_BYTES: Final = 1_000_000
TOO_LONG: Final = b"(a line of more than 16 MB)"
_GZIP: Final = b"\x1f\x8b"
_ZSTANDARD: Final = b"\x28\xb5\x2f\xfd"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class LineBlock(msgspec.Struct, frozen=True):
    """Some whole lines of a file.

    Attributes:
        line: number of the first one: from 1, or in a part of a file from the part's first byte, so that no number
            occurs in two parts of one file.
        data: the lines, with their ends.
        read: bytes of the file read so far, for progress; compressed bytes if it is compressed.
    """

    line: int
    data: bytes
    read: int = 0


class InputFile:
    """An open file, or stdin for `-`. Closed by `close`.

    Args:
        name: a path, a URL, or `-`.
        start: byte from which it is read: lines that begin there or behind it.
        end: byte before which a line must begin to be read; None for all lines.

    Attributes:
        size: in bytes; 0 if it is unknown.
        is_seekable: True if it can be read from the middle: its size is known and it is not compressed.

    Raises:
        ConfigurationError: it cannot be opened, or is a folder.
        MissingExtraError: what opens it is not installed.
    """

    def __init__(self, name: str, start: int = 0, end: int | None = None) -> None:
        self.name = name
        self._start, self._end = start, end
        self._raw, self.size = _open_stdin() if name == "-" else _open_url(name) if is_url(name) else _open_file(name)
        self._file: BinaryIO = self._raw
        self._damage: tuple[type[Exception], ...] = (EOFError, zlib.error, OSError)
        first = self._raw.peek(4)[:4] if hasattr(self._raw, "peek") and not start else b""
        if first.startswith(_GZIP):
            self._file = cast("BinaryIO", gzip.GzipFile(fileobj=self._raw, mode="rb"))
        elif first == _ZSTANDARD:
            self._file, damage = _open_zstandard(self._raw)
            self._damage = (*self._damage, damage)
        self.is_seekable = self.size > 0 and self._file is self._raw
        if start:
            self._raw.seek(start - 1)
            self._skip_line()

    def close(self) -> None:
        """Close the file; stdin stays open."""
        if self.name != "-":
            self._raw.close()

    def read_blocks(self, size: int = _BLOCK_BYTES) -> Iterator[LineBlock]:
        """Yield the file's lines, about `size` bytes at a time.

        Raises:
            ConfigurationError: a compressed file is damaged.
        """
        number, lines, held = self._start + 1, list[bytes](), 0
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
        mark = b"" if self._start else _BYTE_ORDER_MARK
        try:
            while (self._end is None or self._raw.tell() < self._end) and (line := self._file.readline(LONGEST_LINE)):
                line, mark = line.removeprefix(mark), b""
                yield line if len(line) < LONGEST_LINE or line.endswith(b"\n") else self._skip_line()
        except self._damage as error:
            raise ConfigurationError(f"{self.name}: cannot be read to its end: {error}") from None

    def _skip_line(self) -> bytes:
        """Skip the rest of a line that is too long."""
        while (rest := self._file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
            pass
        return TOO_LONG + b"\n"


def is_url(name: str) -> bool:
    """True if a name is a URL, which fsspec opens, and no path."""
    return "://" in name


def _open_stdin() -> tuple[Any, int]:
    return sys.stdin.buffer, 0


def _open_file(name: str) -> tuple[Any, int]:
    path = Path(name)
    if path.is_dir():
        raise ConfigurationError(f"{name}: is a folder. Name the files in it")
    try:
        file = path.open("rb")
    except OSError as error:
        raise ConfigurationError(f"{name}: cannot be read: {error.strerror}") from None
    about = os.fstat(file.fileno())
    return file, about.st_size if stat.S_ISREG(about.st_mode) else 0


def _open_url(url: str) -> tuple[Any, int]:
    system, path = _find_file_system(url)
    try:
        size = system.info(path).get("size") or 0
        file = system.open(path, "rb")
    except Exception as error:  # a file system raises what its client library raises
        raise ConfigurationError(f"{url}: cannot be read: {type(error).__name__}: {error}") from error
    return file if hasattr(file, "peek") else io.BufferedReader(file, _BLOCK_BYTES), size


def expand_urls(names: Iterable[str]) -> list[str]:
    """Return the names; a URL with `*`, `?` or `[` becomes those it matches, in order. A shell expands paths.

    Raises:
        ConfigurationError: a URL matches nothing, or its bucket or host cannot be reached.
        MissingExtraError: what opens it is not installed.
    """
    found: list[str] = []
    for name in names:
        if not is_url(name) or not any(sign in name for sign in "*?["):
            found.append(name)
            continue
        system, path = _find_file_system(name)
        try:
            matches = sorted(system.glob(path))
        except Exception as error:  # as above
            raise ConfigurationError(f"{name}: cannot be listed: {type(error).__name__}: {error}") from error
        if not matches:
            raise ConfigurationError(f"{name}: matches no file")
        found += [str(system.unstrip_protocol(one)) for one in matches]
    return found


def _find_file_system(url: str) -> tuple[Any, str]:
    """Return fsspec's file system of a URL, and the path in it."""
    core = import_extra("fsspec.core", "remote", "fsspec")
    try:
        system, path = core.url_to_fs(url)
    except ImportError as error:  # the package of this kind of storage, which fsspec names
        raise ConfigurationError(f"{url}: cannot be opened: {error}") from error
    except Exception as error:
        raise ConfigurationError(f"{url}: cannot be opened: {type(error).__name__}: {error}") from error
    return system, path


def _open_zstandard(raw: Any) -> tuple[BinaryIO, type[Exception]]:
    """Return the content of a file in Zstandard, and the exception for a damaged one."""
    module = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    zstd = import_extra(module, "zstd", "backports.zstd")
    return zstd.ZstdFile(raw, mode="rb"), zstd.ZstdError
