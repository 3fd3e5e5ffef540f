"""Plain OpenAI messages: chat completions and responses, with any client that speaks them.

reply = client.chat.completions.create(model=..., messages=messages, tools=run.tools())
messages += history(reply)
messages += [message(outcome) for outcome in run.call_batch(calls(reply, run))]
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.replies import answered, spoken
from pokayoke.core.streams import ChatStream
from pokayoke.errors import MissingExtraError

if TYPE_CHECKING:
    from pokayoke.runtime.run import Run

__all__ = ["AsyncChatModel", "ChatModel", "calls", "history", "message"]

OnText = Callable[[str], object]


def calls(reply: Any, run: Run | None = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the tool calls of a reply, in order, argument texts as they came.

    Args:
        reply: a chat completion or a response, as the SDK's object or as a dict.
        run: the run they are for.

    Raises:
        UsageError: it is no reply of a model.
    """
    return list(spoken(reply).calls)


def message(outcome: Outcome, *, responses: bool = False) -> dict[str, Any]:
    """Return the message that answers a call; with `responses`, the item for the Responses API."""
    return answered(outcome, "responses" if responses else "openai")


def history(reply: Any) -> list[dict[str, Any]]:
    """Return what a reply adds to the history: its message (or items), every call with an id of its own."""
    return list(spoken(reply).messages)


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

    def __init__(
        self, model: str, client: Any = None, *, stream: bool = False, on_text: OnText | None = None, **options: Any
    ) -> None:
        """Keep what every request needs."""
        self._client = client if client is not None else _sdk().OpenAI()
        self._stream, self._on_text = stream, on_text
        self._options = _options(model, options, stream=stream)

    def __call__(self, messages: list[Any], tools: list[dict[str, Any]]) -> Any:
        """Ask the model once. Errors of the client go through."""
        answer = self._client.chat.completions.create(**_request(self._options, messages, tools))
        if not self._stream:
            return answer
        whole = ChatStream()
        with answer:
            for chunk in answer:
                _heard(whole.add(chunk), self._on_text)
        return whole.reply()


class AsyncChatModel:
    """`ChatModel` for `await guard.aloop`, with an `openai.AsyncOpenAI` client."""

    format = "openai"

    def __init__(
        self, model: str, client: Any = None, *, stream: bool = False, on_text: OnText | None = None, **options: Any
    ) -> None:
        """Keep what every request needs. Arguments as in `ChatModel`."""
        self._client = client if client is not None else _sdk().AsyncOpenAI()
        self._stream, self._on_text = stream, on_text
        self._options = _options(model, options, stream=stream)

    async def __call__(self, messages: list[Any], tools: list[dict[str, Any]]) -> Any:
        """Ask the model once. Errors of the client go through."""
        answer = await self._client.chat.completions.create(**_request(self._options, messages, tools))
        if not self._stream:
            return answer
        whole = ChatStream()
        async with answer:
            async for chunk in answer:
                _heard(whole.add(chunk), self._on_text)
        return whole.reply()


def _sdk() -> Any:
    try:
        return importlib.import_module("openai")
    except ImportError as error:
        raise MissingExtraError("openai", "openai") from error


def _options(model: str, options: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    streaming = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    return {"model": model, **streaming, **options}


def _request(options: dict[str, Any], messages: list[Any], tools: list[dict[str, Any]]) -> dict[str, Any]:
    # An empty list of tools is an error at some endpoints.
    return {**options, "messages": messages, **({"tools": tools} if tools else {})}


def _heard(text: str, on_text: OnText | None) -> None:
    if text and on_text is not None:
        on_text(text)
