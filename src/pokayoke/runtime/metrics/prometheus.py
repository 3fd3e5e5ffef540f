"""Prometheus: events as counters, a histogram and gauges in a registry of `prometheus_client`.

Events are counted in the thread of the call: handing one to another thread would cost more.

In: the public part of events.
Out: samples of cached children.
Never: a text of a call in a label.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pokayoke.errors import ConfigurationError, MissingExtraError
from pokayoke.runtime.metrics.counting import BUCKETS, INSTRUMENTS, PER_TOOL, EventCounter, Exporter, Instrument
from pokayoke.runtime.threads.forks import on_fork

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


_KINDS: Final = {one.name: one.kind for one in INSTRUMENTS}
_ADDS: Final = {"counter": "inc", "histogram": "observe", "gauge": "set"}


class PrometheusMetrics(Exporter):
    """Counts the events of any number of guards: `metrics.watch(guard)`.

    Args:
        registry: of `prometheus_client`; None for its default one, which its HTTP server shows.
        clock: seconds since the epoch, for the age of outputs in the rate.

    Raises:
        MissingExtraError: `prometheus_client` is not installed.
        ConfigurationError: the registry holds these metrics already.
    """

    def __init__(self, registry: CollectorRegistry | None = None, *, clock: Callable[[], float] = time.time) -> None:
        """Register every instrument."""
        try:
            import prometheus_client  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise MissingExtraError("prometheus_client", "prometheus") from error
        place = prometheus_client.REGISTRY if registry is None else registry
        kinds: dict[str, Callable[[Instrument], Counter | Gauge | Histogram]] = {
            "counter": lambda one: prometheus_client.Counter(one.name, one.help, one.labels, registry=place),
            "gauge": lambda one: prometheus_client.Gauge(one.name, one.help, one.labels, registry=place),
            "histogram": lambda one: prometheus_client.Histogram(
                one.name, one.help, one.labels, buckets=BUCKETS, registry=place
            ),
        }
        try:
            self._instruments = {one.name: kinds[one.kind](one) for one in INSTRUMENTS}
        except ValueError as error:
            raise ConfigurationError(
                "the registry holds pokayoke's metrics already: let one PrometheusMetrics watch all guards"
            ) from error
        self._clock = clock
        self._counting = EventCounter()
        self._adders: dict[tuple[str, tuple[str, ...]], Callable[[float], object]] = {}
        on_fork(self, PrometheusMetrics.reset_after_fork)

    def register_tool(self, tool: str) -> None:
        """Export a tool's counters as 0, so that a rule on their increase sees the first one."""
        label = self._counting.label_for("tool", tool)
        for name in PER_TOOL:
            self._build_adder(name, (label,))

    def __call__(self, event: dict[str, Any]) -> None:
        """Take an event of a trace."""
        adders = self._adders
        for sample in self._counting.samples_of(event):
            adder = adders.get(sample[:2]) or self._build_adder(sample.name, sample.labels)
            adder(sample.value)

    def reset_after_fork(self) -> None:
        """Start anew in a child process."""
        self._counting.reset_after_fork()

    def _build_adder(self, name: str, labels: tuple[str, ...]) -> Callable[[float], object]:
        """Return what adds to one child; finding it through its labels costs more than adding."""
        instrument: Any = self._instruments[name]
        child = instrument.labels(*labels)
        adder: Callable[[float], object] = getattr(child, _ADDS[_KINDS[name]])
        self._adders[name, labels] = adder
        if name == "pokayoke_tool_output_total":
            # The rate is computed at each scrape: without new outputs it changes with their age.
            rate: Any = self._instruments["pokayoke_tool_output_invalid_rate"]
            rate.labels(*labels).set_function(lambda: self._counting.invalid_rate(labels[0], self._clock()))
        return adder
