"""The states of a call on its way: prepared, admitted, attempted.

In: what the rooms found out.
Out: values that pass forward from room to room.
Never: a state that changes after it was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pokayoke.core.call import Correction, Finding, ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.plan import CallPlan
from pokayoke.core.json.canonical import canonical_bytes, sha256_hex
from pokayoke.core.ledger.records import Claim
from pokayoke.core.provenance.report import SourceReport


class PreparedCall(msgspec.Struct, frozen=True, gc=False):
    """A call whose name, arguments and rules were checked.

    Attributes:
        call: the call.
        plan: how calls of its contract are treated; None if no contract was found.
        arguments: the effective arguments; None if they could not be read.
        args_hash: digest of the canonical arguments, or of the raw text if it could not be read.
        dumped: the arguments as compact JSON bytes, or None.
        refusal: why it must not run, or None.
        room: the room that refused, or "gate" if none did.
        remarks: findings that stop nothing.
        corrections: changes made to the arguments.
        repairs: names of repairs made to the text.
        confidence: 0 to 1.
        more_findings: further reasons for the refusal (every schema error).
        is_sole_owner: True if nothing else holds the arguments, so that the tool may have them without a copy.
        is_repeated: True if it makes a new effect of an equal call.
        sources: where its values come from, if that was looked up.
    """

    call: ToolCall
    plan: CallPlan | None = None
    arguments: dict[str, Any] | None = None
    args_hash: str = ""
    dumped: bytes | None = None
    refusal: Finding | None = None
    room: str = "gate"
    remarks: tuple[Finding, ...] = ()
    corrections: tuple[Correction, ...] = ()
    repairs: tuple[str, ...] = ()
    confidence: float = 1.0
    more_findings: tuple[Finding, ...] = ()
    is_sole_owner: bool = False
    is_repeated: bool = False
    sources: SourceReport | None = None

    def original_arguments(self) -> dict[str, Any]:
        """Return a copy of the arguments as they were checked; a tool may have changed its own."""
        arguments: dict[str, Any] = msgspec.json.decode(self.dumped or b"{}")
        return arguments

    @property
    def tool(self) -> str:
        """The resolved tool name, or the one the model wrote."""
        return self.plan.contract.name if self.plan else self.call.name

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, the refusal first."""
        first = () if self.refusal is None else (self.refusal,)
        return (*first, *self.more_findings, *self.remarks)


class AdmittedCall(msgspec.Struct, frozen=True, gc=False):
    """A call that was admitted: its tool may start.

    Attributes:
        prepared: the checked call.
        plan: how calls of its contract are treated.
        arguments: what the tool receives.
        located: path arguments resolved inside their roots.
        claim: the ledger claim of a write, or None.
        attempt: the ledger's number of this execution; 1 for a read.
        is_approved: True if a person said yes to it.
    """

    prepared: PreparedCall
    plan: CallPlan
    arguments: dict[str, Any]
    located: Mapping[str, Any] | None
    claim: Claim | None
    attempt: int = 1
    is_approved: bool = False


class Attempts(msgspec.Struct, frozen=True, gc=False):
    """How often and how long (in seconds) the tool ran, and whether its retries are used up."""

    count: int
    seconds: float
    exhausted: bool


def identity_hash(prepared: PreparedCall, contract: Contract) -> str:
    """Return the digest of the arguments that identify what a call is about."""
    if contract.identity is None:
        return effect_hash(prepared, contract)
    return hash_identity(prepared.original_arguments(), contract)


def hash_identity(arguments: Mapping[str, Any], contract: Contract) -> str:
    """Return the digest of what makes effects equal: the identity arguments, or all that are not volatile."""
    given = {**contract.defaults, **arguments}  # writing a default out makes no other effect
    if contract.identity is not None:
        return sha256_hex(canonical_bytes({name: given.get(name) for name in contract.identity}))
    return _hash_details(given, contract)


def effect_hash(prepared: PreparedCall, contract: Contract) -> str:
    """Return the digest of what makes two writes the same: all arguments but the volatile ones."""
    if not (contract.volatile or contract.defaults):
        return prepared.args_hash
    return _hash_details({**contract.defaults, **prepared.original_arguments()}, contract)


def _hash_details(arguments: Mapping[str, Any], contract: Contract) -> str:
    return sha256_hex(
        canonical_bytes({name: value for name, value in arguments.items() if name not in contract.volatile})
    )
