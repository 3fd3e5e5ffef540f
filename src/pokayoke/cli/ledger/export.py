"""`pokayoke ledger audit` and `pokayoke ledger metrics`: what other systems take out of a store.

In: a store.
Out: audit lines, oldest first; gauges as Prometheus text.
Never: a part that looks complete. What was printed is counted on stderr, with its first and last number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from pokayoke.cli.ledger.join import read_audit
from pokayoke.cli.options import (
    JsonOption,
    StoreOption,
    current_time,
    format_time,
    open_store_option,
    parse_time,
    struct_to_dict,
)
from pokayoke.cli.output import as_json, escape_text, format_count, print_data, print_message
from pokayoke.stores.base import Store
from pokayoke.stores.values import AuditEntry


def audit(
    store: StoreOption = None,
    since: Annotated[str | None, typer.Option(help="Only lines since: 7d, or 2026-11-01.")] = None,
    after: Annotated[int, typer.Option(min=0, metavar="NUMBER", help="Only lines behind this number.")] = 0,
    json: JsonOption = False,
) -> None:
    """Print the audit, oldest first: decisions of people, flipped switches, reconciliations, late effects.

    pokayoke ledger audit --since 7d

    pokayoke ledger audit --json --after 812 >> audit.jsonl

    Lines are never changed or deleted, and each has a number that rises. To export the audit piece by piece, pass
    the last number of the piece before with --after. A transaction that was rolled back may leave a number out.
    """
    begin = parse_time(since, "--since", current_time())
    count, first, last = 0, 0, 0
    with open_store_option(store) as ledger:
        for entry in _select_entries(ledger, begin, after):
            count, first, last = count + 1, first or entry.number, entry.number
            print_data(as_json(struct_to_dict(entry)) if json else _describe_entry(entry))
    print_message(format_count(count, "line") + (f", number {first} to {last}" if count else ""))


def metrics(store: StoreOption = None, json: JsonOption = False) -> None:
    """Print what waits in the store as Prometheus text: open switches, doubts, questions, the last reconciliation.

    pokayoke ledger metrics --store sqlite:///ledger.db > /var/lib/node_exporter/pokayoke.prom

    It is read from the store, so it is the same whichever process asks, and after a restart. With --json, each
    value is a line with its name and its labels.
    """
    from pokayoke.runtime.metrics.store import (  # noqa: PLC0415 - this command only
        read_store_metrics,
        render_store_metrics,
    )

    with open_store_option(store) as ledger:
        if json:
            for instrument, samples in read_store_metrics(ledger, current_time()):
                for label, value in samples:
                    labels = dict.fromkeys(instrument.labels, label)
                    print_data(as_json({"metric": instrument.name, "labels": labels, "value": value}))
            return
        text = render_store_metrics(ledger, current_time())
    for line in text.splitlines():
        print_data(line)


def _select_entries(store: Store, since: float | None, after: int) -> Iterator[AuditEntry]:
    return (entry for entry in read_audit(store, after=after) if since is None or entry.at >= since)


def _describe_entry(entry: AuditEntry) -> str:
    words = [f"{entry.number:>6}", format_time(entry.at), entry.kind, entry.subject, f"by {entry.by}"]
    words += [f"({entry.reason})" if entry.reason else "", as_json(entry.data) if entry.data else ""]
    return escape_text("  ".join(word for word in words if word), limit=600)
