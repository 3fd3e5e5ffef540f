"""The values of the ledger: records, claims, settlements, resolutions, admissions.

In: nothing; these are plain values.
Out: what the transitions take and return, and what stores keep.
Never: a rule. The rules stand in `transitions.py` and `admission.py`.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.json.canonical import sha256_hex

RecordState = Literal["executing", "resolving", "completed", "failed_retriable", "failed_final", "in_doubt"]
SettlementState = Literal["completed", "failed_retriable", "failed_final", "in_doubt"]
OPEN: Final[tuple[RecordState, ...]] = ("executing", "resolving", "in_doubt")
"""States whose end is not known yet. A record in one of them is never forgotten."""
SETTLED: Final[tuple[RecordState, ...]] = tuple(state for state in get_args(RecordState) if state not in OPEN)
MAX_CLOCK_SKEW: Final = 86_400.0
"""Seconds that clocks may differ."""
MAX_ATTEMPTS: Final = 3


def call_mark(call_id: str) -> str:
    """Return what the end of a claim id says of the provider's id of its call."""
    return f"~{sha256_hex(call_id.encode(errors='surrogatepass'))[:16]}"


class Record(msgspec.Struct, frozen=True, gc=False):
    """What the ledger knows of one effect.

    Args:
        key: the ledger key.
        args_hash: digest of all effective arguments that count, with the declared defaults of those left out.
        state: its state; see the table in `transitions.py`.
        attempt: number of executions started; the fencing token. An execution that never began gives its number back.
        claim_id: the call that owns the execution; never empty. Ends with its `call_mark`, but in older ledgers.
        lease_until: wall-clock second until which the owner (or the resolver) counts as alive.
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
        output_ok: False if the effect happened but its output broke the contract, or if it failed and nobody said no.
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
    def mark(self) -> str:
        """The `call_mark` of the call that owns it; "" if an older ledger did not keep it."""
        _, tilde, digest = self.claim_id.rpartition("~")
        return tilde + digest if tilde else ""

    @property
    def is_final(self) -> bool:
        """True if it is completed and its output will not change any more."""
        return self.state == "completed" and self.settled_at is not None

    def is_over(self, now: float) -> bool:
        """True if its lease has lapsed. A claim far in the future comes from a wrong clock and counts as lapsed."""
        return now >= self.lease_until or self.claimed_at - now > MAX_CLOCK_SKEW

    def is_doubtful(self, now: float) -> bool:
        """True if a person may settle it: an execution whose lease is over counts as in doubt."""
        return self.state == "in_doubt" or (self.state in OPEN and self.is_over(now))


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A request to execute a write. Fields that `Record` has mean the same.

    Args:
        now: wall-clock second.
        lease: seconds the claim counts as alive.
        max_attempts: most executions after harmless failures.
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
        found: True if a lookup found the effect, so the reporter did not execute it.
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
    """A person's decision on an effect in doubt.

    Args:
        key: the ledger key.
        happened: whether the effect took place.
        by: the person.
        reason: how the person knows.
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
    """The answer to a claim.

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
UNASKED = Admission("refuse")
"""The answer to a request that only an earlier question could let run, if nobody was asked that."""
