"""OpenTelemetry: metrics and `execute_tool` spans, made off the path of a call."""

import importlib
import threading

from metered_tools import look_up, lookup, pay

import pokayoke


def test_each_call_is_a_span(opentelemetry):
    """Each call that ended is one span with the conventions' attributes and one duration; no text of a call leaves."""
    metrics, guard = opentelemetry.metrics(), pokayoke.Guard([lookup, pay])
    metrics.watch(guard)
    with guard.run("run_1") as run:
        run.call(pokayoke.ToolCall("call_1", "lookup", {"name": "CANARY"}))
        run.call(pokayoke.ToolCall("call_2", "pay", {"amount": "3"}))
        run.call(pokayoke.ToolCall("call_3", "pay", {"amount": 3}))
        run.call(pokayoke.ToolCall("call_4", "pay", {"amount": 999}))
        run.call(pokayoke.ToolCall("CANARY with spaces", "no_such_CANARY", {}))
        run.call(pokayoke.ToolCall("call_6", "lookup", {"name": "broken"}))
    assert metrics.close()
    spans = opentelemetry.spans()
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
    found = opentelemetry.samples()
    assert "CANARY" not in repr([span.to_json() for span in spans]) + repr(found)
    assert {key: value for key, value in found.items() if key[0].startswith("gen_ai")} == {
        ("gen_ai.execute_tool.duration", "execute_tool", "lookup"): 1,
        ("gen_ai.execute_tool.duration", "missing_field", "execute_tool", "lookup"): 1,
        ("gen_ai.execute_tool.duration", "execute_tool", "pay"): 1,
        ("gen_ai.execute_tool.duration", "tool_failed", "execute_tool", "pay"): 1,
    }
    assert found["pokayoke.metrics.dropped",] == 0


def test_the_attributes_are_those_of_the_conventions(opentelemetry):
    """The names of the attributes are the ones of the installed semantic conventions."""
    names = importlib.import_module("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
    metrics, guard = opentelemetry.metrics(), pokayoke.Guard([lookup])
    metrics.watch(guard)
    with guard.run() as run:
        run.call(pokayoke.ToolCall("call_1", "lookup", {"name": "x"}))
    assert metrics.close()
    (span,) = opentelemetry.spans()
    assert {key for key in span.attributes if key.startswith("gen_ai.")} == {
        names.GEN_AI_OPERATION_NAME,
        names.GEN_AI_TOOL_NAME,
        names.GEN_AI_TOOL_TYPE,
        names.GEN_AI_TOOL_CALL_ID,
    }
    assert span.attributes[names.GEN_AI_OPERATION_NAME] == names.GenAiOperationNameValues.EXECUTE_TOOL.value


def test_a_span_stands_below_the_agents_own(opentelemetry):
    """A call inside a span of the host has that span as its parent, though a worker makes it later."""
    metrics, guard = opentelemetry.metrics(), pokayoke.Guard([lookup])
    metrics.watch(guard)
    with (
        opentelemetry.tracers.get_tracer("agent").start_as_current_span("invoke_agent") as agent,
        guard.run() as run,
    ):
        run.call(pokayoke.ToolCall("1", "lookup", {"name": "x"}))
        assert metrics.flush()
    span = next(span for span in opentelemetry.spans() if span.name == "execute_tool lookup")
    assert span.parent.span_id == agent.get_span_context().span_id
    assert span.context.trace_id == agent.get_span_context().trace_id
    assert metrics.close()


def test_a_span_lasts_as_long_as_its_tool(opentelemetry):
    """It begins when the call began and ends after the microseconds of the event."""
    metrics = opentelemetry.metrics()
    event = {"ts": 1_700_000_000.25, "event": "tool_result", "tool": "t", "contract": "t@1", "ok": True}
    metrics({**event, "status": "ok", "attempts": 1, "us": 1_500})
    assert metrics.close()
    (span,) = opentelemetry.spans()
    assert span.start_time == 1_700_000_000_250_000_000
    assert span.end_time - span.start_time == 1_500_000


def test_metrics_alone(opentelemetry):
    """With `spans=False` calls are counted and no span is made."""
    metrics, guard = opentelemetry.metrics(spans=False), pokayoke.Guard([lookup])
    metrics.watch(guard)
    look_up(guard, "x")
    assert metrics.close()
    assert opentelemetry.spans() == ()
    assert opentelemetry.samples()["pokayoke.tool.calls", "lookup", "ok"] == 1


def test_a_slow_backend_costs_events_and_no_call(opentelemetry):
    """While exporting hangs, calls go on; what does not fit into the queue is counted as dropped and shown so."""
    hangs, held = threading.Event(), threading.Event()

    class Slow(importlib.import_module("opentelemetry.sdk.trace").SpanProcessor):
        def on_end(self, span):
            held.set()
            assert hangs.wait(30)

    opentelemetry.tracers.add_span_processor(Slow())
    metrics, guard = opentelemetry.metrics(waiting=5), pokayoke.Guard([lookup])
    metrics.watch(guard)
    with guard.run() as run:
        run.call(pokayoke.ToolCall("0", "lookup", {"name": "x"}))
        assert held.wait(30)
        for number in range(20):
            assert run.call(pokayoke.ToolCall(str(number), "lookup", {"name": f"n{number}"})).ok
    assert metrics.dropped == 15
    hangs.set()
    assert metrics.close()
    found = opentelemetry.samples()
    assert found["pokayoke.tool.calls", "lookup", "ok"] == 6
    assert found["pokayoke.metrics.dropped",] == 15


def test_a_backend_that_fails_costs_events_and_no_call(opentelemetry):
    """What a span processor raises is named and counted; the next call is exported."""

    class Broken(importlib.import_module("opentelemetry.sdk.trace").SpanProcessor):
        def on_start(self, span, parent_context=None):
            if span.name == "execute_tool lookup":
                raise ValueError("CANARY")

    opentelemetry.tracers.add_span_processor(Broken())
    metrics, guard = opentelemetry.metrics(), pokayoke.Guard([lookup, pay])
    metrics.watch(guard)
    with guard.run() as run:
        assert run.call(pokayoke.ToolCall("1", "lookup", {"name": "x"})).ok
        assert run.call(pokayoke.ToolCall("2", "pay", {"amount": 1})).ok
    assert metrics.close()
    assert [span.name for span in opentelemetry.spans()] == ["execute_tool pay"]
    assert (metrics.dropped, metrics.problem) == (1, "an event could not be exported: ValueError")
