"""In doubt: ask the target whether an effect happened; execute again only with proof that it did not.

In: an admission that found a doubt, and the contract, which says what counts as proof.
Out: the admission after the lookup, and the effect it found.
Never: an execution because of "not found" alone. The first executor may still be alive and act later.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from typing import Any

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.steps import Admit, CheckOwner, LookUp, Reaction, ReadRecord, Returned, Settle, Step
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.compensation import compensation_finding
from pokayoke.core.ledger.findings import (
    in_doubt_finding,
    mark_in_doubt,
    took_effect_finding,
    unreachable_reason,
)
from pokayoke.core.ledger.key import compensation_key
from pokayoke.core.ledger.records import Admission, Claim, Record, Settlement


class Found(msgspec.Struct, frozen=True):
    """A lookup's answer: the effect happened.

    Args:
        output: what the tool would have returned; it is checked like any output of the tool. Left out if
            the target does not know it.
        reference: the target's own name of the effect, if it has one.
    """

    output: Any = msgspec.UNSET
    reference: str = ""


class NoTrace(Enum):
    """A lookup's other answers."""

    NOT_FOUND = "not_found"
    UNKNOWN = "unknown"


NOT_FOUND = NoTrace.NOT_FOUND
"""A lookup's answer: the target knows of no such effect. It may still come."""
UNKNOWN = NoTrace.UNKNOWN
"""A lookup's answer: the target cannot tell."""

_ASKED_SEPARATOR = "; asked, "


def undone_finding(record: Record) -> Generator[Step, Any, Finding | None]:
    """Return the finding for a completed effect that was undone or may have been; None if it stands."""
    undoing: Record | Finding | None = yield ReadRecord(compensation_key(record.key), record.tool)
    if isinstance(undoing, Record):
        return compensation_finding(record, undoing)
    return None if undoing is None else took_effect_finding(record.tool, undoing)


def resolve_doubt(
    request: AdmissionRequest, contract: Contract, arguments: dict[str, Any], answer: Admission, lookup_timeout: float
) -> Generator[Step, Any, tuple[Admission, Found | None]]:
    """Ask the target, after the ledger chose this call as the resolver.

    Args:
        request: the admitted request, with its claim.
        contract: the tool's contract; it has a lookup.
        arguments: the effective arguments.
        answer: the ledger's `resolve`.
        lookup_timeout: seconds the lookup may take.

    Returns:
        the answer of the ledger now, and what the target found, which the caller checks and settles.
    """
    claim, record = request.claim, answer.record
    assert claim is not None, "only a claimed write is resolved"
    assert record is not None, "a doubt has a record"
    since, seen = record.dead_since, None
    if _needs_death_proof(contract, record):
        # Before the lookup, never after: an executor may act between the answer and its own end.
        seen = yield CheckOwner(record.owner)
        since = seen if since is None else since
    reaction: Reaction = yield LookUp(contract, claim.key, arguments, lookup_timeout)
    said = reaction.value if isinstance(reaction, Returned) else UNKNOWN
    if isinstance(said, Found):
        return answer, said
    wait = _seconds_until_proof(contract, since, seen) if said is NOT_FOUND else None
    if wait is not None and wait <= 0:
        # A target that drops repeats may still run the first request: only a death or a settlement ends the doubt.
        doubt = mark_in_doubt(record).failure if contract.lookup_safe == "downstream_key" else ""
        # A caller that was overtaken meanwhile finds a doubt and does not look it up again.
        answer = yield Admit(
            msgspec.structs.replace(
                request, claim=msgspec.structs.replace(claim, proceed=True, doubt=doubt, resolves=False)
            )
        )
        if answer.kind == "execute":
            return answer, None
        if (lost := unreachable_reason(answer)) is not None:
            open_still = msgspec.structs.replace(record, failure=f"{mark_in_doubt(record).failure}; {lost.message}")
            answer = Admission("in_doubt", in_doubt_finding(open_still), record)
    else:
        answer = Admission("in_doubt", in_doubt_finding(mark_in_doubt(record)), record, retry_after=wait)
    known: Finding | Record | None = yield Settle(
        _undecided_settlement(claim, record, said, since, request.now), claim.tool
    )
    # If the first executor has completed meanwhile, the doubt is over.
    return (Admission("replay", None, known) if isinstance(known, Record) else answer), None


def _needs_death_proof(contract: Contract, record: Record) -> bool:
    """Return whether the proof needs the executor's death, or the time since."""
    if contract.lookup_safe == "downstream_key" or not record.owner:
        return False
    return record.dead_since is None or contract.lookup_safe == "settled"


def _seconds_until_proof(contract: Contract, dead_since: float | None, now: float | None) -> float | None:
    """Return the seconds until "not found" proves enough to execute again; None if it never does.

    `now` is a second of the clock of `dead_since`, that of the executor's machine, and None elsewhere. Wall
    clocks differ and are set, so they prove nothing about work in progress.
    """
    if contract.lookup_safe == "downstream_key":
        return 0.0
    if dead_since is None:
        return None
    if contract.lookup_safe == "executor_dead":
        return 0.0
    if now is None:
        return None
    assert contract.settle_after is not None, "a contract whose target settles says after how long"
    return contract.settle_after - (now - dead_since)


def _undecided_settlement(claim: Claim, record: Record, said: Any, dead_since: float | None, now: float) -> Settlement:
    why = "the target knows of no such effect" if said is NOT_FOUND else "the target cannot tell"
    before = record.failure.partition(_ASKED_SEPARATOR)[0]
    return Settlement(
        claim.key, claim.claim_id, "in_doubt", now, failure=f"{before}{_ASKED_SEPARATOR}{why}", dead_since=dead_since
    )
