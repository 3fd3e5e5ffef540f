"""Microsoft Agent Framework: two middlewares, one around each model request and one around each tool.

guard = pokayoke.Guard(contracts(tools, reads=["find_order"]))
agent = Agent(client, tools=tools, middleware=middleware(guard))
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

try:
    from agent_framework import (
        ChatContext,
        ChatMiddleware,
        ChatResponse,
        ChatResponseUpdate,
        Content,
        FunctionInvocationContext,
        FunctionMiddleware,
        FunctionTool,
        Message,
        ResponseStream,
    )
except ImportError as error:
    from pokayoke.errors import MissingExtraError

    raise MissingExtraError("agent-framework-core", "agent-framework") from error

from pokayoke.adapters import hosted as host
from pokayoke.adapters.agent_framework_tools import Invocation, Placeholder, contracts, result_of
from pokayoke.core.call import Finding, Outcome, ToolCall
from pokayoke.core.intake.arguments import read_arguments
from pokayoke.core.intake.reading import is_cut
from pokayoke.core.names import wire_name
from pokayoke.errors import StoreError

if TYPE_CHECKING:
    from pokayoke.runtime.guard import Guard
    from pokayoke.runtime.run import Run

__all__ = ["calls", "contracts", "message", "middleware"]

_KEPT = 1_000
_APPROVAL = "pokayoke_approval"
_OFFERS = frozenset({"tools", "tool_choice", "allow_multiple_tool_calls"})

CallNext = Callable[[], Awaitable[None]]
Who = Callable[[Any], Mapping[str, Any]]


def middleware(guard: Guard, *, who: Who | None = None, approver: str = "agent_framework") -> list[Any]:
    """Return what to install: `Agent(..., middleware=middleware(guard))`, before other middleware.

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
    found = (one for one in _contents(reply) if _ours(one))
    return [ToolCall(one.call_id or "", one.name or "", _given(one), proof) for one in found]


def message(outcome: Outcome) -> Any:
    """Return the message that answers a call."""
    answer = Content.from_function_result(outcome.call_id, result=result_of(outcome))
    return Message("tool", [answer])


class _Loop(NamedTuple):
    """One request of the framework's user, and all model requests that it takes."""

    hosted: host.Hosted
    tools: list[Any]
    """The framework's own list: what stands in it can be called, and it is looked at anew for each reply."""
    ident: str | None
    """Id of a run that ends with this loop; None if its session goes on."""


class _Shared:
    """What both middlewares know."""

    def __init__(self, guard: Guard, who: Who | None, approver: str) -> None:
        self.guard, self.approver = guard, approver
        self._who = who
        self._runs = host.Runs(guard)
        self._loops: OrderedDict[int, _Loop] = OrderedDict()
        self._heard: OrderedDict[str, tuple[host.Hosted, ToolCall]] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, session: Any, ident: str | None = None) -> host.Hosted:
        """Return the run of a session, or one that nobody will know again."""
        who = dict(self._who(session)) if self._who is not None else {}
        if session is None:
            return self._runs.of(ident or uuid.uuid4().hex, durable=False, **who)
        return self._runs.of(session.session_id, **who)

    def loop(self, context: ChatContext) -> _Loop | None:
        """Return the loop a model request belongs to; None if it has no tools, so that no call can run."""
        tools = (context.options or {}).get("tools")
        if not isinstance(tools, list):
            return None
        # The list is made anew for each loop and held here, so no other one can have its id.
        found = self._loops.get(id(tools))
        if found is None:
            ident = uuid.uuid4().hex if context.session is None else None
            found = _Loop(self.run(context.session, ident), tools, ident)
            self._begin(found, context.messages)
        return found

    def _begin(self, loop: _Loop, messages: Iterable[Any]) -> None:
        for text in _said(messages):
            loop.hosted.run.user(text)
        with self._lock:
            self._loops[id(loop.tools)] = loop
            while len(self._loops) > _KEPT:
                self._loops.popitem(last=False)

    def end(self, loop: _Loop) -> None:
        """Forget a loop that has its last answer."""
        with self._lock:
            self._loops.pop(id(loop.tools), None)
        if loop.ident is not None:
            self._runs.close(loop.ident)

    def keep(self, occurrence: str, hosted: host.Hosted, call: ToolCall) -> None:
        """Remember what the model wrote until the framework runs it: it validates and drops before any hook."""
        with self._lock:
            self._heard[occurrence] = (hosted, call)
            while len(self._heard) > _KEPT:
                self._heard.popitem(last=False)

    def taken(self, context: FunctionInvocationContext) -> tuple[host.Hosted, ToolCall]:
        """Return the call behind an invocation, and its run."""
        found = self._heard.pop(context.metadata.get("function_call_occurrence_id", ""), None)
        if found is not None:
            return found
        # A call of an earlier process, which somebody approved: all that is left is the framework's history.
        approval = context.metadata.get("approval_response")
        given = context.arguments if approval is None else approval.function_call.parse_arguments()
        call = host.written(context.metadata.get("call_id"), context.function.name, given)
        return self.run(context.session), call

    def answer_now(self, approval: str, *, approved: bool) -> None:
        """Pass an answer of the framework's user on to the guard."""
        # One that was answered elsewhere keeps that answer; the call then finds it.
        with contextlib.suppress(StoreError):
            self.guard.approvals.answer(approval, approved=approved, by=self.approver, reason="asked by the framework")

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
        reply = _Reply(self._shared, loop, context.options or {})
        context.options = reply.request()
        await call_next()
        if isinstance(context.result, ResponseStream):
            reply.stream(context.result)
            context.result = reply.streamed
        elif context.result is not None:
            reply.took(context.result)


class _Reply:
    """One request and its reply."""

    def __init__(self, shared: _Shared, loop: _Loop, options: Mapping[str, Any]) -> None:
        self._shared, self._loop, self._options = shared, loop, options
        self._asked = loop.hosted.before()
        # The framework, too, may have taken the tools away: at the end of its own budgets.
        self._final = self._asked.final or options.get("tool_choice") == "none"
        self.streamed: Any = None

    def request(self) -> Mapping[str, Any]:
        """Return the options of the request."""
        tools, options = self._loop.tools, self._options
        if any(isinstance(tool, Placeholder) for tool in tools):
            tools[:] = [tool for tool in tools if not isinstance(tool, Placeholder)]
        if (pager := _pager(self._loop.hosted.run)) is not None and all(tool.name != pager.name for tool in tools):
            tools.append(pager)
        if not self._asked.final and self._asked.instruction is None:
            return options
        changed = {key: value for key, value in options.items() if not self._asked.final or key not in _OFFERS}
        if self._asked.instruction is not None:
            # As an instruction it is part of this request alone, even where the service keeps the messages.
            changed["instructions"] = _joined(options.get("instructions"), self._asked.instruction)
        return changed

    def took(self, response: ChatResponse) -> list[Any]:
        """Take a whole reply; returns what came to it, for a stream that has told the rest already."""
        hosted = self._loop.hosted
        if (tokens := (response.usage_details or {}).get("total_token_count")) is not None:
            hosted.run.usage(tokens)
        found = [one for one in _contents(response) if _ours(one)]
        if found and not self._final:
            self._hear(found, response.finish_reason)
            return found
        if any(one.type == "function_approval_request" for one in _contents(response)):
            return []
        for said in response.messages if found else ():
            said.contents = [one for one in said.contents if not _ours(one)]
        added = self._last_word(response)
        self._shared.end(self._loop)
        return added

    def _hear(self, found: list[Any], stop_reason: Any) -> None:
        """Give each call an id, arguments that the framework's parser takes, and somebody to answer it."""
        hosted, tools = self._loop.hosted, self._loop.tools
        names = {tool.name for tool in tools if isinstance(tool, FunctionTool)}
        asked = [host.Asked(one.call_id or None, one.name or "", _given(one)) for one in found]
        for content, call in zip(found, hosted.heard(asked, stop_reason), strict=True):
            content.call_id = call.id
            content.id = content.id or uuid.uuid4().hex
            content.arguments = _readable(call)
            self._shared.keep(content.id, hosted, call)
            if call.name not in names:
                content.name = _meant(hosted.run, call.name, names)
            if content.name not in names:
                names.add(content.name)
                tools.append(Placeholder(content.name))

    def _last_word(self, response: ChatResponse) -> list[Any]:
        """Let the run have the last word; returns what it added."""
        text = "\n".join(one.text for one in _contents(response) if one.type == "text" and one.text)
        if text.strip() and self._options.get("response_format") is not None:
            return []  # words after it would break what the caller is going to parse
        word = self._loop.hosted.last_word(text)
        if word == text:
            return []
        added = Content.from_text(word.removeprefix(text) if text.strip() else word)
        if not response.messages:
            response.messages = [Message("assistant", [])]
        response.messages[-1].contents = [*response.messages[-1].contents, added]
        return [added]

    def stream(self, inner: Any) -> None:
        """Let the text through as it comes; calls are held back until the reply is whole."""
        response: Any = None

        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            nonlocal response
            async with inner:
                async for update in inner:
                    yield _without_calls(update)
                response = await inner.get_final_response()
            if added := self.took(response):
                ident = response.response_id
                yield ChatResponseUpdate(
                    contents=list(map(copy.copy, added)), role="assistant", response_id=ident, message_id=ident
                )

        self.streamed = ResponseStream(updates(), finalizer=lambda _: response)


class _Functions(FunctionMiddleware):
    """Around each tool."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared

    async def process(self, context: FunctionInvocationContext, call_next: CallNext) -> None:
        """Take one call to its outcome."""
        hosted, call = self._shared.taken(context)
        tool = Invocation(context, call_next)
        invoke = _invoke(hosted.run, call, tool)
        outcome = await hosted.acall(call, invoke)
        if outcome.approval is not None and _approved(context, outcome.approval):
            await self._shared.answer(outcome.approval, approved=True)
            outcome = await hosted.acall(call, invoke)
        context.result = result_of(outcome, tool.media) if tool.question is None else tool.question
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

    def _on_approval_responses(self, responses: Iterable[Any], *, session: Any) -> None:  # noqa: ARG002 - its protocol
        """Take refusals: the framework answers them by itself, and tells middleware that has this method."""
        for response in responses:
            asked = response.additional_properties.get(_APPROVAL)
            if isinstance(asked, str):
                self._shared.answer_now(asked, approved=False)


def _approved(context: FunctionInvocationContext, approval: str) -> bool:
    """True if a person answered this very question: siblings of another one come back approved, too, unseen."""
    response = context.metadata.get("approval_response")
    return (
        response is not None
        and response.approved is True
        and (response.additional_properties.get(_APPROVAL) == approval)
    )


def _invoke(run: Run, call: ToolCall, tool: Invocation) -> Any:
    """Return how a call runs: through the framework, or by the guard's own handler."""
    if not isinstance(tool.function, Placeholder):
        return tool
    plan = run.snapshot.find(call.name)
    own = not isinstance(plan, Finding) and (plan.contract.handler is not None or plan.contract is run.guard.pager)
    return None if own else tool.missing


def _pager(run: Run) -> FunctionTool | None:
    """Return the tool that pages through large outputs, once there is one."""
    if not run.progress.keeps_texts:
        return None
    pager = run.guard.pager
    return Placeholder(pager.name, description=pager.description, input_model=dict(pager.input_schema))


def _meant(run: Run, name: str, names: Collection[str]) -> str:
    """Return the name under which the framework answers a call of a name it does not know."""
    plan = run.snapshot.find(name)
    if not isinstance(plan, Finding) and plan.contract.name in names:
        return plan.contract.name
    return wire_name(name, "openai") or "unnamed"


def _readable(call: ToolCall) -> Any:
    """Return arguments for the history: the model's own text where that is sound."""
    text = call.arguments
    if isinstance(text, str) and not is_cut(call.stop_reason) and read_arguments(text).grade == "exact":
        return text
    return host.stand_in(call)


def _given(content: Any) -> str | dict[str, Any]:
    given = content.arguments
    return dict(given) if isinstance(given, Mapping) else given or ""


def _ours(content: Any) -> bool:
    """True for a call that the framework would run, not the provider."""
    return content.type == "function_call" and not content.informational_only and not content.hosted


def _without_calls(update: Any) -> Any:
    if not any(map(_ours, update.contents)):
        return update
    rest = copy.copy(update)
    rest.contents = [one for one in update.contents if not _ours(one)]
    return rest


def _contents(response: Any) -> list[Any]:
    return [one for said in response.messages for one in said.contents]


def _said(messages: Iterable[Any]) -> list[str]:
    """Return the user's texts since the last reply, oldest first."""
    found: list[str] = []
    for said in reversed(list(messages)):
        if said.role in ("assistant", "tool"):
            break
        if said.role == "user" and said.text:
            found.append(said.text)
    return found[::-1]


def _joined(instructions: Any, more: str) -> Any:
    if not instructions:
        return more
    return f"{instructions}\n{more}" if isinstance(instructions, str) else [*instructions, more]
