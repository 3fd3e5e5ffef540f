"""At most once: the key of an effect, the states of its record, and who may do what next.

What enters is the record as it stands and what someone wants; what leaves is the record as it must
stand and an answer. This function is the single source of truth: every store serves it, memory
directly, databases by statements that say the same. What must never happen here: a second
execution that is not proven safe, or a completed record that changes.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.canonical import digest, dump

CODES: dict[str, str] = {
    "in_progress": "the same write is running in another call right now",
    "conflict": "an equal key was used before with other arguments",
    "in_doubt": "a write was started and nobody can know whether its effect happened",
    "failed_before": "the same write failed for good before and is not tried again",
    "no_scope": "a durable store needs a run, session or tenant id to tell repetitions apart",
    "store_unavailable": "the ledger could not be reached, so the write was not started",
}

RecordState = Literal["executing", "completed", "failed_retriable", "failed_final", "in_doubt"]
Settling = Literal["completed", "failed_retriable", "failed_final", "in_doubt"]


class Record(msgspec.Struct, frozen=True, gc=False):
    """What the ledger knows of one effect.

    Args:
        key: the ledger key.
        args_hash: digest of all effective arguments.
        state: where it stands.
        attempt: number of executions started; the fencing token.
        claim_id: the call that owns the execution.
        lease_until: wall-clock second until which the owner is believed to be at work.
        tool: the tool's name.
        contract: `name@version`.
        run_id: the run that claimed it.
        claimed_at: wall-clock second of the claim.
        settled_at: wall-clock second of the settlement, or None.
        output: the recorded output as JSON bytes, or None.
        output_ok: False if the effect happened but its output broke the contract.
        failure: what went wrong, in words for people.
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
    settled_at: float | None = None
    output: bytes | None = None
    output_ok: bool = True
    failure: str = ""


class Claim(msgspec.Struct, frozen=True, gc=False):
    """The wish to execute a write. Fields as in `Record`; `now` is the wall-clock second."""

    key: str
    args_hash: str
    claim_id: str
    tool: str
    contract: str
    run_id: str
    now: float
    lease: float
    max_attempts: int = 3


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """What became of an execution. Fields as in `Record`."""

    key: str
    claim_id: str
    state: Settling
    now: float
    output: bytes | None = None
    output_ok: bool = True
    failure: str = ""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What a claimant is told.

    Args:
        kind: execute, replay (the recorded output answers), in_doubt, failed (for good), refuse or pending.
        finding: why, unless the kind is execute.
        record: the record as it stands now, if there is one.
        retry_after: seconds after which asking again makes sense, if known.
        approval: id of the approval that is waited for, if any.
    """

    kind: Literal["execute", "replay", "in_doubt", "failed", "refuse", "pending"]
    finding: Finding | None = None
    record: Record | None = None
    retry_after: float | None = None
    approval: str | None = None


EXECUTE = Answer("execute")


def ledger_key(
    scope: tuple[str, str],
    effect_name: str,
    identity: str,
    *,
    occurrence: int = 0,
    epoch: int = 0,
) -> str:
    """Return the key of an effect (reference: ledger specification, section 2.1).

    Args:
        scope: kind and id, such as `("run", "r-1")`: equal calls in other scopes are other effects.
        effect_name: the contract's name. The version is left out on purpose: a roll-back between an
            attempt and its retry must not change the key.
        identity: digest of the canonical identity arguments (of all where the contract names none).
        occurrence: 0 for the first; a wanted repetition carries another number.
        epoch: raised on purpose to start anew.
    """
    return digest(dump(["pk1", *scope, effect_name, epoch, occurrence, identity]))


def claim(record: Record | None, wish: Claim) -> tuple[Record | None, Answer]:
    """Decide over a wish to execute. Returns the record to keep (None: unchanged) and the answer."""
    if record is None:
        return _new(wish, 1), EXECUTE
    if record.args_hash != wish.args_hash:
        return None, Answer("refuse", _conflict(record, wish), record)
    if record.state == "completed":
        return None, Answer("replay", None, record)
    if record.state == "failed_final":
        return None, Answer("failed", _failed_before(record), record)
    if record.state == "failed_retriable":
        if record.attempt >= wish.max_attempts:
            return None, Answer("failed", _failed_before(record), record)
        return _new(wish, record.attempt + 1), EXECUTE
    if record.state == "executing":
        remaining = record.lease_until - wish.now
        if remaining > 0:
            return None, Answer("refuse", _in_progress(record), record, retry_after=remaining)
        # A lapsed lease proves nothing about the effect: it only tells that nobody will report soon.
        record = msgspec.structs.replace(record, state="in_doubt", failure="the caller never reported back")
        return record, Answer("in_doubt", in_doubt(record), record)
    return None, Answer("in_doubt", in_doubt(record), record)


def settle(record: Record | None, settlement: Settlement) -> tuple[Record | None, bool]:
    """Decide over a report. Returns the record to keep (None: unchanged) and whether it was accepted.

    Only the owner of the claim may report, only while the record is open, and a completed record
    never changes. A refused report is a late effect: the caller records it as an event.
    """
    if record is None or record.claim_id != settlement.claim_id:
        return None, False
    open_for = ("executing", "in_doubt") if settlement.state == "completed" else ("executing",)
    if record.state not in open_for:
        return None, record.state == settlement.state
    return (
        msgspec.structs.replace(
            record,
            state=settlement.state,
            settled_at=settlement.now,
            output=settlement.output,
            output_ok=settlement.output_ok,
            failure=settlement.failure,
        ),
        True,
    )


def _new(wish: Claim, attempt: int) -> Record:
    return Record(
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
    )


def _conflict(record: Record, wish: Claim) -> Finding:
    return Finding(
        code="conflict",
        message=(
            f"{wish.tool} was called before with the same identity but other arguments "
            f"(recorded {record.args_hash[:12]}, now {wish.args_hash[:12]})"
        ),
        hint=(
            f"{wish.tool} was already called with the same identifying arguments but different details. "
            "Nothing was executed. Use the earlier result, or ask the user which one is meant."
        ),
        data={"recorded": record.args_hash, "now": wish.args_hash},
    )


def _in_progress(record: Record) -> Finding:
    return Finding(
        code="in_progress",
        blame="host",
        message=f"{record.tool} is running with these arguments in another call",
        hint=f"The same call of {record.tool} is still running. Do not send it again now.",
    )


def in_doubt(record: Record) -> Finding:
    """The finding for an effect nobody can know of."""
    return Finding(
        code="in_doubt",
        blame="host",
        message=f"{record.tool} was started and it is not known whether it took effect ({record.failure})",
        hint=(
            f"It is not known whether {record.tool} took effect. Do not send it again. "
            "Read the current state if a tool allows it, and tell the user that this has to be checked."
        ),
        data={"key": record.key, "attempt": record.attempt},
    )


def _failed_before(record: Record) -> Finding:
    return Finding(
        code="failed_before",
        blame="tool",
        message=f"{record.tool} failed for good with these arguments: {record.failure}",
        hint=f"{record.tool} already failed with these arguments and is not tried again. Tell the user.",
    )


def no_scope(tool: str) -> Finding:
    """The finding for a write that a durable ledger could not tell from another run's."""
    return Finding(
        code="no_scope",
        blame="host",
        message=f"{tool} is a write on a durable store, but the run was opened without a run, session or tenant id",
        hint="This write could not be started because of a set-up problem. Tell the user; do not retry.",
    )


def store_unavailable(tool: str, reason: str) -> Finding:
    """The finding for a write whose ledger cannot be reached: not started, so nothing happened."""
    return Finding(
        code="store_unavailable",
        blame="host",
        message=f"{tool} was not started: the ledger cannot be reached ({reason})",
        hint="This write was not started because of a technical problem. You may try once more later.",
    )
