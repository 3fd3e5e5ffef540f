"""Microsoft Agent Framework: two middlewares, one around each model request and one around each tool.

guard = pokayoke.Guard(contracts(tools, reads=["find_order"]))
agent = Agent(client, tools=tools, middleware=middleware(guard))
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

try:
    from agent_framework import (
        ChatContext,
        ChatMiddleware,
        Content,
        FunctionInvocationContext,
        FunctionMiddleware,
        Message,
    )
except ImportError as error:
    from pokayoke.errors import MissingExtraError

    raise MissingExtraError("agent-framework-core", "agent-framework") from error

from pokayoke.adapters._host.bounded_cache import BoundedCache
from pokayoke.adapters._host.calls import decode_call
from pokayoke.adapters._host.run import AdapterRun, AdapterRuns
from pokayoke.adapters.agent_framework._model import (
    ModelLoop,
    ModelRequest,
    PendingCall,
    call_arguments,
    is_local_call,
    reply_contents,
    user_texts,
    with_changed_arguments,
)
from pokayoke.adapters.agent_framework._tools import Placeholder, ToolInvocation, contracts, framework_result
from pokayoke.core.call import Finding, Outcome, ToolCall
from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.errors import StoreError

if TYPE_CHECKING:
    from pokayoke.runtime.guard.guard import Guard
    from pokayoke.runtime.run.run import Run

__all__ = ["calls", "contracts", "message", "middleware"]

_APPROVAL = "pokayoke_approval"
_CALL_KEY = "pokayoke_taken"
# Whatever waits at the same time must fit in: a call that was forgotten would belong to a run of its own.
_MAX_OPEN = 10_000

CallNext = Callable[[], Awaitable[None]]
Who = Callable[[Any], Mapping[str, Any]]


def middleware(guard: Guard, *, who: Who | None = None, approver: str = "agent_framework") -> list[Any]:
    """Return what to install: `Agent(..., middleware=middleware(guard))`, before other middleware.

    What stands in front of it may change arguments, and the guard judges those. What stands behind it is not judged.

    Args:
        guard: the guard; its contracts are those of the agent's tools, see `contracts`.
        who: called with the agent's session (None if there is none); returns `tenant` and `principal` as for
            `Guard.run_for_session`.
        approver: in whose name an approval response of the framework answers a question of the guard.
    """
    shared = _AgentRuns(guard, who, approver)
    return [_ModelMiddleware(shared), _ToolMiddleware(shared)]


def calls(reply: Any, run: Run | None = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the tool calls of a chat or agent response, in order, argument texts as they came."""
    proof = getattr(reply, "finish_reason", None)
    found = (one for one in reply_contents(reply) if is_local_call(one))
    return [ToolCall(one.call_id or "", one.name or "", call_arguments(one), proof) for one in found]


def message(outcome: Outcome) -> Any:
    """Return the message that answers a call."""
    answer = Content.from_function_result(outcome.call_id, result=framework_result(outcome))
    return Message("tool", [answer])


class _AgentRuns:
    """What both middlewares know."""

    def __init__(self, guard: Guard, who: Who | None, approver: str) -> None:
        self.guard, self.approver = guard, approver
        self._who = who
        self._runs = AdapterRuns(guard)
        self._loops: BoundedCache[int, ModelLoop] = BoundedCache(_MAX_OPEN)
        self._heard: BoundedCache[str, PendingCall] = BoundedCache(_MAX_OPEN)
        self.keep = self._heard.put
        """Remember what the model wrote until the framework runs it: it validates and drops before any hook."""

    def run_for_session(self, session: Any, ident: str | None = None) -> AdapterRun:
        """Return the run of a session, or one that nobody will know again."""
        who = dict(self._who(session)) if self._who is not None else {}
        if session is None:
            return self._runs.run_for(ident or uuid.uuid4().hex, durable=False, **who)
        return self._runs.run_for(session.session_id, **who)

    def loop_for_request(self, context: ChatContext) -> ModelLoop | None:
        """Return the loop a model request belongs to; None if it has no tools, so that no call can run."""
        tools = (context.options or {}).get("tools")
        if not isinstance(tools, list):
            return None
        # The list is made anew for each loop and held here, so no other one can have its id.
        found = self._loops.get(id(tools))
        if found is None:
            ident = uuid.uuid4().hex if context.session is None else None
            found = ModelLoop(self.run_for_session(context.session, ident), tools, ident)
            self._begin_loop(found, context.messages)
        return found

    def _begin_loop(self, loop: ModelLoop, messages: Iterable[Any]) -> None:
        for text in user_texts(messages):
            loop.hosted.run.user(text)
        self._loops.put(id(loop.tools), loop)

    def end_loop(self, loop: ModelLoop) -> None:
        """Forget a loop that has its last answer."""
        self._loops.pop(id(loop.tools))
        if loop.ident is not None:
            self._runs.close_run(loop.ident)
        self.guard.trace.flush()

    def take_call(self, context: FunctionInvocationContext) -> tuple[AdapterRun, ToolCall]:
        """Return the call behind an invocation, and its run."""
        known = context.metadata
        found = known.get(_CALL_KEY) or self._heard.pop(known.get("function_call_occurrence_id", ""))
        if found is not None:
            known[_CALL_KEY] = found  # middleware in front of the guard may come again with the same invocation
            hosted, call, said = found
            return hosted, with_changed_arguments(call, said, context)
        # A call of an earlier process, which somebody approved: all that is left is the framework's history.
        approval = context.metadata.get("approval_response")
        arguments = context.arguments if approval is None else call_arguments(approval.function_call)
        call = decode_call(context.metadata.get("call_id"), context.function.name, arguments)
        return self.run_for_session(context.session), call

    def answer_approval(self, approval: str, *, approved: bool) -> None:
        """Pass an answer of the framework's user on to the guard."""
        # One that was answered elsewhere keeps that answer; the call then finds it.
        with contextlib.suppress(StoreError):
            self.guard.approvals.answer(approval, approved=approved, by=self.approver, reason="asked by the framework")

    def record_denial(self, approval: str, asked: Any, session: Any) -> None:
        """Let the run know what was not done, as far as a person has denied it."""
        with contextlib.suppress(StoreError):
            if self.guard.approvals.get(approval).status == "denied":
                call = decode_call(asked.call_id, asked.name, call_arguments(asked))
                # Nothing runs, so it takes no turn: to wait for one here would stop the event loop.
                self.run_for_session(session).run.call(call, invoke=_call_denied)

    async def answer_approval_async(self, approval: str, *, approved: bool) -> None:
        """`answer_approval` without blocking the event loop."""
        if self.guard.store.durable:
            await asyncio.to_thread(self.answer_approval, approval, approved=approved)
        else:
            self.answer_approval(approval, approved=approved)


class _ModelMiddleware(ChatMiddleware):
    """Around each request to the model."""

    def __init__(self, shared: _AgentRuns) -> None:
        self._shared = shared

    async def process(self, context: ChatContext, call_next: CallNext) -> None:
        """Shape the request, and take the calls of the reply before the framework reads them."""
        loop = self._shared.loop_for_request(context)
        if loop is None:
            await call_next()
            return
        reply = ModelRequest(loop, context.options or {}, self._shared.keep, self._shared.end_loop)
        context.options = reply.shape_request()
        await call_next()
        if context.result is not None and context.stream:
            context.result = reply.wrap_stream(context.result)
        elif context.result is not None:
            reply.take_reply(context.result, context.result.finish_reason)


class _ToolMiddleware(FunctionMiddleware):
    """Around each tool."""

    def __init__(self, shared: _AgentRuns) -> None:
        self._shared = shared

    async def process(self, context: FunctionInvocationContext, call_next: CallNext) -> None:
        """Take one call to its outcome."""
        hosted, call = self._shared.take_call(context)
        tool = ToolInvocation(context, call_next, lambda: _is_read(hosted.run, call))
        invoke = _choose_invoke(hosted.run, call, tool)
        outcome = await hosted.acall(call, invoke)
        if outcome.approval is not None and _is_approved(context, outcome.approval):
            await self._shared.answer_approval_async(outcome.approval, approved=True)
            outcome = await hosted.acall(call, invoke)
        context.result = framework_result(outcome, tool.media) if tool.instead is None else tool.instead
        if outcome.status == "pending" and outcome.approval is not None and context.session is not None:
            context.result = self._approval_request(context, hosted.run, call, outcome.approval)
        if tool.raised is not None:
            raise tool.raised

    def _approval_request(self, context: FunctionInvocationContext, run: Run, call: ToolCall, approval: str) -> Any:
        """Return the framework's own question; it shows the arguments as the tool would get them."""
        effective = run.check(call).arguments
        ident = context.metadata.get("function_call_occurrence_id") or call.id
        shown = Content.from_function_call(call.id, context.function.name, arguments=effective, id=ident)
        return Content.from_function_approval_request(ident, shown, additional_properties={_APPROVAL: approval})

    def _on_approval_responses(self, responses: Iterable[Any], *, session: Any) -> None:
        """Take refusals: the framework answers them by itself, and tells middleware that has this method."""
        for response in responses:
            asked = response.additional_properties.get(_APPROVAL)
            if not isinstance(asked, str):
                continue
            self._shared.answer_approval(asked, approved=False)
            self._shared.record_denial(asked, response.function_call, session)


def _call_denied(_arguments: dict[str, Any]) -> Any:
    raise ToolNotStarted("a person has denied it")


def _is_approved(context: FunctionInvocationContext, approval: str) -> bool:
    """True if a person answered this very question: siblings of another one come back approved, too, unseen."""
    response = context.metadata.get("approval_response")
    if response is None or response.approved is not True:
        return False
    return bool(response.additional_properties.get(_APPROVAL) == approval)


def _is_read(run: Run, call: ToolCall) -> bool:
    plan = run.snapshot.find_plan(call.name)
    return not isinstance(plan, Finding) and plan.contract.effect == "read"


def _choose_invoke(run: Run, call: ToolCall, tool: ToolInvocation) -> Any:
    """Return how a call runs: through the framework, or by the guard's own handler."""
    if type(tool.function) is not Placeholder:  # the framework's classes are abstract: isinstance is slow
        return tool
    plan = run.snapshot.find_plan(call.name)
    own = not isinstance(plan, Finding) and (plan.contract.handler is not None or plan.contract is run.guard.pager)
    return None if own else tool.tool_missing
