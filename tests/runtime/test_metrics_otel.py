"""OpenTelemetry: metrics and `execute_tool` spans, made off the path of a call."""

import importlib
import math
import sys
import threading

import pytest

import pokayoke
from pokayoke.errors import MissingExtraError
from pokayoke.runtime.metrics import OpenTelemetryMetrics
from pokayoke.testing import FrozenClock


class Backend:
    """The real SDK with in-memory exporters."""

    def __init__(self, sdk):
        export = importlib.import_module("opentelemetry.sdk.trace.export")
        memory = importlib.import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter")
        metrics = importlib.import_module("opentelemetry.sdk.metrics")
        self.reader = importlib.import_module("opentelemetry.sdk.metrics.export").InMemoryMetricReader()
        self.exporter = memory.InMemorySpanExporter()
        self.tracers = sdk.TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(export.SimpleSpanProcessor(self.exporter))
        self.meters = metrics.MeterProvider([self.reader], shutdown_on_exit=False)

    def metrics(self, **options):
        return OpenTelemetryMetrics(self.meters, self.tracers, **options)

    def spans(self):
        return self.exporter.get_finished_spans()

    def values(self):
        """Every data point by metric name and attribute values; of a histogram its count."""
        data = self.reader.get_metrics_data()
        return {
            (metric.name, *[value for _, value in sorted(point.attributes.items())]): getattr(
                point, "value", getattr(point, "count", None)
            )
            for scope in (data.resource_metrics[0].scope_metrics if data else ())
            for metric in scope.metrics
            for point in metric.data.data_points
        }


@pytest.fixture
def backend(need):
    """The real SDK, shut down after the test."""
    try:
        sdk = importlib.import_module("opentelemetry.sdk.trace")
    except ImportError:
        need('opentelemetry-sdk is not installed: pip install "pokayoke[otel]"')
    made = Backend(sdk)
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


@pokayoke.tool(effect="read", output={"type": "object", "required": ["id"]})
def lookup(name: str) -> dict:
    """Look somebody up."""
    return {} if name == "broken" else {"id": 1}


@pokayoke.tool(effect="write", output="text", identity=("amount",))
def pay(amount: int) -> str:
    """Pay somebody."""
    if amount > 900:
        raise ConnectionError("CANARY")
    return "paid"


def test_spans_and_metrics_say_what_happened(backend):
    """Each call that ended is one span with the conventions' attributes, and is counted; no text of a call leaves."""
    metrics, guard = backend.metrics(), pokayoke.Guard([lookup, pay])
    metrics.watch(guard)
    with guard.run("run_1") as run:
        run.call(pokayoke.ToolCall("call_1", "lookup", {"name": "CANARY"}))
        run.call(pokayoke.ToolCall("call_2", "pay", {"amount": "3"}))
        run.call(pokayoke.ToolCall("call_3", "pay", {"amount": 3}))
        run.call(pokayoke.ToolCall("call_4", "pay", {"amount": 999}))
        run.call(pokayoke.ToolCall("CANARY with spaces", "no_such_CANARY", {}))
        run.call(pokayoke.ToolCall("call_6", "lookup", {"name": "broken"}))
    assert metrics.close()
    spans = backend.spans()
    assert [(span.name, span.attributes["pokayoke.run.id"]) for span in spans] == [
        ("execute_tool lookup", "run_1"),
        ("execute_tool pay", "run_1"),
        ("execute_tool pay", "run_1"),
        ("execute_tool pay", "run_1"),
        ("execute_tool (unknown)", "run_1"),
        ("execute_tool lookup", "run_1"),
    ]
    assert [span.attributes.get("error.type") for span in spans] == [
        None,
        None,
        None,
        "tool_failed",
        "unknown_tool",
        "missing_field",
    ]
    assert [span.status.status_code.name for span in spans] == ["UNSET"] * 3 + ["ERROR"] * 3
    first = dict(spans[0].attributes)
    assert {key: value for key, value in first.items() if key.startswith("gen_ai.")} == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "lookup",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call_1",
    }
    assert spans[0].kind.name == "INTERNAL"
    assert "gen_ai.tool.call.id" not in spans[4].attributes
    found = backend.values()
    assert "CANARY" not in repr([span.to_json() for span in spans]) + repr(found)
    assert {key: value for key, value in found.items() if value} == {
        ("pokayoke.tool.calls", "lookup", "ok"): 1,
        ("pokayoke.tool.calls", "lookup", "degraded"): 1,
        ("pokayoke.tool.calls", "pay", "ok"): 1,
        ("pokayoke.tool.calls", "pay", "replayed"): 1,
        ("pokayoke.tool.calls", "pay", "in_doubt"): 1,
        ("pokayoke.tool.calls", "(unknown)", "refused"): 1,
        ("pokayoke.tool.output", "lookup"): 2,
        ("pokayoke.tool.output", "pay"): 1,
        ("pokayoke.tool.output_invalid", "lookup"): 1,
        ("pokayoke.tool.output_invalid_rate", "lookup"): 0.5,
        ("pokayoke.refusals", "(unknown)", "unknown_tool"): 1,
        ("pokayoke.in_doubt", "pay"): 1,
        ("pokayoke.replays", "pay"): 1,
        ("pokayoke.corrections", "pay", "number_from_text"): 1,
        ("gen_ai.execute_tool.duration", "execute_tool", "lookup"): 1,
        ("gen_ai.execute_tool.duration", "missing_field", "execute_tool", "lookup"): 1,
        ("gen_ai.execute_tool.duration", "execute_tool", "pay"): 1,
        ("gen_ai.execute_tool.duration", "tool_failed", "execute_tool", "pay"): 1,
    }
    assert found["pokayoke.metrics.dropped",] == 0
    assert found["pokayoke.late_effects", "pay"] == 0


def test_the_attributes_are_those_of_the_conventions(backend):
    """The names of the attributes are the ones of the installed semantic conventions."""
    names = importlib.import_module("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
    metrics, guard = backend.metrics(), pokayoke.Guard([lookup])
    metrics.watch(guard)
    with guard.run() as run:
        run.call(pokayoke.ToolCall("call_1", "lookup", {"name": "x"}))
    assert metrics.close()
    (span,) = backend.spans()
    assert {key for key in span.attributes if key.startswith("gen_ai.")} == {
        names.GEN_AI_OPERATION_NAME,
        names.GEN_AI_TOOL_NAME,
        names.GEN_AI_TOOL_TYPE,
        names.GEN_AI_TOOL_CALL_ID,
    }
    assert span.attributes[names.GEN_AI_OPERATION_NAME] == names.GenAiOperationNameValues.EXECUTE_TOOL.value


def test_a_span_stands_below_the_agents_own(backend):
    """A call inside a span of the host has that span as its parent, though a worker makes it later."""
    metrics, guard = backend.metrics(), pokayoke.Guard([lookup])
    metrics.watch(guard)
    with (
        backend.tracers.get_tracer("agent").start_as_current_span("invoke_agent") as agent,
        guard.run() as run,
    ):
        run.call(pokayoke.ToolCall("1", "lookup", {"name": "x"}))
        assert metrics.flush()
    span = next(span for span in backend.spans() if span.name == "execute_tool lookup")
    assert span.parent.span_id == agent.get_span_context().span_id
    assert span.context.trace_id == agent.get_span_context().trace_id
    assert metrics.close()


def test_a_span_lasts_as_long_as_its_tool(backend):
    """It begins when the call began and ends after the microseconds of the event."""
    metrics = backend.metrics()
    event = {"ts": 1_700_000_000.25, "event": "tool_result", "tool": "t", "contract": "t@1", "ok": True}
    metrics({**event, "status": "ok", "attempts": 1, "us": 1_500})
    assert metrics.close()
    (span,) = backend.spans()
    assert span.start_time == 1_700_000_000_250_000_000
    assert span.end_time - span.start_time == 1_500_000


def test_metrics_alone(backend):
    """With `spans=False` calls are counted and no span is made."""
    metrics, guard = backend.metrics(spans=False), pokayoke.Guard([lookup])
    metrics.watch(guard)
    with guard.run() as run:
        run.call(pokayoke.ToolCall("1", "lookup", {"name": "x"}))
    assert metrics.close()
    assert backend.spans() == ()
    assert backend.values()["pokayoke.tool.calls", "lookup", "ok"] == 1


def test_a_slow_backend_costs_events_and_no_call(backend):
    """While exporting hangs, calls go on; what does not fit into the queue is counted as dropped and shown so."""
    hangs, held = threading.Event(), threading.Event()

    class Slow(importlib.import_module("opentelemetry.sdk.trace").SpanProcessor):
        def on_end(self, span):
            held.set()
            assert hangs.wait(30)

    backend.tracers.add_span_processor(Slow())
    metrics, guard = backend.metrics(waiting=5), pokayoke.Guard([lookup])
    metrics.watch(guard)
    with guard.run() as run:
        run.call(pokayoke.ToolCall("0", "lookup", {"name": "x"}))
        assert held.wait(30)
        for number in range(20):
            assert run.call(pokayoke.ToolCall(str(number), "lookup", {"name": f"n{number}"})).ok
    assert metrics.dropped == 15
    hangs.set()
    assert metrics.close()
    found = backend.values()
    assert found["pokayoke.tool.calls", "lookup", "ok"] == 6
    assert found["pokayoke.metrics.dropped",] == 15


def test_a_backend_that_fails_costs_events_and_no_call(backend):
    """What a span processor raises is named and counted; the next call is exported."""

    class Broken(importlib.import_module("opentelemetry.sdk.trace").SpanProcessor):
        def on_start(self, span, parent_context=None):
            if span.name == "execute_tool lookup":
                raise ValueError("CANARY")

    backend.tracers.add_span_processor(Broken())
    metrics, guard = backend.metrics(), pokayoke.Guard([lookup, pay])
    metrics.watch(guard)
    with guard.run() as run:
        assert run.call(pokayoke.ToolCall("1", "lookup", {"name": "x"})).ok
        assert run.call(pokayoke.ToolCall("2", "pay", {"amount": 1})).ok
    assert metrics.close()
    assert [span.name for span in backend.spans()] == ["execute_tool pay"]
    assert (metrics.dropped, metrics.problem) == (1, "an event could not be exported: ValueError")


def test_the_rate_ages_and_the_kill_switch_is_shown(backend):
    """After fifteen quiet minutes there is no rate; a switch is 1 while it is open and 0 when it is closed again."""
    clock = FrozenClock()
    metrics, guard = backend.metrics(clock=clock.now), pokayoke.Guard([lookup], clock=clock)
    metrics.watch(guard)
    with guard.run() as run:
        run.call(pokayoke.ToolCall("1", "lookup", {"name": "broken"}))
    guard.trace.record({"event": "switch", "tool": "lookup", "mode": "open", "ok": False})
    assert metrics.flush()
    found = backend.values()
    assert found["pokayoke.tool.output_invalid_rate", "lookup"] == 1
    assert found["pokayoke.kill_switch_open", "lookup"] == 1
    clock.advance(901)
    guard.trace.record({"event": "switch", "tool": "lookup", "mode": "closed", "ok": True})
    assert metrics.close()
    found = backend.values()
    assert math.isnan(found.get(("pokayoke.tool.output_invalid_rate", "lookup"), math.nan))
    assert found["pokayoke.kill_switch_open", "lookup"] == 0


def test_a_missing_library_names_its_extra(monkeypatch):
    """Without OpenTelemetry the error names the extra that installs it."""
    for name in [name for name in sys.modules if name.split(".")[0] == "opentelemetry"] + ["opentelemetry"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install .pokayoke\[otel\]"):
        OpenTelemetryMetrics()
