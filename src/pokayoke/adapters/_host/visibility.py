"""What the next request may show the model of a framework's tools: what `Run.tools` would, and nothing else."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from pokayoke.core.call import Finding
from pokayoke.core.contract.contract import Contract
from pokayoke.core.messages.messages import read_field

if TYPE_CHECKING:
    from pokayoke.runtime.run.run import Run

__all__ = ["ToolVisibility", "allowed_tool_choice", "is_hidden", "paging_tool"]


def is_hidden(run: Run, name: str) -> bool:
    """True if the model must not see a tool: the run's principal may not use it. What has no contract is not ours."""
    return run.snapshot.is_offered(name, run.principal) is False


def paging_tool(run: Run) -> Contract | None:
    """Return the guard's own tool for reading on, once an output was too long to show."""
    if not run.progress.texts.any:
        return None
    own = run.guard.pager
    plan = run.snapshot.find_plan(own.name)
    ours = not isinstance(plan, Finding) and plan.contract is own
    return own if ours and not is_hidden(run, own.name) else None


def allowed_tool_choice(run: Run, choice: Any) -> Any:
    """Return what a request wants to be called, without tools that are hidden: providers refuse unknown names.

    Args:
        run: whose tools they are.
        choice: the word `none`, `auto`, …, a tool or its name, or an object that names one or several.

    Returns:
        The same, less of it, `none` if nothing is left to choose from, or None if the one tool is hidden.
    """
    if choice is None or isinstance(choice, str):
        return None if choice is not None and is_hidden(run, choice) else choice
    name = (
        read_field(choice, "required_function_name")
        or read_field(read_field(choice, "function"), "name")
        or read_field(choice, "name")
    )
    if isinstance(name, str) and is_hidden(run, name):
        return None
    allowed = read_field(choice, "allowed_tools")
    if not isinstance(allowed, list):
        return choice
    shown = [one for one in cast("list[str]", allowed) if not is_hidden(run, one)]
    return {**cast("Mapping[str, Any]", choice), "allowed_tools": shown} if shown else "none"


class ToolVisibility:
    """What decides about a framework's tools, as it was at a request: frameworks list the same ones each time.

    Args:
        run: the run, whose contracts, policy and principal count.
        tools: the framework's tools.
    """

    __slots__ = ("_seen",)

    def __init__(self, run: Run, tools: Iterable[Any]) -> None:
        """Keep it."""
        self._seen = (run.snapshot, run.principal, run.progress.texts.any, *tools)

    def is_unchanged(self, run: Run, tools: Iterable[Any]) -> bool:
        """Return whether all of it is the same now, so that nothing has to be looked at anew."""
        now, seen = (run.snapshot, run.principal, run.progress.texts.any, *tools), self._seen
        return len(now) == len(seen) and all(map(operator.is_, now, seen))
