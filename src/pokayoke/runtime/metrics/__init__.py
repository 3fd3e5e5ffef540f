"""Metrics: counters, rates and spans of a guard's calls, for Prometheus and OpenTelemetry.

    metrics = PrometheusMetrics()
    metrics.watch(guard)

Without an exporter nothing is counted. Importing this imports neither library.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from pokayoke.runtime.metrics.counting import INSTRUMENTS, Instrument
from pokayoke.runtime.metrics.opentelemetry import OpenTelemetryMetrics
from pokayoke.runtime.metrics.prometheus import PrometheusMetrics
from pokayoke.runtime.metrics.store import STORE_INSTRUMENTS, render_store_metrics

__all__ = [
    "INSTRUMENTS",
    "STORE_INSTRUMENTS",
    "Instrument",
    "OpenTelemetryMetrics",
    "PrometheusMetrics",
    "alert_rules",
    "grafana_dashboard",
    "render_store_metrics",
]


def alert_rules() -> Path:
    """Return the path of the Prometheus rule file that ships with the package, to copy or link."""
    return Path(str(files("pokayoke"))) / "data" / "alerts.yml"


def grafana_dashboard() -> Path:
    """Return the path of the Grafana dashboard that ships with the package, to import."""
    return Path(str(files("pokayoke"))) / "data" / "grafana.json"
