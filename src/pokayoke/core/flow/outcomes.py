"""The one place where a call ends: its outcome, its last trace events, its entry in the loop guard.

In: a small `Ending` from the branch that ended the call.
Out: the outcome.
Never: a call with two outcomes, or one that the loop guard does not count.
"""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime
from typing import Any

import msgspec

from pokayoke.core.call import SUCCESSFUL, EffectStatus, Finding, Outcome, Status, StopReason
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.events import Event, tool_result_event
from pokayoke.core.flow.plan import CallPlan
from pokayoke.core.flow.states import Attempts, PreparedCall
from pokayoke.core.flow.steps import Emit, Step
from pokayoke.core.ledger.records import OPEN, Admission, Claim, Record
from pokayoke.core.output.model_text import refusal_text, result_text

CODES: dict[str, str] = {
    "already_done": "the same write ran before; its recorded result answers the call",
    "invalid_before": "the same write ran before, and its output must not be used",
}
NOT_RUN = Attempts(0, 0.0, exhausted=False)
"""The attempts of a call that the ledger answered."""


class Ending(msgspec.Struct, frozen=True, gc=False):
    """How one call ended. `end_call` derives the rest of the outcome from the call itself.

    Attributes:
        status: as in `Outcome`, like the next fields.
        text: what the model reads.
        findings: the first one explains every status but `ok`.
        effect: whether the tool's effect happened.
        stop_reason: why the call did not end ok.
        ran: how often the tool ran; None if the call ended before admission, so that it has no result event.
        value: the result.
        data: the result as compact JSON, if known; for trace and loop guard.
        content: binary or image blocks.
        is_wire: True if the result went through the transport rooms.
        record: the ledger record that answers the call, or None.
        retry_after: seconds after which the same call may be tried, if known.
        approval: id of the approval that is waited for, if any.
        safe_mode: what an invalid output led to, if this is one.
        stop: a further event about the run, or None.
    """

    status: Status
    text: str
    findings: tuple[Finding, ...]
    effect: EffectStatus = "none"
    stop_reason: StopReason | None = None
    ran: Attempts | None = None
    value: Any = None
    data: bytes | None = None
    content: tuple[Any, ...] = ()
    is_wire: bool = False
    record: Record | None = None
    retry_after: float | None = None
    approval: str | None = None
    safe_mode: str | None = None
    stop: Event | None = None


def end_call(
    prepared: PreparedCall, env: CallEnvironment, ending: Ending, claim: Claim | None = None
) -> Generator[Step, Any, Outcome]:
    """Build the outcome of a call, write its result event and count it in the loop guard.

    Args:
        prepared: the call.
        env: its environment.
        ending: how it ended.
        claim: its ledger claim, or None.
    """
    plan, snapshot, status, ran, record = prepared.plan, env.snapshot, ending.status, ending.ran, ending.record
    contract = None if plan is None else plan.contract
    outcome = Outcome(
        status=status,
        call_id=prepared.call.id,
        tool=prepared.call.name if contract is None else contract.name,
        value=ending.value,
        text=ending.text,
        content=ending.content,
        findings=ending.findings,
        corrections=prepared.corrections,
        repairs=prepared.repairs,
        effect=ending.effect,
        stop_reason=ending.stop_reason,
        safe_mode=ending.safe_mode,
        message="" if status == "ok" else ending.findings[0].message,
        contract=record.contract if record is not None else None if contract is None else contract.id,
        key=record.key if record is not None else None if claim is None else claim.key,
        attempts=0 if ran is None else ran.count,
        retry_exhausted=ran is not None and ran.exhausted and status not in SUCCESSFUL,
        retry_after=ending.retry_after,
        approval=ending.approval,
    )
    if ran is not None and contract is not None:
        shown = None if contract.secret else ending.data
        yield Emit(tool_result_event(prepared, env, outcome, ran.seconds, shown, wire=ending.is_wire))
        if ending.stop is not None:
            yield Emit(ending.stop)
    effect = None if contract is None else contract.effect
    env.view.rounds.count_outcome(
        outcome, prepared.args_hash, effect, snapshot.kinds, snapshot.policy.loop, result=ending.data
    )
    return outcome


def ending_before_run(
    prepared: PreparedCall, answer: Admission, findings: tuple[Finding, ...], reason: StopReason
) -> Ending:
    """Return the ending of a call that a room or the admission did not let through.

    Args:
        prepared: the call.
        answer: the answer of the admission; a plain refusal if a room before it refused.
        findings: why, the decisive one first.
        reason: the stop reason.
    """
    statuses: dict[str, Status] = {"in_doubt": "in_doubt", "failed": "failed", "pending": "pending"}
    return Ending(
        statuses.get(answer.kind, "refused"),
        refusal_text(findings, tool=prepared.tool),
        findings,
        _effect_status(answer),
        reason,
        retry_after=answer.retry_after,
        approval=answer.approval,
    )


def _effect_status(answer: Admission) -> EffectStatus:
    """Return whether the effect of this very call happened. It may have while its record is open or failed."""
    code, record = None if answer.finding is None else answer.finding.code, answer.record
    if record is None or code == "conflict":
        return "none"
    if code == "store_unavailable":
        return "done"  # the ledger or the target had said so before the ledger became unreachable
    return "unknown" if code == "in_progress" or record.state in (*OPEN, "failed_final") else "none"


def ending_from_record(
    prepared: PreparedCall, record: Record, plan: CallPlan, ran: Attempts, *, monitors: bool = False
) -> Ending:
    """Return the ending of a write that ran before: its recorded result, dated.

    Args:
        prepared: the call.
        record: the completed record.
        plan: how calls of its contract are treated.
        ran: how long the tool ran for this call, if it did.
        monitors: True in monitor mode, which returns an output that broke its contract like the first time.
    """
    at = f"{datetime.fromtimestamp(record.settled_at or record.claimed_at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    remarks, trust = prepared.remarks, plan.trust
    if not record.output_ok:
        broken = Finding(
            code="invalid_before",
            blame="tool",
            message=f"{prepared.tool} ran at {at}; its output broke the contract ({record.failure})",
            hint=f"{prepared.tool} already ran, but its answer was unusable. Do not send it again; tell the user.",
        )
        remarks, trust = (broken, *remarks), "unchecked"
        if not monitors:
            text = refusal_text((broken,), tool=prepared.tool)
            return Ending("invalid_output", text, remarks, "done", "invalid_tool_output", ran, record=record)
    said = f"already ran at {at}; its result was not kept"
    value, shown = None, f"{prepared.tool} must not be sent again."
    if record.output is not None and not _may_replay_output(record, plan):
        said = f"already ran at {at}; its result is of {record.contract} and does not fit {plan.contract.id}"
    elif record.output is not None:
        said, value = f"already ran at {at}; result of then", msgspec.json.decode(record.output)
        shown = result_text(value, tool=prepared.tool, call_id=prepared.call.id, trust=trust, canonical=record.output)
    finding = Finding(code="already_done", blame="model", message=f"{prepared.tool} {said}")
    text = f"{said}\n{shown}"
    return Ending(
        "replayed", text, (finding, *remarks), "done", None, ran, value=value, data=record.output, record=record
    )


def _may_replay_output(record: Record, plan: CallPlan) -> bool:
    """Return whether a caller of this version may read a recorded output: it is its own, or fits its contract."""
    contract = plan.contract
    if record.contract == contract.id or contract.unchecked or record.output is None:
        return True
    value = msgspec.json.decode(record.output)
    return isinstance(value, str) if contract.output is None else contract.output.is_valid(value)
