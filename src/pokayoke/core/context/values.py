"""The values that callers of this room meet: what holds, what is wanted, what came of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, cast

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.context.tokens import estimate_tokens
from pokayoke.core.host_input import as_function, as_whole_number
from pokayoke.core.state.run_state import Taint
from pokayoke.errors import UsageError

HistoryFormat = Literal["openai", "anthropic", "langchain"]
"""Whose messages: `openai` covers chat completions and items of the responses API."""
Identity = Callable[[str, Any], Hashable | None]
"""From a tool and the arguments of a call to what says which call it is."""
Summariser = Callable[[Sequence[Any], int], str]
"""From messages that go, and the room in tokens, to the text that stands for them."""

_NO_TEXTS: Mapping[str, str] = MappingProxyType({})
_LEAST_LARGE = 200  # tokens


class OpenEffect(msgspec.Struct, frozen=True):
    """A write of which the ledger does not say that it is over.

    Args:
        tool: the tool.
        key: its key in the ledger.
        state: `running`, `pending` (waits for a person) or `in_doubt`.
        about: a few words for the model: which order, which amount.
    """

    tool: str
    key: str
    state: Literal["running", "pending", "in_doubt"] = "in_doubt"
    about: str = ""


class Refusal(msgspec.Struct, frozen=True):
    """A call that was refused and would be refused again.

    Args:
        tool: the tool.
        reason: the code of the finding.
        about: a few words for the model.
    """

    tool: str
    reason: str
    about: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What holds now and must not be forgotten, whatever is left out of a history.

    Args:
        effects: writes that are not over.
        taints: outputs that must not be used.
        refusals: calls that would be refused again.
        ids: ids in use, such as order numbers.
        others: anything else, a sentence each.
    """

    effects: tuple[OpenEffect, ...] = ()
    taints: tuple[Taint, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    ids: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


class Compacted(msgspec.Struct, frozen=True):
    """What became of a history.

    Attributes:
        messages: a new list that the provider accepts. What was not touched is the very object that came in.
        before: tokens that came in, estimated.
        after: tokens that go out, estimated.
        dropped: messages that a note stands for now and did not before.
        superseded: results that were cut down to their ids because the same call has a newer one.
        offloaded: outputs of which only a preview is left: the whole text by handle.
        findings: what had to be put right, and `context_overflow` if the result does not fit the window.
        pinned: where the pinned messages (or the calls they belong to) are now.
    """

    messages: list[Any]
    before: int
    after: int
    dropped: int = 0
    superseded: int = 0
    offloaded: Mapping[str, str] = _NO_TEXTS
    findings: tuple[Finding, ...] = ()
    pinned: tuple[int, ...] = ()

    @property
    def finding(self) -> Finding | None:
        """`context_overflow` if the result does not fit the window, else None."""
        return next((finding for finding in self.findings if finding.code == "context_overflow"), None)

    @property
    def shortened(self) -> bool:
        """True if something was left out, cut down or offloaded."""
        return bool(self.dropped or self.superseded or self.offloaded)

    @property
    def event(self) -> dict[str, Any]:
        """The trace event: `{"event": "context", "before", "after", "dropped"}`."""
        return {"event": "context", "before": self.before, "after": self.after, "dropped": self.dropped}


class HistoryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How histories are shortened; the arguments of `compacted` and `History`."""

    max_tokens: int
    threshold: float = 0.7
    keep_last: int = 10
    format: HistoryFormat | None = None
    facts: Facts | None = None
    estimate: Callable[[str], int] = estimate_tokens
    summarise: Summariser | None = None
    identity: Identity | None = None
    large: int | None = None
    kept: bool = False

    @property
    def token_limit(self) -> int:
        """Tokens above which a history is shortened."""
        return int(self.max_tokens * self.threshold)

    @property
    def large_tokens(self) -> int:
        """Tokens above which an output is offloaded."""
        return max(_LEAST_LARGE, self.max_tokens // 20) if self.large is None else self.large

    def validate(self) -> HistoryOptions:
        """Return these options.

        Raises:
            UsageError: one of them is out of range, or of another kind.
        """
        whole = (self.max_tokens, self.keep_last)
        sound = all(isinstance(cast("object", one), int) for one in whole)
        sound = sound and isinstance(cast("object", self.threshold), (int, float))
        # Asked this way round, NaN is out of range, too.
        if not (sound and self.max_tokens >= 1 and 0 < self.threshold <= 1 and self.keep_last >= 0):
            raise UsageError(
                f"max_tokens must be at least 1, threshold above 0 and up to 1, keep_last 0 or more, the first and "
                f"the last whole numbers; got {self.max_tokens!r}, {self.threshold!r}, {self.keep_last!r}"
            )
        as_function(self.estimate, "estimate")
        for name, function in (("summarise", self.summarise), ("identity", self.identity)):
            if function is not None:
                as_function(function, name)
        if not isinstance(cast("object", self.facts), (Facts, type(None))):
            raise UsageError(f"facts is a Facts(...), or None; not {self.facts!a:.40}")
        if self.large is not None and as_whole_number(self.large, "large, in tokens,") < 1:
            raise UsageError(f"large must be at least 1 token, got {self.large}")
        return self
