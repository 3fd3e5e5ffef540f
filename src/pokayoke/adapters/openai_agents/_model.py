"""The model's side of the OpenAI Agents SDK: requests, replies, and why a reply ended.

In: the SDK's models, and what they return. Out: the same models, guarded. Never: a call of a cut reply that runs; the
SDK keeps no reason for the end of a chat completion and raises at an incomplete response, so both are read at the
client below the SDK's own models.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import replace
from operator import methodcaller
from typing import Any

from agents import FunctionTool, ItemHelpers, Model, ModelProvider, OpenAIChatCompletionsModel, OpenAIResponsesModel
from openai.types.responses import (
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from pokayoke.adapters._host.calls import (
    UNKNOWN_TOOL_NAME,
    ReplyCall,
    encode_call,
    find_tool_name,
    is_plain_object,
    restore_call,
)
from pokayoke.adapters._host.finish_reasons import (
    capture_finish_reasons,
    captured_reply,
    captured_stream,
    cut_or_last,
)
from pokayoke.adapters._host.model import ModelSide
from pokayoke.adapters._host.proxy import Proxy, forward
from pokayoke.adapters._host.visibility import OfferedTools
from pokayoke.adapters.openai_agents._handoffs import GuardedHandoff
from pokayoke.adapters.openai_agents._run import CUT, current_agent_run
from pokayoke.adapters.openai_agents._tools import frame_items, qualified_name, tool_definition, unknown_tool
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.context.open_calls import has_open_calls
from pokayoke.core.contract.names import history_name
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.messages.answers import result_message
from pokayoke.runtime.run.run import Run

_OTHER_CALLS = frozenset({
    "apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call", "mcp_approval_request", "shell_call",
})  # fmt: skip
"""Calls that are run here, but not by function tools."""
_TEXT_ITEMS = ("message", "reasoning")
_CALL_ID = methodcaller("get", "call_id")
_NO_ID = "__fake_id__"  # the SDK's own mark of an item that no server knows


def calls(reply: Any, run: Run | None = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the function calls of a `ModelResponse`, in order, argument texts as they came."""
    return [ToolCall(item.call_id, item.name, item.arguments) for item in reply.output if item.type == "function_call"]


def message(outcome: Outcome) -> dict[str, Any]:
    """Return the input item that answers a call."""
    return result_message(outcome, "responses")


class GuardedModel(Proxy, Model):
    """A model whose requests and replies go through the guard.

    Args:
        inner: the model.
    """

    def __init__(self, inner: Any) -> None:
        """Observe the client below the model, where that is possible."""
        super().__init__(inner._inner if isinstance(inner, GuardedModel) else inner)  # noqa: SLF001 - of its own kind
        self._observed = _observed_model(self._inner)

    async def get_response(self, *given: Any, **named: Any) -> Any:
        """Ask the model once. Errors of the model go through."""
        request = await _open_request(_positional(given, named), is_kept=_is_kept(named))
        reply, reasons = await captured_reply(self._observed.get_response(*request.arguments, **named))
        return request.take_reply(reply, cut_or_last(reasons))

    async def stream_response(self, *given: Any, **named: Any) -> AsyncIterator[Any]:
        """Ask the model once and pass its events on; the last event holds the reply as the guard lets it stand."""
        request = await _open_request(_positional(given, named), is_kept=_is_kept(named))
        reasons: list[Any] = []
        stream = captured_stream(self._observed.stream_response(*request.arguments, **named), reasons)
        async with aclosing(stream) as events:
            done: list[Any] = []
            async for event in events:
                kind = getattr(event, "type", None)
                if kind in ("response.completed", "response.incomplete"):
                    for last in _final_events(request, event, done, cut_or_last(reasons)):
                        yield last
                    if kind == "response.incomplete":
                        return  # the SDK would raise next
                    continue  # to the end, so that the connection can be used again
                if kind == "response.output_item.done":
                    done.append(event.item)
                # The text of a final reply may be replaced, so none of it is shown before the reply is whole.
                if not request.is_final:
                    yield event

    get_retry_advice, close = forward("get_retry_advice"), forward("close")

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._observed._cleanup_on_run_end(owner)  # noqa: SLF001 - the framework calls it on every model


class GuardedProvider(Proxy, ModelProvider):
    """A provider whose models are guarded.

    Args:
        inner: the provider.
    """

    def __init__(self, inner: Any) -> None:
        """Keep the provider."""
        super().__init__(inner._inner if isinstance(inner, GuardedProvider) else inner)  # noqa: SLF001 - of its own kind

    def get_model(self, model_name: str | None) -> Any:
        """Return the model of that name, guarded."""
        return GuardedModel(self._inner.get_model(model_name))

    aclose = forward("aclose")


def _observed_model(model: Any) -> Any:
    """Return the model over an observed client; the model itself if its client is not OpenAI's."""
    client = getattr(model, "_client", None)
    known = isinstance(model, (OpenAIChatCompletionsModel, OpenAIResponsesModel))
    if not known or (observed := capture_finish_reasons(client)) is client:
        return model
    model = copy.copy(model)
    model._client = observed  # noqa: SLF001 - the only place where a model holds its client
    return model


_PARAMETERS = ("system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs", "tracing")
"""The SDK's own parameters of a request, in its order."""


def _positional(given: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
    """Return the parameters of a request in order; takes those that were passed by name out of `named`."""
    return [*given, *map(named.pop, _PARAMETERS[len(given) :])]


def _is_kept(named: dict[str, Any]) -> bool:
    """Return whether the server keeps the conversation of a request."""
    return bool(named.get("previous_response_id") or named.get("conversation_id"))


def _qualified_tool_name(tool: Any) -> str | None:
    return tool.qualified_name if isinstance(tool, FunctionTool) else None


async def _open_request(arguments: list[Any], *, is_kept: bool) -> _ModelRequest:
    """Return the request of these arguments, with its results framed and a result for each call of its history."""
    system, given, *rest = arguments
    if isinstance(given, list):
        agent_run = current_agent_run()
        if agent_run.on_wire:
            given = frame_items(agent_run.adapter_run, given)
        if not is_kept and has_open_calls(given):  # the SDK drops such calls of its own runs, not of a given history
            given = [*await agent_run.adapter_run.run.aanswer_open_calls(given)]
    return _ModelRequest(system, given, *rest, is_kept=is_kept)


class _ModelRequest(ModelSide):
    """One request and its reply; a reply is anything with `output` and `usage`.

    Attributes:
        arguments: the parameters of the request, as it is sent.
    """

    __slots__ = ("_agent_run", "_calls", "_guarded", "_is_plain", "_listed", "_tools", "_unknown", "arguments")

    def __init__(  # noqa: PLR0917 - the framework's own arguments, in its order
        self,
        system: str | None,
        given: Any,
        settings: Any,
        tools: list[Any],
        schema: Any,
        handoffs: Any,
        tracing: Any,
        *,
        is_kept: bool,
    ) -> None:
        """Shape the request."""
        self._agent_run = agent_run = current_agent_run()
        adapter_run = agent_run.adapter_run
        history = given if isinstance(given, list) else []
        known_ids = filter(None, map(_CALL_ID, history))
        shape = self.begin_request(
            adapter_run,
            user_texts=agent_run.take_user_texts(),
            known_ids=known_ids,
            # A server that keeps the conversation gets its end only.
            history=None if is_kept else history or [{"role": "user", "content": given}],
        )
        if history and agent_run.has_renamed_calls:
            agent_run.has_renamed_calls = any(map(_is_renamed, history))
            given = [*map(_restore_item, history)] if agent_run.has_renamed_calls else given
        if shape.instruction:
            # Beside the history, not in it: a server that keeps the conversation would keep the item in it.
            system = f"{system}\n\n{shape.instruction}" if system else shape.instruction
        offered = agent_run.offered
        if offered is None or not offered.is_current(adapter_run.run, tools):
            offered = OfferedTools(adapter_run.run, tools, _qualified_tool_name, tool_definition)
            agent_run.offered = offered
        if offered.hidden and any(tool.name == settings.tool_choice for tool in offered.hidden):
            settings = replace(settings, tool_choice=None)
        agent_run.handoffs = {handoff.tool_name: GuardedHandoff(handoff) for handoff in handoffs or ()}
        shown_tools, shown_handoffs = ([], []) if shape.final else ([*offered.shown], handoffs)
        if shape.final or (offered.hidden and not shown_tools and not shown_handoffs):
            settings = replace(settings, tool_choice=None, parallel_tool_calls=None)
        self.arguments = (system, given, settings, shown_tools, schema, shown_handoffs, tracing)
        self._tools, self._listed = offered.by_name, tools
        self._is_plain = schema is None or schema.is_plain_text()

    def take_reply(self, reply: Any, stop_reason: object = None) -> Any:
        """Take the whole reply; changes its `output` in place."""
        items = reply.output = list(reply.output)
        cut = is_cut(stop_reason)
        self._guarded = {at for at, item in enumerate(items) if self._is_guarded_call(item, cut=cut)}
        # Handoffs, too, so that none shares its id with a call: the SDK would end the run over that.
        self._calls = [at for at, item in enumerate(items) if at in self._guarded or item.type == "function_call"]
        return super().take_reply(reply, stop_reason)

    def _is_guarded_call(self, item: Any, *, cut: bool) -> bool:
        """Return whether a call is for the guard.

        Handoffs and tools of other kinds are the SDK's. In a cut message they are the guard's, and so is a handoff
        whose arguments the SDK cannot take: it would end the run.
        """
        if item.type != "function_call":
            return cut and item.type in _OTHER_CALLS
        handoff = self._agent_run.handoffs.get(item.name)
        if cut or handoff is None:
            return True
        item.arguments, wrong = handoff.check_arguments(item.arguments, self.adapter_run.run.snapshot)
        return bool(wrong)

    def total_tokens(self, reply: Any) -> int | None:
        return getattr(reply.usage, "total_tokens", None)

    def calls(self, reply: Any) -> list[ReplyCall]:
        return [_reply_call(reply.output[at]) for at in self._calls]

    def with_calls(self, reply: Any, calls: list[ToolCall]) -> Any:
        items, self._unknown = reply.output, set[str]()
        for at, call in zip(self._calls, calls, strict=True):
            if at in self._guarded:
                items[at] = self._framework_call(items[at], call)
            elif items[at].call_id != call.id:
                items[at].call_id = call.id
        self._listed += map(unknown_tool, self._unknown)
        self._agent_run.has_renamed_calls |= UNKNOWN_TOOL_NAME in self._unknown
        return reply

    def without_calls(self, reply: Any) -> Any:
        if any(item.type not in _TEXT_ITEMS for item in reply.output):
            # Without reasoning: it belongs to what followed it, which is gone.
            reply.output = [item for item in reply.output if item.type == "message"]
        return reply

    def text(self, reply: Any) -> str | None:
        said = _last_message(reply.output)
        return ItemHelpers.extract_text(said) if said is not None else None

    def may_change_text(self, reply: Any, text: str | None) -> bool:
        if any(item.type not in _TEXT_ITEMS for item in reply.output):
            return False
        said = _last_message(reply.output)
        if said is not None and any(part.type != "output_text" for part in said.content):
            return False  # a refusal is the SDK's to handle
        # A note would break the JSON of a typed answer; the SDK asks again for one that is missing.
        return self._is_plain or (not text and self.is_final)

    def with_text(self, reply: Any, text: str) -> Any:
        said = _last_message(reply.output)
        part = ResponseOutputText(text=text, annotations=[], type="output_text")
        if said is not None and said.content:
            part = said.content[0].model_copy(update={"text": text})
        if said is None:
            said = ResponseOutputMessage(id=_NO_ID, role="assistant", status="completed", type="message", content=[])
            reply.output.append(said)
        said.content = [part]
        return reply

    def _framework_call(self, item: Any, call: ToolCall) -> Any:
        """Return the item for the SDK: one that it can parse, of a tool that it has."""
        is_own, is_known = item.type == "function_call", call.name in self._tools
        if is_own and is_plain_object(call.arguments) and (is_known or self._may_keep_name(call.name)):
            if is_cut(call.stop_reason):
                item.status = CUT
                self._agent_run.cut_calls.add(call.id)
            if not is_known:
                self._unknown.add(call.name)
            if item.call_id != call.id:
                item.call_id = call.id
            return item
        name, text = encode_call(self.adapter_run.run, call, self._tools)
        # Without the id of the item: a server that keeps items would go on with its own copy.
        ident = _NO_ID if getattr(item, "id", None) == _NO_ID else None
        tool = self._tools.get(name)
        if tool is None:
            self._unknown.add(name)
        space = item.namespace if is_own and is_known else getattr(tool, "_tool_namespace", None)
        shown = name if tool is None else tool.name
        return ResponseFunctionToolCall(
            id=ident, call_id=call.id, name=shown, namespace=space, arguments=text, type="function_call"
        )

    def _may_keep_name(self, name: str) -> bool:
        """Return whether the SDK can hold a name that means no tool: a handoff has its own, and so have providers."""
        is_meant = find_tool_name(self.adapter_run.run, name, self._tools) is not None
        return not is_meant and name not in self._agent_run.handoffs and history_name(name) == name


def _last_message(items: list[Any]) -> Any:
    return next((item for item in reversed(items) if item.type == "message"), None)


def _reply_call(item: Any) -> ReplyCall:
    if item.type == "function_call":
        return ReplyCall(item.call_id, qualified_name(item), item.arguments)
    named = getattr(item, "name", None) or item.type
    return ReplyCall(getattr(item, "call_id", None), named, str(getattr(item, "input", None) or ""))


def _is_renamed(item: Any) -> bool:
    return bool(item.get("name") == UNKNOWN_TOOL_NAME)


def _restore_item(item: Any) -> Any:
    """Return an item of the history with the name that the model wrote, if it is a call of `UNKNOWN_TOOL_NAME`."""
    if not _is_renamed(item) or "arguments" not in item:
        return item
    name, text = restore_call(item["name"], item["arguments"])
    return {**item, "name": name, "arguments": text}


def _final_events(request: _ModelRequest, event: Any, done: list[Any], stop: Any) -> Iterable[Any]:
    """Yield the last events of a stream: text that the guard has added, and the reply."""
    response = event.response
    if event.type == "response.incomplete":
        details = getattr(response, "incomplete_details", None)
        reason = getattr(details, "reason", None)
        stop = reason if is_cut(reason) else "incomplete"
        response = response.model_copy(update={"status": "completed"})
    response.output = response.output or done
    before = "" if request.is_final else request.text(response) or ""
    after = request.text(request.take_reply(response, stop)) or ""
    if after != before and after.startswith(before):
        at, said = next((at, item) for at, item in enumerate(reversed(response.output), 1) if item.type == "message")
        yield ResponseTextDeltaEvent(
            content_index=0, delta=after[len(before) :], item_id=said.id, logprobs=[],
            output_index=len(response.output) - at,
            sequence_number=event.sequence_number, type="response.output_text.delta",
        )  # fmt: skip
    yield ResponseCompletedEvent(response=response, sequence_number=event.sequence_number, type="response.completed")
