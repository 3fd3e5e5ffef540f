"""Questions to a person: may this call run, and may writes go on after an invalid output?

In: a call, and for a review what is wrong with its output.
Out: an `Approval`, bound to exactly this call.
Never: a question whose reader can change what runs after the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.states import PreparedCall
from pokayoke.core.json.canonical import sha256_hex
from pokayoke.core.ledger.admission import Approval, approval_fingerprint
from pokayoke.core.redaction.known_secrets import KnownSecrets
from pokayoke.core.state.run_state import RunState, Taint, unlatch

if TYPE_CHECKING:
    from pokayoke.core.flow.effect_chain import EffectWish
    from pokayoke.core.redaction.redactor import Redactor


def build_approval(
    prepared: PreparedCall, contract: Contract, env: CallEnvironment, wish: EffectWish, approvers: int
) -> Approval:
    """Return the question whether a call may run.

    Args:
        prepared: the call.
        contract: its tool's contract.
        env: its environment.
        wish: which of equal effects it would be.
        approvers: how many people have to approve.
    """
    scope = env.claimant.scope(contract) or ("run", env.run_id)
    mark = approval_fingerprint(contract.id, scope, prepared.args_hash, wish.number, wish.earlier)
    return Approval(
        id=f"ap-{mark[:24]}",
        fingerprint=mark,
        tool=contract.name,
        contract=contract.id,
        # A copy: the reader of the question must not be able to change what runs after the answer.
        arguments=msgspec.json.decode(prepared.dumped or b"null"),
        run_id=env.run_id,
        asked_at=env.now,
        expires_at=env.now + env.snapshot.policy.approvals.expires_seconds,
        marks=contract.redact,
        why=_describe_sources(prepared, contract, env),
        approvers=approvers,
        wanted=env.redact(env.view.user_text, contract.redact, prepared.dumped or b"{}"),
    )


def _describe_sources(prepared: PreparedCall, contract: Contract, env: CallEnvironment) -> tuple[str, ...]:
    if prepared.sources is None:
        return ()
    given = prepared.dumped or b"{}"
    return tuple(env.redact(one, contract.redact, given) for one in prepared.sources.sentences)


def build_review(prepared: PreparedCall, contract: Contract, env: CallEnvironment, taint: Taint) -> Approval:
    """Return the question whether writes may go on after an invalid output.

    Args:
        prepared: the call whose output is invalid.
        contract: its tool's contract.
        env: its environment.
        taint: what the output does to the latch.
    """
    mark = sha256_hex(f"{env.run_id}\x00{contract.id}\x00{prepared.args_hash}\x00{env.step}".encode())
    return Approval(
        id=f"rv-{mark[:24]}",
        fingerprint=mark,
        tool=contract.name,
        contract=contract.id,
        arguments={"reason": taint.reason, "identity": taint.identity, "step": env.step},
        run_id=env.run_id,
        asked_at=env.now,
        expires_at=env.now + env.snapshot.policy.approvals.expires_seconds,
        kind="output",
        marks=contract.redact,
        wanted=env.redact(env.view.user_text, contract.redact, prepared.dumped or b"{}"),
    )


def redact_question(approval: Approval, redactor: Redactor) -> Approval:
    """Return a question as it may be shown. What is secret in its arguments is secret in its other texts.

    The id, the fingerprint and the name of who answered stay: they are how a question is found and audited.

    Args:
        approval: the question.
        redactor: removes the secrets.
    """
    seen, marks, first = KnownSecrets(), approval.marks, approval.first

    def hide_in(text: str) -> str:
        return redactor.redact_text(text, marks=marks, seen=seen)

    return msgspec.structs.replace(
        approval,
        arguments=redactor.redact_value(approval.arguments, marks=marks, seen=seen),
        tool=hide_in(approval.tool),
        contract=hide_in(approval.contract),
        run_id=hide_in(approval.run_id),
        why=tuple(map(hide_in, approval.why)),
        limits=tuple(msgspec.structs.replace(one, counter=hide_in(one.counter)) for one in approval.limits),
        wanted=hide_in(approval.wanted),
        reason=None if approval.reason is None else hide_in(approval.reason),
        first=first and msgspec.structs.replace(first, reason=hide_in(first.reason)),
    )


def apply_approved_review(state: RunState, review: Approval) -> RunState:
    """Return the run's state after an approved review, which covers the output it asked about and no later one."""
    about: dict[str, Any] = review.arguments
    return unlatch(state, review.tool, about["identity"], step=about.get("step"))
