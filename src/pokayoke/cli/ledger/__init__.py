"""`pokayoke ledger`: lists writes, settles doubts, compares with the business, exports, prunes."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, get_args

import msgspec
import typer

from pokayoke.cli.ledger import export
from pokayoke.cli.ledger import reconcile as ledger_reconcile
from pokayoke.cli.ledger.join import read_audit, read_records
from pokayoke.cli.options import (
    ByOption,
    JsonOption,
    ReasonOption,
    StoreOption,
    current_time,
    format_age,
    format_time,
    open_store_option,
    parse_duration,
    parse_time,
    progress_counter,
    require_id_digits,
    struct_to_dict,
)
from pokayoke.cli.output import (
    as_json,
    escape_text,
    format_count,
    format_table,
    print_data,
    print_listing,
    print_message,
)
from pokayoke.core.flow.doubts import describe_next_step
from pokayoke.core.ledger.key import compensation_key
from pokayoke.core.ledger.records import OPEN, SETTLED, Record, RecordState
from pokayoke.core.redaction.redactor import Redactor
from pokayoke.errors import ConfigurationError, StoreError
from pokayoke.runtime.decisions import settle_doubt
from pokayoke.stores.base import Store
from pokayoke.stores.values import RecordQuery

_HEX: Final = frozenset("0123456789abcdef")
_KEY_LENGTH: Final = 64
_MIN_AGE: Final = 30 * 86_400.0
_SHOWN: Final = 100
_redactor: Final = Redactor()
_MARKS: Final = {"completed": "ok", "in_doubt": "bad", "failed_final": "bad", "failed_retriable": "note"}

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""List writes, settle doubts, compare with the business.

    pokayoke ledger init --store sqlite:///ledger.db

    pokayoke ledger list --in-doubt --store sqlite:///ledger.db

    pokayoke ledger resolve 4f1c9a --happened PO-7 --by ann --reason "seen in the shop"

    POKAYOKE_STORE replaces --store. Exit codes: 0 clean, 1 findings, 2 could not run.""",
)
app.command("reconcile")(ledger_reconcile.reconcile)
app.command("audit")(export.audit)
app.command("metrics")(export.metrics)
KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="The ledger key, or its beginning.")]


@app.command()
def init(store: StoreOption = None, json: JsonOption = False) -> None:
    """Create a ledger: a new file, or tables in an existing database. An existing ledger stays unchanged.

    pokayoke ledger init --store sqlite:///ledger.db

    pokayoke ledger init --store postgresql://app@db.example/app
    """
    with open_store_option(store, create=True) as ledger:
        _print_identity(_ledger_identity(ledger), json=json)


@app.command()
def migrate(store: StoreOption = None, json: JsonOption = False) -> None:
    """Migrate the tables of an existing ledger to the version of this pokayoke.

    pokayoke ledger migrate --store sqlite:///ledger.db

    Nothing is created where there is no ledger. Programs of an older version then refuse to write.
    """
    also = "is up to date"
    try:
        with open_store_option(store):
            pass
    except StoreError as error:
        # Only an existing ledger that is too old says this; `create` would also create a missing one.
        if "`pokayoke ledger migrate" not in str(error):
            raise
        also = "was migrated"
    # Also if there is nothing to migrate: a ledger of a newer version can be opened, and only this refuses it.
    with open_store_option(store, create=True) as ledger:
        _print_identity(_ledger_identity(ledger), json=json, also=also)


@app.command("list")
def list_effects(
    store: StoreOption = None,
    in_doubt: Annotated[bool, typer.Option("--in-doubt", help="Only effects that a person has to settle.")] = False,
    tool: Annotated[str | None, typer.Option(help="Only effects of this tool.")] = None,
    run: Annotated[str | None, typer.Option(help="Only effects of this run.")] = None,
    state: Annotated[str | None, typer.Option(help="Only this state, such as completed.")] = None,
    since: Annotated[str | None, typer.Option(help="Claimed since: 2h, 7d, or 2026-11-21T08:00.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, help="How many; 0 for all. 100 by default, with --in-doubt all.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List effects, the latest first; with --in-doubt the oldest first.

    pokayoke ledger list --in-doubt

    pokayoke ledger list --tool transfer --since 7d --json

    "In doubt" includes executions whose lease is over without a result. Exit code 1 if --in-doubt found any.
    """
    moment_now = current_time()
    query = RecordQuery(
        states=_parse_states(state, in_doubt=in_doubt),
        tool=tool,
        run_id=run,
        since=parse_time(since, "--since", moment_now),
    )
    with open_store_option(store) as ledger, progress_counter("effects read") as told:
        seen = 0

        def select_records() -> Iterator[Record]:
            nonlocal seen
            for record in read_records(ledger, query, told):
                if not in_doubt or record.is_doubtful(moment_now):
                    seen += 1
                    yield record

        found: Iterable[Record] = select_records()
        most = limit if limit is not None else 0 if in_doubt else _SHOWN
        if in_doubt:  # whoever settles what is shown begins with what waits longest
            found = heapq.nsmallest(most, found, key=_claim_time) if most else sorted(found, key=_claim_time)
        elif most:
            found = heapq.nlargest(most, found, key=_claim_time)
        count = _print_records(found, moment_now, json=json)
    if more := seen - count:
        print_message(f"{format_count(more, 'more effect')} not shown: --limit 0 lists all")
    if not count:
        print_message("nothing is in doubt" if in_doubt else "no effects found")
    if in_doubt and count:
        raise typer.Exit(1)


@app.command("show")
def show_effect(key: KeyArgument, store: StoreOption = None, json: JsonOption = False) -> None:
    """Show one effect: its record, its audit entries, and what to do next.

    pokayoke ledger show 4f1c9a
    """
    moment_now = current_time()
    with open_store_option(store) as ledger:
        record = _find_record(ledger, key)
        undoing = ledger.record(compensation_key(record.key))
        said = [entry for entry in read_audit(ledger) if entry.subject == record.key]
    advice = describe_next_step(record, undoing, moment_now)
    if json:
        print_data(as_json({
            "record": _record_values(record, moment_now),
            "undoing": _record_values(undoing, moment_now) if undoing else None,
            "audit": [struct_to_dict(entry) for entry in said],
            "next": advice,
        }))  # fmt: skip
        return
    for line in format_table(_record_facts(record, moment_now)):
        print_data(line)
    for entry in said:
        print_data(
            escape_text(
                f"{format_time(entry.at)}  {entry.kind} by {entry.by}: {entry.reason} {as_json(entry.data)}",
                limit=1_000,
            )
        )
    if undoing is not None:
        print_data(escape_text(f"undoing {undoing.key[:12]}: {undoing.state} {undoing.failure}"))
    print_data(f"next: {escape_text(advice)}")


@app.command()
def resolve(
    key: KeyArgument,
    by: ByOption,
    reason: ReasonOption,
    happened: Annotated[
        str | None, typer.Option("--happened", metavar="REF", help="It took effect; REF is the target's name for it.")
    ] = None,
    not_happened: Annotated[bool, typer.Option("--not-happened", help="It did not, and it will not.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Settle a doubt, or correct a failure, by your decision. The audit keeps it.

    pokayoke ledger resolve 4f1c9a --happened PO-7 --by ann --reason "seen in the shop"

    pokayoke ledger resolve 4f1c9a --not-happened --by ann --reason "no such order, and the shop was down"

    After --happened the effect counts as completed and never runs again. After --not-happened the same call may
    run once more, so make sure that it is not still in progress.
    """
    if (happened is None) == (not not_happened):
        raise ConfigurationError("say what you found: either --happened REF or --not-happened")
    with open_store_option(store) as ledger:
        record = _find_record(ledger, key)
        require_id_digits(key, record.key)
        now = current_time()
        after = settle_doubt(
            ledger, record.key, happened=happened is not None, reference=happened or "", by=by, reason=reason, now=now
        )
    if json:
        print_data(as_json(_record_values(after, now)))
    else:
        then = "is answered from the ledger" if after.state == "completed" else "may run once more"
        print_data(
            escape_text(f"{after.tool} {after.key[:12]} is {after.state} by {by}'s decision: the same call {then}")
        )


@app.command()
def prune(
    older_than: Annotated[str, typer.Option("--older-than", help="How old, such as 90d.")],
    store: StoreOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Prune; without this, only count.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Even below 30 days.")] = False,
    by: Annotated[str, typer.Option("--by", help="Who prunes; kept in the audit.")] = "pokayoke ledger prune",
    json: JsonOption = False,
) -> None:
    """Delete settled effects, answered questions, idle runs and past days of limits. Without --yes it only counts.

    pokayoke ledger prune --older-than 90d

    pokayoke ledger prune --older-than 90d --yes --by ann

    A deleted effect can happen again: keep effects longer than any caller may repeat a call, and reconcile
    first. What is executing or in doubt always stays, and so do runs that were stopped or are latched, and
    limits that count per user or per tool.
    """
    age = parse_duration(older_than, "--older-than")
    if age < _MIN_AGE and not force:
        raise ConfigurationError(
            f"--older-than {older_than} is below 30 days: a call repeated after that would run a second time. "
            "Say --force if no caller repeats a call that late"
        )
    moment_now = current_time()
    before = moment_now - age
    with open_store_option(store) as ledger:
        with progress_counter("effects read") as told:
            tools = _count_old(read_records(ledger, RecordQuery(states=SETTLED, until=before), told), before)
        old = sum(tools.values())
        gone = 0
        if yes:
            with progress_counter("effects forgotten"):
                gone = ledger.prune(before, by=by, now=moment_now)
    if json:
        print_data(as_json({"before": before, "old": old, "by_tool": tools, "forgotten": gone}))
        return
    for line in format_table([(count, tool) for tool, count in sorted(tools.items())]):
        print_data(line)
    if yes:
        print_data(f"{format_count(gone, 'effect')} from before {format_time(before)} forgotten")
    else:
        print_data(
            f"{format_count(old, 'effect')} from before {format_time(before)}; nothing is forgotten without --yes"
        )


# -- parts -----------------------------------------------------------------------------------------


def _ledger_identity(ledger: Store) -> dict[str, Any]:
    return {"ledger_id": getattr(ledger, "ledger_id", None), "kind": type(ledger).__name__, "sealed": ledger.sealed}


def _print_identity(identity: dict[str, Any], *, json: bool, also: str = "is ready") -> None:
    if json:
        print_data(as_json(identity))
        return
    print_data(f"ledger {escape_text(identity['ledger_id'])} {also}")
    if not identity["sealed"]:
        print_message("outputs are stored without encryption: set POKAYOKE_STORE_KEY to seal them")


def _parse_states(state: str | None, *, in_doubt: bool) -> tuple[RecordState, ...]:
    if state is not None and in_doubt:
        raise ConfigurationError("say one of --state and --in-doubt")
    if in_doubt:
        return OPEN
    if state is None:
        return ()
    known: tuple[RecordState, ...] = get_args(RecordState)
    if state not in known:
        raise ConfigurationError(f"--state {state!r}: one of {', '.join(known)}")
    return tuple(one for one in known if one == state)


def _claim_time(record: Record) -> float:
    return record.claimed_at


def _state_word(record: Record, at: float) -> str:
    if record.state != "in_doubt" and record.is_doubtful(at):
        return f"{record.state} (lapsed)"
    return record.state if record.output_ok else f"{record.state} (bad output)"


def _record_values(record: Record, at: float) -> dict[str, Any]:
    """Return a record as JSON values, without its output, which may hold anything."""
    shown = struct_to_dict(msgspec.structs.replace(record, output=None, run_id=_redactor.redact_text(record.run_id)))
    del shown["output"]
    return shown | {"doubtful": record.is_doubtful(at)}


def _print_records(found: Iterable[Record], at: float, *, json: bool) -> int:
    if json:
        count = 0
        for count, record in enumerate(found, 1):  # noqa: B007 - the last number is the count
            print_data(as_json(_record_values(record, at)))
        return count
    records = list(found)
    rows = [
        (
            record.key[:12],
            _state_word(record, at),
            escape_text(record.tool, limit=40),
            format_age(record.claimed_at, at),
            escape_text(_redactor.redact_text(record.run_id), limit=24),
            escape_text(record.failure or record.reference, limit=60),
        )
        for record in records
    ]
    heads = ("key", "state", "tool", "age", "run", "what is known")
    print_listing(heads, rows, [_MARKS.get(record.state) for record in records])
    return len(records)


def _find_record(ledger: Store, key: str) -> Record:
    """Return the record with a key or a beginning of one.

    Raises:
        StoreError: there is none, or there are several.
    """
    start = key.strip().lower()
    if not start or not set(start) <= _HEX:
        raise StoreError(f"there is no effect {key!r}; `pokayoke ledger list` shows them")
    # As in lists, without the output: it may be sealed with a key that is not present.
    near = ledger.records(RecordQuery(after=_key_before(start), limit=2))
    if near and near[0].key == start:
        return near[0]
    fits = [record for record in near if record.key.startswith(start)]
    if len(fits) > 1:
        raise StoreError(f"several keys begin with {start!r}: give more of it")
    if not fits or len(start) >= _KEY_LENGTH:
        raise StoreError(f"there is no effect {key!r}; `pokayoke ledger list` shows them")
    return fits[0]


def _key_before(start: str) -> str:
    """Return a text right before all keys that begin like this."""
    return f"{start[:-1]}{chr(ord(start[-1]) - 1)}\U0010ffff"


def _record_facts(record: Record, at: float) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = [
        ("key", record.key),
        ("state", _state_word(record, at)),
        ("tool", f"{record.tool} ({record.contract})"),
        ("run", _redactor.redact_text(record.run_id)),
        ("attempt", record.attempt),
        ("claimed", f"{format_time(record.claimed_at)} by {record.owner or 'an unknown process'}"),
        ("settled", format_time(record.settled_at)),
        ("reference", record.reference),
        ("failure", record.failure),
        ("decided by", record.decided_by),
        ("undoes", record.compensates),
    ]
    return [(name, escape_text(value, limit=400)) for name, value in facts if value not in ("", "-")]


def _count_old(found: Iterator[Record], before: float) -> dict[str, int]:
    tools: dict[str, int] = {}
    for record in found:
        if record.settled_at is not None and record.settled_at < before:
            tools[record.tool] = tools.get(record.tool, 0) + 1
    return tools
