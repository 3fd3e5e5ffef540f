"""`pokayoke ledger reconcile`: compares the ledger with the business, and undoes surplus effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from tempfile import SpooledTemporaryFile
from typing import Annotated, Any, Final

import typer

from pokayoke.cli.ledger.business_rows import parse_column_map, read_database_rows, read_file_rows
from pokayoke.cli.ledger.join import BusinessRows, ReconcileQuery, join_rows, was_pruned
from pokayoke.cli.options import (
    JsonOption,
    StoreOption,
    current_time,
    open_store_option,
    parse_duration,
    parse_time,
    progress_counter,
)
from pokayoke.cli.output import as_json, choose_painter, escape_text, format_count, print_data, print_message
from pokayoke.core.contract.contract import Contract
from pokayoke.core.ledger.compensation import BusinessRow, Compensation
from pokayoke.core.ledger.reconcile import (
    AGREEING_KINDS,
    COMPARISON_KINDS,
    Comparison,
    ReconcileTimes,
    build_compensations,
)
from pokayoke.errors import ConfigurationError
from pokayoke.runtime.compensate import Compensator, UndoResult
from pokayoke.stores.base import Store
from pokayoke.stores.lists import AuditFilter
from pokayoke.stores.values import AuditEntry, RecordQuery

_DONE: Final = frozenset({"undone", "undone_before"})
_SURPLUS: Final = frozenset({"extra", "duplicate"})
_KEY_LENGTH: Final = 64
_IN_MEMORY: Final = 1_000_000
_PRUNED_LEDGER: Final = (
    "the ledger was pruned, so this may be an effect that it has forgotten, or one that was undone before: select "
    "younger rows, or name the key with --key if it is too much"
)
_WRONG_LEDGER: Final = (
    "none of the effects compared is one of {tool}, as if this were not the ledger of these rows: check --store, or "
    "name the key with --key if it is too much"
)
_SETTLED_BY_PEOPLE: Final = frozenset({"doubtful_happened", "doubtful_not"})
_DOUBTFUL: Final = _SETTLED_BY_PEOPLE | {"in_flight"}
_MOST_DOUBTS: Final = 1_000
_MOST_ROWS: Final = 3
"""Business rows of one key that the audit keeps."""


def reconcile(
    store: StoreOption = None,
    rows: Annotated[
        str | None, typer.Option("--rows", metavar="FILE", help="Business rows as JSON Lines; -: stdin.")
    ] = None,
    sql: Annotated[
        tuple[str, str] | None,
        typer.Option("--sql", metavar="URL SELECT", help="Business rows from sqlite:/// or postgresql://, read only."),
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--map", metavar="key=...,reference=...", help="Names of the columns, if different.")
    ] = None,
    tool: Annotated[str | None, typer.Option(help="Only effects of this tool; the rows are its rows.")] = None,
    since: Annotated[str | None, typer.Option(help="Only effects claimed since: 7d, or 2026-11-01.")] = None,
    lease: Annotated[str, typer.Option(help="Younger effects may be in progress and are not compared.")] = "10m",
    amount_at: Annotated[str, typer.Option(help="JSON pointer to the amount in recorded outputs.")] = "/amount",
    compensate: Annotated[bool, typer.Option("--compensate", help="Show what would be undone.")] = False,
    contracts: Annotated[
        list[str] | None, typer.Option("--contracts", help="Tools that declare how they are undone: module:attribute.")
    ] = None,
    key: Annotated[list[str] | None, typer.Option("--key", help="Undo this effect too; the whole key.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --compensate: undo it now.")] = False,
    by: Annotated[str, typer.Option("--by", help="With --yes: who undoes it; kept in the audit.")] = "",
    json: JsonOption = False,
) -> None:
    """Compare the ledger with the business, key by key.

    pokayoke ledger reconcile --rows orders.jsonl --map key=idempotency_key,reference=order_no

    pokayoke ledger reconcile --sql postgresql://ro@db/shop "SELECT key, id AS reference, amount FROM orders"

    pokayoke ledger reconcile --rows orders.jsonl --compensate --contracts shop.tools:ALL --yes --by ann

    A row has its key, its reference, or both; and, for comparison, its arguments (a JSON object), their digest,
    or its amount. Classes: matched; missing (the ledger says completed, the business has no row); extra (a row
    without a completed effect); duplicate (several rows under one key); mismatched (other arguments, amount or
    reference); doubtful_happened and doubtful_not (in doubt, with and without a row). Exit code 1 if any key is
    in another class than matched, or, with --yes, was not undone. The audit keeps the result, for metrics too.
    """
    chosen = frozenset(key or ())
    _refuse_contradictions(rows, sql, compensate=compensate, yes=yes, by=by, contracts=contracts, chosen=chosen)
    moment_now = current_time()
    times = ReconcileTimes(moment_now, moment_now - parse_duration(lease, "--lease"))
    wanted = ReconcileQuery(tool, parse_time(since, "--since", moment_now), amount_at)
    known = _load_undoable(contracts or []) if compensate else {}
    with ExitStack() as stack:
        aside = stack.enter_context(closing(BusinessRows()))
        # Before the ledger is opened: it may be in the same file, and it has to be read after the rows anyway.
        with progress_counter("business rows read") as told:
            aside.add_rows(_read_rows(rows, sql, parse_column_map(columns), told))
        ledger = stack.enter_context(_open_ledger(store, tool))
        report = stack.enter_context(closing(ReconcileReport(json=json)))
        undoer = Undoer(known, Compensator(ledger, by=by) if yes else None, chosen, tool) if compensate else None
        with progress_counter("effects read") as told:
            plan = [found for found in join_rows(ledger, aside, wanted, times, told) if report.count_key(found, undoer)]
        report.print_differences()
        if undoer is not None:
            undoer.undo_all(plan, report, ledger)
        _note_result(ledger, report, tool or "*", by or "pokayoke")
    report.print_totals()
    if report.open:
        raise typer.Exit(1)


@contextmanager
def _open_ledger(store: str | None, tool: str | None) -> Generator[Store]:
    """Open the ledger, and warn if it holds no effect of the tool: a misspelt name would look like a clean result."""
    with open_store_option(store) as ledger:
        if tool is not None and not ledger.records(RecordQuery(tool=tool, limit=1)):
            print_message(
                f"warning: this ledger has no effect of a tool {tool!r}, so nothing can be missing; check the name"
            )
        yield ledger


def _note_result(ledger: Store, report: ReconcileReport, tool: str, by: str) -> None:
    """Keep the result, and beside each doubt what the business shows of it. What is known is not said again."""
    for one in report.doubts:
        data = {"rows": [{"reference": row.reference, "amount": row.amount} for row in one.rows[:_MOST_ROWS]]}
        known = ledger.audit_lines(AuditFilter(("compared",), (one.key,), limit=1))
        if not known or known[0].data != data:
            ledger.note(AuditEntry(current_time(), "compared", one.key, by, one.reason, data))
    ledger.note(AuditEntry(current_time(), "reconciled", tool, by, data=report.as_audit_data()))


class ReconcileReport:
    """Counts, and prints the differences once all keys were compared: a part of them would look complete.

    The ledger may not be readable to its end: it may hold outputs sealed with a key that is not present.

    Args:
        json: True for JSON lines.

    Attributes:
        open: keys with a difference, and undoings that were not done.
        doubts: effects in doubt beside what the business shows of them, as many as are worth keeping.
    """

    def __init__(self, *, json: bool) -> None:
        self.counts: Counter[str] = Counter()
        self.open = 0
        self.json, self._paint = json, choose_painter()
        self.doubts: list[Comparison] = []
        self._uncompared = 0
        self._undone = 0
        self._lines = SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8", newline="\n")  # noqa: SIM115 - `close`

    def count_key(self, found: Comparison, undoer: Undoer | None) -> bool:
        """Count a key, and keep it if it differs. Returns whether something of it is to be undone."""
        self.counts[found.kind] += 1
        self._uncompared += found.uncompared
        if found.kind not in AGREEING_KINDS:
            self.open += 1
            if found.kind in _SETTLED_BY_PEOPLE and len(self.doubts) < _MOST_DOUBTS:
                self.doubts.append(found)
            line = self._paint(_format_line(found), "note" if found.kind in _DOUBTFUL else "bad")
            self._lines.write((as_json(_to_values(found)) if self.json else line) + "\n")
        return undoer is not None and undoer.needs_undoing(found)

    def print_differences(self) -> None:
        """Print the differences."""
        self._lines.seek(0)
        for line in self._lines:
            print_data(line.removesuffix("\n"))

    def close(self) -> None:
        """Delete the differences."""
        self._lines.close()

    def count_undoing(self, found: Comparison, done: bool) -> None:
        """Count the result of an undoing."""
        self._undone += done
        if done and found.kind not in AGREEING_KINDS:
            self.open -= 1
        elif not done and found.kind in AGREEING_KINDS:
            self.open += 1

    def as_audit_data(self) -> dict[str, Any]:
        """Return what the audit keeps of a reconciliation: keys that are still open, and keys by class."""
        return {"open": self.open, "keys": {kind: self.counts[kind] for kind in COMPARISON_KINDS if self.counts[kind]}}

    def print_totals(self) -> None:
        """Print the totals."""
        sums = {kind: self.counts[kind] for kind in COMPARISON_KINDS}
        if self.json:
            print_data(as_json({"summary": sums | {"uncompared_amounts": self._uncompared, "undone": self._undone}}))
            return
        print_data("  ".join(f"{kind} {count}" for kind, count in sums.items() if count or kind == "matched"))
        if self._uncompared:
            print_message(
                f"{format_count(self._uncompared, 'amount')} could not be compared: no recorded output names one there"
            )


def _refuse_contradictions(
    rows: str | None,
    sql: tuple[str, str] | None,
    *,
    compensate: bool,
    yes: bool,
    by: str,
    contracts: list[str] | None,
    chosen: frozenset[str],
) -> None:
    if (rows is None) == (sql is None):
        raise ConfigurationError("say where the business rows are: one of --rows FILE and --sql URL SELECT")
    if compensate and not contracts:
        raise ConfigurationError("--compensate needs --contracts module:attribute: tools that declare compensate=")
    if (yes or chosen) and not compensate:
        raise ConfigurationError("--yes and --key belong to --compensate")
    if yes and not by.strip():
        raise ConfigurationError("--yes needs --by: who has it undone is kept in the audit")
    if chosen and any(len(one) != _KEY_LENGTH for one in chosen):
        raise ConfigurationError("--key takes the whole key: `pokayoke ledger show` prints it")


def _read_rows(
    rows: str | None, sql: tuple[str, str] | None, names: dict[str, str], told: Callable[[int], None]
) -> Iterator[BusinessRow]:
    if rows is not None:
        return read_file_rows(rows, names, told)
    assert sql is not None, "one of both is given"
    return read_database_rows(*sql, names, told)


def _load_undoable(sources: list[str]) -> dict[str, Contract]:
    """Return tool to contract, for the tools that declare how they are undone."""
    from pokayoke.cli.sources import read_sources  # noqa: PLC0415 - imports what the user names

    material = read_sources(sources, config=None, trust_hints=False)
    found = {contract.name: contract for contract in material.contracts if contract.compensate is not None}
    if not found:
        raise ConfigurationError(f"no tool of {', '.join(sources)} declares compensate=")
    return found


class Undoer:
    """Undoes surplus effects, or reports what would be undone.

    Args:
        known: tool to the contract that declares how.
        compensator: undoes; None only reports.
        chosen: keys of effects to undo although they match.
        tool: the tool of rows that name none, or None.
    """

    def __init__(
        self,
        known: Mapping[str, Contract],
        compensator: Compensator | None,
        chosen: frozenset[str],
        tool: str | None,
    ) -> None:
        self._known, self._compensator, self._chosen, self._tool = known, compensator, chosen, tool
        self._at_work: set[str] = set()

    def needs_undoing(self, found: Comparison) -> bool:
        """True if something of a key is to be undone. It is checked for every key before anything is undone."""
        if found.record is not None and not found.record.compensates:
            self._at_work.add(found.record.tool)
        return found.kind in _SURPLUS or found.key in self._chosen

    def undo_all(self, plan: list[Comparison], report: ReconcileReport, ledger: Store) -> None:
        """Undo a plan.

        Args:
            plan: the comparisons to undo.
            report: counts the results.
            ledger: the ledger that was compared. If it was pruned, an effect it does not know may be an old one that
                is in order, or one that was undone before; if it holds no effect of the tool, it may be the wrong
                ledger. Only a key named by the user rules both out.

        Raises:
            ConfigurationError: a chosen effect was not compared, or is in doubt; nothing was undone.
        """
        if unknown := self._chosen - {found.key for found in plan}:
            raise ConfigurationError(f"there is no effect {min(unknown)} among those compared; nothing was undone")
        if doubtful := [found.key for found in plan if found.kind in _DOUBTFUL]:
            raise ConfigurationError(
                f"{doubtful[0]} is not settled: `pokayoke ledger resolve` comes first; nothing was undone"
            )
        forgot = was_pruned(ledger)  # checked after its records were read: what is pruned from now on was among them
        for found in plan:
            name = self._tool_name(found)
            unknown_here = found.record is None and found.key not in self._chosen
            if unknown_here and (forgot or (name in self._known and name not in self._at_work)):
                why = _PRUNED_LEDGER if forgot else _WRONG_LEDGER.format(tool=name)
                _print_undoing(UndoResult("refused", "", found.key, why), None, name, json=report.json)
                report.count_undoing(found, done=False)
            else:
                report.count_undoing(found, self._undo_one(found, name, json=report.json))

    def _tool_name(self, found: Comparison) -> str:
        if found.record is not None:
            return found.record.tool
        return next((row.tool for row in found.rows if row.tool), self._tool or "")

    def _undo_one(self, found: Comparison, name: str, *, json: bool) -> bool:
        """Return True if all of it is undone now."""
        contract = self._known.get(name)
        steps = (
            build_compensations(found, f"reconciliation: {found.reason or 'chosen'}") if contract is not None else ()
        )
        if contract is None or not steps:
            why = (
                "it cannot be told which row is too much"
                if contract
                else f"no contract says how {name or 'it'} is undone"
            )
            _print_undoing(UndoResult("refused", "", found.key, why), None, name, json=json)
            return False
        done = len(steps) >= len(found.surplus)
        for step in steps:
            became = self._compensator.undo_effect(contract, step) if self._compensator else None
            _print_undoing(became, step, name, json=json)
            done = done and became is not None and became.status in _DONE
        return done


def _print_undoing(became: UndoResult | None, step: Compensation | None, tool: str, *, json: bool) -> None:
    status = became.status if became else "would_undo"
    effect_key = became.effect_key if became else step.effect_key if step else ""
    row = step.row.reference if step and step.row else ""
    message = became.message if became else ""
    if json:
        key = step.key if step else ""
        print_data(
            as_json({"undo": status, "key": effect_key, "undoing": key, "tool": tool, "row": row, "message": message})
        )
        return
    words = [status.replace("_", " "), effect_key or "(no key)", tool, f"row {row}" if row else "", message]
    print_data("  " + escape_text("  ".join(word for word in words if word), limit=600))


def _to_values(found: Comparison) -> dict[str, Any]:
    record = found.record
    return {
        "class": found.kind,
        "key": found.key,
        "tool": record.tool if record else None,
        "state": record.state if record else None,
        "reason": found.reason,
        "rows": [{"number": row.number, "reference": row.reference, "amount": row.amount} for row in found.rows],
    }


def _format_line(found: Comparison) -> str:
    record = found.record
    rows = ", ".join(row.reference or f"row {row.number}" for row in found.rows[:5])
    words = [f"{found.kind:<17}", found.key or "(no key)", record.tool if record else "", rows and f"[{rows}]"]
    return escape_text("  ".join(word for word in [*words, found.reason] if word), limit=600)
