"""Results of `tools/call` for a client: the server's own, marked, or one of the gateway.

In: an outcome, and what the server has answered.
Out: a result in the shape of the protocol.
Never: a server's result that may not be used, or one of the gateway that lacks what the client's era asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pokayoke.core.call import Outcome
from pokayoke.core.json.values import is_object

Era = Literal["legacy", "modern"]
"""Revisions of MCP up to 2025-11-25, with a handshake, and those from 2026-07-28 on, without one."""

PREFIX: Final = "io.github.pokayoke/"
"""Of the gateway's members of `_meta`. The protocol asks for a domain that is written backwards."""
RUN_KEY: Final = f"{PREFIX}run"
"""By which a client says which calls belong together."""
OUTCOME_KEY: Final = f"{PREFIX}outcome"
"""Under which a result says what became of the call."""
LEDGER_KEY: Final = f"{PREFIX}key"
"""Under which a server is told the ledger's key of a write."""


def describe_outcome(outcome: Outcome) -> dict[str, Any]:
    """Return what a program reads of an outcome: status, stop reason, safe mode, and the codes of the findings."""
    facts: dict[str, Any] = {"status": outcome.status}
    if outcome.stop_reason is not None:
        facts["stopReason"] = outcome.stop_reason
    if outcome.safe_mode is not None:
        facts["safeMode"] = outcome.safe_mode
    if outcome.findings:
        facts["findings"] = [one.code for one in outcome.findings]
    if outcome.approval is not None:
        facts["approval"] = outcome.approval
    if outcome.repeated:
        facts["repeated"] = True
    return facts


def mark_result(answered: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
    """Return a server's result with the outcome in its `_meta`."""
    meta = answered.get("_meta")
    known = meta if is_object(meta) else {}
    return {**answered, "_meta": {**known, OUTCOME_KEY: describe_outcome(outcome)}}


def build_result(outcome: Outcome, *, era: Era, structured: bool) -> dict[str, Any]:
    """Return the gateway's own result for an outcome.

    Args:
        outcome: of the call.
        era: the client's.
        structured: whether the tool promises structured content, without which a client refuses a result.
    """
    value = outcome.value if outcome.ok else None
    is_object = isinstance(value, dict)
    result: dict[str, Any] = {
        "content": [{"type": "text", "text": outcome.text}],
        "isError": not outcome.ok or (structured and not is_object),
        "_meta": {OUTCOME_KEY: describe_outcome(outcome)},
    }
    if is_object:
        result["structuredContent"] = value
    return as_of_era(result, era)


def error_result(text: str, *, era: Era, facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a result that tells the model why a call was not made.

    Args:
        text: what the model reads.
        era: the client's.
        facts: what a program reads; None says that the call was refused.
    """
    return as_of_era(
        {
            "content": [{"type": "text", "text": text}],
            "isError": True,
            "_meta": {OUTCOME_KEY: dict(facts) if facts is not None else {"status": "refused"}},
        },
        era,
    )


def as_of_era(result: dict[str, Any], era: Era) -> dict[str, Any]:
    """Return a result with what its era asks for: since 2026-07-28, that it is complete."""
    return {**result, "resultType": "complete"} if era == "modern" else result
