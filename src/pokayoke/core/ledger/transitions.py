"""At most once: the key of an effect, the states of its record, and who may do what next.

What enters is the record as it stands and what someone wants; what leaves is the record as it must
stand and an answer. These functions are the single source of truth: every store calls them while
nobody else can change the record. What must never happen here: a second execution that is not
proven safe, or a completed record that changes.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.ledger.findings import (
    conflict_finding,
    failed_before_finding,
    in_doubt_finding,
    in_progress_finding,
    mark_in_doubt,
)

RecordState = Literal["executing", "resolving", "completed", "failed_retriable", "failed_final", "in_doubt"]
SettlementState = Literal["completed", "failed_retriable", "failed_final", "in_doubt"]
OPEN: Final[tuple[RecordState, ...]] = ("executing", "resolving", "in_doubt")
"""States in which nobody has said yet how it ended; a record in one of them is never forgotten."""
SETTLED: Final[tuple[RecordState, ...]] = tuple(state for state in get_args(RecordState) if state not in OPEN)
_MAX_CLOCK_SKEW: Final = 86_400.0  # seconds that clocks may differ
MAX_ATTEMPTS: Final = 3


class Record(msgspec.Struct, frozen=True, gc=False):
    """What the ledger knows of one effect.

    Args:
        key: the ledger key.
        args_hash: digest of all effective arguments that count, with the declared defaults of those left out.
        state: where it stands.
        attempt: number of executions started; the fencing token. One that never began has given its number back.
        claim_id: the call that owns the execution; never empty.
        lease_until: wall-clock second until which the owner (or the resolver) is believed to be at work.
        tool: the tool's name.
        contract: `name@version`.
        run_id: the run that claimed it.
        claimed_at: wall-clock second of the claim.
        owner: the process that executes: machine, boot, process space, pid and start time; "" if unknown.
        epoch: how often a kill switch had flipped when it was claimed.
        resolver: the call that asks the target whether the effect happened, or "".
        dead_since: when the owner was first seen dead, or None; a second of its machine's monotonic clock.
        settled_at: wall-clock second of the settlement; None also for a completion whose output is still to come.
        output: the recorded output as JSON bytes, or None.
        output_ok: False if the effect happened but its output broke the contract.
        failure: what went wrong, in words for people; while it executes, what an earlier execution left open.
        reference: the target's own name of the effect, if known.
        decided_by: the person who settled a doubt, or "".
        compensates: key of the effect that this one undoes, or "".
    """

    key: str
    args_hash: str
    state: RecordState
    attempt: int
    claim_id: str
    lease_until: float
    tool: str
    contract: str
    run_id: str
    claimed_at: float
    owner: str = ""
    epoch: int = 0
    resolver: str = ""
    dead_since: float | None = None
    settled_at: float | None = None
    output: bytes | None = None
    output_ok: bool = True
    failure: str = ""
    reference: str = ""
    decided_by: str = ""
    compensates: str = ""

    @property
    def is_final(self) -> bool:
        """True if it answers for the effect from now on: completed, and its output will not change any more."""
        return self.state == "completed" and self.settled_at is not None

    def is_over(self, now: float) -> bool:
        """True if by its times nobody is at work on it any more; one claimed far ahead has those of a wrong clock."""
        return now >= self.lease_until or self.claimed_at - now > _MAX_CLOCK_SKEW


class Claim(msgspec.Struct, frozen=True, gc=False):
    """The wish to execute a write. Fields that `Record` has mean the same.

    Args:
        now: wall-clock second.
        lease: seconds the claim is believed to be alive.
        max_attempts: executions that harmless failures may lead to.
        reruns: True if a second execution does no harm (the target drops repeats, or running twice is once).
        resolves: True if the target can be asked whether an effect happened.
        dead: a claim id whose owner is proven dead, or "".
        dead_at: when that was seen; a second of the machine's monotonic clock.
        proceed: True if the caller is the resolver and may execute.
        doubt: what an execution before it left open, or ""; for a resolver, unless proof has ended that doubt.
    """

    key: str
    args_hash: str
    claim_id: str
    tool: str
    contract: str
    run_id: str
    now: float
    lease: float
    max_attempts: int = MAX_ATTEMPTS
    owner: str = ""
    reruns: bool = False
    resolves: bool = False
    dead: str = ""
    dead_at: float | None = None
    proceed: bool = False
    doubt: str = ""
    compensates: str = ""
    epoch: int = 0


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """What became of an execution. Fields that `Record` has mean the same.

    Args:
        now: wall-clock second.
        early: True if the effect is recorded in its own transaction, before its output is known.
        found: True if a lookup has found the effect: whoever reports has none of its own.
        unstarted: True if the tool never began, so that it is no attempt.
    """

    key: str
    claim_id: str
    state: SettlementState
    now: float
    output: bytes | None = None
    output_ok: bool = True
    failure: str = ""
    reference: str = ""
    dead_since: float | None = None
    early: bool = False
    found: bool = False
    unstarted: bool = False


class SettleResult(msgspec.Struct, frozen=True, gc=False):
    """What became of a report.

    Args:
        accepted: False if the claim was lost; the report is then kept as a late effect.
        record: the record as it stands now, or None if there is none.
    """

    accepted: bool
    record: Record | None = None


class Resolution(msgspec.Struct, frozen=True, gc=False):
    """A person's word on an effect in doubt.

    Args:
        key: the ledger key.
        happened: whether the effect took place.
        by: who says so.
        reason: how they know.
        now: wall-clock second.
        reference: the target's own name of the effect, if it happened.
    """

    key: str
    happened: bool
    by: str
    reason: str
    now: float
    reference: str = ""


class Admission(msgspec.Struct, frozen=True, gc=False):
    """What a claimant is told.

    Args:
        kind: execute, resolve (ask the target first), replay (the recorded output answers), in_doubt, failed
            (for good), refuse or pending.
        finding: why, unless the kind is execute, resolve or replay.
        record: the record as it stands now, if there is one.
        retry_after: seconds after which asking again makes sense, if known.
        approval: id of the approval that is waited for, if any.
    """

    kind: Literal["execute", "resolve", "replay", "in_doubt", "failed", "refuse", "pending"]
    finding: Finding | None = None
    record: Record | None = None
    retry_after: float | None = None
    approval: str | None = None


EXECUTE = Admission("execute")


def is_same_claim(record: Record, wish: Claim) -> bool:
    """Whether this claim is at work: its answer was lost on the way, or its lease has to be renewed."""
    return record.state == "executing" and _has_same_owner(record, wish)


def _has_same_owner(record: Record, wish: Claim) -> bool:
    """A process that was forked in between has the claim's id as well, and must not run a second time."""
    return (record.claim_id, record.owner) == (wish.claim_id, wish.owner)


def claim_effect(record: Record | None, wish: Claim) -> tuple[Record | None, Admission]:
    """Decide over a wish to execute. Returns the record to keep (None: unchanged) and the answer."""
    if record is None:
        return _start_execution(wish, 1)
    if record.args_hash != wish.args_hash:
        return None, Admission("refuse", conflict_finding(record.args_hash, wish.args_hash, wish.tool), record)
    if record.state == "completed":
        return _answer_completed(record, wish)
    if record.state == "failed_final":
        return None, Admission("failed", failed_before_finding(record.tool, record.failure), record)
    if record.state == "failed_retriable":
        if record.attempt >= wish.max_attempts and not record.decided_by:
            return None, Admission("failed", failed_before_finding(record.tool, record.failure), record)
        return _start_execution(wish, record.attempt + 1)
    if record.state == "in_doubt":
        return _answer_doubtful(record, wish, None)
    return _answer_busy(record, wish)


def _answer_completed(record: Record, wish: Claim) -> tuple[Record | None, Admission]:
    if record.is_final:
        return None, Admission("replay", None, record)
    # The effect committed in its own transaction; its output is on its way, unless its owner is gone, or has failed
    # after that and asks whether it may try again.
    if _is_alive(record, wish) and not _has_same_owner(record, wish):
        return None, _answer_in_progress(record, wish)
    record = msgspec.structs.replace(record, settled_at=wish.now)
    return record, Admission("replay", None, record)


def _answer_busy(record: Record, wish: Claim) -> tuple[Record | None, Admission]:
    """Somebody executes or resolves, or did so until a moment ago."""
    if is_same_claim(record, wish):
        until, open_still = wish.now + wish.lease, record.failure or wish.doubt
        record = msgspec.structs.replace(record, lease_until=until, failure=open_still)
        return record, Admission("execute", None, record)
    if wish.claim_id == record.resolver:
        if wish.proceed:
            return _start_execution(wish, record.attempt + 1, wish.doubt)
        return None, Admission("resolve", None, record)
    if _is_alive(record, wish):
        return None, _answer_in_progress(record, wish)
    # A lapsed lease, or a dead owner, proves nothing about the effect: it only tells that nobody will report soon.
    doubt = mark_in_doubt(record)
    if wish.dead == record.claim_id and record.dead_since is None:
        doubt = msgspec.structs.replace(doubt, dead_since=wish.dead_at)
    return _answer_doubtful(doubt, wish, doubt)


def _answer_doubtful(record: Record, wish: Claim, changed: Record | None) -> tuple[Record | None, Admission]:
    if wish.reruns:
        return _start_execution(wish, record.attempt + 1, mark_in_doubt(record).failure)
    if wish.resolves:
        asked = msgspec.structs.replace(
            record, state="resolving", resolver=wish.claim_id, lease_until=wish.now + wish.lease
        )
        return asked, Admission("resolve", None, asked)
    return changed, Admission("in_doubt", in_doubt_finding(record), record)


def settle(record: Record | None, settlement: Settlement) -> tuple[Record | None, bool]:
    """Decide over a report. Returns the record to keep (None: unchanged) and whether it was accepted.

    The owner of the claim may report as long as the record is open, the resolver as long as it
    resolves; a completed record never changes, but for the output that its own transaction could
    not know yet. A person's "it did not happen" yields to the executor who knows better, until the
    next attempt begins. A failure of an execution says nothing of one before it that was left open. A
    refused report is a late effect: the caller records it as an event.
    """
    if record is None:
        return None, False
    own = record.claim_id == settlement.claim_id
    if settlement.state.startswith("failed") and record.failure and record.state in ("executing", "in_doubt"):
        settlement = msgspec.structs.replace(settlement, state="in_doubt", failure=record.failure, unstarted=False)
    if record.state == "completed" and record.settled_at is None and own:
        # What its own transaction has committed stays; a report that it failed only says that there is no output.
        if settlement.early:
            return None, True
        told, nothing = settlement.state == "completed", msgspec.structs.replace(record, settled_at=settlement.now)
        return _apply_settlement(record, settlement) if told else nothing, told
    if own and settlement.state == "completed":
        open_for: tuple[RecordState, ...] = ("failed_retriable",) if record.decided_by else OPEN
    elif own:
        open_for = ("executing",)
    elif record.resolver == settlement.claim_id:
        open_for = ("resolving",)
    else:
        return None, False
    if record.state not in open_for:
        return None, _is_same_report(record, settlement)
    return _apply_settlement(record, settlement), True


def _is_same_report(record: Record, settlement: Settlement) -> bool:
    """Whether the record holds what a report says: it was taken before, and only its receipt was lost.

    A completion by somebody else (a lookup, a person) may know another output. Its own executor then
    has to answer from the record, so that all callers hear the same.
    """
    said = (settlement.state, settlement.output, settlement.output_ok)
    return (record.state, record.output, record.output_ok) == said


def _apply_settlement(record: Record, settlement: Settlement) -> Record:
    return msgspec.structs.replace(
        record,
        state=settlement.state,
        attempt=record.attempt - settlement.unstarted,
        settled_at=None if settlement.early else settlement.now,
        output=settlement.output,
        output_ok=settlement.output_ok,
        failure=settlement.failure,
        reference=settlement.reference or record.reference,
        dead_since=record.dead_since if record.dead_since is not None else settlement.dead_since,
        resolver="",
    )


def resolve_by_person(record: Record, decision: Resolution) -> Record | None:
    """Settle a doubt by a person's word. Returns the record to keep, or None if there is nothing to decide.

    An execution whose lease has lapsed is as good as in doubt. A person who says that nothing
    happened allows one more attempt, whatever came before; a late report of the old one is refused. So may one
    whose attempts are used up be tried again; and what has failed, by whoever's word, may turn out to have happened.
    """
    if record.state in ("executing", "resolving"):
        settles = record.is_over(decision.now)
    elif record.state == "failed_retriable":
        settles = decision.happened or not record.decided_by
    else:
        settles = record.state == "in_doubt" or (record.state == "failed_final" and decision.happened)
    if not settles:
        return None
    return msgspec.structs.replace(
        record,
        state="completed" if decision.happened else "failed_retriable",
        settled_at=decision.now,
        reference=decision.reference,
        failure="" if decision.happened else f"a person said that it did not happen: {decision.reason}",
        decided_by=decision.by,
        resolver="",
    )


def _is_alive(record: Record, wish: Claim) -> bool:
    """Whether somebody may still report: time says so and no proof of death contradicts.

    Proof about the executor says nothing about a resolver, which is another process.
    """
    dead = wish.dead == record.claim_id and record.state != "resolving"
    return not record.is_over(wish.now) and not dead


def _answer_in_progress(record: Record, wish: Claim) -> Admission:
    return Admission("refuse", in_progress_finding(record.tool), record, retry_after=record.lease_until - wish.now)


def _start_execution(wish: Claim, attempt: int, doubt: str = "") -> tuple[Record, Admission]:
    record = Record(
        key=wish.key,
        args_hash=wish.args_hash,
        state="executing",
        attempt=attempt,
        claim_id=wish.claim_id,
        lease_until=wish.now + wish.lease,
        tool=wish.tool,
        contract=wish.contract,
        run_id=wish.run_id,
        claimed_at=wish.now,
        owner=wish.owner,
        epoch=wish.epoch,
        failure=doubt,
        compensates=wish.compensates,
    )
    return record, Admission("execute", None, record)
