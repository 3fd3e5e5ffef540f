"""A history in the groups that its provider accepts, whatever its shape."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from pokayoke.core.context import anthropic as blocks
from pokayoke.core.context import chat
from pokayoke.core.context import responses as sequence
from pokayoke.core.context.groups import MessageGroup, RebuiltHistory, Shape, flatten_groups, history_shape
from pokayoke.core.context.shortening import HistoryShortener
from pokayoke.core.context.values import Compacted, HistoryOptions
from pokayoke.core.host_input import as_whole_number


def rebuild_history(
    messages: Sequence[Any],
    shape: Shape,
    maker: chat.MessageMaker,
    base: int = 0,
    *,
    taken: AbstractSet[str] = frozenset(),
    opens: bool = True,
) -> RebuiltHistory:
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
        return blocks.rebuild_anthropic(messages, base, taken, opens=opens)
    if shape == "items":
        return sequence.rebuild_responses(messages, base)
    return chat.rebuild_chat(messages, maker, base)


def shorten_history(messages: Sequence[Any], options: HistoryOptions, pinned: Collection[int]) -> Compacted:
    """Return what becomes of a history; see `compacted`.

    Args:
        messages: the history.
        options: what is wanted of it.
        pinned: numbers of messages that stay.

    Raises:
        UsageError: the messages are of another format than the options say, or a pin is no number.
    """
    shape = history_shape(messages, options.format) or "openai"
    maker = chat.MessageMaker()
    for message in messages:
        maker.learn_style(message)
    found = rebuild_history(messages, shape, maker)
    pins = [as_whole_number(at, "the place of a pinned message") for at in pinned]
    numbers = frozenset(at + len(messages) if at < 0 else at for at in pins)
    work = HistoryShortener(found.groups, options, shape, maker, numbers)
    before = work.tokens
    work.shorten()
    return Compacted(
        flatten_groups(work.groups),
        before,
        work.tokens,
        work.dropped,
        work.superseded,
        work.offloaded,
        (*found.findings, *work.findings),
        pinned_places(work.groups, numbers),
    )


def pinned_places(groups: Sequence[MessageGroup], pinned: frozenset[int]) -> tuple[int, ...]:
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
