"""The model's side of AutoGen: what it is asked, what it said, and why it ended.

AutoGen overwrites the reason for which a reply with calls ended, so it is read at the client below.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from pokayoke.adapters._host.calls import ReplyCall, encode_unreadable_call
from pokayoke.adapters._host.finish_reasons import (
    capture_finish_reasons,
    captured_reply,
    captured_stream,
    cut_or_last,
)
from pokayoke.adapters._host.proxy import Proxy
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.adapters._host.visibility import allowed_tool_choice, is_hidden
from pokayoke.adapters.autogen._run import UNKNOWN_TOOL_NAME, AgentRun
from pokayoke.core.call import Finding, ToolCall
from pokayoke.core.contract.names import history_name
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.errors import MissingExtraError, UsageError

try:
    from autogen_core import FunctionCall
    from autogen_core.models import (
        AssistantMessage,
        ChatCompletionClient,
        CreateResult,
        FunctionExecutionResultMessage,
        SystemMessage,
        UserMessage,
    )
except ImportError as error:
    raise MissingExtraError("autogen-agentchat", "autogen") from error

__all__ = ["GuardedClient"]


class _ModelRequest(NamedTuple):
    """One request, as it is sent."""

    hosted: AdapterRun
    messages: list[Any]
    tools: Sequence[Any]
    choice: Any
    handoffs: frozenset[str]
    typed: bool


class GuardedClient(Proxy, ChatCompletionClient):
    """A model client whose requests and replies go through the guard; for one agent.

    Args:
        inner: the client.
        conversation: the agent's conversation.
    """

    def __init__(self, inner: Any, conversation: AgentRun) -> None:
        """Listen below the client, where that is possible."""
        super().__init__(inner)
        self._conversation = conversation
        if hasattr(inner, "_client"):
            inner._client = capture_finish_reasons(inner._client)  # noqa: SLF001 - the only place where it holds the provider's own

    async def create(
        self,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] = (),
        tool_choice: Any = "auto",
        json_output: Any = None,
        **more: Any,
    ) -> Any:
        """Ask the model once. Errors of the client go through."""
        _raise_if_cancelled(more.get("cancellation_token"))
        turn = self._build_request(messages, tools, tool_choice, json_output)
        asked = self._inner.create(
            turn.messages, tools=turn.tools, tool_choice=turn.choice, json_output=json_output, **more
        )
        reply, stops = await captured_reply(asked)
        return self._take_reply(turn, reply, stops)

    async def create_stream(
        self,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] = (),
        tool_choice: Any = "auto",
        json_output: Any = None,
        **more: Any,
    ) -> AsyncGenerator[Any]:
        """Ask the model once and pass its text on; the last item is the reply as the guard lets it stand."""
        _raise_if_cancelled(more.get("cancellation_token"))
        turn = self._build_request(messages, tools, tool_choice, json_output)
        stops: list[Any] = []
        told = ""
        asked = self._inner.create_stream(
            turn.messages, tools=turn.tools, tool_choice=turn.choice, json_output=json_output, **more
        )
        async with aclosing(captured_stream(asked, stops)) as items:
            async for item in items:
                if isinstance(item, CreateResult):
                    reply = self._take_reply(turn, item, stops)
                    rest = _remaining_text(reply.content, told)
                    if rest:
                        yield rest
                    yield reply
                # Of a reply that may be replaced, nothing is shown before it is known.
                elif not turn.hosted.is_final:
                    told += item
                    yield item

    async def close(self) -> None:
        """Close the client."""
        await self._inner.close()

    def actual_usage(self) -> Any:
        """As the client says."""
        return self._inner.actual_usage()

    def total_usage(self) -> Any:
        """As the client says."""
        return self._inner.total_usage()

    def count_tokens(self, messages: Sequence[Any], *, tools: Sequence[Any] = ()) -> int:
        """As the client says."""
        return int(self._inner.count_tokens(messages, tools=tools))

    def remaining_tokens(self, messages: Sequence[Any], *, tools: Sequence[Any] = ()) -> int:
        """As the client says."""
        return int(self._inner.remaining_tokens(messages, tools=tools))

    @property
    def capabilities(self) -> Any:
        """As the client says."""
        return self._inner.capabilities

    @property
    def model_info(self) -> Any:
        """As the client says."""
        return self._inner.model_info

    def dump_component(self) -> Any:
        """Refuse: what is read back would not be guarded.

        Raises:
            UsageError: always.
        """
        raise UsageError("a guarded agent cannot be dumped: build it in code, and save_state() its conversation")

    # -- a turn --------------------------------------------------------------------------------------

    def _build_request(self, messages: Sequence[Any], tools: Sequence[Any], choice: Any, typed: Any) -> _ModelRequest:
        """Make the request what it has to be."""
        conversation = self._conversation
        conversation.sinks = False
        # Ids of calls that are in the history already, from before a restart, must not be given again.
        hosted = conversation.open_run(_known_ids(messages))
        for text in _user_texts(messages):
            hosted.run.user(text)
        request = hosted.begin_request()
        shown = [_with_original_names(message) for message in messages]
        if request.instruction:
            # Behind the first system messages: many models take no others.
            at = next((at for at, one in enumerate(shown) if not isinstance(one, SystemMessage)), len(shown))
            shown.insert(at, SystemMessage(content=request.instruction))
        shown_tools = [
            tool for tool in tools if _tool_name(tool) != UNKNOWN_TOOL_NAME
        ]  # AutoGen has it, and no model is to call it
        handoffs = frozenset(map(_tool_name, shown_tools)).difference(conversation.tools)
        offered = [] if request.final else [tool for tool in shown_tools if not is_hidden(hosted.run, _tool_name(tool))]
        if choice != "none":
            choice = (offered and allowed_tool_choice(hosted.run, choice)) or "auto"
        return _ModelRequest(hosted, shown, offered, choice, handoffs, isinstance(typed, type))

    def _take_reply(self, turn: _ModelRequest, reply: Any, stops: list[Any]) -> Any:
        """The reply as the guard lets it stand."""
        hosted, stop = turn.hosted, cut_or_last([*stops, reply.finish_reason])
        if total := reply.usage.prompt_tokens + reply.usage.completion_tokens:
            hosted.run.usage(total)
        if isinstance(reply.content, str):
            word = reply.content if turn.typed and reply.content else hosted.final_text(reply.content)
            return reply if word == reply.content else reply.model_copy(update={"content": word})
        asked = [ReplyCall(call.id, call.name, call.arguments or "") for call in reply.content]
        heard = hosted.take_reply(asked, stop)
        if hosted.is_final or turn.choice == "none":
            word = hosted.final_text(reply.thought)
            return reply.model_copy(update={"content": word, "thought": None, "finish_reason": "stop"})
        self._conversation.keep_calls(heard)
        content = [self._framework_call(call, turn) for call in heard]
        self._conversation.sinks = any(call.name == UNKNOWN_TOOL_NAME for call in content)
        return reply.model_copy(update={"content": content})

    def _framework_call(self, call: ToolCall, turn: _ModelRequest) -> Any:
        """The call for AutoGen: one that it can parse, of a tool that it has."""
        text, cut = str(call.arguments), is_cut(call.stop_reason)
        if call.name in turn.handoffs and not cut:
            return FunctionCall(id=call.id, name=call.name, arguments=text if _is_object(text) else "{}")
        known = self._conversation.tools
        if call.name in known and not cut and _is_object(text):
            return FunctionCall(id=call.id, name=call.name, arguments=text)
        name, owned = call.name, call.name in known
        if not owned:
            plan = turn.hosted.run.snapshot.find_plan(name)
            spelled = UNKNOWN_TOOL_NAME if isinstance(plan, Finding) else plan.contract.name
            name = spelled if spelled in known else UNKNOWN_TOOL_NAME
        return FunctionCall(id=call.id, name=name, arguments=json.dumps(encode_unreadable_call(call, name=not owned)))


def _raise_if_cancelled(token: Any) -> None:
    """Raise what the run was cancelled with, here where AutoGen expects it; not every client looks at the token."""
    if token is not None and token.is_cancelled():
        raise asyncio.CancelledError


def _known_ids(messages: Iterable[Any]) -> Iterable[str]:
    for message in messages:
        if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
            yield from (call.id for call in message.content)


def _user_texts(messages: Sequence[Any]) -> list[str]:
    """What was said to the agent since its last word: it begins a turn."""
    texts: list[str] = []
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            content = message.content
            texts.append(content if isinstance(content, str) else "\n".join(p for p in content if isinstance(p, str)))
        elif isinstance(message, (AssistantMessage, FunctionExecutionResultMessage)):
            break
    return texts[::-1]


def _tool_name(tool: Any) -> str:
    return str(tool["name"] if isinstance(tool, dict) else tool.name)


def _with_original_names(message: Any) -> Any:
    """The message with the names that the model wrote, where calls had to be led to the tool that answers them."""
    if type(message) is not AssistantMessage or isinstance(message.content, str):
        return message
    if all(call.name != UNKNOWN_TOOL_NAME for call in message.content):
        return message
    return message.model_copy(update={"content": [_restore_call(call) for call in message.content]})


def _restore_call(call: Any) -> Any:
    try:
        kept = json.loads(call.arguments)[UNKNOWN_TOOL_NAME]
    except (ValueError, KeyError, TypeError):
        return call
    name = history_name(kept.get("name") or "")
    text = kept.get("arguments")
    text = json.dumps(text) if isinstance(text, dict) else text
    return FunctionCall(id=call.id, name=name, arguments=text if _is_object(text) else call.arguments)


def _is_object(text: Any) -> bool:
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _remaining_text(content: Any, told: str) -> str:
    """What of a text was not told yet."""
    return content[len(told) :] if isinstance(content, str) and content.startswith(told) else ""
