"""Runs: what happened, run by run, call by call, line by line.

In: the index of the trace files, and the stored state of runs.
Out: a list, one run, one call with every room it passed.
Never: a scan of a trace file, or a line that is shown as another than it is.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from pokayoke.code_pages import find_code_pages
from pokayoke.core.json.values import is_object
from pokayoke.dashboard import words
from pokayoke.dashboard.desk import PageDesk, build_link
from pokayoke.dashboard.trace_index import RunPage, TracedCall, TracedRun, TraceIndex
from pokayoke.dashboard.trend import Rung
from pokayoke.replay.run_rows import CallRow, Row, RunMark, build_run_rows
from pokayoke.stores.lists import PAGE, RunFilter, run_place

_MODES: Final = ("safe_mode", "final_answer", "stopped")
_CALLS: Final = 100
_MOST_FINDINGS: Final = 20
_MOST_ALL: Final = 1_000_000


def list_runs(desk: PageDesk, request: Request) -> Response:
    """Show runs of the trace, the latest first; without a trace, those the store knows."""
    index = desk.sources.trace
    mode = request.query_params.get("mode", "")
    if index is None or mode in _MODES:
        return _list_stored(desk, request, mode)
    fields = {"failed": request.query_params.get("failed", ""), "start": request.query_params.get("start", "")[:200]}
    page = RunPage(failed=bool(fields["failed"]), start=fields["start"], after=_parse_place(request), limit=PAGE + 1)
    found = index.runs(page)
    shown = found[:PAGE]
    states = desk.reads.runs(RunFilter(run_ids=tuple(one.run_id for one in shown), limit=PAGE)) if shown else ()
    return desk.render(
        request,
        "runs",
        title="Runs",
        pulse=desk.read_pulse(),
        runs=shown,
        modes={one.state.run_id: one.state.effective_mode for one in states},
        files=index.files(),
        fields=fields,
        more=build_link("/runs", fields, after=f"{shown[-1].last!r}~{shown[-1].run_id}") if len(found) > PAGE else "",
    )


def show_run(desk: PageDesk, request: Request) -> Response:
    """Show one run: where its mode changed, then a row for each call."""
    run_id, index = request.path_params["run_id"], desk.sources.trace
    stored = next(iter(desk.reads.runs(RunFilter(run_ids=(run_id,), limit=1))), None)
    run = index.run(run_id) if index is not None else None
    fields = {name: request.query_params.get(name, "") for name in ("failed", "writes")}
    after = request.query_params.get("after", "")
    page = RunPage(
        failed=bool(fields["failed"]),
        writes=bool(fields["writes"]),
        after=(int(after),) if after.isascii() and after.isdecimal() and len(after) < 19 else None,  # noqa: PLR2004 - digits of a large number
        limit=_CALLS + 1,
    )
    found = index.calls(run_id, page) if index is not None else []
    shown = found[:_CALLS]
    if run is None and stored is None:
        return desk.render(
            request, "problem", status=404, title="Runs", pulse=desk.read_pulse(),
            message=f"Nothing is known here of a run {run_id[:80]!r}: it may be of another store or trace.",
        )  # fmt: skip
    path = f"/runs/{run_id}"
    return desk.render(
        request,
        "run",
        title="Run",
        pulse=desk.read_pulse(),
        run_id=run_id,
        run=run,
        rungs=_find_rungs(index.stops(run_id), run) if index is not None and run is not None else (),
        stored=stored,
        calls=shown,
        fields=fields,
        path=path,
        has_trace=index is not None,
        more=build_link(path, fields, after=shown[-1].number) if len(found) > _CALLS else "",
    )


def show_event(desk: PageDesk, request: Request) -> Response:
    """Show one call: sent, read as, corrected, decided, answered."""
    index, number = desk.sources.trace, request.path_params["offset"]
    call = index.call(number) if index is not None else None
    if index is None or call is None or call.run_id != request.path_params["run_id"]:
        return desk.render(
            request, "problem", status=404, title="Runs", pulse=desk.read_pulse(),
            message="This call is not in the index any more: its file was rotated away, or the index was deleted.",
        )  # fmt: skip
    limit = _MOST_ALL if request.query_params.get("all") else words.CLIPPED
    events, places, problems = _read_events(index, call)
    rows = build_run_rows(events, call.run_id)
    steps = _describe_steps(rows[0], limit) if rows else []
    return desk.render(
        request,
        "call",
        title="Call",
        pulse=desk.read_pulse(),
        call=call,
        attempts=rows[0].attempts if rows and isinstance(rows[0], CallRow) else None,
        places=places,
        problems=problems,
        steps=steps,
        codes=find_code_pages(str(one.get("code")) for row in rows if isinstance(row, CallRow) for one in row.findings),
        limit=limit,
        is_cut=any(payload.endswith("…") for _, _, payload in steps),
    )


def _find_rungs(stops: list[TracedCall], run: TracedRun) -> tuple[Rung, ...]:
    """Return how a run went down its ladder, as far as its trace says; () if it stayed where it began."""
    length = max(run.last - run.first, 1e-9)
    found = [
        Rung(mode, (one.ts - run.first) / length, one.step, one.ts, one.code)
        for one in stops
        if (mode := "normal" if one.kind == "latch" else one.status) is not None
    ]
    return (Rung("normal", 0.0, 1, run.first, ""), *found) if found else ()


def _read_events(index: TraceIndex, call: TracedCall) -> tuple[list[dict[str, Any]], list[tuple[str, int]], list[str]]:
    """Return the one event of a call or both, where they lie, and why one cannot be shown."""
    events: list[dict[str, Any]] = []
    places: list[tuple[str, int]] = []
    problems: list[str] = []
    for file, place in ((call.file, call.place), (call.end_file, call.end_place)):
        if file is None or place is None:
            continue
        event, path, why = index.read_line(file, place)
        if event is None:
            problems.append(f"{path or 'a trace file'}: {why}")
        else:
            places.append((path, place))
            events.append(event)
    return events, places, problems


def _describe_steps(row: Row, limit: int) -> list[tuple[str, str, str]]:
    """Return what a call went through: name, what happened there in a line, and a payload or ""."""
    if isinstance(row, RunMark):
        return [(row.event, words.show_text(row.reason or "", 400), _show_payload(row.details, limit))]
    steps: list[tuple[str, str, str]] = []
    if row.sent is not None:
        steps.append(("sent", "as the model wrote it", _show_payload(row.sent, limit)))
    if row.read_as:
        steps.append(("read as", ", ".join(words.show_text(one, 60) for one in row.read_as[:20]), ""))
    steps += [_describe_correction(one, limit) for one in row.corrected[:20] if is_object(one)]
    if row.arguments is not None:
        steps.append(("arguments", "what the tool gets", _show_payload(row.arguments, limit)))
    if decided := [one for one in (row.decision, row.room) if one]:
        steps.append(("decided", words.show_text(" in ".join(decided), 200), ""))
    steps += [_describe_finding(one, limit) for one in row.findings[:_MOST_FINDINGS]]
    steps.append(("ended", words.show_text(row.status, 60), ""))
    if row.answered is not None:
        steps.append(("result", "as the tool answered, checked", _show_payload(row.answered, limit)))
    if row.reason:
        steps.append(("reason", words.show_text(row.reason, 400), ""))
    if row.told:
        steps.append(("told", "what the model reads", _show_payload("\n".join(row.told), limit)))
    return steps


def _describe_correction(one: dict[str, Any], limit: int) -> tuple[str, str, str]:
    line = f"{one.get('at', '')}: {one.get('rule', '?')} ({one.get('class') or '?'})"
    if "before" not in one:
        return "corrected", words.show_text(line, 200), ""
    values = f"{words.dump_shown(one.get('before'))} → {words.dump_shown(one.get('after'))}"
    return "corrected", words.show_text(line, 200), words.show_lines(values, limit)


def _describe_finding(one: dict[str, Any], limit: int) -> tuple[str, str, str]:
    head = " ".join(str(one[name]) for name in ("code", "at", "blame") if one.get(name))
    return "finding", words.show_text(head, 200), words.show_lines(str(one.get("message") or ""), limit)


def _show_payload(value: Any, limit: int) -> str:
    return words.show_lines(value if isinstance(value, str) else words.dump_shown(value, indent=2), limit)


def _list_stored(desk: PageDesk, request: Request, mode: str) -> Response:
    modes = (mode,) if mode in _MODES else ()
    found = desk.reads.runs(RunFilter(modes, after=_parse_place(request), limit=PAGE + 1))
    shown = found[:PAGE]
    more = ""
    if len(found) > PAGE:
        touched, run_id = run_place(shown[-1])
        more = build_link("/runs", mode=mode, after=f"{touched!r}~{run_id}")
    return desk.render(
        request,
        "stored_runs",
        title="Runs",
        pulse=desk.read_pulse(),
        runs=shown,
        mode=mode,
        modes=_MODES,
        has_trace=desk.sources.trace is not None,
        more=more,
    )


def _parse_place(request: Request) -> tuple[float, str] | None:
    first, tilde, second = request.query_params.get("after", "").partition("~")
    try:
        return (float(first), second) if tilde else None
    except ValueError:
        return None
