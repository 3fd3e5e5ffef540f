"""Compares the ledger with the business rows, one key at a time.

In: a ledger record, the business rows of its key, and the known late effects.
Out: the class of the key, and the reason.
Never: a disagreement that counts as matched, or a call in flight that counts as a disagreement.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal, get_args

import msgspec

from pokayoke.core.json.pointer import get_at, parse_pointer
from pokayoke.core.ledger.compensation import BusinessRow, Compensation, undoes, undoing_key
from pokayoke.core.ledger.records import OPEN, Record

ComparisonKind = Literal[
    "matched", "missing", "extra", "duplicate", "mismatched", "doubtful_happened", "doubtful_not", "in_flight"
]
COMPARISON_KINDS: Final[tuple[ComparisonKind, ...]] = get_args(ComparisonKind)
"""The classes, in the order in which they are reported. `in_flight` is not judged yet, and no finding."""
AGREEING_KINDS: Final[frozenset[ComparisonKind]] = frozenset({"matched", "in_flight"})


class ReconcileTimes(msgspec.Struct, frozen=True, gc=False):
    """Until when the ledger can be judged.

    Args:
        read_at: wall-clock second before the first business row was read.
        cut_off: what was claimed after this second may still be on its way: `read_at` less the longest lease.
    """

    read_at: float
    cut_off: float


class Comparison(msgspec.Struct, frozen=True, gc=False):
    """What became of one key.

    Args:
        kind: the class.
        key: the ledger key; "" for a row that carries none.
        reason: why, in one sentence; "" if it is matched.
        record: the ledger's side, if there is one.
        rows: the business' side.
        surplus: the rows among them that are proven to be too many.
        uncompared: True if a row names an amount and the ledger holds none to compare it with.
    """

    kind: ComparisonKind
    key: str
    reason: str = ""
    record: Record | None = None
    rows: tuple[BusinessRow, ...] = ()
    surplus: tuple[BusinessRow, ...] = ()
    uncompared: bool = False


def build_compensations(found: Comparison, reason: str) -> tuple[Compensation, ...]:
    """Return what would bring a key back in order: one undoing for each row that is proven to be too many.

    Args:
        found: the key; of one that is in order, its effect is undone.
        reason: why, for the audit.
    """
    if found.kind == "duplicate" or not found.key:
        named = [row for row in found.surplus if row.reference]
        return tuple(
            Compensation(found.key, undoing_key(found.key, row.reference), found.record, row, reason) for row in named
        )
    row = found.rows[0] if found.rows else None
    return (Compensation(found.key, undoing_key(found.key), found.record, row, reason),)


def compare_key(
    key: str,
    record: Record | None,
    rows: Sequence[BusinessRow],
    times: ReconcileTimes,
    *,
    late: Collection[str] = (),
    undone: Collection[str] = (),
    amount: str | None = None,
) -> Comparison:
    """Return the class of a key.

    Args:
        key: the ledger key, or "" for a row that carries none.
        record: what the ledger holds under it.
        rows: the business rows of that key, in the order of the source.
        times: what is young enough to be still on its way.
        late: references of completions that came after their claim was lost.
        undone: references of rows whose undoing is completed; "" means that the effect was undone.
        amount: the sum in the recorded output, if there is one; see `recorded_amount`.
    """
    left = tuple(row for row in rows if not (row.reference and row.reference in undone))
    if record is not None and _is_in_flight(record, times):
        return Comparison("in_flight", key, record=record, rows=left)
    happened = record is not None and record.state == "completed"
    # An undone effect may keep its row (marked as undone), lose it, or leave the one it was too many beside.
    if "" in undone and len(left) <= happened + 1:
        return Comparison("matched", key, record=record, rows=left)
    if len(left) > 1:
        return _compare_duplicates(key, record, left, late, amount)
    if record is None or record.compensates:
        return _compare_unexpected_rows(key, record, left)
    if not left:
        return _compare_missing_row(key, record)
    return _compare_one_row(key, record, left[0], late, amount)


def is_explained_by_undoing(undoing: Record | None, record: Record | None, rows: int) -> bool:
    """Whether an undoing of an effect says why the business has something else than the ledger.

    It may have left the row of what it undid, and explains none beside that. That of an earlier attempt says why
    there is a row too many, and never why the one of this attempt is missing.

    Args:
        undoing: the record of the undoing, if there is one.
        record: that of the effect, if there is one.
        rows: number of its business rows, without those that were undone by their own name.
    """
    if undoing is None or undoing.state != "completed":
        return False
    if record is None or undoes(undoing, record):
        return rows <= 1
    return rows > (record.state == "completed" or record.state in OPEN)


def _is_in_flight(record: Record, times: ReconcileTimes) -> bool:
    """Whether the business rows may be older than what the ledger says."""
    if record.claimed_at > times.cut_off or (record.settled_at or 0.0) > times.read_at:
        return True
    return record.state in ("executing", "resolving") and record.lease_until > times.read_at


def _compare_duplicates(
    key: str, record: Record | None, rows: tuple[BusinessRow, ...], late: Collection[str], amount: str | None
) -> Comparison:
    surplus = _surplus_rows(record, rows, late, amount)
    proof = "" if surplus else "; which of them is the surplus cannot be told"
    return Comparison("duplicate", key, f"{len(rows)} business rows stand under one key{proof}", record, rows, surplus)


def _surplus_rows(
    record: Record | None, rows: tuple[BusinessRow, ...], late: Collection[str], amount: str | None
) -> tuple[BusinessRow, ...]:
    """The rows that are proven to be too many; none if one of them might be the right one."""
    named = [row for row in rows if record is not None and record.reference and row.reference == record.reference]
    if len(named) == 1:
        return tuple(row for row in rows if row is not named[0])
    others = [row for row in rows if not row.reference or row.reference not in late]
    if len(others) == 1:
        return tuple(row for row in rows if row is not others[0])
    same = len({(row.digest, row.amount) for row in rows}) == 1 and all(row.digest or row.amount for row in rows)
    right = record is None or not any(_describe_mismatch(record, row, amount) for row in rows)
    if same and right and len({row.reference for row in rows}) == len(rows):
        return rows[1:]  # they say the same, and what the ledger knows, so any one of them may stay
    return ()


def _compare_unexpected_rows(key: str, record: Record | None, rows: tuple[BusinessRow, ...]) -> Comparison:
    """No record, or that of an undoing, which may leave no row of its own."""
    if record is None:
        reason = "the business has a row that the ledger does not know"
        return Comparison("extra", key, reason, None, rows, rows) if rows else Comparison("matched", key)
    if record.state not in OPEN:
        return Comparison("matched", key, record=record, rows=rows)
    kind: ComparisonKind = "doubtful_happened" if rows else "doubtful_not"
    return Comparison(kind, key, f"an undoing of {record.compensates[:12]} is in doubt", record, rows)


def _compare_missing_row(key: str, record: Record) -> Comparison:
    if record.state == "completed":
        return Comparison("missing", key, "the ledger says completed, and the business has no row", record)
    if record.state in OPEN:
        return Comparison("doubtful_not", key, "in doubt, and the business has no row", record)
    return Comparison("matched", key, record=record)


def _compare_one_row(
    key: str, record: Record, row: BusinessRow, late: Collection[str], amount: str | None
) -> Comparison:
    rows = (row,)
    wrong = _describe_mismatch(record, row, amount)
    if record.state in OPEN:
        also = f"; {wrong}" if wrong else ""
        return Comparison("doubtful_happened", key, f"in doubt, and the business has its row{also}", record, rows)
    if record.state != "completed":
        reason = f"the ledger says {record.state}, and the business has a row"
        return Comparison("extra", key, reason, record, rows, rows)
    if row.reference and row.reference in late and row.reference != record.reference:
        return Comparison("extra", key, "its row is that of a late effect", record, rows, rows)
    uncompared = bool(row.amount) and amount is None
    kind: ComparisonKind = "mismatched" if wrong else "matched"
    return Comparison(kind, key, wrong, record, rows, uncompared=uncompared)


def _describe_mismatch(record: Record, row: BusinessRow, amount: str | None) -> str:
    """What of a row is not what the ledger knows; "" if nothing is."""
    if row.digest and row.digest != record.args_hash:
        return "its arguments are not those that were recorded"
    if row.amount and amount is not None and not is_same_amount(row.amount, amount):
        return f"its amount is {row.amount}, and {amount} was recorded"
    if row.reference and record.reference and row.reference != record.reference:
        return f"its reference is {row.reference}, and {record.reference} was recorded"
    return ""


def is_same_amount(one: str, other: str) -> bool:
    """Whether two texts name one sum: 12.5 and 12.50 do; what is no number is compared as text."""
    try:
        return Decimal(one) == Decimal(other)
    except InvalidOperation:
        return one == other


def recorded_amount(output: bytes | None, pointer: str) -> str | None:
    """Return the sum in a recorded output as text, or None if there is none to compare with.

    Args:
        output: the recorded output as JSON, or None.
        pointer: JSON pointer to the sum.
    """
    if output is None:
        return None
    try:
        found: Any = get_at(msgspec.json.decode(output), parse_pointer(pointer))
    except (LookupError, msgspec.DecodeError):
        return None
    return row_text(found) if isinstance(found, (int, float, str)) and not isinstance(found, bool) else None


def row_text(value: Any) -> str:
    """Return a value of a business row as the text it is compared by; "" for one that is absent."""
    return "" if value is None else str(value)
