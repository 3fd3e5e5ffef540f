"""Table rows to values of the core, and back.

No text of a tool or a person can make a statement fail after the claim: a text is stored unchanged if a
database in UTF-8 takes it, and as JSON in ASCII otherwise; both are read back unchanged.

In: rows, or values.
Out: values, or rows in the order of their columns.
Never: an opened secret in a list.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from pokayoke.core.json.values import is_array
from pokayoke.core.ledger.admission import Approval, Endorsement, LimitState, LimitUsage
from pokayoke.core.ledger.records import Record
from pokayoke.core.state.kill_switch import OutputRate, Switch
from pokayoke.core.state.run_state import RunState
from pokayoke.errors import StoreError
from pokayoke.stores.encryption import Seal
from pokayoke.stores.lists import RunEntry
from pokayoke.stores.values import AuditEntry

T = TypeVar("T")
SEALED: Final = "(sealed)"
"""Stands in lists for arguments that no present key can open."""
Row = Sequence[Any]
RECORDS, APPROVALS = "pokayoke_records", "pokayoke_approvals"

RECORD_COLUMNS: Final = Record.__struct_fields__
# The last fields have no column: they are stored in the arguments' column, sealed with them.
_BESIDE: Final[tuple[Any, ...]] = ((), (), 1, None, (), "")
"""The last fields of a question, with what they are where a ledger does not say it."""
_FIRST_BESIDE: Final = len(Approval.__struct_fields__) - len(_BESIDE)
APPROVAL_COLUMNS: Final = tuple(
    "decider" if name == "by" else name for name in Approval.__struct_fields__[:_FIRST_BESIDE]
)
ENTRY_COLUMNS: Final = ("at", "kind", "subject", "who", "reason", "data", "number")
_OUTPUT, _OUTPUT_OK = RECORD_COLUMNS.index("output"), RECORD_COLUMNS.index("output_ok")
_RECORD_TEXTS: Final = tuple(RECORD_COLUMNS.index(name) for name in ("failure", "reference", "decided_by"))
_ARGUMENTS: Final = APPROVAL_COLUMNS.index("arguments")
_APPROVAL_TEXTS: Final = tuple(APPROVAL_COLUMNS.index(name) for name in ("decider", "reason"))


def encode_text(text: str) -> str:
    """Return a text as every database takes it: unchanged, or its JSON if it holds NUL or a lone surrogate."""
    if text.isascii() and "\x00" not in text and not text.startswith('"'):
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(text)
    return json.dumps(text) if "\x00" in text or text.startswith('"') else text


def decode_text(text: str) -> str:
    """Return the text that `encode_text` got."""
    return json.loads(text) if text.startswith('"') else text


def dump_json(value: Any) -> str:
    """Return a value as JSON in ASCII, which every database takes."""
    return json.dumps(msgspec.to_builtins(value), separators=(",", ":"))


def load_json(body: str, kind: type[T]) -> T:
    """Return the value that `dump_json` got.

    Raises:
        StoreError: the stored text is something else.
    """
    try:
        return msgspec.convert(json.loads(body), kind)
    except ValueError as error:
        raise StoreError(f"a stored {kind.__name__} cannot be read ({error}): restore a backup") from None


def record_values(record: Record, seal: Seal) -> tuple[Any, ...]:
    """Return the values of a record's row, in the order of `RECORD_COLUMNS`."""
    values = list(msgspec.structs.astuple(record))
    values[_OUTPUT_OK] = int(record.output_ok)
    if record.output is not None:
        values[_OUTPUT] = seal.seal(record.output, RECORDS, record.key)
    for place in _RECORD_TEXTS:
        if values[place]:
            values[place] = encode_text(values[place])
    return tuple(values)


def parse_record(row: Row, seal: Seal) -> Record:
    """Return the record of a row with `RECORD_COLUMNS`.

    Raises:
        StoreError: its output is sealed and cannot be opened.
    """
    values = list(row)
    values[_OUTPUT_OK] = bool(values[_OUTPUT_OK])
    if values[_OUTPUT] is not None:
        values[_OUTPUT] = seal.open(bytes(values[_OUTPUT]), RECORDS, values[0])
    for place in _RECORD_TEXTS:
        values[place] = decode_text(values[place])
    return Record(*values)


def approval_values(approval: Approval, seal: Seal) -> tuple[Any, ...]:
    """Return the values of a question's row, in the order of `APPROVAL_COLUMNS`."""
    whole = msgspec.structs.astuple(approval)
    values, beside = list(whole[:_FIRST_BESIDE]), list(whole[_FIRST_BESIDE:])
    while beside and beside[-1] == _BESIDE[len(beside) - 1]:
        beside.pop()
    kept = [approval.arguments, *beside] if beside else approval.arguments
    values[_ARGUMENTS] = seal.seal(dump_json(kept).encode(), APPROVALS, approval.fingerprint)
    for place in _APPROVAL_TEXTS:
        values[place] = None if values[place] is None else encode_text(values[place])
    return tuple(values)


def parse_approval(row: Row, seal: Seal) -> Approval:
    """Return the question of a row with `APPROVAL_COLUMNS`.

    Raises:
        StoreError: its arguments are sealed and cannot be opened.
    """
    values = list(row)
    kept: Any = json.loads(seal.open(bytes(values[_ARGUMENTS]), APPROVALS, values[1]))
    # Arguments are always an object, so a list holds the arguments and those of the last fields that say something.
    arguments, *beside = kept if is_array(kept) else [kept]
    marks, why, approvers, first, limits, wanted = (*beside, *_BESIDE[len(beside) :])
    values[_ARGUMENTS] = arguments
    values += tuple(marks), tuple(why), approvers, None if first is None else msgspec.convert(first, Endorsement)
    values += msgspec.convert(limits, tuple[LimitState, ...]), wanted
    for place in _APPROVAL_TEXTS:
        values[place] = None if values[place] is None else decode_text(values[place])
    return Approval(*values)


def parse_for_listing(row: Row, seal: Seal) -> Approval:
    """Return a question for a list: arguments that cannot be opened are replaced by `SEALED`."""
    try:
        return parse_approval(row, seal)
    except StoreError:
        values = list(row)
        values[_ARGUMENTS] = json.dumps(SEALED).encode()
        return parse_approval(values, Seal())


def parse_run(row: Row) -> RunState:
    """Return a run's state from its row (body)."""
    return load_json(row[0], RunState)


def parse_run_entry(row: Row) -> RunEntry:
    """Return a run of a list from its row (body, touched_at)."""
    return RunEntry(parse_run(row), float(row[1]))


def parse_usage(row: Row) -> LimitUsage:
    """Return a limit's usage from its row (calls, amount)."""
    return LimitUsage(int(row[0]), float(row[1]))


def parse_switch(row: Row) -> Switch:
    """Return a switch from its row (body)."""
    return load_json(row[0], Switch)


def parse_rate(row: Row) -> OutputRate:
    """Return a rate from its row (body)."""
    return load_json(row[0], OutputRate)


def entry_values(entry: AuditEntry) -> tuple[Any, ...]:
    """Return the values of an audit line's row, in the order of `ENTRY_COLUMNS` without the number."""
    return (
        entry.at,
        entry.kind,
        encode_text(entry.subject),
        encode_text(entry.by),
        encode_text(entry.reason),
        dump_json(entry.data),
    )


def parse_entry(row: Row) -> AuditEntry:
    """Return the audit line of a row with `ENTRY_COLUMNS`."""
    at, kind, subject, by, reason, data, number = row
    return AuditEntry(
        at, kind, decode_text(subject), decode_text(by), decode_text(reason), json.loads(data), int(number)
    )
