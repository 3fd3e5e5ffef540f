"""The model's side of the OpenAI Agents SDK: what it is asked, what it said, and why it ended.

The SDK keeps no reason for the end of a chat completion and raises at an incomplete response, so both are read
where they still exist: at the client below the SDK's own models.
"""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pokayoke.adapters._host.calls import ReplyCall, encode_unreadable_call
from pokayoke.adapters._host.finish_reasons import (
    CAPTURED_REASONS,
    Proxy,
    capture_finish_reasons,
    captured_stream,
    cut_or_last,
)
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.adapters._host.visibility import ToolVisibility, is_hidden, paging_tool
from pokayoke.adapters.openai_agents._run import UNKNOWN_TOOL_NAME, current_agent_run
from pokayoke.adapters.openai_agents._unknown_calls import (
    GuardedHandoff,
    is_object,
    tool_definition,
    unknown_tool,
    with_original_names,
)
from pokayoke.core.call import Finding, ToolCall
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.errors import MissingExtraError

try:
    from agents import FunctionTool, ItemHelpers, Model, ModelProvider, OpenAIChatCompletionsModel, OpenAIResponsesModel
    from openai.types.responses import (
        ResponseCompletedEvent,
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
        ResponseTextDeltaEvent,
    )
except ImportError as error:
    raise MissingExtraError("openai-agents", "openai-agents") from error

if TYPE_CHECKING:
    from pokayoke.runtime.run.run import Run

__all__ = ["GuardedModel", "GuardedProvider"]

_OTHER_CALLS = frozenset({
    "apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call", "mcp_approval_request", "shell_call",
})  # fmt: skip
"""Calls that are run here, but not by function tools."""
_TEXT_ITEMS = ("message", "reasoning")
_NO_ID = "__fake_id__"  # the SDK's own mark of an item that no server knows


# -- the model ----------------------------------------------------------------------------------------


class _ModelRequest(NamedTuple):
    """One request, as it is sent."""

    hosted: AdapterRun
    arguments: tuple[Any, ...]
    tools: dict[str, Any]
    handoffs: dict[str, GuardedHandoff]
    plain: bool
    listed: list[Any]


class GuardedModel(Proxy, Model):
    """A model whose requests and replies go through the guard.

    Args:
        inner: the model.
    """

    def __init__(self, inner: Any) -> None:
        """Listen below the model, where that is possible."""
        super().__init__(inner._inner if isinstance(inner, GuardedModel) else inner)  # noqa: SLF001 - of its own kind
        self._heard = _observed_model(self._inner)

    async def get_response(  # noqa: PLR0917 - the framework's own arguments, in its order
        self,
        system_instructions: str | None,
        input: Any,  # noqa: A002 - the framework's name
        model_settings: Any,
        tools: list[Any],
        output_schema: Any,
        handoffs: list[Any],
        tracing: Any,
        **where: Any,
    ) -> Any:
        """Ask the model once. Errors of the model go through."""
        turn = _build_request(system_instructions, input, model_settings, tools, output_schema, handoffs, tracing)
        stops: list[Any] = []
        token = CAPTURED_REASONS.set(stops)
        try:
            reply = await self._heard.get_response(*turn.arguments, **where)
        finally:
            CAPTURED_REASONS.reset(token)
        _count_usage(turn.hosted, reply.usage)
        reply.output = _take_reply(turn, reply.output, cut_or_last(stops))
        return reply

    async def stream_response(  # noqa: PLR0917 - as above
        self,
        system_instructions: str | None,
        input: Any,  # noqa: A002 - the framework's name
        model_settings: Any,
        tools: list[Any],
        output_schema: Any,
        handoffs: list[Any],
        tracing: Any,
        **where: Any,
    ) -> AsyncIterator[Any]:
        """Ask the model once and pass its events on; the last one is the reply as the guard lets it stand."""
        turn = _build_request(system_instructions, input, model_settings, tools, output_schema, handoffs, tracing)
        stops: list[Any] = []
        async with aclosing(captured_stream(self._heard.stream_response(*turn.arguments, **where), stops)) as events:
            done: list[Any] = []
            async for event in events:
                kind = getattr(event, "type", None)
                if kind in ("response.completed", "response.incomplete"):
                    for last in _final_events(turn, event, done, cut_or_last(stops)):
                        yield last
                    if kind == "response.incomplete":
                        return  # what comes next is the SDK's exception
                    continue  # to the end, so that the connection can be used again
                if kind == "response.output_item.done":
                    done.append(event.item)
                # Of a reply that may be replaced, nothing is shown before it is known.
                if not turn.hosted.is_final:
                    yield event

    def get_retry_advice(self, request: Any) -> Any:
        """As the model says."""
        return self._inner.get_retry_advice(request)

    async def close(self) -> None:
        """Close the model."""
        await self._inner.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._heard._cleanup_on_run_end(owner)  # noqa: SLF001 - the framework calls it on every model


class GuardedProvider(ModelProvider):
    """A provider whose models are guarded.

    Args:
        inner: the provider.
    """

    def __init__(self, inner: Any) -> None:
        """Keep the provider."""
        self._inner: Any = inner.inner if isinstance(inner, GuardedProvider) else inner

    def get_model(self, model_name: str | None) -> Any:
        """Return the model of that name, guarded."""
        return GuardedModel(self._inner.get_model(model_name))

    async def aclose(self) -> None:
        """Close the provider."""
        await self._inner.aclose()


def _observed_model(model: Any) -> Any:
    """The model over a client that is listened to; the model itself if it has none that we know."""
    client = getattr(model, "_client", None)
    known = isinstance(model, (OpenAIChatCompletionsModel, OpenAIResponsesModel))
    if not known or (heard := capture_finish_reasons(client)) is client:
        return model
    model = copy.copy(model)
    model._client = heard  # noqa: SLF001 - the only place where a model holds its client
    return model


# -- what is asked ------------------------------------------------------------------------------------


class _OfferedTools:
    """What an agent's tools are called and which of them the model sees.

    The SDK lists the same tools for each request, so it is worked out once, until something of it changes.

    Attributes:
        look: what all of it depends on.
        names: the function tools, by their qualified names.
        offered: the tools that the model may see, and the guard's own.
        hidden: names of those that it may not see.
    """

    def __init__(self, run: Run, tools: list[Any]) -> None:
        """Look at every tool."""
        self.look = ToolVisibility(run, tools)
        self.names = {tool.qualified_name: tool for tool in tools if isinstance(tool, FunctionTool)}
        hidden = {id(tool): tool.name for name, tool in self.names.items() if is_hidden(run, name)}
        self.offered = [tool for tool in tools if id(tool) not in hidden]
        if (own := paging_tool(run)) is not None and own.name not in self.names:
            self.offered.append(tool_definition(own))
        self.hidden = [*hidden.values()]


def _build_request(  # noqa: PLR0917 - the framework's own arguments, in its order
    system: str | None,
    given: Any,
    settings: Any,
    tools: list[Any],
    schema: Any,
    handoffs: list[Any],
    tracing: Any,
) -> _ModelRequest:
    """Make the request what it has to be."""
    slot, history = current_agent_run(), given if isinstance(given, list) else []
    hosted = slot.run_for_request(history)
    if history and slot.sank:
        given = with_original_names(history)
        slot.sank = given is not history
    request = hosted.begin_request()
    if request.instruction:
        # Beside the history, not in it: a conversation that the server keeps would keep an item for ever.
        system = f"{system}\n\n{request.instruction}" if system else request.instruction
    listed = slot.listed
    if listed is None or not listed.look.is_unchanged(hosted.run, tools):
        listed = slot.listed = _OfferedTools(hosted.run, tools)
    hidden, offered = listed.hidden, [] if request.final else [*listed.offered]
    if hidden and settings.tool_choice in hidden:
        settings = replace(settings, tool_choice=None)
    slot.handoffs = {handoff.tool_name: GuardedHandoff(handoff) for handoff in handoffs} if handoffs else {}
    plain = schema is None or schema.is_plain_text()
    shown = [] if request.final else handoffs
    if request.final or (hidden and not offered and not shown):
        settings = replace(settings, tool_choice=None, parallel_tool_calls=None)
    arguments = (system, given, settings, offered, schema, shown, tracing)
    return _ModelRequest(hosted, arguments, listed.names, slot.handoffs, plain, tools)


# -- what was said ------------------------------------------------------------------------------------


def _take_reply(turn: _ModelRequest, output: list[Any], stop: Any) -> list[Any]:
    """The items of a reply as the guard lets them stand."""
    hosted, cut = turn.hosted, is_cut(stop)
    items = list(output)
    ours = {at for at, item in enumerate(items) if _is_guarded_call(item, turn, cut=cut)}
    # Handoffs, too, so that none shares its id with a call: the SDK would end the run over that.
    asked = {at: _reply_call(item) for at, item in enumerate(items) if at in ours or item.type == "function_call"}
    heard = hosted.take_reply(asked.values(), stop)
    if hosted.is_final and len(kept := [item for item in items if item.type in _TEXT_ITEMS]) < len(items):
        # Reasoning belongs to what followed it, which is gone.
        items = [item for item in kept if item.type == "message"]
    led = False
    for at, call in zip(asked, heard, strict=False):
        if at in ours:
            items[at] = _framework_call(items[at], call, turn)
            led = led or items[at].name == UNKNOWN_TOOL_NAME
        elif items[at].call_id != call.id:
            items[at].call_id = call.id
    if led:
        turn.listed.append(unknown_tool)
        current_agent_run().sank = True
    if not heard and all(item.type in _TEXT_ITEMS for item in items):
        _set_final_text(turn, items)
    return items


def _is_guarded_call(item: Any, turn: _ModelRequest, *, cut: bool) -> bool:
    """Whether a call is for the guard. Handoffs and tools of other kinds are the SDK's, except of a cut message.

    The SDK would end the run over a handoff whose arguments it cannot take.
    """
    if item.type != "function_call":
        return cut and item.type in _OTHER_CALLS
    handed = turn.handoffs.get(item.name)
    if cut or handed is None:
        return True
    item.arguments, wrong = handed.check_arguments(item.arguments, turn.hosted.run.snapshot)
    return bool(wrong)


def _reply_call(item: Any) -> ReplyCall:
    if item.type == "function_call":
        return ReplyCall(item.call_id, _qualified_name(item), item.arguments)
    named = getattr(item, "name", None) or item.type
    return ReplyCall(getattr(item, "call_id", None), named, str(getattr(item, "input", None) or ""))


def _qualified_name(item: Any) -> str:
    """The tool's name as the SDK qualifies it; a tool that was loaded late is in a namespace of its own name."""
    space = getattr(item, "namespace", None)
    return f"{space}.{item.name}" if space and space != item.name else str(item.name)


def _framework_call(item: Any, call: ToolCall, turn: _ModelRequest) -> Any:
    """The item for the SDK: one that it can parse, of a tool that it has."""
    name, known = call.name, call.name in turn.tools
    if item.type == "function_call" and known and not is_cut(call.stop_reason) and is_object(call.arguments):
        if item.call_id != call.id:
            item.call_id = call.id
        return item
    if not known:
        plan = turn.hosted.run.snapshot.find_plan(name)
        spelled = UNKNOWN_TOOL_NAME if isinstance(plan, Finding) else plan.contract.name
        name = spelled if spelled in turn.tools else UNKNOWN_TOOL_NAME
    text = json.dumps(encode_unreadable_call(call, name=not known), ensure_ascii=False)
    # Without the id of the item: a server that keeps items would go on with its own copy.
    ident = _NO_ID if getattr(item, "id", None) == _NO_ID else None
    tool = turn.tools.get(name, unknown_tool)
    space = item.namespace if known and item.type == "function_call" else tool._tool_namespace  # noqa: SLF001 - public nowhere
    return ResponseFunctionToolCall(
        id=ident, call_id=call.id, name=tool.name, namespace=space, arguments=text, type="function_call"
    )


def _set_final_text(turn: _ModelRequest, items: list[Any]) -> None:
    """Put into a reply without calls what the user gets to read."""
    message = next((item for item in reversed(items) if item.type == "message"), None)
    if message is not None and any(part.type != "output_text" for part in message.content):
        return  # a refusal is the SDK's to handle
    text = ItemHelpers.extract_text(message) if message is not None else None
    if not turn.plain and (text or not turn.hosted.is_final):
        return  # a note would break the JSON of a typed answer; the SDK asks again for one that is missing
    word = turn.hosted.final_text(text)
    if word == text:
        return
    part = ResponseOutputText(text=word, annotations=[], type="output_text")
    if message is not None and message.content:
        part = message.content[0].model_copy(update={"text": word})
    if message is None:
        message = ResponseOutputMessage(id=_NO_ID, role="assistant", status="completed", type="message", content=[])
        items.append(message)
    message.content = [part]


def _final_events(turn: _ModelRequest, event: Any, done: list[Any], stop: Any) -> Iterable[Any]:
    """The last events of a stream: text that the reply got at its end, and the reply."""
    response = event.response
    if event.type == "response.incomplete":
        details = getattr(response, "incomplete_details", None)
        reason = getattr(details, "reason", None)
        stop = reason if is_cut(reason) else "incomplete"
        response = response.model_copy(update={"status": "completed"})
    if response.usage is not None:
        _count_usage(turn.hosted, response.usage)
    before = _reply_text(response.output or done)
    response.output = _take_reply(turn, response.output or done, stop)
    after = _reply_text(response.output)
    streamed = "" if turn.hosted.is_final else before
    if after != streamed and after.startswith(streamed):
        at, said = next((at, item) for at, item in enumerate(reversed(response.output), 1) if item.type == "message")
        yield ResponseTextDeltaEvent(
            content_index=0, delta=after[len(streamed) :], item_id=said.id, logprobs=[],
            output_index=len(response.output) - at,
            sequence_number=event.sequence_number, type="response.output_text.delta",
        )  # fmt: skip
    yield ResponseCompletedEvent(response=response, sequence_number=event.sequence_number, type="response.completed")


def _reply_text(items: Iterable[Any]) -> str:
    message = next((item for item in reversed(list(items)) if item.type == "message"), None)
    return (ItemHelpers.extract_text(message) or "") if message is not None else ""


def _count_usage(hosted: AdapterRun, usage: Any) -> None:
    if total := getattr(usage, "total_tokens", 0):
        hosted.run.usage(total)
