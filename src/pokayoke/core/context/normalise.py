"""Rebuilds and shortens a history of any shape.

In: messages, their shape, and options.
Out: groups that the provider accepts; the result of shortening.
Never: decide by itself how a provider's rules are met: the modules per shape do.
"""

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
        shape: shape of its messages.
        maker: makes messages in its style.
        base: position of the first message.
        taken: ids of earlier calls.
        opens: True if no user or model message comes before it.
    """
    if shape == "anthropic":
        return blocks.rebuild_anthropic(messages, base, taken, opens=opens)
    if shape == "items":
        return sequence.rebuild_responses(messages, base)
    return chat.rebuild_chat(messages, maker, base)


def shorten_history(messages: Sequence[Any], options: HistoryOptions, pinned: Collection[int]) -> Compacted:
    """Shorten a history; see `compacted`.

    Args:
        messages: the history.
        options: format and limits.
        pinned: positions of messages that stay.

    Raises:
        UsageError: the messages have another format than the options say, or a pin is not an integer.
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
    """Return the positions at which groups with pinned messages begin."""
    if not pinned:
        return ()
    found: list[int] = []
    start = 0
    for group in groups:
        if not pinned.isdisjoint(group.sources):
            found.append(start)
        start += len(group.messages)
    return tuple(found)
