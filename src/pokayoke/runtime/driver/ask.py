"""Questions to the person behind the host's callback, while a call waits."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pokayoke.core.ledger.admission import Approval
from pokayoke.stores.operations import Act, answering

if TYPE_CHECKING:
    from pokayoke.runtime.guard.guard import Question
    from pokayoke.runtime.run.run import Run


def asked_now(run: Run, question: Approval | None) -> Approval | None:
    """A question as of now: the tool it is about may have taken longer than it stays open."""
    return None if question is None else question.asked(run.guard.clock.now())


def ask(run: Run, approval: Approval) -> bool | None:
    """Put a question to the host's callback; its answer is kept like a person's."""
    try:
        said: Any = _callback(run)(approval)
    except Exception as error:  # noqa: BLE001 - the host's own code; the question then waits
        said = error
    if (answer := _answer(run, approval, said)) is None:
        return None
    try:
        run.guard.store.run(_answering(run, approval, answer))
    except Exception as error:  # noqa: BLE001 - decided elsewhere or expired meanwhile: admission knows what holds
        _not_answered(run, approval, f"not taken: {type(error).__name__}")
    return answer


async def aask(run: Run, approval: Approval) -> bool | None:
    """`ask` without blocking the event loop; an asynchronous callback is awaited."""
    try:
        said: Any = _callback(run)(approval)
        if inspect.isawaitable(said):
            said = await said
    except Exception as error:  # noqa: BLE001 - as in `ask`
        said = error
    if (answer := _answer(run, approval, said)) is None:
        return None
    try:
        await run.guard.store.arun(_answering(run, approval, answer))
    except Exception as error:  # noqa: BLE001 - as in `ask`
        _not_answered(run, approval, f"not taken: {type(error).__name__}")
    return answer


def _callback(run: Run) -> Question:
    callback = run.guard.on_ask
    assert callback is not None, "a call asks only where there is a callback"
    return callback


def _answer(run: Run, approval: Approval, said: Any) -> bool | None:
    """Only True is consent and only False is a no: a coroutine that nobody awaited is neither."""
    if isinstance(said, bool):
        return said
    if inspect.iscoroutine(said):
        said.close()
    if said is not None:
        _not_answered(run, approval, f"on_ask gave {type(said).__name__}")
    return None


def _answering(run: Run, approval: Approval, approved: bool) -> Act[Approval]:
    now = run.guard.clock.now()
    return answering(approval.id, approved=approved, by="on_ask", reason="answered by the callback", now=now)


def _not_answered(run: Run, approval: Approval, reason: str) -> None:
    run.note("approval", ok=False, approval=approval.id, reason=reason)
