"""What people look through: pages of effects, questions, runs and audit lines, and the figures of an overview.

Every page begins behind the last row of the one before it, so that a row costs the same on every page.

In: filters, and where a page begins.
Out: the values that a store returns for them.
Never: a rule about what a row means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from pokayoke.core.ledger.admission import Approval
from pokayoke.core.ledger.records import Record, RecordState
from pokayoke.core.state.run_state import RunState
from pokayoke.stores.values import AuditEntry, EntryKind

PAGE: Final = 50
"""Rows of a page."""
MOST_COUNTED: Final = 10_000
"""Counting ends one above this: "more than 10,000" says enough, and a count of everything costs too much."""
TREND_POINTS: Final = 13
TREND_STEP: Final = 300.0
"""Seconds between two points of a trend; all of them together cover an hour."""


class EffectFilter(msgspec.Struct, frozen=True, gc=False):
    """Which effects a page shows, the latest claim first. Empty fields do not restrict.

    Args:
        states: only these states.
        doubtful_at: only what a person may settle at this wall-clock second; the longest wait comes first.
        tool: only this tool.
        run_id: only this run.
        key: only keys that begin like this.
        since: claimed at or after this wall-clock second.
        until: claimed before this wall-clock second.
        after: time of the claim and key of the last row of the page before.
        limit: how many at most.
    """

    states: tuple[RecordState, ...] = ()
    doubtful_at: float | None = None
    tool: str | None = None
    run_id: str | None = None
    key: str | None = None
    since: float | None = None
    until: float | None = None
    after: tuple[float, str] | None = None
    limit: int = PAGE

    @property
    def is_oldest_first(self) -> bool:
        """Whether the longest wait comes first."""
        return self.doubtful_at is not None


class AuditFilter(msgspec.Struct, frozen=True, gc=False):
    """Which audit lines a page shows, the latest first. Empty fields do not restrict.

    Args:
        kinds: only these kinds.
        subjects: only lines about these.
        before: the number of the last row of the page before.
        limit: how many at most.
    """

    kinds: tuple[EntryKind, ...] = ()
    subjects: tuple[str, ...] = ()
    before: int | None = None
    limit: int = PAGE


class RunEntry(msgspec.Struct, frozen=True, gc=False):
    """A run in a list.

    Args:
        state: its stored state.
        touched_at: wall-clock second of its last change.
    """

    state: RunState
    touched_at: float


class RunFilter(msgspec.Struct, frozen=True, gc=False):
    """Which stored runs a page shows, the latest change first. Empty fields do not restrict.

    Args:
        modes: only runs in these modes, ladder and latch taken together.
        run_ids: only these runs.
        after: time of the last change and id of the last row of the page before.
        limit: how many at most.
    """

    modes: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()
    after: tuple[float, str] | None = None
    limit: int = PAGE


class Trend(msgspec.Struct, frozen=True, gc=False):
    """A number over the last hour.

    Args:
        points: its values, the latest last; counting ends at `MOST_COUNTED` + 1.
        oldest: wall-clock second at which the oldest of what is counted now began, or None.
    """

    points: tuple[int, ...] = (0,) * TREND_POINTS
    oldest: float | None = None

    @property
    def now(self) -> int:
        """The latest value."""
        return self.points[-1]


class Overview(msgspec.Struct, frozen=True, gc=False):
    """The figures that say whether a person is needed.

    Args:
        questions: questions that wait.
        doubts: effects that a person may settle.
        modes: by mode but `normal`, runs that changed within a day.
    """

    questions: Trend
    doubts: Trend
    modes: dict[str, Trend]


class Pulse(msgspec.Struct, frozen=True, gc=False):
    """What changes with every change that a page shows.

    Args:
        questions: questions that wait, counted up to `MOST_COUNTED` + 1.
        doubts: effects that a person may settle, counted as far.
        mark: changes with every claim, settlement, question, answer and flipped switch.
    """

    questions: int
    doubts: int
    mark: tuple[float, ...]


def trend_times(now: float) -> tuple[float, ...]:
    """Return the wall-clock seconds of a trend's points, the latest last."""
    return tuple(now - TREND_STEP * (TREND_POINTS - 1 - number) for number in range(TREND_POINTS))


# -- the same without a database, for stores that have none ----------------------------------------


def select_effects(records: Iterable[Record], wanted: EffectFilter) -> tuple[Record, ...]:
    """Return a page of effects, without their outputs."""
    found = [record for record in records if _is_wanted(record, wanted)]
    found.sort(key=_effect_place, reverse=not wanted.is_oldest_first)
    return tuple(msgspec.structs.replace(record, output=None) for record in found[: max(wanted.limit, 0)])


def count_effects(records: Iterable[Record], wanted: EffectFilter) -> int:
    """Return how many effects a filter finds, up to `MOST_COUNTED` + 1; where its page begins does not count."""
    every = msgspec.structs.replace(wanted, after=None)
    return min(sum(_is_wanted(record, every) for record in records), MOST_COUNTED + 1)


def select_waiting(
    approvals: Iterable[Approval], now: float, after: tuple[float, str] | None, limit: int
) -> tuple[Approval, ...]:
    """Return a page of waiting questions; the one that expires first comes first."""
    found = [one for one in approvals if one.status == "waiting" and one.expires_at > now]
    found.sort(key=question_place)
    return tuple(one for one in found if after is None or question_place(one) > after)[: max(limit, 0)]


def select_lines(entries: Iterable[AuditEntry], wanted: AuditFilter) -> tuple[AuditEntry, ...]:
    """Return a page of audit lines."""
    found = [
        entry
        for entry in entries
        if (not wanted.kinds or entry.kind in wanted.kinds)
        and (not wanted.subjects or entry.subject in wanted.subjects)
        and (wanted.before is None or entry.number < wanted.before)
    ]
    return tuple(sorted(found, key=lambda entry: -entry.number)[: max(wanted.limit, 0)])


def select_runs(runs: Iterable[RunEntry], wanted: RunFilter) -> tuple[RunEntry, ...]:
    """Return a page of runs."""
    found = [
        run
        for run in runs
        if (not wanted.modes or run.state.effective_mode in wanted.modes)
        and (not wanted.run_ids or run.state.run_id in wanted.run_ids)
        and (wanted.after is None or run_place(run) < wanted.after)
    ]
    return tuple(sorted(found, key=run_place, reverse=True)[: max(wanted.limit, 0)])


def build_overview(
    approvals: Iterable[Approval], records: Iterable[Record], runs: Iterable[RunEntry], now: float
) -> Overview:
    """Return the figures of an overview."""
    times = trend_times(now)
    asked = [(one.asked_at, _question_end(one)) for one in approvals if one.expires_at > times[0]]
    open_effects = [
        (record.claimed_at, now + 1.0 if record.is_doubtful(now) else record.settled_at or 0.0)
        for record in records
        if record.is_doubtful(now) or (record.decided_by and (record.settled_at or 0.0) > times[0])
    ]
    modes: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        if run.state.effective_mode != "normal" and run.touched_at > now - 86_400.0:
            modes.setdefault(run.state.effective_mode, []).append((run.touched_at, now + 1.0))
    return Overview(
        _count_spans(asked, times),
        _count_spans(open_effects, times),
        {mode: _count_spans(spans, times) for mode, spans in sorted(modes.items())},
    )


def question_place(approval: Approval) -> tuple[float, str]:
    """Return what waiting questions are ordered by."""
    return approval.expires_at, approval.fingerprint


def run_place(run: RunEntry) -> tuple[float, str]:
    """Return what runs are ordered by."""
    return run.touched_at, run.state.run_id


def _effect_place(record: Record) -> tuple[float, str]:
    return record.claimed_at, record.key


def _question_end(approval: Approval) -> float:
    return approval.expires_at if approval.decided_at is None else min(approval.decided_at, approval.expires_at)


def _is_wanted(record: Record, wanted: EffectFilter) -> bool:
    place = _effect_place(record)
    return (
        (not wanted.states or record.state in wanted.states)
        and (wanted.doubtful_at is None or record.is_doubtful(wanted.doubtful_at))
        and wanted.tool in (None, record.tool)
        and wanted.run_id in (None, record.run_id)
        and (wanted.key is None or record.key.startswith(wanted.key))
        and (wanted.since is None or record.claimed_at >= wanted.since)
        and (wanted.until is None or record.claimed_at < wanted.until)
        and (wanted.after is None or (place > wanted.after if wanted.is_oldest_first else place < wanted.after))
    )


def _count_spans(spans: Iterable[tuple[float, float]], times: tuple[float, ...]) -> Trend:
    def count_at(at: float) -> Iterator[float]:
        return (begin for begin, end in spans if begin <= at < end)

    spans = tuple(spans)
    return Trend(tuple(sum(1 for _ in count_at(at)) for at in times), min(count_at(times[-1]), default=None))
