"""Undoes an effect. An undoing is an effect of its own: claimed, executed once, settled, never repeated blindly.

In: a contract with a `compensate` function, and the effect to undo.
Out: the state of the undoing.
Never: an undoing that counts as failed although it may have happened. After an exception, a deadline or the end of
this process it is in doubt, and a person settles it.
"""

from __future__ import annotations

import inspect
import time
import uuid
from collections.abc import Callable
from typing import Any, Literal, cast

import msgspec

from pokayoke.core.contract.arguments import is_async
from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.admit import admit_with_proof
from pokayoke.core.flow.failures import store_error_text
from pokayoke.core.flow.steps import Admit, CheckOwner, NotStarted, Reaction, Returned, TimedOut
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.compensation import COMPENSATION_RUN_ID, Compensation, undoes, undoing_hash
from pokayoke.core.ledger.key import compensation_key
from pokayoke.core.ledger.records import Admission, Claim, Record, Resolution, Settlement, SettlementState
from pokayoke.core.policy import ExecutionPolicy
from pokayoke.errors import ConfigurationError, StoreError
from pokayoke.runtime.driver.claim_owner import current_owner, is_dead
from pokayoke.runtime.driver.effect import Checks, Effect, call_with_effect
from pokayoke.runtime.driver.sync import SETTLE_PAUSES
from pokayoke.runtime.driver.tool_call import capture_result
from pokayoke.runtime.threads.clock import Clock, SystemClock
from pokayoke.runtime.threads.worker_pool import WorkerPool
from pokayoke.stores.base import Store
from pokayoke.stores.values import AuditEntry

_DEFAULT_POLICY = ExecutionPolicy()  # no guard and no configuration is at work here


class UndoResult(msgspec.Struct, frozen=True, gc=False):
    """What became of an undoing.

    Args:
        status: undone now, undone before, in doubt, or refused (nothing was started).
        key: the ledger key of the undoing.
        effect_key: the ledger key of what was to be undone.
        message: why, if it is not undone; for people.
        reference: what `compensate` returned, if that is a text.
    """

    status: Literal["undone", "undone_before", "in_doubt", "refused"]
    key: str
    effect_key: str
    message: str = ""
    reference: str = ""


class Compensator:
    """Carries out undoings against one store.

    Args:
        store: the ledger that holds the effects.
        by: who has them undone; for the audit.
        clock: says when.
    """

    def __init__(self, store: Store, *, by: str, clock: Clock | None = None) -> None:
        self._store, self._by = store, by
        self._clock: Clock = clock or SystemClock()
        self._workers = WorkerPool()

    def undo_effect(self, contract: Contract, what: Compensation) -> UndoResult:
        """Undo one effect, unless that was done or started before.

        Args:
            contract: of the tool that had the effect; it declares `compensate`.
            what: from `build_compensations`.

        Raises:
            ConfigurationError: the contract does not say how.
            StoreError: the store cannot be used; nothing was started. (A driver's own errors pass through, too.)
        """
        compensate = contract.compensate
        if compensate is None:
            raise ConfigurationError(f"{contract.id} declares no compensate=: say how its effect is undone")
        timeout = contract.timeout or _DEFAULT_POLICY.timeout
        claim = self._build_claim(contract, what, timeout + _DEFAULT_POLICY.lease_margin_seconds)
        # The run of the effect may have been stopped since; the undoing is a person's act and has its own.
        request = AdmissionRequest(COMPENSATION_RUN_ID, contract.name, "destructive", (), claim.now, claim)
        answer = self._admit_undoing(request)
        if answer.kind == "replay":
            reference = answer.record.reference if answer.record else ""
            if answer.record and what.key == compensation_key(what.effect_key) and _has_run_since(what, answer.record):
                why = "it was undone before and has run again since: undo it by hand"
                return UndoResult("refused", what.key, what.effect_key, why, reference)
            return UndoResult("undone_before", what.key, what.effect_key, reference=reference)
        if answer.kind != "execute":
            message = answer.finding.message if answer.finding else answer.kind
            return UndoResult(
                "in_doubt" if answer.kind == "in_doubt" else "refused", what.key, what.effect_key, message
            )
        attempt = answer.record.attempt if answer.record else 1
        denied = self._mark_effect_done(what)
        reaction = self._run_compensation(compensate, what, claim, attempt, timeout) if denied is None else denied
        return self._finish_undoing(reaction, what, claim, contract)

    def _build_claim(self, contract: Contract, what: Compensation, lease: float) -> Claim:
        reference = what.row.reference if what.row else ""
        return Claim(
            key=what.key,
            args_hash=undoing_hash(what.effect_key, reference),
            claim_id=f"undo-{uuid.uuid4().hex}",
            tool=contract.name,
            contract=contract.id,
            run_id=COMPENSATION_RUN_ID,
            now=self._clock.now(),
            lease=lease,
            owner=current_owner(),
            compensates=what.effect_key or f"row {reference}",
        )

    def _admit_undoing(self, request: AdmissionRequest) -> Admission:
        walk = admit_with_proof(request)
        answer: Any = None
        try:
            while True:
                step = walk.send(answer)
                if isinstance(step, CheckOwner):
                    answer = self._clock.monotonic() if is_dead(step.owner) else None
                else:
                    answer = self._store.admit(cast("Admit", step).request)
        except StopIteration as end:
            return cast("Admission", end.value)

    def _mark_effect_done(self, what: Compensation) -> NotStarted | None:
        """Take back the word that the effect failed: the call would be tried again. Returns why it cannot be undone.

        What is undone has happened, and only what has happened is asked about its undoing when the call comes again.
        """
        known = what.record
        if known is None or what.key != compensation_key(known.key) or not known.state.startswith("failed"):
            return None
        reference = what.row.reference if what.row else ""
        word = Resolution(known.key, True, self._by, what.reason, self._clock.now(), reference)
        try:
            self._store.decide(word)
        except StoreError as error:  # it is at work again, or has completed since
            return NotStarted(str(error))
        return None

    def _run_compensation(
        self, compensate: Callable[..., Any], what: Compensation, claim: Claim, attempt: int, timeout: float
    ) -> Reaction:
        deadline = time.monotonic() + timeout
        checks: Checks = []
        effect = Effect(claim.key, attempt, deadline, claim.claim_id, self._store, self._clock.now, checks)

        def settle_late(reaction: Reaction) -> None:
            if isinstance(reaction, Returned):  # it happened after all: the doubt is over, if nobody ended it before
                capture_result(lambda: self._settle_with_retries(self._build_settlement(claim, "completed", reaction)))

        def call_compensate() -> Any:
            pending = call_with_effect(effect, lambda: compensate(what), checks)
            if not inspect.isawaitable(pending):
                return pending
            import asyncio  # noqa: PLC0415 - 20 ms of import, for those whose functions are asynchronous

            async def await_pending() -> Any:
                async with asyncio.timeout(timeout):
                    return await pending

            return asyncio.run(await_pending())

        return self._workers.run_with_deadline(
            call_compensate, timeout + (0.5 if is_async(compensate) else 0.0), settle_late
        )

    def _finish_undoing(self, reaction: Reaction, what: Compensation, claim: Claim, contract: Contract) -> UndoResult:
        state, message = _judge_reaction(reaction)
        settlement = self._build_settlement(claim, state, reaction, message)
        problem = self._settle_with_retries(settlement)
        if problem is not None and state == "completed":
            state, message = "in_doubt", f"it was undone, and the ledger could not be told ({problem})"
        self._audit_undoing(what, contract, settlement, state, message)
        if state == "completed":
            return UndoResult("undone", what.key, what.effect_key, reference=settlement.reference)
        return UndoResult("in_doubt" if state == "in_doubt" else "refused", what.key, what.effect_key, message)

    def _build_settlement(
        self, claim: Claim, state: SettlementState, reaction: Reaction, failure: str = ""
    ) -> Settlement:
        said: Any = reaction.value if isinstance(reaction, Returned) else None
        reference = said if isinstance(said, str) else ""
        never = isinstance(reaction, NotStarted)
        now = self._clock.now()
        return Settlement(claim.key, claim.claim_id, state, now, failure=failure, reference=reference, unstarted=never)

    def _settle_with_retries(self, settlement: Settlement) -> str | None:
        """Report to the ledger, again if it cannot be reached. Returns why it does not know, or None."""
        for pause in SETTLE_PAUSES:
            try:
                settled = self._store.settle(settlement)
            except Exception as error:  # noqa: BLE001 - a store may raise anything; the undoing then stays in doubt
                if pause is None:
                    return store_error_text(error)
                self._clock.sleep(pause)
            else:
                return None if settled.accepted else "its claim was lost"
        raise AssertionError("the last round returns")

    def _audit_undoing(
        self, what: Compensation, contract: Contract, report: Settlement, state: SettlementState, why: str
    ) -> None:
        """Leave a line in the audit. The record itself says the same; losing the line costs only who asked for it."""
        data = {
            "key": what.key,
            "state": state,
            "tool": contract.name,
            "row": what.row.reference if what.row else "",
            "reference": report.reference,
            "failure": why,
        }
        entry = AuditEntry(self._clock.now(), "compensated", what.effect_key, self._by, what.reason, data)
        capture_result(lambda: self._store.note(entry))


def _has_run_since(what: Compensation, undoing: Record) -> bool:
    """Whether what is to be undone is a later attempt than the one that was undone: its key is the same."""
    return what.record is not None and not undoes(undoing, what.record)


def _judge_reaction(reaction: Reaction) -> tuple[SettlementState, str]:
    """The state an undoing ends in, and why. Only a function that was never started proves that nothing happened."""
    if isinstance(reaction, Returned):
        return "completed", ""
    if isinstance(reaction, NotStarted):
        return "failed_retriable", reaction.reason
    if isinstance(reaction, TimedOut):
        return "in_doubt", f"it did not come back in {reaction.seconds:g} s"
    return "in_doubt", f"it raised {type(reaction.error).__name__}"
