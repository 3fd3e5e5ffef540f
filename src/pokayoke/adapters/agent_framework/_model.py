"""The model's side of Microsoft Agent Framework: what a request asks, and what its reply becomes.

In: the options of a request, and a whole reply or a stream. Out: the same, as the guard lets them stand. Never: a call
of a stream that the framework gets before the reply is whole.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from agent_framework import ChatResponse, ChatResponseUpdate, Content, FunctionTool, Message, ResponseStream

from pokayoke.adapters._host.calls import ReplyCall, effective_call, find_tool_name
from pokayoke.adapters._host.finish_reasons import cut_or_last
from pokayoke.adapters._host.model import ModelSide, chat_messages
from pokayoke.adapters._host.open_calls import MissingResult, answer_open_calls
from pokayoke.adapters._host.run import AdapterRun, PendingCall
from pokayoke.adapters._host.visibility import OfferedTools, allowed_tool_choice, paging_tool
from pokayoke.adapters.agent_framework._run import (
    AgentRun,
    AgentRuns,
    call_arguments,
    is_local_call,
    readable_arguments,
)
from pokayoke.adapters.agent_framework._tools import Placeholder, frame_content
from pokayoke.core.call import ToolCall
from pokayoke.core.contract.names import history_name
from pokayoke.errors import UsageError
from pokayoke.runtime.run.run import Run

# Modules of providers whose streams always say why they ended.
_STREAMS_WITH_REASON = ("openai.", "anthropic.")
_TOOL_OPTIONS = frozenset({"tools", "tool_choice", "allow_multiple_tool_calls"})


def calls(reply: Any, run: Run | None = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the tool calls of a chat or agent response, in order, argument texts as they came."""
    proof = getattr(reply, "finish_reason", None)
    found = filter(is_local_call, _contents_of(reply))
    return [ToolCall(one.call_id or "", one.name or "", call_arguments(one), proof) for one in found]


class ModelRequest(ModelSide):
    """One request and its reply, a `ChatResponse`.

    Attributes:
        options: of the request, as they are sent.
        added: contents that the reply got: its calls, or a text. A stream has shown the rest already.
    """

    __slots__ = ("_agent_run", "_calls", "_is_typed", "_runs", "_tools_off", "added", "options")

    def __init__(
        self, runs: AgentRuns, agent_run: AgentRun, options: Mapping[str, Any], messages: Iterable[Any]
    ) -> None:
        """Shape the request.

        Args:
            runs: the runs of the agent.
            agent_run: what the request belongs to.
            options: of the request, as the framework made them.
            messages: the history that it carries; of one that the service keeps, only its end.
        """
        self._runs, self._agent_run = runs, agent_run
        texts, agent_run.user_texts = agent_run.user_texts, []
        history = None if _is_kept(options) else [part for message in messages for part in _as_chat(message)]
        shape = self.begin_request(agent_run.adapter_run, user_texts=texts, history=history)
        # The framework itself takes the tools away at the end of its own budgets.
        self._tools_off = options.get("tool_choice") == "none"
        self._is_typed = options.get("response_format") is not None
        self._calls: list[Any] = []
        self.added: list[Any] = []
        tools = agent_run.tools
        shown = self._visible_tools()
        final = shape.final or (not shown and bool(tools))
        self.options = options
        if not final and shape.instruction is None and shown is tools:
            return
        changed = {key: value for key, value in options.items() if not final or key not in _TOOL_OPTIONS}
        if not final and shown is not tools:
            changed["tools"] = shown
            choice = allowed_tool_choice(self.adapter_run.run, changed.pop("tool_choice", None))
            changed.update({} if choice is None else {"tool_choice": choice})
        if shape.instruction is not None:
            # As an instruction it is part of this request alone, even where the service keeps the messages.
            changed["instructions"] = _join_instructions(options.get("instructions"), shape.instruction)
        self.options = changed

    def _visible_tools(self) -> list[Any]:
        """Return the tools that the model may see; the framework's own list if that is all of them."""
        run, tools = self.adapter_run.run, self._agent_run.tools
        offered = self._agent_run.offered
        if offered is None or not offered.is_current(run, tools):
            tools[:] = [tool for tool in tools if not isinstance(tool, Placeholder)]
            if (more := paging_tool(run)) is not None and all(tool.name != more.name for tool in tools):
                tools.append(Placeholder(more.name, description=more.description, input_model=dict(more.input_schema)))
            offered = self._agent_run.offered = OfferedTools(run, tools, _contract_name)
        # Another list than the framework's own: hidden tools can still be called, and are refused.
        return [*offered.shown] if offered.hidden else tools

    @property
    def is_final(self) -> bool:
        return self.shape.final or self._tools_off

    def take_reply(self, reply: Any, stop_reason: object = None) -> Any:
        """Take the whole reply; changes it in place, and ends the user's request with the last one."""
        reply = super().take_reply(reply, stop_reason)
        if (self.is_final or not self._calls) and not _asks_person(reply):
            self._runs.end_agent_run(self._agent_run)
        return reply

    def total_tokens(self, reply: Any) -> int | None:
        tokens: int | None = (reply.usage_details or {}).get("total_token_count")
        return tokens

    def calls(self, reply: Any) -> list[ReplyCall]:
        self._calls = [*filter(is_local_call, _contents_of(reply))]
        return [ReplyCall(one.call_id or None, one.name or "", call_arguments(one)) for one in self._calls]

    def with_calls(self, reply: Any, calls: list[ToolCall]) -> Any:
        """Give each call an id, arguments that the framework's parser takes, and a tool that answers it."""
        run, tools = self.adapter_run.run, self._agent_run.tools
        names = {tool.name for tool in tools if isinstance(tool, FunctionTool)}
        for content, call in zip(self._calls, calls, strict=True):
            content.call_id = call.id
            content.id = uuid.uuid4().hex  # a provider's own may come again, in this reply or in another session's
            content.arguments, said = readable_arguments(call)
            if (effective := effective_call(run, call, said)) is not None:
                # The framework, its middleware and a person judge a call before the guard does.
                content.arguments, said = effective[1], copy.deepcopy(effective[1])
            self._runs.keep_call(content.id, PendingCall(self.adapter_run, call, said))
            if call.name not in names:
                content.name = find_tool_name(run, call.name, names) or history_name(call.name)
            if content.name not in names:
                names.add(content.name)
                tools.append(Placeholder(content.name))
        self.added = self._calls
        return reply

    def without_calls(self, reply: Any) -> Any:
        if self._calls and not _asks_person(reply):
            _drop_calls(reply)
        return reply

    def text(self, reply: Any) -> str | None:
        return "\n".join(one.text for one in _contents_of(reply) if one.type == "text" and one.text)

    def may_change_text(self, reply: Any, text: str | None) -> bool:
        # Text after a typed answer would break it for the caller who parses it.
        return not _asks_person(reply) and not (self._is_typed and text and text.strip())

    def with_text(self, reply: Any, text: str) -> Any:
        written = self.text(reply) or ""
        self.added = [Content.from_text(text.removeprefix(written) if written.strip() else text)]
        _last_contents(reply).extend(self.added)
        return reply

    def wrap_stream(self, inner: Any) -> Any:
        """Return a stream that passes text on as it comes, and calls when the reply is whole."""
        response: Any = None

        async def stream_updates() -> AsyncIterator[ChatResponseUpdate]:
            nonlocal response
            items: list[Any] = []
            reasons: list[Any] = []
            message: str | None = None
            async with inner:
                async for update in inner:
                    items.extend(_call_items(update))
                    if update.finish_reason is not None:
                        reasons.append(update.finish_reason)
                    message = update.message_id or message
                    yield _without_calls(update)
                response = await inner.get_final_response()
            _restore_calls(response, items)
            self.take_reply(response, cut_or_last(reasons) or _unstated_reason(response))
            if self.added:
                ident, contents = response.response_id, list(map(copy.copy, self.added))
                # Under the id of what came before it, so that a reader of the stream sees one message.
                yield ChatResponseUpdate(
                    contents=contents, role="assistant", response_id=ident, message_id=message or ident
                )

        return ResponseStream(stream_updates(), finalizer=lambda _: response)


def _is_kept(options: Mapping[str, Any]) -> bool:
    """Return whether the service keeps the messages of a request."""
    return options.get("conversation_id") is not None or bool(options.get("store"))


def frame_messages(adapter_run: AdapterRun, options: Mapping[str, Any], messages: Iterable[Any]) -> list[Any]:
    """Return the messages of a request with the results as the model reads them.

    Raises:
        UsageError: the service keeps the messages, and the request does not say whose results it brings.
    """
    if _is_kept(options):
        raise UsageError(
            'frame="wire" frames the results of the history in each request, and a service that keeps the messages is '
            'sent no history: leave out conversation_id and store, or take frame="history"'
        )
    known = list(messages)
    calls = [one for message in known for one in message.contents if one.type == "function_call"]
    names = {one.call_id: one.name for one in calls}

    def frame_message(message: Any) -> Any:
        contents = [frame_content(adapter_run, names.get(one.call_id, ""), one) for one in message.contents]
        if contents == message.contents:
            return message
        framed = copy.copy(message)
        framed.contents = contents
        return framed

    return [*map(frame_message, known)]


async def answer_messages(
    adapter_run: AdapterRun, options: Mapping[str, Any], messages: Sequence[Any]
) -> Sequence[Any]:
    """Return the messages of a request with a result for each call; of a history that the service keeps as they are."""
    return messages if _is_kept(options) else await answer_open_calls(adapter_run, messages, _as_chat, _add_results)


def _add_results(missing: list[MissingResult], message: Any) -> Any:
    results = [Content.from_function_result(one.call_id, result=one.text) for one in missing]
    return Message("tool", [*results, *(message.contents if message is not None else ())])


def _unstated_reason(response: ChatResponse) -> str | None:
    """Return "incomplete" for a stream that ended without a reason, of a provider that always gives one."""
    raw: Any = response.raw_representation
    seen = raw if isinstance(raw, list) else [raw]
    return "incomplete" if any(type(one).__module__.startswith(_STREAMS_WITH_REASON) for one in seen) else None


def _call_items(update: Any) -> Iterable[Any]:
    """Return the call that an event of the Responses API holds: the framework merges those that share an id."""
    event = update.raw_representation
    if getattr(event, "type", None) != "response.output_item.done":
        return ()
    return (event.item,) if getattr(event.item, "type", None) == "function_call" else ()


def _restore_calls(response: Any, items: list[Any]) -> None:
    """Put back the calls of a stream that the framework merged or dropped because they share an id or have none."""
    contents = _contents_of(response)
    hosted = {one.name for one in contents if one.type == "function_call" and not is_local_call(one)}
    items = [item for item in items if item.name not in hosted]
    if len(items) <= sum(map(is_local_call, contents)):
        return
    _drop_calls(response)
    _last_contents(response).extend(
        Content.from_function_call(item.call_id or "", item.name, arguments=item.arguments) for item in items
    )


def _contract_name(tool: Any) -> str | None:
    return tool.name if isinstance(tool, FunctionTool) else None


def _drop_calls(response: Any) -> None:
    for message in response.messages:
        message.contents = [one for one in message.contents if not is_local_call(one)]


def _last_contents(response: Any) -> list[Any]:
    """Return the contents of the last message, made if there is none."""
    if not response.messages:
        response.messages = [Message("assistant", [])]
    response.messages[-1].contents = list(response.messages[-1].contents)
    return response.messages[-1].contents  # type: ignore[no-any-return]  # the framework is Any here


def _asks_person(response: Any) -> bool:
    return any(one.type == "function_approval_request" for one in _contents_of(response))


def _without_calls(update: Any) -> Any:
    if not any(map(is_local_call, update.contents)):
        return update
    rest = copy.copy(update)
    rest.contents = [one for one in update.contents if not is_local_call(one)]
    return rest


def _contents_of(response: Any) -> list[Any]:
    return [one for message in response.messages for one in message.contents]


def _join_instructions(instructions: Any, more: str) -> Any:
    if not instructions:
        return more
    return f"{instructions}\n{more}" if isinstance(instructions, str) else [*instructions, more]


def _as_chat(message: Any) -> Iterator[dict[str, Any]]:
    """Yield a message in the shape of a chat."""
    parts = message.contents
    calls = [(one.call_id, one.name, call_arguments(one)) for one in filter(is_local_call, parts)]
    results = [(one.call_id, one.result) for one in parts if one.type == "function_result"]
    return chat_messages("user" if message.role == "user" else "assistant", message.text or "", calls, results)
