"""A history that grows message by message and stays below its window.

In: messages, one at a time, and the provider's token counts.
Out: the history as it may be sent. Adding a message costs the same at any length, as it is counted once.
Never: shorten below the threshold; estimate tokens that the provider has counted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Unpack

from pokayoke.core.call import Finding
from pokayoke.core.context.tokens import TokenCounter
from pokayoke.core.context.values import Compacted, HistoryKeywords, HistoryOptions
from pokayoke.core.host_input import as_history, as_token_count
from pokayoke.core.output.preview import Page, take_page

_MOST_TEXTS = 64  # offloaded texts that can be paged through


class History:
    """A conversation that stays valid and below its window.

        history = pokayoke.History(128_000)
        history.add({"role": "user", "content": "Where is my parcel?"})
        reply = client.chat.completions.create(messages=history.messages(), ...)
        history.report(reply.usage.prompt_tokens)

    It belongs to one conversation and is not thread-safe.

    Args:
        max_tokens: size of the window, in tokens.
        messages: a history to start with.
        **options: as for `pokayoke.compacted`. With `kept=True` the model needs a tool that calls `page`.

    Raises:
        UsageError: an argument is out of range.
    """

    def __init__(self, max_tokens: int, *, messages: Iterable[Any] = (), **options: Unpack[HistoryKeywords]) -> None:
        from pokayoke.core.context.incremental import IncrementalHistory  # noqa: PLC0415 - 10 ms of import, only for histories

        self._options = HistoryOptions(max_tokens=max_tokens, **options)
        self._counter = TokenCounter(self._options.estimate)
        self._growth = IncrementalHistory(self._options)
        self._view: Compacted | None = None
        self._texts: OrderedDict[str, str] = OrderedDict()
        for message in as_history(messages):
            self.add(message)

    def add(self, message: Any, *, pin: bool = False) -> None:
        """Append a message.

        Args:
            message: a message of the user, the model or a tool, in the shape of the format.
            pin: True if it must never be left out.

        Raises:
            UsageError: the message has another format than the history.
        """
        self._growth.add_message(message, pin=pin)
        self._counter.add(message)
        self._view = None

    def report(self, used: int) -> None:
        """Record the provider's token count.

        Call it when a reply arrives, before the reply is added: the count of everything sent is then exact, and
        later messages are estimated with the ratio observed so far.

        Args:
            used: input tokens of the request that held `messages()`; 0 is ignored.

        Raises:
            UsageError: `used` is not an integer.
        """
        self._counter.report(as_token_count(used))
        self._view = None

    @property
    def tokens(self) -> int:
        """Tokens of the history: the reported count, plus an estimate of the messages added later."""
        return self._counter.total

    @property
    def finding(self) -> Finding | None:
        """`context_overflow` if `messages()` does not fit the window, else None."""
        return self.compacted().finding

    @property
    def offloaded(self) -> Mapping[str, str]:
        """Texts that `page` reads, by handle; only the latest sixty-four are kept."""
        return MappingProxyType(self._texts)

    def page(self, handle: str, offset: int = 0, limit: int = 4_000) -> Page | None:
        """Return a part of an offloaded output.

        Args:
            handle: the handle in the preview.
            offset: first character, from 0.
            limit: maximum number of characters.

        Returns:
            the part, or None if no text is kept under this handle.
        """
        text = self._texts.get(handle)
        return None if text is None else take_page(text, offset, limit)

    def messages(self) -> list[Any]:
        """Return the history as it may be sent now: valid, and shortened if it exceeds the threshold."""
        return list(self.compacted().messages)

    def compacted(self) -> Compacted:
        """Return the history as it may be sent now, with a report of the latest changes."""
        if self._view is None:
            self._view = self._build_view()
        return self._view

    def _build_view(self) -> Compacted:
        """Return the history as it may be sent; a shortened one replaces the messages it was made from."""
        total = self._counter.total
        if total <= self._options.token_limit:
            return self._growth.whole_history(total)
        result = self._growth.shorten_history(total, self._counter.scale)
        if result.shortened:
            self._counter.replace_total(result.after)
        self._texts.update(result.offloaded)
        while len(self._texts) > _MOST_TEXTS:
            self._texts.popitem(last=False)
        return result
