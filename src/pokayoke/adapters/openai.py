"""Plain OpenAI messages: chat completions and responses, with any client that speaks them.

reply = client.chat.completions.create(model=..., messages=messages, tools=run.tools())
messages += history(reply)
messages += [message(outcome) for outcome in run.call_batch(calls(reply, run))]
"""

from __future__ import annotations

from typing import Any

from pokayoke.adapters._host.model_client import OnText, collect_reply, collect_reply_async, import_sdk, request_options
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.messages.answers import result_message
from pokayoke.core.messages.messages import calls_in
from pokayoke.core.messages.replies import read_reply
from pokayoke.core.messages.streams import ChatStream, ResponsesStream, Stream
from pokayoke.runtime.run.run import Run

__all__ = ["AsyncChatModel", "AsyncResponsesModel", "ChatModel", "ResponsesModel", "calls", "history", "message"]


def calls(reply: Any, run: Run | None = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the tool calls of a reply, in order, argument texts as they came.

    Args:
        reply: a chat completion or a response, as the SDK's object or as a dict.
        run: the run they are for.

    Raises:
        UsageError: it is no reply of a model.
    """
    return list(read_reply(reply).calls)


def message(outcome: Outcome, *, responses: bool = False, custom: bool = False) -> dict[str, Any]:
    """Return the message that answers a call.

    Args:
        outcome: the outcome of the call.
        responses: True for the item of the Responses API.
        custom: True there if the call's input was free text (`custom_tool_call`).
    """
    return result_message(outcome, "responses" if responses else "openai", custom=custom)


def history(reply: Any) -> list[dict[str, Any]]:
    """Return the messages or items that a reply adds to the history, every call with an id of its own."""
    return list(read_reply(reply).messages)


class ChatModel:
    """A model for `guard.loop`, at OpenAI or any endpoint that speaks its chat completions.

    Args:
        model: name of the model.
        client: an `openai.OpenAI` client; None makes one from the environment.
        stream: True to stream; no tool starts before the reply is whole.
        on_text: called with each piece of text while it streams.
        options: further arguments of every request, such as `temperature`.

    Raises:
        MissingExtraError: no client was given and the SDK is not installed.
    """

    format = "openai"
    _client_class = "OpenAI"

    def __init__(
        self, model: str, client: Any = None, *, stream: bool = False, on_text: OnText | None = None, **options: Any
    ) -> None:
        """Keep the client and the options of every request."""
        self._client = client if client is not None else getattr(import_sdk("openai"), self._client_class)()
        self._stream, self._on_text = stream, on_text
        self._options = {"model": model, **options}

    def __call__(self, messages: list[Any], tools: list[dict[str, Any]]) -> Any:
        """Send one request. Errors of the client pass through."""
        answer = self._send_request(messages, tools)
        return collect_reply(answer, self._new_stream(), self._on_text) if self._stream else answer

    def _new_stream(self) -> Stream:
        return ChatStream()

    def _send_request(self, messages: list[Any], tools: list[dict[str, Any]]) -> Any:
        streaming = {"stream": True, "stream_options": {"include_usage": True}} if self._stream else {}
        # An empty list of tools is an error at some endpoints.
        offered = {"tools": tools} if tools else self._forbid_tools(messages)
        return self._client.chat.completions.create(
            **{**streaming, **request_options(self._options, tools), **offered}, messages=messages
        )

    def _forbid_tools(self, messages: list[Any]) -> dict[str, Any]:
        """Return tools that may not be called, for proxies to Claude: they refuse a history with calls and no tools.

        Other endpoints get no tools: many that run small models ignore `tool_choice`.
        """
        if "claude" not in str(self._options["model"]).lower():
            return {}
        names = dict.fromkeys(call.name for message in messages for call in calls_in(message))
        known = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names]
        return {"tools": known, "tool_choice": "none"} if known else {}


class AsyncChatModel(ChatModel):
    """`ChatModel` for `await guard.aloop`, with an `openai.AsyncOpenAI` client. Arguments as there."""

    _client_class = "AsyncOpenAI"

    async def __call__(self, messages: list[Any], tools: list[dict[str, Any]]) -> Any:
        """Send one request. Errors of the client pass through."""
        answer = await self._send_request(messages, tools)
        return await collect_reply_async(answer, self._new_stream(), self._on_text) if self._stream else answer


class ResponsesModel(ChatModel):
    """`ChatModel` at the Responses API of OpenAI; the history is a list of its items. Arguments as there."""

    def _new_stream(self) -> Stream:
        return ResponsesStream()

    def _send_request(self, messages: list[Any], tools: list[dict[str, Any]]) -> Any:
        # Without `strict` the API rewrites a schema that has optional fields.
        offered = {"tools": [{"type": "function", "strict": False, **tool["function"]} for tool in tools]}
        streaming = {"stream": True} if self._stream else {}
        return self._client.responses.create(
            **{**streaming, **request_options(self._options, tools)}, input=messages, **(offered if tools else {})
        )


class AsyncResponsesModel(ResponsesModel, AsyncChatModel):
    """`ResponsesModel` for `await guard.aloop`, with an `openai.AsyncOpenAI` client. Arguments as there."""
