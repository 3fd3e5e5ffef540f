"""Prometheus: what a scrape shows is what happened."""

import importlib
import math
import subprocess
import sys
import threading
import urllib.request

import pytest

import pokayoke
from pokayoke.errors import ConfigurationError, MissingExtraError
from pokayoke.runtime.metrics import INSTRUMENTS, PrometheusMetrics
from pokayoke.testing import FrozenClock


@pytest.fixture
def client(need):
    """The real client library."""
    try:
        return importlib.import_module("prometheus_client")
    except ImportError:
        need('prometheus_client is not installed: pip install "pokayoke[prometheus]"')


@pytest.fixture
def registry(client):
    return client.CollectorRegistry()


@pokayoke.tool(effect="read", output={"type": "object", "required": ["id"]})
def lookup(name: str) -> dict:
    """Look somebody up."""
    if name == "down":
        raise RuntimeError("CANARY")
    return {} if name == "broken" else {"id": 1}


@pokayoke.tool(effect="write", output="text", identity=("amount",))
def pay(amount: int) -> str:
    """Pay somebody."""
    if amount > 900:
        raise ConnectionError("CANARY")
    return "paid"


def calls(run):
    """Calls of every kind, by what they are meant to end as."""
    number = iter(range(100))

    def call(tool, arguments):
        return run.call(pokayoke.ToolCall(f"c{next(number)}", tool, arguments)).status

    return [
        call("lookup", {"name": "x"}),
        call("pay", {"amount": "3"}),
        call("pay", {"amount": 3}),
        call("pay", {"amount": 999}),
        call("pay", {"amount": 999}),
        call("pay", '{"amount": CANARY}'),
        call("no_such_tool_CANARY", {}),
        call("lookup", {"name": "down"}),
        call("lookup", {"name": "broken"}),
        call("pay", {"amount": 4}),
    ]


def values(client, registry):
    """What a scrape shows by name and labels, the tool first; without buckets and times of creation."""
    text = client.generate_latest(registry).decode()
    families = importlib.import_module("prometheus_client.parser").text_string_to_metric_families(text)
    return {
        (sample.name.removeprefix("pokayoke_"), *[text for _, text in sorted(sample.labels.items(), reverse=True)]): (
            sample.value
        )
        for family in families
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_created"))
    }


def test_a_scrape_over_http_shows_what_happened(client, registry):
    """A real HTTP scrape of every kind of call shows each counter at what happened, and no text of a call."""
    guard = pokayoke.Guard([lookup, pay])
    PrometheusMetrics(registry).watch(guard)
    with guard.run("run_1") as run:
        assert calls(run) == [
            "ok",
            "ok",
            "replayed",
            "in_doubt",
            "in_doubt",
            "refused",
            "refused",
            "failed",
            "degraded",
            "refused",
        ]
    server, thread = client.start_http_server(0, addr="127.0.0.1", registry=registry)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=30) as answer:
            scraped = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert "CANARY" not in scraped
    found = values(client, registry)
    assert {key: value for key, value in found.items() if value and key[0] != "tool_seconds_sum"} == {
        ("tool_calls_total", "lookup", "ok"): 1,
        ("tool_calls_total", "lookup", "failed"): 1,
        ("tool_calls_total", "lookup", "degraded"): 1,
        ("tool_calls_total", "pay", "ok"): 1,
        ("tool_calls_total", "pay", "replayed"): 1,
        ("tool_calls_total", "pay", "in_doubt"): 2,
        ("tool_calls_total", "pay", "refused"): 2,
        ("tool_calls_total", "(unknown)", "refused"): 1,
        ("tool_output_total", "lookup"): 2,
        ("tool_output_total", "pay"): 1,
        ("tool_output_invalid_total", "lookup"): 1,
        ("tool_output_invalid_rate", "lookup"): 0.5,
        ("tool_seconds_count", "lookup"): 3,
        ("tool_seconds_count", "pay"): 2,
        ("refusals_total", "pay", "bare_reference"): 1,
        ("refusals_total", "pay", "in_doubt"): 1,
        ("refusals_total", "pay", "latched"): 1,
        ("refusals_total", "(unknown)", "unknown_tool"): 1,
        ("in_doubt_total", "pay"): 2,
        ("replays_total", "pay"): 1,
        ("corrections_total", "pay", "number_from_text"): 1,
    }
    for line in scraped.splitlines():
        assert line.startswith("#") or line.split("{")[0].split("_bucket")[0].startswith("pokayoke_"), line


def test_every_instrument_is_exposed_with_its_help(client, registry):
    """Each instrument has its HELP and TYPE lines from the beginning."""
    PrometheusMetrics(registry)
    text = client.generate_latest(registry).decode()
    for one in INSTRUMENTS:
        assert f"# HELP {one.name} {one.help}" in text
        assert f"# TYPE {one.name} {one.kind}" in text


def test_tools_of_the_catalogue_begin_at_zero(client, registry):
    """Before any call each tool's counters are 0 and its rate is not a number."""
    PrometheusMetrics(registry).watch(pokayoke.Guard([lookup, pay]))
    found = values(client, registry)
    assert found["in_doubt_total", "pay"] == 0
    assert found["tool_output_invalid_total", "lookup"] == 0
    assert math.isnan(found["tool_output_invalid_rate", "lookup"])


def test_the_rate_ages_without_new_outputs(client, registry):
    """A scrape after fifteen quiet minutes shows no rate, though nothing was counted since."""
    clock = FrozenClock()
    guard = pokayoke.Guard([lookup], clock=clock)
    PrometheusMetrics(registry, clock=clock.now).watch(guard)
    with guard.run() as run:
        run.call(pokayoke.ToolCall("1", "lookup", {"name": "broken"}))
    assert values(client, registry)["tool_output_invalid_rate", "lookup"] == 1
    clock.advance(901)
    assert math.isnan(values(client, registry)["tool_output_invalid_rate", "lookup"])


def test_the_kill_switch_is_shown_per_scope(client, registry):
    """A flip of the switch moves the gauge between 0 and 1."""
    guard, metrics = pokayoke.Guard([lookup]), PrometheusMetrics(registry)
    metrics.watch(guard)
    for mode, shown in (("open", 1), ("half_open", 1), ("closed", 0)):
        guard.trace.record({"event": "switch", "tool": "lookup", "mode": mode, "ok": mode == "closed"})
        assert values(client, registry)["kill_switch_open", "lookup"] == shown


def test_a_switch_that_trips_is_shown(client, registry):
    """Three outputs in a row that break their contract open the tool's switch, and a scrape shows it."""
    guard = pokayoke.Guard([lookup])
    PrometheusMetrics(registry).watch(guard)
    with guard.run() as run:
        for number in range(3):
            run.call(pokayoke.ToolCall(str(number), "lookup", {"name": "broken"}))
    assert values(client, registry)["kill_switch_open", "lookup"] == 1


def test_guards_share_one_exporter(client, registry):
    """Two guards add to the same series; a second exporter for the same registry is an error that says so."""
    metrics = PrometheusMetrics(registry)
    for _ in range(2):
        guard = pokayoke.Guard([lookup])
        metrics.watch(guard)
        with guard.run() as run:
            run.call(pokayoke.ToolCall("1", "lookup", {"name": "x"}))
    assert values(client, registry)["tool_calls_total", "lookup", "ok"] == 2
    with pytest.raises(ConfigurationError, match="one PrometheusMetrics watch all guards"):
        PrometheusMetrics(registry)


def test_watching_ends(client, registry):
    """After the function that `watch` returned, nothing is counted."""
    guard = pokayoke.Guard([lookup])
    end = PrometheusMetrics(registry).watch(guard)
    end()
    with guard.run() as run:
        run.call(pokayoke.ToolCall("1", "lookup", {"name": "x"}))
    assert values(client, registry)["tool_output_total", "lookup"] == 0


def test_threads_lose_no_count(client, registry):
    """Eight threads with fifty calls each are four hundred calls."""
    guard = pokayoke.Guard([lookup])
    PrometheusMetrics(registry).watch(guard)

    def work():
        with guard.run() as run:
            for number in range(50):
                run.call(pokayoke.ToolCall(str(number), "lookup", {"name": f"n{number}"}))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = values(client, registry)
    assert found["tool_calls_total", "lookup", "ok"] == 400
    assert found["tool_seconds_count", "lookup"] == 400


def test_a_missing_library_names_its_extra(monkeypatch):
    """Without `prometheus_client` the error names the extra that installs it."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match=r"pip install .pokayoke\[prometheus\]"):
        PrometheusMetrics()


def test_importing_the_metrics_imports_no_extra():
    """Who does not export pays for no library."""
    script = (
        "import sys, pokayoke.runtime.metrics\n"
        "sys.exit([n for n in sys.modules if n.split('.')[0] in ('prometheus_client', 'opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr.strip() in ("", "[]"), done.stderr
