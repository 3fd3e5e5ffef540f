"""After execution: judge what came back, settle the claim, close or open the latch, say what happened.

What enters is an admitted call and the tool's reaction; what leaves is the outcome. What must never
happen here: a write whose effect is possible settled as if nothing had happened, or an output that
broke its contract handed on as a value.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, cast

import msgspec

from pokayoke.core.call import EffectStatus, Finding, Outcome, Status
from pokayoke.core.flow import events as event
from pokayoke.core.flow.failures import declared_failure_finding, execution_finding
from pokayoke.core.flow.outcomes import replayed_outcome, report_to_loop_guard
from pokayoke.core.flow.plan import CallPlan
from pokayoke.core.flow.prepare import CallEnvironment, PreparedCall, identity_hash
from pokayoke.core.flow.questions import build_review
from pokayoke.core.flow.resolve import Found
from pokayoke.core.flow.steps import (
    ChangeState,
    CountOutput,
    Emit,
    NotStarted,
    Raised,
    Reaction,
    Returned,
    RunUserCode,
    Settle,
    Step,
    StoreText,
    TimedOut,
    ToolNotStarted,
)
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.findings import in_doubt_finding
from pokayoke.core.ledger.transitions import Claim, Record, Settlement, SettlementState
from pokayoke.core.output.last_known_good import degraded_value, last_good_owner
from pokayoke.core.output.model_text import finding_kind_sentence, refusal_text, result_text
from pokayoke.core.output.preview import build_preview
from pokayoke.core.output.validate import OutputResult, check_output
from pokayoke.core.state.kill_switch import OutputObservation
from pokayoke.core.state.run_state import Taint, latch_and_stop, unlatch

CODES: dict[str, str] = {
    "no_output_contract": "nothing is promised about this tool's output, so it is unchecked",
    "invariant_cut": "checking the output did not finish in time",
}

UNCHECKED = Finding(  # always this very value
    code="no_output_contract",
    blame="host",
    message="the tool declares no output contract; its output was only measured and serialised",
)


class AdmittedCall(msgspec.Struct, frozen=True, gc=False):
    """A call that was admitted: the tool may start.

    Attributes:
        judged: what was decided.
        plan: how the contract is treated.
        arguments: what the tool receives.
        located: path arguments resolved inside their roots.
        claim: the ledger claim of a write, or None.
        attempt: the ledger's number of this execution; 1 for a read.
    """

    judged: PreparedCall
    plan: CallPlan
    arguments: dict[str, Any]
    located: Mapping[str, Any] | None
    claim: Claim | None
    attempt: int = 1


class Attempts(msgspec.Struct, frozen=True, gc=False):
    """How often and how long the tool ran."""

    attempts: int
    seconds: float
    exhausted: bool


def finish_call(
    entered: AdmittedCall, scene: CallEnvironment, reaction: Reaction, ran: Attempts
) -> Generator[Step, Any, Outcome]:
    """Judge what the tool answered, settle what has to be settled, and say how the call ended."""
    judged, plan = entered.judged, entered.plan
    if not isinstance(reaction, Returned):
        outcome = yield from _finish_failed_execution(entered, scene, reaction, ran)
        report_to_loop_guard(judged, scene, outcome)
        return outcome
    # Only invariants look at arguments, and by now the tool may have changed those that it was given.
    arguments = judged.original_arguments() if judged.own and plan.contract.invariants else entered.arguments
    if plan.contract.output_hooks:
        checked = yield from _run_output_check(plan, arguments, reaction.value)
    else:
        checked = check_output(reaction.value, plan.contract, arguments=arguments, policy=plan.output)
    if checked.failure is not None:
        outcome, result = (yield from _finish_declared_failure(entered, scene, checked, ran)), None
    elif checked.findings and scene.snapshot.policy.mode == "enforce":
        outcome, result = (yield from _finish_invalid(entered, scene, checked, ran)), None
    else:
        outcome, result = (yield from _finish_valid(entered, scene, checked, ran)), checked.canonical
    report_to_loop_guard(judged, scene, outcome, result)
    return outcome


def settle_found_effect(
    request: AdmissionRequest, plan: CallPlan, arguments: dict[str, Any], found: Found
) -> Generator[Step, Any, Settlement]:
    """What the ledger has to keep of an effect that a lookup has found: its output is checked like any other."""
    claim = request.claim
    assert claim is not None, "only a claimed write is looked up"
    done = Settlement(claim.key, claim.claim_id, "completed", request.now, reference=found.reference, found=True)
    if found.output is msgspec.UNSET:
        return done
    checked = yield from _run_output_check(plan, arguments, found.output)
    if checked.findings or checked.failure is not None:
        reason = event.reason_of(checked.findings[0]) if checked.findings else "the target reports a failure"
        return msgspec.structs.replace(done, output_ok=False, failure=reason)
    return msgspec.structs.replace(done, output=_ledger_output(plan, checked))


def _run_output_check(plan: CallPlan, arguments: dict[str, Any], value: Any) -> Generator[Step, Any, OutputResult]:
    contract = plan.contract
    if not contract.output_hooks:
        return check_output(value, contract, arguments=arguments, policy=plan.output)
    reaction: Reaction = yield RunUserCode(
        lambda: check_output(value, contract, arguments=arguments, policy=plan.output), plan.timeout
    )
    if isinstance(reaction, Returned):
        return cast("OutputResult", reaction.value)
    why = type(reaction.error).__name__ if isinstance(reaction, Raised) else f"no answer in {plan.timeout} s"
    finding = Finding(code="invariant_cut", blame="policy", message=f"checking the output did not finish: {why}")
    return OutputResult(value=None, findings=(finding,))


def _finish_valid(
    entered: AdmittedCall, scene: CallEnvironment, checked: OutputResult, ran: Attempts
) -> Generator[Step, Any, Outcome]:
    judged, plan, claim = entered.judged, entered.plan, entered.claim
    contract, stored, findings = plan.contract, checked.canonical, checked.findings
    ended = None if claim is None else (yield from _record_completion(entered, scene, checked, ran))
    # What the host does with a count (an alert) may never end; what has happened is in the ledger by then.
    if findings:  # monitor mode hands it on all the same
        yield _count_invalid_output(entered, scene)
    else:
        scene.meter.count_valid(contract.name, scene.now, contract.effect == "read")
    if ended is not None:
        return ended
    if plan.keeps and stored is not None and not (findings or checked.content):
        scene.last_good.put(last_good_owner(scene), contract.id, judged.args_hash, stored, now=scene.now)
    if scene.view.state.taints and not findings:
        identity = identity_hash(judged, contract)
        yield ChangeState(lambda state: unlatch(state, contract.name, identity, step=scene.step))
    if findings and stored is None:  # nothing could be read of it, and null would be an answer
        text = refusal_text(findings, tool=contract.name)
    elif checked.chars <= scene.snapshot.policy.context.offload_chars:
        text = result_text(
            checked.value,
            tool=contract.name,
            call_id=judged.call.id,
            trust="unchecked" if findings else plan.trust,
            canonical=stored,
            content=checked.content,
        )
    else:
        text = yield from _offload_text(entered, scene, checked)
    notes = judged.notes + findings + checked.notes
    outcome = Outcome(
        status="ok",
        call_id=judged.call.id,
        tool=contract.name,
        value=checked.value,
        text=text,
        content=checked.content,
        findings=(*notes, UNCHECKED) if checked.unchecked else notes,
        corrections=judged.corrections,
        repairs=judged.repairs,
        effect="none" if claim is None else "done",
        contract=contract.id,
        key=None if claim is None else claim.key,
        attempts=ran.attempts,
    )
    told = None if contract.secret else stored
    yield Emit(event.tool_result_event(judged, scene, outcome, ran.seconds, told, wire=checked.wire))
    return outcome


def _record_completion(
    entered: AdmittedCall, scene: CallEnvironment, checked: OutputResult, ran: Attempts
) -> Generator[Step, Any, Outcome | None]:
    """Tell the ledger of a write that succeeded. Returns how the call ended if the ledger says otherwise.

    What broke its contract is kept for whoever monitors as well, and as broken: to everybody else it is no result.
    """
    broken = event.reason_of(checked.findings[0]) if checked.findings else ""
    kept = None if broken and checked.canonical is None else _ledger_output(entered.plan, checked)
    lost: Finding | Record | None = yield _build_settle_step(entered, scene, "completed", output=kept, failure=broken)
    if isinstance(lost, Record):
        return (yield from _finish_overtaken(entered, scene, lost, ran))
    return None if lost is None else (yield from _finish_unrecorded(entered, scene, lost, checked, ran))


def _ledger_output(plan: CallPlan, checked: OutputResult) -> bytes | None:
    """What the ledger keeps of an output: no secret, and of pictures and files nothing."""
    wordless = checked.value is None and bool(checked.content)
    return None if plan.contract.secret or wordless else checked.canonical or _output_bytes(checked)


def _offload_text(entered: AdmittedCall, scene: CallEnvironment, checked: OutputResult) -> Generator[Step, Any, str]:
    """A very long value as the model reads it: a preview with a handle."""
    tool, value, data = entered.plan.contract.name, checked.value, checked.canonical
    handle: str = yield StoreText(value if isinstance(value, str) else _output_bytes(checked).decode())
    return build_preview(value, data, handle=handle, max_chars=scene.snapshot.policy.context.preview_chars, tool=tool)


def _finish_invalid(
    entered: AdmittedCall, scene: CallEnvironment, checked: OutputResult, ran: Attempts
) -> Generator[Step, Any, Outcome]:
    """The output broke its contract: the effect (if any) stands, the value must not be used."""
    judged, contract = entered.judged, entered.plan.contract
    policy = scene.snapshot.policy.safe_mode
    reason = event.reason_of(checked.findings[0])
    if entered.claim is not None:
        yield _build_settle_step(entered, scene, "completed", failure=reason)
    taint = Taint(contract.name, identity_hash(entered.judged, entered.plan.contract), scene.step, reason)
    stops = policy.on_invalid_output == "fail_closed"
    review = build_review(judged, contract, scene, reason) if policy.on_invalid_output == "human_review" else None
    before, after = yield ChangeState(lambda state: latch_and_stop(state, taint, stops=stops), review)
    yield _count_invalid_output(entered, scene)
    value, findings = None, checked.findings
    if contract.effect == "read" and not stops:
        age, value = scene.last_good.get(
            last_good_owner(scene), contract.id, judged.args_hash, now=scene.now, max_age=policy.last_known_good_seconds
        )
        text = _degraded_text(entered, findings, value, age)
        if value is not None:
            value = degraded_value(value, age, finding_kind_sentence(findings[0]))
    else:
        text = refusal_text(findings, tool=contract.name)
    outcome = _failure_outcome(
        entered,
        ran,
        status="degraded" if contract.effect == "read" and not stops else "invalid_output",
        findings=findings,
        effect="none" if entered.claim is None else "done",
        text=text,
    )
    outcome = msgspec.structs.replace(
        outcome,
        value=value,
        stop_reason="invalid_tool_output",
        safe_mode=policy.on_invalid_output,
        approval=review.id if review else None,
    )
    yield Emit(event.tool_result_event(judged, scene, outcome, ran.seconds, None, wire=checked.wire))
    if before.effective_mode != after.effective_mode:
        yield Emit(event.stop_event(after, scene.now, scene.step, "invalid_tool_output", policy.on_invalid_output))
    return outcome


def _count_invalid_output(entered: AdmittedCall, scene: CallEnvironment) -> CountOutput:
    contract = entered.plan.contract
    return CountOutput(
        OutputObservation(contract.name, valid=False, at=scene.now, read=contract.effect == "read", run_id=scene.run_id)
    )


def _degraded_text(entered: AdmittedCall, findings: tuple[Finding, ...], value: Any, age: float) -> str:
    contract = entered.plan.contract
    said = refusal_text(findings, tool=contract.name)
    if value is None:
        return said
    shown = result_text(value, tool=contract.name, call_id=entered.judged.call.id, trust="degraded")
    return f"{said}\nThe last valid answer, {age:.0f} s old; do not write anything from it:\n{shown}"


def _finish_declared_failure(
    entered: AdmittedCall, scene: CallEnvironment, checked: OutputResult, ran: Attempts
) -> Generator[Step, Any, Outcome]:
    """The tool answered that it failed. Its word is no proof that nothing happened: never run it again."""
    contract = entered.plan.contract
    said = checked.failure or ""
    finding = declared_failure_finding(contract.name, said)
    effect: EffectStatus = "none"
    if entered.claim is not None:
        effect = "unknown"
        known: Finding | Record | None = yield _build_settle_step(
            entered, scene, "failed_final", failure="the tool reported a failure"
        )
        if isinstance(known, Record):
            return (yield from _finish_overtaken(entered, scene, known, ran))
    shown = result_text(said, tool=contract.name, call_id=entered.judged.call.id, trust="error")
    text = f"{refusal_text((finding,), tool=contract.name)}\n{shown}"
    findings = (finding, *checked.findings)
    outcome = _failure_outcome(entered, ran, status="failed", findings=findings, effect=effect, text=text)
    yield Emit(event.tool_result_event(entered.judged, scene, outcome, ran.seconds, None, wire=checked.wire))
    return outcome


def _finish_failed_execution(
    entered: AdmittedCall, scene: CallEnvironment, reaction: Raised | TimedOut | NotStarted, ran: Attempts
) -> Generator[Step, Any, Outcome]:
    """The tool raised or hung. For a write that means that nobody knows, unless the contract says so."""
    contract = entered.plan.contract
    if isinstance(reaction, Raised) and isinstance(reaction.error, ToolNotStarted):
        reaction = NotStarted(reaction.error.reason, reaction.error.blame)
    harmless = isinstance(reaction, NotStarted) or (
        isinstance(reaction, Raised) and isinstance(reaction.error, contract.no_effect_errors)
    )
    doubtful = entered.claim is not None and not harmless
    finding = execution_finding(reaction, contract.name, contract.effect, doubtful=doubtful, exhausted=ran.exhausted)
    status: Status = "failed"
    effect: EffectStatus = "none"
    if entered.claim is not None:
        settling: SettlementState = "failed_retriable" if harmless else "in_doubt"
        # The ledger keeps what kind of failure it was; an exception's own text may hold secrets.
        never = isinstance(reaction, NotStarted) and ran.attempts == 1
        known: Finding | Record | None = yield _build_settle_step(
            entered, scene, settling, failure=event.reason_of(finding), unstarted=never
        )
        if isinstance(known, Record):
            return (yield from _finish_overtaken(entered, scene, known, ran))
        if not harmless:
            status, effect = "in_doubt", "unknown"
    text = refusal_text((finding,), tool=contract.name)
    outcome = _failure_outcome(entered, ran, status=status, findings=(finding,), effect=effect, text=text)
    yield Emit(event.tool_result_event(entered.judged, scene, outcome, ran.seconds, None))
    return outcome


def _failure_outcome(
    entered: AdmittedCall,
    ran: Attempts,
    *,
    status: Status,
    findings: tuple[Finding, ...],
    effect: EffectStatus,
    text: str,
) -> Outcome:
    judged = entered.judged
    return Outcome(
        status=status,
        call_id=judged.call.id,
        tool=judged.tool,
        text=text,
        findings=(*findings, *judged.notes),
        corrections=judged.corrections,
        repairs=judged.repairs,
        effect=effect,
        stop_reason="in_doubt" if status == "in_doubt" else "tool_failure",
        message=findings[0].message,
        contract=entered.plan.contract.id,
        key=entered.claim.key if entered.claim else None,
        attempts=ran.attempts,
        retry_exhausted=ran.exhausted,
    )


def _build_settle_step(
    entered: AdmittedCall,
    scene: CallEnvironment,
    state: SettlementState,
    *,
    output: bytes | None = None,
    failure: str = "",
    unstarted: bool = False,
) -> Settle:
    """The report of an execution. What is wrong with one that completed is its output."""
    claim, good = entered.claim, state != "completed" or not failure
    assert claim is not None, "only a claimed write is settled"
    report = Settlement(
        claim.key, claim.claim_id, state, scene.now, output, output_ok=good, failure=failure, unstarted=unstarted
    )
    sent = entered.judged.dumped or b"{}"
    return Settle(report, claim.tool, entered.plan.contract.redact, sent)


def _finish_overtaken(
    entered: AdmittedCall, scene: CallEnvironment, record: Record, ran: Attempts
) -> Generator[Step, Any, Outcome]:
    """The ledger knows more than this execution, and answers in its place, so that all callers hear the same."""
    if entered.claim is None or record.claim_id != entered.claim.claim_id or record.decided_by:
        yield Emit(event.late_effect_event(entered.judged, scene, record))
    if record.is_final:
        outcome = replayed_outcome(
            entered.judged, record, entered.plan, monitors=scene.snapshot.policy.mode == "monitor"
        )
    else:
        finding = in_doubt_finding(record)
        text = refusal_text((finding,), tool=record.tool)
        outcome = _failure_outcome(entered, ran, status="in_doubt", findings=(finding,), effect="unknown", text=text)
    yield Emit(event.tool_result_event(entered.judged, scene, outcome, ran.seconds, None))
    return outcome


def _finish_unrecorded(
    entered: AdmittedCall, scene: CallEnvironment, lost: Finding, checked: OutputResult, ran: Attempts
) -> Generator[Step, Any, Outcome]:
    """The write succeeded and the ledger could not say so: an honest doubt, not a success. The host gets the value."""
    text = refusal_text((lost,), tool=entered.plan.contract.name)
    outcome = _failure_outcome(entered, ran, status="in_doubt", findings=(lost,), effect="done", text=text)
    outcome = msgspec.structs.replace(outcome, value=checked.value)
    yield Emit(event.tool_result_event(entered.judged, scene, outcome, ran.seconds, None))
    return outcome


def _output_bytes(checked: OutputResult) -> bytes:
    return dump_compact(checked.value, sort=True) if checked.canonical is None else checked.canonical
