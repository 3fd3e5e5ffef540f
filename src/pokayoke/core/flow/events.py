"""Trace events: one when a call is decided, one when it ends, one when something stops.

In: a call, its environment and what was decided.
Out: `{"run_id","step","event","tool","ok","error","reason"}` and the fields that explain it.
Never: a redacted payload. Payloads are JSON bytes here; the trace redacts them before it writes.
"""

from __future__ import annotations

from typing import Any

from pokayoke.core.call import ERRORS, SUCCESSFUL, Decision, Finding, Outcome
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.states import PreparedCall
from pokayoke.core.json.dump import dump_foreign
from pokayoke.core.json.serialise import undumpable_reason
from pokayoke.core.ledger.records import Record
from pokayoke.core.state.run_state import RunState

_MAX_RAW_BYTES = 800_000
"""Longest dict that is kept in its original form, in bytes of JSON."""

Event = dict[str, Any]


def tool_call_event(
    prepared: PreparedCall, env: CallEnvironment, decision: Decision, findings: tuple[Finding, ...], room: str
) -> Event:
    """Return the event of a decided call. `room` is the room that decided."""
    call, plan = prepared.call, prepared.plan
    event: Event = {
        "ts": env.now,
        "run_id": env.run_id,
        "step": env.step,
        "event": "tool_call",
        "tool": plan.contract.name if plan else call.name,
        "ok": decision in ("allow", "replay"),
        "call_id": call.id,
        "room": room,
        "decision": decision,
        "args_hash": prepared.args_hash,
        "confidence": prepared.confidence,
    }
    if plan is not None:
        event["contract"] = plan.contract.id
        if plan.contract.redact:
            event["marks"] = plan.contract.redact
    _add_arguments(event, prepared)
    if prepared.sources is not None:
        event["untrusted"] = prepared.sources.as_event()
    if findings:
        event["reason"] = reason_of(findings[0])
        event["findings"] = findings
    return event


def _add_arguments(event: Event, prepared: PreparedCall) -> None:
    """Add the arguments, and the original text where it differs from what the tool gets."""
    if prepared.dumped is not None:
        event["arguments"] = prepared.dumped
        if not (prepared.repairs or prepared.corrections):
            return
    event["raw"] = _raw_arguments(prepared)
    if prepared.repairs:
        event["repairs"] = prepared.repairs
    if prepared.corrections:
        event["corrections"] = prepared.corrections


def _raw_arguments(prepared: PreparedCall) -> str | bytes | None:
    """Return the original arguments as text; None for a dict that cannot be dumped or is too long."""
    raw = prepared.call.arguments
    if isinstance(raw, (str, bytes)):
        return raw
    try:
        return dump_foreign(raw) if prepared.corrections or undumpable_reason(raw, _MAX_RAW_BYTES) is None else None
    except (TypeError, ValueError, RuntimeError):  # the dict is the host's, who may have changed it meanwhile
        return None


def tool_result_event(
    prepared: PreparedCall,
    env: CallEnvironment,
    outcome: Outcome,
    seconds: float,
    result: bytes | None,
    *,
    wire: bool = False,
) -> Event:
    """Return the event of a call whose tool was started or that the ledger answered.

    A write already has an event from before its tool started. A read has only this one, so it also holds
    the arguments and the decision. `wire` is True if the output went through the transport rooms.
    """
    assert prepared.plan is not None, "what ran has a contract"
    contract = prepared.plan.contract
    ok = outcome.status in SUCCESSFUL
    event: Event = {
        "ts": env.now,
        "run_id": env.run_id,
        "step": env.step,
        "event": "tool_result",
        "tool": outcome.tool,
        "ok": ok,
        "call_id": outcome.call_id,
        "status": outcome.status,
        "contract": outcome.contract,
        "args_hash": prepared.args_hash,
        "us": round(seconds * 1e6),
        "attempts": outcome.attempts,
        "effect": outcome.effect,
    }
    if not ok:
        event = _with_error(event, outcome)
    if outcome.key is not None:
        event["key"] = outcome.key
    if outcome.repeated:
        event["repeated"] = True
    if wire:
        event["wire"] = True
    if outcome.findings:
        event["findings"] = outcome.findings
    if result is not None:
        event["result"] = result
    if contract.effect == "read":
        event["decision"] = "allow"
        event["confidence"] = prepared.confidence
        if prepared.repairs or prepared.corrections or prepared.dumped is None:
            _add_arguments(event, prepared)
        else:
            event["arguments"] = prepared.dumped
    if contract.redact:
        event["marks"] = contract.redact
    return event


def _with_error(event: Event, outcome: Outcome) -> Event:
    """The event with what went wrong where a reader looks for it, behind `ok`."""
    reason = reason_of(outcome.findings[0]) if outcome.findings else outcome.message
    begin = {name: event.pop(name) for name in ("ts", "run_id", "step", "event", "tool", "ok")}
    return {**begin, "error": ERRORS[outcome.status].__name__, "reason": reason, **event}


def late_effect_event(prepared: PreparedCall, env: CallEnvironment, record: Record) -> Event:
    """Return the event of an execution that lost its claim: the ledger answers with another one's result."""
    return {
        "ts": env.now,
        "run_id": env.run_id,
        "step": env.step,
        "event": "late_effect",
        "tool": record.tool,
        "ok": False,
        "call_id": prepared.call.id,
        "key": record.key,
        "reason": f"the ledger says {record.state}, attempt {record.attempt}",
    }


def stop_event(state: RunState, now: float, step: int, reason: str, safe_mode: str | None) -> Event:
    """Return the event that writes, or the whole run, are stopped from here on."""
    event: Event = {"ts": now, "run_id": state.run_id, "step": step, "event": "stop", "ok": False, "reason": reason}
    event["mode"] = state.effective_mode
    if safe_mode is not None:
        event["safe_mode"] = safe_mode
    return event


def reason_of(finding: Finding) -> str:
    """Return the reason as the trace writes it: the room's own words, or code and place."""
    given = finding.data.get("reason")
    if isinstance(given, str):
        return given
    return f"{finding.code} at {finding.at}" if finding.at else finding.code
