"""Before admission: resolve the name, read the text, check and correct the arguments, apply the rules.

In: a tool call and its environment.
Out: a prepared call: its effective arguments, or why it is refused.
Never: user code without its deadline. Correctors and validators run in a step of their own.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, cast

import msgspec

from pokayoke.core.call import Decision, Finding, ToolCall, Verdict
from pokayoke.core.check.findings import required_fields_sentence
from pokayoke.core.contract.contract import Contract
from pokayoke.core.correct.correct import correct_arguments
from pokayoke.core.correct.result import CorrectionResult
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.plan import CallPlan
from pokayoke.core.flow.states import PreparedCall
from pokayoke.core.flow.steps import Raised, Reaction, Returned, RunUserCode, Step
from pokayoke.core.gate.confidence import call_confidence
from pokayoke.core.gate.rules import RuleInput, access_finding, first_finding, stop_reason_for
from pokayoke.core.host_input import as_call
from pokayoke.core.intake import (
    REFUSALS,
    Reading,
    copy_arguments,
    copy_arguments_fast,
    is_cut,
    read_arguments,
    reading_finding,
    refused_reading,
)
from pokayoke.core.json.canonical import canonical_bytes, sha256_hex
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.strict import parse
from pokayoke.core.state.run_state import RunState, block_finding, repeated_finding


def prepare_call(
    call: ToolCall, env: CallEnvironment, read: Reading | None = None
) -> Generator[Step, Any, PreparedCall]:
    """Return all that can be decided over a call before admission.

    Args:
        call: the call.
        env: its environment.
        read: its text as `prepare_call_fast` read it, if it did.

    Raises:
        UsageError: `call` is no `ToolCall`.
    """
    if not isinstance(cast("object", call), ToolCall):
        as_call(call)  # raises
    snapshot, monitors = env.snapshot, env.snapshot.policy.mode == "monitor"
    plan = snapshot.find_plan(call.name, lambda: [one.name for one in snapshot.offered_tools(env.principal)])
    if is_cut(call.stop_reason):
        known = None if isinstance(plan, Finding) else plan
        return _refuse_unreadable(call, known, read_arguments("", stop_reason=call.stop_reason))
    if isinstance(plan, Finding) and call.unread is not None and not call.name:
        return _refuse_unreadable(call, None, _read_unread_call(call, call.unread, {}))
    if isinstance(plan, Finding):
        return PreparedCall(call, refusal=plan, room="catalogue", args_hash=_raw_signature(call))
    denied = access_finding(plan.access, plan.contract, env.principal)
    reading = read or _read_call_arguments(call, plan)
    if denied is not None and not monitors:
        return _deny_call(call, plan, reading, denied)
    value = reading.value
    effect = plan.contract.effect
    if value is None or (reading.grade == "edited" and effect != "read"):
        return _refuse_unreadable(call, plan, reading)
    correction = yield from _run_correction(plan, value, reading)
    prepared = _build_prepared_call(call, plan, reading, correction)
    if prepared.refusal is None:
        prepared = _apply_rules(prepared, plan, env)
    if denied is not None:  # monitor mode names the reason that would have come first
        prepared = msgspec.structs.replace(prepared, refusal=denied, more_findings=())
    return _apply_monitor_mode(prepared) if monitors else prepared


def prepare_call_fast(call: ToolCall, env: CallEnvironment) -> PreparedCall | Reading | None:
    """Prepare the usual call: strict text that fits its schema, and no rule that objects.

    The result equals that of `prepare_call`. Returns None, or the reading of strict text, where
    `prepare_call` has to decide. Most calls are usual, and for small ones the rooms are most of the cost.
    """
    try:
        plan, given = env.snapshot.simple.get(call.name), call.arguments
    except AttributeError:
        return None  # it is no ToolCall
    cut = call.stop_reason is not None and is_cut(call.stop_reason)
    if cut or plan is None or call.confidence is not None or call.unread is not None:
        return None
    contract, limits = plan.contract, plan.intake
    value: dict[str, Any]
    try:
        if type(given) is dict:
            value, dumped = copy_arguments_fast(given, limits.max_chars, limits.max_depth)
        elif type(given) is str and len(given) <= limits.max_chars:
            value, dumped = parse(given, max_depth=limits.max_depth, sort=True, equal_duplicates=False)
        else:
            return None
        if value.__class__ is not dict:
            return None
        if not contract.input.is_valid(value) or contract.checks.may_need_change(value, dumped):
            return Reading(grade="exact", value=value, canonical=dumped)
    except Exception:  # noqa: BLE001 - the rooms find and name the problem
        return None
    args_hash = sha256_hex(
        dumped if contract.effect == "read" else canonical_bytes(value, dumped)
    )  # as `_arguments_hash`, without a call
    repeats = env.view.rounds.repeats
    if (
        repeats.counts
        and repeats.failure_count(contract.name, args_hash) >= env.snapshot.policy.loop.identical_failures
    ):
        return None
    rules = plan.rules_if_certain
    if rules and first_finding(rules, RuleInput(contract, value, 1.0, env.principal)) is not None:
        return None
    return PreparedCall(call, plan, value, args_hash, dumped, is_sole_owner=True)


def _read_call_arguments(call: ToolCall, plan: CallPlan) -> Reading:
    limits = {"max_chars": plan.intake.max_chars, "max_depth": plan.intake.max_depth}
    if call.unread is not None:
        return _read_unread_call(call, call.unread, limits)
    return read_arguments(call.arguments, schema=plan.contract.input, stop_reason=call.stop_reason, **limits)


def _read_unread_call(call: ToolCall, unread: str, limits: dict[str, int]) -> Reading:
    """Return the reading that `read_calls` gave a call in a text; the text around it is not known here."""
    reason, _, about = unread.partition(" ")
    is_edited = REFUSALS.get(reason, ("lossy",))[0] == "edited"
    if not is_edited or not isinstance(call.arguments, dict):  # an edit without its arguments is a refusal
        return refused_reading("not_read" if is_edited or reason not in REFUSALS else reason, about=about)
    reading = copy_arguments(call.arguments, **limits)
    return reading if reading.value is None else msgspec.structs.replace(reading, grade="edited", reason=reason)


def _deny_call(call: ToolCall, plan: CallPlan, reading: Reading, refusal: Finding) -> PreparedCall:
    """Refuse a caller who may not call the tool. The arguments are recorded and not judged."""
    value = reading.value
    dumped = None if value is None else reading.canonical or dump_compact(value, sort=True)
    return PreparedCall(
        call,
        plan,
        arguments=value,
        args_hash=_raw_signature(call)
        if value is None or dumped is None
        else _arguments_hash(plan.contract, value, dumped),
        dumped=dumped,
        refusal=refusal,
        repairs=reading.repairs,
    )


def _refuse_unreadable(call: ToolCall, plan: CallPlan | None, reading: Reading) -> PreparedCall:
    effect = plan.contract.effect if plan else "write"
    tool = plan.contract.name if plan else call.name
    refusal = reading_finding(reading, effect=effect, tool=tool)
    if plan is not None and refusal.code in _NO_ARGUMENT_CODES:
        hint = f"{refusal.hint} {required_fields_sentence(plan.contract.input, budget=_MAX_FIELDS_CHARS)}"
        refusal = msgspec.structs.replace(refusal, hint=hint.strip())
    return PreparedCall(
        call,
        plan,
        args_hash=_raw_signature(call),
        refusal=refusal,
        room="intake",
        repairs=reading.repairs,
    )


_NO_ARGUMENT_CODES = frozenset(("empty_arguments", "no_object", "not_an_object", "positional_arguments"))
"""Refusals of texts that name no argument: the model may not know which there are."""
_MAX_FIELDS_CHARS = 240  # characters: the whole hint has to stay under 600


def _run_correction(plan: CallPlan, value: dict[str, Any], reading: Reading) -> Generator[Step, Any, CorrectionResult]:
    contract = plan.contract
    if not contract.input_hooks:
        return correct_arguments(value, contract, kinds=plan.kinds, canonical=reading.canonical)
    reaction: Reaction = yield RunUserCode(
        lambda: correct_arguments(value, contract, kinds=plan.kinds, canonical=reading.canonical), plan.timeout
    )
    if isinstance(reaction, Returned):
        return cast("CorrectionResult", reaction.value)
    why = type(reaction.error).__name__ if isinstance(reaction, Raised) else f"no answer in {plan.timeout:g} s"
    finding = Finding(
        code="correction_cut",
        blame="policy",
        message=f"a corrector or validator of {contract.name} did not finish: {why}",
        hint=f"{contract.name} could not be checked because of a technical problem. Tell the user.",
    )
    return CorrectionResult(value=value, corrections=(), findings=(finding,), changed=False)


def _build_prepared_call(
    call: ToolCall, plan: CallPlan, reading: Reading, correction: CorrectionResult
) -> PreparedCall:
    dumped = reading.canonical
    if correction.changed or dumped is None:
        dumped = dump_compact(correction.value, sort=True)
    findings = correction.findings
    certain = not reading.repairs and not correction.corrections and call.confidence is None
    return PreparedCall(
        call,
        plan,
        arguments=correction.value,
        args_hash=_arguments_hash(plan.contract, correction.value, dumped),
        dumped=dumped,
        refusal=findings[0] if findings else None,
        room="check" if findings else "gate",
        corrections=correction.corrections,
        repairs=reading.repairs,
        confidence=1.0 if certain else call_confidence(reading.repairs, correction.corrections, call.confidence),
        more_findings=findings[1:],
        # Corrections, findings and user code may hold parts of the arguments.
        is_sole_owner=not (correction.corrections or findings or plan.contract.input_hooks),
    )


def _apply_rules(prepared: PreparedCall, plan: CallPlan, env: CallEnvironment) -> PreparedCall:
    failed = env.view.rounds.repeats.failure_count(prepared.tool, prepared.args_hash)
    if failed >= env.snapshot.policy.loop.identical_failures:
        return msgspec.structs.replace(prepared, refusal=repeated_finding(prepared.tool, failed))
    corrected = tuple([item.at for item in prepared.corrections])
    asked = RuleInput(plan.contract, prepared.arguments or {}, prepared.confidence, env.principal, corrected)
    objection = first_finding(plan.rules, asked)
    return prepared if objection is None else msgspec.structs.replace(prepared, refusal=objection)


def _apply_monitor_mode(prepared: PreparedCall) -> PreparedCall:
    """In monitor mode, turn the refusal of a readable call into a remark."""
    if prepared.refusal is None:
        return prepared
    remark = Finding(
        code="monitored",
        at=prepared.refusal.at,
        blame=prepared.refusal.blame,
        message=f"would have been refused: {prepared.refusal.message}",
        data={"code": prepared.refusal.code},
    )
    return msgspec.structs.replace(
        prepared, refusal=None, room="gate", remarks=(remark, *prepared.findings), more_findings=()
    )


def _arguments_hash(contract: Contract, arguments: dict[str, Any], dumped: bytes) -> str:
    """Return the digest of the arguments. Only a write needs one hash for 1 and 1.0; reads are never ledgered."""
    return sha256_hex(dumped if contract.effect == "read" else canonical_bytes(arguments, dumped))


def _raw_signature(call: ToolCall) -> str:
    """Return a digest that is equal for equal unreadable calls."""
    raw = call.arguments
    if isinstance(raw, str):
        return sha256_hex(raw.encode("utf-8", "surrogatepass"))
    return sha256_hex(raw if isinstance(raw, bytes) else type(raw).__name__.encode())


def verdict_under(prepared: PreparedCall, state: RunState) -> Verdict:
    """Return the verdict over a prepared call in a run with this state."""
    if prepared.refusal is not None or prepared.plan is None:
        return verdict_of(prepared, "refuse")
    contract = prepared.plan.contract
    halted = block_finding(state, contract.effect, contract.sources)
    if halted is not None:
        return verdict_of(prepared, "stop" if halted.code == "run_stopped" else "refuse", halted)
    asks = prepared.plan.approval_rule.count_approvers(prepared.arguments or {}) > 0
    decision: Decision = "ask" if asks else "allow"
    if (sources := prepared.sources) is not None and sources.decision != "allow":
        refused = sources.decision == "refuse"
        return verdict_of(prepared, sources.decision, sources.finding(contract.name) if refused else None)
    return verdict_of(prepared, decision)


def verdict_of(prepared: PreparedCall, decision: Decision, refusal: Finding | None = None) -> Verdict:
    """Return the public form of a decision over a prepared call."""
    refusal = prepared.refusal or refusal
    contract = prepared.plan.contract.id if prepared.plan else None
    findings = prepared.findings if prepared.refusal or refusal is None else (refusal, *prepared.findings)
    return Verdict(
        decision=decision,
        tool=prepared.tool,
        contract=contract,
        arguments=prepared.arguments,
        findings=findings,
        corrections=prepared.corrections,
        repairs=prepared.repairs,
        confidence=prepared.confidence,
        stop_reason=stop_reason_for(refusal) if refusal else None,
        sources=() if prepared.sources is None else prepared.sources.source_rows,
    )
