"""At most once: the states of a record, and who may do what next.

    state               a claim leads to                                its owner may report    its resolver may report
    ------------------  ----------------------------------------------  ----------------------  -----------------------
    (none)              executing                                       nothing                 nothing
    executing           same call: goes on, its lease renewed           any state               -
                        another: in progress; lapsed: as in_doubt
    resolving           its resolver: asks the target, or executing     completed               any state
                        another: in progress; lapsed: as in_doubt
    in_doubt            executing if it may rerun, resolving if it      completed               nothing
                        has a lookup, else in doubt
    failed_retriable    executing, while attempts are left or if a      completed, after a      nothing
                        person allowed one more; else failed            person's "it did not"
    failed_final        failed                                          nothing                 nothing
    completed           replay; in progress while the output of its     that output             nothing
                        own transaction is still to come

A person may settle `in_doubt` and a lapsed lease, and may say of a failure that the effect happened after all.
Other arguments under the same key are a conflict in every state.

In: the record as it is, and a claim, a settlement or a person's decision.
Out: the record as it must be, and the answer. Every store calls these functions while the record is locked.
Never: a second execution that is not proven safe, or a completed record that changes.
"""

from __future__ import annotations

import msgspec

from pokayoke.core.ledger.findings import (
    conflict_finding,
    failed_before_finding,
    in_doubt_finding,
    in_progress_finding,
    mark_in_doubt,
)
from pokayoke.core.ledger.records import OPEN, Admission, Claim, Record, RecordState, Resolution, Settlement


def is_same_claim(record: Record, wish: Claim) -> bool:
    """Return whether this claim executes already: its answer was lost, or its lease has to be renewed."""
    return record.state == "executing" and _has_same_owner(record, wish)


def _has_same_owner(record: Record, wish: Claim) -> bool:
    """Return whether claim id and process match: a forked child has the same claim id and must not run again."""
    return (record.claim_id, record.owner) == (wish.claim_id, wish.owner)


def claim_effect(record: Record | None, wish: Claim) -> tuple[Record | None, Admission]:
    """Decide over a claim. Returns the record to keep (None: unchanged) and the answer."""
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
    # The effect committed in its own transaction and its output is to come, unless its owner is gone, or failed
    # after the commit and asks whether it may try again.
    if _is_alive(record, wish) and not _has_same_owner(record, wish):
        return None, _answer_in_progress(record, wish)
    record = msgspec.structs.replace(record, settled_at=wish.now)
    return record, Admission("replay", None, record)


def _answer_busy(record: Record, wish: Claim) -> tuple[Record | None, Admission]:
    """Answer a claim on a record that is executing or resolving."""
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
    # A lapsed lease or a dead owner proves nothing about the effect, only that no report will come soon.
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

    The owner of the claim may report while the record is open, the resolver while it resolves. A
    completed record changes only to add the output that its own transaction could not know yet. A
    person's "it did not happen" yields to the executor's completion until the next attempt begins. The
    failure of an execution says nothing about an earlier one that was left open. A refused report is a
    late effect: the caller records it as an event.
    """
    if record is None:
        return None, False
    is_owner = record.claim_id == settlement.claim_id
    if settlement.state.startswith("failed") and record.failure and record.state in ("executing", "in_doubt"):
        settlement = msgspec.structs.replace(settlement, state="in_doubt", failure=record.failure, unstarted=False)
    if record.state == "completed" and record.settled_at is None and is_owner:
        # What its own transaction committed stays; a failure report only says that there is no output.
        if settlement.early:
            return None, True
        told, nothing = settlement.state == "completed", msgspec.structs.replace(record, settled_at=settlement.now)
        return _apply_settlement(record, settlement) if told else nothing, told
    if is_owner and settlement.state == "completed":
        open_for: tuple[RecordState, ...] = ("failed_retriable",) if record.decided_by else OPEN
    elif is_owner:
        open_for = ("executing",)
    elif record.resolver == settlement.claim_id:
        open_for = ("resolving",)
    else:
        return None, False
    if record.state not in open_for:
        return None, _is_same_report(record, settlement)
    return _apply_settlement(record, settlement), True


def _is_same_report(record: Record, settlement: Settlement) -> bool:
    """Return whether the record holds what the report says: it was taken before and its receipt was lost.

    A completion by a lookup or a person may know another output. The executor then answers from the
    record, so that all callers get the same answer.
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
    """Settle a doubt by a person's decision. Returns the record to keep, or None if there is nothing to decide.

    An execution whose lease has lapsed counts as in doubt. A person who says that nothing happened allows
    one more attempt, also when all attempts are used up; a late report of the old one is refused. A record
    that failed may turn out to have happened.
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
    """Return whether a report may still come: the lease runs and no proof of death contradicts.

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
