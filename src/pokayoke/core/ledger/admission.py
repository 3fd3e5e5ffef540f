"""Decides whether a call may start now: mode, latch, limits, approval and claim, in one act.

In: a request, and everything that the store holds about it.
Out: an answer, and what the store has to keep.
Never: a gap between the check and the claim. A store calls `admit` while no other caller can change what it holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from pokayoke.core.call import Effect, Finding
from pokayoke.core.json.canonical import sha256_hex
from pokayoke.core.ledger.records import EXECUTE, OPEN, UNASKED, Admission, Claim, Record
from pokayoke.core.ledger.transitions import claim_effect, is_same_claim
from pokayoke.core.policy import LimitPolicy
from pokayoke.core.state.kill_switch import Switch, open_switch_finding
from pokayoke.core.state.run_state import RunState, block_finding

_MAX_CLOCK_SKEW: Final = 3_600.0
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


class LimitUsage(msgspec.Struct, frozen=True, gc=False):
    """What a limit has given out so far."""

    calls: int = 0
    amount: float = 0.0


class LimitState(msgspec.Struct, frozen=True, gc=False):
    """A limit as it stood when a question was asked, before the call that it is about.

    Args:
        counter: what is counted together, such as `day:transfer:2026-11-21`.
        used: calls, or the sum, so far.
        allowed: the highest number of calls, or the highest sum.
        takes: what the call would add.
        what: which of both.
    """

    counter: str
    used: float
    allowed: float
    takes: float
    what: Literal["calls", "amount"]

    @property
    def sentence(self) -> str:
        """The limit in words, for the person who answers."""
        used, allowed = f"{self.used:,.10g}", f"{self.allowed:,.10g}"
        takes = f"{self.takes:,.10g}" if math.isfinite(self.takes) else "an amount that cannot be measured"
        unit = "calls are" if self.what == "calls" else "in sum is"
        return f"{used} of {allowed} {unit} used, and this call takes {takes} ({self.counter})"


class Endorsement(msgspec.Struct, frozen=True, gc=False):
    """The first of two answers that a question needs.

    Args:
        by: who approved.
        reason: why.
        at: wall-clock second.
    """

    by: str
    reason: str
    at: float


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
        why: why the question is asked, in sentences; () if every call of the tool is asked about.
        approvers: how many different people have to approve: 1 or 2.
        first: the first approval, where a second one is needed.
        limits: the limits that the call would take from.
        wanted: the user's own words in this turn, cut; "" if the host did not say them.
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
    why: tuple[str, ...] = ()
    approvers: int = 1
    first: Endorsement | None = None
    limits: tuple[LimitState, ...] = ()
    wanted: str = ""

    @property
    def granted(self) -> bool:
        """True if a person has said yes, and that holds or was used."""
        return self.status in ("approved", "used")

    @property
    def consequence(self) -> str:
        """What the answer means for the call, or for the writes after the output, in words."""
        if self.kind == "output":
            return f"its output {'no longer' if self.granted else 'still'} holds back writes"
        if self.status == "used":
            return "the same call asks again"
        return "the same call runs when it is sent again" if self.granted else "the same call stays refused"

    def at(self, now: float) -> Approval:
        """This approval as it stands at `now`: expired if nobody decided in time, or if it was asked in the future."""
        if self.status in ("waiting", "approved") and (now >= self.expires_at or self.asked_at - now > _MAX_CLOCK_SKEW):
            return msgspec.structs.replace(self, status="expired")
        return self

    def asked(self, now: float) -> Approval:
        """The same question, asked at `now`: it stays open as long as it was to."""
        return msgspec.structs.replace(self, asked_at=now, expires_at=now + (self.expires_at - self.asked_at))


class AdmissionRequest(msgspec.Struct, frozen=True, gc=False):
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
        resumes: True if only a question that was asked before, and a yes to it, may let the call run.
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
    resumes: bool = False

    @property
    def needs_shared_state(self) -> bool:
        """True if more than the run's own state has to be asked."""
        return self.claim is not None or self.approval is not None or bool(self.charges)


class StoredState(msgspec.Struct, frozen=True, gc=False):
    """What a store holds about a request, read while nobody else can change it."""

    run: RunState
    record: Record | None = None
    used: Mapping[str, LimitUsage] = {}
    approval: Approval | None = None
    switches: tuple[Switch, ...] = ()
    epoch: int = 0


class AdmissionResult(msgspec.Struct, frozen=True, gc=False):
    """The answer, and what the store must keep from now on (None: unchanged)."""

    answer: Admission
    record: Record | None = None
    used: Mapping[str, LimitUsage] = {}
    approval: Approval | None = None


def admit(request: AdmissionRequest, held: StoredState) -> AdmissionResult:
    """Decide in one act. The cheap and the final reasons come first; the claim comes last.

    A repetition is answered from the ledger: it takes nothing from a limit and asks nobody. What a
    harmless failure allows to run again has to pass everything again, but was counted already. A claim that is at
    work stays so whatever was stopped since; its next try is a new start.
    """
    wish, record = request.claim, held.record
    if wish is not None and record is not None and is_same_claim(record, wish) and not request.again:
        kept, answer = claim_effect(record, wish)
        return AdmissionResult(answer, kept)
    if finding := _mode_or_switch_finding(request, held):
        return AdmissionResult(Admission("refuse", finding))
    if wish is not None and record is not None:
        kept, answer = claim_effect(record, wish)
        if answer.kind != "execute":
            return AdmissionResult(answer, kept)
    if request.resumes and (
        held.approval is None or held.approval.at(request.now).status not in ("waiting", "approved")
    ):
        return AdmissionResult(UNASKED)
    if question := _check_approval(request, held):
        return question if record is None or record.state not in OPEN else _with_doubt_hint(question, record)
    used: Mapping[str, LimitUsage] = {}
    if record is None and request.charges:
        if refusal := _limit_finding(request, held.used):
            return AdmissionResult(Admission("refuse", refusal))
        used = _usage_after(request.charges, held.used)
    if wish is None:
        # A yes is for one call. A write's is used up by its record; a read leaves none, so the yes itself has to say.
        yes = None if held.approval is None else msgspec.structs.replace(held.approval, status="used")
        return AdmissionResult(EXECUTE, used=used, approval=yes)
    kept, answer = claim_effect(record, msgspec.structs.replace(wish, epoch=held.epoch) if held.epoch else wish)
    return AdmissionResult(answer, kept, used)


def _mode_or_switch_finding(request: AdmissionRequest, held: StoredState) -> Finding | None:
    finding = block_finding(held.run, request.effect, request.sources)
    if finding is None and held.switches:
        finding = open_switch_finding(held.switches, request.tool, request.effect, request.sources)
    return finding


def _check_approval(request: AdmissionRequest, held: StoredState) -> AdmissionResult | None:
    asked, known, now = request.approval, held.approval, request.now
    if asked is None:
        return None
    if held.record is None and request.charges:
        asked = msgspec.structs.replace(asked, limits=_describe_limits(request.charges, held.used))
    # A yes of fewer people than are needed by now is none.
    if known is None or known.status == "used" or (known.approvers < asked.approvers and known.status != "denied"):
        return AdmissionResult(Admission("pending", _awaiting_finding(asked), approval=asked.id), approval=asked)
    status = known.at(now).status
    if status == "approved":
        return None
    if status == "waiting":
        return AdmissionResult(Admission("pending", _awaiting_finding(known), approval=known.id))
    if status == "denied":
        return AdmissionResult(Admission("refuse", _denied_finding(known), approval=known.id))
    # The old question is void; asking anew replaces it, so that this refusal is not for ever.
    return AdmissionResult(Admission("refuse", _expired_finding(known), approval=asked.id), approval=asked)


def _with_doubt_hint(question: AdmissionResult, record: Record) -> AdmissionResult:
    """A question about what may have happened already: whatever became of it, that is as open as before."""
    answer = question.answer
    assert answer.finding is not None, "a question says why it is one"
    hint = f"{answer.finding.hint} It is not known whether an earlier try of it took effect."
    finding = msgspec.structs.replace(answer.finding, hint=hint)
    return msgspec.structs.replace(question, answer=msgspec.structs.replace(answer, finding=finding, record=record))


def _awaiting_finding(approval: Approval) -> Finding:
    return Finding(
        code="awaiting_approval",
        blame="policy",
        message=f"{approval.tool} needs approval {approval.id}{_second_approver(approval)}",
        hint=f"{approval.tool} waits for a person's approval. Nothing was executed. Do not send it again now.",
        data={"approval": approval.id},
    )


def _second_approver(approval: Approval) -> str:
    if approval.approvers == 1:
        return ""
    return " of two people" if approval.first is None else f" of a second person, beside {approval.first.by}"


def _denied_finding(approval: Approval) -> Finding:
    return Finding(
        code="approval_denied",
        blame="policy",
        message=f"{approval.tool} was denied by {approval.by or 'a person'}: {approval.reason or 'no reason given'}",
        hint=f"A person has denied this call of {approval.tool}. Do not send it again; tell the user.",
        data={"approval": approval.id},
    )


def _expired_finding(approval: Approval) -> Finding:
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


def _describe_limits(charges: tuple[Charge, ...], used: Mapping[str, LimitUsage]) -> tuple[LimitState, ...]:
    found: list[LimitState] = []
    for charge in charges:
        so_far = used.get(charge.counter, LimitUsage())
        if charge.calls is not None:
            found.append(LimitState(charge.counter, so_far.calls, charge.calls, 1, "calls"))
        if charge.amount is not None:
            found.append(LimitState(charge.counter, so_far.amount, charge.amount, charge.value, "amount"))
    return tuple(found)


def _limit_finding(request: AdmissionRequest, used: Mapping[str, LimitUsage]) -> Finding | None:
    after = _usage_after(request.charges, used)
    for charge in request.charges:
        so_far, then = used.get(charge.counter, LimitUsage()), after[charge.counter]
        if charge.calls is not None and then.calls > charge.calls:
            return _quota_finding(request.tool, charge, "calls", so_far.calls, charge.calls)
        if charge.amount is not None and _is_above_limit(then.amount, charge.amount):
            return _quota_finding(request.tool, charge, "amount", so_far.amount, charge.amount)
    return None


def _is_above_limit(total: float, allowed: float) -> bool:
    """Whether a sum is over its limit by more than what adding up binary fractions makes of it."""
    return total > allowed and not math.isclose(total, allowed, rel_tol=1e-12)


def _usage_after(charges: tuple[Charge, ...], used: Mapping[str, LimitUsage]) -> dict[str, LimitUsage]:
    """What the counters stand at after one call. Several limits may share a counter; it counts the call once."""
    after: dict[str, LimitUsage] = {}
    for charge in charges:
        so_far = used.get(charge.counter, LimitUsage())
        after[charge.counter] = LimitUsage(so_far.calls + 1, so_far.amount + charge.value)
    return after


def _quota_finding(tool: str, charge: Charge, what: str, used: float, allowed: float) -> Finding:
    return Finding(
        code="quota_exceeded",
        blame="policy",
        message=f"{tool} would pass the limit of {allowed:g} ({what}) of {charge.counter!r}; {used:g} used so far",
        hint=f"A limit for {tool} is used up. Nothing was executed. Do not send it again; tell the user.",
        data={"limit": what, "used": used, "allowed": allowed},
    )


def build_charges(
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
            _counter_name(limit, tool=tool, run_id=run_id, user=user, tenant=tenant, now=now),
            limit.calls,
            limit.amount,
            _charged_amount(limit, arguments),
        )
        for limit in limits
    )


def _counter_name(
    limit: LimitPolicy, *, tool: str, run_id: str, user: str | None, tenant: str | None, now: float
) -> str:
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


def _charged_amount(limit: LimitPolicy, arguments: Mapping[str, Any]) -> float:
    """The limited argument's size; one that is absent is none (see `default_amounts` for what a tool has)."""
    if limit.field is None or limit.field not in arguments:
        return 0.0
    return amount_size(arguments[limit.field])


def amount_size(value: Any) -> float:
    """Return how much an amount is.

    A negative amount counts as its size: it must not buy room. An amount written as text counts like
    the number, and what cannot be measured counts as more than any limit.
    """
    try:
        amount = abs(float(value))
    except (TypeError, ValueError, OverflowError):
        return math.inf
    return math.inf if math.isnan(amount) else amount


def approval_fingerprint(
    contract: str, scope: tuple[str, str], args_hash: str, occurrence: int, repeated: Record | None = None
) -> str:
    """What exactly a person approves: tool and version, scope, all arguments, and the effect that is repeated."""
    parts = [contract, *scope, args_hash, str(occurrence)]
    if repeated is not None:
        parts += [repeated.claim_id, repeated.state]
    return sha256_hex("\x00".join(parts).encode())
