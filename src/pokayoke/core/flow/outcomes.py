"""How a call ends: its outcome, its last trace events, its entry in the loop guard.

In: a small `Ending` from the branch that ended the call.
Out: the outcome. `end_call` alone names the events and counts the call.
Never: a call with two outcomes, or one that the loop guard does not count.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pokayoke.core.call import EffectStatus, Finding, Outcome, Status, StopReason
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.events import Event, tool_result_event
from pokayoke.core.flow.plan import CallPlan
from pokayoke.core.flow.repetition import FIRST, REPLAY_WORDS, Repetition, replay_words, settled_time
from pokayoke.core.flow.states import Attempts, PreparedCall
from pokayoke.core.flow.steps import Emit
from pokayoke.core.ledger.records import OPEN, Admission, Claim, Record
from pokayoke.core.output.model_text import refusal_text, result_text

NOT_RUN = Attempts(0, 0.0, exhausted=False)
"""The attempts of a call that the ledger answered."""


class Ending(msgspec.Struct, frozen=True, gc=False):
    """How one call ended: its outcome, and what trace and loop guard need besides.

    Attributes:
        outcome: the outcome.
        ran: how often the tool ran; None if the call ended before admission, so that it has no result event.
        data: the result as compact JSON, if known.
        is_wire: True if the result went through the transport rooms.
        stop: a further event about the run, or None.
    """

    outcome: Outcome
    ran: Attempts | None = None
    data: bytes | None = None
    is_wire: bool = False
    stop: Event | None = None


def end_call(prepared: PreparedCall, env: CallEnvironment, ending: Ending) -> tuple[Emit, ...]:
    """Count the end of a call in the loop guard, and return the steps that write its last trace events."""
    outcome, ran, data, snapshot = ending.outcome, ending.ran, ending.data, env.snapshot
    effect = pause = None
    events: tuple[Emit, ...] = ()
    if (plan := prepared.plan) is not None:
        contract = plan.contract
        effect, pause = contract.effect, contract.pause
        if ran is not None:
            shown = None if contract.secret else data
            result = Emit(tool_result_event(prepared, env, outcome, ran.seconds, shown, wire=ending.is_wire))
            events = (result,) if ending.stop is None else (result, Emit(ending.stop))
    env.view.rounds.count_outcome(
        outcome, prepared.args_hash, effect, snapshot.kinds, snapshot.policy.loop, result=data, at=env.now, pause=pause
    )
    return events


def build_outcome(
    prepared: PreparedCall,
    status: Status,
    text: str,
    findings: tuple[Finding, ...],
    *,
    effect: EffectStatus,
    stop_reason: StopReason | None,
    ran: Attempts = NOT_RUN,
    claim: Claim | None = None,
    record: Record | None = None,
    value: Any = None,
) -> Outcome:
    """Return the outcome of a call that did not simply end ok.

    Args:
        prepared: the call.
        status: how it ended.
        text: what the model reads.
        findings: why, the decisive one first.
        effect: whether the tool's effect happened.
        stop_reason: why the call did not end ok; None if it was replayed.
        ran: how often the tool ran.
        claim: the call's ledger claim, or None.
        record: the ledger record that answers the call, or None.
        value: the result.
    """
    contract = None if prepared.plan is None else prepared.plan.contract.id
    return Outcome(
        status=status,
        call_id=prepared.call.id,
        tool=prepared.tool,
        value=value,
        text=text,
        findings=findings,
        corrections=prepared.corrections,
        repairs=prepared.repairs,
        effect=effect,
        stop_reason=stop_reason,
        message=findings[0].message,
        contract=contract if record is None else record.contract,
        key=record.key if record is not None else None if claim is None else claim.key,
        repeated=prepared.is_repeated and ran.count > 0,
        attempts=ran.count,
        retry_exhausted=ran.exhausted,
    )


def ending_before_run(
    prepared: PreparedCall,
    answer: Admission,
    findings: tuple[Finding, ...],
    reason: StopReason,
    claim: Claim | None = None,
) -> Ending:
    """Return the ending of a call that a room or the admission did not let through.

    Args:
        prepared: the call.
        answer: the answer of the admission; a plain refusal if a room before it refused.
        findings: why, the decisive one first.
        reason: the stop reason.
        claim: the call's ledger claim, or None.
    """
    statuses: dict[str, Status] = {"in_doubt": "in_doubt", "failed": "failed", "pending": "pending"}
    status, text = statuses.get(answer.kind, "refused"), refusal_text(findings, tool=prepared.tool)
    outcome = build_outcome(
        prepared, status, text, findings, effect=_effect_status(answer), stop_reason=reason, claim=claim
    )
    key = outcome.key if answer.record is None else answer.record.key  # of an effect before the one that was asked for
    return Ending(msgspec.structs.replace(outcome, key=key, retry_after=answer.retry_after, approval=answer.approval))


def _effect_status(answer: Admission) -> EffectStatus:
    """Return whether the effect of this very call happened. It may have while its record is open or failed."""
    code, record = None if answer.finding is None else answer.finding.code, answer.record
    if record is None or code == "conflict":
        return "none"
    if code == "store_unavailable":
        return "done"  # the ledger or the target had said so before the ledger became unreachable
    return "unknown" if code == "in_progress" or record.state in (*OPEN, "failed_final") else "none"


def ending_from_record(
    prepared: PreparedCall,
    record: Record,
    plan: CallPlan,
    ran: Attempts,
    repetition: Repetition = FIRST,
    *,
    monitors: bool = False,
) -> Ending:
    """Return the ending of a write that ran before: its recorded result, dated.

    Args:
        prepared: the call.
        record: the completed record.
        plan: how calls of its contract are treated.
        ran: how long the tool ran for this call, if it did.
        repetition: how the call stands to that effect.
        monitors: True in monitor mode, which returns an output that broke its contract like the first time.
    """
    tool, at = prepared.tool, settled_time(record)
    remarks, trust = prepared.remarks, plan.trust
    if not record.output_ok:
        broken = Finding(
            code="invalid_before",
            blame="tool",
            message=f"{tool} ran at {at}; its output broke the contract ({record.failure})",
            hint=f"{REPLAY_WORDS}: {tool} already ran at {at}, but its answer was unusable. Tell the user.",
        )
        remarks, trust = (broken, *remarks), "unchecked"
        if not monitors:
            text = refusal_text((broken,), tool=tool)
            why: StopReason = "invalid_tool_output"
            outcome = build_outcome(
                prepared, "invalid_output", text, remarks, effect="done", stop_reason=why, record=record
            )
            return Ending(outcome, ran)
    said, shown, value = _last_answer(prepared, record, plan, trust)
    since = f", and after that: {', '.join(dict.fromkeys(repetition.since))}" if repetition.since else ""
    message = f"{REPLAY_WORDS}: {tool} {replay_words(record, repetition.number)}{since}; {said}"
    finding = Finding(
        code="already_done", blame="model", message=message, data={"new": True} if repetition.is_new else {}
    )
    advice = f"\nThis call changed nothing: do not say that {tool} was done once more." if repetition.is_new else ""
    outcome = build_outcome(
        prepared,
        "replayed",
        f"{message}\n{shown}{advice}",
        (finding, *remarks),
        effect="done",
        stop_reason=None,
        record=record,
        value=value,
    )
    return Ending(outcome, ran, record.output)


def add_last_answer(ending: Ending, prepared: PreparedCall, plan: CallPlan, record: Record) -> Ending:
    """Return the ending of a repetition that waits for a person, with what is known of the effect before it."""
    known = f"failed at {settled_time(record)} ({record.failure})."
    if record.state == "completed":
        said, shown, _ = _last_answer(prepared, record, plan, plan.trust)
        known = f"already ran at {settled_time(record)}; {said}\n{shown}"
    text = f"{ending.outcome.text}\nBefore that, {prepared.tool} {known}"
    return msgspec.structs.replace(ending, outcome=msgspec.structs.replace(ending.outcome, text=text))


def _last_answer(prepared: PreparedCall, record: Record, plan: CallPlan, trust: str) -> tuple[str, str, Any]:
    """Return what is said of a recorded output, what is shown of it, and its value."""
    tool, call_id = prepared.tool, prepared.call.id
    advice = f"Do not send {tool} again to see it."
    if record.output is None:
        if not record.reference:
            return f"the result of {tool} was not kept", advice, None
        shown = result_text({"reference": record.reference}, tool=tool, call_id=call_id, trust="unchecked")
        return f"the result of {tool} was not kept, only its reference:", f"{shown}\n{advice}", None
    if not _may_replay_output(record, plan):
        return f"the result of {tool} is of {record.contract} and does not fit {plan.contract.id}", advice, None
    value = msgspec.json.decode(record.output)
    shown = result_text(value, tool=tool, call_id=call_id, trust=trust, canonical=record.output)
    return f"the result of {tool} was:", shown, value


def _may_replay_output(record: Record, plan: CallPlan) -> bool:
    """Return whether a caller of this version may read a recorded output: it is its own, or fits its contract."""
    contract = plan.contract
    if record.contract == contract.id or contract.unchecked or record.output is None:
        return True
    value = msgspec.json.decode(record.output)
    return isinstance(value, str) if contract.output is None else contract.output.is_valid(value)
