"""Undo an effect. Undoing is an effect of its own: claimed, executed once, settled, never repeated blindly.

What enters is a contract that says how, and what is to be undone; what leaves is what became of it. An
exception, a deadline or the end of this process leave the undoing in doubt, and a person settles that.
"""

from __future__ import annotations

import inspect
import time
import uuid
from collections.abc import Callable
from typing import Any, Literal, cast

import msgspec

from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.rules import is_async
from pokayoke.core.flow.failures import trouble
from pokayoke.core.flow.resolve import UNDOINGS, admitted, is_of
from pokayoke.core.flow.steps import Admit, Gone, NotStarted, Reaction, Returned, TimedOut
from pokayoke.core.ledger.admission import Request
from pokayoke.core.ledger.key import compensation_key
from pokayoke.core.ledger.reconcile import Compensation, undoing_hash
from pokayoke.core.ledger.transitions import Admission, Claim, Record, Resolution, Settlement, Settling
from pokayoke.core.policy import ExecutionPolicy
from pokayoke.errors import ConfigurationError, StoreError
from pokayoke.runtime.driver.claim_owner import is_dead, owner
from pokayoke.runtime.driver.effect import Checks, Effect, within
from pokayoke.runtime.driver.sync import SETTLE_AGAIN
from pokayoke.runtime.threads.clock import Clock, SystemClock
from pokayoke.runtime.threads.worker_pool import Workers, react
from pokayoke.stores.base import Store
from pokayoke.stores.values import Entry

_USUAL = ExecutionPolicy()  # no guard and no configuration is at work here


class Undone(msgspec.Struct, frozen=True, gc=False):
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
        self._workers = Workers()

    def undo(self, contract: Contract, what: Compensation) -> Undone:
        """Undo one effect, unless that was done or started before.

        Args:
            contract: of the tool that had the effect; it declares `compensate`.
            what: from `core.reconcile.undoings`.

        Raises:
            ConfigurationError: the contract does not say how.
            StoreError: the store cannot be used; nothing was started. (A driver's own errors pass through, too.)
        """
        compensate = contract.compensate
        if compensate is None:
            raise ConfigurationError(f"{contract.id} declares no compensate=: say how its effect is undone")
        timeout = contract.timeout or _USUAL.timeout
        claim = self._claim(contract, what, timeout + _USUAL.lease_margin_seconds)
        # The run of the effect may have been stopped since; the undoing is a person's act and has its own.
        request = Request(UNDOINGS, contract.name, "destructive", (), claim.now, claim)
        answer = self._admitted(request)
        if answer.kind == "replay":
            reference = answer.record.reference if answer.record else ""
            if answer.record and what.key == compensation_key(what.effect_key) and _ran_since(what, answer.record):
                why = "it was undone before and has run again since: undo it by hand"
                return Undone("refused", what.key, what.effect_key, why, reference)
            return Undone("undone_before", what.key, what.effect_key, reference=reference)
        if answer.kind != "execute":
            message = answer.finding.message if answer.finding else answer.kind
            return Undone("in_doubt" if answer.kind == "in_doubt" else "refused", what.key, what.effect_key, message)
        attempt = answer.record.attempt if answer.record else 1
        denied = self._put_on_record(what)
        reaction = self._run(compensate, what, claim, attempt, timeout) if denied is None else denied
        return self._settled(reaction, what, claim, contract)

    def _claim(self, contract: Contract, what: Compensation, lease: float) -> Claim:
        reference = what.row.reference if what.row else ""
        return Claim(
            key=what.key,
            args_hash=undoing_hash(what.effect_key, reference),
            claim_id=f"undo-{uuid.uuid4().hex}",
            tool=contract.name,
            contract=contract.id,
            run_id=UNDOINGS,
            now=self._clock.now(),
            lease=lease,
            owner=owner(),
            compensates=what.effect_key or f"row {reference}",
        )

    def _admitted(self, request: Request) -> Admission:
        walk = admitted(request)
        answer: Any = None
        try:
            while True:
                step = walk.send(answer)
                if isinstance(step, Gone):
                    answer = self._clock.monotonic() if is_dead(step.owner) else None
                else:
                    answer = self._store.admit(cast("Admit", step).request)
        except StopIteration as end:
            return cast("Admission", end.value)

    def _put_on_record(self, what: Compensation) -> NotStarted | None:
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

    def _run(
        self, compensate: Callable[..., Any], what: Compensation, claim: Claim, attempt: int, timeout: float
    ) -> Reaction:
        deadline = time.monotonic() + timeout
        checks: Checks = []
        effect = Effect(claim.key, attempt, deadline, claim.claim_id, self._store, self._clock.now, checks)

        def late(reaction: Reaction) -> None:
            if isinstance(reaction, Returned):  # it happened after all: the doubt is over, if nobody ended it before
                react(lambda: self._settle(self._settlement(claim, "completed", reaction)))

        def call() -> Any:
            pending = within(effect, lambda: compensate(what), checks)
            if not inspect.isawaitable(pending):
                return pending
            import asyncio  # noqa: PLC0415 - 20 ms of import, for those whose functions are asynchronous

            async def whole() -> Any:
                async with asyncio.timeout(timeout):
                    return await pending

            return asyncio.run(whole())

        return self._workers.run(call, timeout + (0.5 if is_async(compensate) else 0.0), late)

    def _settled(self, reaction: Reaction, what: Compensation, claim: Claim, contract: Contract) -> Undone:
        state, message = _judged(reaction)
        settlement = self._settlement(claim, state, reaction, message)
        problem = self._settle(settlement)
        if problem is not None and state == "completed":
            state, message = "in_doubt", f"it was undone, and the ledger could not be told ({problem})"
        self._noted(what, contract, settlement, state, message)
        if state == "completed":
            return Undone("undone", what.key, what.effect_key, reference=settlement.reference)
        return Undone("in_doubt" if state == "in_doubt" else "refused", what.key, what.effect_key, message)

    def _settlement(self, claim: Claim, state: Settling, reaction: Reaction, failure: str = "") -> Settlement:
        said: Any = reaction.value if isinstance(reaction, Returned) else None
        reference = said if isinstance(said, str) else ""
        never = isinstance(reaction, NotStarted)
        now = self._clock.now()
        return Settlement(claim.key, claim.claim_id, state, now, failure=failure, reference=reference, unstarted=never)

    def _settle(self, settlement: Settlement) -> str | None:
        """Report to the ledger, again if it cannot be reached. Returns why it does not know, or None."""
        for pause in SETTLE_AGAIN:
            try:
                settled = self._store.settle(settlement)
            except Exception as error:  # noqa: BLE001 - a store may raise anything; the undoing then stays in doubt
                if pause is None:
                    return trouble(error)
                self._clock.sleep(pause)
            else:
                return None if settled.accepted else "its claim was lost"
        raise AssertionError("the last round returns")

    def _noted(self, what: Compensation, contract: Contract, report: Settlement, state: Settling, why: str) -> None:
        """Leave a line in the audit. The record itself says the same; losing the line costs only who asked for it."""
        data = {
            "key": what.key,
            "state": state,
            "tool": contract.name,
            "row": what.row.reference if what.row else "",
            "reference": report.reference,
            "failure": why,
        }
        entry = Entry(self._clock.now(), "compensated", what.effect_key, self._by, what.reason, data)
        react(lambda: self._store.note(entry))


def _ran_since(what: Compensation, undoing: Record) -> bool:
    """Whether what is to be undone is a later attempt than the one that was undone: its key is the same."""
    return what.record is not None and not is_of(undoing, what.record)


def _judged(reaction: Reaction) -> tuple[Settling, str]:
    """The state an undoing ends in, and why. Only a function that was never started proves that nothing happened."""
    if isinstance(reaction, Returned):
        return "completed", ""
    if isinstance(reaction, NotStarted):
        return "failed_retriable", reaction.reason
    if isinstance(reaction, TimedOut):
        return "in_doubt", f"it did not come back in {reaction.seconds:g} s"
    return "in_doubt", f"it raised {type(reaction.error).__name__}"
