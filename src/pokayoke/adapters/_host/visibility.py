"""What the next request may show the model of a framework's tools: what `Run.tools` would, and nothing else."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from pokayoke.core.call import Finding
from pokayoke.core.contract.contract import Contract
from pokayoke.core.messages.messages import field

if TYPE_CHECKING:
    from pokayoke.runtime.run.run import Run

__all__ = ["Look", "hides", "pager", "wanted"]


def hides(run: Run, name: str) -> bool:
    """True if the model must not see a tool: the run's principal may not use it. What has no contract is not ours."""
    return run.snapshot.offers(name, run.principal) is False


def pager(run: Run) -> Contract | None:
    """Return the guard's own tool for reading on, once an output was too long to show."""
    if not run.progress.texts.any:
        return None
    own = run.guard.pager
    plan = run.snapshot.find(own.name)
    ours = not isinstance(plan, Finding) and plan.contract is own
    return own if ours and not hides(run, own.name) else None


def wanted(run: Run, choice: Any) -> Any:
    """Return what a request wants to be called, without tools that are hidden: providers refuse unknown names.

    Args:
        run: whose tools they are.
        choice: the word `none`, `auto`, …, a tool or its name, or an object that names one or several.

    Returns:
        The same, less of it, `none` if nothing is left to choose from, or None if the one tool is hidden.
    """
    if choice is None or isinstance(choice, str):
        return None if choice is not None and hides(run, choice) else choice
    name = field(choice, "required_function_name") or field(field(choice, "function"), "name") or field(choice, "name")
    if isinstance(name, str) and hides(run, name):
        return None
    allowed = field(choice, "allowed_tools")
    if not isinstance(allowed, list):
        return choice
    shown = [one for one in cast("list[str]", allowed) if not hides(run, one)]
    return {**cast("Mapping[str, Any]", choice), "allowed_tools": shown} if shown else "none"


class Look:
    """What decides about a framework's tools, as it was at a request: frameworks list the same ones each time.

    Args:
        run: the run, whose contracts, policy and principal count.
        tools: the framework's tools.
    """

    __slots__ = ("_seen",)

    def __init__(self, run: Run, tools: Iterable[Any]) -> None:
        """Keep it."""
        self._seen = (run.snapshot, run.principal, run.progress.texts.any, *tools)

    def holds(self, run: Run, tools: Iterable[Any]) -> bool:
        """Return whether all of it is the same now, so that nothing has to be looked at anew."""
        now, seen = (run.snapshot, run.principal, run.progress.texts.any, *tools), self._seen
        return len(now) == len(seen) and all(map(operator.is_, now, seen))
