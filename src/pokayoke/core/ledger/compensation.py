"""The undoing of an effect: its key, what it is called with, and whether it applies.

In: the record of an effect, and business rows.
Out: `Compensation` values, and the finding that answers for an undone effect.
Never: an undoing of an earlier attempt that counts for a later one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.json.canonical import sha256_hex
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.ledger.findings import compensated_finding
from pokayoke.core.ledger.key import compensation_key
from pokayoke.core.ledger.records import Record

COMPENSATION_RUN_ID: Final = "compensation"
"""The run id of every undoing."""


class BusinessRow(msgspec.Struct, frozen=True, gc=False):
    """One row of the business records.

    Args:
        number: its place in the source, from 1 on.
        key: the ledger key it was written under, or "".
        reference: the business' own name of it, such as an order number, or "".
        digest: SHA-256 of the canonical arguments it stands for (`Record.args_hash`), or "".
        amount: a sum as text, or "".
        tool: the tool that wrote it, or "".
    """

    number: int
    key: str = ""
    reference: str = ""
    digest: str = ""
    amount: str = ""
    tool: str = ""


class Compensation(msgspec.Struct, frozen=True, gc=False):
    """What a contract's `compensate` is called with.

    Args:
        effect_key: the ledger key of the effect to undo.
        key: the idempotency key of the undoing: hand it on to a target that drops repeats.
        record: what the ledger knows of the effect, or None if it knows nothing.
        row: the business row to undo, or None if none was named.
        reason: why it is undone.
    """

    effect_key: str
    key: str
    record: Record | None
    row: BusinessRow | None
    reason: str


def undoing_key(effect_key: str, reference: str = "") -> str:
    """Return the ledger key of an undoing: of an effect, or of one of several rows it left.

    Args:
        effect_key: the ledger key of the effect.
        reference: the business' name of the surplus row; "" undoes the effect itself.
    """
    return compensation_key(f"{effect_key}\x1f{reference}" if reference else effect_key)


def undoing_hash(effect_key: str, reference: str) -> str:
    """Return the `args_hash` of an undoing."""
    return sha256_hex(dump_compact([effect_key, reference], sort=True))


def compensation_finding(record: Record, undoing: Record) -> Finding | None:
    """Return the finding for an effect that was undone or may have been; None if it stands."""
    return compensated_finding(undoing) if undoes(undoing, record) else None


def undoes(undoing: Record, record: Record) -> bool:
    """Return whether this attempt of an effect was undone. One claimed earlier undid an earlier attempt."""
    return undoing.claimed_at >= record.claimed_at
