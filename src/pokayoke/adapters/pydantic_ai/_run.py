"""The capability by which Pydantic AI asks the guard, and the run behind each of its runs.

In: the framework's hooks. Out: their results, decided by the guard. Never: a run of a durable ledger under an id that
no restart could know again.
"""

from __future__ import annotations

import os
import time
import uuid
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.output import OutputContext
from pydantic_ai.tools import RunContext, ToolDefinition

from pokayoke.adapters._host.approvals import question_text
from pokayoke.adapters._host.frames import Frame, require_frame
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.adapters.pydantic_ai._approvals import may_defer, pass_answer, show_effective_call
from pokayoke.adapters.pydantic_ai._model import (
    ObservedModel,
    RunModelSide,
    copy_reply,
    framework_names,
    is_framework_tool,
    is_placeholder,
    known_ids,
    prompt_at_end,
    user_text,
)
from pokayoke.adapters.pydantic_ai._tools import CONTROL_EXCEPTIONS, Handler, ToolInvocation, call_deferred
from pokayoke.core.call import ToolCall
from pokayoke.runtime.guard.guard import Guard

Who = Callable[[RunContext[Any]], Mapping[str, Any]]

_UUID_VERSION = 8
"""The version of a UUID that RFC 9562 leaves to its maker."""


class Guarded(AbstractCapability[Any]):
    """Guards the tools of an agent. One object serves any number of agents and runs at the same time.

    A run is known by its `conversation_id`, else by the `run_id` it was given; without either, a restart cannot
    know it again, and a guard with a durable store refuses its writes.

    Args:
        guard: the guard; it needs a contract for every tool of the agent, see `contracts`.
        defer: True to end the run with `DeferredToolRequests` when a call waits for a person, False to let the
            model know and go on; None ends it if the agent's output type or another capability allows that.
        who: returns from the run context on whose behalf a run acts: session, tenant and principal, as for
            `Guard.run`.
        frame: where `<tool_output …>` is around the results of calls that end ok: in the framework's history as well
            (`history`), or only in the requests (`wire`), so that the history holds what the tools returned.

    Raises:
        UsageError: `frame` is another word.
    """

    def __init__(
        self, guard: Guard, *, defer: bool | None = None, who: Who | None = None, frame: Frame = "history"
    ) -> None:
        """Keep the settings of every run."""
        self._guard, self._defer, self._who = guard, defer, who
        self._on_wire = require_frame(frame)

    def get_ordering(self) -> CapabilityOrdering:
        """Stand outside all others, so that calls are guarded as they have changed them."""
        return CapabilityOrdering(position="outermost")

    def get_default_run_id(self) -> str:
        """Return a fresh id for a run that was given none."""
        return _fresh_id()

    def get_default_conversation_id(self, run_id: str) -> str:
        """Return the id of a conversation that was given none; that of a named run is always the same."""
        return _fresh_id() if _is_fresh(run_id) else str(uuid.uuid5(uuid.NAMESPACE_OID, run_id))

    async def for_run(self, ctx: RunContext[Any]) -> Guarded:  # noqa: ARG002 - the framework's signature
        """Return the capability of one run."""
        return _GuardedRun(self)


class _GuardedRun(Guarded):
    """The capability of one run."""

    _adapter_run: AdapterRun
    _model: RunModelSide

    def __init__(self, installed: Guarded) -> None:
        self.__dict__.update(installed.__dict__)
        self._invocations: dict[str, ToolInvocation] = {}

    async def for_run(self, ctx: RunContext[Any]) -> Guarded:  # noqa: ARG002 - the framework's signature
        return self

    # -- the run ------------------------------------------------------------------------------------

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Callable[[], Awaitable[Any]]) -> Any:
        """Open the guard's run, and close it however the framework's ends."""
        ident = ctx.conversation_id or ""
        # A restart finds a fresh id again in the history that it is given.
        known = not _is_fresh(ident) or any(one.conversation_id == ident for one in ctx.messages)
        who = self._who(ctx) if self._who is not None else {}
        durable = self._guard.store.durable
        name = ident if known or not durable else None
        run = await to_thread(self._guard.run, name, **who) if durable else self._guard.run(name, **who)
        run.can_ask = run.can_ask or self._may_defer(ctx)
        self._adapter_run = AdapterRun(run, through=CONTROL_EXCEPTIONS, taken=known_ids(ctx.messages))
        self._model = RunModelSide(self._adapter_run, on_wire=self._on_wire)
        if (prompt := ctx.prompt if ctx.prompt is not None else prompt_at_end(ctx.messages)) is not None:
            run.user(user_text(prompt))
        try:
            return await handler()
        finally:
            run.close()

    def _may_defer(self, ctx: RunContext[Any]) -> bool:
        """Return whether a call that waits for a person ends the run."""
        return may_defer(ctx) if self._defer is None else self._defer

    async def before_node_run(self, ctx: RunContext[Any], *, node: Any) -> Any:
        """Take the open calls of the history that a run continues, and pass on the answers of people."""
        response: Any = getattr(node, "model_response", None)
        if response is None or response is self._model.response:
            return node
        response = node.model_response = copy_reply(ctx.messages, response)
        self._model.recall_reply(ctx.messages, response)
        names = framework_names(self._adapter_run.run, ctx, response.tool_calls)
        for part, name in zip(response.tool_calls, names, strict=True):
            part.tool_name = name
        results: dict[str, Any] = node.tool_call_results or {}
        metadata: dict[str, Any] = node.tool_call_metadata or {}
        for part in response.tool_calls if results else ():
            ident = part.tool_call_id
            call = self._model.original_call(ctx, part)
            await pass_answer(self._adapter_run, call, results.get(ident), metadata.get(ident))
        return node

    # -- around a request ---------------------------------------------------------------------------

    async def before_model_request(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - the framework's signature
        request_context: ModelRequestContext,
    ) -> ModelRequestContext:
        """Shape the request as the run's state demands."""
        messages = await self._model.prepare_messages(request_context.messages)
        return self._model.shape_request(request_context, messages)

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Observe a stream: `run_stream` runs tools before any hook knows why the message ended."""
        return ObservedModel(model, self._model.observe_stream) if self._model.is_streaming else None

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Take the calls of a reply before the framework can lose what the model wrote."""
        if response.state == "suspended":
            return response
        return self._model.take_response(ctx, request_context.model_request_parameters, response)

    # -- a tool -------------------------------------------------------------------------------------

    async def wrap_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Handler
    ) -> Any:
        """Postpone the framework's validation until the guard has read what the model wrote."""
        if is_framework_tool(tool_def):
            return await handler(args)
        written = self._model.original_call(ctx, call)
        if tool_def.defer and not ctx.tool_call_approved:
            return await self._screen_deferred(written, call, handler, is_external=tool_def.kind == "external")
        self._invocations[call.tool_call_id] = ToolInvocation(written, call, handler)
        return args if isinstance(args, dict) else {}

    async def _screen_deferred(
        self, call: ToolCall, part: ToolCallPart, validate: Handler, *, is_external: bool
    ) -> Any:
        """Check a call that the framework hands out of the run, to a person or to a tool elsewhere."""
        verdict = self._adapter_run.run.check(call)
        if not (verdict.ok or (verdict.decision == "ask" and not is_external)):
            with suppress(CallDeferred):
                raise ToolFailed((await self._adapter_run.acall(call, call_deferred)).text)
        show_effective_call(part, verdict)
        return await validate(verdict.arguments or {})

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Handler
    ) -> Any:
        """Take the call to its outcome, with the framework's own execution as the tool."""
        if is_framework_tool(tool_def):
            return await handler(args)
        invocation = self._invocations.pop(call.tool_call_id, None)
        if invocation is None:
            invocation = ToolInvocation(self._model.original_call(ctx, call), call, None)
        invocation.bind_execution(self._adapter_run.run, ctx, handler)
        is_known = not is_placeholder(tool_def)
        try:
            outcome = await invocation.take_call(self._adapter_run, invocation.call, has_tool=is_known)
            if outcome.status == "pending" and self._may_defer(ctx):
                question = question_text(self._guard, outcome.tool)
                raise ApprovalRequired({"approval": outcome.approval, "message": question})
        except CONTROL_EXCEPTIONS:
            show_effective_call(invocation.part, self._adapter_run.run.check(invocation.call))
            raise
        if invocation.limit is not None:
            raise invocation.limit
        if outcome.ok and (outcome.repairs or outcome.corrections):
            # The framework would tell the model that its own text was no JSON, so the history gets what ran.
            show_effective_call(invocation.part, self._adapter_run.run.check(invocation.call))
        result = invocation.own_result(self._adapter_run, outcome) if self._on_wire else outcome.text
        return invocation.framework_result(outcome, result, is_known=is_known)

    async def before_output_validate(self, ctx: RunContext[Any], *, output_context: OutputContext, output: Any) -> Any:
        """Refuse an answer from a call in a message that was cut: a field that was cut off may have a default."""
        part = output_context.tool_call
        if part is not None and not ctx.partial_output and self._model.original_call(ctx, part).stop_reason is not None:
            raise ModelRetry("This was not used: its message was cut off by its length limit. Send it again, shorter.")
        return output


def _fresh_id() -> str:
    """Return an id for a run or conversation that was given none; like the framework's own ids it sorts by time."""
    made = bytearray(int(time.time() * 1_000).to_bytes(6, "big") + os.urandom(10))
    made[6] = _UUID_VERSION << 4 | made[6] & 0x0F
    made[8] = 0x80 | made[8] & 0x3F
    return str(uuid.UUID(bytes=bytes(made)))


def _is_fresh(ident: str) -> bool:
    """Return whether an id is from `_fresh_id`; a restart knows such an id only from a history."""
    try:
        return uuid.UUID(ident).version == _UUID_VERSION
    except ValueError:
        return False
