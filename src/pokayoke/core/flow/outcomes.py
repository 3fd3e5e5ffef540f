"""Outcomes of calls whose tool did not start: refused, waiting, or answered from the ledger.

And what the loop guard hears of any outcome.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from pokayoke.core.call import EffectStatus, Finding, Outcome, Status, StopReason
from pokayoke.core.flow.plan import CallPlan
from pokayoke.core.flow.prepare import CallEnvironment, PreparedCall
from pokayoke.core.gate.rules import stop_reason_for
from pokayoke.core.ledger.transitions import OPEN, Admission, Record
from pokayoke.core.output.model_text import refusal_text, result_text

CODES: dict[str, str] = {
    "already_done": "the same write ran before; its recorded result answers the call",
    "invalid_before": "the same write ran before, and its output must not be used",
}


def refused_outcome(judged: PreparedCall, finding: Finding, findings: tuple[Finding, ...]) -> Outcome:
    """The outcome of a call that a room refused."""
    return Outcome(
        status="refused",
        call_id=judged.call.id,
        tool=judged.tool,
        text=refusal_text(findings, tool=judged.tool),
        findings=findings,
        corrections=judged.corrections,
        repairs=judged.repairs,
        stop_reason=stop_reason_for(finding),
        message=finding.message,
        contract=judged.plan.contract.id if judged.plan else None,
    )


def ledger_outcome(
    judged: PreparedCall, answer: Admission, findings: tuple[Finding, ...], reason: StopReason, key: str | None
) -> Outcome:
    """The outcome of a call that admission did not let through."""
    statuses: dict[str, Status] = {"in_doubt": "in_doubt", "failed": "failed", "pending": "pending"}
    return msgspec.structs.replace(
        refused_outcome(judged, findings[0], findings),
        status=statuses.get(answer.kind, "refused"),
        effect=_effect_status(answer),
        stop_reason=reason,
        key=key,
        retry_after=answer.retry_after,
        approval=answer.approval,
    )


def _effect_status(answer: Admission) -> EffectStatus:
    """Whether the effect of this very call happened: it may as long as its record is open, or in one that failed."""
    code, record = None if answer.finding is None else answer.finding.code, answer.record
    if record is None or code == "conflict":
        return "none"
    if code == "store_unavailable":
        return "done"  # the ledger or the target had told so, before the ledger was lost
    return "unknown" if code == "in_progress" or record.state in (*OPEN, "failed_final") else "none"


def replayed_outcome(judged: PreparedCall, record: Record, plan: CallPlan, *, monitors: bool = False) -> Outcome:
    """The outcome of a write that ran before: its recorded result, said to be of then.

    An output that broke its contract is none; who `monitors` is handed it all the same, as the first time.
    """
    at = f"{datetime.fromtimestamp(record.settled_at or record.claimed_at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    base = Outcome(
        status="replayed",
        call_id=judged.call.id,
        tool=judged.tool,
        corrections=judged.corrections,
        repairs=judged.repairs,
        effect="done",
        contract=record.contract,
        key=record.key,
    )
    notes, trust = judged.notes, plan.trust
    if not record.output_ok:
        broken = Finding(
            code="invalid_before",
            blame="tool",
            message=f"{judged.tool} ran at {at}; its output broke the contract ({record.failure})",
            hint=f"{judged.tool} already ran, but its answer was unusable. Do not send it again; tell the user.",
        )
        notes, trust = (broken, *notes), "unchecked"
        if not monitors:
            return msgspec.structs.replace(
                base,
                status="invalid_output",
                text=refusal_text((broken,), tool=judged.tool),
                findings=notes,
                stop_reason="invalid_tool_output",
                message=broken.message,
            )
    note = f"already ran at {at}; its result was not kept"
    value, shown = None, f"{judged.tool} must not be sent again."
    if record.output is not None and not _may_replay_output(record, plan):
        note = f"already ran at {at}; its result is of {record.contract} and does not fit {plan.contract.id}"
    elif record.output is not None:
        note, value = f"already ran at {at}; result of then", msgspec.json.decode(record.output)
        shown = result_text(value, tool=judged.tool, call_id=judged.call.id, trust=trust, canonical=record.output)
    finding = Finding(code="already_done", blame="model", message=f"{judged.tool} {note}")
    return msgspec.structs.replace(
        base, value=value, text=f"{note}\n{shown}", findings=(finding, *notes), message=finding.message
    )


def _may_replay_output(record: Record, plan: CallPlan) -> bool:
    """Whether a recorded output may be read by who uses this version: its own, or one that it fits."""
    contract = plan.contract
    if record.contract == contract.id or contract.unchecked or record.output is None:
        return True
    value = msgspec.json.decode(record.output)
    return isinstance(value, str) if contract.output is None else contract.output.is_valid(value)


def report_to_loop_guard(
    judged: PreparedCall, scene: CallEnvironment, outcome: Outcome, result: bytes | None = None
) -> None:
    """Tell the loop guard how the call ended; `result` is the outcome's value as compact JSON, where it is at hand."""
    effect = judged.plan.contract.effect if judged.plan else None
    snapshot = scene.snapshot
    scene.view.rounds.count_outcome(
        outcome, judged.args_hash, effect, snapshot.kinds, snapshot.policy.loop, result=result
    )
