"""Ledger: effects, those in doubt on top, and the decision that settles one.

In: the records of a store, its audit.
Out: lists, one effect, a settled doubt, an export.
Never: a button that repeats an effect.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any, Final, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from pokayoke.core.flow.doubts import describe_next_step, find_next_step, preview_answer
from pokayoke.core.ledger.key import compensation_key
from pokayoke.core.ledger.records import Record, RecordState
from pokayoke.dashboard.desk import PageDesk, build_link, page_state
from pokayoke.errors import ConfigurationError, StoreError
from pokayoke.runtime.decisions import settle_doubt
from pokayoke.stores.lists import PAGE, AuditFilter, EffectFilter
from pokayoke.stores.values import EntryKind

STATES: Final[tuple[RecordState, ...]] = get_args(RecordState)
_AGES: Final = {"1h": 3_600.0, "24h": 86_400.0, "7d": 604_800.0, "30d": 2_592_000.0}
_LEAST_DIGITS: Final = 4
_FORMULA_SIGNS: Final = frozenset("=+-@\t")
_MOST_EXPORTED: Final = 100_000
_COLUMNS: Final[tuple[str, ...]] = (
    "key", "state", "tool", "contract", "run_id", "claimed_at", "settled_at", "attempt", "reference", "failure",
    "decided_by", "output_ok", "compensates",
)  # fmt: skip


class EffectQuery(msgspec.Struct, frozen=True):
    """The filter of a list, as it stands in the address.

    Args:
        state: a state, `doubt` for what a person may settle, or "" for all.
        tool: only this tool.
        run: only this run.
        key: only keys that begin like this.
        age: only younger than this: 1h, 24h, 7d or 30d.
    """

    state: str = ""
    tool: str = ""
    run: str = ""
    key: str = ""
    age: str = ""

    def as_filter(self, now: float, after: str | None, limit: int) -> EffectFilter:
        """Return the filter for a store."""
        claimed, _, key = (after or "").partition("~")
        try:
            place = (float(claimed), key) if key else None
        except ValueError:
            place = None
        return EffectFilter(
            states=tuple(state for state in STATES if state == self.state),
            doubtful_at=now if self.state == "doubt" else None,
            tool=self.tool or None,
            run_id=self.run or None,
            key=self.key or None,
            since=now - _AGES[self.age] if self.age in _AGES else None,
            after=place,
            limit=limit,
        )


def list_effects(desk: PageDesk, request: Request) -> Response:
    """Show effects by state, tool, run, key and age."""
    now, query = desk.now(), _read_query(request)
    after = request.query_params.get("after")
    wanted = query.as_filter(now, after, PAGE + 1)
    found = desk.reads.effects(wanted)
    shown = found[:PAGE]
    fields = msgspec.structs.asdict(query)
    is_filtered = any(fields.values())
    return desk.render(
        request,
        "ledger",
        title="Ledger",
        pulse=desk.read_pulse(),
        records=shown,
        count=desk.reads.count_effects(wanted),
        fields=fields,
        is_filtered=is_filtered,
        states=STATES,
        ages=tuple(_AGES),
        more=build_link("/ledger", fields, after=_place_text(shown[-1])) if len(found) > PAGE else "",
        is_later=bool(after),
        done=request.query_params.get("done", ""),
    )


def show_effect(desk: PageDesk, request: Request) -> Response:
    """Show one effect: what is known, what was said of it, what to do next."""
    return _show_one(desk, request)


def settle_effect(desk: PageDesk, request: Request) -> Response:
    """Settle a doubt, in the name of whoever signed in."""
    state, key = page_state(request), request.path_params["key"]
    assert state.visitor is not None, "the gate lets nobody else decide"
    decision = state.form.get("decision", "")
    if decision not in ("happened", "not_happened"):
        return _show_one(desk, request, problem="Say what you found: it happened, or it did not.", status=422)
    try:
        settle_doubt(
            desk.store,
            key,
            happened=decision == "happened",
            reference=state.form.get("reference", "").strip(),
            by=state.visitor.name,
            reason=state.form.get("reason", "").strip(),
            now=desk.now(),
        )
    except ConfigurationError as error:
        return _show_one(desk, request, problem=f"{str(error)[:1].upper()}{str(error)[1:]}.", status=422)
    except StoreError as error:
        return _show_one(desk, request, problem=f"Nothing was changed: {error}.", status=409)
    return desk.redirect(request, build_link("/ledger", state="doubt", done=key[:12]))


def export_effects(desk: PageDesk, request: Request) -> Response:
    """Return what a filter shows, as JSON Lines or CSV."""
    kind, query, now = request.path_params["kind"], _read_query(request), desk.now()
    if kind not in ("jsonl", "csv"):
        return PlainTextResponse("There are /ledger.jsonl and /ledger.csv.", 404)
    lines = _csv_lines(desk, query, now) if kind == "csv" else _json_lines(desk, query, now)
    media = "text/csv; charset=utf-8" if kind == "csv" else "application/jsonl"
    return StreamingResponse(
        lines, media_type=media, headers={"Content-Disposition": f'attachment; filename="effects.{kind}"'}
    )


def list_audit(desk: PageDesk, request: Request) -> Response:
    """Show the audit, the latest line first."""
    known: tuple[EntryKind, ...] = get_args(EntryKind)
    kind, before = request.query_params.get("kind", ""), request.query_params.get("before", "")
    kinds: tuple[EntryKind, ...] = tuple(one for one in known if one == kind)
    number = int(before) if before.isascii() and before.isdecimal() and len(before) < 19 else None  # noqa: PLR2004 - digits of a large number
    found = desk.reads.audit_lines(AuditFilter(kinds, before=number, limit=PAGE + 1))
    more = build_link("/audit", kind=kind, before=found[PAGE - 1].number) if len(found) > PAGE else ""
    return desk.render(
        request, "audit", title="Audit", pulse=desk.read_pulse(), lines=found[:PAGE], kinds=known, kind=kind, more=more
    )


def _show_one(desk: PageDesk, request: Request, *, problem: str = "", status: int = 200) -> Response:
    now, key = desk.now(), request.path_params["key"]
    record = _find_record(desk, key)
    if record is None:
        return desk.render(
            request, "problem", status=404, title="Ledger", pulse=desk.read_pulse(),
            message=f"There is no effect {key[:64]!r}: it was pruned, or the key is of another ledger.",
        )  # fmt: skip
    undone = compensation_key(record.key)
    undoing = next(iter(desk.reads.effects(EffectFilter(key=undone, limit=1))), None)
    step = find_next_step(record, undoing, now)
    lines = desk.reads.audit_lines(AuditFilter(subjects=(record.key,), limit=PAGE))
    return desk.render(
        request,
        "effect",
        status=status,
        title="Effect",
        pulse=desk.read_pulse(),
        record=record,
        undoing=undoing,
        lines=lines,
        compared=next((line for line in lines if line.kind == "compared"), None),
        step=step,
        advice=describe_next_step(record, undoing, now),
        may_settle=step in ("settle", "allow", "reconcile"),
        says=preview_answer(record, happened=True),
        says_not=preview_answer(record, happened=False),
        problem=problem,
    )


def _find_record(desk: PageDesk, key: str) -> Record | None:
    """Return the record with a key, or with the only one that begins like this; without its output."""
    start = key.strip().lower()
    if len(start) < _LEAST_DIGITS or not start.isascii() or not start.isalnum():
        return None
    found = desk.reads.effects(EffectFilter(key=start, limit=2))
    return found[0] if len(found) == 1 else next((one for one in found if one.key == start), None)


def _read_query(request: Request) -> EffectQuery:
    given = {name: request.query_params.get(name, "").strip()[:200] for name in EffectQuery.__struct_fields__}
    key = given["key"].lower()
    return EffectQuery(**given | {"key": key if key.isascii() and key.isalnum() else ""})


def _place_text(record: Record) -> str:
    return f"{record.claimed_at!r}~{record.key}"


def _every_effect(desk: PageDesk, query: EffectQuery, now: float) -> Iterator[dict[str, Any]]:
    after: str | None = None
    for _ in range(_MOST_EXPORTED // 1_000):
        found = desk.store.effects(query.as_filter(now, after, 1_000))
        for record in found:
            yield {name: getattr(record, name) for name in _COLUMNS}
        if len(found) < 1_000:  # noqa: PLR2004 - as above
            return
        after = _place_text(found[-1])


def _json_lines(desk: PageDesk, query: EffectQuery, now: float) -> Iterator[bytes]:
    for one in _every_effect(desk, query, now):
        yield msgspec.json.encode(one) + b"\n"


def _csv_lines(desk: PageDesk, query: EffectQuery, now: float) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(_COLUMNS)
    for one in _every_effect(desk, query, now):
        # A cell that begins like a formula would be one to a spreadsheet.
        writer.writerow(
            [f"'{value}" if isinstance(value, str) and value[:1] in _FORMULA_SIGNS else value for value in one.values()]
        )
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()
