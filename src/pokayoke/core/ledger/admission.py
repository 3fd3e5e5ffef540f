"""May this call start now? Mode, latch, limits, approval and claim, decided in one act.

What enters is a request and everything the store holds about it; what leaves is an answer and what
the store must keep. A store calls `admit` while nobody else can change what it handed in, so there
is no gap between the check and the claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from pokayoke.core.call import Effect, Finding
from pokayoke.core.json.canonical import digest
from pokayoke.core.ledger.transitions import EXECUTE, OPEN, Admission, Claim, Record, claim, is_repeated
from pokayoke.core.policy import LimitPolicy
from pokayoke.core.state.kill_switch import Switch, switched_off
from pokayoke.core.state.run_state import RunState, blocked

CODES: dict[str, str] = {
    "quota_exceeded": "a limit on calls or amounts is used up",
    "awaiting_approval": "a person has to approve this call first",
    "approval_denied": "a person has denied this call",
    "approval_expired": "nobody decided, or used a yes, in time; the call needs a new approval",
}

_AHEAD: Final = 3_600.0
"""Seconds that clocks may differ. Who asked by one that was further ahead would have a yes hold for as much longer."""

ApprovalStatus = Literal["waiting", "approved", "used", "denied", "expired"]


class Charge(msgspec.Struct, frozen=True, gc=False):
    """What one call takes from one limit.

    Args:
        counter: what is counted together, such as `day:transfer:2026-11-21`.
        calls: highest number of calls, or None.
        amount: highest sum, or None.
        value: this call's part of the sum.
    """

    counter: str
    calls: int | None
    amount: float | None
    value: float


class Used(msgspec.Struct, frozen=True, gc=False):
    """What a limit has given out so far."""

    calls: int = 0
    amount: float = 0.0


class Approval(msgspec.Struct, frozen=True, gc=False):
    """A question to a person, bound to one call by a fingerprint of tool, version and arguments.

    Args:
        id: short id to approve or deny by.
        fingerprint: what exactly was asked; an edited call has another one.
        tool: the tool's name.
        contract: `name@version`.
        arguments: what the tool would receive, as the person should see it.
        run_id: the run that asked.
        asked_at: wall-clock second.
        expires_at: wall-clock second after which the question is void.
        status: waiting, approved, used (approved, and the read that it was for has run), denied or expired.
        kind: `call` before a call; `output` to review an invalid output.
        by: who decided.
        reason: why.
        decided_at: wall-clock second of the decision.
        marks: names that the tool's contract marks as secret, for those who show the question to others.
    """

    id: str
    fingerprint: str
    tool: str
    contract: str
    arguments: Any
    run_id: str
    asked_at: float
    expires_at: float
    status: ApprovalStatus = "waiting"
    kind: Literal["call", "output"] = "call"
    by: str | None = None
    reason: str | None = None
    decided_at: float | None = None
    marks: tuple[str, ...] = ()

    @property
    def granted(self) -> bool:
        """True if a person has said yes, and that holds or was used."""
        return self.status in ("approved", "used")

    def at(self, now: float) -> Approval:
        """This approval as it stands at `now`: expired if nobody decided in time, or if it was asked in the future."""
        if self.status in ("waiting", "approved") and (now >= self.expires_at or self.asked_at - now > _AHEAD):
            return msgspec.structs.replace(self, status="expired")
        return self

    def asked(self, now: float) -> Approval:
        """The same question, asked at `now`: it stays open as long as it was to."""
        return msgspec.structs.replace(self, asked_at=now, expires_at=now + (self.expires_at - self.asked_at))


class Request(msgspec.Struct, frozen=True, gc=False):
    """Everything an admission needs to know about a call.

    Args:
        run_id: the run.
        tool: the tool's name.
        effect: what the tool does.
        sources: tools whose output a write declares to build on; None is all.
        now: wall-clock second.
        claim: the ledger claim; None for reads, which are never ledgered.
        charges: what it takes from which limits.
        approval: the question to ask first, or None.
        step: the number of the call in its run.
        again: True if an execution under the claim has ended, and another one would begin.
    """

    run_id: str
    tool: str
    effect: Effect
    sources: tuple[str, ...] | None
    now: float
    claim: Claim | None = None
    charges: tuple[Charge, ...] = ()
    approval: Approval | None = None
    step: int = 0
    again: bool = False

    @property
    def shared(self) -> bool:
        """True if more than the run's own state has to be asked."""
        return self.claim is not None or self.approval is not None or bool(self.charges)


class Held(msgspec.Struct, frozen=True, gc=False):
    """What a store holds about a request, read while nobody else can change it."""

    run: RunState
    record: Record | None = None
    used: Mapping[str, Used] = {}
    approval: Approval | None = None
    switches: tuple[Switch, ...] = ()
    epoch: int = 0


class Kept(msgspec.Struct, frozen=True, gc=False):
    """The answer, and what the store must keep from now on (None: unchanged)."""

    answer: Admission
    record: Record | None = None
    used: Mapping[str, Used] = {}
    approval: Approval | None = None


def admit(request: Request, held: Held) -> Kept:
    """Decide in one act. The cheap and the final reasons come first; the claim comes last.

    A repetition is answered from the ledger: it takes nothing from a limit and asks nobody. What a
    harmless failure allows to run again has to pass everything again, but was counted already. A claim that is at
    work stays so whatever was stopped since; its next try is a new start.
    """
    wish, record = request.claim, held.record
    if wish is not None and record is not None and is_repeated(record, wish) and not request.again:
        kept, answer = claim(record, wish)
        return Kept(answer, kept)
    if finding := _halted(request, held):
        return Kept(Admission("refuse", finding))
    if wish is not None and record is not None:
        kept, answer = claim(record, wish)
        if answer.kind != "execute":
            return Kept(answer, kept)
    if request.approval is not None and (question := _question(request.approval, held.approval, request.now)):
        return question if record is None or record.state not in OPEN else _beside_doubt(question, record)
    used: Mapping[str, Used] = {}
    if record is None and request.charges:
        if refusal := _over_limit(request, held.used):
            return Kept(Admission("refuse", refusal))
        used = _charged(request.charges, held.used)
    if wish is None:
        # A yes is for one call. A write's is used up by its record; a read leaves none, so the yes itself has to say.
        yes = None if held.approval is None else msgspec.structs.replace(held.approval, status="used")
        return Kept(EXECUTE, used=used, approval=yes)
    kept, answer = claim(record, msgspec.structs.replace(wish, epoch=held.epoch) if held.epoch else wish)
    return Kept(answer, kept, used)


def _halted(request: Request, held: Held) -> Finding | None:
    finding = blocked(held.run, request.effect, request.sources)
    if finding is None and held.switches:
        finding = switched_off(held.switches, request.tool, request.effect, request.sources)
    return finding


def _question(asked: Approval, known: Approval | None, now: float) -> Kept | None:
    if known is None or known.status == "used":
        return Kept(Admission("pending", _awaiting(asked), approval=asked.id), approval=asked)
    status = known.at(now).status
    if status == "approved":
        return None
    if status == "waiting":
        return Kept(Admission("pending", _awaiting(known), approval=known.id))
    if status == "denied":
        return Kept(Admission("refuse", _denied(known), approval=known.id))
    # The old question is void; asking anew replaces it, so that this refusal is not for ever.
    return Kept(Admission("refuse", _expired(known), approval=asked.id), approval=asked)


def _beside_doubt(question: Kept, record: Record) -> Kept:
    """A question about what may have happened already: whatever became of it, that is as open as before."""
    answer = question.answer
    assert answer.finding is not None, "a question says why it is one"
    hint = f"{answer.finding.hint} It is not known whether an earlier try of it took effect."
    finding = msgspec.structs.replace(answer.finding, hint=hint)
    return msgspec.structs.replace(question, answer=msgspec.structs.replace(answer, finding=finding, record=record))


def _awaiting(approval: Approval) -> Finding:
    return Finding(
        code="awaiting_approval",
        blame="policy",
        message=f"{approval.tool} needs approval {approval.id}",
        hint=f"{approval.tool} waits for a person's approval. Nothing was executed. Do not send it again now.",
        data={"approval": approval.id},
    )


def _denied(approval: Approval) -> Finding:
    return Finding(
        code="approval_denied",
        blame="policy",
        message=f"{approval.tool} was denied by {approval.by or 'a person'}: {approval.reason or 'no reason given'}",
        hint=f"A person has denied this call of {approval.tool}. Do not send it again; tell the user.",
        data={"approval": approval.id},
    )


def _expired(approval: Approval) -> Finding:
    why, told = "expired without a decision", f"Nobody approved this call of {approval.tool} in time."
    if approval.status == "approved":
        why = f"was given by {approval.by or 'a person'} and expired unused"
        told = f"The approval of this call of {approval.tool} has expired."
    return Finding(
        code="approval_expired",
        blame="policy",
        message=f"approval {approval.id} of {approval.tool} {why}",
        hint=f"{told} Nothing was executed. Tell the user.",
        data={"approval": approval.id},
    )


def _over_limit(request: Request, used: Mapping[str, Used]) -> Finding | None:
    after = _charged(request.charges, used)
    for charge in request.charges:
        so_far, then = used.get(charge.counter, Used()), after[charge.counter]
        if charge.calls is not None and then.calls > charge.calls:
            return _exceeded(request.tool, charge, "calls", so_far.calls, charge.calls)
        if charge.amount is not None and _exceeds(then.amount, charge.amount):
            return _exceeded(request.tool, charge, "amount", so_far.amount, charge.amount)
    return None


def _exceeds(total: float, allowed: float) -> bool:
    """Whether a sum is over its limit by more than what adding up binary fractions makes of it."""
    return total > allowed and not math.isclose(total, allowed, rel_tol=1e-12)


def _charged(charges: tuple[Charge, ...], used: Mapping[str, Used]) -> dict[str, Used]:
    """What the counters stand at after one call. Several limits may share a counter; it counts the call once."""
    after: dict[str, Used] = {}
    for charge in charges:
        so_far = used.get(charge.counter, Used())
        after[charge.counter] = Used(so_far.calls + 1, so_far.amount + charge.value)
    return after


def _exceeded(tool: str, charge: Charge, what: str, used: float, allowed: float) -> Finding:
    return Finding(
        code="quota_exceeded",
        blame="policy",
        message=f"{tool} would pass the limit of {allowed:g} ({what}) of {charge.counter!r}; {used:g} used so far",
        hint=f"A limit for {tool} is used up. Nothing was executed. Do not send it again; tell the user.",
        data={"limit": what, "used": used, "allowed": allowed},
    )


def charges(
    limits: tuple[LimitPolicy, ...],
    arguments: Mapping[str, Any],
    *,
    tool: str,
    run_id: str,
    user: str | None,
    tenant: str | None,
    now: float,
) -> tuple[Charge, ...]:
    """Return what a call takes from each of `limits` (those that name its tool or `*`)."""
    return tuple(
        Charge(
            _counter(limit, tool=tool, run_id=run_id, user=user, tenant=tenant, now=now),
            limit.calls,
            limit.amount,
            _amount(limit, arguments),
        )
        for limit in limits
    )


def _counter(limit: LimitPolicy, *, tool: str, run_id: str, user: str | None, tenant: str | None, now: float) -> str:
    """What is counted together. A sum has a counter for each argument: limits on others must not overwrite it."""
    what = f"{limit.per}:{limit.field}" if limit.field else limit.per
    if limit.per == "run":
        return f"{what}:{limit.tool}:{run_id}"
    if limit.per == "tool":
        return f"{what}:{tool}"
    whose = user or "" if tenant is None else f"{tenant}\x1f{user or ''}"
    if limit.per == "user":
        return f"{what}:{limit.tool}:{whose}"
    day = f"{what}:{limit.tool}:{datetime.fromtimestamp(now, UTC):%Y-%m-%d}"
    return day if limit.per == "day" else f"{day}:{whose}"


def _amount(limit: LimitPolicy, arguments: Mapping[str, Any]) -> float:
    """The limited argument's size; one that is absent is none (see `unsent_amounts` for what a tool has)."""
    if limit.field is None or limit.field not in arguments:
        return 0.0
    return size_of(arguments[limit.field])


def size_of(value: Any) -> float:
    """Return how much an amount is.

    A negative amount counts as its size: it must not buy room. An amount written as text counts like
    the number, and what cannot be measured counts as more than any limit.
    """
    try:
        amount = abs(float(value))
    except (TypeError, ValueError, OverflowError):
        return math.inf
    return math.inf if math.isnan(amount) else amount


def fingerprint(contract: str, scope: tuple[str, str], args_hash: str, occurrence: int) -> str:
    """What exactly a person approves: tool and version, scope, all arguments, which repetition."""
    return digest("\x00".join((contract, *scope, args_hash, str(occurrence))).encode())
