"""Exceptions by which a framework steers itself: they pass a guarded call, and are no failure of its tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pokayoke.core.flow.steps import ToolNotStarted

__all__ = ["ControlFlow", "Invoke"]

Invoke = Callable[[dict[str, Any]], Any]


class ControlFlow:
    """Lets a framework's own exceptions through one guarded call.

    Args:
        through: their classes.
    """

    __slots__ = ("_raised", "_through")

    def __init__(self, through: tuple[type[Exception], ...]) -> None:
        """Begin with none raised."""
        self._through = through
        self._raised: Exception | None = None

    def wrap_invoke(self, invoke: Invoke) -> Invoke:
        """Return what runs the tool so that the guard takes such an exception for what it is."""

        def run_tool(arguments: dict[str, Any]) -> Any:
            try:
                return invoke(arguments)
            except self._through as raised:
                raise self._record_exception(raised) from raised

        return run_tool

    def wrap_invoke_async(self, invoke: Invoke) -> Invoke:
        """`wrap_invoke` for asynchronous code."""

        async def run_tool(arguments: dict[str, Any]) -> Any:
            try:
                result = invoke(arguments)
                return await result if hasattr(type(result), "__await__") else result
            except self._through as raised:
                raise self._record_exception(raised) from raised

        return run_tool

    def _record_exception(self, raised: Exception) -> ToolNotStarted:
        """Keep such an exception; returns what says that the tool did not begin."""
        self._raised = raised
        return ToolNotStarted(type(raised).__name__)

    def raise_recorded(self) -> None:
        """Raise it again, now that the call is settled."""
        if self._raised is not None:
            raise self._raised
