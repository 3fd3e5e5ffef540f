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

from pokayoke.adapters._host import run as host
from pokayoke.adapters._host.bounded_cache import Known
from pokayoke.adapters.agent_framework._model import (
    Heard,
    Loop,
    Reply,
    as_it_comes,
    contents_of,
    given,
    ours,
    said_by_user,
)
from pokayoke.adapters.agent_framework._tools import Invocation, Placeholder, contracts, result_of
from pokayoke.core.call import Finding, Outcome, ToolCall
from pokayoke.core.flow.steps import NotBegun
from pokayoke.errors import StoreError

if TYPE_CHECKING:
    from pokayoke.runtime.guard.guard import Guard
    from pokayoke.runtime.run.run import Run

__all__ = ["calls", "contracts", "message", "middleware"]

_APPROVAL = "pokayoke_approval"
_TAKEN = "pokayoke_taken"
# Whatever waits at the same time must fit in: a call that was forgotten would belong to a run of its own.
_AT_ONCE = 10_000

CallNext = Callable[[], Awaitable[None]]
Who = Callable[[Any], Mapping[str, Any]]


def middleware(guard: Guard, *, who: Who | None = None, approver: str = "agent_framework") -> list[Any]:
    """Return what to install: `Agent(..., middleware=middleware(guard))`, before other middleware.

    What stands in front of it may change arguments, and the guard judges those. What stands behind it is not judged.

    Args:
        guard: the guard; its contracts are those of the agent's tools, see `contracts`.
        who: called with the agent's session (None if there is none); returns `tenant` and `principal` as for
            `Guard.run`.
        approver: in whose name an approval response of the framework answers a question of the guard.
    """
    shared = _Shared(guard, who, approver)
    return [_Chat(shared), _Functions(shared)]


def calls(reply: Any, run: Run | None = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the tool calls of a chat or agent response, in order, argument texts as they came."""
    proof = getattr(reply, "finish_reason", None)
    found = (one for one in contents_of(reply) if ours(one))
    return [ToolCall(one.call_id or "", one.name or "", given(one), proof) for one in found]


def message(outcome: Outcome) -> Any:
    """Return the message that answers a call."""
    answer = Content.from_function_result(outcome.call_id, result=result_of(outcome))
    return Message("tool", [answer])


class _Shared:
    """What both middlewares know."""

    def __init__(self, guard: Guard, who: Who | None, approver: str) -> None:
        self.guard, self.approver = guard, approver
        self._who = who
        self._runs = host.Runs(guard)
        self._loops: Known[int, Loop] = Known(_AT_ONCE)
        self._heard: Known[str, Heard] = Known(_AT_ONCE)
        self.keep = self._heard.put
        """Remember what the model wrote until the framework runs it: it validates and drops before any hook."""

    def run(self, session: Any, ident: str | None = None) -> host.Hosted:
        """Return the run of a session, or one that nobody will know again."""
        who = dict(self._who(session)) if self._who is not None else {}
        if session is None:
            return self._runs.of(ident or uuid.uuid4().hex, durable=False, **who)
        return self._runs.of(session.session_id, **who)

    def loop(self, context: ChatContext) -> Loop | None:
        """Return the loop a model request belongs to; None if it has no tools, so that no call can run."""
        tools = (context.options or {}).get("tools")
        if not isinstance(tools, list):
            return None
        # The list is made anew for each loop and held here, so no other one can have its id.
        found = self._loops.get(id(tools))
        if found is None:
            ident = uuid.uuid4().hex if context.session is None else None
            found = Loop(self.run(context.session, ident), tools, ident)
            self._begin(found, context.messages)
        return found

    def _begin(self, loop: Loop, messages: Iterable[Any]) -> None:
        for text in said_by_user(messages):
            loop.hosted.run.user(text)
        self._loops.put(id(loop.tools), loop)

    def end(self, loop: Loop) -> None:
        """Forget a loop that has its last answer."""
        self._loops.pop(id(loop.tools))
        if loop.ident is not None:
            self._runs.close(loop.ident)
        self.guard.trace.flush()

    def taken(self, context: FunctionInvocationContext) -> tuple[host.Hosted, ToolCall]:
        """Return the call behind an invocation, and its run."""
        known = context.metadata
        found = known.get(_TAKEN) or self._heard.pop(known.get("function_call_occurrence_id", ""))
        if found is not None:
            known[_TAKEN] = found  # middleware in front of the guard may come again with the same invocation
            hosted, call, said = found
            return hosted, as_it_comes(call, said, context)
        # A call of an earlier process, which somebody approved: all that is left is the framework's history.
        approval = context.metadata.get("approval_response")
        arguments = context.arguments if approval is None else given(approval.function_call)
        call = host.written(context.metadata.get("call_id"), context.function.name, arguments)
        return self.run(context.session), call

    def answer_now(self, approval: str, *, approved: bool) -> None:
        """Pass an answer of the framework's user on to the guard."""
        # One that was answered elsewhere keeps that answer; the call then finds it.
        with contextlib.suppress(StoreError):
            self.guard.approvals.answer(approval, approved=approved, by=self.approver, reason="asked by the framework")

    def denied(self, approval: str, asked: Any, session: Any) -> None:
        """Let the run know what was not done, as far as a person has denied it."""
        with contextlib.suppress(StoreError):
            if self.guard.approvals.get(approval).status == "denied":
                call = host.written(asked.call_id, asked.name, given(asked))
                # Nothing runs, so it takes no turn: to wait for one here would stop the event loop.
                self.run(session).run.call(call, invoke=_unwanted)

    async def answer(self, approval: str, *, approved: bool) -> None:
        """`answer_now` without blocking the event loop."""
        if self.guard.store.durable:
            await asyncio.to_thread(self.answer_now, approval, approved=approved)
        else:
            self.answer_now(approval, approved=approved)


class _Chat(ChatMiddleware):
    """Around each request to the model."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared

    async def process(self, context: ChatContext, call_next: CallNext) -> None:
        """Shape the request, and take the calls of the reply before the framework reads them."""
        loop = self._shared.loop(context)
        if loop is None:
            await call_next()
            return
        reply = Reply(loop, context.options or {}, self._shared.keep, self._shared.end)
        context.options = reply.request()
        await call_next()
        if context.result is not None and context.stream:
            context.result = reply.stream(context.result)
        elif context.result is not None:
            reply.took(context.result, context.result.finish_reason)


class _Functions(FunctionMiddleware):
    """Around each tool."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared

    async def process(self, context: FunctionInvocationContext, call_next: CallNext) -> None:
        """Take one call to its outcome."""
        hosted, call = self._shared.taken(context)
        tool = Invocation(context, call_next, lambda: _reads(hosted.run, call))
        invoke = _invoke(hosted.run, call, tool)
        outcome = await hosted.acall(call, invoke)
        if outcome.approval is not None and _approved(context, outcome.approval):
            await self._shared.answer(outcome.approval, approved=True)
            outcome = await hosted.acall(call, invoke)
        context.result = result_of(outcome, tool.media) if tool.instead is None else tool.instead
        if outcome.status == "pending" and outcome.approval is not None and context.session is not None:
            context.result = self._request(context, hosted.run, call, outcome.approval)
        if tool.raised is not None:
            raise tool.raised

    def _request(self, context: FunctionInvocationContext, run: Run, call: ToolCall, approval: str) -> Any:
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
            self._shared.answer_now(asked, approved=False)
            self._shared.denied(asked, response.function_call, session)


def _unwanted(_arguments: dict[str, Any]) -> Any:
    raise NotBegun("a person has denied it")


def _approved(context: FunctionInvocationContext, approval: str) -> bool:
    """True if a person answered this very question: siblings of another one come back approved, too, unseen."""
    response = context.metadata.get("approval_response")
    if response is None or response.approved is not True:
        return False
    return bool(response.additional_properties.get(_APPROVAL) == approval)


def _reads(run: Run, call: ToolCall) -> bool:
    plan = run.snapshot.find(call.name)
    return not isinstance(plan, Finding) and plan.contract.effect == "read"


def _invoke(run: Run, call: ToolCall, tool: Invocation) -> Any:
    """Return how a call runs: through the framework, or by the guard's own handler."""
    if type(tool.function) is not Placeholder:  # the framework's classes are abstract: isinstance is slow
        return tool
    plan = run.snapshot.find(call.name)
    own = not isinstance(plan, Finding) and (plan.contract.handler is not None or plan.contract is run.guard.pager)
    return None if own else tool.missing
