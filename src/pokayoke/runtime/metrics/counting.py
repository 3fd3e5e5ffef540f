"""Instruments and samples: what each event adds to which metric, the same for every exporter.

In: the public part of events.
Out: samples to add.
Never: a label with values that others can invent without limit, or a free text as a label.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, NamedTuple, Protocol

from pokayoke.core.state.invalid_output_spike import OutputWindow, output_validity
from pokayoke.runtime.trace.observers import Observer

UNKNOWN: Final = "(unknown)"
"""The label of tools that are not in the catalogue, whatever the model called them."""
OTHER: Final = "(other)"
"""The label of names beyond the limit."""
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histogram, in seconds; the last is twice the usual deadline."""

_NAME: Final = re.compile(r"[\w.:/@*-]{1,128}", re.ASCII)
# Calls that end without running their tool: the code of the first finding says more than the decision.
_STATUS_OF_CODE: Final = {"in_doubt": "in_doubt", "failed_before": "failed"}


class Instrument(NamedTuple):
    """One metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


class MetricSample(NamedTuple):
    """One addition to an instrument: the value is added (counter), observed (histogram) or set (gauge)."""

    name: str
    labels: tuple[str, ...]
    value: float


INSTRUMENTS: Final = (
    Instrument("pokayoke_tool_calls_total", "counter", ("tool", "status"), "Tool calls by how they ended."),
    Instrument("pokayoke_tool_output_total", "counter", ("tool",), "Outputs that were checked."),
    Instrument("pokayoke_tool_output_invalid_total", "counter", ("tool",), "Outputs that broke their contract."),
    Instrument(
        "pokayoke_tool_output_invalid_rate",
        "gauge",
        ("tool",),
        "Share of invalid outputs among the last 50 of the last 15 minutes, 0 to 1; NaN without any.",
    ),
    Instrument("pokayoke_tool_seconds", "histogram", ("tool",), "How long tools ran, retries included."),
    Instrument("pokayoke_refusals_total", "counter", ("tool", "reason"), "Refused calls by finding code."),
    Instrument("pokayoke_in_doubt_total", "counter", ("tool",), "Calls that ended without knowing the effect."),
    Instrument("pokayoke_replays_total", "counter", ("tool",), "Writes answered from the ledger."),
    Instrument("pokayoke_corrections_total", "counter", ("tool", "rule"), "Changed argument values by rule."),
    Instrument("pokayoke_kill_switch_open", "gauge", ("scope",), "1 while writes are refused, else 0."),
    Instrument(
        "pokayoke_version_calls_total", "counter", ("version", "status"), "Tool calls of tools in several versions."
    ),
    Instrument(
        "pokayoke_shadow_total", "counter", ("version", "differs"), "Calls judged by a shadow, by what differs first."
    ),
    Instrument("pokayoke_late_effects_total", "counter", ("tool",), "Tools that answered after their deadline."),
)
"""Every instrument, by its Prometheus name. OpenTelemetry spells them with dots and without `_total`."""

PER_TOOL: Final = tuple(one.name for one in INSTRUMENTS if one.kind == "counter" and one.labels == ("tool",))
"""Counters that are exported as 0 as soon as a tool is known, so that a rule on their increase sees the first one."""


class EventCounter:
    """Turns events into samples. Safe to share between threads.

    Args:
        most: how many names of one kind get their own label; more are counted together under `(other)`.
    """

    def __init__(self, most: int = 1_000) -> None:
        """Start without known names."""
        self._most = most
        self._lock = threading.Lock()
        self._names: dict[str, set[str]] = {
            "tool": set(),
            "reason": set(),
            "rule": set(),
            "scope": set(),
            "version": set(),
        }
        self._windows: dict[str, OutputWindow] = {}
        self._versions: dict[str, str] = {}
        self._several: set[str] = set()

    def label_for(self, kind: str, given: object) -> str:
        """Return the label for a name: the name, or `(other)`."""
        known = self._names[kind]
        if given in known:
            return str(given)
        if not isinstance(given, str) or len(known) >= self._most or not _NAME.fullmatch(given):
            return OTHER
        known.add(given)
        return given

    def tool_label(self, event: dict[str, Any]) -> str:
        """Return the tool's label: its name if it is in the catalogue, else `(unknown)`."""
        if event.get("contract") is None and event["event"] != "late_effect":
            return UNKNOWN
        return self.label_for("tool", event.get("tool"))

    def samples_of(self, event: dict[str, Any]) -> list[MetricSample]:
        """Return what an event adds; nothing for an event of another kind."""
        kind = event["event"]
        if kind == "tool_result":
            return self._count_result(event, self.tool_label(event))
        if kind == "tool_call":
            return self._count_decision(event, self.tool_label(event))
        if kind == "shadow":
            version = self.label_for("version", event.get("candidate"))
            return [MetricSample("pokayoke_shadow_total", (version, (event.get("differs") or ("nothing",))[0]), 1)]
        if kind == "late_effect":
            return [MetricSample("pokayoke_late_effects_total", (self.tool_label(event),), 1)]
        if kind == "switch":
            scope = self.label_for("scope", event.get("tool"))
            return [MetricSample("pokayoke_kill_switch_open", (scope,), 0 if event.get("mode") == "closed" else 1)]
        return []

    def invalid_rate(self, tool: str, now: float) -> float:
        """Return the share of invalid outputs of a tool, 0 to 1; NaN without recent outputs."""
        with self._lock:
            window = self._windows.get(tool)
            rate = window.invalid_share(now) if window is not None else None
        return float("nan") if rate is None else rate

    @property
    def rated_tools(self) -> tuple[str, ...]:
        """The tools that have had an output."""
        with self._lock:
            return tuple(self._windows)

    def reset_after_fork(self) -> None:
        """Start anew in a child process, whose parent may have held the lock."""
        self._lock = threading.Lock()

    def _count_decision(self, event: dict[str, Any], tool: str) -> list[MetricSample]:
        samples = self._count_corrections(event, tool)
        decision = event["decision"]
        if decision == "replay":
            samples.append(MetricSample("pokayoke_replays_total", (tool,), 1))
        elif decision != "allow":
            code = (event.get("findings") or ("",))[0]
            status = "pending" if decision == "ask" else _STATUS_OF_CODE.get(code, "refused")
            samples.append(MetricSample("pokayoke_tool_calls_total", (tool, status), 1))
            samples += self._count_version(event, status)
            if status == "in_doubt":
                samples.append(MetricSample("pokayoke_in_doubt_total", (tool,), 1))
            if decision != "ask":
                samples.append(MetricSample("pokayoke_refusals_total", (tool, self.label_for("reason", code)), 1))
        return samples

    def _count_result(self, event: dict[str, Any], tool: str) -> list[MetricSample]:
        status = event["status"]
        samples = [MetricSample("pokayoke_tool_calls_total", (tool, status), 1), *self._count_version(event, status)]
        if event["attempts"]:
            samples.append(MetricSample("pokayoke_tool_seconds", (tool,), event["us"] / 1e6))
        valid = output_validity(event)
        if valid is not None:
            samples.append(MetricSample("pokayoke_tool_output_total", (tool,), 1))
            if not valid:
                samples.append(MetricSample("pokayoke_tool_output_invalid_total", (tool,), 1))
            with self._lock:
                window = self._windows.get(tool)
                if window is None:
                    window = self._windows[tool] = OutputWindow()
                window.add_output(event["ts"], valid=valid)
        if status == "in_doubt":
            samples.append(MetricSample("pokayoke_in_doubt_total", (tool,), 1))
        return samples + self._count_corrections(event, tool) if "corrections" in event else samples

    def _count_version(self, event: dict[str, Any], status: str) -> list[MetricSample]:
        """Count by `tool@version` as well, once a tool was seen in two versions."""
        tool, contract = event.get("tool"), event.get("contract")
        if tool not in self._names["tool"] or contract is None:
            return []
        seen = self._versions.setdefault(str(tool), contract)
        if seen == contract and tool not in self._several:
            return []
        self._several.add(str(tool))
        return [MetricSample("pokayoke_version_calls_total", (self.label_for("version", contract), status), 1)]

    def _count_corrections(self, event: dict[str, Any], tool: str) -> list[MetricSample]:
        rules = event.get("corrections", ())
        return [MetricSample("pokayoke_corrections_total", (tool, self.label_for("rule", rule)), 1) for rule in rules]


class _NamedTool(Protocol):
    @property
    def name(self) -> str: ...


class _ObservableTrace(Protocol):
    def observe(self, observer: Observer) -> Callable[[], None]: ...


class ObservedGuard(Protocol):
    """The part of a guard that an exporter needs: its tools and its trace."""

    @property
    def tools(self) -> Iterable[_NamedTool]:
        """The contracts in force."""
        ...

    @property
    def trace(self) -> _ObservableTrace:
        """The trace to observe."""
        ...


class Exporter(ABC):
    """Observes the events of any number of guards."""

    @abstractmethod
    def __call__(self, event: dict[str, Any]) -> None:
        """Take an event."""

    @abstractmethod
    def register_tool(self, tool: str) -> None:
        """Announce a tool of the catalogue."""

    def watch(self, guard: ObservedGuard) -> Callable[[], None]:
        """Measure a guard's calls from now on.

        Args:
            guard: a `Guard`.

        Returns:
            A function that stops measuring.
        """
        for contract in guard.tools:
            self.register_tool(contract.name)
        return guard.trace.observe(self)
