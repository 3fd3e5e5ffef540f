"""Pydantic AI: one capability guards every tool call of an agent.

guard = Guard(contracts(tools, reads=["get_order"]))
agent = Agent("openai:gpt-5", tools=tools, capabilities=[Guarded(guard)])
"""

from __future__ import annotations

import copy
import time
import uuid
from asyncio import to_thread
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pokayoke.adapters.hosted import Hosted
from pokayoke.adapters.pydantic_ai_invoke import THROUGH, Continuation, Handler
from pokayoke.adapters.pydantic_ai_tools import (
    asked,
    calls,
    contracts,
    definitions,
    is_framework_tool,
    message,
    own_tool,
    plain_text,
    put_together,
    refused,
    reworded,
    said,
    stop_reason,
    written,
)
from pokayoke.core.call import Finding, Outcome, ToolCall
from pokayoke.core.intake.arguments import read_arguments
from pokayoke.errors import MissingExtraError, StoreError, UsageError

try:
    from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
    from pydantic_ai.exceptions import ApprovalRequired, ToolFailed
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequest,
        ModelResponse,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        UserPromptPart,
    )
    from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, StreamedResponse
    from pydantic_ai.models.wrapper import WrapperModel
    from pydantic_ai.tools import DeferredToolRequests, RunContext, ToolDefinition, ToolDenied
except ImportError as error:
    raise MissingExtraError("pydantic-ai-slim", "pydantic-ai") from error

if TYPE_CHECKING:
    from pokayoke.runtime.guard import Guard

__all__ = ["Guarded", "calls", "contracts", "definitions", "message"]

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
        return _fresh()

    def get_default_conversation_id(self, run_id: str) -> str:
        """Mark the id of a conversation that was given none; that of a named run is always the same."""
        return _fresh() if _is_fresh(run_id) else str(uuid.uuid5(uuid.NAMESPACE_OID, run_id))

    async def for_run(self, ctx: RunContext[Any]) -> Guarded:
        """Return what guards one run."""
        return _GuardedRun(self, ctx)


class _GuardedRun(Guarded):
    """The capability of one run."""

    _hosted: Hosted

    def __init__(self, installed: Guarded, ctx: RunContext[Any]) -> None:
        self.__dict__.update(copy.copy(installed.__dict__))
        self._heard: dict[str, ToolCall] = {}
        self._held: dict[str, Continuation] = {}
        self._contracted: set[str] = set()
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
        durable = not _is_fresh(ident) or any(one.conversation_id == ident for one in ctx.messages)
        who = self._who(ctx) if self._who is not None else {}
        run = self._guard.run(ident if durable else None, **who)
        self._hosted = Hosted(run, through=THROUGH, taken=_ids(ctx.messages))
        if ctx.prompt is not None:
            run.user(ctx.prompt if isinstance(ctx.prompt, str) else "\n".join(filter(_is_text, ctx.prompt)))
        try:
            return await handler()
        finally:
            run.close()

    async def before_node_run(self, ctx: RunContext[Any], *, node: Any) -> Any:
        """Pass on what people have denied; such calls are answered without a tool."""
        results = getattr(node, "tool_call_results", None)
        for part in node.model_response.tool_calls if results else ():
            if isinstance(denied := results.get(part.tool_call_id), ToolDenied):
                call = self._written(ctx, part)
                if self._hosted.run.check(call).decision == "ask":
                    outcome = await self._hosted.acall(call, _never)
                    answers = (node.tool_call_metadata or {}).get(part.tool_call_id)
                    await self._decide(outcome, answers, approved=False, reason=denied.message)
        return node

    # -- around a request ---------------------------------------------------------------------------

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Add the instruction to this request, and take its tools away, if that is due."""
        request, parameters = self._hosted.before(), request_context.model_request_parameters
        self._contracts_for(parameters.function_tools)
        self._streaming, self._stream = request_context.streaming, None
        changed: dict[str, Any] = {}
        if request.final:
            changed["model_request_parameters"] = replace(parameters, function_tools=[], native_tools=[])
            settings = dict(request_context.model_settings or {})
            settings.pop("tool_choice", None)  # it may demand a tool that is gone
            changed["model_settings"] = settings or None
        elif self._hosted.run.progress.keeps_texts and (pager := self._pager(parameters)):
            tools = [*parameters.function_tools, pager]
            changed["model_request_parameters"] = replace(parameters, function_tools=tools)
        if request.instruction is not None:
            told = ModelRequest(parts=[UserPromptPart(request.instruction)])
            changed["messages"] = [*request_context.messages, told]
        return replace(request_context, **changed) if changed else request_context

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Keep a stream at hand: `run_stream` runs tools before anybody else is told why the message ended."""
        return _Watched(model, self) if self._streaming else None

    def watch(self, stream: StreamedResponse) -> None:
        """Take the stream whose end tells whether the message is whole."""
        self._stream = stream

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Take the calls of a reply before the framework can lose what the model wrote."""
        if response.state == "suspended":
            return response
        if tokens := response.usage.total_tokens:
            self._hosted.run.usage(tokens)
        parameters = request_context.model_request_parameters
        outputs = {tool.name for tool in parameters.output_tools}
        parts = [part for part in response.parts if isinstance(part, ToolCallPart) and part.tool_name not in outputs]
        if self._hosted.final:
            return self._last_word(response, parts, parameters)
        if not parts:
            return self._not_silent(response, parameters)
        self._silent = 0
        heard = self._hosted.heard(map(asked, parts), self._end_of(response))
        renamed: dict[int, ToolCallPart] = {}
        for part, call in zip(parts, heard, strict=True):
            self._heard[call.id] = call
            if call.id != part.tool_call_id:
                renamed[id(part)] = replace(part, tool_call_id=call.id)
        self._let_in(ctx, parts)
        if not renamed:
            return response
        return replace(response, parts=[renamed.get(id(part), part) for part in response.parts])

    def _last_word(
        self, response: ModelResponse, parts: list[ToolCallPart], parameters: ModelRequestParameters
    ) -> ModelResponse:
        """Strike the calls of a reply that was to have none, and verify its text if it is the answer."""
        struck = set(map(id, parts))
        kept = [part for part in response.parts if id(part) not in struck]
        if plain_text(parameters) and not any(isinstance(part, ToolCallPart) for part in kept):
            text = said(response)
            if (word := self._hosted.last_word(text or None)) != text:
                return replace(response, parts=reworded(kept, word))
        return replace(response, parts=kept) if parts else response

    def _not_silent(self, response: ModelResponse, parameters: ModelRequestParameters) -> ModelResponse:
        """Answer for a model that says nothing a second time; once, the framework asks again by itself."""
        silent = all(isinstance(one, ThinkingPart) or _is_blank(one) for one in response.parts)
        self._silent = self._silent + 1 if silent else 0
        if self._silent < 2 or not plain_text(parameters):  # noqa: PLR2004 - a second time
            return response
        return replace(response, parts=reworded(response.parts, self._hosted.last_word(None)))

    def _let_in(self, ctx: RunContext[Any], parts: list[ToolCallPart]) -> None:
        """Have unknown names come to the hooks, or the framework would answer, and charge for it."""
        if ctx.tool_manager is None or (tools := ctx.tool_manager.tools) is None:
            return
        for part in parts:
            if part.tool_name not in tools:
                tools[part.tool_name] = own_tool(part.tool_name)

    def _contracts_for(self, tools: list[ToolDefinition]) -> None:
        for tool in tools:
            if tool.name not in self._contracted and not is_framework_tool(tool):
                if isinstance(self._hosted.run.snapshot.find(tool.name), Finding):
                    raise UsageError(
                        f"the agent offers {tool.name!r}, and the guard has no contract for it: "
                        "build one with contracts([...]), for an MCP server with contracts(await definitions(server))"
                    )
                self._contracted.add(tool.name)

    def _pager(self, parameters: ModelRequestParameters) -> ToolDefinition | None:
        """The tool that pages through what was too long to show, unless the agent has one of that name."""
        pager = self._guard.pager
        if any(tool.name == pager.name for tool in parameters.function_tools):
            return None
        return ToolDefinition(name=pager.name, description=pager.description, parameters_json_schema=pager.input_schema)

    # -- a tool -------------------------------------------------------------------------------------

    async def wrap_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Handler
    ) -> Any:
        """Hold the call: nothing is validated before the guard has read what the model wrote."""
        if is_framework_tool(tool_def):
            return await handler(args)
        asks = self._written(ctx, call)
        if tool_def.defer and not ctx.tool_call_approved:
            return await self._screened(asks, handler)
        self._held[call.tool_call_id] = Continuation(asks, call, ctx, handler)
        return args if isinstance(args, dict) else {}

    async def _screened(self, call: ToolCall, validate: Handler) -> Any:
        """Judge a call that the framework hands out of the run: to a person, or to a tool elsewhere."""
        verdict = self._hosted.run.check(call)
        if verdict.decision in ("refuse", "stop"):
            raise ToolFailed((await self._hosted.acall(call, _never)).text)
        return await validate(verdict.arguments or {})

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Handler
    ) -> Any:
        """Take the call to its outcome, with the framework's own execution as the tool."""
        if is_framework_tool(tool_def):
            return await handler(args)
        going = self._held.pop(call.tool_call_id, None) or Continuation(self._written(ctx, call), call, ctx, None)
        plan = self._hosted.run.snapshot.find(going.call.name)
        known = not isinstance(plan, Finding) and plan.contract is not self._guard.pager
        going.execute, going.reads = handler, not isinstance(plan, Finding) and plan.contract.effect == "read"
        outcome = await self._hosted.acall(going.call, going if known else None)
        if ctx.tool_call_approved and outcome.status == "pending":
            await self._decide(outcome, ctx.tool_call_metadata, approved=True)
            outcome = await self._hosted.acall(going.call, going)
        if outcome.status == "pending" and (_may_defer(ctx) if self._defer is None else self._defer):
            raise ApprovalRequired({"approval": outcome.approval, "message": outcome.message})
        return self._answer(outcome, going, known=known)

    def _answer(self, outcome: Outcome, going: Continuation, *, known: bool) -> Any:
        if outcome.repairs and isinstance(going.part.args, str) and outcome.ok:
            # As it was meant: the framework shows the model that its own text was no JSON.
            going.part.args, going.part.id = read_arguments(going.part.args).value, None
        if outcome.ok:
            return put_together(outcome, going.more)
        if going.again is not None and outcome.status == "failed":
            raise going.again
        # As retried: an answer in the same message was written before this was known, and does not count.
        raise refused(going.part, outcome.text) if known else ToolFailed(outcome.text)

    async def _decide(self, outcome: Outcome, answers: Any, *, approved: bool, reason: str = "") -> None:
        """Pass a person's decision on, unless it was made elsewhere meanwhile."""
        if outcome.approval is None:
            return
        given: dict[str, Any] = answers if isinstance(answers, dict) else {}
        answer = self._guard.approvals.answer
        by, why = str(given.get("by", "pydantic-ai")), str(given.get("reason", reason))
        try:
            await to_thread(answer, outcome.approval, approved=approved, by=by, reason=why)
        except StoreError:
            return

    def _written(self, ctx: RunContext[Any], part: ToolCallPart) -> ToolCall:
        """What the model wrote: as it was heard, else from the message that holds it, wherever that is."""
        heard = self._heard.pop(part.tool_call_id, None)
        if heard is not None and heard.arguments == asked(part).arguments:
            return heard
        if self._stream is not None and _holds(now := self._stream.get(), part):
            return written(part, self._end_of(now))
        found = next((one for one in reversed(ctx.messages) if _holds(one, part)), None)
        return written(part, stop_reason(found) if found is not None else None)

    def _end_of(self, response: ModelResponse) -> str | None:
        # Of a stream that ends without a reason, the framework says that it has ended well.
        return "incomplete" if getattr(self._stream, "_has_finish_reason", True) is False else stop_reason(response)


class _Watched(WrapperModel):
    """A model whose streams somebody watches."""

    def __init__(self, wrapped: Model, watcher: _GuardedRun) -> None:
        super().__init__(wrapped)
        self._watcher = watcher

    @asynccontextmanager
    async def request_stream(self, *args: Any, **options: Any) -> AsyncGenerator[StreamedResponse]:
        async with self.wrapped.request_stream(*args, **options) as stream:
            self._watcher.watch(stream)
            yield stream


async def _never(arguments: dict[str, Any]) -> Any:  # noqa: ARG001, RUF029 - the signature of a continuation
    raise AssertionError("a call that is refused or waits does not run")


def _may_defer(ctx: RunContext[Any]) -> bool:
    """True if the framework takes a call that waits for a person out of the run."""
    output = getattr(ctx.agent, "output_type", None)
    if DeferredToolRequests in (output if isinstance(output, (list, tuple)) else [output]):
        return True
    others: list[Any] = []
    if ctx.root_capability is not None:
        ctx.root_capability.apply(others.append)
    base = AbstractCapability.handle_deferred_tool_calls
    return any(type(one).handle_deferred_tool_calls is not base for one in others)


def _fresh() -> str:
    """An id nobody has given: like the framework's own ordered by time, but of the version that is free to use."""
    random = uuid.uuid4().int & ((1 << 74) - 1)
    number = (int(time.time() * 1_000) << 80) | (0x8 << 76) | ((random >> 62) << 64) | (0b10 << 62) | random & ((1 << 62) - 1)
    return str(uuid.UUID(int=number))


def _is_fresh(ident: str) -> bool:
    try:
        return uuid.UUID(ident).version == 8  # noqa: PLR2004 - RFC 9562: for whoever makes it
    except ValueError:
        return False


def _ids(messages: list[ModelMessage]) -> frozenset[str]:
    return frozenset(part.tool_call_id for one in messages for part in one.parts if isinstance(part, ToolCallPart))


def _holds(one: ModelMessage, part: ToolCallPart) -> bool:
    return isinstance(one, ModelResponse) and any(
        isinstance(other, ToolCallPart) and other.tool_call_id == part.tool_call_id for other in one.parts
    )


def _is_text(content: Any) -> bool:
    return isinstance(content, str)


def _is_blank(part: Any) -> bool:
    return isinstance(part, TextPart) and not part.content.strip()
