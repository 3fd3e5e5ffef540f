"""The two middlewares of Microsoft Agent Framework that guard an agent.

In: the framework's contexts of a model request and of a tool. Out: the same, as the guard lets them stand. Never: a
tool that runs past the guard, or arguments that are judged before middleware in front has changed them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from agent_framework import (
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    ChatResponseUpdate,
    FunctionInvocationContext,
    FunctionMiddleware,
    Message,
    ResponseStream,
)

from pokayoke.adapters._host.frames import Frame, require_frame
from pokayoke.adapters.agent_framework._approvals import approval_request, deny_question, waiting_requests
from pokayoke.adapters.agent_framework._model import ModelRequest, answer_messages, frame_messages
from pokayoke.adapters.agent_framework._run import AgentRuns, Who
from pokayoke.adapters.agent_framework._tools import Placeholder, ToolInvocation, framework_result, own_result
from pokayoke.runtime.guard.guard import Guard

CallNext = Callable[[], Awaitable[None]]


def middleware(
    guard: Guard, *, who: Who | None = None, approver: str = "agent_framework", frame: Frame = "history"
) -> list[Any]:
    """Return what to install: `Agent(..., middleware=middleware(guard))`, before other middleware.

    Middleware in front of it may change arguments, and the guard judges those. Changes behind it are not judged.

    Args:
        guard: the guard; its contracts are those of the agent's tools, see `contracts`.
        who: called with the agent's session (None if there is none); returns `tenant` and `principal` as for
            `Guard.run_for_session`.
        approver: the name under which an approval response of the framework answers a question of the guard.
        frame: where `<tool_output …>` is around the results of calls that end ok: in the framework's messages as well
            (`history`), or only in the requests (`wire`), so that the messages hold what the tools returned.

    Raises:
        UsageError: `frame` is another word; with `wire`, also a request whose history the service keeps.
    """
    runs = AgentRuns(guard, who, approver, on_wire=require_frame(frame))
    return [_ModelMiddleware(runs), _ToolMiddleware(runs)]


class _ModelMiddleware(ChatMiddleware):
    """Around each request to the model."""

    def __init__(self, runs: AgentRuns) -> None:
        self._runs = runs

    async def process(self, context: ChatContext, call_next: CallNext) -> None:
        """Shape the request, and take the calls of the reply before the framework reads them."""
        agent_run = self._runs.agent_run_for(context)
        if agent_run is None:
            await call_next()
            return
        if not agent_run.user_texts and (asked := waiting_requests(agent_run.adapter_run, context.messages)):
            context.result = _answer_now(asked, stream=context.stream)
            return
        if self._runs.on_wire:
            context.messages = frame_messages(agent_run.adapter_run, context.options or {}, context.messages)
        context.messages = await answer_messages(agent_run.adapter_run, context.options or {}, context.messages)
        request = ModelRequest(self._runs, agent_run, context.options or {}, context.messages)
        context.options = request.options
        await call_next()
        if context.result is not None and context.stream:
            context.result = request.wrap_stream(context.result)
        elif context.result is not None:
            request.take_reply(context.result, context.result.finish_reason)


def _answer_now(contents: list[Any], *, stream: bool) -> Any:
    """Return a reply of these contents, without asking the model."""
    response: ChatResponse = ChatResponse(messages=[Message("assistant", contents)])

    async def stream_update() -> AsyncIterator[ChatResponseUpdate]:
        yield ChatResponseUpdate(contents=contents, role="assistant")

    return ResponseStream(stream_update(), finalizer=lambda _: response) if stream else response


class _ToolMiddleware(FunctionMiddleware):
    """Around each tool."""

    def __init__(self, runs: AgentRuns) -> None:
        self._runs = runs

    async def process(self, context: FunctionInvocationContext, call_next: CallNext) -> None:
        """Take one call to its outcome."""
        adapter_run, call = self._runs.take_call(context)
        side = ToolInvocation(context, call_next, adapter_run, call, self._runs.approver)
        # The framework's classes are abstract, which makes isinstance slow.
        outcome = await side.take_call(adapter_run, call, has_tool=type(context.function) is not Placeholder)
        if side.instead is not None:
            context.result = side.instead
        elif self._runs.on_wire:
            context.result = own_result(adapter_run, outcome, context.function.name, side)
        else:
            context.result = framework_result(outcome, side.media)
        if outcome.status == "pending" and outcome.approval is not None and context.session is not None:
            context.result = approval_request(context, adapter_run, call, outcome.approval)
        if side.raised is not None:
            raise side.raised

    def _on_approval_responses(self, responses: Iterable[Any], *, session: Any) -> None:
        """Take refusals: the framework answers them itself, and calls this method of middleware that has it."""
        for response in responses:
            deny_question(self._runs, response, session)
