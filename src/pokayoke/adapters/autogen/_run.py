"""What the model client and the workbench of one AutoGen agent know together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pokayoke.adapters._host.bounded_cache import Known
from pokayoke.adapters._host.run import Hosted, plain, written
from pokayoke.core.call import Outcome, ToolCall

if TYPE_CHECKING:
    from pokayoke.runtime.guard.guard import Guard

__all__ = ["SINK", "Conversation"]

SINK = "unread_tool_call"
"""The tool that answers calls of tools an agent does not have. It is listed only while there is such a call."""


class Conversation:
    """One agent's conversation: its run of the guard, and the calls of its latest reply as they were written.

    Args:
        guard: the guard.
        run_id: the user's id of the conversation, if there is one.
        who: session, tenant and principal, as for `Guard.run`.

    Attributes:
        tools: names of the tools that the agent has now.
        sinks: True while the latest reply calls a tool that it does not have.
    """

    def __init__(self, guard: Guard, run_id: str | None, who: dict[str, Any]) -> None:
        """Open nothing yet."""
        self.guard = guard
        self.tools: list[str] = []
        self.sinks = False
        self._named = (run_id, who)
        self._hosted: Hosted | None = None
        self._heard: dict[str, ToolCall] = {}
        self._ended: Known[str, Outcome] = Known()

    def opened(self, taken: Iterable[str] = ()) -> Hosted:
        """Return the run, opened if need be; `taken` are the call ids that its history has by then."""
        if self._hosted is None:
            run_id, who = self._named
            self._hosted = Hosted(self.guard.run(run_id, **who), taken=taken)
        return self._hosted

    def renew(self) -> None:
        """End the run: the next request begins another conversation."""
        hosted, self._hosted = self._hosted, None
        self._heard.clear()
        if hosted is not None:
            hosted.run.close()

    @property
    def pages(self) -> bool:
        """True if there is a text that was too long to show at once."""
        return self._hosted is not None and self._hosted.run.progress.texts.any

    def heard(self, calls: Iterable[ToolCall]) -> None:
        """Keep the calls of a reply as the model wrote them."""
        self._heard = {call.id: call for call in calls}

    def take(self, ident: str | None, name: str, arguments: Any) -> ToolCall:
        """Return a call as the model wrote it; AutoGen hands on what its lenient parser made of it."""
        return self._heard.get(ident or "") or written(ident, name, arguments)

    def ended(self, outcome: Outcome) -> Outcome:
        """Keep what became of a call, for the summary."""
        self._ended.put(outcome.call_id, outcome)
        return outcome

    def summary(self, call: Any, result: Any) -> str:
        """Return what the user reads of a call if the run ends with it: its plain value, or that it failed.

        Args:
            call: the framework's `FunctionCall`.
            result: its `FunctionExecutionResult`.
        """
        outcome = self._ended.get(call.id)
        if outcome is None:
            return str(result.content)
        if outcome.ok:
            return plain(outcome)
        return f"{outcome.tool} did not succeed: {outcome.stop_reason}."
