"""Canary secrets in what surrounds the calls of a run: ids, prompts, paths, names, findings, doubts, notes, metrics.

Every place has a secret of its own, so that a hit names the place it comes from.
"""

import base64
import contextlib
import importlib
import json
import logging

import pytest
from canaries import Logged, database_rows, draw_letters, forms
from clishell import Shell
from pgserver import Missing, empty_schema

from pokayoke import Contract, Guard, ToolCall, open_store
from pokayoke.core.context.note import fact_lines
from pokayoke.runtime.metrics import OpenTelemetryMetrics, PrometheusMetrics
from pokayoke.runtime.run.compaction import collect_facts
from pokayoke.stores.encryption import VARIABLE

pytestmark = pytest.mark.xdist_group("postgres")

PLACES = (
    "argument", "marked", "misspelt", "enum", "raw", "output", "exception", "file", "folder", "tool", "field", "call",
    "prompt", "user", "run", "session", "tenant", "principal", "reference", "page",
)  # fmt: skip
# A write is found again by these, so a store that is not sealed holds them: docs/guides/redaction.md.
IDS = {"run", "session", "tenant", "principal"}
FIELDS = {
    "note": {"type": "string"}, "nip": {"type": "string"}, "path": {"type": "string"}, "kind": {"enum": ["a", "b"]},
    "password": {"type": "string"}, "n": {"type": "integer"},
}  # fmt: skip
SCHEMA = {"type": "object", "properties": FIELDS, "additionalProperties": False}


def secret(place):
    """The secret of a place: one by its form, but for what a mark or a name makes one."""
    letters = draw_letters(f"place {place}")
    return letters if place in ("marked", "misspelt") else f"sk-{letters}"


def found_in(data):
    """The places whose secret stands in some bytes."""
    return {place for place in PLACES for form in forms(secret(place).removeprefix("sk-")) if form in data}


def tools(root):
    """Tools that do what a run may meet: answers, failures, doubts, pages and paths."""

    def pay(note="", **_):
        if note == "doubt":
            raise TimeoutError(f"no answer about {secret('exception')} of {secret('marked')}")
        if note == "page":
            return f"<!doctype html><title>{secret('page')}</title>"
        return {"id": secret("output"), "nip": secret("marked"), "said": f"{note} for {secret('marked')}"}

    def load(**_):
        raise FileNotFoundError(2, "No such file", f"/srv/{secret('folder')}/{secret('file')}.txt")

    built = {"effect": "write", "redact": ("nip",), "handler": pay}
    return [
        Contract.from_schema("pay", SCHEMA, output_schema={"type": "object"}, identity=("note",), **built),
        Contract.from_schema("ask", SCHEMA, output_schema="text", approval=True, **built),
        Contract.from_schema(
            "load", SCHEMA, output_schema="text", effect="read", handler=load, paths={"path": (str(root),)}
        ),
    ]


CALLS = (
    ("pay", {"note": f"pay {secret('argument')}", "nip": secret("marked")}, "ok"),
    ("ask", {"note": secret("argument"), "nip": secret("marked")}, "pending"),
    ("load", {"path": f"{secret('folder')}/{secret('file')}.txt"}, "failed"),
    ("load", {"path": f"../{secret('folder')}/{secret('file')}"}, "refused"),
    ("load", {"path": f"/{secret('folder')}/{secret('file')}"}, "refused"),
    ("pay", {"kind": secret("enum"), "nip": secret("marked")}, "refused"),
    ("pay", {"pasword": secret("misspelt")}, "refused"),
    ("pay", {secret("field"): "x"}, "refused"),
    (secret("tool"), {}, "refused"),
    ("pay", f'{{"note": {secret("raw")}', "refused"),
    ("pay", {"note": "doubt", "nip": secret("marked")}, "in_doubt"),
    ("pay", {"note": "page", "nip": secret("marked")}, "invalid_output"),
    ("pay", {"note": "after", "nip": secret("marked")}, "refused"),
)


class Observed:
    """What became of one run: the bytes of each sink by its name, and what a note of its history says."""

    def __init__(self, folder, url):
        self.folder, self.url, self.sinks = folder, url, {}
        self.note = ""

    def play(self):
        """Play every call, settle the doubt by hand, and read all sinks."""
        logged, metrics, spans = Logged(), self._build_prometheus(), self._build_opentelemetry()
        logger = logging.getLogger("pokayoke")
        logger.addHandler(logged)
        trace = {"path": str(self.folder / "trace.jsonl"), "sample_path": str(self.folder / "sample.jsonl")}
        config = {"trace": {**trace, "sample_share": 1.0}, "retry": {"retries": 0}, "safe_mode": {"kill_switch": False}}
        try:
            with contextlib.closing(open_store(self.url, create=True)) as store:
                guard = Guard(tools(self.folder), store=store, config=config)
                metrics[0].watch(guard)
                spans[0].watch(guard)
                names = {name: secret(name) for name in ("session", "tenant", "principal")}
                names["principal"] = {"id": names["principal"], "roles": []}
                run = guard.run(secret("run"), prompt=f"Use {secret('prompt')}", **names)
                with run:
                    run.user(f"and {secret('user')}")
                    for number, (tool, arguments, status) in enumerate(CALLS):
                        given = arguments if isinstance(arguments, str) else json.dumps(arguments)
                        outcome = run.call(ToolCall(f"{secret('call')}-{number}", tool, given))
                        assert outcome.status == status, (tool, outcome)
                self.sinks["ring"] = b"\n".join(run.trace.lines)
                again = guard.run(secret("run"), **names)
                self.note = "\n".join(fact_lines(collect_facts(again)))
                guard.close()
        finally:
            logger.removeHandler(logged)
        self.sinks["prometheus"] = metrics[1]()
        self.sinks["otel"] = spans[1]()
        self.sinks["log"] = "\n".join(logged.lines).encode()
        self._run_commands()
        for part in ("trace.jsonl", "sample.jsonl"):
            self.sinks[part] = (self.folder / part).read_bytes()
            assert self.sinks[part]
        files = [path.read_bytes() for path in sorted(self.folder.glob("ledger.db*"))]
        self.sinks["store"] = database_rows(self.url) if self.url.startswith("postgres") else b"".join(files)
        return self

    def _build_prometheus(self):
        library = importlib.import_module("prometheus_client")
        registry = library.CollectorRegistry()
        return PrometheusMetrics(registry), lambda: library.generate_latest(registry)

    def _build_opentelemetry(self):
        sdk = importlib.import_module("opentelemetry.sdk.trace")
        export = importlib.import_module("opentelemetry.sdk.trace.export")
        memory = importlib.import_module(
            "opentelemetry.sdk.trace.export.in_memory_span_exporter"
        ).InMemorySpanExporter()
        meters = importlib.import_module("opentelemetry.sdk.metrics")
        reader = importlib.import_module("opentelemetry.sdk.metrics.export").InMemoryMetricReader()
        tracers = sdk.TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(export.SimpleSpanProcessor(memory))
        metrics = OpenTelemetryMetrics(meters.MeterProvider([reader], shutdown_on_exit=False), tracers)

        def read():
            assert metrics.close()
            spans = [span.to_json() for span in memory.get_finished_spans()]
            assert spans
            return "\n".join([*spans, reader.get_metrics_data().to_json()]).encode()

        return metrics, read

    def _run_commands(self):
        shell, place = Shell(self.folder), ("--store", self.url)
        doubts = shell("ledger", "list", "--in-doubt", *place, "--json").stdout.splitlines()
        key = json.loads(doubts[0])["key"]
        settle = ("--happened", "PO-7", "--by", "ann", "--reason", "seen")
        for words in (
            ("ledger", "list", *place), ("ledger", "list", *place, "--json"), ("ledger", "list", "--in-doubt", *place),
            ("ledger", "list", "--in-doubt", *place, "--json"), ("ledger", "show", key, *place),
            ("ledger", "show", key, *place, "--json"), ("ledger", "resolve", key, *settle, *place, "--json"),
            ("ledger", "show", key, *place), ("safe-mode", "status", *place), ("safe-mode", "status", *place, "--json"),
            ("approvals", "list", "--all", *place, "--json"), ("trace", "trace.jsonl"),
            ("trace", "trace.jsonl", "--json"), ("trace", "report", "trace.jsonl"),
            ("trace", "report", "trace.jsonl", "--json"),
        ):  # fmt: skip
            done = shell(*words)
            assert done.returncode in (0, 1), (words, done.stderr)
            self.sinks[" ".join(map(str, words[:3]))] = (done.stdout + done.stderr).encode()


def play(folder, kind, need):
    """Play the run over a store of a kind."""
    pytest.importorskip("prometheus_client")
    pytest.importorskip("opentelemetry.sdk")
    if kind == "sqlite":
        return Observed(folder, f"sqlite:///{folder / 'ledger.db'}").play()
    try:
        with empty_schema() as url:
            return Observed(folder, url).play()
    except Missing as missing:
        need(str(missing))


@pytest.mark.parametrize("sealed", [False, True], ids=["open", "sealed"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_a_run_writes_and_shows_holds_no_secret(kind, sealed, tmp_path, need, monkeypatch):
    """No sink repeats the secret of any place; a store holds ids, by which a write is found, and nothing else."""
    monkeypatch.delenv(VARIABLE, raising=False)
    if sealed:
        monkeypatch.setenv(VARIABLE, base64.b64encode(b"s" * 32).decode())
    observed = play(tmp_path, kind, need)
    observed.sinks["store"], ids = b"", found_in(observed.sinks["store"])
    assert {name: found for name, data in observed.sinks.items() if (found := found_in(data))} == {}
    assert ids <= IDS
    assert found_in(observed.note.encode()) == {"argument", "marked", "output"}, "what the model has sent and read"
