"""A history in, a shorter one out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from pokayoke.core.context.tokens import estimate_tokens
from pokayoke.core.context.values import Compacted, Facts, HistoryFormat, HistoryOptions, Identity, Summariser
from pokayoke.core.host_input import as_history


def compacted(
    messages: Sequence[Any],
    max_tokens: int,
    *,
    threshold: float = 0.7,
    keep_last: int = 10,
    pinned: Collection[int] = (),
    format: HistoryFormat | None = None,  # noqa: A002 - the name the other entry points use
    facts: Facts | None = None,
    estimate: Callable[[str], int] = estimate_tokens,
    summarise: Summariser | None = None,
    identity: Identity | None = None,
    large: int | None = None,
    kept: bool = False,
) -> Compacted:
    """Shorten a history if it is above a share of its window, and say what was done.

    First large outputs outside the end are replaced by previews, then older results of a call that was made
    again are cut down to their ids, then one note takes the place of the middle: each step only if the one
    before was not enough. The system prompt, the first user message, pinned messages and the last ones stay.
    A call and its results are never parted. What a provider would refuse is put right in any case.
    The same history always gives the same result, and doing it twice changes nothing more.

    Args:
        messages: the history; it is not changed.
        max_tokens: size of the window, in tokens.
        threshold: share of the window above which a history is shortened, above 0 and up to 1.
        keep_last: messages at the end that stay; more where a call would be parted from its results.
        pinned: numbers of messages that stay, counted from 0, or from the end if negative. A number beyond
            the history pins nothing.
        format: `openai` (chat completions or responses items), `anthropic` or `langchain` (objects or dicts);
            None takes what the messages show.
        facts: what holds now; a note says it. None keeps what an earlier note says.
        estimate: counts the tokens of a text; a tokenizer may stand in.
        summarise: called with the messages that go (an earlier note first) and the room in tokens; returns the
            text that stands for them. If it raises or writes too much, the built-in summary stands in, with
            the finding `summariser_failed`. The built-in one quotes: user's words, calls, ids and numbers.
        identity: called with tool and arguments of a call; calls with an equal answer are the same call, and
            of one with the answer None no result is ever superseded. By default all arguments count.
        large: tokens above which an output is offloaded; by default a twentieth of the window, at least 200.
        kept: True if the model has a way to read `offloaded` texts by handle. Then previews name the handle,
            and large outputs among the last messages go too before a history is said not to fit.

    Raises:
        UsageError: an argument is out of range, or the messages are of another format than `format`.
    """
    options = HistoryOptions(
        max_tokens=max_tokens,
        threshold=threshold,
        keep_last=keep_last,
        format=format,
        facts=facts,
        estimate=estimate,
        summarise=summarise,
        identity=identity,
        large=large,
        kept=kept,
    ).validate()
    from pokayoke.core.context.normalise import shorten_history  # noqa: PLC0415 - 10 ms of import, for who has histories

    return shorten_history(as_history(messages), options, pinned)
