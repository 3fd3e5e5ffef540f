"""Which of a framework's tools the next request shows to the model.

In: the run and the tools that the framework would offer. Out: those that the run's principal may use, and the guard's
paging tool once there is something to page through. Never: a hidden tool, or a tool choice that names one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from pokayoke.core.contract.contract import Contract
from pokayoke.core.json.values import read_field
from pokayoke.runtime.run.run import Run


def is_hidden(run: Run, name: str) -> bool:
    """Return whether the model must not see a tool, because the run's principal may not use it.

    A tool without a contract is the framework's own, and is never hidden.
    """
    return run.snapshot.is_offered(name, run.principal) is False


def paging_tool(run: Run) -> Contract | None:
    """Return the guard's own tool for paging, once an output was too long to show; else None."""
    if not run.progress.texts.any:
        return None
    own = run.guard.pager
    return own if run.snapshot.find_contract(own.name) is own and not is_hidden(run, own.name) else None


def allowed_tool_choice(run: Run, choice: Any) -> Any:
    """Return a request's tool choice without hidden tools: providers reject names that they do not know.

    Args:
        run: the run whose tools they are.
        choice: the word `none`, `auto`, …, a tool or its name, or an object that names one or several.

    Returns:
        The choice, with fewer names if some are hidden, `none` if no name is left, or None if its one tool is hidden.
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


class OfferedTools:
    """The tools of a request, as the model sees them.

    Frameworks list the same tools for each request, so this can be kept while it `is_current`.

    Args:
        run: the run, whose contracts, policy and principal count.
        tools: the framework's tools.
        name_of: returns the name by which a tool's contract is found; None for a tool that is not guarded.
        define: returns a tool in the framework's own type, for the guard's paging tool.

    Attributes:
        by_name: the guarded tools, by those names.
        hidden: the guarded tools that the model must not see.
        shown: the others, and the guard's paging tool if it is needed and the framework has none of that name.
    """

    __slots__ = ("_basis", "by_name", "hidden", "shown")

    def __init__(
        self,
        run: Run,
        tools: list[Any],
        name_of: Callable[[Any], str | None],
        define: Callable[[Contract], Any] | None = None,
    ) -> None:
        """Look at every tool."""
        self._basis = _visibility_basis(run, tools)
        named = [(name_of(tool), tool) for tool in tools]
        self.by_name: dict[str, Any] = {name: tool for name, tool in named if name is not None}
        self.hidden: list[Any] = []
        self.shown: list[Any] = []
        for name, tool in named:
            (self.hidden if name is not None and is_hidden(run, name) else self.shown).append(tool)
        if define is not None and (own := paging_tool(run)) is not None and own.name not in self.by_name:
            self.shown.append(define(own))

    def is_current(self, run: Run, tools: Iterable[Any]) -> bool:
        """Return whether a request with these tools would show the same."""
        now = _visibility_basis(run, tools)
        return len(now) == len(self._basis) and all(map(operator.is_, now, self._basis))


def _visibility_basis(run: Run, tools: Iterable[Any]) -> tuple[Any, ...]:
    """Return everything that decides which tools the model sees."""
    return run.snapshot, run.principal, run.progress.texts.any, *tools
