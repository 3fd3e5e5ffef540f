"""A chat model of LangChain, asked so that what it wrote is known before LangChain reads it.

LangChain parses argument texts as it goes: an array ends the run, `null` becomes `{}`, and the pieces of a stream are
completed to something that parses. So the model is asked through a view of itself, which does all that the model
does, and notes down each call as it comes over the wire.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator
from typing import Any, Self, cast

from langchain_core.language_models import BaseChatModel

from pokayoke.adapters._host.proxy import Proxy
from pokayoke.adapters.langchain._model import CapturedReply, current_capture, hide_unreadable_arguments
from pokayoke.adapters.langchain._views import wrap_object
from pokayoke.core.json.values import as_sequence, read_field

__all__ = ["observed_model"]

_STREAMS_WITH_REASON = frozenset({"BaseChatOpenAI", "ChatAnthropic"})
"""Classes of models whose streams always say why they ended; one that does not has broken off."""


def observed_model(model: Any) -> Any:
    """Return the view of a chat model; what is none, such as a binding, comes back as it is."""
    return wrap_object(model, _wrapper_methods) if isinstance(model, BaseChatModel) else model


def _wrapper_methods(kind: type) -> dict[str, Any]:
    """What a view does otherwise. Only what the class does at all: LangChain looks at that."""
    base, root = cast("Any", kind), cast("Any", BaseChatModel)
    # A stream that never says why it ended has broken off, where the provider always says so.
    unsaid = "incomplete" if any(one.__name__ in _STREAMS_WITH_REASON for one in kind.__mro__) else None
    methods: dict[str, Any] = {}
    if hasattr(kind, "_create_chat_result"):  # OpenAI's chat completions, and who took their code over
        plain = base._create_chat_result  # noqa: SLF001 - the class is extended

        def create_chat_result(self: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
            if (heard := current_capture()) is not None:
                heard.capture_completion(response)
            return plain(self, response, *args, **kwargs)

        methods["_create_chat_result"] = create_chat_result
    for name in ("root_client", "root_async_client"):
        if name in getattr(kind, "model_fields", {}):
            methods[name] = _client_property(name)
    if (streamed := base._stream) is not root._stream:  # noqa: SLF001 - as above

        def observe_stream(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            heard = current_capture()
            pieces = streamed(self, *args, **kwargs)
            return pieces if heard is None else _capture_pieces(heard, pieces, unsaid)

        methods["_stream"] = observe_stream
    if (astreamed := base._astream) is not root._astream:  # noqa: SLF001 - as above

        def observe_stream_async(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            heard = current_capture()
            pieces = astreamed(self, *args, **kwargs)
            return pieces if heard is None else _capture_pieces_async(heard, pieces, unsaid)

        methods["_astream"] = observe_stream_async
    return methods


def _capture_pieces(heard: CapturedReply, pieces: Iterable[Any], unsaid: str | None) -> Iterator[Any]:
    heard.reset_capture(unsaid, streamed=True)
    for piece in pieces:
        heard.capture_piece(piece)
        yield piece


async def _capture_pieces_async(
    heard: CapturedReply, pieces: AsyncIterator[Any], unsaid: str | None
) -> AsyncIterator[Any]:
    heard.reset_capture(unsaid, streamed=True)
    async for piece in pieces:
        heard.capture_piece(piece)
        yield piece


# -- OpenAI's Responses API: LangChain has no hook between its client and its parser ------------------


def _client_property(name: str) -> property:
    def get_client(self: Any) -> Any:
        plain = self.__dict__.get(name)
        return plain if plain is None or current_capture() is None else _Client(plain)

    return property(get_client)


class _Client(Proxy):
    @property
    def responses(self) -> Any:
        return _Responses(self._inner.responses)


class _Responses(Proxy):
    @property
    def with_raw_response(self) -> Any:
        return _RawResponses(self._inner.with_raw_response)

    def create(self, **payload: Any) -> Any:
        return _wrap_answer(self._inner.create(**payload), _EventStream)


class _RawResponses(Proxy):
    def create(self, **payload: Any) -> Any:
        return _wrap_answer(self._inner.create(**payload), _RawResponse)

    def parse(self, **payload: Any) -> Any:
        return _wrap_answer(self._inner.parse(**payload), _RawResponse)


class _RawResponse(Proxy):
    """A whole response."""

    def parse(self) -> Any:
        response = self._inner.parse()
        if (heard := current_capture()) is not None:
            heard.capture_response(response)
        return response


class _EventStream(Proxy):
    """A stream of events. Only the last one repeats whole calls."""

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *exc: object) -> Any:
        return self._inner.__exit__(*exc)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> Any:
        return await self._inner.__aexit__(*exc)

    def __iter__(self) -> Iterator[Any]:
        return map(_hide_event_arguments, self._inner)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for event in self._inner:
            yield _hide_event_arguments(event)


def _hide_event_arguments(event: Any) -> Any:
    if read_field(event, "type") in ("response.completed", "response.incomplete"):
        for item in as_sequence(read_field(read_field(event, "response"), "output")):
            if read_field(item, "type") == "function_call":
                hide_unreadable_arguments(item)
    return event


def _wrap_answer(answer: Any, around: type[Proxy]) -> Any:
    """Wrap an answer, or what an awaitable will answer."""
    return _wrap_awaitable(answer, around) if hasattr(type(answer), "__await__") else around(answer)


async def _wrap_awaitable(answer: Awaitable[Any], around: type[Proxy]) -> Any:
    return around(await answer)
