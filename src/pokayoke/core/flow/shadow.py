"""Shadow comparison: two versions of a tool judge the same call and the same output.

In: a call, its environment and what the tool returned.
Out: a trace event that says whether the versions agree.
Never: a decision, or a text for the model. Both versions judge in an empty run, so that mode, limits,
approvals and the ledger make no difference.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from pokayoke.core.call import Finding, ToolCall
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.plan import CallPlan, Snapshot
from pokayoke.core.flow.prepare import prepare_call
from pokayoke.core.flow.states import PreparedCall
from pokayoke.core.flow.steps import Returned, RunUserCode
from pokayoke.core.output.validate import OutputResult, check_output
from pokayoke.core.state.loop_guard import TurnHistory
from pokayoke.core.state.run_state import RunState


class VersionVerdict(msgspec.Struct, frozen=True):
    """What one version says.

    Attributes:
        call: `allow`, or the code and place of why not.
        arguments: what the tool would receive, as JSON; None if the call is refused.
        output: `valid`, `failed` (the tool says so), the code and place of what is wrong, or `none`.
        value: a valid output as JSON, or None.
        findings: what is wrong.
    """

    call: str
    arguments: bytes | None = None
    output: str = "none"
    value: bytes | None = None
    findings: tuple[Finding, ...] = ()


class _EmptyRunView:
    """The view of a run in which nothing has happened yet."""

    __slots__ = ("rounds", "state")
    effects = 0

    def __init__(self) -> None:
        self.state, self.rounds = RunState(""), TurnHistory()


def shadow_event(
    call: ToolCall, env: CallEnvironment, stable: CallPlan, beside: Snapshot, raw: Any | UnsetType
) -> dict[str, Any]:
    """Let both versions judge, and return the event that says whether they agree.

    Args:
        call: the call, by the tool's own name.
        env: its environment.
        stable: how the version that decided is treated.
        beside: a snapshot of the candidate only.
        raw: what the tool returned; UNSET if it did not run, or raised.
    """
    (candidate,) = beside.plans.values()
    before = judge_version(call, env, stable, env.snapshot, raw)
    after = judge_version(call, env, candidate, beside, raw)
    differs = list_differences(before, after)
    event: dict[str, Any] = {
        "ts": env.now,
        "run_id": env.run_id,
        "step": env.step,
        "event": "shadow",
        "tool": stable.contract.name,
        "ok": not differs,
        "call_id": call.id,
        "contract": stable.contract.id,
        "candidate": candidate.contract.id,
    }
    if not differs:
        return event
    event["differs"] = differs
    event["reason"] = "; ".join(_describe_difference(what, before, after) for what in differs)
    event["findings"] = after.findings or before.findings
    marks = (*stable.contract.redact, *candidate.contract.redact)
    return {**event, "marks": marks} if marks else event


def list_differences(before: VersionVerdict, after: VersionVerdict) -> tuple[str, ...]:
    """Return in what two versions differ: `call`, `arguments`, `output`, `value`."""
    found: list[str] = []
    if before.call != after.call:
        found.append("call")
    elif before.arguments != after.arguments:
        found.append("arguments")
    if before.call == after.call == ALLOW:
        if before.output != after.output:
            found.append("output")
        elif before.value != after.value:
            found.append("value")
    return tuple(found)


ALLOW: Final = "allow"


def judge_version(
    call: ToolCall, env: CallEnvironment, plan: CallPlan, force: Snapshot, raw: Any | UnsetType
) -> VersionVerdict:
    """Return what one version says about a call and, if the tool ran, about its output."""
    prepared = _prepare_call_now(call, msgspec.structs.replace(env, snapshot=force, view=_EmptyRunView()))
    refusal = prepared.refusal or next((note for note in prepared.remarks if note.code == "monitored"), None)
    if refusal is not None:
        return VersionVerdict(_code_and_place(refusal), findings=prepared.findings)
    if raw is UNSET:
        return VersionVerdict(ALLOW, prepared.dumped)
    checked = check_output(raw, plan.contract, arguments=prepared.arguments or {}, policy=plan.output)
    value = checked.canonical if checked.ok else None
    return VersionVerdict(ALLOW, prepared.dumped, _output_verdict(checked), value, checked.findings)


def _prepare_call_now(call: ToolCall, env: CallEnvironment) -> PreparedCall:
    """Prepare a call here. Correctors and validators run without a deadline: no caller waits for a shadow."""
    steps = prepare_call(call, env)
    try:
        step = next(steps)
        while True:
            assert isinstance(step, RunUserCode), "judging asks for nothing else"
            step = steps.send(Returned(step.function()))
    except StopIteration as end:
        prepared: PreparedCall = end.value
        return prepared


def _output_verdict(checked: OutputResult) -> str:
    if checked.failure is not None:
        return "failed"
    return _code_and_place(checked.findings[0]) if checked.findings else "valid"


def _code_and_place(finding: Finding) -> str:
    code = finding.data["code"] if finding.code == "monitored" else finding.code
    return f"{code} at {finding.at}" if finding.at else str(code)


def _describe_difference(what: str, before: VersionVerdict, after: VersionVerdict) -> str:
    if what in ("arguments", "value"):
        return f"{what}: not the same"
    one, other = (before.call, after.call) if what == "call" else (before.output, after.output)
    return f"{what}: {one} -> {other}"
