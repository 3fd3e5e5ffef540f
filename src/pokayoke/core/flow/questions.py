"""The question to a person that goes with an invalid output: may writes go on?"""

from __future__ import annotations

from typing import Any

from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.prepare import CallEnvironment, PreparedCall, identity_hash
from pokayoke.core.json.canonical import sha256_hex
from pokayoke.core.ledger.admission import Approval
from pokayoke.core.state.run_state import RunState, unlatch


def build_review(judged: PreparedCall, contract: Contract, scene: CallEnvironment, reason: str) -> Approval:
    """Return the question.

    Args:
        judged: the call whose output is invalid.
        contract: of its tool.
        scene: where the call plays.
        reason: what is wrong with the output.
    """
    mark = sha256_hex(f"{scene.run_id}\x00{contract.id}\x00{judged.args_hash}\x00{scene.step}".encode())
    return Approval(
        id=f"rv-{mark[:24]}",
        fingerprint=mark,
        tool=contract.name,
        contract=contract.id,
        arguments={"reason": reason, "identity": identity_hash(judged, contract), "step": scene.step},
        run_id=scene.run_id,
        asked_at=scene.now,
        expires_at=scene.now + scene.snapshot.policy.approvals.expires_seconds,
        kind="output",
        marks=contract.redact,
    )


def apply_approved_review(state: RunState, review: Approval) -> RunState:
    """Return the run's state after a person's yes to a review: about the output it asked of, and no later one."""
    about: dict[str, Any] = review.arguments
    return unlatch(state, review.tool, about["identity"], step=about.get("step"))
