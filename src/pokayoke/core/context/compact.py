"""Shortens a history that exceeds its share of the window.

In: messages in any provider's format, the size of the window, and options.
Out: messages that the provider accepts, and a report of the changes.
Never: change the messages passed in; separate a call from its results.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Unpack

from pokayoke.core.context.values import Compacted, HistoryKeywords, HistoryOptions
from pokayoke.core.host_input import as_history


def compacted(
    messages: Sequence[Any], max_tokens: int, *, pinned: Collection[int] = (), **options: Unpack[HistoryKeywords]
) -> Compacted:
    """Shorten a history if it exceeds a share of its window, and report the changes.

    Three steps, each from the oldest message on and only until the history is below four fifths of the threshold:
    large outputs before the last messages become previews; older results of a repeated call are reduced to their
    ids; one note replaces the oldest messages of the middle. The system
    prompt, the first user message, pinned messages and the last ones stay. A call and its results stay together.
    Messages that a provider would refuse are repaired in any case. The result is deterministic, and shortening it
    again changes nothing.

    Args:
        messages: the history; it is not changed.
        max_tokens: size of the window, in tokens.
        pinned: positions of messages that stay, counted from 0, or from the end if negative. A position beyond
            the history pins nothing.
        **options: the following, all optional.
        threshold: share of the window above which a history is shortened, above 0 and up to 1; 0.7 by default.
        keep_last: number of messages at the end that stay, 10 by default; more where a call would be separated
            from its results.
        format: `openai` (chat completions or responses items), `anthropic` or `langchain` (objects or dicts);
            None detects it from the messages.
        facts: facts for the note, or a function that returns them when a note is written. None keeps the facts
            of an earlier note.
        estimate: function that counts the tokens of a text, such as a tokenizer.
        summarise: function from the messages that are left out (an earlier note first) and a budget in tokens to
            the text that replaces them. If it raises or exceeds the budget, the built-in summary replaces it, with
            the finding `summariser_failed`. The built-in one quotes the user's words, calls, ids and numbers.
        identity: function from the tool and arguments of a call to a value; calls with equal values are the same
            call. The results of a call with the value None are never superseded. By default all arguments count.
        large: tokens above which an output is offloaded; by default a twentieth of the window, at least 200.
        kept: True if the model can read `offloaded` texts by handle. Then previews name the handle, and large
            outputs among the last messages are offloaded too before a history is reported not to fit.

    Raises:
        UsageError: an argument is out of range, or the messages have another format than `format`.
    """
    shortening = HistoryOptions(max_tokens=max_tokens, **options)
    from pokayoke.core.context.normalise import shorten_history  # noqa: PLC0415 - 10 ms of import, only for histories

    return shorten_history(as_history(messages), shortening, pinned)
