"""Bring ledger and business together, key by key, in constant memory.

The business rows are put aside first, in a temporary file that vanishes with the process. The ledger is
read after that: a claim comes before its effect, so a row without a record is no row that came too soon.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from pokayoke.core.ledger.reconcile import AGREED, Compared, Row, Times, amount_in, compare, explains, undo_key
from pokayoke.core.ledger.transitions import Record
from pokayoke.stores.base import Store
from pokayoke.stores.values import Entry, Query

_PAGE: Final = 1_000
_COLUMNS: Final = "number, key, reference, digest, amount, tool"
_TABLES: Final = f"""
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    CREATE TABLE rows ({_COLUMNS}, seen INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (number));
    CREATE INDEX rows_key ON rows (key);
    CREATE INDEX rows_reference ON rows (reference) WHERE key = '';
"""


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """What is to be reconciled.

    Args:
        tool: only effects of this tool, or None for all.
        since: only what was claimed from this wall-clock second on, or None for all.
        amount_at: JSON pointer to the sum in a recorded output.
    """

    tool: str | None = None
    since: float | None = None
    amount_at: str = "/amount"

    def includes(self, record: Record) -> bool:
        """True if a record is to be judged."""
        return self.tool in (None, record.tool) and (self.since is None or record.claimed_at >= self.since)


class Aside:
    """Business rows, found again by key or by reference."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)  # no name: a temporary file
        self._file.executescript(_TABLES)

    def close(self) -> None:
        """Let the file vanish."""
        self._file.close()

    def add(self, rows: Iterable[Row]) -> int:
        """Put rows aside. Returns how many."""
        self._file.execute("BEGIN")
        put = self._file.executemany(
            f"INSERT INTO rows ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608 - names from the code only
            ((r.number, r.key, r.reference, r.digest, r.amount, r.tool) for r in rows),
        )
        self._file.execute("COMMIT")
        return max(0, put.rowcount)

    @property
    def keyless(self) -> bool:
        """True if any row is found by its reference only."""
        return self._file.execute("SELECT 1 FROM rows WHERE key = '' LIMIT 1").fetchone() is not None

    def taken(self, record: Record) -> tuple[Row, ...]:
        """The rows of a record; they count as seen. One without a key belongs to one record, of its own tool."""
        found = self._rows("key = ?", record.key)
        if record.reference:
            mine = "key = '' AND reference = ? AND seen = 0 AND tool IN ('', ?)"
            found += self._rows(mine, record.reference, record.tool)
        self._file.executemany("UPDATE rows SET seen = 1 WHERE number = ?", ((row.number,) for row in found))
        return tuple(found)

    def left(self) -> Iterator[tuple[str, tuple[Row, ...]]]:
        """The rows that no record took, by key; those without one each for itself."""
        group: list[Row] = []
        condition = "seen = 0 ORDER BY key, number"
        for values in self._file.execute(f"SELECT {_COLUMNS} FROM rows WHERE {condition}"):  # noqa: S608 - as above
            row = Row(*values)
            if group and (not row.key or row.key != group[0].key):
                yield group[0].key, tuple(group)
                group = []
            group.append(row)
        if group:
            yield group[0].key, tuple(group)

    def _rows(self, condition: str, *values: str) -> list[Row]:
        sql = f"SELECT {_COLUMNS} FROM rows WHERE {condition} ORDER BY number"  # noqa: S608 - as above
        return [Row(*found) for found in self._file.execute(sql, values)]


def pages(store: Store, query: Query, told: Callable[[int], None] = lambda _: None) -> Iterator[Record]:
    """All records of a query, in the order of their keys; `told` hears how many came with each page."""
    query = msgspec.structs.replace(query, limit=_PAGE)
    while True:
        page = store.records(query)
        yield from page
        told(len(page))
        if len(page) < _PAGE:
            return
        query = msgspec.structs.replace(query, after=page[-1].key)


def entries(store: Store) -> Iterator[Entry]:
    """The whole audit, oldest first."""
    after = 0
    while True:
        page = store.audit(after=after, limit=_PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].number


def late_effects(store: Store) -> dict[str, frozenset[str]]:
    """Key to the references of completions that came after their claim was lost."""
    found: dict[str, frozenset[str]] = {}
    for entry in entries(store):
        if entry.kind == "late_effect":
            reference = str(entry.data.get("reference") or "").strip()
            found[entry.subject] = found.get(entry.subject, frozenset()) | {reference}
    return found


def forgets(store: Store) -> bool:
    """Whether effects were pruned: what is not in the ledger may have been."""
    return any(entry.kind == "pruned" and entry.data["records"] for entry in entries(store))


def joined(
    store: Store, aside: Aside, wanted: Wanted, times: Times, told: Callable[[int], None] = lambda _: None
) -> Iterator[Compared]:
    """Yield what became of every key, the ledger's first, then what only the business has.

    Args:
        store: the ledger.
        aside: the business rows.
        wanted: which effects are judged.
        times: until when.
        told: hears how many records were read.
    """
    late = late_effects(store)
    # A row without a key may belong to a record that is too old to be wanted: then those are read as well.
    query = Query(tool=wanted.tool, since=None if aside.keyless else wanted.since)
    for found in pages(store, query, told):
        record = msgspec.structs.replace(found, reference=found.reference.strip())  # as those of the rows are
        rows = aside.taken(record)
        if wanted.includes(record):
            yield _judged(store, record.key, record, rows, wanted, times, late)
    for key, rows in aside.left():
        mine = tuple(row for row in rows if wanted.tool is None or row.tool in ("", wanted.tool))
        if mine and (not key or store.record(key) is None):
            yield _judged(store, key, None, mine, wanted, times, late)


def _judged(
    store: Store,
    key: str,
    record: Record | None,
    rows: tuple[Row, ...],
    wanted: Wanted,
    times: Times,
    late: Mapping[str, frozenset[str]],
) -> Compared:
    amount = None
    if record is not None and record.state == "completed" and any(row.amount for row in rows):
        whole = store.record(key)  # pages come without outputs
        amount = amount_in(whole.output if whole else None, wanted.amount_at)
    known = late.get(key, frozenset[str]())
    first = compare(key, record, rows, times, late=known, amount=amount)
    if first.kind in AGREED:
        return first
    # Few keys come this far, so asking what was undone costs little.
    names = {row.reference for row in rows if row.reference}
    undone = {name for name in names if explains(store.record(undo_key(key, name)), None, 1)}
    if key and explains(store.record(undo_key(key)), record, sum(row.reference not in undone for row in rows)):
        undone.add("")
    return compare(key, record, rows, times, late=known, undone=undone, amount=amount) if undone else first
