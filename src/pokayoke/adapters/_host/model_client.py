"""Parts of the models for `guard.loop`: the provider's SDK, the options of a request, and the reply of a stream.

In: the provider's name, options and events. Out: its SDK, the options that it takes, and a whole reply. Never: a
stream left open.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, Literal

from pokayoke.adapters._host.extras import require_extra
from pokayoke.core.messages.streams import Stream

OnText = Callable[[str], object]

_TOOL_OPTIONS: Final = ("tool_choice", "parallel_tool_calls")


def request_options(options: dict[str, Any], tools: list[Any]) -> dict[str, Any]:
    """Return the options of a request; providers refuse options about tools in a request without tools."""
    return options if tools else {name: value for name, value in options.items() if name not in _TOOL_OPTIONS}


def import_sdk(name: Literal["anthropic", "openai"]) -> Any:
    """Return the SDK of a provider.

    Raises:
        MissingExtraError: it is not installed.
    """
    with require_extra(name, bounded=False):  # a framework may pin an SDK below the bound of our own extra
        return importlib.import_module(name)


def emit_text(text: str, on_text: OnText | None) -> None:
    """Pass a piece of text to `on_text`, if there are both."""
    if text and on_text is not None:
        on_text(text)


def collect_reply(events: Any, whole: Stream, on_text: OnText | None) -> dict[str, Any]:
    """Return the whole reply of a stream, and close the stream in any case."""
    with events:
        for event in events:
            emit_text(whole.add_event(event), on_text)
    return whole.build_reply()


async def collect_reply_async(events: Any, whole: Stream, on_text: OnText | None) -> dict[str, Any]:
    """`collect_reply` for an asynchronous stream."""
    async with events:
        async for event in events:
            emit_text(whole.add_event(event), on_text)
    return whole.build_reply()
