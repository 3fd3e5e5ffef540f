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

from pokayoke.adapters._host.finish_reasons import STOPS, Around, listened, overheard, worst
from pokayoke.adapters._host.run import Asked, Hosted, stand_in
from pokayoke.adapters._host.visibility import Look, hides, pager
from pokayoke.adapters.openai_agents._run import SINK, slot_in_use
from pokayoke.adapters.openai_agents._unknown_calls import Handed, as_written, is_object, offer, sink
from pokayoke.core.call import Finding, ToolCall
from pokayoke.core.intake.reading import is_cut
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
_SAID = ("message", "reasoning")
_NO_ID = "__fake_id__"  # the SDK's own mark of an item that no server knows


# -- the model ----------------------------------------------------------------------------------------


class _Turn(NamedTuple):
    """One request, as it is sent."""

    hosted: Hosted
    arguments: tuple[Any, ...]
    tools: dict[str, Any]
    handoffs: dict[str, Handed]
    plain: bool
    listed: list[Any]


class GuardedModel(Around, Model):
    """A model whose requests and replies go through the guard.

    Args:
        inner: the model.
    """

    def __init__(self, inner: Any) -> None:
        """Listen below the model, where that is possible."""
        super().__init__(inner._inner if isinstance(inner, GuardedModel) else inner)  # noqa: SLF001 - of its own kind
        self._heard = _listening(self._inner)

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
        turn = _turn(system_instructions, input, model_settings, tools, output_schema, handoffs, tracing)
        stops: list[Any] = []
        token = STOPS.set(stops)
        try:
            reply = await self._heard.get_response(*turn.arguments, **where)
        finally:
            STOPS.reset(token)
        _note_usage(turn.hosted, reply.usage)
        reply.output = _judged(turn, reply.output, worst(stops))
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
        turn = _turn(system_instructions, input, model_settings, tools, output_schema, handoffs, tracing)
        stops: list[Any] = []
        async with aclosing(overheard(self._heard.stream_response(*turn.arguments, **where), stops)) as events:
            done: list[Any] = []
            async for event in events:
                kind = getattr(event, "type", None)
                if kind in ("response.completed", "response.incomplete"):
                    for last in _concluded(turn, event, done, worst(stops)):
                        yield last
                    if kind == "response.incomplete":
                        return  # what comes next is the SDK's exception
                    continue  # to the end, so that the connection can be used again
                if kind == "response.output_item.done":
                    done.append(event.item)
                # Of a reply that may be replaced, nothing is shown before it is known.
                if not turn.hosted.final:
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


def _listening(model: Any) -> Any:
    """The model over a client that is listened to; the model itself if it has none that we know."""
    client = getattr(model, "_client", None)
    known = isinstance(model, (OpenAIChatCompletionsModel, OpenAIResponsesModel))
    if not known or (heard := listened(client)) is client:
        return model
    model = copy.copy(model)
    model._client = heard  # noqa: SLF001 - the only place where a model holds its client
    return model


# -- what is asked ------------------------------------------------------------------------------------


class _Listed:
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
        self.look = Look(run, tools)
        self.names = {tool.qualified_name: tool for tool in tools if isinstance(tool, FunctionTool)}
        hidden = {id(tool): tool.name for name, tool in self.names.items() if hides(run, name)}
        self.offered = [tool for tool in tools if id(tool) not in hidden]
        if (own := pager(run)) is not None and own.name not in self.names:
            self.offered.append(offer(own))
        self.hidden = [*hidden.values()]


def _turn(  # noqa: PLR0917 - the framework's own arguments, in its order
    system: str | None,
    given: Any,
    settings: Any,
    tools: list[Any],
    schema: Any,
    handoffs: list[Any],
    tracing: Any,
) -> _Turn:
    """Make the request what it has to be."""
    slot, history = slot_in_use(), given if isinstance(given, list) else []
    hosted = slot.before(history)
    if history and slot.sank:
        given = as_written(history)
        slot.sank = given is not history
    request = hosted.before()
    if request.instruction:
        # Beside the history, not in it: a conversation that the server keeps would keep an item for ever.
        system = f"{system}\n\n{request.instruction}" if system else request.instruction
    listed = slot.listed
    if listed is None or not listed.look.holds(hosted.run, tools):
        listed = slot.listed = _Listed(hosted.run, tools)
    hidden, offered = listed.hidden, [] if request.final else [*listed.offered]
    if hidden and settings.tool_choice in hidden:
        settings = replace(settings, tool_choice=None)
    slot.handoffs = {handoff.tool_name: Handed(handoff) for handoff in handoffs} if handoffs else {}
    plain = schema is None or schema.is_plain_text()
    shown = [] if request.final else handoffs
    if request.final or (hidden and not offered and not shown):
        settings = replace(settings, tool_choice=None, parallel_tool_calls=None)
    arguments = (system, given, settings, offered, schema, shown, tracing)
    return _Turn(hosted, arguments, listed.names, slot.handoffs, plain, tools)


# -- what was said ------------------------------------------------------------------------------------


def _judged(turn: _Turn, output: list[Any], stop: Any) -> list[Any]:
    """The items of a reply as the guard lets them stand."""
    hosted, cut = turn.hosted, is_cut(stop)
    items = list(output)
    ours = {at for at, item in enumerate(items) if _is_ours(item, turn, cut=cut)}
    # Handoffs, too, so that none shares its id with a call: the SDK would end the run over that.
    asked = {at: _asked(item) for at, item in enumerate(items) if at in ours or item.type == "function_call"}
    heard = hosted.heard(asked.values(), stop)
    if hosted.final and len(kept := [item for item in items if item.type in _SAID]) < len(items):
        # Reasoning belongs to what followed it, which is gone.
        items = [item for item in kept if item.type == "message"]
    led = False
    for at, call in zip(asked, heard, strict=False):
        if at in ours:
            items[at] = _standing(items[at], call, turn)
            led = led or items[at].name == SINK
        elif items[at].call_id != call.id:
            items[at].call_id = call.id
    if led:
        turn.listed.append(sink)
        slot_in_use().sank = True
    if not heard and all(item.type in _SAID for item in items):
        _last_word(turn, items)
    return items


def _is_ours(item: Any, turn: _Turn, *, cut: bool) -> bool:
    """Whether a call is for the guard. Handoffs and tools of other kinds are the SDK's, except of a cut message.

    The SDK would end the run over a handoff whose arguments it cannot take.
    """
    if item.type != "function_call":
        return cut and item.type in _OTHER_CALLS
    handed = turn.handoffs.get(item.name)
    if cut or handed is None:
        return True
    item.arguments, wrong = handed.read(item.arguments, turn.hosted.run.snapshot)
    return bool(wrong)


def _asked(item: Any) -> Asked:
    if item.type == "function_call":
        return Asked(item.call_id, _name(item), item.arguments)
    named = getattr(item, "name", None) or item.type
    return Asked(getattr(item, "call_id", None), named, str(getattr(item, "input", None) or ""))


def _name(item: Any) -> str:
    """The tool's name as the SDK qualifies it; a tool that was loaded late is in a namespace of its own name."""
    space = getattr(item, "namespace", None)
    return f"{space}.{item.name}" if space and space != item.name else str(item.name)


def _standing(item: Any, call: ToolCall, turn: _Turn) -> Any:
    """The item for the SDK: one that it can parse, of a tool that it has."""
    name, known = call.name, call.name in turn.tools
    if item.type == "function_call" and known and not is_cut(call.stop_reason) and is_object(call.arguments):
        if item.call_id != call.id:
            item.call_id = call.id
        return item
    if not known:
        plan = turn.hosted.run.snapshot.find(name)
        spelled = SINK if isinstance(plan, Finding) else plan.contract.name
        name = spelled if spelled in turn.tools else SINK
    text = json.dumps(stand_in(call, name=not known), ensure_ascii=False)
    # Without the id of the item: a server that keeps items would go on with its own copy.
    ident = _NO_ID if getattr(item, "id", None) == _NO_ID else None
    tool = turn.tools.get(name, sink)
    space = item.namespace if known and item.type == "function_call" else tool._tool_namespace  # noqa: SLF001 - public nowhere
    return ResponseFunctionToolCall(
        id=ident, call_id=call.id, name=tool.name, namespace=space, arguments=text, type="function_call"
    )


def _last_word(turn: _Turn, items: list[Any]) -> None:
    """Put into a reply without calls what the user gets to read."""
    message = next((item for item in reversed(items) if item.type == "message"), None)
    if message is not None and any(part.type != "output_text" for part in message.content):
        return  # a refusal is the SDK's to handle
    text = ItemHelpers.extract_text(message) if message is not None else None
    if not turn.plain and (text or not turn.hosted.final):
        return  # a note would break the JSON of a typed answer; the SDK asks again for one that is missing
    word = turn.hosted.last_word(text)
    if word == text:
        return
    part = ResponseOutputText(text=word, annotations=[], type="output_text")
    if message is not None and message.content:
        part = message.content[0].model_copy(update={"text": word})
    if message is None:
        message = ResponseOutputMessage(id=_NO_ID, role="assistant", status="completed", type="message", content=[])
        items.append(message)
    message.content = [part]


def _concluded(turn: _Turn, event: Any, done: list[Any], stop: Any) -> Iterable[Any]:
    """The last events of a stream: text that the reply got at its end, and the reply."""
    response = event.response
    if event.type == "response.incomplete":
        details = getattr(response, "incomplete_details", None)
        reason = getattr(details, "reason", None)
        stop = reason if is_cut(reason) else "incomplete"
        response = response.model_copy(update={"status": "completed"})
    if response.usage is not None:
        _note_usage(turn.hosted, response.usage)
    before = _text_of(response.output or done)
    response.output = _judged(turn, response.output or done, stop)
    after = _text_of(response.output)
    streamed = "" if turn.hosted.final else before
    if after != streamed and after.startswith(streamed):
        at, said = next((at, item) for at, item in enumerate(reversed(response.output), 1) if item.type == "message")
        yield ResponseTextDeltaEvent(
            content_index=0, delta=after[len(streamed) :], item_id=said.id, logprobs=[],
            output_index=len(response.output) - at,
            sequence_number=event.sequence_number, type="response.output_text.delta",
        )  # fmt: skip
    yield ResponseCompletedEvent(response=response, sequence_number=event.sequence_number, type="response.completed")


def _text_of(items: Iterable[Any]) -> str:
    message = next((item for item in reversed(list(items)) if item.type == "message"), None)
    return (ItemHelpers.extract_text(message) or "") if message is not None else ""


def _note_usage(hosted: Hosted, usage: Any) -> None:
    if total := getattr(usage, "total_tokens", 0):
        hosted.run.usage(total)
