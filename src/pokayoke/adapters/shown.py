"""What the next request may show the model of a framework's tools: what `Run.tools` would, and nothing else."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pokayoke.core.call import Finding
from pokayoke.core.contract import Contract

if TYPE_CHECKING:
    from pokayoke.runtime.run import Run

__all__ = ["Look", "hides", "pager"]


def hides(run: Run, name: str) -> bool:
    """True if the model must not see a tool: the run's principal may not use it. What has no contract is not ours."""
    return run.snapshot.offers(name, run.principal) is False


def pager(run: Run) -> Contract | None:
    """Return the guard's own tool for reading on, once an output was too long to show."""
    if not run.progress.keeps_texts:
        return None
    own = run.guard.pager
    plan = run.snapshot.find(own.name)
    ours = not isinstance(plan, Finding) and plan.contract is own
    return own if ours and not hides(run, own.name) else None


class Look:
    """What decides about a framework's tools, as it was at a request: frameworks list the same ones each time.

    Args:
        run: the run, whose contracts, policy and principal count.
        tools: the framework's tools.
    """

    __slots__ = ("_seen",)

    def __init__(self, run: Run, tools: Iterable[Any]) -> None:
        """Keep it."""
        self._seen = (run.snapshot, run.principal, run.progress.keeps_texts, *tools)

    def holds(self, run: Run, tools: Iterable[Any]) -> bool:
        """Return whether all of it is the same now, so that nothing has to be looked at anew."""
        now, seen = (run.snapshot, run.principal, run.progress.keeps_texts, *tools), self._seen
        return len(now) == len(seen) and all(map(operator.is_, now, seen))
