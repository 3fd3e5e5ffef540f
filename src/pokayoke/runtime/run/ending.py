"""The end of a round and of a run: what is kept then, and who is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pokayoke.core.call import Mode, StopReason
from pokayoke.core.flow import events as event
from pokayoke.core.state.run_state import RunState, step_down_to

if TYPE_CHECKING:
    from pokayoke.runtime.run.run import Run


def end_round(run: Run) -> None:
    """Let the loop guard look at a round; it may take the tools away."""
    change, reason = run.progress.end_round(run.snapshot)
    if change is not None:
        _emit_stop(run, reason, *run.progress.change_state(change))


async def aend_round(run: Run) -> None:
    """`end_round` without blocking the event loop."""
    change, reason = run.progress.end_round(run.snapshot)
    if change is not None:
        _emit_stop(run, reason, *await run.progress.achange_state(change))


def step_run_down(run: Run, mode: Mode, reason: StopReason) -> None:
    """Take the run down to a mode because the host says so."""
    _emit_stop(run, reason, *run.progress.change_state(lambda state: step_down_to(state, mode, reason)))


def finish_run(run: Run, problem: str | None) -> None:
    """Write the trace out; `problem` is why the run's totals could not be kept, if they could not."""
    if problem is not None:
        run.note("store", ok=False, reason=problem)
    run.guard.trace.flush()


def _emit_stop(run: Run, reason: StopReason | None, before: RunState, after: RunState) -> None:
    if reason is not None and before.mode != after.mode:
        run.emit(event.stop_event(after, run.guard.clock.now(), run.progress.step, reason, None))
