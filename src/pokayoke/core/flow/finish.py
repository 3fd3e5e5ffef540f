"""After execution: judge what came back, settle the claim, close or open the latch, say what happened.

What enters is an admitted call and the tool's reaction; what leaves is the outcome. What must never
happen here: a write whose effect is possible settled as if nothing had happened, or an output that
broke its contract handed on as a value.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, cast

import msgspec

from pokayoke.core.call import Finding, Happened, Outcome, Status
from pokayoke.core.flow import events as event
from pokayoke.core.flow.failures import explain, reported
from pokayoke.core.flow.outcomes import already_done, note_ending
from pokayoke.core.flow.plan import Plan
from pokayoke.core.flow.prepare import Judged, Scene, identity_of
from pokayoke.core.flow.questions import review_of
from pokayoke.core.flow.resolve import Found
from pokayoke.core.flow.steps import (
    Compute,
    Emit,
    Keep,
    Mark,
    NotBegun,
    NotStarted,
    Observe,
    Raised,
    Reaction,
    Returned,
    Settle,
    Step,
    TimedOut,
)
from pokayoke.core.json.canonical import dump
from pokayoke.core.ledger.admission import Request
from pokayoke.core.ledger.findings import in_doubt
from pokayoke.core.ledger.transitions import Claim, Record, Settlement, Settling
from pokayoke.core.output.last_known_good import degraded_value, whose
from pokayoke.core.output.model_text import kind_of_problem, present, refusal_text
from pokayoke.core.output.preview import preview
from pokayoke.core.output.validate import Checked, check_output
from pokayoke.core.state.kill_switch import Seen
from pokayoke.core.state.run_state import Taint, tainted, unlatch

CODES: dict[str, str] = {
    "no_output_contract": "nothing is promised about this tool's output, so it is unchecked",
    "invariant_cut": "checking the output did not finish in time",
}

UNCHECKED = Finding(  # always this very value
    code="no_output_contract",
    blame="host",
    message="the tool declares no output contract; its output was only measured and serialised",
)


class Entered(msgspec.Struct, frozen=True, gc=False):
    """A call that was admitted: the tool may start.

    Attributes:
        judged: what was decided.
        plan: how the contract is treated.
        arguments: what the tool receives.
        located: path arguments resolved inside their roots.
        claim: the ledger claim of a write, or None.
        attempt: the ledger's number of this execution; 1 for a read.
    """

    judged: Judged
    plan: Plan
    arguments: dict[str, Any]
    located: Mapping[str, Any] | None
    claim: Claim | None
    attempt: int = 1


class Ran(msgspec.Struct, frozen=True, gc=False):
    """How often and how long the tool ran."""

    attempts: int
    seconds: float
    exhausted: bool


def leave(entered: Entered, scene: Scene, reaction: Reaction, ran: Ran) -> Generator[Step, Any, Outcome]:
    """Judge what the tool answered, settle what has to be settled, and say how the call ended."""
    judged, plan = entered.judged, entered.plan
    if not isinstance(reaction, Returned):
        outcome = yield from _broken(entered, scene, reaction, ran)
        note_ending(judged, scene, outcome)
        return outcome
    # Only invariants look at arguments, and by now the tool may have changed those that it was given.
    arguments = judged.again() if judged.own and plan.contract.invariants else entered.arguments
    if plan.contract.output_hooks:
        checked = yield from _check(plan, arguments, reaction.value)
    else:
        checked = check_output(reaction.value, plan.contract, arguments=arguments, policy=plan.output)
    if checked.failure is not None:
        outcome, result = (yield from _declared_failure(entered, scene, checked, ran)), None
    elif checked.findings and scene.snapshot.policy.mode == "enforce":
        outcome, result = (yield from _invalid(entered, scene, checked, ran)), None
    else:
        outcome, result = (yield from _valid(entered, scene, checked, ran)), checked.canonical
    note_ending(judged, scene, outcome, result)
    return outcome


def found_effect(
    request: Request, plan: Plan, arguments: dict[str, Any], found: Found
) -> Generator[Step, Any, Settlement]:
    """What the ledger has to keep of an effect that a lookup has found: its output is checked like any other."""
    claim = request.claim
    assert claim is not None, "only a claimed write is looked up"
    done = Settlement(claim.key, claim.claim_id, "completed", request.now, reference=found.reference, found=True)
    if found.output is msgspec.UNSET:
        return done
    checked = yield from _check(plan, arguments, found.output)
    if checked.findings or checked.failure is not None:
        reason = event.reason_of(checked.findings[0]) if checked.findings else "the target reports a failure"
        return msgspec.structs.replace(done, output_ok=False, failure=reason)
    return msgspec.structs.replace(done, output=_kept(plan, checked))


def _check(plan: Plan, arguments: dict[str, Any], value: Any) -> Generator[Step, Any, Checked]:
    contract = plan.contract
    if not contract.output_hooks:
        return check_output(value, contract, arguments=arguments, policy=plan.output)
    reaction: Reaction = yield Compute(
        lambda: check_output(value, contract, arguments=arguments, policy=plan.output), plan.timeout
    )
    if isinstance(reaction, Returned):
        return cast("Checked", reaction.value)
    why = type(reaction.error).__name__ if isinstance(reaction, Raised) else f"no answer in {plan.timeout} s"
    finding = Finding(code="invariant_cut", blame="policy", message=f"checking the output did not finish: {why}")
    return Checked(value=None, findings=(finding,))


def _valid(entered: Entered, scene: Scene, checked: Checked, ran: Ran) -> Generator[Step, Any, Outcome]:
    judged, plan, claim = entered.judged, entered.plan, entered.claim
    contract, stored, findings = plan.contract, checked.canonical, checked.findings
    ended = None if claim is None else (yield from _recorded(entered, scene, checked, ran))
    # What the host does with a count (an alert) may never end; what has happened is in the ledger by then.
    if findings:  # monitor mode hands it on all the same
        yield _broke_contract(entered, scene)
    else:
        scene.meter.valid(contract.name, scene.now, contract.effect == "read")
    if ended is not None:
        return ended
    if plan.keeps and stored is not None and not (findings or checked.content):
        scene.last_good.put(whose(scene), contract.id, judged.args_hash, stored, now=scene.now)
    if scene.view.state.taints and not findings:
        identity = identity_of(judged, contract)
        yield Mark(lambda state: unlatch(state, contract.name, identity, step=scene.step))
    if findings and stored is None:  # nothing could be read of it, and null would be an answer
        text = refusal_text(findings, tool=contract.name)
    elif checked.chars <= scene.snapshot.policy.context.offload_chars:
        text = present(
            checked.value,
            tool=contract.name,
            call_id=judged.call.id,
            trust="unchecked" if findings else plan.trust,
            canonical=stored,
            content=checked.content,
        )
    else:
        text = yield from _offloaded(entered, scene, checked)
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
    yield Emit(event.tool_result(judged, scene, outcome, ran.seconds, told, wire=checked.wire))
    return outcome


def _recorded(entered: Entered, scene: Scene, checked: Checked, ran: Ran) -> Generator[Step, Any, Outcome | None]:
    """Tell the ledger of a write that succeeded. Returns how the call ended if the ledger says otherwise.

    What broke its contract is kept for whoever monitors as well, and as broken: to everybody else it is no result.
    """
    broken = event.reason_of(checked.findings[0]) if checked.findings else ""
    kept = None if broken and checked.canonical is None else _kept(entered.plan, checked)
    lost: Finding | Record | None = yield _settling(entered, scene, "completed", output=kept, failure=broken)
    if isinstance(lost, Record):
        return (yield from _overtaken(entered, scene, lost, ran))
    return None if lost is None else (yield from _unrecorded(entered, scene, lost, checked, ran))


def _kept(plan: Plan, checked: Checked) -> bytes | None:
    """What the ledger keeps of an output: no secret, and of pictures and files nothing."""
    wordless = checked.value is None and bool(checked.content)
    return None if plan.contract.secret or wordless else checked.canonical or _bytes(checked)


def _offloaded(entered: Entered, scene: Scene, checked: Checked) -> Generator[Step, Any, str]:
    """A very long value as the model reads it: a preview with a handle."""
    tool, value, data = entered.plan.contract.name, checked.value, checked.canonical
    handle: str = yield Keep(value if isinstance(value, str) else _bytes(checked).decode())
    return preview(value, data, handle=handle, max_chars=scene.snapshot.policy.context.preview_chars, tool=tool)


def _invalid(entered: Entered, scene: Scene, checked: Checked, ran: Ran) -> Generator[Step, Any, Outcome]:
    """The output broke its contract: the effect (if any) stands, the value must not be used."""
    judged, contract = entered.judged, entered.plan.contract
    policy = scene.snapshot.policy.safe_mode
    reason = event.reason_of(checked.findings[0])
    if entered.claim is not None:
        yield _settling(entered, scene, "completed", failure=reason)
    taint = Taint(contract.name, identity_of(entered.judged, entered.plan.contract), scene.step, reason)
    stops = policy.on_invalid_output == "fail_closed"
    review = review_of(judged, contract, scene, reason) if policy.on_invalid_output == "human_review" else None
    before, after = yield Mark(lambda state: tainted(state, taint, stops=stops), review)
    yield _broke_contract(entered, scene)
    value, findings = None, checked.findings
    if contract.effect == "read" and not stops:
        age, value = scene.last_good.get(
            whose(scene), contract.id, judged.args_hash, now=scene.now, max_age=policy.last_known_good_seconds
        )
        text = _degraded_text(entered, findings, value, age)
        if value is not None:
            value = degraded_value(value, age, kind_of_problem(findings[0]))
    else:
        text = refusal_text(findings, tool=contract.name)
    outcome = _bad(
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
    yield Emit(event.tool_result(judged, scene, outcome, ran.seconds, None, wire=checked.wire))
    if before.effective_mode != after.effective_mode:
        yield Emit(event.stop(after, scene.now, scene.step, "invalid_tool_output", policy.on_invalid_output))
    return outcome


def _broke_contract(entered: Entered, scene: Scene) -> Observe:
    contract = entered.plan.contract
    return Observe(Seen(contract.name, valid=False, at=scene.now, read=contract.effect == "read", run_id=scene.run_id))


def _degraded_text(entered: Entered, findings: tuple[Finding, ...], value: Any, age: float) -> str:
    contract = entered.plan.contract
    said = refusal_text(findings, tool=contract.name)
    if value is None:
        return said
    shown = present(value, tool=contract.name, call_id=entered.judged.call.id, trust="degraded")
    return f"{said}\nThe last valid answer, {age:.0f} s old; do not write anything from it:\n{shown}"


def _declared_failure(entered: Entered, scene: Scene, checked: Checked, ran: Ran) -> Generator[Step, Any, Outcome]:
    """The tool answered that it failed. Its word is no proof that nothing happened: never run it again."""
    contract = entered.plan.contract
    said = checked.failure or ""
    finding = reported(contract.name, said)
    effect: Happened = "none"
    if entered.claim is not None:
        effect = "unknown"
        known: Finding | Record | None = yield _settling(
            entered, scene, "failed_final", failure="the tool reported a failure"
        )
        if isinstance(known, Record):
            return (yield from _overtaken(entered, scene, known, ran))
    shown = present(said, tool=contract.name, call_id=entered.judged.call.id, trust="error")
    text = f"{refusal_text((finding,), tool=contract.name)}\n{shown}"
    findings = (finding, *checked.findings)
    outcome = _bad(entered, ran, status="failed", findings=findings, effect=effect, text=text)
    yield Emit(event.tool_result(entered.judged, scene, outcome, ran.seconds, None, wire=checked.wire))
    return outcome


def _broken(
    entered: Entered, scene: Scene, reaction: Raised | TimedOut | NotStarted, ran: Ran
) -> Generator[Step, Any, Outcome]:
    """The tool raised or hung. For a write that means that nobody knows, unless the contract says so."""
    contract = entered.plan.contract
    if isinstance(reaction, Raised) and isinstance(reaction.error, NotBegun):
        reaction = NotStarted(reaction.error.reason, reaction.error.blame)
    harmless = isinstance(reaction, NotStarted) or (
        isinstance(reaction, Raised) and isinstance(reaction.error, contract.no_effect_errors)
    )
    doubtful = entered.claim is not None and not harmless
    finding = explain(reaction, contract.name, contract.effect, doubtful=doubtful, exhausted=ran.exhausted)
    status: Status = "failed"
    effect: Happened = "none"
    if entered.claim is not None:
        settling: Settling = "failed_retriable" if harmless else "in_doubt"
        # The ledger keeps what kind of failure it was; an exception's own text may hold secrets.
        never = isinstance(reaction, NotStarted) and ran.attempts == 1
        known: Finding | Record | None = yield _settling(
            entered, scene, settling, failure=event.reason_of(finding), unstarted=never
        )
        if isinstance(known, Record):
            return (yield from _overtaken(entered, scene, known, ran))
        if not harmless:
            status, effect = "in_doubt", "unknown"
    text = refusal_text((finding,), tool=contract.name)
    outcome = _bad(entered, ran, status=status, findings=(finding,), effect=effect, text=text)
    yield Emit(event.tool_result(entered.judged, scene, outcome, ran.seconds, None))
    return outcome


def _bad(
    entered: Entered, ran: Ran, *, status: Status, findings: tuple[Finding, ...], effect: Happened, text: str
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


def _settling(
    entered: Entered,
    scene: Scene,
    state: Settling,
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


def _overtaken(entered: Entered, scene: Scene, record: Record, ran: Ran) -> Generator[Step, Any, Outcome]:
    """The ledger knows more than this execution, and answers in its place, so that all callers hear the same."""
    if entered.claim is None or record.claim_id != entered.claim.claim_id or record.decided_by:
        yield Emit(event.late_effect(entered.judged, scene, record))
    if record.answers:
        outcome = already_done(entered.judged, record, entered.plan, monitors=scene.snapshot.policy.mode == "monitor")
    else:
        finding = in_doubt(record)
        text = refusal_text((finding,), tool=record.tool)
        outcome = _bad(entered, ran, status="in_doubt", findings=(finding,), effect="unknown", text=text)
    yield Emit(event.tool_result(entered.judged, scene, outcome, ran.seconds, None))
    return outcome


def _unrecorded(
    entered: Entered, scene: Scene, lost: Finding, checked: Checked, ran: Ran
) -> Generator[Step, Any, Outcome]:
    """The write succeeded and the ledger could not say so: an honest doubt, not a success. The host gets the value."""
    text = refusal_text((lost,), tool=entered.plan.contract.name)
    outcome = _bad(entered, ran, status="in_doubt", findings=(lost,), effect="done", text=text)
    outcome = msgspec.structs.replace(outcome, value=checked.value)
    yield Emit(event.tool_result(entered.judged, scene, outcome, ran.seconds, None))
    return outcome


def _bytes(checked: Checked) -> bytes:
    return dump(checked.value) if checked.canonical is None else checked.canonical
