"""Asks the person behind the host's callback while a call waits.

In: a question.
Out: True, False, or None for "later"; the store holds the answer like a person's.
Never: consent from anything but True.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pokayoke.core.ledger.admission import Approval
from pokayoke.stores.operations import Operation, answer_operation

if TYPE_CHECKING:
    from pokayoke.runtime.ports import AskCallback, RunPort


def with_current_time(run: RunPort, question: Approval | None) -> Approval | None:
    """Return the question with the present time: its tool may have run longer than a question stays open."""
    return None if question is None else question.asked(run.guard.clock.now())


async def ask_person(run: RunPort, approval: Approval, *, may_wait: bool) -> bool | None:
    """Ask the host's callback and store its answer. Returns None if it gives none.

    Args:
        run: the run of the call.
        approval: the question.
        may_wait: whether the caller has an event loop: there an asynchronous callback is awaited.
    """
    try:
        said: Any = _ask_callback(run)(approval)
        if may_wait and inspect.isawaitable(said):
            said = await said
    except Exception as error:  # noqa: BLE001 - the host's own code; the question then waits
        said = error
    if (answer := _parse_answer(run, approval, said)) is None:
        return None
    store, operation = run.guard.store, _answer_operation(run, approval, answer)
    try:
        _ = await store.arun(operation) if may_wait else store.run(operation)
    except Exception as error:  # noqa: BLE001 - decided elsewhere or expired meanwhile: admission knows what holds
        _report_unanswered(run, approval, f"not taken: {type(error).__name__}")
    return answer


def _ask_callback(run: RunPort) -> AskCallback:
    callback = run.guard.on_ask
    assert callback is not None, "a call asks only where there is a callback"
    return callback


def _parse_answer(run: RunPort, approval: Approval, said: Any) -> bool | None:
    """Return the answer. Only True is consent and only False a no; an unawaited coroutine is neither."""
    if isinstance(said, bool):
        return said
    if inspect.iscoroutine(said):
        said.close()
    if said is not None:
        _report_unanswered(run, approval, f"on_ask gave {type(said).__name__}")
    return None


def _answer_operation(run: RunPort, approval: Approval, approved: bool) -> Operation[Approval]:
    now = run.guard.clock.now()
    return answer_operation(approval.id, approved=approved, by="on_ask", reason="answered by the callback", now=now)


def _report_unanswered(run: RunPort, approval: Approval, reason: str) -> None:
    run.note("approval", ok=False, approval=approval.id, reason=reason)
