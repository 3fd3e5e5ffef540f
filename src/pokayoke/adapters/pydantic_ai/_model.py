"""Pydantic AI's model side: requests, replies, streams and the history.

In: requests and replies of the framework. Out: the same, with names that the framework sends to its hooks, ids of
their own, and a last text that was checked. Never: a call lost or run before the guard knows what the model wrote and
how its message ended.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from operator import is_not
from typing import Any

import pydantic_core
from pydantic import TypeAdapter
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings, ToolOrOutput
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool

from pokayoke.adapters._host.calls import ReplyCall, find_tool_name
from pokayoke.adapters._host.finish_reasons import cut_or_last
from pokayoke.adapters._host.frames import frame_result
from pokayoke.adapters._host.model import ModelSide, chat_messages
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.adapters._host.visibility import OfferedTools, is_hidden
from pokayoke.core.call import ToolCall
from pokayoke.core.context.groups import UNANSWERED
from pokayoke.core.context.open_calls import CallAnswer, has_open_calls
from pokayoke.core.contract.contract import Contract
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.messages.replies import CallIds
from pokayoke.errors import UsageError
from pokayoke.runtime.run.run import Run

_BEDROCK = "bedrock"
_PLACEHOLDER = {"pokayoke": "stranger"}
_NO_TOOLS: AbstractToolset[Any] = FunctionToolset()
_INTERRUPTED = "The tool call was interrupted before a result was produced."
"""What the framework puts in the place of a missing result."""
_ANYTHING = TypeAdapter(Any).validator
_STREAMS_WITH_REASON = frozenset({
    "AnthropicStreamedResponse", "BedrockStreamedResponse", "GeminiStreamedResponse", "GroqStreamedResponse",
    "MistralStreamedResponse", "OpenAIResponsesStreamedResponse",
})  # fmt: skip
"""Classes of streams that always say why they ended."""


class RunModelSide(ModelSide):
    """The requests and replies of one run.

    Args:
        adapter_run: the run.
        on_wire: True to frame the results of the history in each request.

    Attributes:
        response: the latest reply with calls.
        is_streaming: True if the latest request streams its reply.
    """

    def __init__(self, adapter_run: AdapterRun, *, on_wire: bool = False) -> None:
        """Begin before the first request."""
        self.adapter_run, self._on_wire = adapter_run, on_wire
        self.response: ModelResponse | None = None
        self.is_streaming = False
        self._stream: StreamedResponse | None = None
        self._written: dict[str, ToolCall] = {}
        self._silent_replies = 0
        self._context: RunContext[Any]
        self._parameters: ModelRequestParameters

    # -- a request ----------------------------------------------------------------------------------

    async def prepare_messages(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        """Return the messages of a request with framed results, and what the ledger knows of calls without a result.

        The framework itself says of each such call that it was interrupted, of a write that is done, too.
        """
        if self._on_wire:
            messages = [*map(self._frame_results, messages)]
        if not has_open_calls(_as_chats(messages)) or not isinstance(messages[-1], ModelRequest):
            return messages
        repaired = repair_messages(messages)
        answers: defaultdict[str | None, deque[CallAnswer]] = defaultdict(deque)
        for (call, _, _), answer in await self.adapter_run.run.adescribe_open_calls(_as_chats(repaired)):
            answers[call.id].append(answer)

        def fill_part(part: Any) -> Any:
            if not _is_stand_in(part) or not (known := answers[part.tool_call_id]):
                return part
            text, failed = known.popleft()
            return replace(part, content=text, outcome=part.outcome if failed else "success")

        return [replace(one, parts=[*map(fill_part, one.parts)]) for one in repaired]

    def shape_request(self, request: ModelRequestContext, messages: list[ModelMessage]) -> ModelRequestContext:
        """Begin a request: hide tools and add the instruction, or take all tools away, if that is due.

        Args:
            request: the request.
            messages: its messages, as `prepare_messages` returned them.
        """
        shape = self.begin_request(self.adapter_run, history=_as_chats(messages))
        parameters = request.model_request_parameters
        offered = self._visible_tools(parameters.function_tools)
        self.is_streaming, self._stream = request.streaming, None
        changed: dict[str, Any] = {} if messages is request.messages else {"messages": messages}
        if shape.final:
            settings = dict(request.model_settings or {})
            settings.pop("tool_choice", None)  # it may demand a tool that is gone
            gone: list[ToolDefinition] = []
            if _BEDROCK in request.model.system:  # it refuses a history with calls if it is sent no tools
                gone, settings["tool_choice"] = parameters.function_tools, "none"
            changed["model_request_parameters"] = replace(parameters, function_tools=gone, native_tools=[])
            changed["model_settings"] = settings or None
        else:
            if offered is not None:
                changed["model_request_parameters"] = replace(parameters, function_tools=offered)
            if (wanted := request.model_settings) and "tool_choice" in wanted:
                changed["model_settings"] = _settings_without_hidden(self.adapter_run.run, wanted)
        if self._silent_replies or shape.instruction is not None:
            told = [ModelRequest(parts=[UserPromptPart(shape.instruction)])] if shape.instruction else []
            changed["messages"] = [*map(_fill_silent_reply, messages), *told]
        return replace(request, **changed) if changed else request

    def recall_reply(self, messages: list[ModelMessage], response: ModelResponse) -> None:
        """Take up the reply of a history again whose calls are open."""
        before = itertools.takewhile(lambda one: one is not response, messages)
        self.adapter_run.recall_reply((part.tool_call_id for part in response.tool_calls), _as_chats(before))

    def _frame_results(self, message: ModelMessage) -> ModelMessage:
        """Return a message with its results as the model reads them."""
        parts = [self._frame_part(part) if isinstance(part, ToolReturnPart) else part for part in message.parts]
        return replace(message, parts=parts) if any(map(is_not, parts, message.parts)) else message

    def _frame_part(self, part: ToolReturnPart) -> ToolReturnPart:
        """Return a result as the model reads it. One that is no success is a text of the guard or the framework."""
        if part.outcome != "success" or part.files:
            return part
        content = as_json(part.content)
        framed = frame_result(self.adapter_run, part.tool_name, part.tool_call_id, content)
        return part if framed is None else replace(part, content=framed)

    def _visible_tools(self, tools: list[ToolDefinition]) -> list[ToolDefinition] | None:
        """Return the tools as the model may see them in this run; None if they stay as they are."""
        run = self.adapter_run.run
        offered = OfferedTools(run, tools, _contract_name, _define_tool).shown
        shown = [_with_model_schema(tool, run) for tool in offered]
        return None if shown == tools else shown

    # -- a reply ------------------------------------------------------------------------------------

    def observe_stream(self, stream: StreamedResponse) -> None:
        """Keep the stream whose end shows whether the message is whole."""
        self._stream = _keep_cut_reason(stream)

    def take_response(
        self, ctx: RunContext[Any], parameters: ModelRequestParameters, response: ModelResponse
    ) -> ModelResponse:
        """Take a whole reply, see `take_reply`; `parameters` are those of its request."""
        self._context, self._parameters = ctx, parameters
        taken: ModelResponse = self.take_reply(response, self._finish_reason(response))
        return taken

    def total_tokens(self, reply: Any) -> int | None:
        tokens: int = reply.usage.total_tokens
        return tokens

    def calls(self, reply: Any) -> list[ReplyCall]:
        """Return the calls of tools, and of output tools beside them: two calls of a message must not share an id."""
        return [*map(_reply_call, self._answered_calls(reply))] if self._tool_calls(reply) else []

    def _tool_calls(self, reply: ModelResponse) -> list[ToolCallPart]:
        outputs = {tool.name for tool in self._parameters.output_tools}
        return [part for part in reply.parts if isinstance(part, ToolCallPart) and part.tool_name not in outputs]

    def _answered_calls(self, reply: ModelResponse) -> list[ToolCallPart]:
        """Return all calls; those of output tools first, as they keep their ids: a stream has shown these already."""
        outputs = {tool.name for tool in self._parameters.output_tools}
        parts = [part for part in reply.parts if isinstance(part, ToolCallPart)]
        return sorted(parts, key=lambda part: part.tool_name not in outputs)

    def with_calls(self, reply: Any, calls: list[ToolCall]) -> ModelResponse:
        """Return the reply with ids of their own, and names that the framework sends to its hooks."""
        self._silent_replies = 0
        parts = self._answered_calls(reply)
        changed: dict[int, ToolCallPart] = {}
        names = framework_names(self.adapter_run.run, self._context, parts)
        for part, call, name in zip(parts, calls, names, strict=True):
            self._written[call.id] = call
            if (call.id, name) != (part.tool_call_id, part.tool_name):
                changed[id(part)] = replace(part, tool_call_id=call.id, tool_name=name)
        response: ModelResponse = reply
        if changed:
            response = replace(reply, parts=[changed.get(id(part), part) for part in reply.parts])
        self.response = response
        return response

    def without_calls(self, reply: Any) -> Any:
        """Return the reply without calls of tools; those of output tools stay."""
        if not (dropped := set(map(id, self._tool_calls(reply)))):
            return reply
        return replace(reply, parts=[part for part in reply.parts if id(part) not in dropped])

    def text(self, reply: Any) -> str | None:
        """Return the text of a reply, None if it is empty."""
        return "".join(part.content for part in reply.parts if isinstance(part, TextPart)) or None

    def may_change_text(self, reply: Any, text: str | None) -> bool:
        """Return whether the text is the user's answer; the framework itself asks again after one silent reply."""
        if not self.is_final:
            self._silent_replies = self._silent_replies + 1 if _is_silent(reply) else 0
            if self._silent_replies == 1 or not (self._silent_replies or (text or "").strip()):
                return False
        if not _may_answer_text(self._parameters) or any(isinstance(part, ToolCallPart) for part in reply.parts):
            return False
        self._forget_done_elsewhere()
        return True

    def with_text(self, reply: Any, text: str) -> Any:
        """Return the reply with this text after its other parts."""
        return replace(reply, parts=[*(part for part in reply.parts if not isinstance(part, TextPart)), TextPart(text)])

    def _forget_done_elsewhere(self) -> None:
        """Forget refused calls of tools whose latest result, by code that the guard does not see, is a success."""
        unmet, messages = self.adapter_run.run.progress.matters.unmet, self._context.messages
        for tool in [key for key, (name, _) in unmet.items() if key == name and _has_succeeded(messages, name)]:
            del unmet[tool]

    # -- a call -------------------------------------------------------------------------------------

    def original_call(self, ctx: RunContext[Any], part: ToolCallPart) -> ToolCall:
        """Return the call as the model wrote it: from its reply, or from the message of the history that holds it."""
        written = self._written.pop(part.tool_call_id, None)
        if written is not None and written.arguments == _arguments(part):
            return written
        if self._stream is not None and _has_call(now := self._stream.get(), part):
            return _call_in_message(part, self._finish_reason(now))
        found = next((one for one in reversed(ctx.messages) if _has_call(one, part)), None)
        return _call_in_message(part, _finish_reason(found) if found is not None else None)

    def _finish_reason(self, response: ModelResponse) -> str | None:
        return "incomplete" if _has_broken_off(self._stream, response) else _finish_reason(response)


class ObservedModel(WrapperModel):
    """A model whose streams are observed.

    Args:
        wrapped: the model.
        observe: called with each stream before it is read.
    """

    def __init__(self, wrapped: Model, observe: Callable[[StreamedResponse], None]) -> None:
        """Wrap the model."""
        super().__init__(wrapped)
        self._observe = observe

    @asynccontextmanager
    async def request_stream(self, *args: Any, **options: Any) -> AsyncGenerator[StreamedResponse]:
        """Request a stream of the wrapped model, and pass it to the observer."""
        async with self.wrapped.request_stream(*args, **options) as stream:
            self._observe(stream)
            yield stream


# -- the tools of a request ---------------------------------------------------------------------------


def is_framework_tool(tool_def: ToolDefinition) -> bool:
    """Return whether this is a tool of the framework itself: tool search and the loading of capabilities."""
    return tool_def.tool_kind in ("tool-search", "capability-load")


def _contract_name(tool: ToolDefinition) -> str | None:
    return None if is_framework_tool(tool) else tool.name


def _define_tool(contract: Contract) -> ToolDefinition:
    return ToolDefinition(
        name=contract.name, description=contract.description, parameters_json_schema=contract.model_schema
    )


def _with_model_schema(tool: ToolDefinition, run: Run) -> ToolDefinition:
    """Return a tool without the argument that the guard fills in.

    Raises:
        UsageError: there is no contract for it.
    """
    if is_framework_tool(tool):
        return tool
    contract = run.snapshot.find_contract(tool.name)
    if contract is None:
        raise UsageError(
            f"the agent offers {tool.name!r}, and the guard has no contract for it: build one with contracts([...]), "
            "for an MCP server or a wrapped toolset with contracts(await definitions(toolset))"
        )
    return tool if contract.key_argument is None else replace(tool, parameters_json_schema=contract.model_schema)


def _settings_without_hidden(run: Run, settings: ModelSettings) -> ModelSettings:
    """Return settings whose tool choice names no hidden tools, which the framework would refuse.

    A list of names may become empty, and never means "any tool".
    """
    choice = settings.get("tool_choice")
    names = choice.function_tools if isinstance(choice, ToolOrOutput) else choice
    if not isinstance(names, list) or not any(is_hidden(run, name) for name in names):
        return settings
    shown = [name for name in names if not is_hidden(run, name)]
    if isinstance(choice, ToolOrOutput):
        return {**settings, "tool_choice": ToolOrOutput(function_tools=shown)}
    return {**settings, "tool_choice": shown or "none"}


# -- the calls of a reply -----------------------------------------------------------------------------


def calls(reply: ModelResponse, run: Any = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the tool calls of a reply, in order, argument texts as they came.

    Args:
        reply: the result of `pydantic_ai.direct.model_request` or of a model's `request`.
        run: the run they are for.
    """
    ids, reason = CallIds(), _finish_reason(reply)
    return [
        ToolCall(ids.unique_id(part.tool_call_id), part.tool_name, _arguments(part), reason)
        for part in reply.parts
        if isinstance(part, ToolCallPart)
    ]


def framework_names(run: Run, ctx: RunContext[Any], parts: Iterable[ToolCallPart]) -> list[str]:
    """Return the tool names that the framework needs to send the calls of a reply to its hooks.

    A name that means one of its tools becomes that tool's. For any other a placeholder is added for this step, also
    where there is no tool at all: else the framework answers the call itself, and charges its budget of retries.
    """
    tools = ctx.tool_manager.tools if ctx.tool_manager is not None else None
    names = [part.tool_name for part in parts]
    return names if tools is None else [name if name in tools else _framework_name(run, name, tools) for name in names]


def _framework_name(run: Run, name: str, tools: dict[str, ToolsetTool[Any]]) -> str:
    if (known := find_tool_name(run, name, tools)) is not None:
        return known
    placeholder = ToolDefinition(name=name, metadata=_PLACEHOLDER)
    tools[name] = ToolsetTool(toolset=_NO_TOOLS, tool_def=placeholder, max_retries=0, args_validator=_ANYTHING)
    return name


def is_placeholder(tool_def: ToolDefinition) -> bool:
    """Return whether this is the placeholder for an unknown tool."""
    return tool_def.metadata is _PLACEHOLDER


def _reply_call(part: ToolCallPart) -> ReplyCall:
    return ReplyCall(part.tool_call_id, part.tool_name, _arguments(part))


def _arguments(part: ToolCallPart) -> str | dict[str, Any]:
    """Return the arguments of a call as the model wrote them."""
    return "" if part.args is None else part.args


def _call_in_message(part: ToolCallPart, reason: str | None) -> ToolCall:
    """Return a call with the finish reason of the message that holds it."""
    return ToolCall(part.tool_call_id, part.tool_name, _arguments(part), "length" if is_cut(reason) else None)


def _has_call(one: ModelMessage, part: ToolCallPart) -> bool:
    """Return whether a message is the reply that holds a call."""
    return isinstance(one, ModelResponse) and any(
        isinstance(other, ToolCallPart) and other.tool_call_id == part.tool_call_id for other in one.parts
    )


# -- how a reply ended --------------------------------------------------------------------------------


def _finish_reason(response: ModelResponse) -> str | None:
    """Return why a message ended; a reason that proves a cut comes first, wherever the framework keeps it."""
    if response.state in ("incomplete", "interrupted"):
        return "incomplete"
    raw = (response.provider_details or {}).get("finish_reason")
    return raw if is_cut(raw) else response.finish_reason


def _has_broken_off(stream: Any, response: ModelResponse) -> bool:
    """Return whether a stream ended without a reason, where its provider always gives one.

    Args:
        stream: the framework's; None if the reply came whole.
        response: the reply that was built from it.
    """
    if stream is None or (said := getattr(stream, "_has_finish_reason", None)):
        return False
    if said is False:  # for a chat completion the framework then reports a good end itself
        return True
    told = response.finish_reason or (response.provider_details or {}).get("finish_reason")
    return not told and any(kind.__name__ in _STREAMS_WITH_REASON for kind in type(stream).__mro__)


def _keep_cut_reason(stream: Any) -> Any:
    """Make a stream of chat chunks keep a reason that proves a cut: the framework keeps only the last reason."""
    mapped = getattr(stream, "_map_finish_reason", None)
    if mapped is not None:
        told: list[Any] = []

        def map_reason(reason: Any) -> Any:
            told.append(reason)
            return mapped(cut_or_last(told))

        stream._map_finish_reason = map_reason  # noqa: SLF001 - its own place for that
    return stream


# -- the history --------------------------------------------------------------------------------------


def as_json(content: Any) -> Any:
    """Return the content of a result as a history gives it back that was stored."""
    return content if isinstance(content, str) else pydantic_core.to_jsonable_python(content)


def user_text(prompt: Any) -> str:
    """Return the words of a user's prompt."""
    parts = [prompt] if isinstance(prompt, str) else prompt
    words = (part if isinstance(part, str) else getattr(part, "content", None) for part in parts)
    return "\n".join(word for word in words if isinstance(word, str))


def prompt_at_end(messages: list[ModelMessage]) -> list[str] | None:
    """Return the user's prompt at the end of a history; None if the last message is not the user's.

    Beside the result of a tool, a user's part may hold words of the tool.
    """
    parts = messages[-1].parts if messages and isinstance(messages[-1], ModelRequest) else ()
    if any(isinstance(part, (ToolReturnPart, RetryPromptPart)) for part in parts):
        return None
    said = [user_text(part.content) for part in parts if isinstance(part, UserPromptPart)]
    return said or None


def known_ids(messages: list[ModelMessage]) -> frozenset[str]:
    """Return the ids of all calls in a history."""
    return frozenset(part.tool_call_id for one in messages for part in one.parts if isinstance(part, ToolCallPart))


def copy_reply(messages: list[ModelMessage], response: ModelResponse) -> ModelResponse:
    """Replace a reply in a history by a copy that may be changed, and return it; the original is the caller's."""
    own = replace(response, parts=[replace(one) if isinstance(one, ToolCallPart) else one for one in response.parts])
    messages[:] = [own if one is response else one for one in messages]
    return own


def _has_succeeded(messages: Sequence[ModelMessage], tool: str) -> bool:
    """Return whether the latest result of a tool in a history is a success."""
    found = (part for one in reversed(messages) for part in reversed(one.parts))
    results = (part for part in found if isinstance(part, (ToolReturnPart, RetryPromptPart)) and part.tool_name == tool)
    return next((isinstance(one, ToolReturnPart) and one.outcome == "success" for one in results), False)


def _may_answer_text(parameters: ModelRequestParameters) -> bool:
    """Return whether any text may answer the user, and no structure is demanded."""
    return bool(parameters.allow_text_output) and parameters.output_mode in ("text", "tool", "tool_or_text")


def _is_silent(one: ModelMessage) -> bool:
    """Return whether this is a reply without text and without calls."""
    return isinstance(one, ModelResponse) and all(
        isinstance(part, ThinkingPart) or (isinstance(part, TextPart) and not part.content.strip())
        for part in one.parts
    )


def _fill_silent_reply(one: ModelMessage) -> ModelMessage:
    """Return a message, a silent one with a text: providers that demand alternating roles refuse an empty reply."""
    return replace(one, parts=[*one.parts, TextPart("(no answer)")]) if _is_silent(one) else one


def _is_stand_in(part: Any) -> bool:
    """Return whether a part is the framework's own word for a result that is missing."""
    return isinstance(part, ToolReturnPart) and part.outcome == "interrupted" and part.content == _INTERRUPTED


def _as_chats(messages: Iterable[ModelMessage]) -> list[dict[str, Any]]:
    return [part for message in messages for part in _as_chat(message)]


def _as_chat(message: Any) -> Iterator[dict[str, Any]]:
    """Yield a message in the shape of a chat."""
    parts = message.parts
    calls = [(one.tool_call_id, one.tool_name, one.args) for one in parts if isinstance(one, ToolCallPart)]
    results = [
        (one.tool_call_id, UNANSWERED if _is_stand_in(one) else one.content)
        for one in parts
        if isinstance(one, (ToolReturnPart, RetryPromptPart))
    ]
    role = "assistant" if isinstance(message, ModelResponse) else "user"
    said = [one.content for one in parts if isinstance(one, (TextPart, UserPromptPart))]
    return chat_messages(
        role, "\n".join(one if isinstance(one, str) else user_text(one) for one in said), calls, results
    )
