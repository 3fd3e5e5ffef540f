"""The hallway: one generator that walks a call through the rooms.

It yields the few steps that need the world and is answered by one of two drivers (sync, async).
`admit_call` ends where the tool would start, `finish_call` (in `result`) begins where it has answered; frameworks that
only offer hooks before and after a tool use the two halves. A generator never outlives its call.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, cast

import msgspec

from pokayoke.core.call import Decision, Finding, Mode, Outcome, StopReason, ToolCall
from pokayoke.core.flow import events as event
from pokayoke.core.flow.finish import AdmittedCall, Attempts, finish_call, settle_found_effect
from pokayoke.core.flow.outcomes import ledger_outcome, refused_outcome, replayed_outcome, report_to_loop_guard
from pokayoke.core.flow.plan import CallPlan
from pokayoke.core.flow.prepare import (
    CallEnvironment,
    PreparedCall,
    effect_hash,
    identity_hash,
    prepare_call,
    prepare_call_fast,
)
from pokayoke.core.flow.resolve import admit_with_proof, resolve_doubt, undone_finding
from pokayoke.core.flow.steps import Admit, AskPerson, Emit, Invoke, Raised, Reaction, ResolvePaths, Settle, Step, Wait
from pokayoke.core.flow.walk import is_transient
from pokayoke.core.gate.rules import stop_reason_for
from pokayoke.core.ledger.admission import AdmissionRequest, Approval, Charge, approval_fingerprint, build_charges
from pokayoke.core.ledger.findings import (
    in_doubt_finding,
    no_scope_finding,
    repeated_write_finding,
    took_effect_finding,
    unreachable_reason,
)
from pokayoke.core.ledger.key import ledger_key
from pokayoke.core.ledger.transitions import EXECUTE, Admission, Claim
from pokayoke.core.state.run_state import block_finding


def run_call(call: ToolCall, scene: CallEnvironment) -> Generator[Step, Any, Outcome]:
    """Take a call all the way from the model's text to the outcome."""
    entered = yield from admit_call(call, scene)
    if isinstance(entered, Outcome):
        return entered
    plan, attempt, total = entered.plan, 0, 0.0
    judged, arguments = entered.judged, entered.arguments
    delay = plan.retry.initial
    while True:
        attempt += 1
        reaction, seconds = yield Invoke(
            plan.contract, arguments, entered.located, plan.timeout, entered.claim, entered.attempt, judged.own
        )
        total += seconds
        transient = plan.retry.retries > 0 and is_transient(plan.contract, reaction)
        if not transient or attempt > plan.retry.retries:
            return (yield from finish_call(entered, scene, reaction, Attempts(attempt, total, exhausted=transient)))
        if judged.own:
            arguments = judged.original_arguments()  # the first ones are the tool's
        # It may be tried again because nothing can have happened, or because a second time does no harm.
        yield Wait(min(delay, plan.retry.cap), plan.retry.jitter)
        delay *= plan.retry.factor
        answer = yield from _admit_retry(entered, scene, reaction)
        if (answer.kind == "refuse" and answer.record is None) or _is_same_execution(answer, entered):
            # No rule of the ledger's, or committed before the failure: what has failed decides over the answer.
            return (yield from finish_call(entered, scene, reaction, Attempts(attempt, total, exhausted=False)))
        if answer.kind != "execute":
            return (yield from _finish_without_run(judged, plan, scene, answer, entered.claim))
        if answer.record is not None:
            entered = msgspec.structs.replace(entered, attempt=answer.record.attempt)


def _is_same_execution(answer: Admission, entered: AdmittedCall) -> bool:
    """Return whether the effect that the ledger tells of is that of this very execution."""
    record, claim = answer.record, entered.claim
    return answer.kind == "replay" and record is not None and claim is not None and record.claim_id == claim.claim_id


def admit_call(call: ToolCall, scene: CallEnvironment) -> Generator[Step, Any, AdmittedCall | Outcome]:
    """Walk up to the tool's door. Returns an outcome if the call ends before it."""
    seen = prepare_call_fast(call, scene)
    judged = seen if isinstance(seen, PreparedCall) else (yield from prepare_call(call, scene, seen))
    plan, arguments = judged.plan, judged.arguments
    if judged.refusal is not None or plan is None or arguments is None:
        return (yield from _refuse_call(judged, scene, cast("Finding", judged.refusal), judged.room))
    located: Mapping[str, Any] | None = None
    if plan.contract.paths:
        found = yield ResolvePaths(plan.contract, arguments)
        if isinstance(found, Finding):
            return (yield from _refuse_call(judged, scene, found, "gate"))
        located = found
    if plan.alone and not scene.snapshot.budgeted:
        halted = block_finding(scene.view.state, "read", plan.contract.sources)
        if halted is not None:
            return (yield from _finish_without_run(judged, plan, scene, Admission("refuse", halted), None))
        return AdmittedCall(judged, plan, arguments, located, None)
    scope: tuple[str, str] | None = None
    if plan.contract.effect != "read":
        scope = scene.claimant.scope(plan.contract)
        if scope is None:
            return (yield from _refuse_call(judged, scene, no_scope_finding(judged.tool), "ledger"))
    asked, answer = yield from _request_admission(judged, plan, scene, scope)
    claim, record = asked.claim, answer.record
    if answer.kind != "execute":
        return (yield from _finish_without_run(judged, plan, scene, answer, claim))
    if claim is not None:  # an effect leaves a line before it can happen; a read is told once, when it has ended
        yield Emit(event.tool_call_event(judged, scene, "allow", judged.notes, "gate"))
    return AdmittedCall(judged, plan, arguments, located, claim, record.attempt if record else 1)


def _request_admission(
    judged: PreparedCall, plan: CallPlan, scene: CallEnvironment, scope: tuple[str, str] | None
) -> Generator[Step, Any, tuple[AdmissionRequest, Admission]]:
    """Ask until there is an answer; a write that asks before it is repeated goes on to its next occurrence."""
    occurrence = judged.call.occurrence
    while True:
        claim = _build_claim(judged, plan, scene, scope, occurrence) if scope is not None else None
        asks = plan.asks or occurrence != judged.call.occurrence
        request = _build_request(
            judged, plan, scene, claim, _build_approval(judged, plan, scene, occurrence) if asks else None
        )
        answer = yield from _ask_ledger(request, judged, plan, scene)
        question = request.approval
        if answer.kind == "pending" and question is not None and scene.asks:
            decided = yield AskPerson(msgspec.structs.replace(question, id=answer.approval or question.id))
            if decided is not None:
                answer = yield from _ask_ledger(request, judged, plan, scene)
        if answer.kind != "replay" or plan.contract.on_duplicate != "ask":
            return request, answer
        occurrence += 1


def _ask_ledger(
    request: AdmissionRequest, judged: PreparedCall, plan: CallPlan, scene: CallEnvironment
) -> Generator[Step, Any, Admission]:
    """Ask the ledger; where it does not know, ask the target, which may lead to a question to a person."""
    answer = yield from admit_with_proof(request)
    return (yield from _resolve_by_lookup(request, judged, plan, scene, answer)) if answer.kind == "resolve" else answer


def _with_open_doubt(claim: Claim, plan: CallPlan, reaction: Reaction) -> Claim:
    """The claim, with what an execution has left open: only some failures prove that it had no effect."""
    if not isinstance(reaction, Raised) or isinstance(reaction.error, plan.contract.no_effect_errors):
        return claim
    return msgspec.structs.replace(claim, doubt=type(reaction.error).__name__)


def _admit_retry(entered: AdmittedCall, scene: CallEnvironment, reaction: Reaction) -> Generator[Step, Any, Admission]:
    """Ask whether a call may be tried again: not in a run that was stopped meanwhile, nor under a switch that opened.

    A claim may have lapsed, and somebody else have come. Nothing is counted or asked a second time, and a doubt is
    left to those who know nothing better.
    """
    plan, contract, claim = entered.plan, entered.plan.contract, entered.claim
    if claim is None:
        halted = block_finding(scene.view.state, contract.effect, contract.sources)
        return EXECUTE if halted is None else Admission("refuse", halted)
    claim = msgspec.structs.replace(_with_open_doubt(claim, plan, reaction), resolves=False)
    name, effect, sources = contract.name, contract.effect, contract.sources
    answer: Admission = yield Admit(
        AdmissionRequest(scene.run_id, name, effect, sources, scene.now, claim, step=scene.step, again=True)
    )
    return answer


def _resolve_by_lookup(
    request: AdmissionRequest, judged: PreparedCall, plan: CallPlan, scene: CallEnvironment, answer: Admission
) -> Generator[Step, Any, Admission]:
    """Settle a doubt by asking the target. What it found is checked, recorded, and then answered by the ledger."""
    contract = plan.contract
    patience = contract.timeout or scene.snapshot.policy.execution.timeout
    # A lookup may do with its arguments what it likes.
    answer, found = yield from resolve_doubt(request, contract, judged.original_arguments(), answer, patience)
    if found is None:
        return answer
    effect = yield from settle_found_effect(request, plan, judged.original_arguments(), found)
    yield Settle(effect, contract.name, contract.redact, judged.dumped or b"{}")
    told: Admission = yield Admit(request)
    if told.kind == "resolve" and told.record is not None:
        # The ledger did not take what was found; until it does, the doubt stays.
        return Admission("in_doubt", in_doubt_finding(told.record), told.record)
    if (lost := unreachable_reason(told)) is not None:
        return Admission("refuse", took_effect_finding(contract.name, lost), answer.record)
    return told


def _build_claim(
    judged: PreparedCall, plan: CallPlan, scene: CallEnvironment, scope: tuple[str, str], occurrence: int
) -> Claim:
    contract = plan.contract
    args_hash = effect_hash(judged, contract)
    identity = args_hash if contract.identity is None else identity_hash(judged, contract)
    return Claim(
        key=ledger_key(scope, contract.name, identity, occurrence=occurrence, epoch=contract.key_epoch),
        args_hash=args_hash,
        claim_id=scene.claimant.claim_id(scene.step),
        tool=contract.name,
        contract=contract.id,
        run_id=scene.run_id,
        now=scene.now,
        lease=plan.lease,
        reruns=contract.on_ambiguous in ("downstream_key", "rerun_safe"),
        resolves=contract.on_ambiguous == "lookup",
    )


def _build_request(
    judged: PreparedCall, plan: CallPlan, scene: CallEnvironment, claim: Claim | None, approval: Approval | None
) -> AdmissionRequest:
    contract, now = plan.contract, scene.now
    taken: tuple[Charge, ...] = ()
    if plan.limits:
        given, run_id = {**plan.unsent, **(judged.arguments or {})}, scene.run_id
        user, tenant = scene.principal.id if scene.principal else None, scene.tenant
        taken = build_charges(plan.limits, given, tool=contract.name, run_id=run_id, user=user, tenant=tenant, now=now)
    name, effect, sources = contract.name, contract.effect, contract.sources
    return AdmissionRequest(scene.run_id, name, effect, sources, now, claim, taken, approval, scene.step)


def _build_approval(judged: PreparedCall, plan: CallPlan, scene: CallEnvironment, occurrence: int) -> Approval:
    contract = plan.contract
    scope = scene.claimant.scope(contract) or ("run", scene.run_id)
    mark = approval_fingerprint(contract.id, scope, judged.args_hash, occurrence)
    return Approval(
        id=f"ap-{mark[:24]}",
        fingerprint=mark,
        tool=contract.name,
        contract=contract.id,
        # A copy: who is shown a question must not be able to change what runs after the answer.
        arguments=msgspec.json.decode(judged.dumped or b"null"),
        run_id=scene.run_id,
        asked_at=scene.now,
        expires_at=scene.now + scene.snapshot.policy.approvals.expires_seconds,
        marks=contract.redact,
    )


def _refuse_call(
    judged: PreparedCall, scene: CallEnvironment, finding: Finding, room: str
) -> Generator[Step, Any, Outcome]:
    findings = judged.findings if judged.refusal is not None else (finding, *judged.notes)
    decision: Decision = "stop" if scene.view.state.mode == "stopped" else "refuse"
    yield Emit(event.tool_call_event(judged, scene, decision, findings, room))
    outcome = refused_outcome(judged, finding, findings)
    report_to_loop_guard(judged, scene, outcome)
    return outcome


def _finish_without_run(
    judged: PreparedCall, plan: CallPlan, scene: CallEnvironment, answer: Admission, claim: Claim | None
) -> Generator[Step, Any, Outcome]:
    """Turn an answer that does not start the tool into an outcome."""
    record, finding = answer.record, answer.finding
    if answer.kind == "replay" and record is not None and (gone := (yield from undone_finding(record))) is not None:
        answer, finding = Admission("refuse", gone, record), gone
    if answer.kind == "replay" and plan.contract.on_duplicate == "refuse":
        finding = repeated_write_finding(judged.tool)
    elif answer.kind == "replay" and record is not None:
        yield Emit(event.tool_call_event(judged, scene, "replay", judged.notes, "ledger"))
        outcome = replayed_outcome(judged, record, plan, monitors=scene.snapshot.policy.mode == "monitor")
        told = record.output if outcome.status == "replayed" else None
        yield Emit(event.tool_result_event(judged, scene, outcome, 0.0, told))
        report_to_loop_guard(judged, scene, outcome, told)
        return outcome
    assert finding is not None, "every answer but execute and replay carries a finding"
    findings = (finding, *judged.notes)
    decision: Decision = "ask" if answer.kind == "pending" else "refuse"
    yield Emit(event.tool_call_event(judged, scene, decision, findings, "ledger" if record else "gate"))
    reason = _halt_reason(scene, finding)
    outcome = ledger_outcome(judged, answer, findings, reason, claim.key if claim else None)
    report_to_loop_guard(judged, scene, outcome)
    return outcome


def _halt_reason(scene: CallEnvironment, finding: Finding) -> StopReason:
    """The reason a run stands still is the run's own, not that of the call it refuses."""
    mode: Mode = scene.view.state.mode
    if mode != "normal" and finding.code in ("run_stopped", "tools_off", "writes_off"):
        return scene.view.state.stop_reason or "tool_failure"
    return stop_reason_for(finding)
