"""CrewAI: the agent's language model and its tools, each wrapped; no global hook is registered.

guard = pokayoke.Guard(contracts(tools, reads=["find_order"]))
llm, tools = guarded(guard, LLM(model="..."), tools)
agent = Agent(role=..., goal=..., backstory=..., llm=llm, tools=tools)
"""

from __future__ import annotations

import copy
import functools
import json
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self

try:
    from crewai import BaseLLM
    from crewai.context import get_current_task_id
    from crewai.execution import get_execution_uuid
    from crewai.hooks.dispatch import HookAborted
    from crewai.llms.base_llm import call_stream_override
    from crewai.tools.tool_failure import ToolExecutionFailedError
except ImportError as error:
    from pokayoke.errors import MissingExtraError

    raise MissingExtraError("crewai", "crewai") from error

from msgspec import structs

from pokayoke.adapters._host.bounded_cache import BoundedCache
from pokayoke.adapters._host.run import AdapterRun, AdapterRuns
from pokayoke.adapters.crewai._model import AgentRun, ModelRequest, PendingCall, has_text_calls, reply_call
from pokayoke.adapters.crewai._tools import UNKNOWN_TOOL_NAME, GuardedTool, contracts, crewai_name, is_unguarded
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.host_input import as_storable_id
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.json.canonical import sha256_hex
from pokayoke.errors import UsageError

if TYPE_CHECKING:
    from pokayoke.runtime.guard.guard import Guard
    from pokayoke.runtime.run.run import Run

__all__ = ["calls", "contracts", "guarded", "message"]

Who = Callable[[Any, Any], Mapping[str, Any]]
_UNCHANGED: AbstractContextManager[None] = nullcontext()


def guarded(
    guard: Guard,
    llm: Any,
    tools: Iterable[Any],
    *,
    run_id: str | Callable[[], str] | None = None,
    who: Who | None = None,
    unguarded: Collection[str] = (),
) -> tuple[Any, list[Any]]:
    """Return a language model and tools for agents: `Agent(llm=llm, tools=tools)`.

    Args:
        guard: the guard; its contracts are those of the tools, see `contracts`.
        llm: the model, of any of CrewAI's classes or of your own; it stays as it is.
        tools: the tools. One more comes back: it answers calls of tools that do not exist, and the model is never
            offered it.
        run_id: your own id of the kickoff, or a function that returns it, so that a restart knows its writes again.
            Each task is a run of its own below it.
        who: called with task and agent (None if there is none); returns `tenant` and `principal` as for `Guard.run`.
        unguarded: names of tools that CrewAI may run as they are. Any other tool of an agent or a task that is not
            one of `guarded` is a `UsageError` when the model is first asked; those of CrewAI's own pass.

    Raises:
        UsageError: it is no model of CrewAI.
    """
    if not isinstance(llm, BaseLLM):
        raise UsageError(f"{type(llm).__name__} is no BaseLLM of CrewAI: hand over LLM(model=...) and not its name")
    shared = _AgentRuns(guard, run_id, who, unguarded)
    made = [GuardedTool.wrap_tool(tool, shared.take_call, shared.tools) for tool in (*tools, None)]
    shared.tools.update({crewai_name(tool.name): tool for tool in made[:-1]})
    return _guarded_copy(llm, shared), list(made)


def calls(reply: Any, run: Run | None = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the tool calls of what `LLM.call` returned, in order; it does not say whether the message was cut."""
    found = map(reply_call, reply if isinstance(reply, list) else ())
    return [ToolCall(one.id or "", one.name, one.arguments) for one in found]


def message(outcome: Outcome) -> dict[str, Any]:
    """Return the message that answers a call."""
    return {"role": "tool", "tool_call_id": outcome.call_id, "name": crewai_name(outcome.tool), "content": outcome.text}


class _AgentRuns:
    """What the model and the tools know of each other."""

    def __init__(
        self, guard: Guard, run_id: str | Callable[[], str] | None, who: Who | None, unguarded: Collection[str]
    ) -> None:
        self._run_id, self._who = run_id, who
        self._unguarded = frozenset(map(crewai_name, unguarded))
        self._runs = AdapterRuns(guard, through=(HookAborted, ToolExecutionFailedError))
        self._records: BoundedCache[str, AgentRun] = BoundedCache()
        self._latest: BoundedCache[str, AgentRun] = BoundedCache()
        self.heard: BoundedCache[str, PendingCall] = BoundedCache()
        self.tools: dict[str, GuardedTool] = {}

    def build_request(self, messages: list[Any], tools: Any, task: Any, agent: Any) -> ModelRequest:
        """Begin a request."""
        for tool in (*(getattr(task, "tools", None) or ()), *(getattr(agent, "tools", None) or ())):
            if is_unguarded(tool) and crewai_name(tool.name) not in self._unguarded:
                raise UsageError(
                    f"the tool {tool.name!r} would run unguarded: hand it to guarded(...) and use what that returns, "
                    f"or name it in guarded(unguarded=...)"
                )
        return ModelRequest(self.run_for_task(task, agent), messages, tools or None, self.heard, self._is_final_call)

    def _is_final_call(self, call: ToolCall) -> bool:
        tool = self.tools.get(crewai_name(call.name))
        return tool is not None and bool(tool.result_as_answer)

    def run_for_task(self, task: Any, agent: Any) -> AgentRun:
        """Return what is known of the run that a request belongs to: one task, however often it is attempted."""
        who = dict(self._who(task, agent)) if self._who is not None else {}
        named = self._run_id() if callable(self._run_id) else self._run_id
        own = str(task.id) if task is not None else ""
        if named is None:
            # Without a kickoff there is nothing that two requests have in common.
            ident, durable = f"{get_execution_uuid() or uuid.uuid4().hex}/{_kickoff_part(task, agent, own)}", False
        else:
            ident, durable = f"{named}/{_task_key(task, agent)}", True
            who.setdefault("session", as_storable_id(named))
        hosted = self._runs.run_for(ident, durable=durable, **who)
        record = self._records.get(ident)
        if record is None:
            record = AgentRun(hosted)
            self._records.put(ident, record)
        record.hosted = hosted  # on behalf of whoever asks now
        hosted.notes["asks"] = (task, agent)
        self._latest.put(own or get_execution_uuid() or "", record)
        return record

    def take_call(self, token: str | None, name: str, arguments: dict[str, Any]) -> tuple[AdapterRun, ToolCall, bool]:
        """Return the call behind what a tool was run with, its run, and whether hooks have seen another one."""
        heard = self.heard.pop(token) if token is not None else None
        if heard is not None:
            if arguments == heard.stand_in:
                return heard.hosted, heard.call, name == UNKNOWN_TOOL_NAME
            # A hook of the user has changed what stood there. A call that was cut stays one.
            return heard.hosted, structs.replace(heard.call, name=crewai_name(name), arguments=arguments), False
        # Run by CrewAI without a token, or by somebody else: then no run is known.
        record = self._latest.get(get_current_task_id() or get_execution_uuid() or "")
        if record is None:
            record = self.run_for_task(None, None)
        call, record.written = record.written, None
        seen = call or ToolCall(uuid.uuid4().hex, crewai_name(name), arguments)
        return record.hosted, seen, call is not None  # in a text: they saw CrewAI's own reading of it


def _kickoff_part(task: Any, agent: Any, own: str) -> str:
    """Which part of a kickoff this is. A coworker's task is made anew by each attempt, so it is what it says."""
    crew = getattr(agent, "crew", None)
    known = getattr(crew, "tasks", None)
    if task is None or not known or any(one is task or one.id == task.id for one in known):
        return own or str(getattr(agent, "id", ""))
    return f"{getattr(crew, 'id', '')}/{agent.id}/{task.key}"


def _task_key(task: Any, agent: Any) -> str:
    """What a task is about, with those of its inputs that it names: ids are made anew in each process."""
    key = getattr(task, "key", None)
    if key is None:
        return str(getattr(agent, "key", ""))
    inputs: dict[str, Any] = getattr(getattr(agent, "crew", None), "_inputs", None) or {}
    said = f"{getattr(task, '_original_description', '')} {getattr(task, '_original_expected_output', '')}"
    used = {name: inputs[name] for name in sorted(inputs) if f"{{{name}}}" in said}
    return f"{key}/{sha256_hex(json.dumps(used, default=str).encode())}" if used else str(key)


class _GuardedLLM:
    """Before a class of CrewAI's models: what goes to the model and what comes back passes the run."""

    _pokayoke: _AgentRuns
    _effective_stream: Callable[[], bool | None]
    _effective_api: Callable[[], str]  # of those models that have several APIs

    def call(self, messages: Any, tools: Any = None, *rest: Any, **more: Any) -> Any:
        """Ask the model once."""
        turn = self._build_guarded_request(messages, tools, more)
        if turn is None:
            return super().call(messages, tools, *rest, **more)  # type: ignore[misc]  # the class this stands before
        with _ReplyEnd() as ending, self._force_whole_reply(turn):
            ending.streams = self._effective_stream()
            reply = super().call(turn.messages, turn.tools, *rest, **more)  # type: ignore[misc]  # as above
        return turn.take_reply(reply, ending.stop_reason, ending.tokens)

    async def acall(self, messages: Any, tools: Any = None, *rest: Any, **more: Any) -> Any:
        """Ask the model once."""
        turn = self._build_guarded_request(messages, tools, more)
        if turn is None:
            return await super().acall(messages, tools, *rest, **more)  # type: ignore[misc]  # as above
        with _ReplyEnd() as ending, self._force_whole_reply(turn):
            ending.streams = self._effective_stream()
            reply = await super().acall(turn.messages, turn.tools, *rest, **more)  # type: ignore[misc]  # as above
        return turn.take_reply(reply, ending.stop_reason, ending.tokens)

    def __copy__(self) -> Any:
        """Stay guarded: CrewAI copies a crew with its models, and some of their classes make themselves anew."""
        twin = super().__copy__()  # type: ignore[misc]  # as above
        return twin if isinstance(twin, _GuardedLLM) else _guarded_copy(twin, self._pokayoke)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Any:
        """Stay guarded, by the same guard."""
        known = {} if memo is None else memo
        known[id(self._pokayoke)] = self._pokayoke
        twin = super().__deepcopy__(known)  # type: ignore[misc]  # as above
        return twin if isinstance(twin, _GuardedLLM) else _guarded_copy(twin, self._pokayoke)

    # The model's own call has the retries for its rate limit already.
    call._crewai_rate_limit_wrapped = True  # type: ignore[attr-defined]  # noqa: SLF001 - its mark for that
    acall._crewai_rate_limit_wrapped = True  # type: ignore[attr-defined]  # noqa: SLF001 - as above

    def _force_whole_reply(self, turn: ModelRequest) -> AbstractContextManager[None]:
        """Ask for a whole reply where CrewAI loses the calls of a stream: at the Responses API."""
        kind: Any = type(self)
        if turn.tools and _has_apis(kind) and self._effective_api() == "responses":
            whole: AbstractContextManager[None] = call_stream_override(self, False)
            return whole
        return _UNCHANGED

    def _build_guarded_request(self, messages: Any, tools: Any, more: Mapping[str, Any]) -> ModelRequest | None:
        """Return what becomes of a request; None for one that is no part of an agent's loop, such as a summary."""
        task, agent = more.get("from_task"), more.get("from_agent")
        if not isinstance(messages, list) or more.get("available_functions"):
            return None
        if not tools and (agent is None or not has_text_calls(messages)):
            return None
        return self._pokayoke.build_request(messages, tools, task, agent)

    def _emit_call_completed_event(self, *args: Any, **more: Any) -> None:
        """Take why the message ended, which `call` does not return, from what the model's class tells others."""
        if (ending := _reply_end_var.get()) is not None:
            told = more.get("finish_reason", ...)
            # Who hands on what a stream says of its end has heard nothing of one that broke off.
            ending.take_event("incomplete" if told is None and ending.streams else told, more.get("usage"))
        super()._emit_call_completed_event(*args, **more)  # type: ignore[misc]  # as above

    def _extract_finish_reason_and_response_id(self, reply: Any) -> tuple[Any, Any]:
        """Take it where the class of the LiteLLM route reads it: of a reply with calls it sends no event."""
        found: tuple[Any, Any] = super()._extract_finish_reason_and_response_id(reply)  # type: ignore[misc]  # as above
        if (ending := _reply_end_var.get()) is not None:
            ending.take_event(found[0], None)
        return found


class _ReplyEnd:
    """How a reply ended and what it cost, as far as its class tells."""

    def __init__(self) -> None:
        self.stop_reason: Any = None
        self.tokens: int | None = None
        self.streams: bool | None = False

    def take_event(self, stop_reason: Any, usage: Any) -> None:
        # A cut once said stays said.
        if stop_reason not in (None, ...) and not is_cut(self.stop_reason):
            self.stop_reason = stop_reason
        if isinstance(usage, dict) and isinstance(total := usage.get("total_tokens"), int):
            self.tokens = total

    def __enter__(self) -> Self:
        self._token = _reply_end_var.set(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _reply_end_var.reset(self._token)


_reply_end_var: ContextVar[_ReplyEnd | None] = ContextVar("pokayoke_crewai_ending", default=None)


def _guarded_copy(llm: Any, shared: _AgentRuns) -> Any:
    """Return a copy of a model whose calls are guarded; client, settings and counters are those of the model."""
    twin = copy.copy(llm)
    kind: Any = type(llm)
    object.__setattr__(twin, "__class__", _guarded_class(kind))
    object.__setattr__(twin, "_pokayoke", shared)
    return twin


@functools.cache
def _has_apis(kind: Any) -> bool:
    """True if models of a class have several APIs: pydantic looks long for an attribute that is not there."""
    return hasattr(kind, "_effective_api")


@functools.cache
def _guarded_class(kind: Any) -> Any:
    return type(kind)(f"Guarded{kind.__name__}", (_GuardedLLM, kind), {"__module__": __name__})
