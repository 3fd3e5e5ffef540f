"""Prometheus: names, help and durations of a scrape."""

import subprocess
import sys
import urllib.request

import pytest
from metered_tools import look_up, lookup, pay

import pokayoke
from pokayoke.errors import ConfigurationError
from pokayoke.runtime.metrics import INSTRUMENTS, PrometheusMetrics


def test_a_scrape_over_http_shows_what_happened(prometheus):
    """A real HTTP scrape shows our metrics only, with the number of timed calls and no text of a call."""
    guard = pokayoke.Guard([lookup, pay])
    prometheus.metrics().watch(guard)
    look_up(guard, "x", "CANARY", "down")
    server, thread = prometheus.library.start_http_server(0, addr="127.0.0.1", registry=prometheus.registry)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=30) as answer:
            scraped = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert "CANARY" not in scraped
    assert 'pokayoke_tool_seconds_count{tool="lookup"} 3.0' in scraped
    for line in scraped.splitlines():
        assert line.startswith("#") or line.split("{")[0].split("_bucket")[0].startswith("pokayoke_"), line


def test_every_instrument_is_exposed_with_its_help(prometheus):
    """Each instrument has its HELP and TYPE lines from the beginning."""
    prometheus.metrics()
    text = prometheus.library.generate_latest(prometheus.registry).decode()
    for one in INSTRUMENTS:
        assert f"# HELP {one.name} {one.help}" in text
        assert f"# TYPE {one.name} {one.kind}" in text


def test_a_registry_takes_one_exporter(prometheus):
    """A second exporter for the same registry is an error that names the way out."""
    PrometheusMetrics(prometheus.registry)
    with pytest.raises(ConfigurationError, match="one PrometheusMetrics watch all guards"):
        PrometheusMetrics(prometheus.registry)


def test_importing_the_metrics_imports_no_extra():
    """Importing the package of metrics loads no library of an exporter."""
    script = (
        "import sys, pokayoke.runtime.metrics\n"
        "sys.exit([n for n in sys.modules if n.split('.')[0] in ('prometheus_client', 'opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr.strip() in ("", "[]"), done.stderr
