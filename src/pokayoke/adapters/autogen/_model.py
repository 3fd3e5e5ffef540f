"""The model's side of AutoGen: requests, replies, and why a reply ended.

In: a model client, and what it returns. Out: the same client, guarded. Never: a call of a cut reply that runs;
AutoGen overwrites the reason for which a reply with calls ended, so it is read at the client below.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    SystemMessage,
    UserMessage,
)

from pokayoke.adapters._host.calls import UNKNOWN_TOOL_NAME, ReplyCall, encode_call, is_plain_object, restore_call
from pokayoke.adapters._host.finish_reasons import (
    capture_finish_reasons,
    captured_reply,
    captured_stream,
    cut_or_last,
)
from pokayoke.adapters._host.frames import frame_result
from pokayoke.adapters._host.model import ModelSide, chat_messages, texts_since_reply
from pokayoke.adapters._host.open_calls import MissingResult, answer_open_calls
from pokayoke.adapters._host.proxy import Proxy, forward
from pokayoke.adapters._host.visibility import allowed_tool_choice, is_hidden
from pokayoke.adapters.autogen._run import AgentRun
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.messages.messages import text_of
from pokayoke.errors import UsageError
from pokayoke.runtime.run.run import Run


def calls(reply: Any, run: Run | None = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the calls of a `CreateResult`, in order, argument texts as they came."""
    if isinstance(reply.content, str):
        return []
    return [ToolCall(call.id, call.name, call.arguments, reply.finish_reason) for call in reply.content]


def message(outcome: Outcome) -> Any:
    """Return the `FunctionExecutionResult` that answers a call."""
    return FunctionExecutionResult(
        content=outcome.text, name=outcome.tool, call_id=outcome.call_id, is_error=not outcome.ok
    )


class GuardedClient(Proxy, ChatCompletionClient):
    """A model client whose requests and replies go through the guard; for one agent.

    Args:
        inner: the client.
        agent_run: the agent's conversation.
    """

    def __init__(self, inner: Any, agent_run: AgentRun) -> None:
        """Observe the provider's own client below it, if it has one."""
        super().__init__(inner)
        self._agent_run = agent_run
        if hasattr(inner, "_client"):
            inner._client = capture_finish_reasons(inner._client)  # noqa: SLF001 - the only place where it holds it

    async def create(self, messages: Sequence[Any], **options: Any) -> Any:
        """Ask the model once. Errors of the client go through."""
        request = await _open_request(self._agent_run, messages, options)
        reply, reasons = await captured_reply(self._inner.create(request.messages, **request.options))
        return request.take_reply(reply, cut_or_last([*reasons, reply.finish_reason]))

    async def create_stream(self, messages: Sequence[Any], **options: Any) -> AsyncGenerator[Any]:
        """Ask the model once and pass its text on; the last item is the reply as the guard lets it stand."""
        request = await _open_request(self._agent_run, messages, options)
        reasons: list[Any] = []
        shown = ""
        asked = self._inner.create_stream(request.messages, **request.options)
        async with aclosing(captured_stream(asked, reasons)) as items:
            async for item in items:
                if isinstance(item, CreateResult):
                    reply = request.take_reply(item, cut_or_last([*reasons, item.finish_reason]))
                    text = reply.content
                    if isinstance(text, str) and text.startswith(shown) and (rest := text[len(shown) :]):
                        yield rest
                    yield reply
                # The text of a final reply may be replaced, so none of it is shown before the reply is whole.
                elif not request.shape.final:
                    shown += item
                    yield item

    close, actual_usage, total_usage = forward("close"), forward("actual_usage"), forward("total_usage")
    count_tokens, remaining_tokens = forward("count_tokens"), forward("remaining_tokens")
    capabilities, model_info = forward("capabilities"), forward("model_info")

    def dump_component(self) -> Any:
        """Refuse: a client that is loaded again would not be guarded.

        Raises:
            UsageError: always.
        """
        raise UsageError("a guarded agent cannot be dumped: build it in code, and save_state() its conversation")


async def _open_request(agent_run: AgentRun, messages: Sequence[Any], options: dict[str, Any]) -> _ModelRequest:
    """Return the request of these messages, with its results framed and a result for each call.

    Raises:
        CancelledError: the run was cancelled; not every client looks at the token itself.
    """
    token = options.get("cancellation_token")
    if token is not None and token.is_cancelled():
        raise asyncio.CancelledError
    if not agent_run.is_open:
        agent_run.adapter_run.reserve_ids(_known_ids(messages))
    if agent_run.on_wire:
        messages = [_frame_results(one, agent_run) for one in messages]
    answered = await answer_open_calls(agent_run.adapter_run, messages, _as_chat, _add_results)
    return _ModelRequest(agent_run, answered, options)


def _frame_results(message: Any, agent_run: AgentRun) -> Any:
    """Return a message with its results as the model reads them. An error is a text of the guard."""
    if type(message) is not FunctionExecutionResultMessage:
        return message

    def frame_one(one: Any) -> Any:
        framed = None if one.is_error else frame_result(agent_run.adapter_run, one.name, one.call_id, one.content)
        return one if framed is None else one.model_copy(update={"content": framed})

    return message.model_copy(update={"content": [*map(frame_one, message.content)]})


def _add_results(missing: list[MissingResult], message: Any) -> Any:
    results = [
        FunctionExecutionResult(content=one.text, name=one.name, call_id=one.call_id, is_error=one.failed)
        for one in missing
    ]
    return FunctionExecutionResultMessage(content=[*results, *(message.content if message is not None else ())])


class _ModelRequest(ModelSide):
    """One request and its reply, a `CreateResult`.

    Attributes:
        messages: the history, as it is sent.
        options: the client's other arguments, as they are sent.
    """

    __slots__ = ("_agent_run", "_handoffs", "_is_typed", "messages", "options")

    def __init__(self, agent_run: AgentRun, messages: Sequence[Any], options: dict[str, Any]) -> None:
        """Shape the request."""
        self._agent_run, self._is_typed = agent_run, isinstance(options.get("json_output"), type)
        agent_run.has_unknown_calls = False
        said = map(_role_and_text, reversed(messages))
        history = [part for message in messages for part in _as_chat(message)]
        shape = self.begin_request(agent_run.adapter_run, user_texts=texts_since_reply(said), history=history)
        run = self.adapter_run.run
        self.messages = [*map(_with_original_names, messages)]
        if shape.instruction:
            # After the first system messages: many models take no others.
            at = next((at for at, one in enumerate(messages) if not isinstance(one, SystemMessage)), len(messages))
            self.messages.insert(at, SystemMessage(content=shape.instruction))
        # AutoGen lists the tool that answers unknown calls, and no model may call it.
        known = {name: tool for tool in options.get("tools", ()) if (name := _tool_name(tool)) != UNKNOWN_TOOL_NAME}
        self._handoffs = known.keys() - set(agent_run.tools)
        offered = [] if shape.final else [tool for name, tool in known.items() if not is_hidden(run, name)]
        choice = options.get("tool_choice", "auto")
        if choice != "none":
            choice = (offered and allowed_tool_choice(run, choice)) or "auto"
        self.options = {**options, "tools": offered, "tool_choice": choice}

    @property
    def is_final(self) -> bool:
        return self.shape.final or self.options["tool_choice"] == "none"

    def total_tokens(self, reply: Any) -> int | None:
        return int(reply.usage.prompt_tokens + reply.usage.completion_tokens)

    def calls(self, reply: Any) -> list[ReplyCall]:
        if isinstance(reply.content, str):
            return []
        return [ReplyCall(call.id, call.name, call.arguments or "") for call in reply.content]

    def with_calls(self, reply: Any, calls: list[ToolCall]) -> Any:
        self._agent_run.keep_calls(calls)
        content = [self._framework_call(call) for call in calls]
        self._agent_run.has_unknown_calls = any(call.name == UNKNOWN_TOOL_NAME for call in content)
        return reply.model_copy(update={"content": content})

    def without_calls(self, reply: Any) -> Any:
        if isinstance(reply.content, str):
            return reply
        return reply.model_copy(update={"content": reply.thought, "thought": None, "finish_reason": "stop"})

    def text(self, reply: Any) -> str | None:
        text: str | None = reply.content
        return text

    def may_change_text(self, reply: Any, text: str | None) -> bool:  # noqa: ARG002 - the base class's signature
        return not (self._is_typed and text)

    def with_text(self, reply: Any, text: str) -> Any:
        return reply.model_copy(update={"content": text})

    def _framework_call(self, call: ToolCall) -> Any:
        """Return the call for AutoGen: one that it can parse, of a tool that it has."""
        if call.name in self._handoffs and not is_cut(call.stop_reason):
            arguments = call.arguments if is_plain_object(call.arguments) else "{}"
            return FunctionCall(id=call.id, name=call.name, arguments=arguments)
        name, arguments = encode_call(self.adapter_run.run, call, self._agent_run.tools)
        return FunctionCall(id=call.id, name=name, arguments=arguments)


def _tool_name(tool: Any) -> str:
    return str(tool["name"] if isinstance(tool, dict) else tool.name)


def _known_ids(messages: Sequence[Any]) -> Iterator[str]:
    for one in messages:
        if type(one) is AssistantMessage and not isinstance(one.content, str):
            yield from (call.id for call in one.content)


def _as_chat(message: Any) -> Iterator[dict[str, Any]]:
    """Yield a message in the shape of a chat."""
    content = message.content
    parts = content if isinstance(content, list) else []
    calls = [(one.id, one.name, one.arguments) for one in parts if isinstance(one, FunctionCall)]
    results = [(one.call_id, one.content) for one in parts if isinstance(one, FunctionExecutionResult)]
    is_user, text = isinstance(message, UserMessage), content if isinstance(content, str) else text_of(message)
    is_said = is_user or isinstance(message, AssistantMessage)
    return chat_messages("user" if is_user else "assistant", text if is_said else "", calls, results)


def _role_and_text(one: Any) -> tuple[str | None, str]:
    """Return role and text of a message, for `texts_since_reply`."""
    if isinstance(one, UserMessage):
        return "user", text_of(one)
    return ("reply" if isinstance(one, (AssistantMessage, FunctionExecutionResultMessage)) else None), ""


def _with_original_names(one: Any) -> Any:
    """Return a message with the names that the model wrote, of calls that were sent to `UNKNOWN_TOOL_NAME`."""
    if type(one) is not AssistantMessage or isinstance(one.content, str):
        return one
    if all(call.name != UNKNOWN_TOOL_NAME for call in one.content):
        return one
    return one.model_copy(update={"content": [*map(_restore_call, one.content)]})


def _restore_call(call: Any) -> Any:
    name, arguments = restore_call(call.name, call.arguments)
    return FunctionCall(id=call.id, name=name, arguments=arguments)
