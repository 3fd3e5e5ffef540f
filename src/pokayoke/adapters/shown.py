"""What the next request may show the model of a framework's tools: what `Run.tools` would, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pokayoke.core.call import Finding
from pokayoke.core.contract import Contract

if TYPE_CHECKING:
    from pokayoke.runtime.run import Run

__all__ = ["hides", "pager"]


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
