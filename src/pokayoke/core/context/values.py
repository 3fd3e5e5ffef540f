"""Values of this room: facts that a note repeats, options, and the result of shortening.

In: the caller's facts and options.
Out: validated options; `Compacted`, the result.
Never: accept an option that fails only once a history is long.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypedDict, cast

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.context.tokens import estimate_tokens
from pokayoke.core.host_input import as_function, as_whole_number
from pokayoke.core.state.run_state import Taint
from pokayoke.errors import UsageError

HistoryFormat = Literal["openai", "anthropic", "langchain"]
"""Format of the messages: `openai` covers chat completions and items of the responses API."""
Identity = Callable[[str, Any], Hashable | None]
"""Maps the tool and the arguments of a call to a value that identifies the call."""
Summariser = Callable[[Sequence[Any], int], str]
"""Maps the messages that are left out, and a budget in tokens, to the text that replaces them."""

_NO_TEXTS: Mapping[str, str] = MappingProxyType({})
_LEAST_LARGE = 200  # tokens


class OpenEffect(msgspec.Struct, frozen=True):
    """A write that the ledger does not record as finished.

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


class CompletedWrite(msgspec.Struct, frozen=True):
    """A write that took effect.

    Args:
        tool: the tool.
        about: a few words for the model: which order, which amount.
        reference: the target's name of the effect, or what the answer named; "" if there is none.
    """

    tool: str
    about: str = ""
    reference: str = ""


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
    """Facts that hold now and must survive shortening.

    Args:
        done: completed writes, oldest first.
        effects: unfinished writes.
        taints: outputs that must not be used.
        refusals: calls that would be refused again.
        ids: ids in use, such as order numbers.
        others: other facts, one sentence each.
    """

    done: tuple[CompletedWrite, ...] = ()
    effects: tuple[OpenEffect, ...] = ()
    taints: tuple[Taint, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    ids: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


class Compacted(msgspec.Struct, frozen=True):
    """The result of shortening a history.

    Attributes:
        messages: a new list that the provider accepts. Unchanged messages are the objects that were passed in.
        before: estimated tokens of the input.
        after: estimated tokens of the result.
        dropped: messages that a note newly replaces.
        superseded: results reduced to their ids because a newer result of the same call exists.
        offloaded: outputs reduced to a preview: handle -> whole text.
        findings: repairs of the history, and `context_overflow` if the result does not fit the window.
        pinned: new positions of the pinned messages (or of the calls they belong to).
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
        """True if a message was left out, reduced or offloaded."""
        return bool(self.dropped or self.superseded or self.offloaded)

    @property
    def event(self) -> dict[str, Any]:
        """The trace event: `{"event": "context", "before", "after", "dropped"}`."""
        return {"event": "context", "before": self.before, "after": self.after, "dropped": self.dropped}


class HistoryKeywords(TypedDict, total=False):
    """The keyword arguments that `compacted`, `compact` and `History` share; `compacted` documents them."""

    threshold: float
    keep_last: int
    format: HistoryFormat | None
    facts: Facts | Callable[[], Facts] | None
    estimate: Callable[[str], int]
    summarise: Summariser | None
    identity: Identity | None
    large: int | None
    kept: bool


class HistoryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a history is shortened: the window, and `HistoryKeywords` with their defaults.

    Raises:
        UsageError: an option is out of range or of another type.
    """

    max_tokens: int
    threshold: float = 0.7
    keep_last: int = 10
    format: HistoryFormat | None = None
    facts: Facts | Callable[[], Facts] | None = None
    estimate: Callable[[str], int] = estimate_tokens
    summarise: Summariser | None = None
    identity: Identity | None = None
    large: int | None = None
    kept: bool = False

    def __post_init__(self) -> None:
        """Validate every option."""
        whole = (self.max_tokens, self.keep_last)
        sound = all(isinstance(cast("object", one), int) for one in whole)
        sound = sound and isinstance(cast("object", self.threshold), (int, float))
        # Written so that NaN is out of range, too.
        if not (sound and self.max_tokens >= 1 and 0 < self.threshold <= 1 and self.keep_last >= 0):
            raise UsageError(
                f"max_tokens must be at least 1, threshold above 0 and up to 1, keep_last 0 or more, the first and "
                f"the last whole numbers; got {self.max_tokens!r}, {self.threshold!r}, {self.keep_last!r}"
            )
        as_function(self.estimate, "estimate")
        for name, function in (("summarise", self.summarise), ("identity", self.identity)):
            if function is not None:
                as_function(function, name)
        if not (self.facts is None or isinstance(self.facts, Facts) or callable(self.facts)):
            raise UsageError(
                f"facts must be a Facts(...), a function that returns one, or None; got {self.facts!a:.40}"
            )
        if self.large is not None and as_whole_number(self.large, "large, in tokens,") < 1:
            raise UsageError(f"large must be at least 1 token, got {self.large}")

    @property
    def token_limit(self) -> int:
        """Tokens above which a history is shortened."""
        return int(self.max_tokens * self.threshold)

    @property
    def large_tokens(self) -> int:
        """Tokens above which an output is offloaded."""
        return max(_LEAST_LARGE, self.max_tokens // 20) if self.large is None else self.large
