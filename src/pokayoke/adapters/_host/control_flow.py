"""Exceptions by which a framework steers itself: they pass a guarded call, and are no failure of its tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pokayoke.core.flow.steps import NotBegun

__all__ = ["Invoke", "Steering"]

Invoke = Callable[[dict[str, Any]], Any]


class Steering:
    """Lets a framework's own exceptions through one guarded call.

    Args:
        through: their classes.
    """

    __slots__ = ("_raised", "_through")

    def __init__(self, through: tuple[type[Exception], ...]) -> None:
        """Begin with none raised."""
        self._through = through
        self._raised: Exception | None = None

    def around(self, invoke: Invoke) -> Invoke:
        """Return what runs the tool so that the guard takes such an exception for what it is."""

        def invoked(arguments: dict[str, Any]) -> Any:
            try:
                return invoke(arguments)
            except self._through as raised:
                raise self._kept(raised) from raised

        return invoked

    def around_async(self, invoke: Invoke) -> Invoke:
        """`around` for asynchronous code."""

        async def invoked(arguments: dict[str, Any]) -> Any:
            try:
                result = invoke(arguments)
                return await result if hasattr(type(result), "__await__") else result
            except self._through as raised:
                raise self._kept(raised) from raised

        return invoked

    def _kept(self, raised: Exception) -> NotBegun:
        """Keep such an exception; returns what says that the tool did not begin."""
        self._raised = raised
        return NotBegun(type(raised).__name__)

    def go_on(self) -> None:
        """Raise it again, now that the call is settled."""
        if self._raised is not None:
            raise self._raised
