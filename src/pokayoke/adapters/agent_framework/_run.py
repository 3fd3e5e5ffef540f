"""Where the two middlewares of Microsoft Agent Framework find the run that a request or a call belongs to.

In: the framework's contexts. Out: the run, and the call as the model wrote it. Never: a call that counts for the run
of another session.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import orjson
from agent_framework import ChatContext, FunctionInvocationContext, _tools
from pydantic_core import PydanticSerializationError, to_jsonable_python

from pokayoke.adapters._host.bounded_cache import BoundedCache
from pokayoke.adapters._host.calls import decode_call, encode_unreadable_call, is_encoded_call, parse_object
from pokayoke.adapters._host.model import texts_since_reply
from pokayoke.adapters._host.run import AdapterRun, AdapterRuns, PendingCall
from pokayoke.adapters._host.visibility import OfferedTools
from pokayoke.core.call import ToolCall
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.runtime.guard.guard import Guard

Who = Callable[[Any], Mapping[str, Any]]
_CALL_KEY = "pokayoke_taken"
# All calls that wait at the same time must fit in: a call that was dropped would get a run of its own.
_MAX_OPEN = 10_000
# How the framework itself sees that arguments were changed since it read them; public nowhere.
_PREPARED = "_prepared_function_arguments"
_token_of = getattr(_tools, "_argument_comparison_token", None)


class AgentRun:
    """One request of the framework's user, and all model requests that it takes.

    Args:
        adapter_run: the run.
        tools: the framework's own list of tools that can be called; it reads the list again for each reply.
        ident: id of a run that ends with this request; None if its session goes on.
        user_texts: what the user says in it; each text begins a turn.

    Attributes:
        offered: the tools as the model sees them; None before the first request.
    """

    __slots__ = ("adapter_run", "ident", "offered", "tools", "user_texts")

    def __init__(self, adapter_run: AdapterRun, tools: list[Any], ident: str | None, user_texts: Iterable[str]) -> None:
        """Look at no tool yet."""
        self.adapter_run, self.tools, self.ident = adapter_run, tools, ident
        self.user_texts = list(user_texts)
        self.offered: OfferedTools | None = None


class AgentRuns:
    """The runs of one agent, shared by both middlewares.

    Args:
        guard: the guard.
        who: as for `middleware`.
        approver: as for `middleware`.
        on_wire: True if the framework's messages hold the tools' own results, which each request frames.
    """

    def __init__(self, guard: Guard, who: Who | None, approver: str, *, on_wire: bool) -> None:
        """Begin with none."""
        self.guard, self.approver, self.on_wire = guard, approver, on_wire
        self._who = who
        self._runs = AdapterRuns(guard)
        self._agent_runs: BoundedCache[int, AgentRun] = BoundedCache(_MAX_OPEN)
        self._calls: BoundedCache[str, PendingCall] = BoundedCache(_MAX_OPEN)
        self.keep_call = self._calls.put
        """Keep what the model wrote until the framework runs it: it validates and drops before any hook."""

    def run_for_session(self, session: Any, ident: str | None = None) -> AdapterRun:
        """Return the run of a session, or one that is not found again."""
        who = dict(self._who(session)) if self._who is not None else {}
        if session is None:
            return self._runs.run_for(ident or uuid.uuid4().hex, durable=False, **who)
        adapter_run = self._runs.run_for(session.session_id, **who)
        adapter_run.run.can_ask = True  # a session is what the framework takes answers in
        return adapter_run

    def agent_run_for(self, context: ChatContext) -> AgentRun | None:
        """Return what a model request belongs to; None if it has no tools, so that no call can run."""
        tools = (context.options or {}).get("tools")
        if not isinstance(tools, list):
            return None
        # The list is new for each request of the user and is held here, so no other list has its id.
        found = self._agent_runs.get(id(tools))
        if found is None:
            ident = uuid.uuid4().hex if context.session is None else None
            said = ((_role(one), one.text) for one in reversed(list(context.messages)))
            found = AgentRun(self.run_for_session(context.session, ident), tools, ident, texts_since_reply(said))
            self._agent_runs.put(id(tools), found)
        return found

    def end_agent_run(self, agent_run: AgentRun) -> None:
        """Forget one that has its last answer."""
        self._agent_runs.pop(id(agent_run.tools))
        if agent_run.ident is not None:
            self._runs.close_run(agent_run.ident)
        self.guard.trace.flush()

    def take_call(self, context: FunctionInvocationContext) -> tuple[AdapterRun, ToolCall]:
        """Return the call of an invocation, and its run."""
        known = context.metadata
        found = known.get(_CALL_KEY) or self._calls.pop(known.get("function_call_occurrence_id", ""))
        if found is not None:
            known[_CALL_KEY] = found  # middleware in front of the guard may come again with the same invocation
            return found.adapter_run, _with_changed_arguments(found, context)
        # An approved call of an earlier process: only the framework's history of it is left.
        approval = known.get("approval_response")
        arguments = context.arguments if approval is None else call_arguments(approval.function_call)
        call = decode_call(known.get("call_id"), context.function.name, arguments)
        return self.run_for_session(context.session), call


def _role(one: Any) -> str | None:
    if one.role == "user":
        return "user" if one.text else None
    return "reply" if one.role in ("assistant", "tool") else None


def is_local_call(content: Any) -> bool:
    """Return whether the framework would run a call, not the provider."""
    return content.type == "function_call" and not content.informational_only and not content.hosted


def call_arguments(content: Any) -> str | dict[str, Any]:
    """Return the arguments of a call as they came."""
    arguments = content.arguments
    return dict(arguments) if arguments is not None and not isinstance(arguments, str) else arguments or ""


def readable_arguments(call: ToolCall) -> tuple[Any, Any]:
    """Return arguments for the history, which are the model's own text if it is sound, and their value."""
    parsed = None if is_cut(call.stop_reason) else parse_object(call.arguments)
    # Arguments that look like a wrapper are wrapped themselves.
    if parsed is not None and not is_encoded_call(parsed):
        return call.arguments, parsed
    return encode_unreadable_call(call), None


def _with_changed_arguments(pending: PendingCall, context: FunctionInvocationContext) -> ToolCall:
    """Return the call with the arguments that middleware in front of the guard has changed.

    The framework's own reading of the arguments is no change: it drops what it does not know, and changes types.
    """
    call, arguments, prepared = pending.call, context.arguments, context.metadata.get(_PREPARED)
    if pending.arguments is not None and _equal_json(arguments, pending.arguments):
        return call
    if prepared is not None:
        changed = _token_of is not None and _token_of(arguments) != prepared.token
    else:  # the framework could not take them, and shows middleware what they parse to
        shown, parsed = readable_arguments(call)
        changed = arguments != (shown if parsed is None else parsed)
    if not changed:
        return call
    with contextlib.suppress(PydanticSerializationError):  # what is no JSON is the guard's to refuse
        arguments = to_jsonable_python(arguments)
    return msgspec.structs.replace(call, arguments=arguments)


def _equal_json(arguments: Any, said: Any) -> bool:
    """Return whether two are the same JSON; 1, 1.0 and true are not."""
    try:
        return orjson.dumps(arguments) == orjson.dumps(said) and bool(arguments == said)
    except TypeError:  # what orjson does not know
        return False
