"""The latest events of a run; each becomes a line when it is read.

In: recorded events.
Out: their redacted lines.
Never: redaction, which is the trace's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

import msgspec


class LineSource(Protocol):
    """Makes the line of an event: a trace."""

    def line_of(self, recorded: PendingEvent) -> bytes:
        """Return the redacted line of an event, without its newline."""
        ...


class PendingEvent(msgspec.Struct, eq=False):
    """A recorded event; its line is made when it is read or written."""

    trace: LineSource
    event: dict[str, Any]
    common: bool
    payloads: tuple[bytes, ...] = ()
    made: bytes | None = None

    @property
    def line(self) -> bytes:
        """The redacted line, without its newline."""
        return self.made or self.trace.line_of(self)


class EventRing:
    """The latest events of one run, read as dictionaries.

    Args:
        size: how many to keep.
    """

    __slots__ = ("_events", "append")

    def __init__(self, size: int) -> None:
        self._events: deque[PendingEvent] = deque(maxlen=size)
        self.append: Callable[[PendingEvent], None] = self._events.append
        """Add what `Trace.record` returned."""

    @property
    def lines(self) -> tuple[bytes, ...]:
        """The lines, oldest first."""
        return tuple([event.line for event in tuple(self._events)])

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter([msgspec.json.decode(line) for line in self.lines])

    def __getitem__(self, index: int) -> dict[str, Any]:
        return cast("dict[str, Any]", msgspec.json.decode(self._events[index].line))

    def __repr__(self) -> str:
        return f"Ring({list(self)!r})"
