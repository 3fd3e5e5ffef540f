"""What a run keeps of its events: the latest, each made a line when it is read.

What enters: events that a trace has taken over. What leaves: their redacted lines. Nothing is redacted here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import msgspec

if TYPE_CHECKING:
    from pokayoke.runtime.trace.trace import Trace


class PendingEvent(msgspec.Struct, eq=False):
    """An event that was handed over; its line is made when it is read or written."""

    trace: Trace
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
        size: how many are kept.
    """

    __slots__ = ("_events", "append")

    def __init__(self, size: int) -> None:
        self._events: deque[PendingEvent] = deque(maxlen=size)
        self.append: Callable[[PendingEvent], None] = self._events.append
        """Add what `Trace.record` returned."""

    @property
    def lines(self) -> tuple[bytes, ...]:
        """The lines themselves, oldest first."""
        return tuple([event.line for event in tuple(self._events)])

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter([msgspec.json.decode(line) for line in self.lines])

    def __getitem__(self, index: int) -> dict[str, Any]:
        return cast("dict[str, Any]", msgspec.json.decode(self._events[index].line))

    def __repr__(self) -> str:
        return f"Ring({list(self)!r})"
