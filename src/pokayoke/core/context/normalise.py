"""A history in the groups that its provider accepts, whatever its shape."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from pokayoke.core.context import anthropic as blocks
from pokayoke.core.context import chat
from pokayoke.core.context import responses as sequence
from pokayoke.core.context.groups import Group, Rebuilt, Shape, flat, shape_of
from pokayoke.core.context.shortening import Work
from pokayoke.core.context.values import Compacted, Options
from pokayoke.core.host_input import whole_number


def rebuilt(
    messages: Sequence[Any],
    shape: Shape,
    maker: chat.Maker,
    base: int = 0,
    *,
    taken: AbstractSet[str] = frozenset(),
    opens: bool = True,
) -> Rebuilt:
    """Return a history, or its end, in groups that its provider accepts.

    Args:
        messages: the history, or its end.
        shape: how it is written.
        maker: writes messages in its manner.
        base: number of the first message.
        taken: ids of the calls before it.
        opens: True if no message of the user or the model stands before it.
    """
    if shape == "anthropic":
        return blocks.rebuild(messages, base, taken, opens=opens)
    if shape == "items":
        return sequence.rebuild(messages, base)
    return chat.rebuild(messages, maker, base)


def shortened(messages: Sequence[Any], options: Options, pinned: Collection[int]) -> Compacted:
    """Return what becomes of a history; see `compacted`.

    Args:
        messages: the history.
        options: what is wanted of it.
        pinned: numbers of messages that stay.

    Raises:
        UsageError: the messages are of another format than the options say, or a pin is no number.
    """
    shape = shape_of(messages, options.format) or "openai"
    maker = chat.Maker()
    for message in messages:
        maker.learn(message)
    found = rebuilt(messages, shape, maker)
    pins = [whole_number(at, "the place of a pinned message") for at in pinned]
    numbers = frozenset(at + len(messages) if at < 0 else at for at in pins)
    work = Work(found.groups, options, shape, maker, numbers)
    before = work.tokens
    work.shorten()
    return Compacted(
        flat(work.groups),
        before,
        work.tokens,
        work.dropped,
        work.superseded,
        work.offloaded,
        (*found.findings, *work.findings),
        places(work.groups, numbers),
    )


def places(groups: Sequence[Group], pinned: frozenset[int]) -> tuple[int, ...]:
    """Return where groups with pinned messages begin in the whole list."""
    if not pinned:
        return ()
    found: list[int] = []
    start = 0
    for group in groups:
        if not pinned.isdisjoint(group.sources):
            found.append(start)
        start += len(group.messages)
    return tuple(found)
