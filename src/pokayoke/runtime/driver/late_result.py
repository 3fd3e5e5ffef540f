"""Settles the claim of a tool that ends after its caller stopped waiting.

In: a reaction that comes too late.
Out: a doubt that is settled, or stays.
Never: a delivered result, or a doubt settled because the tool merely returned an awaitable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.failures import store_error_text
from pokayoke.core.flow.steps import NotStarted, Reaction, Returned
from pokayoke.core.ledger.records import Claim, Settlement, SettlementState
from pokayoke.core.output.validate import declared_failure
from pokayoke.runtime.driver.tool_call import close_coroutine, is_awaitable_result

if TYPE_CHECKING:
    from pokayoke.runtime.ports import RunPort


def record_late_result(run: RunPort, contract: Contract, claim: Claim | None, reaction: Reaction) -> None:
    """Record what became of an abandoned tool; the result is never delivered.

    A write that came back has happened: its doubt is settled, unless somebody has settled it before, or the tool
    says that it failed. One that never began is given back.
    """
    if isinstance(reaction, NotStarted):
        if claim is not None:
            _settle_claim(run, claim, "failed_retriable", reaction.reason)
        return
    settled = None
    if claim is not None and _has_happened(run, contract, reaction):
        settled = _settle_claim(run, claim, "completed")
    key, reason = claim.key if claim else None, type(reaction).__name__.lower()
    run.note("late_effect", tool=contract.name, ok=False, reason=reason, key=key, settled=settled)


def _settle_claim(run: RunPort, claim: Claim, state: SettlementState, failure: str = "") -> bool | None:
    """Report to the ledger. Returns whether it took the report; None if it could not be reached."""
    report = Settlement(claim.key, claim.claim_id, state, run.guard.clock.now(), failure=failure)
    try:
        settled = run.guard.store.settle(report)
    except Exception as error:  # noqa: BLE001 - a store may raise anything; the effect then stays in doubt
        run.note("store", ok=False, reason=store_error_text(error))
        return None
    if settled.accepted and settled.record is not None:
        run.progress.matters.apply_settlement(settled.record)
    return settled.accepted


def _has_happened(run: RunPort, contract: Contract, reaction: Reaction) -> bool:
    """Return whether a tool has finished and does not report a failure."""
    if is_awaitable_result(reaction):
        close_coroutine(reaction.value)
        return False
    if not isinstance(reaction, Returned):
        return False
    policy = run.guard.policy.validation.tool_output
    return declared_failure(reaction.value, contract, policy=policy) is None
