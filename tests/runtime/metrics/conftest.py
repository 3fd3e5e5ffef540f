"""Both exporters with one interface, so that one suite tests what they have in common."""

import importlib

import pytest

from pokayoke.runtime.metrics import OpenTelemetryMetrics, PrometheusMetrics


class PrometheusBackend:
    """The real client library with a registry of its own.

    Attributes:
        library: the module.
        registry: of this test.
    """

    def __init__(self, library):
        self.library, self.registry = library, library.CollectorRegistry()

    def metrics(self, **options):
        return PrometheusMetrics(self.registry, **options)

    def flush(self, metrics):
        """Nothing waits."""

    def samples(self):
        """What a scrape shows by name and labels, the tool first; without buckets and times of creation."""
        text = self.library.generate_latest(self.registry).decode()
        families = importlib.import_module("prometheus_client.parser").text_string_to_metric_families(text)
        return {
            (sample.name, *[text for _, text in sorted(sample.labels.items(), reverse=True)]): sample.value
            for family in families
            for sample in family.samples
            if not sample.name.endswith(("_bucket", "_created"))
        }

    def values(self):
        """The samples by the name of their instrument: `("tool_calls", "lookup", "ok")`."""
        return {
            (name.removeprefix("pokayoke_").removesuffix("_total"), *labels): value
            for (name, *labels), value in self.samples().items()
        }


class OpenTelemetryBackend:
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

    def flush(self, metrics):
        """Wait until the worker has exported everything."""
        assert metrics.flush()

    def spans(self):
        return self.exporter.get_finished_spans()

    def samples(self):
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

    def values(self):
        """The data points by the name of their instrument: `("tool_calls", "lookup", "ok")`."""
        return {
            (name.removeprefix("pokayoke.").replace(".", "_"), *labels): value
            for (name, *labels), value in self.samples().items()
        }


@pytest.fixture
def prometheus(need):
    """The real client library."""
    try:
        return PrometheusBackend(importlib.import_module("prometheus_client"))
    except ImportError:
        need('prometheus_client is not installed: pip install "pokayoke[prometheus]"')


@pytest.fixture
def opentelemetry(need):
    """The real SDK, shut down after the test."""
    try:
        sdk = importlib.import_module("opentelemetry.sdk.trace")
    except ImportError:
        need('opentelemetry-sdk is not installed: pip install "pokayoke[otel]"')
    made = OpenTelemetryBackend(sdk)
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


@pytest.fixture(params=["prometheus", "opentelemetry"])
def backend(request):
    """Each backend."""
    return request.getfixturevalue(request.param)
