"""Up to the tool: prepare a call, then ask the ledger, the target and a person whether it may run.

In: a call and its environment.
Out: an admitted call, or the outcome of one that ended before its tool.
Never: a write that runs without a claim, or a question that is asked after its answer is known.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, cast

import msgspec

from pokayoke.core.call import Decision, Finding, Mode, Outcome, StopReason, ToolCall, Verdict
from pokayoke.core.flow.effect_chain import EffectChain, EffectWish
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.events import tool_call_event
from pokayoke.core.flow.failures import failed_effect
from pokayoke.core.flow.finish import settle_found_effect
from pokayoke.core.flow.outcomes import NOT_RUN, add_last_answer, end_call, ending_before_run, ending_from_record
from pokayoke.core.flow.plan import CallPlan
from pokayoke.core.flow.prepare import prepare_call, prepare_call_fast, verdict_under
from pokayoke.core.flow.questions import build_approval
from pokayoke.core.flow.repetition import FIRST, Repetition
from pokayoke.core.flow.resolve import resolve_doubt, undone_finding
from pokayoke.core.flow.sources import find_sources, remember_output
from pokayoke.core.flow.states import AdmittedCall, PreparedCall, effect_hash, identity_hash
from pokayoke.core.flow.steps import (
    Admit,
    AskPerson,
    CheckOwner,
    Emit,
    Raised,
    Reaction,
    ResolvePaths,
    Settle,
    Step,
)
from pokayoke.core.gate.rules import stop_reason_for
from pokayoke.core.ledger.admission import AdmissionRequest, Approval, Charge, build_charges
from pokayoke.core.ledger.findings import (
    in_doubt_finding,
    no_scope_finding,
    took_effect_finding,
    unreachable_reason,
)
from pokayoke.core.ledger.key import ledger_key
from pokayoke.core.ledger.records import EXECUTE, UNASKED, Admission, Claim, call_mark
from pokayoke.core.state.run_state import block_finding


def admit_call(call: ToolCall, env: CallEnvironment) -> Generator[Step, Any, AdmittedCall | Outcome]:
    """Prepare and admit a call. Returns its outcome if it ends before its tool."""
    seen = prepare_call_fast(call, env)
    prepared = seen if isinstance(seen, PreparedCall) else (yield from prepare_call(call, env, seen))
    plan, arguments = prepared.plan, prepared.arguments
    if prepared.refusal is not None or plan is None or arguments is None:
        return (yield from _refuse_call(prepared, env, cast("Finding", prepared.refusal), prepared.room))
    located: Mapping[str, Any] | None = None
    if plan.contract.paths or plan.contract.urls:
        found = yield ResolvePaths(plan.contract, arguments)
        if isinstance(found, Finding):
            return (yield from _refuse_call(prepared, env, found, "gate"))
        located = found
    if plan.judges_sources:
        prepared = yield from _with_sources(prepared, plan, arguments, env)
    is_free = prepared.sources is None or prepared.sources.decision == "allow"
    if plan.needs_no_admission and is_free and not env.snapshot.budgeted:
        halted = block_finding(env.view.state, "read", plan.contract.sources)
        if halted is not None:
            return (yield from finish_without_run(prepared, plan, env, Admission("refuse", halted), None))
        return AdmittedCall(prepared, plan, arguments, located, None)
    return (yield from _admit_by_ledger(prepared, plan, env, arguments, located))


def _admit_by_ledger(
    prepared: PreparedCall,
    plan: CallPlan,
    env: CallEnvironment,
    arguments: dict[str, Any],
    located: Mapping[str, Any] | None,
) -> Generator[Step, Any, AdmittedCall | Outcome]:
    """Admit a call that more than its run's own state can stop."""
    scope: tuple[str, str] | None = None
    if plan.contract.effect != "read":
        scope = env.claimant.scope(plan.contract)
        if scope is None:
            return (yield from _refuse_call(prepared, env, no_scope_finding(prepared.tool), "ledger"))
    asked, answer, repetition = yield from _request_admission(prepared, plan, env, scope)
    claim, record = asked.claim, answer.record
    if answer is UNASKED and prepared.sources is not None:
        return (yield from _refuse_call(prepared, env, prepared.sources.finding(prepared.tool), "gate"))
    if answer.kind != "execute":
        return (yield from finish_without_run(prepared, plan, env, answer, claim, repetition=repetition))
    if claim is not None:  # an effect leaves an event before it can happen; a read has only the one at its end
        prepared = prepared if repetition is FIRST else msgspec.structs.replace(prepared, is_repeated=True)
        yield Emit(tool_call_event(prepared, env, "allow", prepared.remarks, "gate"))
    attempt, is_approved = record.attempt if record else 1, asked.approval is not None
    return AdmittedCall(prepared, plan, arguments, located, claim, attempt, is_approved)


def check_call(call: ToolCall, env: CallEnvironment) -> Generator[Step, Any, Verdict]:
    """Return what would be decided, but for the store's part. Nothing is recorded and nothing runs."""
    prepared = yield from prepare_call(call, env)
    plan, arguments = prepared.plan, prepared.arguments
    if prepared.refusal is None and plan is not None and arguments is not None:
        prepared = yield from _with_sources(prepared, plan, arguments, env)
    return verdict_under(prepared, env.view.state)


def _with_sources(
    prepared: PreparedCall, plan: CallPlan, arguments: Mapping[str, Any], env: CallEnvironment
) -> Generator[Step, Any, PreparedCall]:
    if not plan.judges_sources or env.values is None or not env.values.is_tainted_by(env):
        return prepared
    sources = yield from find_sources(plan, arguments, env.values, env)
    notes = sources.notes() if sources.mode != "note" else ()
    return msgspec.structs.replace(prepared, sources=sources, remarks=(*prepared.remarks, *notes))


def _request_admission(
    prepared: PreparedCall, plan: CallPlan, env: CallEnvironment, scope: tuple[str, str] | None
) -> Generator[Step, Any, tuple[AdmissionRequest, Admission, Repetition]]:
    """Ask for admission. A call that is new to its caller goes on from the latest equal effect to the next one."""
    if scope is None:
        request, answer = yield from _request_effect(prepared, plan, env, EffectWish(None))
        return request, answer, FIRST
    claim, memory = _build_claim(prepared, plan, env, scope), env.caller.memory
    if plan.contract.repeat_rule != "each" and not prepared.call.occurrence and not memory.known_chain(claim.key):
        request, answer = yield from _request_effect(prepared, plan, env, EffectWish(claim))
        if answer.kind == "execute":  # nearly always; what follows is about equal effects
            return request, answer, FIRST
        chain = EffectChain(prepared, plan, env, scope, claim)
    else:
        chain = EffectChain(prepared, plan, env, scope, claim)
        request, answer = yield from _request_effect(prepared, plan, env, chain.wish)
    while True:
        final = yield from chain.follow(answer)
        if final is not None:
            return request, final, chain.repetition
        request, answer = yield from _request_effect(prepared, plan, env, chain.wish)


def _request_effect(
    prepared: PreparedCall, plan: CallPlan, env: CallEnvironment, wish: EffectWish
) -> Generator[Step, Any, tuple[AdmissionRequest, Admission]]:
    """Ask the ledger, and a person where that is needed, whether an effect may happen."""
    question, sources = None, prepared.sources
    is_asked = wish.asks or (sources is not None and sources.decision != "allow")
    if approvers := plan.approval_rule.count_approvers(prepared.arguments or {}, is_asked=is_asked):
        question = build_approval(prepared, plan.contract, env, wish, approvers)
    request = _build_request(prepared, plan, env, wish.claim, question)
    # What policy refuses runs only if a person has said yes to this very call before; nobody is asked anew.
    if wish.resumes or (sources is not None and sources.decision == "refuse"):
        request = msgspec.structs.replace(request, resumes=True)
    answer = yield from _ask_ledger(request, prepared, plan, env)
    if answer.kind == "pending" and question is not None and env.asks:
        decided = yield AskPerson(msgspec.structs.replace(question, id=answer.approval or question.id))
        if decided is not None:
            answer = yield from _ask_ledger(request, prepared, plan, env)
    return request, answer


def _ask_ledger(
    request: AdmissionRequest, prepared: PreparedCall, plan: CallPlan, env: CallEnvironment
) -> Generator[Step, Any, Admission]:
    """Ask the ledger, and the target where the ledger does not know."""
    answer = yield from admit_with_proof(request)
    return (yield from _resolve_by_lookup(request, prepared, plan, env, answer)) if answer.kind == "resolve" else answer


def _with_open_doubt(claim: Claim, plan: CallPlan, reaction: Reaction) -> Claim:
    """Return the claim with the doubt its execution left: only some failures prove that it had no effect."""
    if not isinstance(reaction, Raised) or failed_effect(reaction, plan.contract) == "none":
        return claim
    return msgspec.structs.replace(claim, doubt=type(reaction.error).__name__)


def admit_retry(admitted: AdmittedCall, env: CallEnvironment, reaction: Reaction) -> Generator[Step, Any, Admission]:
    """Ask whether a call may run again. A stopped run and an open kill switch refuse it.

    The claim may have lapsed and another caller may hold it. Limits and approvals are not used a second
    time, and a doubt is not looked up: this caller knows why its own execution failed.
    """
    plan, contract, claim = admitted.plan, admitted.plan.contract, admitted.claim
    if claim is None:
        halted = block_finding(env.view.state, contract.effect, contract.sources)
        return EXECUTE if halted is None else Admission("refuse", halted)
    claim = msgspec.structs.replace(_with_open_doubt(claim, plan, reaction), resolves=False)
    name, effect, sources = contract.name, contract.effect, contract.sources
    answer: Admission = yield Admit(
        AdmissionRequest(env.run_id, name, effect, sources, env.now, claim, step=env.step, again=True)
    )
    return answer


def _resolve_by_lookup(
    request: AdmissionRequest, prepared: PreparedCall, plan: CallPlan, env: CallEnvironment, answer: Admission
) -> Generator[Step, Any, Admission]:
    """Settle a doubt by asking the target. An effect it finds is checked and recorded; the ledger then answers."""
    contract = plan.contract
    patience = contract.timeout or env.snapshot.policy.execution.timeout
    # A lookup may change its arguments, so it gets a copy.
    answer, found = yield from resolve_doubt(request, contract, prepared.original_arguments(), answer, patience)
    if found is None:
        return answer
    effect = yield from settle_found_effect(request, plan, prepared.original_arguments(), found)
    yield Settle(effect, contract.name, contract.redact, prepared.dumped or b"{}")
    told: Admission = yield Admit(request)
    if told.kind == "resolve" and told.record is not None:
        # The ledger did not take the finding of the lookup, so the doubt stays.
        return Admission("in_doubt", in_doubt_finding(told.record), told.record)
    if (lost := unreachable_reason(told)) is not None:
        return Admission("refuse", took_effect_finding(contract.name, lost), answer.record)
    return told


def _build_claim(prepared: PreparedCall, plan: CallPlan, env: CallEnvironment, scope: tuple[str, str]) -> Claim:
    contract = plan.contract
    args_hash = effect_hash(prepared, contract)
    identity = args_hash if contract.identity is None else identity_hash(prepared, contract)
    return Claim(
        key=ledger_key(scope, contract.name, identity, occurrence=prepared.call.occurrence, epoch=contract.key_epoch),
        args_hash=args_hash,
        claim_id=env.claimant.claim_id(env.step) + call_mark(prepared.call.id),
        tool=contract.name,
        contract=contract.id,
        run_id=env.run_id,
        now=env.now,
        lease=plan.lease,
        reruns=contract.on_ambiguous in ("downstream_key", "rerun_safe"),
        resolves=contract.on_ambiguous == "lookup",
    )


def _build_request(
    prepared: PreparedCall, plan: CallPlan, env: CallEnvironment, claim: Claim | None, approval: Approval | None
) -> AdmissionRequest:
    contract, now = plan.contract, env.now
    taken: tuple[Charge, ...] = ()
    if plan.limits:
        given, run_id = {**plan.default_amounts, **(prepared.arguments or {})}, env.run_id
        user, tenant = env.principal.id if env.principal else None, env.tenant
        taken = build_charges(plan.limits, given, tool=contract.name, run_id=run_id, user=user, tenant=tenant, now=now)
    name, effect, sources = contract.name, contract.effect, contract.sources
    return AdmissionRequest(env.run_id, name, effect, sources, now, claim, taken, approval, env.step)


def _refuse_call(
    prepared: PreparedCall, env: CallEnvironment, finding: Finding, room: str
) -> Generator[Step, Any, Outcome]:
    findings = prepared.findings if prepared.refusal is not None else (finding, *prepared.remarks)
    decision: Decision = "stop" if env.view.state.mode == "stopped" else "refuse"
    yield Emit(tool_call_event(prepared, env, decision, findings, room))
    ending = ending_before_run(prepared, Admission("refuse"), findings, stop_reason_for(finding))
    yield from end_call(prepared, env, ending)
    return ending.outcome


def finish_without_run(
    prepared: PreparedCall,
    plan: CallPlan,
    env: CallEnvironment,
    answer: Admission,
    claim: Claim | None,
    *,
    repetition: Repetition = FIRST,
) -> Generator[Step, Any, Outcome]:
    """End a call whose admission does not start the tool.

    Args:
        prepared: the call.
        plan: how calls of its contract are treated.
        env: its environment.
        answer: what the admission said.
        claim: its ledger claim, or None.
        repetition: how it stands to the equal effects before it.
    """
    record, finding = answer.record, answer.finding
    if answer.kind == "replay" and record is not None and (gone := (yield from undone_finding(record))) is not None:
        answer, finding = Admission("refuse", gone, record), gone
    if answer.kind == "replay" and record is not None:
        yield Emit(tool_call_event(prepared, env, "replay", prepared.remarks, "ledger"))
        monitors = env.snapshot.policy.mode == "monitor"
        ending = ending_from_record(prepared, record, plan, NOT_RUN, repetition, monitors=monitors)
        if (kept := remember_output(prepared, plan, env, ending)) is not None:
            yield kept
        yield from end_call(prepared, env, ending)
        return ending.outcome
    assert finding is not None, "every answer but execute and replay carries a finding"
    findings = (finding, *prepared.remarks)
    decision: Decision = "ask" if answer.kind == "pending" else "refuse"
    yield Emit(tool_call_event(prepared, env, decision, findings, "ledger" if record else "gate"))
    ending = ending_before_run(prepared, answer, findings, _halt_reason(env, finding), claim)
    if answer.kind == "pending" and repetition.earlier is not None:
        ending = add_last_answer(ending, prepared, plan, repetition.earlier)
    yield from end_call(prepared, env, ending)
    return ending.outcome


def _halt_reason(env: CallEnvironment, finding: Finding) -> StopReason:
    """Return the stop reason of a refusal. A run that is stopped keeps its own reason."""
    mode: Mode = env.view.state.mode
    if mode != "normal" and finding.code in ("run_stopped", "tools_off", "writes_off"):
        return env.view.state.stop_reason or "tool_failure"
    return stop_reason_for(finding)


def admit_with_proof(request: AdmissionRequest) -> Generator[Step, Any, Admission]:
    """Ask for admission; if the process that holds the claim is proven dead, ask again with the proof."""
    answer: Admission = yield Admit(request)
    claim, record = request.claim, answer.record
    if claim is None or record is None or not record.owner or answer.kind != "refuse":
        return answer
    if record.state == "resolving" or answer.retry_after is None:
        return answer
    seen: float | None = yield CheckOwner(record.owner)
    if seen is None:
        return answer
    again: Admission = yield Admit(
        msgspec.structs.replace(request, claim=msgspec.structs.replace(claim, dead=record.claim_id, dead_at=seen))
    )
    return again if unreachable_reason(again) is None else answer
