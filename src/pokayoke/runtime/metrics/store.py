"""What waits in a store, as gauges: they are read from the store, so a restart hides nothing.

In: a store.
Out: gauges, also in the text format of Prometheus, version 0.0.4.
Never: a text of a call. Labels are scopes of switches, modes and names of tools.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pokayoke.core.text.visible import make_visible
from pokayoke.runtime.metrics.counting import Instrument
from pokayoke.stores.base import Store
from pokayoke.stores.lists import AuditFilter, Trend
from pokayoke.stores.values import AuditEntry

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of the text."""
STORE_INSTRUMENTS: Final = (
    Instrument("pokayoke_store_kill_switch_open", "gauge", ("scope",), "1 while a switch refuses writes."),
    Instrument("pokayoke_store_doubts", "gauge", (), "Effects that a person has to settle, counted up to 10,001."),
    Instrument("pokayoke_store_oldest_doubt_seconds", "gauge", (), "Age of the oldest of them; 0 if there is none."),
    Instrument("pokayoke_store_questions", "gauge", (), "Questions that wait for an answer, counted up to 10,001."),
    Instrument("pokayoke_store_oldest_question_seconds", "gauge", (), "Age of the oldest of them; 0 if there is none."),
    Instrument("pokayoke_store_runs", "gauge", ("mode",), "Runs of a day that are not in the mode normal."),
    Instrument("pokayoke_store_reconciled_timestamp_seconds", "gauge", ("tool",), "Time of the last reconciliation."),
    Instrument("pokayoke_store_reconciled_open_keys", "gauge", ("tool",), "Keys that it found to differ."),
)
_LATEST_RECONCILIATIONS: Final = 1_000
"""How far back the last reconciliation of each tool is looked for, in reconciliations."""


Samples = list[tuple[str, float]]
"""Values of one gauge by its label, which is "" if it has none."""


def render_store_metrics(store: Store, now: float) -> str:
    """Return what waits in a store as Prometheus text. Arguments and errors are those of `read_store_metrics`."""
    found = read_store_metrics(store, now)
    return "".join(line for instrument, samples in found for line in _render_samples(instrument, samples))


def read_store_metrics(store: Store, now: float) -> list[tuple[Instrument, Samples]]:
    """Return what waits in a store.

    Args:
        store: any store.
        now: wall-clock second.

    Raises:
        StoreError: the store cannot be read. Let the scrape fail then: a gauge of 0 would be a lie.
    """
    overview = store.overview(now)
    switches = [(one.scope, float(one.mode == "open")) for one in store.switches()]
    modes = [(mode, float(trend.now)) for mode, trend in overview.modes.items()]
    reconciled = _last_reconciliations(store)
    values: tuple[Samples, ...] = (
        switches,
        [("", float(overview.doubts.now))],
        [("", _age(overview.doubts, now))],
        [("", float(overview.questions.now))],
        [("", _age(overview.questions, now))],
        modes,
        [(tool, entry.at) for tool, entry in reconciled.items()],
        [(tool, float(entry.data.get("open", 0))) for tool, entry in reconciled.items()],
    )
    return list(zip(STORE_INSTRUMENTS, values, strict=True))


def _last_reconciliations(store: Store) -> dict[str, AuditEntry]:
    """Return tool to the audit line of its last reconciliation; `*` stands for those of every tool."""
    lines = store.audit_lines(AuditFilter(kinds=("reconciled",), limit=_LATEST_RECONCILIATIONS))
    return {entry.subject: entry for entry in reversed(lines)}  # the latest line comes first, and is to win


def _age(trend: Trend, now: float) -> float:
    return 0.0 if trend.oldest is None else max(0.0, now - trend.oldest)


def _render_samples(instrument: Instrument, samples: Samples) -> Iterator[str]:
    yield f"# HELP {instrument.name} {instrument.help}\n# TYPE {instrument.name} {instrument.kind}\n"
    for label, value in samples:
        # A scope or a tool may be any text; in the format only these three characters have a meaning.
        shown = make_visible(label).replace("\\", "\\\\").replace('"', '\\"')
        named = "".join(f'{{{name}="{shown}"}}' for name in instrument.labels)
        yield f"{instrument.name}{named} {value!r}\n"
