"""Where the model and the tools of one run of the OpenAI Agents SDK find their run of the guard.

In: the SDK's id of a run, and who runs it. Out: the run of the guard, for everything that the SDK starts in it.
Never: a guarded model or tool that acts without a run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from msgspec import structs

from pokayoke.adapters._host.calls import UNKNOWN_TOOL_NAME, decode_call
from pokayoke.adapters._host.run import AdapterRun, AdapterRuns
from pokayoke.adapters._host.visibility import OfferedTools
from pokayoke.adapters.openai_agents._handoffs import GuardedHandoff
from pokayoke.core.call import ToolCall
from pokayoke.errors import UsageError

_ENCODED_PREFIX = f'{{"{UNKNOWN_TOOL_NAME}"'
"""How the arguments of a call begin whose text the SDK could not have read."""
CUT = "incomplete"
"""The status of an item whose message was cut: as the Responses API has it, and no model reads it."""


class AgentRun:
    """One run of the SDK.

    Args:
        runs: the runs of the guard.
        ident: the framework's id of the run.
        durable: True if a restart would know that id again.
        who: session, tenant and principal, as for `Guard.run`.
        user_texts: what the user says in it; each text begins a turn.
        on_wire: True if the items of its history hold the tools' own results, which each request frames.

    Attributes:
        offered: the tools that the agent has now; None before its first request.
        handoffs: the handoffs that the agent has now, by the names of their tools.
        has_renamed_calls: True if the history may hold a call of `UNKNOWN_TOOL_NAME`.
        cut_calls: ids of calls whose message was cut, and whose arguments parse all the same.
    """

    __slots__ = (
        "_adapter_run", "_user_texts", "cut_calls", "durable", "handoffs", "has_renamed_calls", "ident", "offered",
        "on_wire", "runs", "who",
    )  # fmt: skip

    def __init__(
        self,
        runs: AdapterRuns,
        ident: str,
        *,
        durable: bool,
        who: dict[str, Any],
        user_texts: Iterable[str] = (),
        on_wire: bool = False,
    ) -> None:
        """Open nothing yet."""
        self.runs, self.ident, self.durable, self.who, self.on_wire = runs, ident, durable, who, on_wire
        self.offered: OfferedTools | None = None
        self.handoffs: dict[str, GuardedHandoff] = {}
        self.has_renamed_calls = True
        self.cut_calls: set[str] = set()
        self._user_texts = list(user_texts)
        self._adapter_run: AdapterRun | None = None

    @property
    def adapter_run(self) -> AdapterRun:
        """The run, opened if need be."""
        known = self._adapter_run
        if known is None or not self.runs.has_run(known, self.ident):
            known = self._adapter_run = self.runs.run_for(self.ident, durable=self.durable, **self.who)
            known.run.can_ask = True  # a question interrupts the SDK's run
        return known

    def take_user_texts(self) -> list[str]:
        """Return what the user has said, to the first request only."""
        texts, self._user_texts = self._user_texts, []
        return texts

    def nested_run(self, call_id: str) -> AgentRun:
        """Return the run of an agent that a tool call starts; a resumed call finds the same run again."""
        ident = f"{self.ident}/{call_id}"
        return AgentRun(self.runs, ident, durable=self.durable, who=self.who, on_wire=self.on_wire)


agent_run_var: ContextVar[AgentRun | None] = ContextVar("pokayoke_openai_agents_run", default=None)
"""The run that code is part of; every task the SDK starts for a run inherits it."""


def current_agent_run() -> AgentRun:
    """Return the run this code is part of.

    Raises:
        UsageError: a guarded agent was not started by its runner.
    """
    agent_run = agent_run_var.get()
    if agent_run is None:
        raise UsageError("a guarded agent is started by GuardedRunner.run, run_sync or run_streamed, not by Runner")
    return agent_run


def original_call(ident: str, name: str, given: str | dict[str, Any], item: Any = None) -> ToolCall:
    """Return the call as the model wrote it.

    Args:
        ident: its id.
        name: the tool's name in the SDK's item.
        given: the arguments in that item, as text or parsed.
        item: the item, if there is one: its status outlives the process that knew that a message was cut.
    """
    if isinstance(given, str) and not given.startswith(_ENCODED_PREFIX):
        call = ToolCall(ident, name, given)
    else:
        call = decode_call(ident, name, json.loads(given) if isinstance(given, str) else given)
    agent_run = agent_run_var.get()
    if getattr(item, "status", None) == CUT or (agent_run is not None and ident in agent_run.cut_calls):
        call = structs.replace(call, stop_reason="length")
    return call
