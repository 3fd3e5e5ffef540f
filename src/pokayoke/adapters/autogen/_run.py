"""The run of the guard that the model client and the workbench of one AutoGen agent share.

In: the calls of a reply, and the outcomes of calls. Out: the run, the calls as the model wrote them, and summaries.
Never: one run for two conversations.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pokayoke.adapters._host.bounded_cache import BoundedCache
from pokayoke.adapters._host.calls import decode_call
from pokayoke.adapters._host.run import AdapterRun, text_for_user
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.runtime.guard.guard import Guard


class AgentRun:
    """One agent's conversation.

    Args:
        guard: the guard.
        run_id: the user's id of the conversation, if there is one.
        who: session, tenant and principal, as for `Guard.run`.
        on_wire: True if the agent's context holds the tools' own results, which each request frames.

    Attributes:
        tools: names of the tools that the agent has now.
        has_unknown_calls: True while the latest reply calls a tool that the agent does not have.
    """

    def __init__(self, guard: Guard, run_id: str | None, who: dict[str, Any], *, on_wire: bool = False) -> None:
        """Open nothing yet."""
        self.guard, self.on_wire = guard, on_wire
        self.tools: list[str] = []
        self.has_unknown_calls = False
        self._run_id, self._who = run_id, who
        self._adapter_run: AdapterRun | None = None
        self._calls: dict[str, ToolCall] = {}
        self._outcomes: BoundedCache[str, Outcome] = BoundedCache()

    @property
    def adapter_run(self) -> AdapterRun:
        """The run, opened if need be."""
        if self._adapter_run is None:
            self._adapter_run = AdapterRun(self.guard.run(self._run_id, **self._who))
        return self._adapter_run

    @property
    def is_open(self) -> bool:
        """True if the run is open: it then knows all call ids of its history."""
        return self._adapter_run is not None

    def end_run(self) -> None:
        """End the run: the next request begins another conversation."""
        ended, self._adapter_run = self._adapter_run, None
        self._calls.clear()
        if ended is not None:
            ended.run.close()

    @property
    def has_pages(self) -> bool:
        """True if there is a text that was too long to show at once."""
        return self._adapter_run is not None and self._adapter_run.run.progress.texts.any

    def keep_calls(self, calls: Iterable[ToolCall]) -> None:
        """Keep the calls of the latest reply as the model wrote them."""
        self._calls = {call.id: call for call in calls}

    def original_call(self, ident: str | None, name: str, arguments: Any) -> ToolCall:
        """Return a call as the model wrote it; AutoGen's lenient parser may have changed the arguments."""
        return self._calls.get(ident or "") or decode_call(ident, name, arguments)

    def keep_outcome(self, outcome: Outcome) -> Outcome:
        """Keep the outcome of a call for its summary."""
        self._outcomes.put(outcome.call_id, outcome)
        return outcome

    def format_summary(self, call: Any, result: Any) -> str:
        """Return what the user reads of a call if the run ends with it: its plain value, or that it failed.

        Args:
            call: the framework's `FunctionCall`.
            result: its `FunctionExecutionResult`.
        """
        outcome = self._outcomes.get(call.id)
        if outcome is None:
            return str(result.content)
        return text_for_user(self.guard.snapshot, outcome)
