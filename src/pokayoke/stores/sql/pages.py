"""The statements of lists and overviews: pages that begin behind a row, counts with an end, trends in one row.

In: filters of `stores/lists.py`.
Out: statements, and the values of their rows.
Never: an OFFSET, a count without an end, or a value inside the SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from pokayoke.core.ledger.records import MAX_CLOCK_SKEW, OPEN
from pokayoke.core.state.kill_switch import OutputRate, Switch
from pokayoke.stores.lists import (
    MOST_COUNTED,
    TREND_POINTS,
    AuditFilter,
    EffectFilter,
    Overview,
    Pulse,
    RunFilter,
    Trend,
    trend_times,
)
from pokayoke.stores.sql.dialect import Statement
from pokayoke.stores.sql.rows import (
    APPROVAL_COLUMNS,
    ENTRY_COLUMNS,
    RECORD_COLUMNS,
    Row,
    encode_text,
    parse_rate,
    parse_switch,
)

_DAY: Final = 86_400.0
_HEX_END: Final = "g"
"""Sorts behind every key that begins alike, since keys are hexadecimal digits."""
_EFFECT: Final = ", ".join("NULL" if name == "output" else name for name in RECORD_COLUMNS)
_QUESTION: Final = ", ".join(APPROVAL_COLUMNS)
_LINE: Final = ", ".join(ENTRY_COLUMNS)
_OPEN: Final = ", ".join(f"'{state}'" for state in OPEN)
# The middle condition is redundant: it selects the partial index.
_DOUBTFUL: Final = (
    f"state IN ({_OPEN}) AND state <> 'completed' AND (state = 'in_doubt' OR lease_until <= ? OR claimed_at > ?)"
)
_WAITING: Final = "status = 'waiting' AND expires_at > ?"
_STATUSES: Final = "'waiting', 'approved', 'used', 'denied', 'expired'"
_MODES: Final = ("safe_mode", "final_answer", "stopped")
# What began and ended when, for a trend: what is open now ends later.
_ASKED: Final = (
    "SELECT asked_at AS began, COALESCE(CASE WHEN decided_at < expires_at THEN decided_at END, expires_at) AS ended "  # noqa: S608 - words from the code only
    f"FROM pokayoke_approvals WHERE status IN ({_STATUSES}) AND expires_at > ? LIMIT ?"
)
_DOUBTED: Final = (
    "SELECT began, ended FROM (SELECT claimed_at AS began, CAST(? AS DOUBLE PRECISION) AS ended FROM pokayoke_records "  # noqa: S608 - as above
    f"WHERE {_DOUBTFUL} LIMIT ?) AS open_now UNION ALL SELECT began, ended FROM (SELECT claimed_at AS began, "
    "settled_at AS ended FROM pokayoke_records WHERE settled_at > ? AND decided_by <> '' LIMIT ?) AS decided"
)
_CHANGED: Final = (
    "SELECT touched_at AS began, CAST(? AS DOUBLE PRECISION) AS ended FROM pokayoke_runs "
    "WHERE mode = ? AND touched_at > ? LIMIT ?"
)
_POINTS: Final = ", ".join(["SUM(CASE WHEN began <= ? AND ended > ? THEN 1 ELSE 0 END)"] * TREND_POINTS)


def select_effects(wanted: EffectFilter) -> Statement:
    """Return the statement for a page of effects, for `rows.parse_record`."""
    conditions, values = _effect_conditions(wanted)
    order, sign = ("", ">") if wanted.is_oldest_first else (" DESC", "<")
    if wanted.after is not None:
        conditions.append(f"(claimed_at, key) {sign} (?, ?)")
        values += wanted.after
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    sql = f"SELECT {_EFFECT} FROM pokayoke_records{where} ORDER BY claimed_at{order}, key{order} LIMIT ?"  # noqa: S608 - values are bound
    return sql, (*values, max(wanted.limit, 0))


def count_effects(wanted: EffectFilter) -> Statement:
    """Return the statement that counts effects, and ends one above `MOST_COUNTED`."""
    conditions, values = _effect_conditions(wanted)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    sql = f"SELECT count(*) FROM (SELECT 1 FROM pokayoke_records{where} LIMIT ?) AS counted"  # noqa: S608 - as above
    return sql, (*values, MOST_COUNTED + 1)


def _effect_conditions(wanted: EffectFilter) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []
    if wanted.states:
        conditions.append(f"state IN ({', '.join('?' * len(wanted.states))})")
        values += wanted.states
        if "completed" not in wanted.states:
            conditions.append("state <> 'completed'")  # redundant, but it lets the database use the partial index
    if wanted.doubtful_at is not None:
        conditions.append(_DOUBTFUL)
        values += _doubt_times(wanted.doubtful_at)
    if wanted.key is not None:
        conditions.append("key >= ? AND key < ?")
        values += (wanted.key, wanted.key + _HEX_END)
    for condition, value in (
        ("tool = ?", wanted.tool),
        ("run_id = ?", wanted.run_id),
        ("claimed_at >= ?", wanted.since),
        ("claimed_at < ?", wanted.until),
    ):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    return conditions, values


def _doubt_times(now: float) -> tuple[float, float]:
    """Return the values of `_DOUBTFUL`: a lease is over, or its clock was far ahead."""
    return now, now + MAX_CLOCK_SKEW


def select_waiting(now: float, after: tuple[float, str] | None, limit: int) -> Statement:
    """Return the statement for a page of waiting questions, for `rows.parse_for_listing`."""
    more, values = ("", ()) if after is None else (" AND (expires_at, fingerprint) > (?, ?)", after)
    sql = f"SELECT {_QUESTION} FROM pokayoke_approvals WHERE {_WAITING}{more} ORDER BY expires_at, fingerprint LIMIT ?"  # noqa: S608 - as above
    return sql, (now, *values, max(limit, 0))


def select_lines(wanted: AuditFilter) -> Statement:
    """Return the statement for a page of audit lines, for `rows.parse_entry`."""
    conditions: list[str] = []
    values: list[Any] = []
    for column, some in (("kind", wanted.kinds), ("subject", tuple(map(encode_text, wanted.subjects)))):
        if some:
            conditions.append(f"{column} IN ({', '.join('?' * len(some))})")
            values += some
    if wanted.before is not None:
        conditions.append("number < ?")
        values.append(wanted.before)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    sql = f"SELECT {_LINE} FROM pokayoke_audit{where} ORDER BY number DESC LIMIT ?"  # noqa: S608 - as above
    return sql, (*values, max(wanted.limit, 0))


def select_runs(wanted: RunFilter) -> Statement:
    """Return the statement for a page of runs, for `rows.parse_run_entry`."""
    conditions: list[str] = []
    values: list[Any] = []
    for column, some in (("mode", wanted.modes), ("run_id", wanted.run_ids)):
        if some:
            conditions.append(f"{column} IN ({', '.join('?' * len(some))})")
            values += some
    if wanted.after is not None:
        conditions.append("(touched_at, run_id) < (?, ?)")
        values += wanted.after
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    sql = f"SELECT body, touched_at FROM pokayoke_runs{where} ORDER BY touched_at DESC, run_id DESC LIMIT ?"  # noqa: S608 - as above
    return sql, (*values, max(wanted.limit, 0))


def select_overview(now: float) -> Statement:
    """Return the statement for an overview, for `parse_overview`: a row for each number, with its trend."""
    times = trend_times(now)
    points = [value for at in times for value in (at, at)]
    later = now + 1.0
    # What is open now ends later; of what a person has settled within the hour, the end is known.
    sources: list[tuple[str, str, list[Any]]] = [
        (
            "questions",
            _ASKED,
            [times[0], MOST_COUNTED + 1],
        ),
        (
            "doubts",
            _DOUBTED,
            [later, *_doubt_times(now), MOST_COUNTED + 1, times[0], MOST_COUNTED + 1],
        ),
        *(
            (
                mode,
                _CHANGED,
                [later, mode, now - _DAY, MOST_COUNTED + 1],
            )
            for mode in _MODES
        ),
    ]
    sql = " UNION ALL ".join(
        f"SELECT '{name}', MIN(CASE WHEN began <= ? AND ended > ? THEN began END), {_POINTS} FROM ({source}) AS {name}"  # noqa: S608 - as above
        for name, source, _ in sources
    )
    return sql, tuple(value for _, _, own in sources for value in (now, now, *points, *own))


def parse_overview(found: Iterable[Row]) -> Overview:
    """Return the overview of the rows of `select_overview`."""
    trends = {str(row[0]): _parse_trend(row[1:]) for row in found}
    modes = {mode: trends[mode] for mode in sorted(_MODES) if any(trends[mode].points)}
    return Overview(trends["questions"], trends["doubts"], modes)


def _parse_trend(row: Sequence[Any]) -> Trend:
    oldest, *points = row
    return Trend(
        tuple(min(int(point or 0), MOST_COUNTED + 1) for point in points), None if oldest is None else float(oldest)
    )


def select_board() -> Statement:
    """Return the statement for all switches and rates, for `parse_board`."""
    return (
        "SELECT body, scope AS name, 0 AS kind FROM pokayoke_switches UNION ALL "
        "SELECT body, tool, 1 FROM pokayoke_rates ORDER BY kind, name"
    ), ()


def parse_board(found: Sequence[Row]) -> tuple[tuple[Switch, ...], tuple[OutputRate, ...]]:
    """Return the switches and the rates of the rows of `select_board`."""
    return tuple(parse_switch(row) for row in found if row[2] == 0), tuple(
        parse_rate(row) for row in found if row[2] == 1
    )


def select_pulse(now: float) -> Statement:
    """Return the statement for a pulse, for `parse_pulse`. Each part looks at one end of an index."""
    sql = (
        f"SELECT (SELECT count(*) FROM (SELECT 1 FROM pokayoke_approvals WHERE {_WAITING} LIMIT ?) AS waiting), "  # noqa: S608 - as above
        f"(SELECT count(*) FROM (SELECT 1 FROM pokayoke_records WHERE {_DOUBTFUL} LIMIT ?) AS doubtful), "
        "(SELECT MAX(number) FROM pokayoke_audit), (SELECT MAX(claimed_at) FROM pokayoke_records), "
        "(SELECT MAX(settled_at) FROM pokayoke_records WHERE settled_at IS NOT NULL), "
        "(SELECT MAX(touched_at) FROM pokayoke_runs), "
        f"(SELECT SUM(asked_at) FROM (SELECT asked_at FROM pokayoke_approvals WHERE {_WAITING} LIMIT 100) AS asked)"
    )
    return sql, (now, MOST_COUNTED + 1, *_doubt_times(now), MOST_COUNTED + 1, now)


def parse_pulse(row: Row) -> Pulse:
    """Return the pulse of the row of `select_pulse`."""
    questions, doubts, *mark = row
    return Pulse(int(questions), int(doubts), tuple(float(value or 0.0) for value in mark))
