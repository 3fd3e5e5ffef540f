"""Queries of people and reports, and the statements that prune a ledger.

In: keys, `RecordQuery`, wall-clock seconds.
Out: statements for a store to run.
Never: a value inside the SQL, or the deletion of an open record.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Final

from pokayoke.core.ledger.records import SETTLED, RecordState
from pokayoke.stores.sql import rows
from pokayoke.stores.sql.dialect import Dialect, Statement
from pokayoke.stores.sql.rows import APPROVAL_COLUMNS, ENTRY_COLUMNS, RECORD_COLUMNS, Row
from pokayoke.stores.sql.statements import (
    READ_QUESTION_BY_ID,
    READ_RATES,
    READ_RECORD,
    READ_RUN,
    READ_SWITCHES,
    WRITE_ENTRY,
)
from pokayoke.stores.values import AuditEntry, RecordQuery

CHUNK: Final = 500
"""Records that are deleted in one transaction, so that no other transaction waits long."""

_FORGETTABLE: Final = ", ".join(f"'{state}'" for state in SETTLED)
# Without outputs: they are long, and listing needs no key.
_LISTED: Final = ", ".join("NULL" if name == "output" else name for name in RECORD_COLUMNS)
_QUESTIONS: Final = f"SELECT {', '.join(APPROVAL_COLUMNS)} FROM pokayoke_approvals ORDER BY asked_at, fingerprint"  # noqa: S608 - names from the code only
_AUDIT: Final = f"SELECT {', '.join(ENTRY_COLUMNS)} FROM pokayoke_audit WHERE number > ? ORDER BY number LIMIT ?"  # noqa: S608 - as above
_PRUNE_QUESTIONS: Final = "DELETE FROM pokayoke_approvals WHERE COALESCE(decided_at, expires_at) < ?"
_PRUNE_DAYS: Final = (
    "DELETE FROM pokayoke_counters WHERE touched_at < ? "
    "AND (substr(name, 1, 4) = 'day:' OR substr(name, 1, 9) = 'user_day:')"
)
_PRUNE_COUNTER: Final = "DELETE FROM pokayoke_counters WHERE touched_at < ? AND name = ?"
_COUNTERS_OF_RUNS: Final = "SELECT name FROM pokayoke_counters WHERE touched_at < ? AND substr(name, 1, 4) = 'run:'"
_RUNS: Final = "SELECT run_id FROM pokayoke_runs UNION SELECT run_id FROM pokayoke_records"
# Quotes in texts are escaped, so these words in a body are always the field itself.
_STOPPED, _NO_TAINTS = '%"mode":"stopped"%', '%"taints":[]%'
_PRUNE_RUNS: Final = (
    "DELETE FROM pokayoke_runs WHERE touched_at < ? AND body NOT LIKE ? AND body LIKE ? AND NOT EXISTS "
    "(SELECT 1 FROM pokayoke_records WHERE pokayoke_records.run_id = pokayoke_runs.run_id)"
)
_DAY: Final = 86_400.0


def select_record(key: str) -> Statement:
    """Return the statement for one record, for `rows.select_record`."""
    return READ_RECORD, (key,)


def select_run(run_id: str) -> Statement:
    """Return the statement for the state of one run, for `rows.run`."""
    return READ_RUN, (run_id,)


def select_approvals() -> Statement:
    """Return the statement for all questions, oldest first, for `rows.listed`."""
    return _QUESTIONS, ()


def select_approval(approval_id: str) -> Statement:
    """Return the statement for one question, for `rows.select_approval`."""
    return READ_QUESTION_BY_ID, (approval_id,)


def select_switches() -> Statement:
    """Return the statement for all switches by scope, for `rows.switch`."""
    return READ_SWITCHES, ()


def select_rates() -> Statement:
    """Return the statement for all rates by tool, for `rows.rate`."""
    return READ_RATES, ()


def select_audit(after: int, limit: int) -> Statement:
    """Return the statement for a page of the audit, for `rows.entry`."""
    return _AUDIT, (after, max(limit, 0))


def select_records(query: RecordQuery) -> Statement:
    """Return the statement for records by key without outputs, for `rows.select_record`."""
    conditions: list[str] = []
    values: list[Any] = []
    if query.states:
        states: tuple[RecordState, ...] = tuple(sorted(set(query.states)))
        conditions.append(f"state IN ({', '.join('?' * len(states))})")
        values.extend(states)
        if "completed" not in states:
            conditions.append("state <> 'completed'")  # redundant, but it lets the database use the partial index
    for condition, value in (
        ("tool = ?", query.tool),
        ("run_id = ?", query.run_id),
        ("claimed_at >= ?", query.since),
        ("claimed_at < ?", query.until),
        ("key > ?", query.after),
    ):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    sql = f"SELECT {_LISTED} FROM pokayoke_records{where} ORDER BY key LIMIT ?"  # noqa: S608 - values are bound
    return sql, (*values, max(query.limit, 0))


def prune_records(before: float, dialect: Dialect) -> Statement:
    """Return the statement that deletes up to `CHUNK` records; repeat it until it finds fewer."""
    sql = (
        "DELETE FROM pokayoke_records WHERE key IN (SELECT key FROM pokayoke_records "  # noqa: S608 - words from the code only
        f"WHERE settled_at < ? AND state IN ({_FORGETTABLE}) LIMIT ?{dialect.skip_locked})"
    )
    return sql, (before, CHUNK)


def audit_pruned(before: float, records: int, *, by: str, now: float) -> Statement:
    """Return the statement that records in the audit how many records were deleted, for the same transaction."""
    return WRITE_ENTRY, rows.entry_values(
        AuditEntry(now, "pruned", "ledger", by, data={"before": before, "records": records})
    )


def prune_rest(before: float, *, now: float) -> tuple[Statement, ...]:
    """Return the statements that delete old questions, limits of past days, and runs.

    A run stays as long as the ledger holds one of its records, and for good if it was stopped or is latched.
    """
    return (
        (_PRUNE_QUESTIONS, (before,)),
        (_PRUNE_DAYS, (min(before, now - _DAY),)),  # what was counted a day ago belongs to another day
        (_PRUNE_RUNS, (before, _STOPPED, _NO_TAINTS)),
    )


def select_run_counters(before: float) -> tuple[Statement, Statement]:
    """Return the statements for idle limits of runs, and for the known runs."""
    return (_COUNTERS_OF_RUNS, (before,)), (_RUNS, ())


def prune_counters(before: float, counters: Sequence[Row], runs: Sequence[Row]) -> tuple[Statement, ...]:
    """Return the statements that delete limits of deleted runs, from the rows of `select_run_counters`."""
    known = {row[0] for row in runs}
    return tuple((_PRUNE_COUNTER, (before, name)) for (name,) in counters if not _is_counter_of(name, known))


def _is_counter_of(counter: str, runs: Container[str]) -> bool:
    """Whether a limit belongs to one of these runs: it ends with the run's id, which may itself hold colons."""
    parts = counter.split(":")
    return any(":".join(parts[place:]) in runs for place in range(2, len(parts)))
