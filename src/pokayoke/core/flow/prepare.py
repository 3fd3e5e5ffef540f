"""Before execution: resolve the name, read the text, check and correct the arguments, apply the rules.

What enters is a tool call and the scene it plays in; what leaves is what was decided and why.
Nothing runs here but users' own correctors and validators, and those in a step of their own: it is cut where the
contract declares a deadline.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol, cast

import msgspec

from pokayoke.core.call import Correction, Decision, Finding, ToolCall, Verdict
from pokayoke.core.check.findings import required_fields_sentence
from pokayoke.core.check.placeholders import may_hold_placeholder
from pokayoke.core.contract.contract import Contract
from pokayoke.core.correct.correct import CorrectionResult, call_confidence, correct_arguments
from pokayoke.core.flow.plan import CallPlan, Snapshot
from pokayoke.core.flow.steps import Raised, Reaction, Returned, RunUserCode, Step
from pokayoke.core.gate.rules import Principal, RuleInput, access_finding, first_finding, stop_reason_for
from pokayoke.core.host_input import not_a_call_error
from pokayoke.core.intake import (
    REFUSALS,
    Reading,
    copy_arguments_fast,
    is_cut,
    read_arguments,
    reading_finding,
    refused_reading,
)
from pokayoke.core.json.canonical import canonical_bytes, sha256_hex
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.strict import parse
from pokayoke.core.output.last_known_good import LastKnownGood
from pokayoke.core.state.loop_guard import TurnHistory
from pokayoke.core.state.run_state import RunState, block_finding, repeated_finding

CODES: dict[str, str] = {
    "correction_cut": "a declared corrector or validator did not come back in time",
    "monitored": "monitor mode: the call was let through although it would have been refused",
}


class RunView(Protocol):
    """What a call may see of its run. Decisions that must not be raced are made in steps."""

    @property
    def state(self) -> RunState:
        """The run's state at this moment."""
        ...

    @property
    def rounds(self) -> TurnHistory:
        """What the run's turn has seen."""
        ...


class OutputMeter(Protocol):
    """Counts valid outputs; it only adds to a list, and what is counted is written elsewhere."""

    def count_valid(self, tool: str, at: float, read: bool, /) -> None:
        """Note an output that kept its contract: the tool, when its call began, and whether it only reads."""
        ...


class ClaimIdentity(Protocol):
    """Who claims a write: what a read never asks."""

    def scope(self, contract: Contract) -> tuple[str, str] | None:
        """Kind and id of the ledger scope; None if the host gave none and the store needs one."""
        ...

    def claim_id(self, step: int) -> str:
        """An id unique to the call of this number, whatever process makes it."""
        ...


class CallEnvironment(msgspec.Struct, frozen=True):
    """Where and when a call plays.

    Attributes:
        snapshot: the contracts and the policy in force.
        view: the run.
        run_id: the run's id.
        claimant: who claims its effect, if it has one.
        tenant: whose data it is, if there are several.
        principal: on whose behalf the run acts.
        step: number of this call in its run.
        now: wall-clock second at which the call began.
        last_good: valid read outputs of the recent past.
        asks: True if a callback can put questions to a person at once.
        meter: counts outputs for the kill switch.
    """

    snapshot: Snapshot
    view: RunView
    run_id: str
    claimant: ClaimIdentity
    tenant: str | None
    principal: Principal | None
    step: int
    now: float
    last_good: LastKnownGood
    asks: bool
    meter: OutputMeter


class PreparedCall(msgspec.Struct, frozen=True, gc=False):
    """What is known before the call may run.

    Attributes:
        call: the call.
        plan: how its contract is treated; None if no contract was found.
        arguments: the effective arguments; None if they could not be read.
        args_hash: digest of the canonical arguments, or of the raw text if it could not be read.
        dumped: the arguments as compact JSON bytes, or None.
        refusal: why it must not run, or None.
        room: the room that refused, or "gate" if none did.
        notes: findings that stop nothing.
        corrections: changes made to the arguments.
        repairs: names of repairs made to the text.
        confidence: 0 to 1.
        also: further findings beside the refusal (every schema error).
        own: True if nobody else holds the arguments, so that the tool may have them without a copy.
    """

    call: ToolCall
    plan: CallPlan | None = None
    arguments: dict[str, Any] | None = None
    args_hash: str = ""
    dumped: bytes | None = None
    refusal: Finding | None = None
    room: str = "gate"
    notes: tuple[Finding, ...] = ()
    corrections: tuple[Correction, ...] = ()
    repairs: tuple[str, ...] = ()
    confidence: float = 1.0
    also: tuple[Finding, ...] = ()
    own: bool = False

    def original_arguments(self) -> dict[str, Any]:
        """The arguments as they were judged, whatever a tool has made of them since."""
        arguments: dict[str, Any] = msgspec.json.decode(self.dumped or b"{}")
        return arguments

    @property
    def tool(self) -> str:
        """The resolved tool name, or the one the model wrote."""
        return self.plan.contract.name if self.plan else self.call.name

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything observed, the refusal first."""
        first = () if self.refusal is None else (self.refusal,)
        return (*first, *self.also, *self.notes)


def prepare_call(
    call: ToolCall, scene: CallEnvironment, read: Reading | None = None
) -> Generator[Step, Any, PreparedCall]:
    """Decide over a call as far as that is possible before admission. `read` is its text as it was read at a glance."""
    if not isinstance(cast("object", call), ToolCall):
        raise not_a_call_error(call)
    snapshot, monitors = scene.snapshot, scene.snapshot.policy.mode == "monitor"
    plan = snapshot.find_plan(call.name, lambda: [one.name for one in snapshot.offered_tools(scene.principal)])
    if is_cut(call.stop_reason):
        known = None if isinstance(plan, Finding) else plan
        return _refuse_unreadable(call, known, read_arguments("", stop_reason=call.stop_reason))
    if isinstance(plan, Finding):
        return PreparedCall(call, refusal=plan, room="catalogue", args_hash=_raw_signature(call))
    denied = access_finding(plan.access, plan.contract, scene.principal)
    reading = read or _read_call_arguments(call, plan)
    if denied is not None and not monitors:
        return _deny_call(call, plan, reading, denied)
    value = reading.value
    effect = plan.contract.effect
    if value is None or (reading.grade == "edited" and effect != "read"):
        return _refuse_unreadable(call, plan, reading)
    prepared = yield from _run_correction(plan, value, reading)
    judged = _build_prepared_call(call, plan, reading, prepared)
    if judged.refusal is None:
        judged = _apply_rules(judged, plan, scene)
    if denied is not None:  # monitor mode names the reason that would have come first
        judged = msgspec.structs.replace(judged, refusal=denied, also=())
    return _apply_monitor_mode(judged) if monitors else judged


def prepare_call_fast(call: ToolCall, scene: CallEnvironment) -> PreparedCall | Reading | None:
    """Decide over the usual call in one look: strict text that fits its schema, and no rule that objects.

    Says what `prepare_call` says. Where there is anything to say, it says nothing, and hands on what it has read
    if that was strict text. Most calls are of the usual kind, and for small ones the way through the rooms is
    most of what a call costs.
    """
    try:
        plan, given = scene.snapshot.simple.get(call.name), call.arguments
    except AttributeError:
        return None  # it is no call at all
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
        if not contract.input.is_valid(value) or may_hold_placeholder(dumped):
            return Reading(grade="exact", value=value, canonical=dumped)
    except Exception:  # noqa: BLE001 - whatever it is, the rooms have a name for it
        return None
    args_hash = sha256_hex(
        dumped if contract.effect == "read" else canonical_bytes(value, dumped)
    )  # as `_arguments_hash`, without a call
    repeats = scene.view.rounds.repeats
    if (
        repeats.counts
        and repeats.failure_count(contract.name, args_hash) >= scene.snapshot.policy.loop.identical_failures
    ):
        return None
    rules = plan.rules_if_certain
    if rules and first_finding(rules, RuleInput(contract, value, 1.0, scene.principal)) is not None:
        return None
    return PreparedCall(call, plan, value, args_hash, dumped, own=True)


def _read_call_arguments(call: ToolCall, plan: CallPlan) -> Reading:
    if call.unread is not None:  # what stands around a call in its text cannot be seen here
        known = REFUSALS.get(call.unread, ("edited",))[0] != "edited"  # an edit without its text is a refusal
        return refused_reading(call.unread if known else "not_read")
    limits = plan.intake
    return read_arguments(
        call.arguments,
        schema=plan.contract.input,
        stop_reason=call.stop_reason,
        max_chars=limits.max_chars,
        max_depth=limits.max_depth,
    )


def _deny_call(call: ToolCall, plan: CallPlan, reading: Reading, refusal: Finding) -> PreparedCall:
    """Refuse who may not call the tool. What was sent is written down, and nothing is said about it."""
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
        hint = f"{refusal.hint} {required_fields_sentence(plan.contract.input, room=_MAX_FIELDS_CHARS)}"
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
"""Refusals of texts in which no argument is named: the model may not know which there are."""
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


def _build_prepared_call(call: ToolCall, plan: CallPlan, reading: Reading, prepared: CorrectionResult) -> PreparedCall:
    dumped = reading.canonical
    if prepared.changed or dumped is None:
        dumped = dump_compact(prepared.value, sort=True)
    findings = prepared.findings
    certain = not reading.repairs and not prepared.corrections and call.confidence is None
    return PreparedCall(
        call,
        plan,
        arguments=prepared.value,
        args_hash=_arguments_hash(plan.contract, prepared.value, dumped),
        dumped=dumped,
        refusal=findings[0] if findings else None,
        room="check" if findings else "gate",
        corrections=prepared.corrections,
        repairs=reading.repairs,
        confidence=1.0 if certain else call_confidence(reading.repairs, prepared.corrections, call.confidence),
        also=findings[1:],
        # Corrections and findings may hold parts of the arguments, and so may the code of a user.
        own=not (prepared.corrections or findings or plan.contract.input_hooks),
    )


def _apply_rules(judged: PreparedCall, plan: CallPlan, scene: CallEnvironment) -> PreparedCall:
    failed = scene.view.rounds.repeats.failure_count(judged.tool, judged.args_hash)
    if failed >= scene.snapshot.policy.loop.identical_failures:
        return msgspec.structs.replace(judged, refusal=repeated_finding(judged.tool, failed))
    corrected = tuple([item.at for item in judged.corrections])
    asked = RuleInput(plan.contract, judged.arguments or {}, judged.confidence, scene.principal, corrected)
    objection = first_finding(plan.rules, asked)
    return judged if objection is None else msgspec.structs.replace(judged, refusal=objection)


def _apply_monitor_mode(judged: PreparedCall) -> PreparedCall:
    """In monitor mode a refusal of a readable call becomes a note, and nothing is changed."""
    if judged.refusal is None:
        return judged
    note = Finding(
        code="monitored",
        at=judged.refusal.at,
        blame=judged.refusal.blame,
        message=f"would have been refused: {judged.refusal.message}",
        data={"code": judged.refusal.code},
    )
    return msgspec.structs.replace(judged, refusal=None, room="gate", notes=(note, *judged.findings), also=())


def identity_hash(judged: PreparedCall, contract: Contract) -> str:
    """Digest of the identity arguments: what makes two calls of a tool mean the same thing."""
    if contract.identity is None:
        return effect_hash(judged, contract)
    arguments = _with_defaults(judged, contract)
    return sha256_hex(canonical_bytes({name: arguments.get(name) for name in contract.identity}))


def effect_hash(judged: PreparedCall, contract: Contract) -> str:
    """Digest of what makes two writes the same call: all arguments but the volatile ones."""
    if not (contract.volatile or contract.defaults):
        return judged.args_hash
    arguments = _with_defaults(judged, contract)
    return sha256_hex(
        canonical_bytes({name: value for name, value in arguments.items() if name not in contract.volatile})
    )


def _with_defaults(judged: PreparedCall, contract: Contract) -> dict[str, Any]:
    """The arguments with the defaults of those that were left out: who spells one out asks for no other effect."""
    return {**contract.defaults, **judged.original_arguments()}


def _arguments_hash(contract: Contract, arguments: dict[str, Any], dumped: bytes) -> str:
    """Digest of the arguments. Only an effect needs one hash for 1 and 1.0; reads are never ledgered."""
    return sha256_hex(dumped if contract.effect == "read" else canonical_bytes(arguments, dumped))


def _raw_signature(call: ToolCall) -> str:
    """A digest that tells equal unreadable calls apart from others."""
    raw = call.arguments
    if isinstance(raw, str):
        return sha256_hex(raw.encode("utf-8", "surrogatepass"))
    return sha256_hex(raw if isinstance(raw, bytes) else type(raw).__name__.encode())


def verdict_under(judged: PreparedCall, state: RunState) -> Verdict:
    """Say what would be decided over a judged call in a run that is in this state."""
    if judged.refusal is not None or judged.plan is None:
        return verdict_of(judged, "refuse")
    contract = judged.plan.contract
    halted = block_finding(state, contract.effect, contract.sources)
    if halted is not None:
        return verdict_of(judged, "stop" if halted.code == "run_stopped" else "refuse", halted)
    return verdict_of(judged, "ask" if judged.plan.asks else "allow")


def verdict_of(judged: PreparedCall, decision: Decision, refusal: Finding | None = None) -> Verdict:
    """Put what was decided into the public form."""
    refusal = judged.refusal or refusal
    contract = judged.plan.contract.id if judged.plan else None
    findings = judged.findings if judged.refusal or refusal is None else (refusal, *judged.findings)
    return Verdict(
        decision=decision,
        tool=judged.tool,
        contract=contract,
        arguments=judged.arguments,
        findings=findings,
        corrections=judged.corrections,
        repairs=judged.repairs,
        confidence=judged.confidence,
        stop_reason=stop_reason_for(refusal) if refusal else None,
    )
