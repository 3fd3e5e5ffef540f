"""Joins the ledger with business rows, key by key, in constant memory.

The business rows are stored first, in a temporary file that vanishes with the process. The ledger is read after
that: a claim comes before its effect, so a row without a record is no row that came too early.

In: business rows, and a store.
Out: one comparison per key.
Never: a row that belongs to two records.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from pokayoke.core.ledger.compensation import BusinessRow, undoing_key
from pokayoke.core.ledger.reconcile import (
    AGREEING_KINDS,
    Comparison,
    ReconcileTimes,
    compare_key,
    is_explained_by_undoing,
    recorded_amount,
)
from pokayoke.core.ledger.records import Record
from pokayoke.stores.base import Store
from pokayoke.stores.values import AuditEntry, RecordQuery

_PAGE_SIZE: Final = 1_000
_COLUMNS: Final = "number, key, reference, digest, amount, tool"
_TABLES: Final = f"""
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    CREATE TABLE rows ({_COLUMNS}, seen INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (number));
    CREATE INDEX rows_key ON rows (key);
    CREATE INDEX rows_reference ON rows (reference) WHERE key = '';
"""


class ReconcileQuery(msgspec.Struct, frozen=True, gc=False):
    """Which effects to reconcile.

    Args:
        tool: only effects of this tool, or None for all.
        since: only effects claimed from this wall-clock second on, or None for all.
        amount_at: JSON pointer to the amount in a recorded output.
    """

    tool: str | None = None
    since: float | None = None
    amount_at: str = "/amount"

    def matches(self, record: Record) -> bool:
        """True if a record is to be compared."""
        return self.tool in (None, record.tool) and (self.since is None or record.claimed_at >= self.since)


class BusinessRows:
    """Business rows, indexed by key and by reference."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)  # no name: a temporary file
        self._file.executescript(_TABLES)

    def close(self) -> None:
        """Close and delete the file."""
        self._file.close()

    def add_rows(self, rows: Iterable[BusinessRow]) -> int:
        """Store rows. Returns how many."""
        self._file.execute("BEGIN")
        put = self._file.executemany(
            f"INSERT INTO rows ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608 - names from the code only
            ((r.number, r.key, r.reference, r.digest, r.amount, r.tool) for r in rows),
        )
        self._file.execute("COMMIT")
        return max(0, put.rowcount)

    @property
    def has_keyless_rows(self) -> bool:
        """True if a row can only be found by its reference."""
        return self._file.execute("SELECT 1 FROM rows WHERE key = '' LIMIT 1").fetchone() is not None

    def take_rows(self, record: Record) -> tuple[BusinessRow, ...]:
        """Return the rows of a record and mark them as seen. A row without a key belongs to one record of its tool."""
        found = self._select_rows("key = ?", record.key)
        if record.reference:
            mine = "key = '' AND reference = ? AND seen = 0 AND tool IN ('', ?)"
            found += self._select_rows(mine, record.reference, record.tool)
        self._file.executemany("UPDATE rows SET seen = 1 WHERE number = ?", ((row.number,) for row in found))
        return tuple(found)

    def unmatched_rows(self) -> Iterator[tuple[str, tuple[BusinessRow, ...]]]:
        """Yield the rows that no record took, by key; those without a key one by one."""
        group: list[BusinessRow] = []
        condition = "seen = 0 ORDER BY key, number"
        for values in self._file.execute(f"SELECT {_COLUMNS} FROM rows WHERE {condition}"):  # noqa: S608 - as above
            row = BusinessRow(*values)
            if group and (not row.key or row.key != group[0].key):
                yield group[0].key, tuple(group)
                group = []
            group.append(row)
        if group:
            yield group[0].key, tuple(group)

    def _select_rows(self, condition: str, *values: str) -> list[BusinessRow]:
        sql = f"SELECT {_COLUMNS} FROM rows WHERE {condition} ORDER BY number"  # noqa: S608 - as above
        return [BusinessRow(*found) for found in self._file.execute(sql, values)]


def read_records(store: Store, query: RecordQuery, told: Callable[[int], None] = lambda _: None) -> Iterator[Record]:
    """Yield all records of a query, in the order of their keys; `told` is called with the size of each page."""
    query = msgspec.structs.replace(query, limit=_PAGE_SIZE)
    while True:
        page = store.records(query)
        yield from page
        told(len(page))
        if len(page) < _PAGE_SIZE:
            return
        query = msgspec.structs.replace(query, after=page[-1].key)


def read_audit(store: Store, *, after: int = 0) -> Iterator[AuditEntry]:
    """Yield the audit behind a number, oldest first."""
    while True:
        page = store.audit(after=after, limit=_PAGE_SIZE)
        yield from page
        if len(page) < _PAGE_SIZE:
            return
        after = page[-1].number


def find_late_effects(store: Store) -> dict[str, frozenset[str]]:
    """Return key to the references of completions that came after their claim was lost."""
    found: dict[str, frozenset[str]] = {}
    for entry in read_audit(store):
        if entry.kind == "late_effect":
            reference = str(entry.data.get("reference") or "").strip()
            found[entry.subject] = found.get(entry.subject, frozenset()) | {reference}
    return found


def was_pruned(store: Store) -> bool:
    """Whether effects were pruned: an effect that is missing from the ledger may be one of them."""
    return any(entry.kind == "pruned" and entry.data["records"] for entry in read_audit(store))


def join_rows(
    store: Store,
    aside: BusinessRows,
    wanted: ReconcileQuery,
    times: ReconcileTimes,
    told: Callable[[int], None] = lambda _: None,
) -> Iterator[Comparison]:
    """Yield the comparison of every key, the ledger's first, then those of the business only.

    Args:
        store: the ledger.
        aside: the business rows.
        wanted: which effects to compare.
        times: until when.
        told: called with the number of records read.
    """
    late = find_late_effects(store)
    # A row without a key may belong to a record that is older than wanted: then older ones are read as well.
    query = RecordQuery(tool=wanted.tool, since=None if aside.has_keyless_rows else wanted.since)
    for found in read_records(store, query, told):
        record = msgspec.structs.replace(found, reference=found.reference.strip())  # as in the rows
        rows = aside.take_rows(record)
        if wanted.matches(record):
            yield _compare_rows(store, record.key, record, rows, wanted, times, late)
    for key, rows in aside.unmatched_rows():
        mine = tuple(row for row in rows if wanted.tool is None or row.tool in ("", wanted.tool))
        if mine and (not key or store.record(key) is None):
            yield _compare_rows(store, key, None, mine, wanted, times, late)


def _compare_rows(
    store: Store,
    key: str,
    record: Record | None,
    rows: tuple[BusinessRow, ...],
    wanted: ReconcileQuery,
    times: ReconcileTimes,
    late: Mapping[str, frozenset[str]],
) -> Comparison:
    amount = None
    if record is not None and record.state == "completed" and any(row.amount for row in rows):
        whole = store.record(key)  # pages come without outputs
        amount = recorded_amount(whole.output if whole else None, wanted.amount_at)
    known = late.get(key, frozenset[str]())
    first = compare_key(key, record, rows, times, late=known, amount=amount)
    if first.kind in AGREEING_KINDS:
        return first
    # Few keys come this far, so looking for undoings costs little.
    names = {row.reference for row in rows if row.reference}
    undone = {name for name in names if is_explained_by_undoing(store.record(undoing_key(key, name)), None, 1)}
    if key and is_explained_by_undoing(
        store.record(undoing_key(key)), record, sum(row.reference not in undone for row in rows)
    ):
        undone.add("")
    return compare_key(key, record, rows, times, late=known, undone=undone, amount=amount) if undone else first
