"""A model of Pydantic AI whose streams somebody watches; for `pokayoke.adapters.pydantic_ai`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from pokayoke.errors import MissingExtraError

try:
    from pydantic_ai.models import Model, StreamedResponse
    from pydantic_ai.models.wrapper import WrapperModel
except ImportError as error:
    raise MissingExtraError("pydantic-ai-slim", "pydantic-ai") from error


class ObservedModel(WrapperModel):
    """A model whose streams somebody watches.

    Args:
        wrapped: the model.
        watch: told of each stream before anybody reads it.
    """

    def __init__(self, wrapped: Model, watch: Callable[[StreamedResponse], None]) -> None:
        """Wrap the model."""
        super().__init__(wrapped)
        self._watch = watch

    @asynccontextmanager
    async def request_stream(self, *args: Any, **options: Any) -> AsyncGenerator[StreamedResponse]:
        """Ask the model as it is asked, and tell of the stream."""
        async with self.wrapped.request_stream(*args, **options) as stream:
            self._watch(stream)
            yield stream
