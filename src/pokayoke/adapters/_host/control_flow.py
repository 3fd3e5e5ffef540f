"""How a framework's tool is started, and the exceptions by which a framework steers itself.

In: what runs a framework's tool. Out: the same, so that the guard takes each exception for what it means. Never: a
framework's control flow recorded as a failure of a tool, or a failure of a tool as control flow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pokayoke.core.call import Blame
from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.runtime.run.run import Run

Invoke = Callable[[dict[str, Any]], Any]
"""Runs a tool with the arguments that the guard lets through; may return an awaitable where the caller awaits."""


def not_started(reason: str, *, blame: Blame = "host") -> Invoke:
    """Return what stands for a tool that does not start; `reason` and `blame` are those of `ToolNotStarted`."""

    def raise_not_started(_arguments: dict[str, Any]) -> Any:
        raise ToolNotStarted(reason, blame=blame)

    return raise_not_started


def invoke_without_tool(run: Run, name: str) -> Invoke | None:
    """Return how a call runs that the framework has no tool for; None if the guard answers it itself.

    The guard answers calls of unknown names and of its own paging tool. A tool that has a contract, and that the
    agent does not have now, is not started, which is the model's mistake.
    """
    contract = run.snapshot.find_contract(name)
    if contract is None or contract is run.guard.pager:
        return None
    return not_started(f"{contract.name} is not among the tools of the agent now", blame="model")


class ControlFlow:
    """Lets a framework's own exceptions pass through one guarded call.

    Args:
        through: their classes.
    """

    __slots__ = ("_raised", "_through")

    def __init__(self, through: tuple[type[Exception], ...]) -> None:
        """Begin with none raised."""
        self._through = through
        self._raised: Exception | None = None

    def wrap_invoke(self, invoke: Invoke | None) -> Invoke | None:
        """Return an invoke that reports such an exception as a tool that did not start."""
        if invoke is None or not self._through:
            return invoke

        def run_tool(arguments: dict[str, Any]) -> Any:
            try:
                return invoke(arguments)
            except self._through as raised:
                raise self._record_exception(raised) from raised

        return run_tool

    def wrap_invoke_async(self, invoke: Invoke | None) -> Invoke | None:
        """`wrap_invoke` for asynchronous code."""
        if invoke is None or not self._through:
            return invoke

        async def run_tool(arguments: dict[str, Any]) -> Any:
            try:
                result = invoke(arguments)
                return await result if hasattr(type(result), "__await__") else result
            except self._through as raised:
                raise self._record_exception(raised) from raised

        return run_tool

    def _record_exception(self, raised: Exception) -> ToolNotStarted:
        """Keep such an exception; returns the one that reports a tool that did not start."""
        self._raised = raised
        return ToolNotStarted(type(raised).__name__)

    def raise_recorded(self) -> None:
        """Raise the exception again, now that the call is settled."""
        if self._raised is not None:
            raise self._raised
