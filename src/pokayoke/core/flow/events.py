"""Trace events: one when a call was decided, one when it ended, one when something stopped.

The shape is `{"run_id","step","event","tool","ok","error","reason"}` plus what explains it.
Payloads are handed over as JSON bytes; the trace redacts them before anything is written.
"""

from __future__ import annotations

from typing import Any

from pokayoke.core.call import ERRORS, SUCCESSFUL, Decision, Finding, Outcome
from pokayoke.core.flow.prepare import CallEnvironment, PreparedCall
from pokayoke.core.json.dump import dump_foreign
from pokayoke.core.json.serialise import undumpable_reason
from pokayoke.core.ledger.transitions import Record
from pokayoke.core.state.run_state import RunState

_MAX_RAW_BYTES = 800_000
"""Longest dict that is written down as it came, in bytes of JSON."""

Event = dict[str, Any]


def tool_call_event(
    judged: PreparedCall, scene: CallEnvironment, decision: Decision, findings: tuple[Finding, ...], room: str
) -> Event:
    """The event of a decided call. `room` is the room that decided."""
    call, plan = judged.call, judged.plan
    event: Event = {
        "ts": scene.now,
        "run_id": scene.run_id,
        "step": scene.step,
        "event": "tool_call",
        "tool": plan.contract.name if plan else call.name,
        "ok": decision in ("allow", "replay"),
        "call_id": call.id,
        "room": room,
        "decision": decision,
        "args_hash": judged.args_hash,
        "confidence": judged.confidence,
    }
    if plan is not None:
        event["contract"] = plan.contract.id
        if plan.contract.redact:
            event["marks"] = plan.contract.redact
    _add_arguments(event, judged)
    if findings:
        event["reason"] = reason_of(findings[0])
        event["findings"] = findings
    return event


def _add_arguments(event: Event, judged: PreparedCall) -> None:
    """Add what was asked for. What came is kept as text where it differs from what the tool gets: it explains why."""
    if judged.dumped is not None:
        event["arguments"] = judged.dumped
        if not (judged.repairs or judged.corrections):
            return
    event["raw"] = _raw_arguments(judged)
    if judged.repairs:
        event["repairs"] = judged.repairs
    if judged.corrections:
        event["corrections"] = judged.corrections


def _raw_arguments(judged: PreparedCall) -> str | bytes | None:
    """What came, as text; None of a dict that cannot be written down, or only at a length without end."""
    raw = judged.call.arguments
    if isinstance(raw, (str, bytes)):
        return raw
    try:
        return dump_foreign(raw) if judged.corrections or undumpable_reason(raw, _MAX_RAW_BYTES) is None else None
    except (TypeError, ValueError, RuntimeError):  # it is the host's, who may have changed it since it was read
        return None


def tool_result_event(
    judged: PreparedCall,
    scene: CallEnvironment,
    outcome: Outcome,
    seconds: float,
    result: bytes | None,
    *,
    wire: bool = False,
) -> Event:
    """The event of a call that ended after its tool was started, or was answered from the ledger.

    A write has an event of its own from before its tool started; a read has only this one, so it
    also tells what was asked and decided. `wire` says that the answer went through the transport rooms.
    """
    assert judged.plan is not None, "what ran has a contract"
    contract = judged.plan.contract
    ok = outcome.status in SUCCESSFUL
    event: Event = {
        "ts": scene.now,
        "run_id": scene.run_id,
        "step": scene.step,
        "event": "tool_result",
        "tool": outcome.tool,
        "ok": ok,
        "call_id": outcome.call_id,
        "status": outcome.status,
        "contract": outcome.contract,
        "args_hash": judged.args_hash,
        "us": round(seconds * 1e6),
        "attempts": outcome.attempts,
        "effect": outcome.effect,
    }
    if not ok:
        event = _with_error(event, outcome)
    if outcome.key is not None:
        event["key"] = outcome.key
    if wire:
        event["wire"] = True
    if outcome.findings:
        event["findings"] = outcome.findings
    if result is not None:
        event["result"] = result
    if contract.effect == "read":
        event["decision"] = "allow"
        event["confidence"] = judged.confidence
        if judged.repairs or judged.corrections or judged.dumped is None:
            _add_arguments(event, judged)
        else:
            event["arguments"] = judged.dumped
    if contract.redact:
        event["marks"] = contract.redact
    return event


def _with_error(event: Event, outcome: Outcome) -> Event:
    """The event with what went wrong where a reader looks for it, behind `ok`."""
    reason = reason_of(outcome.findings[0]) if outcome.findings else outcome.message
    begin = {name: event.pop(name) for name in ("ts", "run_id", "step", "event", "tool", "ok")}
    return {**begin, "error": ERRORS[outcome.status].__name__, "reason": reason, **event}


def late_effect_event(judged: PreparedCall, scene: CallEnvironment, record: Record) -> Event:
    """The event of an execution whose claim was lost while it ran: what it did is not what the ledger answers."""
    return {
        "ts": scene.now,
        "run_id": scene.run_id,
        "step": scene.step,
        "event": "late_effect",
        "tool": record.tool,
        "ok": False,
        "call_id": judged.call.id,
        "key": record.key,
        "reason": f"the ledger says {record.state}, attempt {record.attempt}",
    }


def stop_event(state: RunState, now: float, step: int, reason: str, safe_mode: str | None) -> Event:
    """The event that says that from here on writes, or the whole run, are stopped."""
    event: Event = {"ts": now, "run_id": state.run_id, "step": step, "event": "stop", "ok": False, "reason": reason}
    if safe_mode is not None:
        event["safe_mode"] = safe_mode
    return event


def reason_of(finding: Finding) -> str:
    """The reason in the spelling of the trace: the room's own words, or code and place."""
    given = finding.data.get("reason")
    if isinstance(given, str):
        return given
    return f"{finding.code} at {finding.at}" if finding.at else finding.code
