"""The statements that read, lock and write the rows of an operation.

A statement names rows by their keys and holds no rule: the core decides, while the store keeps other
sessions away from what `required_locks` names (SQLite: from everything).

In: what an operation reads, and what it writes.
Out: statements for one transaction.
Never: a decision.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, Final

import msgspec

from pokayoke.core.ledger.admission import Approval
from pokayoke.core.ledger.records import Record
from pokayoke.core.state.kill_switch import SwitchState
from pokayoke.stores.encryption import Seal
from pokayoke.stores.operations import ReadRows, ReadSet, WriteSet, find_unique
from pokayoke.stores.sql import rows
from pokayoke.stores.sql.dialect import Statement
from pokayoke.stores.sql.rows import APPROVAL_COLUMNS, ENTRY_COLUMNS, RECORD_COLUMNS, Row


class AdvisoryLock(msgspec.Struct, frozen=True, gc=False):
    """A lock that an operation holds while it decides.

    Args:
        name: of the thing that is locked.
        shared: True if other operations may read it at the same time.
    """

    name: str
    shared: bool = False

    @property
    def lock_key(self) -> int:
        """The name as a signed 64-bit integer. Two names with the same integer wait for each other."""
        return _lock_key(self.name)


@lru_cache(maxsize=1_024)
def _lock_key(name: str) -> int:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


MIGRATION: Final = "migration"
"""The lock for changing tables; operations hold it shared, since tables can change under an open store."""


def required_locks(need: ReadSet) -> tuple[AdvisoryLock, ...]:
    """Return the locks of an operation, always in the same order, so that no two operations deadlock."""
    found: list[AdvisoryLock] = []
    if need.board != "none":
        found.append(AdvisoryLock("board", shared=need.board == "switches"))
    if need.run is not None:
        found.append(AdvisoryLock(f"run:{need.run}", shared=need.keeps_run))
    found.extend(AdvisoryLock(f"counter:{name}") for name in sorted(set(need.counters)))
    if need.fingerprint is not None or need.approval is not None:
        # An operation knows a question by its fingerprint or by its id; one lock has to cover both.
        found.append(AdvisoryLock("questions"))
    if need.record is not None:
        found.append(AdvisoryLock(f"record:{need.record}"))
    return tuple(found)


def _join_columns(names: Sequence[str]) -> str:
    return ", ".join(names)


def _insert_sql(table: str, names: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({_join_columns(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608 - names from the code only


def _upsert_sql(table: str, names: Sequence[str]) -> str:
    sets = ", ".join(f"{name} = excluded.{name}" for name in names[1:])
    return f"{_insert_sql(table, names)} ON CONFLICT ({names[0]}) DO UPDATE SET {sets}"


_KEY_FIRST: Final = ("fingerprint", *(name for name in APPROVAL_COLUMNS if name != "fingerprint"))
_SETTLEMENT_COLUMNS: Final = (
    "state", "lease_until", "resolver", "dead_since", "settled_at", "output", "output_ok", "failure", "reference",
    "decided_by",
)  # fmt: skip
# The columns a settlement writes, the key last; and those it leaves alone.
_settlement_values: Final[Callable[[Row], tuple[Any, ...]]] = itemgetter(
    *map(RECORD_COLUMNS.index, (*_SETTLEMENT_COLUMNS, "key"))
)
_claim_values: Final[Callable[[Record], tuple[Any, ...]]] = attrgetter(
    *(name for name in RECORD_COLUMNS if name not in _SETTLEMENT_COLUMNS)
)

READ_RECORD: Final = f"SELECT {_join_columns(RECORD_COLUMNS)} FROM pokayoke_records WHERE key = ?"  # noqa: S608 - as above
READ_RUN: Final = "SELECT body FROM pokayoke_runs WHERE run_id = ?"
READ_COUNTER: Final = "SELECT calls, amount FROM pokayoke_counters WHERE name = ?"
READ_QUESTION: Final = f"SELECT {_join_columns(APPROVAL_COLUMNS)} FROM pokayoke_approvals WHERE fingerprint = ?"  # noqa: S608 - as above
READ_QUESTION_BY_ID: Final = f"SELECT {_join_columns(APPROVAL_COLUMNS)} FROM pokayoke_approvals WHERE id = ?"  # noqa: S608 - as above
READ_SWITCHES: Final = "SELECT body FROM pokayoke_switches ORDER BY scope"
READ_RATES: Final = "SELECT body FROM pokayoke_rates ORDER BY tool"
# The second condition is redundant: it selects the partial index.
READ_DOUBTFUL: Final = "SELECT tool FROM pokayoke_records WHERE state = 'in_doubt' AND state <> 'completed'"

WRITE_RECORD: Final = _upsert_sql("pokayoke_records", RECORD_COLUMNS)
# Fails if the record exists, and takes a third less time than the upsert.
WRITE_NEW_RECORD: Final = _insert_sql("pokayoke_records", RECORD_COLUMNS)
SETTLE_RECORD: Final = f"UPDATE pokayoke_records SET {' = ?, '.join(_SETTLEMENT_COLUMNS)} = ? WHERE key = ?"  # noqa: S608 - as above
WRITE_RUN: Final = _upsert_sql("pokayoke_runs", ("run_id", "body", "touched_at", "mode"))
WRITE_COUNTER: Final = _upsert_sql("pokayoke_counters", ("name", "calls", "amount", "touched_at"))
WRITE_QUESTION: Final = _upsert_sql("pokayoke_approvals", _KEY_FIRST)
WRITE_SWITCH: Final = _upsert_sql("pokayoke_switches", ("scope", "body"))
WRITE_RATE: Final = _upsert_sql("pokayoke_rates", ("tool", "body"))
WRITE_ENTRY: Final = _insert_sql("pokayoke_audit", ENTRY_COLUMNS[:-1])


def read_statements(need: ReadSet) -> tuple[Statement, ...]:
    """Return the statements that read what an operation needs; `parse_rows` takes their rows in that order."""
    found: list[Statement] = []
    if need.record is not None:
        found.append((READ_RECORD, (need.record,)))
    if need.run is not None:
        found.append((READ_RUN, (need.run,)))
    found.extend((READ_COUNTER, (name,)) for name in need.counters)
    if need.fingerprint is not None:
        found.append((READ_QUESTION, (need.fingerprint,)))
    elif need.approval is not None:
        found.append((READ_QUESTION_BY_ID, (need.approval,)))
    if need.board != "none":
        found.append((READ_SWITCHES, ()))
    if need.board == "all":
        found.append((READ_RATES, ()))
        found.append((READ_DOUBTFUL, ()))
    return tuple(found)


def parse_rows(need: ReadSet, results: Sequence[Sequence[Row]], seal: Seal) -> ReadRows:
    """Return the values from the rows of `read_statements(need)`.

    Args:
        need: of the operation.
        results: the rows of each statement, in the order of the statements.
        seal: opens outputs and arguments.

    Raises:
        StoreError: a value cannot be opened or read, or an id names several questions.
    """
    left: Iterator[Sequence[Row]] = iter(results)
    record = run = approval = None
    if need.record is not None and (found := next(left)):
        record = rows.parse_record(found[0], seal)
    if need.run is not None and (found := next(left)):
        run = rows.parse_run(found[0])
    used = {name: rows.parse_usage(found[0]) for name in need.counters if (found := next(left))}
    if need.fingerprint is not None or need.approval is not None:
        asked = find_unique(next(left), need.approval or "")
        approval = None if asked is None else rows.parse_approval(asked, seal)
    if need.board == "none":
        return ReadRows(record, run, used, approval)
    switches = {switch.scope: switch for switch in map(rows.parse_switch, next(left))}
    if need.board == "switches":
        return ReadRows(record, run, used, approval, SwitchState(switches=switches))
    rates = {rate.tool: rate for rate in map(rows.parse_rate, next(left))}
    doubtful = frozenset(row[0] for row in next(left))
    return ReadRows(record, run, used, approval, SwitchState(rates, switches, doubtful))


def write_statements(changes: WriteSet, before: ReadRows, seal: Seal, now: float) -> tuple[Statement, ...]:
    """Return the statements that write the changes of an operation.

    Args:
        changes: what the operation writes.
        before: the rows it read; a record that was only settled needs less writing.
        seal: seals outputs and arguments.
        now: wall-clock second; idle runs and limits can be pruned by it.
    """
    found: list[Statement] = []
    if changes.record is not None:
        found.append(_record_statement(changes.record, before.record, seal))
    if changes.run is not None:
        run = changes.run
        found.append((WRITE_RUN, (run.run_id, rows.dump_json(run), now, run.effective_mode)))
    counters = sorted(changes.used.items())
    found.extend((WRITE_COUNTER, (name, used.calls, used.amount, now)) for name, used in counters)
    if changes.approval is not None:
        found.append((WRITE_QUESTION, _approval_row(changes.approval, seal)))
    if changes.board is not None:
        found.extend((WRITE_SWITCH, (s.scope, rows.dump_json(s))) for s in changes.board.switches.values())
        found.extend((WRITE_RATE, (r.tool, rows.dump_json(r))) for r in changes.board.rates.values())
    found.extend((WRITE_ENTRY, rows.entry_values(entry)) for entry in changes.entries)
    return tuple(found)


def _record_statement(record: Record, before: Record | None, seal: Seal) -> Statement:
    values = rows.record_values(record, seal)
    if before is None:
        return WRITE_NEW_RECORD, values
    if _claim_values(before) != _claim_values(record):
        return WRITE_RECORD, values
    return SETTLE_RECORD, _settlement_values(values)


def _approval_row(approval: Approval, seal: Seal) -> tuple[Any, ...]:
    named = dict(zip(APPROVAL_COLUMNS, rows.approval_values(approval, seal), strict=True))
    return tuple(named[name] for name in _KEY_FIRST)
