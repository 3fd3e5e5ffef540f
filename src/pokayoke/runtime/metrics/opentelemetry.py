"""OpenTelemetry: events as metrics and as spans of the GenAI conventions (`execute_tool`).

A call only hands over the event and the context it runs in, so that its span is a child of the agent's own.

In: the public part of events.
Out: instruments of a meter and finished spans of a tracer, made by a worker thread.
Never: a call that waits for an exporter, or a text of a call in an attribute.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pokayoke.core.redaction.redactor import Redactor
from pokayoke.errors import MissingExtraError
from pokayoke.runtime.metrics.counting import BUCKETS, INSTRUMENTS, PER_TOOL, EventCounter, Exporter, MetricSample
from pokayoke.runtime.threads.background_queue import BackgroundQueue

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
    from opentelemetry.trace import TracerProvider


_OPERATION: Final = "execute_tool"
_DURATION: Final = "gen_ai.execute_tool.duration"
# Labels as attributes, with the conventions' names where they have one.
_ATTRIBUTES: Final = {
    "tool": "gen_ai.tool.name",
    "status": "pokayoke.status",
    "reason": "pokayoke.reason",
    "rule": "pokayoke.rule",
    "scope": "pokayoke.scope",
    "version": "pokayoke.contract",
    "differs": "pokayoke.differs",
}
_LABELS: Final = {one.name: tuple(_ATTRIBUTES[label] for label in one.labels) for one in INSTRUMENTS}
_redactor: Final = Redactor()
_CALL_ID: Final = re.compile(r"[\w.:@-]{1,128}", re.ASCII)  # any other text may be anything, even a secret
# Fields of an event that become attributes of its span.
_SPAN_FIELDS: Final = {
    "run_id": "pokayoke.run.id",
    "step": "pokayoke.step",
    "contract": "pokayoke.contract",
    "decision": "pokayoke.decision",
    "room": "pokayoke.room",
    "status": "pokayoke.status",
    "attempts": "pokayoke.attempts",
    "effect": "pokayoke.effect",
    "confidence": "pokayoke.confidence",
    "safe_mode": "pokayoke.safe_mode",
    "findings": "pokayoke.findings",
    "repairs": "pokayoke.repairs",
    "corrections": "pokayoke.corrections",
}


class OpenTelemetryMetrics(Exporter):
    """Measures the calls of any number of guards: `metrics.watch(guard)`.

    Args:
        meter_provider: of `opentelemetry`; None for the global one.
        tracer_provider: of `opentelemetry`; None for the global one.
        spans: False to export metrics only.
        waiting: events that may wait for the worker; more are dropped, and counted as dropped.
        clock: seconds since the epoch, for the age of outputs in the rate.

    Raises:
        MissingExtraError: `opentelemetry-sdk` is not installed.
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        *,
        spans: bool = True,
        waiting: int = 10_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create every instrument."""
        try:
            from opentelemetry import context, metrics, trace  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise MissingExtraError("opentelemetry-sdk", "otel") from error
        self._context, self._trace, self._observation = context, trace, metrics.Observation
        self._counting = EventCounter()
        self._switches: dict[str, float] = {}
        self._tracer = trace.get_tracer("pokayoke", tracer_provider=tracer_provider) if spans else None
        self._adders = self._create_instruments(metrics.get_meter("pokayoke", meter_provider=meter_provider))
        self._clock = clock
        self._handoff: BackgroundQueue[tuple[dict[str, Any], Context]] = BackgroundQueue(
            self._export_event, waiting, "pokayoke-metrics"
        )

    @property
    def dropped(self) -> int:
        """Events that were not exported: too many waited, or exporting failed."""
        return self._handoff.dropped_count

    @property
    def problem(self) -> str | None:
        """Why exporting failed last, or None."""
        kind = self._handoff.problem
        return None if kind is None else f"an event could not be exported: {kind}"

    def register_tool(self, tool: str) -> None:
        """Export a tool's counters as 0, so that a rule on their increase sees the first one."""
        label = self._counting.label_for("tool", tool)
        for name in PER_TOOL:
            self._add_sample(MetricSample(name, (label,), 0))

    def __call__(self, event: dict[str, Any]) -> None:
        """Take an event of a trace."""
        self._handoff.offer((event, self._context.get_current()))

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until everything so far has reached the providers, at most `timeout` seconds; False if it has not."""
        return self._handoff.flush(timeout)

    def close(self, timeout: float = 5.0) -> bool:
        """Flush, and end the worker. Later events are dropped. The end of the process does this automatically."""
        return self._handoff.close(timeout)

    # -- in the worker -----------------------------------------------------------------------------

    def _export_event(self, item: tuple[dict[str, Any], Context]) -> None:
        event, parent = item
        for sample in self._counting.samples_of(event):
            if sample.name == "pokayoke_tool_seconds":
                self._record_duration(event, sample)
            else:
                self._add_sample(sample)
        if self._tracer is not None and _is_call_end(event):
            self._make_span(event, parent)

    def _add_sample(self, sample: MetricSample) -> None:
        if sample.name == "pokayoke_kill_switch_open":
            self._switches[sample.labels[0]] = sample.value
        else:
            attributes = dict(zip(_LABELS[sample.name], sample.labels, strict=True))
            self._adders[sample.name](sample.value, attributes)

    def _record_duration(self, event: dict[str, Any], sample: MetricSample) -> None:
        attributes = {"gen_ai.operation.name": _OPERATION, "gen_ai.tool.name": sample.labels[0]}
        if not event["ok"]:
            attributes["error.type"] = self._error_of(event)
        self._adders[sample.name](sample.value, attributes)

    def _make_span(self, event: dict[str, Any], parent: Context) -> None:
        """Create the span of a finished call."""
        tool = self._counting.tool_label(event)
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": _OPERATION,
            "gen_ai.tool.name": tool,
            "gen_ai.tool.type": "function",
        }
        call_id = event.get("call_id")
        if isinstance(call_id, str) and _CALL_ID.fullmatch(call_id):
            attributes["gen_ai.tool.call.id"] = _redactor.redact_text(call_id)
        attributes |= {name: event[field] for field, name in _SPAN_FIELDS.items() if event.get(field) is not None}
        if "run_id" in event:  # a host's own, like that of a call
            attributes[_SPAN_FIELDS["run_id"]] = _redactor.redact_text(event["run_id"])
        begun = round(event["ts"] * 1e6) * 1_000  # a float of this size has microseconds only
        assert self._tracer is not None, "checked by the caller"
        span = self._tracer.start_span(
            f"{_OPERATION} {tool}", context=parent, kind=self._trace.SpanKind.INTERNAL, start_time=begun
        )
        if not event["ok"]:
            attributes["error.type"] = error = self._error_of(event)
            span.set_status(self._trace.StatusCode.ERROR, error)
        span.set_attributes(attributes)
        span.end(begun + event.get("us", 0) * 1_000)

    def _error_of(self, event: dict[str, Any]) -> str:
        """Return the error as one of few names: the finding's code."""
        findings = event.get("findings")
        return self._counting.label_for("reason", findings[0]) if findings else str(event.get("error", "_OTHER"))

    # -- instruments -------------------------------------------------------------------------------

    def _create_instruments(self, meter: Meter) -> dict[str, Callable[..., None]]:
        adders: dict[str, Callable[..., None]] = {}
        for one in INSTRUMENTS:
            if one.kind == "counter":
                adders[one.name] = meter.create_counter(_otel_name(one.name), description=one.help).add
            elif one.kind == "histogram":
                adders[one.name] = meter.create_histogram(
                    _DURATION, "s", one.help, explicit_bucket_boundaries_advisory=BUCKETS
                ).record
            else:
                callback = self._observe_switches if one.labels == ("scope",) else self._observe_rates
                meter.create_observable_gauge(_otel_name(one.name), [callback], description=one.help)
        meter.create_observable_counter(
            "pokayoke.metrics.dropped", [self._observe_dropped], description="Events that were not exported."
        )
        return adders

    def _observe_rates(self, _options: CallbackOptions) -> Iterator[Observation]:
        for tool in self._counting.rated_tools:
            rate = self._counting.invalid_rate(tool, self._clock())
            if not math.isnan(rate):
                yield self._observation(rate, {"gen_ai.tool.name": tool})

    def _observe_switches(self, _options: CallbackOptions) -> Iterator[Observation]:
        for scope, value in self._switches.copy().items():
            yield self._observation(value, {"pokayoke.scope": scope})

    def _observe_dropped(self, _options: CallbackOptions) -> Iterator[Observation]:
        yield self._observation(self.dropped)


def _otel_name(name: str) -> str:
    """Return an instrument's name as OpenTelemetry spells it: `pokayoke.tool.calls`, `pokayoke.in_doubt`."""
    plain = name.removesuffix("_total").removeprefix("pokayoke_")
    return f"pokayoke.tool.{plain.removeprefix('tool_')}" if plain.startswith("tool_") else f"pokayoke.{plain}"


def _is_call_end(event: dict[str, Any]) -> bool:
    """True for the event that ends a call: its result, or the decision that kept it from running."""
    return event["event"] == "tool_result" or (
        event["event"] == "tool_call" and event["decision"] not in ("allow", "replay")
    )
