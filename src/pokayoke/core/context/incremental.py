"""Keeps the messages of a growing history, and settles the groups that can no longer change.

In: messages, one at a time.
Out: the history as it may be sent. Only the messages from the first open call on are rebuilt for each request; only
shortening reads all of it.
Never: rebuild settled groups.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import msgspec

from pokayoke.core.context.chat import MessageMaker
from pokayoke.core.context.groups import (
    MessageGroup,
    RebuiltHistory,
    Shape,
    flatten_groups,
    history_shape,
    message_shape,
)
from pokayoke.core.context.normalise import pinned_places, rebuild_history
from pokayoke.core.context.shortening import HistoryShortener
from pokayoke.core.context.values import Compacted, HistoryOptions

_MAX_WAIT = 64  # messages after which a call no longer waits for its result


class IncrementalHistory:
    """A growing list of messages and its settled groups.

    Args:
        options: format and limits.
    """

    def __init__(self, options: HistoryOptions) -> None:
        self._options = options
        self._maker = MessageMaker()
        self._shape: Shape | None = history_shape((), options.format)
        self._sure = False  # whether a message has shown the shape
        self._messages: list[Any] = []
        self._pins: frozenset[int] = frozenset()
        # Settled: the groups, their messages, and the position of the first message after them.
        self._closed: list[MessageGroup] = []
        self._sent: list[Any] = []
        self._cut = 0
        self._ids: set[str] = set()  # ids of their calls
        self._begun = False  # whether they hold a user or model message

    def _settle_groups(self, groups: list[MessageGroup]) -> None:
        """Settle groups that later messages cannot change."""
        self._closed += groups
        self._sent += flatten_groups(groups)
        for group in groups:
            self._begun = self._begun or group.role != "system"
            self._ids.update(result.call.id or "" for result in group.results)

    def _reset_settled(self) -> None:
        self._closed, self._sent, self._cut, self._ids, self._begun = [], [], 0, set(), False

    def add_message(self, message: Any, *, pin: bool) -> None:
        """Append a message.

        Args:
            message: the message.
            pin: True if it must never be left out.

        Raises:
            UsageError: the message has another format than the history.
        """
        if not self._sure and message_shape(message) is not None:
            shape = history_shape((message,), self._options.format)
            if shape != self._shape:
                self._shape = shape
                self._reset_settled()
            self._sure = True
        self._maker.learn_style(message)
        if pin:
            self._pins |= {len(self._messages)}
        self._messages.append(message)

    def whole_history(self, total: int) -> Compacted:
        """Return the history as it may be sent, with nothing left out.

        Args:
            total: its tokens.
        """
        found, rest = self._rebuild_end()
        pinned = pinned_places([*self._closed, *rest], self._pins)
        return Compacted(
            [*self._sent, *flatten_groups(rest)], total, total, findings=tuple(found.findings), pinned=pinned
        )

    def shorten_history(self, total: int, scale: float) -> Compacted:
        """Return the history as it may be sent, shortened, and keep it as the history.

        Args:
            total: its tokens.
            scale: tokens per estimated token.
        """
        found, rest = self._rebuild_end()
        groups = [*self._closed, *rest]
        work = HistoryShortener(groups, self._options, self._shape or "openai", self._maker, self._pins)
        # The count is the scaled estimate, plus the part of a request that is no message.
        scale = min(scale, total / max(work.tokens, 1))
        work.shorten(scale, total - scale * work.tokens)
        messages, pinned = flatten_groups(work.groups), pinned_places(work.groups, self._pins)
        changed = bool(work.offloaded or work.superseded or work.dropped)
        if changed:
            self._adopt_groups(work.groups, rest)
        return Compacted(
            messages,
            total,
            round(work.request_tokens) if changed else total,
            work.dropped,
            work.superseded,
            work.offloaded,
            (*found.findings, *work.findings),
            pinned,
        )

    def _rebuild_end(self) -> tuple[RebuiltHistory, list[MessageGroup]]:
        """Rebuild the end; return the rebuilt history and the groups that may still change."""
        end = self._messages[self._cut :]
        shape, opens = self._shape or "openai", not self._begun
        found = rebuild_history(end, shape, self._maker, self._cut, taken=self._ids, opens=opens)
        return found, self._close_groups(found.groups)

    def _close_groups(self, groups: list[MessageGroup]) -> list[MessageGroup]:
        """Settle the groups that later messages cannot change. Returns the others."""
        count = len(self._messages)
        starts = [min(group.sources, default=count) for group in groups]
        nearest = list(accumulate(reversed(starts), min, initial=count))[::-1]
        farthest, closing = -1, 0
        for at, group in enumerate(groups[:-1]):
            if group.is_open and count - starts[at] < _MAX_WAIT:
                break
            farthest = max(farthest, *group.sources) if group.sources else farthest
            if farthest < nearest[at + 1]:
                closing = at + 1
        if closing:
            self._settle_groups(groups[:closing])
            self._cut = nearest[closing]
        return groups[closing:]

    def _adopt_groups(self, groups: list[MessageGroup], rest: list[MessageGroup]) -> None:
        """Keep a shortened history. Its end keeps the original messages: a missing result may still arrive."""
        same = 0
        while same < min(len(rest), len(groups)) and groups[-1 - same] is rest[-1 - same]:
            same += 1
        sources = [at for group in groups[len(groups) - same :] for at in group.sources]
        end = self._messages[min(sources) :] if sources else list(groups[-1].messages)
        kept = groups[: len(groups) - max(same, 1)]
        start = sum(len(group.messages) for group in kept)
        shift = start - (min(sources) if sources else 0)
        pins = set(pinned_places(kept, self._pins))
        if sources:
            pins |= {at + shift for at in self._pins if at >= min(sources)}
        elif not self._pins.isdisjoint(groups[-1].sources):
            pins.add(start)
        self._reset_settled()
        place = 0
        for group in kept:
            numbers = tuple(range(place, place + len(group.messages)))
            self._settle_groups([msgspec.structs.replace(group, sources=numbers)])
            place += len(group.messages)
        self._messages, self._cut, self._pins = [*self._sent, *end], start, frozenset(pins)
