"""A chat model of LangChain, asked so that what it wrote is known before LangChain reads it.

LangChain parses argument texts as it goes: an array ends the run, `null` becomes `{}`, and the pieces of a stream are
completed to something that parses. So the model is asked through a view of itself, which does all that the model
does, and notes down each call as it comes over the wire.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator
from typing import Any, Self, cast

from langchain_core.language_models import BaseChatModel

from pokayoke.adapters._host.finish_reasons import Around
from pokayoke.adapters.langchain._model import Heard, hearing, shield
from pokayoke.adapters.langchain._views import view
from pokayoke.core.messages.messages import field, items

__all__ = ["through"]

_NAMES_ITS_END = frozenset({"BaseChatOpenAI", "ChatAnthropic"})
"""Classes of models whose streams always say why they ended; one that does not has broken off."""


def through(model: Any) -> Any:
    """Return the view of a chat model; what is none, such as a binding, comes back as it is."""
    return view(model, _methods) if isinstance(model, BaseChatModel) else model


def _methods(kind: type) -> dict[str, Any]:
    """What a view does otherwise. Only what the class does at all: LangChain looks at that."""
    base, root = cast("Any", kind), cast("Any", BaseChatModel)
    # A stream that never says why it ended has broken off, where the provider always says so.
    unsaid = "incomplete" if any(one.__name__ in _NAMES_ITS_END for one in kind.__mro__) else None
    methods: dict[str, Any] = {}
    if hasattr(kind, "_create_chat_result"):  # OpenAI's chat completions, and who took their code over
        plain = base._create_chat_result  # noqa: SLF001 - the class is extended

        def create(self: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
            if (heard := hearing()) is not None:
                heard.whole(response)
            return plain(self, response, *args, **kwargs)

        methods["_create_chat_result"] = create
    for name in ("root_client", "root_async_client"):
        if name in getattr(kind, "model_fields", {}):
            methods[name] = _client_of(name)
    if (streamed := base._stream) is not root._stream:  # noqa: SLF001 - as above

        def stream(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            heard = hearing()
            pieces = streamed(self, *args, **kwargs)
            return pieces if heard is None else _noted(heard, pieces, unsaid)

        methods["_stream"] = stream
    if (astreamed := base._astream) is not root._astream:  # noqa: SLF001 - as above

        def astream(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            heard = hearing()
            pieces = astreamed(self, *args, **kwargs)
            return pieces if heard is None else _anoted(heard, pieces, unsaid)

        methods["_astream"] = astream
    return methods


def _noted(heard: Heard, pieces: Iterable[Any], unsaid: str | None) -> Iterator[Any]:
    heard.begin(unsaid, streamed=True)
    for piece in pieces:
        heard.piece(piece)
        yield piece


async def _anoted(heard: Heard, pieces: AsyncIterator[Any], unsaid: str | None) -> AsyncIterator[Any]:
    heard.begin(unsaid, streamed=True)
    async for piece in pieces:
        heard.piece(piece)
        yield piece


# -- OpenAI's Responses API: LangChain has no hook between its client and its parser ------------------


def _client_of(name: str) -> property:
    def client(self: Any) -> Any:
        plain = self.__dict__.get(name)
        return plain if plain is None or hearing() is None else _Client(plain)

    return property(client)


class _Client(Around):
    @property
    def responses(self) -> Any:
        return _Responses(self._inner.responses)


class _Responses(Around):
    @property
    def with_raw_response(self) -> Any:
        return _RawResponses(self._inner.with_raw_response)

    def create(self, **payload: Any) -> Any:
        return _then(self._inner.create(**payload), _Events)


class _RawResponses(Around):
    def create(self, **payload: Any) -> Any:
        return _then(self._inner.create(**payload), _Raw)

    def parse(self, **payload: Any) -> Any:
        return _then(self._inner.parse(**payload), _Raw)


class _Raw(Around):
    """A whole response."""

    def parse(self) -> Any:
        response = self._inner.parse()
        if (heard := hearing()) is not None:
            heard.response(response)
        return response


class _Events(Around):
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
        return map(_shielded, self._inner)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for event in self._inner:
            yield _shielded(event)


def _shielded(event: Any) -> Any:
    if field(event, "type") in ("response.completed", "response.incomplete"):
        for item in items(field(field(event, "response"), "output")):
            if field(item, "type") == "function_call":
                shield(item)
    return event


def _then(answer: Any, around: type[Around]) -> Any:
    """Wrap an answer, or what an awaitable will answer."""
    return _awaited(answer, around) if hasattr(type(answer), "__await__") else around(answer)


async def _awaited(answer: Awaitable[Any], around: type[Around]) -> Any:
    return around(await answer)
