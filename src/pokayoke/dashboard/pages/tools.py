"""Tools and contracts: how often a tool is called, refused, wrong and slow, and which versions are in force.

In: the index of the trace files, the switches and rates of the store, the lock of contracts, approved listings.
Out: a row for each tool, a page of its own, a step of a rollout, an approval.
Never: a figure without the number of calls that it rests on, or a step that the command would refuse.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pokayoke.core.json.values import is_array, is_object
from pokayoke.core.state.kill_switch import ALL_TOOLS, TRIP_SHARE
from pokayoke.core.versions.lock import ContractLock, LockEntry, ToolLock, describe_versions
from pokayoke.dashboard.desk import PageDesk, VersionComparison, build_link, page_state
from pokayoke.dashboard.pages.listings import approve_shown, list_waiting_tools, view_listing
from pokayoke.dashboard.pages.now import ToolHealth, describe_tools
from pokayoke.dashboard.trace_index import RunPage, TraceIndex
from pokayoke.errors import PokayokeError
from pokayoke.runtime.versions.lock_file import read_lock

_MOST_TOOLS: Final = 200
_LATEST: Final = 20
_REFUSALS: Final = frozenset({"refuse", "stop", "ask", "refused", "pending"})
_INVALID: Final = frozenset({"invalid_output", "degraded"})


class ToolFigures(msgspec.Struct, frozen=True):
    """What the trace says of one tool.

    Args:
        calls: all of them.
        statuses: how they ended.
        refusals: refused calls by the code of their first finding.
        fixes: repairs and corrections by name.
        monitored: calls that ran in monitor mode and would be refused, by the code of the refusal.
        versions: calls by contract.
        median: half of the calls took at most so many microseconds, rounded up to a class.
        p95: nineteen of twenty took at most so many.
    """

    calls: int = 0
    statuses: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    fixes: Counter[str] = Counter()
    monitored: Counter[str] = Counter()
    versions: Counter[str] = Counter()
    median: int | None = None
    p95: int | None = None

    @property
    def refusal_count(self) -> int:
        """How many were refused."""
        return self.refusals.total()

    @property
    def invalid_count(self) -> int:
        """How many had an output that broke its contract."""
        return sum(number for status, number in self.statuses.items() if status in _INVALID)


class ToolRow(msgspec.Struct, frozen=True):
    """One tool in the list."""

    tool: str
    figures: ToolFigures
    health: ToolHealth
    locked: str


def list_tools(desk: PageDesk, request: Request) -> Response:
    """Show a row for each tool that was called, switched or locked."""
    switches, rates = desk.reads.board()
    health = {one.tool: one for one in describe_tools(switches, rates, desk.now())}
    index = desk.sources.trace
    figures = {tool: _as_figures(found) for tool, found in index.figures().items()} if index is not None else {}
    lock, problem = _read_lock(desk)
    waiting, listing_problem = list_waiting_tools(desk.sources.approved)
    names = (health.keys() | figures.keys() | lock.tools.keys()) - {ALL_TOOLS, ""}
    rows = [
        ToolRow(
            tool,
            figures.get(tool, ToolFigures()),
            health.get(tool, ToolHealth(tool, "closed", 0, 0, None)),
            describe_versions(lock.tools[tool]) if tool in lock.tools else "",
        )
        for tool in names
    ]
    rows.sort(key=lambda row: (row.health.mode == "closed", -(row.health.share or 0.0), -row.figures.calls, row.tool))
    return desk.render(
        request,
        "tools",
        title="Tools",
        pulse=desk.read_pulse(),
        rows=rows[:_MOST_TOOLS],
        hidden=max(0, len(rows) - _MOST_TOOLS),
        threshold=TRIP_SHARE,
        has_trace=index is not None,
        lock_problem=problem or listing_problem,
        waiting=waiting,
        has_lock=desk.sources.lock is not None,
        history=tuple(reversed(lock.history[-_LATEST:])),
    )


def show_tool(desk: PageDesk, request: Request) -> Response:
    """Show one tool: its figures, its switch, its versions, its latest calls."""
    return _show_one(desk, request)


def take_step(desk: PageDesk, request: Request) -> Response:
    """Promote, widen or roll back a version, judge recorded calls with both, or approve a listing."""
    state, steps, tool = page_state(request), desk.sources.steps, request.path_params["tool"]
    assert state.visitor is not None, "the gate lets nobody else decide"
    form, by = state.form, state.visitor.name
    step = form.get("step", "")
    try:
        if step == "approve":
            said = approve_shown(desk.sources.approved, tool, form, by=by, now=desk.now())
        elif steps is None:
            return _show_one(desk, request, problem="No lock of contracts is shown here.", status=409)
        elif step == "score":
            return _show_one(desk, request, scored=True)
        else:
            said = steps.take(tool, step, form.get("share", "").strip(), by=by, reason=form.get("reason", "").strip())
    except PokayokeError as error:
        return _show_one(desk, request, problem=f"Nothing was changed: {error}.", status=422)
    return desk.redirect(request, build_link(f"/tools/{tool}", done=said))


def _show_one(
    desk: PageDesk, request: Request, *, problem: str = "", status: int = 200, scored: bool = False
) -> Response:
    tool, index = request.path_params["tool"], desk.sources.trace
    compared, compare_problem = _compare_versions(desk, tool, scored=scored)
    file = desk.sources.approved
    switches, rates = desk.reads.board()
    health = {one.tool: one for one in describe_tools(switches, rates, desk.now())}
    found = index.figures(tool).get(tool, {}) if index is not None else {}
    lock, lock_problem = _read_lock(desk)
    failed = bool(request.query_params.get("failed"))
    locked: ToolLock | None = lock.tools.get(tool)
    history: tuple[LockEntry, ...] = tuple(entry for entry in reversed(lock.history) if entry.tool == tool)[:_LATEST]
    return desk.render(
        request,
        "tool",
        status=status,
        title="Tool",
        pulse=desk.read_pulse(),
        tool=tool,
        figures=_as_figures(found),
        health=health.get(tool, ToolHealth(tool, "closed", 0, 0, None)),
        threshold=TRIP_SHARE,
        calls=index.calls(None, RunPage(tool=tool, failed=failed, limit=_LATEST)) if index is not None else [],
        failed=failed,
        has_trace=index is not None,
        locked=locked,
        lock_problem=lock_problem,
        history=history,
        has_steps=desk.sources.steps is not None,
        compared=compared,
        compare_problem=compare_problem,
        listing=view_listing(file, tool),
        drifts=_find_listing_changes(index, tool) if file is None else (),
        problem=problem,
        done=request.query_params.get("done", "")[:400],
    )


def _compare_versions(desk: PageDesk, tool: str, *, scored: bool) -> tuple[VersionComparison | None, str]:
    """Return the comparison of a tool's versions, and why there is none."""
    if desk.sources.steps is None:
        return None, ""
    try:
        return desk.sources.steps.compare(tool, scored=scored), ""
    except PokayokeError as error:
        return None, str(error)


class ListingChange(msgspec.Struct, frozen=True):
    """How a server lists a tool by now, beside what was approved.

    Args:
        at: wall-clock second.
        reason: the gateway's words.
        changes: place, text before and text now.
    """

    at: float
    reason: str
    changes: tuple[tuple[str, str, str], ...]


def _find_listing_changes(index: TraceIndex | None, tool: str) -> tuple[ListingChange, ...]:
    """Return the latest change of a tool's listing that a gateway has written to the trace."""
    for one in index.reports(_LATEST, kind="contracts", tool=tool) if index is not None else ():
        event = index.read_line(one.file, one.place)[0] if index is not None and one.ok is False else None
        if event is not None and is_array(event.get("changes")):
            found = [part for part in event["changes"] if is_object(part)]
            parts = tuple((str(p.get("at", "")), str(p.get("before", "")), str(p.get("after", ""))) for p in found)
            return (ListingChange(one.ts, str(event.get("reason", "")), parts),)
    return ()


def _as_figures(found: dict[str, Counter[str]]) -> ToolFigures:
    times = found.get("us", Counter())
    return ToolFigures(
        found.get("version", Counter()).total(),
        found.get("status", Counter()),
        found.get("refusal", Counter()),
        found.get("fix", Counter()),
        found.get("monitored", Counter()),
        found.get("version", Counter()),
        find_percentile(times, 0.5),
        find_percentile(times, 0.95),
    )


def find_percentile(classes: Counter[str], share: float) -> int | None:
    """Return the upper bound of the class in which a share of the durations ends, in microseconds; None without any.

    Args:
        classes: durations by the upper bound of their class, as `TraceIndex.figures` returns them.
        share: such as 0.95.
    """
    total, seen = classes.total(), 0
    for bound in sorted(map(int, classes)):
        seen += classes[str(bound)]
        if seen >= share * total:
            return bound
    return None


def _read_lock(desk: PageDesk) -> tuple[ContractLock, str]:
    """Return the lock of contracts, or an empty one and why it cannot be read."""
    if desk.sources.lock is None:
        return ContractLock(), ""
    try:
        return read_lock(desk.sources.lock), ""
    except PokayokeError as error:
        return ContractLock(), str(error)
