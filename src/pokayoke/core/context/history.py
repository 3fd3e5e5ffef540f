"""A history that grows by one message at a time and never outgrows its window.

Adding a message costs the same however long the history is: it is weighed once. What was reported by the
provider is exact, what came after is estimated as the estimates have proven.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.context.tokens import TokenCounter, estimate_tokens
from pokayoke.core.context.values import Compacted, Facts, HistoryFormat, HistoryOptions, Identity, Summariser
from pokayoke.core.host_input import as_history, as_token_count
from pokayoke.core.output.preview import Page, take_page

_MOST_TEXTS = 64  # offloaded texts that can be paged through


class History:
    """A conversation that stays valid and below its window.

        history = pokayoke.History(128_000)
        history.add({"role": "user", "content": "Where is my parcel?"})
        reply = client.chat.completions.create(messages=history.messages(), ...)
        history.report(reply.usage.prompt_tokens)

    It belongs to one conversation and is not for several threads at once.

    Args:
        max_tokens: size of the window, in tokens.
        messages: a history to go on from.
        threshold: share of the window above which the history is shortened, above 0 and up to 1.
        keep_last: messages at the end that stay.
        format: `openai`, `anthropic` or `langchain`; None takes what the messages show.
        facts: what holds now, or a function that returns it; asked for whenever a note is written.
        estimate: counts the tokens of a text; a tokenizer may stand in.
        summarise: as in `pokayoke.compacted`.
        identity: as in `pokayoke.compacted`.
        large: as in `pokayoke.compacted`.
        kept: True if the model has a tool that calls `take_page`; then previews name their handle.

    Raises:
        UsageError: an argument is out of range.
    """

    def __init__(
        self,
        max_tokens: int,
        *,
        messages: Iterable[Any] = (),
        threshold: float = 0.7,
        keep_last: int = 10,
        format: HistoryFormat | None = None,  # noqa: A002 - the name the other entry points use
        facts: Facts | Callable[[], Facts] | None = None,
        estimate: Callable[[str], int] = estimate_tokens,
        summarise: Summariser | None = None,
        identity: Identity | None = None,
        large: int | None = None,
        kept: bool = False,
    ) -> None:
        from pokayoke.core.context.incremental import IncrementalHistory  # noqa: PLC0415 - 10 ms of import, for who has histories

        self._facts = facts
        self._options = HistoryOptions(
            max_tokens=max_tokens,
            threshold=threshold,
            keep_last=keep_last,
            format=format,
            facts=None if callable(facts) else facts,
            estimate=estimate,
            summarise=summarise,
            identity=identity,
            large=large,
            kept=kept,
        ).validate()
        self._counter = TokenCounter(estimate)
        self._growth = IncrementalHistory(self._options)
        self._view: Compacted | None = None
        self._texts: OrderedDict[str, str] = OrderedDict()
        for message in as_history(messages):
            self.add(message)

    def add(self, message: Any, *, pin: bool = False) -> None:
        """Append a message.

        Args:
            message: a message of the user, the model or a tool, in the shape of the format.
            pin: True if it has to stay, whatever else goes.

        Raises:
            UsageError: the message is of another format than the history.
        """
        self._growth.add_message(message, pin=pin)
        self._counter.add(message)
        self._view = None

    def report(self, used: int) -> None:
        """Take over what the provider counted.

        Call it when a reply arrives, before the reply is added: from then on the count of everything that was
        sent is exact, and what is added later is estimated as the estimates have proven.

        Args:
            used: input tokens of the request that held `messages()`; 0 is ignored.

        Raises:
            UsageError: it is no whole number.
        """
        self._counter.report(as_token_count(used))
        self._view = None

    @property
    def tokens(self) -> int:
        """Tokens of the history: what was reported, and an estimate of what came after."""
        return self._counter.total

    @property
    def finding(self) -> Finding | None:
        """`context_overflow` if `messages()` does not fit the window, else None."""
        return self.compacted().finding

    @property
    def offloaded(self) -> Mapping[str, str]:
        """The texts that `take_page` reads, by handle; the oldest go beyond sixty-four."""
        return MappingProxyType(self._texts)

    def page(self, handle: str, offset: int = 0, limit: int = 4_000) -> Page | None:
        """Return a part of an offloaded output.

        Args:
            handle: as the preview names it.
            offset: first character, from 0.
            limit: most characters.

        Returns:
            the part, or None if nothing is kept under this handle (any more).
        """
        text = self._texts.get(handle)
        return None if text is None else take_page(text, offset, limit)

    def messages(self) -> list[Any]:
        """Return the history as it may be sent now: valid, and shortened if it was above the threshold."""
        return list(self.compacted().messages)

    def compacted(self) -> Compacted:
        """Return the history as it may be sent now, and what the latest message led to."""
        if self._view is None:
            self._view = self._build_view()
        return self._view

    def _build_view(self) -> Compacted:
        """Return the history as it may be sent; a shortened one is what it goes on from."""
        total = self._counter.total
        if total <= self._options.token_limit:
            return self._growth.whole_history(total)
        facts = self._facts() if callable(self._facts) else self._facts
        options = msgspec.structs.replace(self._options, facts=facts)
        result = self._growth.shorten_history(total, self._counter.scale, options)
        if result.shortened:
            self._counter.replace_total(result.after)
        self._texts.update(result.offloaded)
        while len(self._texts) > _MOST_TEXTS:
            self._texts.popitem(last=False)
        return result
