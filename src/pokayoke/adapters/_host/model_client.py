"""What the plain models share: their SDKs, what a request without tools leaves out, and who reads along in a stream."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, Literal

from pokayoke.core.messages.streams import Stream
from pokayoke.errors import MissingExtraError

__all__ = ["OnText", "aput_together", "heard", "options_for", "put_together", "sdk"]

OnText = Callable[[str], object]


_AMONG_TOOLS: Final = ("tool_choice", "parallel_tool_calls")


def options_for(options: dict[str, Any], tools: list[Any]) -> dict[str, Any]:
    """Return the options of a request. Providers refuse those about the use of tools where it offers none."""
    return options if tools else {name: value for name, value in options.items() if name not in _AMONG_TOOLS}


def sdk(name: Literal["anthropic", "openai"]) -> Any:
    """Return the SDK of a provider.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(name, name) from error


def heard(text: str, on_text: OnText | None) -> None:
    """Hand a piece of text on, if there is one and somebody reads along."""
    if text and on_text is not None:
        on_text(text)


def put_together(events: Any, whole: Stream, on_text: OnText | None) -> dict[str, Any]:
    """Return the whole reply of a stream, which is closed in any case."""
    with events:
        for event in events:
            heard(whole.add(event), on_text)
    return whole.reply()


async def aput_together(events: Any, whole: Stream, on_text: OnText | None) -> dict[str, Any]:
    """`put_together` for an asynchronous stream."""
    async with events:
        async for event in events:
            heard(whole.add(event), on_text)
    return whole.reply()
