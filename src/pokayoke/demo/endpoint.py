"""The model behind its context window, and the log of a run: the same for both loops."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pokayoke.testing import Reply, ScriptedModel

Message = dict[str, Any]
SYSTEM = "You help a shop with its orders and customers."
MAX_ROUNDS = 60
"""Requests to the model after which both loops give up."""


class Endpoint:
    """A scripted model that sees only what fits its window.

    Args:
        turns: the script.
        window: tokens it can see; None is no limit. What does not fit is dropped from the front, after the system
            prompt, without notice, as servers with a rolling window do.
    """

    def __init__(self, turns: Sequence[Any], window: int | None = None) -> None:
        self.system = SYSTEM
        self.window = window
        self.model = ScriptedModel(turns, then="Done.")

    @property
    def requests(self) -> int:
        """How often the model was asked."""
        return self.model.requests

    def __call__(self, messages: Sequence[Message], tools: Sequence[Any]) -> Reply:
        """Answer a request."""
        return self.model(self._visible_messages(messages), tools)

    def _visible_messages(self, messages: Sequence[Message]) -> list[Message]:
        head, rest = list(messages[:1]), list(messages[1:])
        while self.window is not None and len(rest) > 1 and estimate_tokens([*head, *rest]) > self.window:
            rest.pop(0)
        return [*head, *rest]


@dataclass(slots=True)
class RunLog:
    """What a run did: the history and one line per call."""

    messages: list[Message] = field(default_factory=list[Message])
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    answer: str | None = None
    stop_reason: str | None = None
    crash: str | None = None
    longest: float = 0.0
    """Longest time between two entries, in seconds."""
    _last: float = field(default_factory=time.monotonic)

    def add_call(
        self, tool: str, status: str, text: str, *, stop_reason: str | None = None, findings: Sequence[str] = ()
    ) -> None:
        """Record how one call ended: what the model read, the stop reason, the codes of the findings."""
        now = time.monotonic()
        self.longest, self._last = max(self.longest, now - self._last), now
        self.calls.append(
            {"tool": tool, "status": status, "stop_reason": stop_reason, "findings": list(findings), "reads": text}
        )


def estimate_tokens(messages: Sequence[Message]) -> int:
    """Estimate the tokens of a history: four characters each, and four per message."""
    return sum(len(str(message.get("content") or "")) // 4 + 4 for message in messages)
