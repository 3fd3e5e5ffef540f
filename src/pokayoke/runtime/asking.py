"""Questions to the person behind the host's callback, while a call waits."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pokayoke.core.admission import Approval

if TYPE_CHECKING:
    from pokayoke.runtime.guard import Question
    from pokayoke.runtime.run import Run


def asked_now(run: Run, question: Approval | None) -> Approval | None:
    """A question as of now: the tool it is about may have taken longer than it stays open."""
    return None if question is None else question.asked(run.guard.clock.now())


def ask(run: Run, approval: Approval) -> bool | None:
    """Put a question to the host's callback; its answer is kept like a person's."""
    try:
        said: Any = _callback(run)(approval)
    except Exception as error:  # noqa: BLE001 - the host's own code; the question then waits
        said = error
    return _decided(run, approval, said)


async def aask(run: Run, approval: Approval) -> bool | None:
    """`ask`, awaiting an asynchronous callback."""
    try:
        said: Any = _callback(run)(approval)
        if inspect.isawaitable(said):
            said = await said
    except Exception as error:  # noqa: BLE001 - as in `ask`
        said = error
    return _decided(run, approval, said)


def _callback(run: Run) -> Question:
    callback = run.guard.on_ask
    assert callback is not None, "a call asks only where there is a callback"
    return callback


def _decided(run: Run, approval: Approval, said: Any) -> bool | None:
    """Keep an answer. Only True is consent and only False is a no: a coroutine that nobody awaited is neither."""
    if said is None:
        return None
    if not isinstance(said, bool):
        if inspect.iscoroutine(said):
            said.close()
        run.note("approval", ok=False, approval=approval.id, reason=f"on_ask gave {type(said).__name__}")
        return None
    try:
        run.guard.approvals.answer(approval.id, approved=said, by="on_ask", reason="answered by the callback")
    except Exception as error:  # noqa: BLE001 - decided elsewhere or expired meanwhile: admission knows what holds
        run.note("approval", ok=False, approval=approval.id, reason=f"not taken: {type(error).__name__}")
    return said
