"""Both exporters: the same counts, the same rate, the same switches."""

import math
import sys
import threading

import pytest
from metered_tools import CALLS, look_up, lookup, pay

import pokayoke
from pokayoke.errors import MissingExtraError
from pokayoke.runtime.metrics import OpenTelemetryMetrics, PrometheusMetrics
from pokayoke.testing import FrozenClock


def test_calls_of_every_kind_are_counted(backend):
    """A run with calls of every kind is counted alike by both exporters, and no text of a call is exported."""
    guard, metrics = pokayoke.Guard([lookup, pay]), backend.metrics()
    metrics.watch(guard)
    with guard.run("run_1") as run:
        calls = [pokayoke.ToolCall(f"c{number}", tool, arguments) for number, (tool, arguments, _) in enumerate(CALLS)]
        assert [run.call(call).status for call in calls] == [status for *_, status in CALLS]
    backend.flush(metrics)
    found = backend.values()
    assert "CANARY" not in repr(found)
    assert {key: value for key, value in found.items() if value and not key[0].startswith(("tool_seconds", "gen_ai"))} == {
        ("tool_calls", "lookup", "ok"): 1,
        ("tool_calls", "lookup", "failed"): 1,
        ("tool_calls", "lookup", "degraded"): 1,
        ("tool_calls", "pay", "ok"): 1,
        ("tool_calls", "pay", "replayed"): 1,
        ("tool_calls", "pay", "in_doubt"): 2,
        ("tool_calls", "pay", "refused"): 2,
        ("tool_calls", "(unknown)", "refused"): 1,
        ("tool_output", "lookup"): 2,
        ("tool_output", "pay"): 1,
        ("tool_output_invalid", "lookup"): 1,
        ("tool_output_invalid_rate", "lookup"): 0.5,
        ("refusals", "pay", "bare_reference"): 1,
        ("refusals", "pay", "in_doubt"): 1,
        ("refusals", "pay", "latched"): 1,
        ("refusals", "(unknown)", "unknown_tool"): 1,
        ("in_doubt", "pay"): 2,
        ("replays", "pay"): 1,
        ("corrections", "pay", "number_from_text"): 1,
    }  # fmt: skip


def test_tools_of_the_catalogue_begin_at_zero(backend):
    """Before any call each tool's counters are 0 and it has no rate."""
    metrics = backend.metrics()
    metrics.watch(pokayoke.Guard([lookup, pay]))
    backend.flush(metrics)
    found = backend.values()
    assert found["in_doubt", "pay"] == found["late_effects", "pay"] == found["tool_output_invalid", "lookup"] == 0
    assert math.isnan(found.get(("tool_output_invalid_rate", "lookup"), math.nan))


def test_the_rate_ages_without_new_outputs(backend):
    """After fifteen quiet minutes there is no rate, though nothing was counted since."""
    clock = FrozenClock()
    guard, metrics = pokayoke.Guard([lookup], clock=clock), backend.metrics(clock=clock.now)
    metrics.watch(guard)
    look_up(guard, "broken")
    backend.flush(metrics)
    assert backend.values()["tool_output_invalid_rate", "lookup"] == 1
    clock.advance(901)
    assert math.isnan(backend.values().get(("tool_output_invalid_rate", "lookup"), math.nan))


def test_the_kill_switch_is_shown_per_scope(backend):
    """A flip of the switch moves the gauge between 0 and 1."""
    guard, metrics = pokayoke.Guard([lookup]), backend.metrics()
    metrics.watch(guard)
    for mode, shown in (("open", 1), ("half_open", 1), ("closed", 0)):
        guard.trace.record({"event": "switch", "tool": "lookup", "mode": mode, "ok": mode == "closed"})
        backend.flush(metrics)
        assert backend.values()["kill_switch_open", "lookup"] == shown


def test_a_switch_that_trips_is_shown(backend):
    """Three runs in a row whose outputs break their contract open the tool's switch, and the gauge shows it."""
    guard, metrics = pokayoke.Guard([lookup]), backend.metrics()
    metrics.watch(guard)
    for _ in range(3):  # equal calls of one run count once
        look_up(guard, "broken")
    backend.flush(metrics)
    assert backend.values()["kill_switch_open", "lookup"] == 1


def test_guards_share_one_exporter(backend):
    """Two guards add to the same series."""
    metrics = backend.metrics()
    for _ in range(2):
        guard = pokayoke.Guard([lookup])
        metrics.watch(guard)
        look_up(guard, "x")
    backend.flush(metrics)
    assert backend.values()["tool_calls", "lookup", "ok"] == 2


def test_watching_ends(backend):
    """After the function that `watch` returned, nothing is counted."""
    guard, metrics = pokayoke.Guard([lookup]), backend.metrics()
    end = metrics.watch(guard)
    end()
    look_up(guard, "x")
    backend.flush(metrics)
    assert backend.values().get(("tool_output", "lookup"), 0) == 0


def test_threads_lose_no_count(backend):
    """Eight threads with fifty calls each are four hundred calls."""
    guard, metrics = pokayoke.Guard([lookup]), backend.metrics()
    metrics.watch(guard)
    threads = [threading.Thread(target=look_up, args=(guard, *map(str, range(50)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    backend.flush(metrics)
    assert backend.values()["tool_calls", "lookup", "ok"] == 400


@pytest.mark.parametrize(
    ("exporter", "package", "extra"),
    [(PrometheusMetrics, "prometheus_client", "prometheus"), (OpenTelemetryMetrics, "opentelemetry", "otel")],
)
def test_a_missing_library_names_its_extra(monkeypatch, exporter, package, extra):
    """Without its library an exporter's error names the extra that installs it."""
    for name in [package, *(name for name in sys.modules if name.split(".")[0] == package)]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=rf"pip install .pokayoke\[{extra}\]"):
        exporter()
