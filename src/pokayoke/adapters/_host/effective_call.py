"""A call as it will run, for whoever looks at it before the guard does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pokayoke.adapters._host.run import is_encoded_call
from pokayoke.core.call import ToolCall

if TYPE_CHECKING:
    from pokayoke.runtime.run.run import Run

__all__ = ["effective_call"]


def effective_call(run: Run, call: ToolCall, shown: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]] | None:
    """Return the name and the arguments with which a call will run; None if that is what is shown, or it cannot run.

    Others look at a call before it comes to its tool, such as what asks a person: what the guard put right behind
    them, they would never have judged.

    Args:
        run: the run it is for.
        call: from `Hosted.heard`.
        shown: its arguments as others would see them: what the model wrote, or `stand_in`; None if that is no object.
    """
    plan = run.snapshot.simple.get(call.name)
    if plan is not None and shown is not None and plan.contract.input.accepts(shown):
        return None
    verdict = run.check(call)
    unfit = verdict.decision == "refuse" and verdict.stop_reason in ("invalid_arguments", "low_confidence")
    meant = None if unfit or verdict.contract is None else verdict.arguments
    return None if meant is None or is_encoded_call(meant) else (verdict.tool, meant)
