"""What the plain models share: their provider's SDK, and who reads along while a reply streams."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Literal

from pokayoke.errors import MissingExtraError

__all__ = ["OnText", "heard", "sdk"]

OnText = Callable[[str], object]


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
