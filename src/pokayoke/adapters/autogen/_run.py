"""What the model client and the workbench of one AutoGen agent know together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pokayoke.adapters._host.bounded_cache import BoundedCache
from pokayoke.adapters._host.calls import decode_call
from pokayoke.adapters._host.run import AdapterRun, value_as_text
from pokayoke.core.call import Outcome, ToolCall

if TYPE_CHECKING:
    from pokayoke.runtime.guard.guard import Guard

__all__ = ["UNKNOWN_TOOL_NAME", "AgentRun"]

UNKNOWN_TOOL_NAME = "unread_tool_call"
"""The tool that answers calls of tools an agent does not have. It is listed only while there is such a call."""


class AgentRun:
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
        self._hosted: AdapterRun | None = None
        self._heard: dict[str, ToolCall] = {}
        self._ended: BoundedCache[str, Outcome] = BoundedCache()

    def open_run(self, taken: Iterable[str] = ()) -> AdapterRun:
        """Return the run, opened if need be; `taken` are the call ids that its history has by then."""
        if self._hosted is None:
            run_id, who = self._named
            self._hosted = AdapterRun(self.guard.run(run_id, **who), taken=taken)
        return self._hosted

    def end_run(self) -> None:
        """End the run: the next request begins another conversation."""
        hosted, self._hosted = self._hosted, None
        self._heard.clear()
        if hosted is not None:
            hosted.run.close()

    @property
    def has_pages(self) -> bool:
        """True if there is a text that was too long to show at once."""
        return self._hosted is not None and self._hosted.run.progress.texts.any

    def keep_calls(self, calls: Iterable[ToolCall]) -> None:
        """Keep the calls of a reply as the model wrote them."""
        self._heard = {call.id: call for call in calls}

    def original_call(self, ident: str | None, name: str, arguments: Any) -> ToolCall:
        """Return a call as the model wrote it; AutoGen hands on what its lenient parser made of it."""
        return self._heard.get(ident or "") or decode_call(ident, name, arguments)

    def keep_outcome(self, outcome: Outcome) -> Outcome:
        """Keep what became of a call, for the summary."""
        self._ended.put(outcome.call_id, outcome)
        return outcome

    def format_summary(self, call: Any, result: Any) -> str:
        """Return what the user reads of a call if the run ends with it: its plain value, or that it failed.

        Args:
            call: the framework's `FunctionCall`.
            result: its `FunctionExecutionResult`.
        """
        outcome = self._ended.get(call.id)
        if outcome is None:
            return str(result.content)
        if outcome.ok:
            return value_as_text(outcome)
        return f"{outcome.tool} did not succeed: {outcome.stop_reason}."
