"""Where CrewAI's models and tools find their run, and the call that a tool is run for.

In: CrewAI's tasks, agents and kickoffs. Out: one run per task, however often CrewAI attempts it. Never: a call that
runs as part of another run than the one whose model wrote it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from crewai.context import get_current_task_id
from crewai.execution import get_execution_uuid
from crewai.hooks.dispatch import HookAborted
from crewai.tools.tool_failure import ToolExecutionFailedError
from msgspec import structs

from pokayoke.adapters._host.bounded_cache import BoundedCache
from pokayoke.adapters._host.run import AdapterRun, AdapterRuns, PendingCall
from pokayoke.adapters._host.visibility import OfferedTools
from pokayoke.adapters.crewai._contracts import crewai_name
from pokayoke.core.call import ToolCall
from pokayoke.core.host_input import as_storable_id
from pokayoke.core.json.canonical import sha256_hex
from pokayoke.runtime.guard.guard import Guard

TOKEN = "pokayoke_call"  # noqa: S105 - a name of an argument, no secret
"""The argument that says which call a tool is run for."""
UNKNOWN_TOOL_NAME = "pokayoke_no_such_tool"
"""Name of the tool that answers calls of tools that do not exist."""

Who = Callable[[Any, Any], Mapping[str, Any]]


class TakenCall(NamedTuple):
    """The call that a tool is run for, and whether the user's hooks have judged another reading of it."""

    adapter_run: AdapterRun
    call: ToolCall
    needs_hooks: bool


class AgentRun:
    """One task of a kickoff.

    Attributes:
        adapter_run: the run.
        is_answered: True if the model's latest reply was an answer: the next request begins a turn.
        text_call: the call in the text of the latest reply, for models without tool calls of their own.
        restored: what the history gets back, by token.
        offered: the tools of the latest request.
    """

    def __init__(self, adapter_run: AdapterRun) -> None:
        """Begin before the first request."""
        self.adapter_run = adapter_run
        self.is_answered = True
        self.text_call: ToolCall | None = None
        self.restored: BoundedCache[str, dict[str, Any]] = BoundedCache()
        self.offered: OfferedTools | None = None


class AgentRuns:
    """The runs that one guarded model and its tools share.

    The arguments are those of `guarded`.

    Attributes:
        pending: calls that wait for their tools, by token.
        tools: the guarded tools, by the names of their contracts.
        unguarded: names of tools that CrewAI may run as they are.
    """

    def __init__(
        self, guard: Guard, run_id: str | Callable[[], str] | None, who: Who | None, unguarded: Collection[str]
    ) -> None:
        """Begin with no run."""
        self._run_id, self._who = run_id, who
        self.unguarded = frozenset(map(crewai_name, unguarded))
        self._runs = AdapterRuns(guard, through=(HookAborted, ToolExecutionFailedError))
        self._records: BoundedCache[str, AgentRun] = BoundedCache()
        self._latest: BoundedCache[str, AgentRun] = BoundedCache()
        self.pending: BoundedCache[str, PendingCall] = BoundedCache()
        self.tools: dict[str, Any] = {}

    def run_for_task(self, task: Any, agent: Any) -> AgentRun:
        """Return the run of a task, for the caller of now; both arguments may be None."""
        who = dict(self._who(task, agent)) if self._who is not None else {}
        named = self._run_id() if callable(self._run_id) else self._run_id
        own = str(task.id) if task is not None else ""
        if named is None:
            # Without a kickoff, two requests have nothing in common.
            ident, durable = f"{get_execution_uuid() or uuid.uuid4().hex}/{_kickoff_part(task, agent, own)}", False
        else:
            ident, durable = f"{named}/{_task_key(task, agent)}", True
            who.setdefault("session", as_storable_id(named))
        adapter_run = self._runs.run_for(ident, durable=durable, **who)
        record = self._records.get(ident)
        if record is None:
            record = AgentRun(adapter_run)
            self._records.put(ident, record)
        record.adapter_run = adapter_run  # it may act for another caller than before
        adapter_run.notes["asks"] = (task, agent)
        self._latest.put(own or get_execution_uuid() or "", record)
        return record

    def take_call(self, token: str | None, name: str, arguments: dict[str, Any]) -> TakenCall:
        """Return the call that a tool is run for.

        Args:
            token: the tool's `TOKEN` argument, if it has one.
            name: the tool's name.
            arguments: its other arguments.
        """
        pending = self.pending.pop(token) if token is not None else None
        if pending is not None:
            if arguments == pending.arguments:
                return TakenCall(pending.adapter_run, pending.call, name == UNKNOWN_TOOL_NAME)
            # A hook of the user has changed the arguments. A call of a cut message stays one.
            changed = structs.replace(pending.call, name=crewai_name(name), arguments=arguments)
            return TakenCall(pending.adapter_run, changed, needs_hooks=False)
        # Without a token the run is the latest of this task, or a new one.
        record = self._latest.get(get_current_task_id() or get_execution_uuid() or "")
        if record is None:
            record = self.run_for_task(None, None)
        call, record.text_call = record.text_call, None
        given = call or ToolCall(uuid.uuid4().hex, crewai_name(name), arguments)
        return TakenCall(record.adapter_run, given, call is not None)  # of a text, hooks have judged CrewAI's reading


def _kickoff_part(task: Any, agent: Any, own: str) -> str:
    """Return which part of a kickoff a task is.

    A task of the crew is known by its id. CrewAI makes the task of a coworker anew for each attempt, so that task is
    known by its text.
    """
    crew = getattr(agent, "crew", None)
    known = getattr(crew, "tasks", None)
    if task is None or not known or any(one is task or one.id == task.id for one in known):
        return own or str(getattr(agent, "id", ""))
    return f"{getattr(crew, 'id', '')}/{agent.id}/{task.key}"


def _task_key(task: Any, agent: Any) -> str:
    """Return what a task is about, with the inputs that it names: each process makes new ids."""
    key = getattr(task, "key", None)
    if key is None:
        return str(getattr(agent, "key", ""))
    inputs: dict[str, Any] = getattr(getattr(agent, "crew", None), "_inputs", None) or {}
    text = f"{getattr(task, '_original_description', '')} {getattr(task, '_original_expected_output', '')}"
    used = {name: inputs[name] for name in sorted(inputs) if f"{{{name}}}" in text}
    return f"{key}/{sha256_hex(json.dumps(used, default=str).encode())}" if used else str(key)
