"""A call as it will run, for whoever looks at it before the guard does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pokayoke.adapters.hosted import stand_in, stands_in
from pokayoke.core.call import ToolCall
from pokayoke.core.names import history_name

if TYPE_CHECKING:
    from pokayoke.runtime.run import Run

__all__ = ["as_it_runs"]


def as_it_runs(run: Run, call: ToolCall) -> tuple[str, dict[str, Any]] | None:
    """Return the name and the arguments with which a call will run; None if `stand_in` says the same, or it cannot run.

    Others look at a call before it comes to its tool, such as what asks a person: what the guard put right behind
    them, they would never have judged.

    Args:
        run: the run it is for.
        call: from `Hosted.heard`.
    """
    plan = run.snapshot.simple.get(call.name)
    if plan is not None and plan.contract.input.accepts(stand_in(call, name=history_name(call.name) != call.name)):
        return None
    verdict = run.check(call)
    unfit = verdict.decision == "refuse" and verdict.stop_reason in ("invalid_arguments", "low_confidence")
    meant = None if unfit or verdict.contract is None else verdict.arguments
    return None if meant is None or stands_in(meant) else (verdict.tool, meant)
