"""Listens at an OpenAI client for why a reply ended, on behalf of models that do not keep it.

The SDK's own models take a client; they get one that is the same, but for two methods that look at what comes back.
Of models over another client (LiteLLM and the like) nothing is heard, and nothing is changed.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, AsyncIterator
from contextvars import ContextVar
from typing import Any

from pokayoke.errors import MissingExtraError

try:
    from agents import OpenAIChatCompletionsModel, OpenAIResponsesModel
except ImportError as error:
    raise MissingExtraError("openai-agents", "openai-agents") from error

__all__ = ["STOPS", "listening", "overheard"]

STOPS: ContextVar[list[Any] | None] = ContextVar("pokayoke_openai_agents_stops", default=None)
"""Where the reasons go that are heard during a request."""
_BROKEN = "incomplete"


def listening(model: Any) -> Any:
    """Return the model over a client that is listened to; the model itself if it has none that we know."""
    if not isinstance(model, (OpenAIChatCompletionsModel, OpenAIResponsesModel)):
        return model
    client = getattr(model, "_client", None)
    if client is None or isinstance(client, _Client):
        return model
    heard = copy.copy(model)
    heard._client = _Client(client)  # noqa: SLF001 - the only place where a model holds its client
    return heard


async def overheard(events: Any, stops: list[Any]) -> AsyncGenerator[Any]:
    """Pass events on. The request is made with the first of them, and only then is somebody listening."""
    source = aiter(events)
    try:
        token = STOPS.set(stops)
        try:
            first = await anext(source, None)
        finally:
            STOPS.reset(token)
        if first is not None:
            yield first
            async for event in source:
                yield event
    finally:
        if hasattr(source, "aclose"):
            await source.aclose()


class _Around:
    """Something of the client's, with everything it has."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Client(_Around):
    @property
    def chat(self) -> _Chat:
        return _Chat(self._inner.chat)

    @property
    def responses(self) -> _Responses:
        return _Responses(self._inner.responses)

    def with_options(self, **options: Any) -> _Client:
        """The SDK turns the client's own retries off with this."""
        return _Client(self._inner.with_options(**options))


class _Chat(_Around):
    @property
    def completions(self) -> _Completions:
        return _Completions(self._inner.completions)


class _Completions(_Around):
    async def create(self, **asked: Any) -> Any:
        reply = await self._inner.create(**asked)
        stops = STOPS.get()
        if stops is None:
            return reply
        if not hasattr(reply, "choices"):
            return _Chunks(reply, stops)
        for choice in reply.choices[:1]:
            _choice(choice, stops)
            _readable(choice.message.tool_calls)
        return reply


class _Responses(_Around):
    async def create(self, **asked: Any) -> Any:
        reply = await self._inner.create(**asked)
        stops = STOPS.get()
        if stops is not None and getattr(reply, "status", None) == "incomplete":
            stops.append(getattr(reply.incomplete_details, "reason", None) or _BROKEN)
            reply.status = "completed"  # the SDK would raise; the guard answers the calls instead
        return reply


class _Chunks(_Around):
    """A stream of chunks; one that ends without a reason broke off."""

    def __init__(self, inner: Any, stops: list[Any]) -> None:
        super().__init__(inner)
        self._stops = stops

    async def __aiter__(self) -> AsyncIterator[Any]:
        ended = False
        async for chunk in self._inner:
            for choice in (chunk.choices or ())[:1]:
                ended = ended or choice.finish_reason is not None
                _choice(choice, self._stops)
            yield chunk
        if not ended:
            self._stops.append(_BROKEN)


def _choice(choice: Any, stops: list[Any]) -> None:
    """Note why it ended, and make it something the SDK does not raise at: the guard says what becomes of it."""
    if choice.finish_reason is not None:
        stops.append(choice.finish_reason)
    if choice.finish_reason == "length":
        choice.finish_reason = "stop"


def _readable(calls: Any) -> None:
    """Give calls without an id, a name or a text empty ones: the SDK's types refuse None, and the reply were lost."""
    for call in calls or ():
        call.id = call.id or ""
        if (function := getattr(call, "function", None)) is not None:
            function.name, function.arguments = function.name or "", function.arguments or ""
