"""Findings about ledger records: why a claimant may not execute, in words for model and people.

In: a record.
Out: a finding.
Never: a hint that lets a model repeat a write whose effect is unknown.
"""

from __future__ import annotations

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.ledger.records import Admission, Record


def mark_in_doubt(record: Record) -> Record:
    """Return the record as in doubt: its executor will not report soon."""
    return msgspec.structs.replace(
        record, state="in_doubt", resolver="", failure=record.failure or "the caller never reported back"
    )


def conflict_finding(recorded: str, now: str, tool: str) -> Finding:
    """The finding for an equal key with other arguments."""
    return Finding(
        code="conflict",
        message=(
            f"{tool} was called before with the same identity but other arguments "
            f"(recorded {recorded[:12]}, now {now[:12]})"
        ),
        hint=(
            f"{tool} was already called with the same identifying arguments but different details. "
            "Nothing was executed. Use the earlier result, or ask the user which one is meant."
        ),
        data={"recorded": recorded, "now": now},
    )


def in_progress_finding(tool: str) -> Finding:
    """The finding for a write that another call executes."""
    return Finding(
        code="in_progress",
        blame="host",
        message=f"{tool} is running with these arguments in another call",
        hint=f"The same call of {tool} is still running. Do not send it again now.",
    )


def in_doubt_finding(record: Record) -> Finding:
    """The finding for an effect that may or may not have happened."""
    return Finding(
        code="in_doubt",
        blame="host",
        message=f"{record.tool} was started and it is not known whether it took effect ({record.failure})",
        hint=(
            f"It is not known whether {record.tool} took effect. Do not send it again. "
            "Read the current state if a tool allows it, and tell the user that this has to be checked."
        ),
        data={"key": record.key, "attempt": record.attempt},
    )


def failed_before_finding(tool: str, failure: str) -> Finding:
    """The finding for a write that failed for good."""
    return Finding(
        code="failed_before",
        blame="tool",
        message=f"{tool} failed for good with these arguments: {failure}",
        hint=f"{tool} already failed with these arguments and is not tried again. Tell the user.",
    )


def no_scope_finding(tool: str) -> Finding:
    """The finding for a write without a scope, which a durable ledger needs."""
    return Finding(
        code="no_scope",
        blame="host",
        message=(
            f"{tool}: a write on a durable store needs a run, session or tenant id, and this run has none. "
            "Pass one, such as guard.run('order-4711'), or the thread or session id of your framework"
        ),
        hint="This write could not be started because of a set-up problem. Tell the user; do not retry.",
    )


def store_unavailable_finding(tool: str, reason: str) -> Finding:
    """The finding for a write that was not started because its ledger cannot be reached."""
    return Finding(
        code="store_unavailable",
        blame="host",
        message=f"{tool} was not started: the ledger cannot be reached ({reason})",
        hint="This write was not started because of a technical problem. You may try once more later.",
    )


def took_effect_finding(tool: str, lost: Finding) -> Finding:
    """The finding for a write that took effect before, when the ledger became unreachable."""
    return Finding(
        code="store_unavailable",
        blame="host",
        message=f"{tool} took effect before, and no more can be said of that: {lost.message}",
        hint=f"{tool} already took effect with these arguments; its result cannot be read now. Tell the user.",
    )


def unreachable_reason(answer: Admission) -> Finding | None:
    """Return the finding of an unreachable ledger; None if the ledger answered."""
    found = answer.finding
    return found if answer.record is None and found is not None and found.code == "store_unavailable" else None


def compensated_finding(undoing: Record) -> Finding | None:
    """The finding for an effect that was undone or may have been; None if the undoing never began."""
    tool, key = undoing.tool, undoing.compensates
    if undoing.state in ("failed_retriable", "failed_final"):
        return None
    became = "was undone" if undoing.state == "completed" else "may be undone by now"
    return Finding(
        code="compensated",
        message=f"{tool} was done with these arguments before, and {became}; nothing was executed",
        hint=f"{tool} was done before with these arguments, and {became}. Do not send it again; tell the user.",
        data={"key": key, "undoing": undoing.state},
    )
