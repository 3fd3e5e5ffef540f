"""After the tool: check its output, settle the claim, latch or unlatch the run.

In: an admitted call and the tool's reaction.
Out: the outcome.
Never: a write whose effect is possible settled as if nothing had happened, or an output that broke its
contract returned as a value.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, cast

import msgspec

from pokayoke.core.call import EffectStatus, Finding, Outcome, Status
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.events import late_effect_event, reason_of, stop_event
from pokayoke.core.flow.failures import declared_failure_finding, execution_finding, failed_effect, unusable_advice
from pokayoke.core.flow.outcomes import Ending, build_outcome, end_call, ending_from_record
from pokayoke.core.flow.plan import CallPlan
from pokayoke.core.flow.questions import build_review
from pokayoke.core.flow.resolve import Found
from pokayoke.core.flow.sources import remember_output
from pokayoke.core.flow.states import AdmittedCall, Attempts, identity_hash
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
from pokayoke.core.ledger.records import Record, Settlement, SettlementState
from pokayoke.core.output.last_known_good import degraded_value, last_good_owner
from pokayoke.core.output.model_text import finding_kind_sentence, refusal_text, result_text
from pokayoke.core.output.preview import build_preview
from pokayoke.core.output.validate import OutputResult, check_output
from pokayoke.core.state.kill_switch import OutputObservation
from pokayoke.core.state.run_state import ANY_IDENTITY, Taint, is_latched, latch_and_stop, unlatch_by_output

UNCHECKED = Finding(
    code="no_output_contract",
    blame="host",
    message="the tool declares no output contract; its output was only measured and serialised",
)


def finish_call(
    admitted: AdmittedCall, env: CallEnvironment, reaction: Reaction, ran: Attempts
) -> Generator[Step, Any, Outcome]:
    """Check what the tool returned, settle its claim and end the call."""
    prepared, plan = admitted.prepared, admitted.plan
    if not isinstance(reaction, Returned):
        ending = yield from _end_failed_execution(admitted, env, reaction, ran)
        return (yield from _end_with_output(admitted, env, ending))
    # Only invariants read the arguments, and the tool may have changed the ones it got.
    owned = prepared.is_sole_owner and plan.contract.invariants
    arguments = prepared.original_arguments() if owned else admitted.arguments
    if plan.contract.output_hooks:
        checked = yield from _run_output_check(plan, arguments, reaction.value)
    else:
        checked = check_output(reaction.value, plan.contract, arguments=arguments, policy=plan.output)
    if checked.failure is not None:
        ending = yield from _end_declared_failure(admitted, env, checked, ran)
    elif checked.findings and env.snapshot.policy.mode == "enforce":
        ending = yield from _end_invalid(admitted, env, checked, ran)
    else:
        ending = yield from _end_valid(admitted, env, checked, ran)
    return (yield from _end_with_output(admitted, env, ending))


def _end_with_output(admitted: AdmittedCall, env: CallEnvironment, ending: Ending) -> Generator[Step, Any, Outcome]:
    prepared = admitted.prepared
    kept = remember_output(prepared, admitted.plan, env, ending, is_approved=admitted.is_approved)
    if kept is not None:
        yield kept
    yield from end_call(prepared, env, ending)
    return ending.outcome


def settle_found_effect(
    request: AdmissionRequest, plan: CallPlan, arguments: dict[str, Any], found: Found
) -> Generator[Step, Any, Settlement]:
    """Return the report of an effect that a lookup found. Its output is checked like any other."""
    claim = request.claim
    assert claim is not None, "only a claimed write is looked up"
    done = Settlement(claim.key, claim.claim_id, "completed", request.now, reference=found.reference, found=True)
    if found.output is msgspec.UNSET:
        return done
    checked = yield from _run_output_check(plan, arguments, found.output)
    if checked.findings or checked.failure is not None:
        reason = reason_of(checked.findings[0]) if checked.findings else "the target reports a failure"
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


def _end_valid(
    admitted: AdmittedCall, env: CallEnvironment, checked: OutputResult, ran: Attempts
) -> Generator[Step, Any, Ending]:
    """The output kept its contract, or monitor mode returns it all the same."""
    prepared, plan, claim = admitted.prepared, admitted.plan, admitted.claim
    contract, data, findings = plan.contract, checked.canonical, checked.findings
    ended = None if claim is None else (yield from _record_completion(admitted, env, checked, ran))
    # The host's code behind a count (an alert) may never return; by now the ledger holds what happened.
    if findings:
        yield from _count_invalid_output(admitted, env, findings)
    elif not checked.notes:
        env.meter.count_valid(contract.name, env.now, contract.effect == "read")
    if ended is not None:
        return ended
    if plan.keeps and data is not None and not (findings or checked.content or checked.words):
        env.last_good.put(*_last_good_key(admitted, env), data, now=env.now, after=env.effects)
    if env.view.state.taints and not findings and not checked.notes:
        identity = identity_hash(prepared, contract)
        yield ChangeState(lambda state: unlatch_by_output(state, contract.name, identity, env.step))
    if findings and data is None:  # nothing could be read of it, and null would be an answer
        text = refusal_text(findings, tool=contract.name)
    elif checked.chars <= env.snapshot.policy.context.offload_chars:
        text = result_text(
            checked.value,
            tool=contract.name,
            call_id=prepared.call.id,
            trust="unchecked" if findings or checked.unchecked else plan.trust,
            canonical=data,
            content=checked.content,
            words=checked.words,
        )
    else:
        text = yield from _offload_text(admitted, env, checked)
    remarks = prepared.remarks + findings + checked.notes
    outcome = Outcome(
        status="ok",
        call_id=prepared.call.id,
        tool=contract.name,
        value=checked.value,
        text=text,
        content=checked.content,
        findings=(*remarks, UNCHECKED) if checked.unchecked else remarks,
        corrections=prepared.corrections,
        repairs=prepared.repairs,
        effect="none" if claim is None else checked.effect,
        contract=contract.id,
        key=None if claim is None else claim.key,
        repeated=prepared.is_repeated,
        attempts=ran.count,
    )
    return Ending(outcome, ran, data, checked.wire)


def _record_completion(
    admitted: AdmittedCall, env: CallEnvironment, checked: OutputResult, ran: Attempts
) -> Generator[Step, Any, Ending | None]:
    """Report a write that succeeded. Returns how the call ends if the ledger says otherwise.

    In monitor mode an output that broke its contract is kept as well, marked as broken: no other caller
    gets it as a result.
    """
    broken = reason_of(checked.findings[0]) if checked.findings else ""
    kept = None if broken and checked.canonical is None else _ledger_output(admitted.plan, checked)
    lost: Finding | Record | None = yield _build_settle_step(
        admitted, env, "completed", output=kept, failure=broken, output_ok=not broken
    )
    if isinstance(lost, Record):
        return (yield from _end_overtaken(admitted, env, lost, ran))
    if lost is None:
        return None
    # The write succeeded and the ledger does not know: an honest doubt, not a success. The host gets the value.
    outcome = _failure_outcome(admitted, ran, "in_doubt", (lost,), "done")
    return Ending(msgspec.structs.replace(outcome, value=checked.value), ran)


def _ledger_output(plan: CallPlan, checked: OutputResult) -> bytes | None:
    """Return what the ledger keeps of an output: never a secret, and nothing of pictures and files."""
    has_no_text = checked.value is None and bool(checked.content)
    return None if plan.contract.secret or has_no_text else checked.canonical or _output_bytes(checked)


def _offload_text(admitted: AdmittedCall, env: CallEnvironment, checked: OutputResult) -> Generator[Step, Any, str]:
    """Store a very long value. Returns a preview with the handle of the rest."""
    tool, value, data = admitted.plan.contract.name, checked.value, checked.canonical
    if checked.words:
        value, data = f"{_output_bytes(checked).decode()}\n{checked.words}", None
    handle: str = yield StoreText(value if isinstance(value, str) else _output_bytes(checked).decode())
    return build_preview(value, data, handle=handle, max_chars=env.snapshot.policy.context.preview_chars, tool=tool)


def _end_invalid(
    admitted: AdmittedCall, env: CallEnvironment, checked: OutputResult, ran: Attempts
) -> Generator[Step, Any, Ending]:
    """The output broke its contract: the effect (if any) stands, the value must not be used."""
    prepared, contract = admitted.prepared, admitted.plan.contract
    policy, findings = env.snapshot.policy.safe_mode, checked.findings
    reason = reason_of(findings[0])
    effect: EffectStatus = "none" if admitted.claim is None else checked.effect
    if admitted.claim is not None:
        # An answer that does not even say that it took effect is no effect to build on, and none to repeat.
        state: SettlementState = "completed" if effect == "done" else "failed_final"
        yield _build_settle_step(admitted, env, state, failure=reason, output_ok=False)
    chosen = contract.on_invalid_output or policy.on_invalid_output
    stops, taint = chosen == "fail_closed", _build_taint(admitted, env, findings[0])
    review = build_review(prepared, contract, env, taint) if chosen == "human_review" else None
    before, after = yield ChangeState(lambda state: latch_and_stop(state, taint, stops=stops), review)
    if not is_latched(before, taint):
        yield from _count_invalid_output(admitted, env, findings)
    degrades = contract.effect == "read" and not stops
    outcome = _failure_outcome(admitted, ran, "degraded" if degrades else "invalid_output", findings, effect)
    value, text = None, outcome.text
    if degrades:
        age, value = env.last_good.get(
            *_last_good_key(admitted, env),
            now=env.now,
            max_age=policy.last_known_good_seconds,
            after=env.view.effects,
        )
        if value is not None:
            shown = result_text(value, tool=contract.name, call_id=prepared.call.id, trust="degraded")
            text = f"{text}\nThe last valid answer, {age:.0f} s old; do not write anything from it:\n{shown}"
            value = degraded_value(value, age, finding_kind_sentence(findings[0]))
    outcome = msgspec.structs.replace(
        outcome,
        value=value,
        text=text,
        stop_reason="invalid_tool_output",
        safe_mode=chosen,
        approval=review.id if review else None,
    )
    stop = None
    if before.effective_mode != after.effective_mode:
        stop = stop_event(after, env.now, env.step, "invalid_tool_output", chosen)
    return Ending(outcome, ran, None, checked.wire, stop)


def _last_good_key(admitted: AdmittedCall, env: CallEnvironment) -> tuple[str, str, str]:
    owner = last_good_owner(env.tenant, env.principal.id if env.principal else "", env.run_id)
    return owner, admitted.plan.contract.id, admitted.prepared.args_hash


def _build_taint(admitted: AdmittedCall, env: CallEnvironment, finding: Finding) -> Taint:
    prepared, contract = admitted.prepared, admitted.plan.contract
    reads = contract.effect == "read"
    too_large = reads and finding.code == "output_too_large"
    identity = ANY_IDENTITY if too_large else identity_hash(prepared, contract)
    failures = env.view.rounds.repeats.failure_count(contract.name, prepared.args_hash) + 1
    may_repeat = failures < env.snapshot.policy.loop.identical_failures
    return Taint(contract.name, identity, env.step, reason_of(finding), not reads, may_repeat)


def _count_invalid_output(
    admitted: AdmittedCall, env: CallEnvironment, findings: tuple[Finding, ...]
) -> Generator[Step, Any]:
    """Count an invalid output for the kill switch: one call of a run once, and never one that was only too large."""
    contract = admitted.plan.contract
    if findings[0].code != "output_too_large" and env.view.rounds.is_first_invalid(
        contract.name, admitted.prepared.args_hash
    ):
        reads = contract.effect == "read"
        yield CountOutput(OutputObservation(contract.name, valid=False, at=env.now, read=reads, run_id=env.run_id))


def _end_declared_failure(
    admitted: AdmittedCall, env: CallEnvironment, checked: OutputResult, ran: Attempts
) -> Generator[Step, Any, Ending]:
    """The tool answered that it failed. Only some answers prove that nothing happened."""
    contract = admitted.plan.contract
    said = checked.failure or ""
    effect: EffectStatus = "none" if admitted.claim is None else checked.effect
    finding = declared_failure_finding(contract.name, said, contract.effect, effect)
    if admitted.claim is not None:
        state: SettlementState = "failed_retriable" if effect == "none" else "failed_final"
        reason = reason_of((*checked.findings, finding)[0])
        known: Finding | Record | None = yield _build_settle_step(
            admitted, env, state, failure=reason, output_ok=checked.refused or effect == "none"
        )
        if isinstance(known, Record):
            return (yield from _end_overtaken(admitted, env, known, ran))
    outcome = _failure_outcome(admitted, ran, "failed", (finding, *checked.findings), effect)
    text = refusal_text((finding,), tool=contract.name)
    shown = result_text(said, tool=contract.name, call_id=admitted.prepared.call.id, trust="error")
    return Ending(msgspec.structs.replace(outcome, text=f"{text}\n{shown}"), ran, None, checked.wire)


def _end_failed_execution(
    admitted: AdmittedCall, env: CallEnvironment, reaction: Raised | TimedOut | NotStarted, ran: Attempts
) -> Generator[Step, Any, Ending]:
    """The tool raised or hung. The effect of a write is then in doubt, unless the exception says more."""
    contract = admitted.plan.contract
    if isinstance(reaction, Raised) and isinstance(reaction.error, ToolNotStarted):
        reaction = NotStarted(reaction.error.reason, reaction.error.blame)
    became = "none" if admitted.claim is None else failed_effect(reaction, contract)
    effect: EffectStatus = "none" if became == "none" else "unknown"
    finding = execution_finding(
        reaction,
        contract.name,
        contract.effect,
        became=effect,
        exhausted=ran.exhausted,
        redact=lambda text: env.redact(text, contract.redact, admitted.prepared.dumped or b"{}"),
    )
    if admitted.claim is not None:
        settling: SettlementState = _SETTLED_AS[became]
        # The ledger keeps the kind of the failure; an exception's own text may hold secrets.
        never = isinstance(reaction, NotStarted) and ran.count == 1
        error = reaction.error if isinstance(reaction, Raised) else None
        said_no = error is None or (error.__cause__ is None and error.__context__ is None)
        known: Finding | Record | None = yield _build_settle_step(
            admitted,
            env,
            settling,
            failure=reason_of(finding),
            output_ok=said_no or settling != "failed_final",
            unstarted=never,
        )
        if isinstance(known, Record):
            return (yield from _end_overtaken(admitted, env, known, ran))
    status: Status = "in_doubt" if became == "doubt" else "failed"
    return Ending(_failure_outcome(admitted, ran, status, (finding,), effect), ran)


_SETTLED_AS: Final[dict[str, SettlementState]] = {
    "none": "failed_retriable",
    "unknown": "failed_final",
    "doubt": "in_doubt",
}


def _failure_outcome(
    admitted: AdmittedCall, ran: Attempts, status: Status, findings: tuple[Finding, ...], effect: EffectStatus
) -> Outcome:
    """Return the outcome of a call whose tool ran and brought no usable result."""
    tool, advice = admitted.plan.contract.name, None
    if status == "invalid_output" and effect != "none":
        advice = unusable_advice(effect)
        # A hint that asks for another answer would send the model to do it again.
        findings = tuple(msgspec.structs.replace(one, hint="") for one in findings)
    return build_outcome(
        admitted.prepared,
        status,
        refusal_text(findings, tool=tool, advice=advice),
        (*findings, *admitted.prepared.remarks),
        effect=effect,
        stop_reason="in_doubt" if status == "in_doubt" else "tool_failure",
        ran=ran,
        claim=admitted.claim,
    )


def _build_settle_step(
    admitted: AdmittedCall,
    env: CallEnvironment,
    state: SettlementState,
    *,
    output: bytes | None = None,
    failure: str = "",
    output_ok: bool = True,
    unstarted: bool = False,
) -> Settle:
    """Return the report of an execution. A failure of a completed one is that of its output."""
    claim = admitted.claim
    assert claim is not None, "only a claimed write is settled"
    report = Settlement(
        claim.key, claim.claim_id, state, env.now, output, output_ok=output_ok, failure=failure, unstarted=unstarted
    )
    sent = admitted.prepared.dumped or b"{}"
    return Settle(report, claim.tool, admitted.plan.contract.redact, sent)


def _end_overtaken(
    admitted: AdmittedCall, env: CallEnvironment, record: Record, ran: Attempts
) -> Generator[Step, Any, Ending]:
    """The ledger knows more than this execution and answers in its place, so that all callers get the same."""
    claim, prepared = admitted.claim, admitted.prepared
    if claim is None or record.claim_id != claim.claim_id or record.decided_by:
        yield Emit(late_effect_event(prepared, env, record))
    if not record.is_final:
        return Ending(_failure_outcome(admitted, ran, "in_doubt", (in_doubt_finding(record),), "unknown"), ran)
    monitors = env.snapshot.policy.mode == "monitor"
    return ending_from_record(prepared, record, admitted.plan, ran, monitors=monitors)


def _output_bytes(checked: OutputResult) -> bytes:
    return dump_compact(checked.value, sort=True) if checked.canonical is None else checked.canonical
