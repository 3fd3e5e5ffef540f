"""Lines on pipes: read within a limit, written within a time.

In: a file descriptor.
Out: whole lines; of one that is too long, its first and last bytes.
Never: a line that is held in memory beyond the limit, or a write that waits for ever.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from pokayoke.system import CAN_WAIT_FOR_PIPES, wait_until_writable

_PIECE: Final = 1 << 16
_KEPT: Final = 1 << 12
_END: Final = b"\n"


class LongLine(NamedTuple):
    """What is kept of a line that is too long.

    Attributes:
        size: its bytes.
        head: its first bytes.
        tail: its last bytes.
    """

    size: int
    head: bytes
    tail: bytes


class StreamStalledError(OSError):
    """The reader of a pipe does not read."""


class UnreadLineError(OSError):
    """The reader of a pipe is gone, and has got nothing of a line."""


def read_lines(stream: int, longest: int, at_end: Callable[[], None] | None = None) -> Iterator[bytes | LongLine]:
    """Yield the lines of a stream without their ends, and at last what stands behind the last end.

    Args:
        stream: the descriptor, which blocks.
        longest: bytes of the longest line that is kept whole.
        at_end: called when nothing more comes, before what stands behind the last end is yielded.
    """
    line = _OpenLine(longest)
    while piece := _read_piece(stream):
        start = 0
        while (end := piece.find(_END, start)) >= 0:
            yield line.end_with(piece[start:end])
            start = end + 1
        if start < len(piece):
            line.add(piece[start:])
    if at_end is not None:
        at_end()
    if line.size:
        yield line.end_with(b"")


def _read_piece(stream: int) -> bytes:
    try:
        return os.read(stream, _PIECE)
    except OSError:  # closed by its other end, or by our own side at the end
        return b""


class _OpenLine:
    """A line of which the end has not come yet."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._pieces: list[bytes] = []
        self._head = b""
        self.size = 0

    def add(self, part: bytes) -> None:
        """Add a part; of a line that is too long only its ends are kept."""
        was_long = self.size > self._longest
        self.size += len(part)
        self._pieces.append(part)
        if self.size > self._longest:
            whole = b"".join(self._pieces)
            if not was_long:
                self._head = whole[:_KEPT]
            self._pieces = [whole[-_KEPT:]]

    def end_with(self, part: bytes) -> bytes | LongLine:
        """Return the line, of which this is the last part, and begin the next one."""
        if not self._pieces and len(part) <= self._longest:
            return part
        self.add(part)
        found = (
            LongLine(self.size, self._head, self._pieces[0]) if self.size > self._longest else b"".join(self._pieces)
        )
        self._pieces, self._head, self.size = [], b"", 0
        return found


class LineWriter:
    """Writes whole lines into a pipe; thread-safe.

    Args:
        stream: the descriptor.
        patience: seconds within which the reader takes some bytes; None, or a system whose pipes have no deadlines,
            waits for ever.
    """

    def __init__(self, stream: int, patience: float | None = None) -> None:
        self._stream, self._patience = stream, patience
        self._lock = threading.Lock()
        if patience is not None and CAN_WAIT_FOR_PIPES and hasattr(os, "set_blocking"):
            os.set_blocking(stream, False)

    def write_line(self, line: bytes) -> None:
        """Write a line and its end.

        Raises:
            StreamStalledError: nobody read for too long; the pipe may end in the middle of a line.
            UnreadLineError: nobody reads any more, and nobody got anything of the line.
            OSError: nobody reads any more.
        """
        data: bytes | memoryview = line + _END
        with self._lock:
            while data:
                try:
                    sent = os.write(self._stream, data)
                except BlockingIOError:
                    self._wait_until_writable()
                    continue
                except BrokenPipeError as error:
                    if len(data) == len(line) + 1:
                        raise UnreadLineError(str(error)) from None
                    raise
                if sent == len(data):
                    return
                data = memoryview(data)[sent:]

    def _wait_until_writable(self) -> None:
        if not wait_until_writable(self._stream, self._patience):
            raise StreamStalledError(f"it reads nothing for {self._patience:g} s")
