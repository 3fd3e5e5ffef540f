"""Where the parts of one run of the OpenAI Agents SDK find their run of the guard, and a call as it was written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextvars import ContextVar
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from pokayoke.adapters._host.calls import decode_call
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.core.call import ToolCall
from pokayoke.errors import UsageError

if TYPE_CHECKING:
    from pokayoke.adapters._host.run import AdapterRuns

__all__ = ["ENCODED_PREFIX", "UNKNOWN_TOOL_NAME", "AgentRun", "agent_run_var", "current_agent_run", "original_call"]

UNKNOWN_TOOL_NAME = "unread_tool_call"
"""The tool that answers calls of tools an agent does not have. No model is ever offered it: the runner gets it
for the turn in which it is needed, in the very list of tools that it reads the reply with."""
_CALL_ID = methodcaller("get", "call_id")
ENCODED_PREFIX = f'{{"{UNKNOWN_TOOL_NAME}"'
"""How the arguments of a call begin whose text the SDK could not have read."""


class AgentRun:
    """Where the model and the tools of one framework run find their run of the guard.

    Args:
        runs: the runs of the guard.
        ident: the framework's id of the run.
        durable: True if a restart would know that id again.
        who: session, tenant and principal, as for `Guard.run`.
        said: what the user says in it; begins a turn.

    Attributes:
        listed: what is known of the tools that the agent has now; None before its first request.
        handoffs: those that it has now, by the names of their tools.
        sank: True if the history may hold a call that was led to `UNKNOWN_TOOL_NAME`.
    """

    __slots__ = ("_hosted", "_said", "durable", "handoffs", "ident", "listed", "runs", "sank", "who")

    def __init__(
        self, runs: AdapterRuns, ident: str, *, durable: bool, who: dict[str, Any], said: Iterable[str] = ()
    ) -> None:
        """Open nothing yet."""
        self.runs, self.ident, self.durable, self.who = runs, ident, durable, who
        self.listed: Any = None
        self.handoffs: dict[str, Any] = {}
        self.sank = True
        self._said = list(said)
        self._hosted: AdapterRun | None = None

    @property
    def adapter_run(self) -> AdapterRun:
        """The run, opened if need be."""
        hosted = self._hosted
        if hosted is None or not self.runs.has_run(hosted, self.ident):
            hosted = self._hosted = self.runs.run_for(self.ident, durable=self.durable, **self.who)
        return hosted

    def run_for_request(self, history: list[Any]) -> AdapterRun:
        """Return the run for a request with that history, told of what the user said first."""
        # Ids of calls that are in the history already, from before a restart, must not be given again.
        hosted = self.adapter_run
        hosted.reserve_ids(filter(None, map(_CALL_ID, history)))
        said, self._said = self._said, []
        for text in said:
            hosted.run.user(text)
        return hosted

    def nested_run(self, call_id: str) -> AgentRun:
        """Return the slot of an agent that a tool call runs: a run of its own, found again if the call is resumed."""
        return AgentRun(self.runs, f"{self.ident}/{call_id}", durable=self.durable, who=self.who)


agent_run_var: ContextVar[AgentRun | None] = ContextVar("pokayoke_openai_agents_run", default=None)
"""The run that code is part of; every task the SDK starts for a run inherits it."""


def current_agent_run() -> AgentRun:
    """Return the run this code is part of.

    Raises:
        UsageError: a guarded agent was started by something else than its runner.
    """
    slot = agent_run_var.get()
    if slot is None:
        raise UsageError("a guarded agent is started by GuardedRunner.run, run_sync or run_streamed, not by Runner")
    return slot


def original_call(ident: str, name: str, text: str) -> ToolCall:
    """Return the call as the model wrote it, from what stands in the SDK's item."""
    if text.startswith(ENCODED_PREFIX):
        return decode_call(ident, name, json.loads(text))
    return ToolCall(ident, name, text)
