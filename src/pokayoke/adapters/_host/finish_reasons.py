"""Listens at an OpenAI client for why a reply ended, on behalf of frameworks that do not keep it.

A framework's own model takes a client; it gets one that is the same, but for the methods that ask the model: they
look at what comes back. While nobody listens, nothing is changed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

from pokayoke.core.intake.stop_reasons import is_cut

__all__ = ["CAPTURED_REASONS", "Proxy", "capture_finish_reasons", "captured_stream", "cut_or_last"]

CAPTURED_REASONS: ContextVar[list[Any] | None] = ContextVar("pokayoke_stops", default=None)
"""Where the reasons go that are heard during a request; None if nobody listens."""
_INCOMPLETE = "incomplete"


def capture_finish_reasons(client: Any) -> Any:
    """Return a client of the OpenAI SDK that is listened to; anything else stays what it is."""
    known = type(client).__module__.partition(".")[0] == "openai"
    return _Client(client) if known else client


async def captured_stream(events: Any, stops: list[Any]) -> AsyncGenerator[Any]:
    """Pass events on. The request is made with the first of them, and only then is somebody listening."""
    source = aiter(events)
    try:
        token = CAPTURED_REASONS.set(stops)
        try:
            first = await anext(source, None)
        finally:
            CAPTURED_REASONS.reset(token)
        if first is not None:
            yield first
            async for event in source:
                yield event
    finally:
        if hasattr(source, "aclose"):
            await source.aclose()


def cut_or_last(stops: list[Any]) -> Any:
    """Return the reason that counts: one that proves a cut, if there is one, else the last."""
    return next((stop for stop in stops if is_cut(stop)), stops[-1]) if stops else None


class Proxy:
    """Stands before an object and hands on everything it does not do itself."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # not yet there, as while it is copied
            raise AttributeError(name)
        return getattr(self._inner, name)


class _Client(Proxy):
    @property
    def chat(self) -> _Chat:
        return _Chat(self._inner.chat)

    @property
    def beta(self) -> _Beta:
        return _Beta(self._inner.beta)

    @property
    def responses(self) -> _Responses:
        return _Responses(self._inner.responses)

    def with_options(self, **options: Any) -> _Client:
        """Frameworks turn the client's own retries off with this."""
        return _Client(self._inner.with_options(**options))


class _Beta(Proxy):
    @property
    def chat(self) -> _Chat:
        return _Chat(self._inner.chat)


class _Chat(Proxy):
    @property
    def completions(self) -> _Completions:
        return _Completions(self._inner.completions)


class _Completions(Proxy):
    async def create(self, **asked: Any) -> Any:
        reply = await self._inner.create(**asked)
        stops = CAPTURED_REASONS.get()
        if stops is None:
            return reply
        return _capture_reply(reply, stops) if hasattr(reply, "choices") else _ChunkStream(reply, stops)

    async def parse(self, **asked: Any) -> Any:
        stops = CAPTURED_REASONS.get()
        try:
            reply = await self._inner.parse(**asked)
        except Exception as error:
            # The SDK raises at a reply that was cut, and keeps the reply inside the exception.
            reply = getattr(error, "completion", None)
            if stops is None or reply is None:
                raise
        return reply if stops is None else _capture_reply(reply, stops)

    def stream(self, **asked: Any) -> Any:
        opening, stops = self._inner.stream(**asked), CAPTURED_REASONS.get()
        return opening if stops is None else _TypedStream(opening, stops)


class _Responses(Proxy):
    async def create(self, **asked: Any) -> Any:
        reply = await self._inner.create(**asked)
        stops = CAPTURED_REASONS.get()
        if stops is not None and getattr(reply, "status", None) == "incomplete":
            stops.append(getattr(reply.incomplete_details, "reason", None) or _INCOMPLETE)
            reply.status = "completed"  # a framework would raise; the guard answers the calls instead
        return reply


class _TypedStream:
    """The SDK's typed stream, as its chunks alone: it would raise at a reply that was cut, and at a call's bad JSON."""

    def __init__(self, opening: Any, stops: list[Any]) -> None:
        self._opening, self._stops = opening, stops

    async def __aenter__(self) -> AsyncGenerator[Any]:
        opened = await self._opening.__aenter__()
        return _chunk_events(_ChunkStream(opened._raw_stream, self._stops))  # noqa: SLF001 - public nowhere

    async def __aexit__(self, *exc: object) -> None:
        await self._opening.__aexit__(*exc)


async def _chunk_events(chunks: _ChunkStream) -> AsyncGenerator[Any]:
    async for chunk in chunks:
        if chunk.object == "chat.completion.chunk":  # Azure sends others between them
            yield SimpleNamespace(type="chunk", chunk=chunk)


class _ChunkStream(Proxy):
    """A stream of chunks; one that ends without a reason broke off."""

    def __init__(self, inner: Any, stops: list[Any]) -> None:
        super().__init__(inner)
        self._stops, self._ended, self._calls, self._text = stops, False, False, False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            chunk = await anext(self._inner)
        except StopAsyncIteration:
            if not self._ended:
                self._ended = True
                self._stops.append(_INCOMPLETE)
            raise
        for choice in (chunk.choices or ())[:1]:
            self._calls = self._calls or bool(choice.delta and choice.delta.tool_calls)
            self._text = self._text or bool(choice.delta and choice.delta.content)
            if choice.finish_reason is not None:
                self._ended = True
                _capture_reason(choice, self._stops, calls=self._calls, text=self._text)
        return chunk


def _capture_reply(reply: Any, stops: list[Any]) -> Any:
    """Note why a whole reply ended, and make its calls something that no framework's types refuse."""
    for choice in reply.choices[:1]:
        said = choice.message
        _capture_reason(choice, stops, calls=bool(said.tool_calls), text=bool(said.content))
        for call in said.tool_calls or ():
            call.id = call.id or ""
            if (function := getattr(call, "function", None)) is not None:
                function.name, function.arguments = function.name or "", function.arguments or ""
    return reply


def _capture_reason(choice: Any, stops: list[Any], *, calls: bool, text: bool) -> None:
    """Keep the reason, and put one that frameworks neither raise nor warn at in the place of a cut."""
    stops.append(choice.finish_reason)
    if choice.finish_reason == "length" and (calls or not text):
        choice.finish_reason = "tool_calls" if calls else "stop"
