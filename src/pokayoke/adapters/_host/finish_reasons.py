"""Why a reply ended, read at an OpenAI client for frameworks that do not keep it.

In: the client that a framework's own model uses. Out: a client like it whose replies also record why they ended.
Never: a change of a reply that is not being captured.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

from pokayoke.adapters._host.proxy import Proxy, wrap_part
from pokayoke.core.intake.stop_reasons import is_cut

_reasons_var: ContextVar[list[Any] | None] = ContextVar("pokayoke_stops", default=None)
"""Where the reasons of the request in progress go; None if nothing captures them."""
_INCOMPLETE = "incomplete"


def capture_finish_reasons(client: Any) -> Any:
    """Return a client like this one whose reasons are captured; anything but a client of the OpenAI SDK unchanged."""
    known = type(client).__module__.partition(".")[0] == "openai"
    return _Client(client) if known else client


async def captured_reply(reply: Awaitable[Any]) -> tuple[Any, list[Any]]:
    """Return a reply, and the reasons for its end that came from the client."""
    reasons: list[Any] = []
    token = _reasons_var.set(reasons)
    try:
        return await reply, reasons
    finally:
        _reasons_var.reset(token)


async def captured_stream(events: Any, reasons: list[Any]) -> AsyncGenerator[Any]:
    """Pass events on, and add the reasons for their end to `reasons`.

    A framework makes the request when the first event is fetched, so the reasons are captured from there.
    """
    source = aiter(events)
    try:
        token = _reasons_var.set(reasons)
        try:
            first = await anext(source, None)
        finally:
            _reasons_var.reset(token)
        if first is not None:
            yield first
            async for event in source:
                yield event
    finally:
        if hasattr(source, "aclose"):
            await source.aclose()


def cut_or_last(reasons: list[Any]) -> Any:
    """Return the reason that counts: one that proves a cut, if there is one, else the last."""
    return next((reason for reason in reasons if is_cut(reason)), reasons[-1]) if reasons else None


def has_broken_off(stream: Any) -> bool:
    """Return whether a stream of LiteLLM ended before its provider said why: LiteLLM then reports `stop` itself."""
    known = type(stream).__name__ == "CustomStreamWrapper"  # a router's stream, made of others, does not know
    return known and stream.received_finish_reason is None


class _Completions(Proxy):
    async def create(self, **given: Any) -> Any:
        reply = await self._inner.create(**given)
        reasons = _reasons_var.get()
        if reasons is None:
            return reply
        return _capture_reply(reply, reasons) if hasattr(reply, "choices") else _ChunkStream(reply, reasons)

    async def parse(self, **given: Any) -> Any:
        reasons = _reasons_var.get()
        try:
            reply = await self._inner.parse(**given)
        except Exception as error:
            # The SDK raises at a reply that was cut, and keeps the reply inside the exception.
            reply = getattr(error, "completion", None)
            if reasons is None or reply is None:
                raise
        return reply if reasons is None else _capture_reply(reply, reasons)

    def stream(self, **given: Any) -> Any:
        opening, reasons = self._inner.stream(**given), _reasons_var.get()
        return opening if reasons is None else _TypedStream(opening, reasons)


class _Responses(Proxy):
    async def create(self, **given: Any) -> Any:
        reply = await self._inner.create(**given)
        reasons = _reasons_var.get()
        if reasons is not None and getattr(reply, "status", None) == "incomplete":
            reasons.append(getattr(reply.incomplete_details, "reason", None) or _INCOMPLETE)
            reply.status = "completed"  # a framework would raise; the guard answers the calls instead
        return reply


class _Chat(Proxy):
    completions = wrap_part("completions", _Completions)


class _Beta(Proxy):
    chat = wrap_part("chat", _Chat)


class _Client(_Beta):
    beta = wrap_part("beta", _Beta)
    responses = wrap_part("responses", _Responses)

    def with_options(self, **options: Any) -> _Client:
        """Return the same for the client with other options; frameworks turn off its retries with this."""
        return _Client(self._inner.with_options(**options))


class _TypedStream:
    """The SDK's typed stream, reduced to its chunks: it would raise at a cut reply, and at a call with bad JSON."""

    def __init__(self, opening: Any, reasons: list[Any]) -> None:
        self._opening, self._reasons = opening, reasons

    async def __aenter__(self) -> AsyncGenerator[Any]:
        opened = await self._opening.__aenter__()
        return _chunk_events(_ChunkStream(opened._raw_stream, self._reasons))  # noqa: SLF001 - public nowhere

    async def __aexit__(self, *exc: object) -> None:
        await self._opening.__aexit__(*exc)


async def _chunk_events(chunks: _ChunkStream) -> AsyncGenerator[Any]:
    async for chunk in chunks:
        if chunk.object == "chat.completion.chunk":  # Azure sends others between them
            yield SimpleNamespace(type="chunk", chunk=chunk)


class _ChunkStream(Proxy):
    """A stream of chunks; if it ends without a reason, it broke off."""

    def __init__(self, inner: Any, reasons: list[Any]) -> None:
        super().__init__(inner)
        self._reasons, self._ended, self._calls, self._text = reasons, False, False, False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            chunk = await anext(self._inner)
        except StopAsyncIteration:
            if not self._ended:
                self._ended = True
                self._reasons.append(_INCOMPLETE)
            raise
        for choice in (chunk.choices or ())[:1]:
            self._calls = self._calls or bool(choice.delta and choice.delta.tool_calls)
            self._text = self._text or bool(choice.delta and choice.delta.content)
            if choice.finish_reason is not None:
                self._ended = True
                _capture_reason(choice, self._reasons, calls=self._calls, text=self._text)
        return chunk


def _capture_reply(reply: Any, reasons: list[Any]) -> Any:
    """Record why a whole reply ended, and fill in fields of its calls that frameworks require."""
    for choice in reply.choices[:1]:
        message = choice.message
        _capture_reason(choice, reasons, calls=bool(message.tool_calls), text=bool(message.content))
        for call in message.tool_calls or ():
            call.id = call.id or ""
            if (function := getattr(call, "function", None)) is not None:
                function.name, function.arguments = function.name or "", function.arguments or ""
    return reply


def _capture_reason(choice: Any, reasons: list[Any], *, calls: bool, text: bool) -> None:
    """Record the reason; replace one that says cut by one at which frameworks neither raise nor warn."""
    reasons.append(choice.finish_reason)
    if choice.finish_reason == "length" and (calls or not text):
        choice.finish_reason = "tool_calls" if calls else "stop"
