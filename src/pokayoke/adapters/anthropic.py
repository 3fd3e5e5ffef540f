"""Plain Anthropic messages.

reply = client.messages.create(model=..., max_tokens=..., messages=messages, tools=run.tools("anthropic"))
messages += history(reply)
messages += results(run.call_batch(calls(reply, run)))
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from pokayoke.adapters._host.model_client import OnText, collect_reply, collect_reply_async, import_sdk, request_options
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.json.values import read_field
from pokayoke.core.messages.answers import result_message, result_messages
from pokayoke.core.messages.messages import text_of
from pokayoke.core.messages.replies import read_reply
from pokayoke.core.messages.streams import AnthropicStream
from pokayoke.runtime.run.run import Run

__all__ = ["AsyncMessagesModel", "MessagesModel", "calls", "history", "message", "results"]


def calls(reply: Any, run: Run | None = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the tool calls of a message, in order.

    The API gives arguments as objects. Of a streamed message, pass the result of `AnthropicStream`: the SDK's own
    helper silently completes a text that was cut.

    Args:
        reply: a message, as the SDK's object or as a dict.
        run: the run they are for.

    Raises:
        UsageError: it is no reply of a model.
    """
    return list(read_reply(reply).calls)


def message(outcome: Outcome) -> dict[str, Any]:
    """Return the message that answers one call. Several calls of one reply need one message: see `results`."""
    return {"role": "user", "content": [result_message(outcome, "anthropic")]}


def results(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return the one message that answers all calls of a reply; an empty list if there were none."""
    return result_messages(outcomes, "anthropic")


def history(reply: Any) -> list[dict[str, Any]]:
    """Return the message that a reply adds to the history, every call with an id of its own."""
    return list(read_reply(reply).messages)


class MessagesModel:
    """A model for `guard.loop`, at Anthropic or an endpoint that speaks its messages.

    Args:
        model: name of the model.
        client: an `anthropic.Anthropic` client; None makes one from the environment.
        max_tokens: most tokens of one reply; the API demands a limit.
        stream: True to stream; no tool starts before the reply is whole.
        on_text: called with each piece of text while it streams.
        options: further arguments of every request.

    Raises:
        MissingExtraError: no client was given and the SDK is not installed.
    """

    format = "anthropic"
    _client_class = "Anthropic"

    def __init__(
        self,
        model: str,
        client: Any = None,
        *,
        max_tokens: int = 4_096,
        stream: bool = False,
        on_text: OnText | None = None,
        **options: Any,
    ) -> None:
        """Keep the client and the options of every request."""
        self._client = client if client is not None else getattr(import_sdk("anthropic"), self._client_class)()
        self._stream, self._on_text = stream, on_text
        self._options = {"model": model, "max_tokens": max_tokens, "stream": stream, **options}

    def __call__(self, messages: list[Any], tools: list[dict[str, Any]]) -> Any:
        """Send one request. Errors of the client pass through."""
        answer = self._client.messages.create(**_build_request(self._options, messages, tools))
        return collect_reply(answer, AnthropicStream(), self._on_text) if self._stream else answer


class AsyncMessagesModel(MessagesModel):
    """`MessagesModel` for `await guard.aloop`, with an `anthropic.AsyncAnthropic` client. Arguments as there."""

    _client_class = "AsyncAnthropic"

    async def __call__(self, messages: list[Any], tools: list[dict[str, Any]]) -> Any:
        """Send one request. Errors of the client pass through."""
        answer = await self._client.messages.create(**_build_request(self._options, messages, tools))
        return await collect_reply_async(answer, AnthropicStream(), self._on_text) if self._stream else answer


def _build_request(options: dict[str, Any], messages: list[Any], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the arguments of a request; the API takes the system prompt as one of them."""
    system = [text_of(one) for one in messages if read_field(one, "role") == "system"]
    others = [one for one in messages if read_field(one, "role") != "system"]
    given = cast("str | None", options.get("system"))
    texts = [text for text in (given, *system) if text]
    beside = {"system": "\n\n".join(texts)} if texts else {}
    return {**request_options(options, tools), **beside, "messages": others, **({"tools": tools} if tools else {})}
