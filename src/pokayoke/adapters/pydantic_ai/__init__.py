"""Pydantic AI: one capability guards every tool call of an agent.

guard = Guard(contracts(tools, reads=["get_order"]))
agent = Agent("openai:gpt-5", tools=tools, capabilities=[Guarded(guard)])
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec import structs

from pokayoke.adapters._host.run import AdapterRun
from pokayoke.adapters._host.visibility import paging_tool
from pokayoke.adapters.pydantic_ai._messages import (
    call_arguments,
    call_in_message,
    calls,
    conversation_id_of,
    copy_reply,
    fill_silent_reply,
    finish_reason,
    fresh_id,
    has_broken_off,
    has_call,
    has_succeeded,
    is_fresh,
    is_silent,
    join_result,
    keep_cut_reason,
    known_ids,
    may_answer_text,
    message,
    prompt_at_end,
    prompt_text,
    reply_call,
    reply_text,
    retry_error,
    show_effective_call,
    with_text,
)
from pokayoke.adapters.pydantic_ai._model import ObservedModel
from pokayoke.adapters.pydantic_ai._pydantic_ai_invoke import (
    CONTROL_EXCEPTIONS,
    Handler,
    ToolInvocation,
    call_deferred,
    tool_missing,
)
from pokayoke.adapters.pydantic_ai._tools import (
    HIDDEN,
    contracts,
    definitions,
    framework_names,
    is_framework_tool,
    is_placeholder,
    may_defer,
    schema_for,
    settings_without_hidden,
)
from pokayoke.core.call import Finding, Outcome, ToolCall
from pokayoke.core.intake.arguments import read_arguments
from pokayoke.errors import MissingExtraError, StoreError

try:
    from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
    from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
    from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, UserPromptPart
    from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, StreamedResponse
    from pydantic_ai.output import OutputContext
    from pydantic_ai.tools import RunContext, ToolApproved, ToolDefinition, ToolDenied
except ImportError as error:
    raise MissingExtraError("pydantic-ai-slim", "pydantic-ai") from error

if TYPE_CHECKING:
    from pokayoke.core.flow.plan import Snapshot
    from pokayoke.runtime.guard.guard import Guard

__all__ = ["Guarded", "calls", "contracts", "definitions", "message"]

_BEDROCK = "bedrock"
Who = Callable[[RunContext[Any]], Mapping[str, Any]]


class Guarded(AbstractCapability[Any]):
    """Guards the tools of an agent. One object serves any number of agents and runs at the same time.

    A run is known by its `conversation_id`, else by the `run_id` it was given; without either, a restart cannot
    know it again, and a guard with a durable store refuses its writes.

    Args:
        guard: the guard; it needs a contract for every tool the agent has, see `contracts`.
        defer: True to end the run with `DeferredToolRequests` when a call waits for a person, False to let the
            model know and go on; None does the first if the agent's output type or another capability allows it.
        who: says from the run context on whose behalf a run acts: session, tenant and principal, as for `Guard.run`.
    """

    def __init__(self, guard: Guard, *, defer: bool | None = None, who: Who | None = None) -> None:
        """Keep what every run needs."""
        self._guard, self._defer, self._who = guard, defer, who

    def get_ordering(self) -> CapabilityOrdering:
        """Stand outside all others: what they make of a call is guarded, too."""
        return CapabilityOrdering(position="outermost")

    def get_default_run_id(self) -> str:
        """Mark the id of a run that was given none."""
        return fresh_id()

    def get_default_conversation_id(self, run_id: str) -> str:
        """Mark the id of a conversation that was given none; that of a named run is always the same."""
        return fresh_id() if is_fresh(run_id) else conversation_id_of(run_id)

    async def for_run(self, ctx: RunContext[Any]) -> Guarded:  # noqa: ARG002 - the framework's signature
        """Return what guards one run."""
        return _GuardedRun(self)


class _GuardedRun(Guarded):
    """The capability of one run."""

    _hosted: AdapterRun

    def __init__(self, installed: Guarded) -> None:
        self.__dict__.update(installed.__dict__)
        self._heard: dict[str, ToolCall] = {}
        self._held: dict[str, ToolInvocation] = {}
        self._terms: dict[str, dict[str, Any] | None] = {}
        self._snapshot: Snapshot | None = None
        self._response: ModelResponse | None = None
        self._silent = 0
        self._streaming = False
        self._stream: StreamedResponse | None = None

    async def for_run(self, ctx: RunContext[Any]) -> Guarded:  # noqa: ARG002 - the framework's signature
        return self

    # -- the run ------------------------------------------------------------------------------------

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Callable[[], Awaitable[Any]]) -> Any:
        """Open the run, and close it however the framework's ends."""
        ident = ctx.conversation_id or ""
        # The history that is handed in is where a restart finds a fresh id again.
        known = not is_fresh(ident) or any(one.conversation_id == ident for one in ctx.messages)
        who = self._who(ctx) if self._who is not None else {}
        durable = self._guard.store.durable
        name = ident if known or not durable else None
        run = await to_thread(self._guard.run, name, **who) if durable else self._guard.run(name, **who)
        self._hosted = AdapterRun(run, through=CONTROL_EXCEPTIONS, taken=known_ids(ctx.messages))
        if (prompt := ctx.prompt if ctx.prompt is not None else prompt_at_end(ctx.messages)) is not None:
            run.user(prompt_text(prompt))
        try:
            return await handler()
        finally:
            run.close()

    async def before_node_run(self, ctx: RunContext[Any], *, node: Any) -> Any:
        """Take the calls of a history that a run goes on from, and pass on what people have denied."""
        response: Any = getattr(node, "model_response", None)
        if response is None or response is self._response:
            return node
        response = node.model_response = copy_reply(ctx.messages, response)
        for part, name in zip(
            response.tool_calls, framework_names(self._hosted.run, ctx, response.tool_calls), strict=True
        ):
            part.tool_name = name
        results: dict[str, Any] = node.tool_call_results or {}
        metadata: dict[str, Any] = node.tool_call_metadata or {}
        for part in response.tool_calls if results else ():
            answer: Any = results.get(part.tool_call_id)
            if isinstance(answer, ToolDenied):
                await self._record_denial(
                    self._original_call(ctx, part), metadata.get(part.tool_call_id), answer.message
                )
            elif isinstance(answer, ToolApproved) and answer.override_args is not None:
                await self._close_edited_question(
                    self._original_call(ctx, part), metadata.get(part.tool_call_id), answer.override_args
                )
        return node

    async def _record_denial(self, call: ToolCall, answers: Any, reason: str) -> None:
        """Pass a person's no on, to the question and to the run."""
        if self._hosted.run.check(call).decision == "ask":
            with suppress(CallDeferred):
                outcome = await self._hosted.acall(call, call_deferred)
                await self._answer_approval(outcome.approval, answers, approved=False, reason=reason)
                await self._hosted.acall(call, call_deferred)  # so that the run knows what was not done

    async def _close_edited_question(self, call: ToolCall, answers: Any, instead: dict[str, Any]) -> None:
        """Close the question about a call that a person has approved with other arguments."""
        first, then = map(self._hosted.run.check, (call, structs.replace(call, arguments=instead)))
        about = (self._hosted.run.id, first.contract, first.arguments)
        if first.decision != "ask" or first.arguments == then.arguments:
            return
        with suppress(StoreError, CallDeferred):
            for one in await to_thread(self._guard.approvals.list):
                if (one.run_id, one.contract, one.arguments) == about:
                    await self._answer_approval(one.id, answers, approved=False, reason="approved with other arguments")
                    self._hosted.run.progress.matters.forget_key(
                        (await self._hosted.acall(call, call_deferred)).key or ""
                    )

    # -- around a request ---------------------------------------------------------------------------

    async def before_model_request(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - the framework's signature
        request_context: ModelRequestContext,
    ) -> ModelRequestContext:
        """Add the instruction to this request, and take its tools away, if that is due."""
        request, parameters = self._hosted.begin_request(), request_context.model_request_parameters
        offered = self._visible_tools(parameters.function_tools)
        self._streaming, self._stream = request_context.streaming, None
        changed: dict[str, Any] = {}
        if request.final:
            settings = dict(request_context.model_settings or {})
            settings.pop("tool_choice", None)  # it may demand a tool that is gone
            gone: list[ToolDefinition] = []
            if _BEDROCK in request_context.model.system:  # it refuses a history with calls if it is sent no tools
                gone, settings["tool_choice"] = parameters.function_tools, "none"
            changed["model_request_parameters"] = replace(parameters, function_tools=gone, native_tools=[])
            changed["model_settings"] = settings or None
        else:
            if offered is not None:
                changed["model_request_parameters"] = replace(parameters, function_tools=offered)
            if (wanted := request_context.model_settings) and "tool_choice" in wanted:
                changed["model_settings"] = settings_without_hidden(self._hosted.run, wanted)
        if self._silent or request.instruction is not None:
            told = [ModelRequest(parts=[UserPromptPart(request.instruction)])] if request.instruction else []
            changed["messages"] = [*map(fill_silent_reply, request_context.messages), *told]
        return replace(request_context, **changed) if changed else request_context

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Keep a stream at hand: `run_stream` runs tools before anybody else is told why the message ended."""
        return ObservedModel(model, self.observe_stream) if self._streaming else None

    def observe_stream(self, stream: StreamedResponse) -> None:
        """Take the stream whose end tells whether the message is whole."""
        self._stream = keep_cut_reason(stream)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Take the calls of a reply before the framework can lose what the model wrote."""
        if response.state == "suspended":
            return response
        if tokens := response.usage.total_tokens:
            self._hosted.run.usage(tokens)
        parameters = request_context.model_request_parameters
        parts = guarded = [part for part in response.parts if isinstance(part, ToolCallPart)]
        if parameters.output_tools:
            outputs = {tool.name for tool in parameters.output_tools}
            guarded = [part for part in parts if part.tool_name not in outputs]
            # An answer by a call must share its id with no other, and keeps it: a stream has told it already.
            parts = sorted(parts, key=lambda part: part.tool_name not in outputs)
        if self._hosted.is_final or not guarded:
            return self._set_final_text(ctx, response, guarded, parameters)
        self._silent = 0
        heard = self._hosted.take_reply(map(reply_call, parts), self._finish_reason(response))
        changed: dict[int, ToolCallPart] = {}
        for part, call, name in zip(parts, heard, framework_names(self._hosted.run, ctx, parts), strict=True):
            self._heard[call.id] = call
            if (call.id, name) != (part.tool_call_id, part.tool_name):
                changed[id(part)] = replace(part, tool_call_id=call.id, tool_name=name)
        if changed:
            response = replace(response, parts=[changed.get(id(part), part) for part in response.parts])
        self._response = response
        return response

    def _set_final_text(
        self, ctx: RunContext[Any], response: ModelResponse, parts: list[ToolCallPart], terms: ModelRequestParameters
    ) -> ModelResponse:
        """Strike the calls of a reply that was to have none, and verify its text if it is the answer."""
        text, struck = reply_text(response), set(map(id, parts))
        if not self._hosted.is_final:
            self._silent = self._silent + 1 if is_silent(response) else 0
            if self._silent == 1 or not (self._silent or text.strip()):
                return response  # the framework asks again by itself, or there is an answer that is no text
        kept = [part for part in response.parts if id(part) not in struck]
        if may_answer_text(terms) and not any(isinstance(part, ToolCallPart) for part in kept):
            unmet = self._hosted.run.progress.matters.unmet
            for tool in [key for key, (name, _) in unmet.items() if key == name and has_succeeded(ctx.messages, name)]:
                del unmet[tool]  # it was put right by a call that ran elsewhere
            if (word := self._hosted.final_text(text or None)) != text:
                return replace(response, parts=with_text(kept, word))
        return replace(response, parts=kept) if parts else response

    def _visible_tools(self, tools: list[ToolDefinition]) -> list[ToolDefinition] | None:
        """Return the tools as the model may see them in this run; None if nothing about them is to be changed."""
        run = self._hosted.run
        if (snapshot := run.snapshot) is not self._snapshot:
            self._terms, self._snapshot = {}, snapshot
        terms, changed = self._terms, False
        offered: list[ToolDefinition] = []
        for tool in tools:
            if tool.name not in terms:
                terms[tool.name] = schema_for(tool, run)
            term = terms[tool.name]
            if term is not HIDDEN:
                offered.append(tool if term is None else replace(tool, parameters_json_schema=term))
            changed = changed or term is not None
        if (own := paging_tool(run)) is not None and own.name not in terms:
            tool = ToolDefinition(name=own.name, description=own.description, parameters_json_schema=own.model_schema)
            return [*offered, tool]
        return offered if changed else None

    # -- a tool -------------------------------------------------------------------------------------

    async def wrap_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Handler
    ) -> Any:
        """Hold the call: nothing is validated before the guard has read what the model wrote."""
        if is_framework_tool(tool_def):
            return await handler(args)
        asks = self._original_call(ctx, call)
        if tool_def.defer and not ctx.tool_call_approved:
            return await self._screen_deferred(asks, call, handler, elsewhere=tool_def.kind == "external")
        self._held[call.tool_call_id] = ToolInvocation(asks, call, ctx, handler)
        return args if isinstance(args, dict) else {}

    async def _screen_deferred(self, call: ToolCall, part: ToolCallPart, validate: Handler, *, elsewhere: bool) -> Any:
        """Judge a call that the framework hands out of the run: to a person, or to a tool elsewhere."""
        verdict = self._hosted.run.check(call)
        if not (verdict.ok or (verdict.decision == "ask" and not elsewhere)):
            with suppress(CallDeferred):
                raise ToolFailed((await self._hosted.acall(call, call_deferred)).text)
        show_effective_call(part, verdict)
        return await validate(verdict.arguments or {})

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Handler
    ) -> Any:
        """Take the call to its outcome, with the framework's own execution as the tool."""
        if is_framework_tool(tool_def):
            return await handler(args)
        going = self._held.pop(call.tool_call_id, None) or ToolInvocation(
            self._original_call(ctx, call), call, ctx, None
        )
        plan, known = self._hosted.run.snapshot.find_plan(going.call.name), not is_placeholder(tool_def)
        going.execute = handler
        if not isinstance(plan, Finding):
            going.reads, going.described = plan.contract.effect == "read", plan.contract.output is not None
        invoke: Handler | None = going if known else tool_missing
        if not known and (isinstance(plan, Finding) or plan.contract is self._guard.pager):
            invoke = None
        try:
            outcome = await self._hosted.acall(going.call, invoke)
            if ctx.tool_call_approved and outcome.status == "pending":
                await self._answer_approval(outcome.approval, ctx.tool_call_metadata, approved=True)
                outcome = await self._hosted.acall(going.call, going)
            if outcome.status == "pending" and (may_defer(ctx) if self._defer is None else self._defer):
                raise ApprovalRequired({"approval": outcome.approval, "message": outcome.message})
        except CONTROL_EXCEPTIONS:
            show_effective_call(going.part, self._hosted.run.check(going.call))
            raise
        if going.limit is not None:
            raise going.limit
        return self._framework_result(outcome, going, known=known)

    def _framework_result(self, outcome: Outcome, going: ToolInvocation, *, known: bool) -> Any:
        if outcome.repairs and isinstance(going.part.args, str) and outcome.ok:
            # As it was meant: the framework shows the model that its own text was no JSON.
            going.part.args, going.part.id = read_arguments(going.part.args).value, None
        if outcome.ok:
            return join_result(outcome, going.more, going.words)
        if going.again is not None and outcome.status == "failed":
            raise going.again
        # As retried: an answer in the same message was written before this was known, and does not count.
        raise retry_error(going.part, outcome.text) if known else ToolFailed(outcome.text)

    async def before_output_validate(self, ctx: RunContext[Any], *, output_context: OutputContext, output: Any) -> Any:
        """Take no answer from a call in a message that was cut: a field it lacks may have a default."""
        part = output_context.tool_call
        if part is not None and not ctx.partial_output and self._original_call(ctx, part).stop_reason is not None:
            raise ModelRetry("This was not used: its message was cut off by its length limit. Send it again, shorter.")
        return output

    async def _answer_approval(self, question: str | None, answers: Any, *, approved: bool, reason: str = "") -> None:
        """Pass a person's decision on, unless it was made elsewhere meanwhile."""
        if question is None:
            return
        given: dict[str, Any] = answers if isinstance(answers, dict) else {}
        by, why = str(given.get("by", "pydantic-ai")), str(given.get("reason", reason))
        with suppress(StoreError):
            await to_thread(self._guard.approvals.answer, question, approved=approved, by=by, reason=why)

    def _original_call(self, ctx: RunContext[Any], part: ToolCallPart) -> ToolCall:
        """What the model wrote: as it was heard, else from the message that holds it, wherever that is."""
        heard = self._heard.pop(part.tool_call_id, None)
        if heard is not None and heard.arguments == call_arguments(part):
            return heard
        if self._stream is not None and has_call(now := self._stream.get(), part):
            return call_in_message(part, self._finish_reason(now))
        found = next((one for one in reversed(ctx.messages) if has_call(one, part)), None)
        return call_in_message(part, finish_reason(found) if found is not None else None)

    def _finish_reason(self, response: ModelResponse) -> str | None:
        return "incomplete" if has_broken_off(self._stream, response) else finish_reason(response)
