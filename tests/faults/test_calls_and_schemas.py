"""What users' code, tools, texts and schemas can do to a guard."""

import gzip
import json
import socket
import threading
import tracemalloc
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from pokayoke import Contract, Guard, Raw, ToolCall, read_arguments
from pokayoke.core.schema.schema import compile_schema
from pokayoke.errors import ContractError

ANY = {"type": "object"}
NUMBER = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 10}},
    "required": ["n"],
    "additionalProperties": False,
}
SMALL_STACK = 256 * 1024


def run_of(*contracts, **options):
    return Guard(contracts, **options).run("r")


def read(handler, **fields):
    return Contract.from_schema("read", ANY, effect="read", handler=handler, **{"output_schema": NUMBER, **fields})


def write(handler, **fields):
    return Contract.from_schema("write", ANY, handler=handler, **{"output_schema": NUMBER, **fields})


def in_small_thread(function):
    """Run in a thread with 256 KB of stack; a crash would take the test process with it."""
    box = []
    previous = threading.stack_size(SMALL_STACK)
    try:
        thread = threading.Thread(target=lambda: box.append(function()))
        thread.start()
    finally:
        threading.stack_size(previous)
    thread.join(30)
    assert box, "the thread did not come back"
    return box[0]


def raises(error):
    def raising(*args, **kwargs):
        raise error

    return raising


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(2), GeneratorExit(), RecursionError()])
def test_an_invariant_that_raises_makes_the_output_invalid(error):
    """Whatever an invariant raises, the guard lives, the output is invalid, the effect is not repeated."""
    effects = []
    run = run_of(write(lambda: effects.append(1) or {"n": 1}, invariants=(raises(error),)))
    outcome = run.call(ToolCall("c", "write", "{}"))
    assert (outcome.status, outcome.effect) == ("invalid_output", "done")
    run.clear_latch("write", by="t", reason="t")
    assert run.call(ToolCall("c", "write", "{}")).status == "invalid_output"
    assert effects == [1]


def test_an_invariant_that_hangs_is_cut_at_the_deadline():
    """With a declared deadline a hanging invariant costs that long, and the output is invalid."""
    gate = threading.Event()
    hanging = read(lambda: {"n": 1}, timeout=0.05, invariants=(lambda output, arguments: gate.wait(20) is None,))
    outcome = run_of(hanging).call(ToolCall("c", "read", "{}"))
    gate.set()
    assert (outcome.status, outcome.findings[0].code) == ("degraded", "invariant_cut")


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(2)])
def test_a_corrector_that_raises_refuses_the_call(error):
    """A corrector that raises starts nothing and takes nothing down."""
    effects = []

    def handler(n):
        effects.append(n)

    contract = Contract.from_schema("write", NUMBER, output_schema={}, handler=handler, correctors={"n": raises(error)})
    outcome = run_of(contract).call(ToolCall("c", "write", '{"n": "3 pieces"}'))
    assert (outcome.status, effects) == ("refused", [])


def test_a_corrector_that_hangs_is_cut_at_the_deadline():
    """With a declared deadline a hanging corrector refuses the call."""
    gate = threading.Event()
    contract = Contract.from_schema(
        "write",
        NUMBER,
        output_schema={},
        handler=lambda n: {},
        timeout=0.05,
        correctors={"n": lambda value: gate.wait(20)},
    )
    outcome = run_of(contract).call(ToolCall("c", "write", '{"n": "3 pieces"}'))
    gate.set()
    assert (outcome.status, outcome.findings[0].code) == ("refused", "correction_cut")


def test_sys_exit_in_a_tool_does_not_end_the_host():
    """SystemExit is a failure of the tool: in doubt for a write, failed for a read."""
    run = run_of(write(raises(SystemExit(1))), read(raises(SystemExit(1))))
    assert run.call(ToolCall("c", "write", "{}")).status == "in_doubt"
    assert run.call(ToolCall("c", "read", "{}")).status == "failed"


def test_invalid_output_after_a_successful_write():
    """Completed and invalid: the retry does not execute, and the run's writes are latched."""
    effects = []
    other = Contract.from_schema("other", ANY, output_schema=ANY, handler=dict)
    run = run_of(write(lambda: effects.append(1) or {"m": 1}), other)
    assert run.call(ToolCall("c", "write", "{}")).status == "invalid_output"
    assert run.call(ToolCall("c", "other", "{}")).findings[0].code == "latched"
    run.clear_latch("write", by="t", reason="t")
    assert run.call(ToolCall("c", "write", "{}")).status == "invalid_output"
    assert effects == [1]


@pytest.mark.parametrize(
    "answer",
    [
        Raw("<html><body>Maintenance</body></html>", "text/html", 200),
        Raw("<html><body>Maintenance</body></html>", "application/json", 200),
        Raw('{"n": 1', "application/json", 200),
        Raw("", "application/json", 200),
        Raw(b"", "application/json", 200),
        Raw('{"n": 1}', None, 200),
    ],
)
def test_html_truncated_and_empty_bodies(answer):
    """Each is ToolOutputInvalid with a stop reason, counted once."""
    run = run_of(read(lambda: answer))
    outcome = run.call(ToolCall("c", "read", "{}"))
    assert (outcome.status, outcome.stop_reason, outcome.value) == ("degraded", "invalid_tool_output", None)
    results = [event for event in run.trace if event["event"] == "tool_result"]
    assert [event["error"] for event in results] == ["ToolOutputInvalid"]


@pytest.mark.parametrize("body", ["x" * 60_000_000, b"x" * 60_000_000, '{"n": ' + "1" * 40_000_000 + "}"])
def test_an_enormous_body_is_cut_before_it_is_parsed(body):
    """Judging a body far over the cap takes less memory than the body itself: it is never copied."""
    contract = read(lambda: Raw(body, "application/json", 200))
    run = run_of(contract)
    tracemalloc.start()
    outcome = run.call(ToolCall("c", "read", "{}"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert outcome.findings[0].code == "output_too_large"
    assert peak < 3 * 800_000


def test_a_compressed_bomb_stays_compressed():
    """Bytes that are not JSON text are not unpacked on the way in."""
    bomb = gzip.compress(b"0" * 50_000_000)
    outcome = run_of(read(lambda: Raw(bomb, "application/json", 200))).call(ToolCall("c", "read", "{}"))
    assert outcome.status == "degraded"


@pytest.mark.parametrize("text", ["[" * 1_000_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000])
def test_deep_texts_are_refused_without_recursion(text):
    """Depth 1,000,000 on a 256 KB stack: a refusal in arguments and in outputs, no crash."""
    assert in_small_thread(lambda: read_arguments(text, max_chars=10_000_000).value) is None
    run = run_of(read(lambda: Raw(text, "application/json", 200), max_chars=10_000_000))
    assert in_small_thread(lambda: run.call(ToolCall("c", "read", "{}")).status) == "degraded"


def test_a_deep_python_value_is_refused():
    """A tool that returns ten thousand nested lists is invalid, not a crash."""
    value = []
    for _ in range(10_000):
        value = [value]
    run = run_of(read(lambda: value, output_schema={}))
    assert in_small_thread(lambda: run.call(ToolCall("c", "read", "{}")).status) == "degraded"


def test_schemas_that_explode_are_refused_at_registration():
    """A billion-laughs schema costs a bounded time and is an error that says why."""
    defs = {"a0": {"type": "string"}}
    for n in range(1, 40):
        defs[f"a{n}"] = {"allOf": [{"$ref": f"#/$defs/a{n - 1}"}, {"$ref": f"#/$defs/a{n - 1}"}]}
    with pytest.raises(ContractError):
        compile_schema({"$ref": "#/$defs/a39", "$defs": defs})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    ],
)
def test_schemas_that_refer_to_themselves_for_ever_are_refused(schema):
    """A reference that consumes nothing before it comes back is an error at registration."""
    with pytest.raises(ContractError):
        compile_schema(schema)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", "(a|aa)+$", "(.*a){12}$", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_patterns_run_in_linear_time(pattern):
    """The classic catastrophic patterns answer at once for a hostile text (the timeout catches a hang)."""
    schema = compile_schema({"type": "string", "pattern": pattern})
    assert schema.is_valid("a" * 50_000 + "!") in (True, False)


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_remote_references_open_no_socket(scheme, tmp_path):
    """A remote or file reference is refused at registration; a listening server sees nothing."""
    hits = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            hits.append(self.path)

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    target = tmp_path / "schema.json"
    target.write_text("{}")
    reference = f"http://127.0.0.1:{server.server_port}/x.json" if scheme == "http" else target.as_uri()
    with pytest.raises(ContractError):
        Contract.from_schema("t", {"type": "object", "properties": {"a": {"$ref": reference}}})
    with pytest.raises(ContractError):
        Contract.from_schema("t", ANY, output_schema={"$ref": reference})
    server.shutdown()
    server.server_close()
    thread.join(5)
    assert hits == []


def test_registration_never_touches_the_network(monkeypatch):
    """With sockets taken away, registering a remote reference fails with our error, not the network's."""
    monkeypatch.setattr(socket, "socket", raises(AssertionError("a socket was opened")))
    monkeypatch.setattr(socket, "create_connection", raises(AssertionError("a socket was opened")))
    with pytest.raises(ContractError):
        compile_schema({"$ref": "https://schemas.example/x.json"})


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e400", "-1e999", "1e999999999"])
def test_numbers_that_are_none_are_refused(literal):
    """In arguments and in outputs, whatever the bounds of the schema say."""
    text = f'{{"n": {literal}}}'
    assert read_arguments(text).value is None
    assert run_of(read(lambda: Raw(text, "application/json", 200))).call(ToolCall("c", "read", "{}")).value is None
    assert run_of(read(lambda: {"n": float("inf")})).call(ToolCall("c", "read", "{}")).value is None


@pytest.mark.parametrize("number", [2**53 + 1, 2**63, 2**64 + 1, -(2**70), 10**30])
def test_large_integers_are_exact_or_refused(number):
    """Never rounded: in arguments, in outputs, and when answered from the ledger."""
    seen = []
    contract = Contract.from_schema("write", ANY, output_schema={}, handler=lambda n: seen.append(n) or {"n": n})
    run = run_of(contract)
    first = run.call(ToolCall("c", "write", json.dumps({"n": number})))
    second = run.call(ToolCall("c", "write", json.dumps({"n": number})))
    neighbour = run.call(ToolCall("c", "write", json.dumps({"n": number + 1})))
    assert [first.value, second.value, neighbour.value] == [{"n": number}, {"n": number}, {"n": number + 1}]
    assert (second.status, seen) == ("replayed", [number, number + 1])


def test_five_thousand_digits_are_refused():
    """Python itself refuses to read them; that is a refusal, not an exception."""
    text = '{"n": ' + "9" * 5_000 + "}"
    assert read_arguments(text).value is None
    assert run_of(read(lambda: Raw(text, "application/json", 200))).call(ToolCall("c", "read", "{}")).value is None


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 2}', '{"x": {"a": 1, "\\u0061": 2}}', '{"a": {"b": 1}, "a": {"b": 2}}']
)
def test_duplicate_keys_are_refused(text):
    """Two values for one key have no right reading, however the key is spelt."""
    assert read_arguments(text).value is None
    assert (
        run_of(read(lambda: Raw(text, "application/json"), output_schema={})).call(ToolCall("c", "read", "{}")).value
        is None
    )


@pytest.mark.parametrize("name", ["pаy", "pay\u200b", "\u202epay", "ｐａｙ", "pay\u00ad"])
def test_confusable_names(name):
    """A look-alike is an unknown tool, never corrected to the real one, and cannot be registered."""
    effects = []
    run = run_of(Contract.from_schema("pay", ANY, output_schema={}, handler=lambda: effects.append(1) or {}))
    assert run.call(ToolCall("c", name, "{}")).stop_reason == "unknown_tool"
    assert effects == []
    with pytest.raises(ContractError):
        Guard([Contract.from_schema(name, ANY, output_schema={}, handler=dict)])


@pytest.mark.parametrize("text", ['{"a": "\\ud800"}', '{"\\udfff": 1}', '{"a": "x\\ud800y"}'])
def test_lone_surrogates_are_refused_before_the_claim(text):
    """Nothing that cannot be written down reaches the ledger or the tool."""
    effects = []
    contract = Contract.from_schema("write", ANY, output_schema={}, handler=lambda **a: effects.append(a) or {})
    assert run_of(contract).call(ToolCall("c", "write", text)).status == "refused"
    assert run_of(contract).call(ToolCall("c", "write", {"a": "\ud800"})).status == "refused"
    assert effects == []


def test_an_escaped_nul_is_a_character_like_any_other():
    """NUL in a value survives arguments, ledger and replay unchanged."""
    contract = Contract.from_schema("write", ANY, output_schema={}, handler=lambda a: {"a": a})
    run = run_of(contract)
    values = [run.call(ToolCall("c", "write", '{"a": "x\\u0000y"}')).value for _ in range(2)]
    assert values == [{"a": "x\x00y"}] * 2


def test_a_surrogate_in_a_result_is_an_invalid_output():
    """A tool's lone surrogate is a finding, not a failure at completion."""
    outcome = run_of(write(lambda: {"n": "\ud800"}, output_schema={})).call(ToolCall("c", "write", "{}"))
    assert (outcome.status, outcome.effect) == ("invalid_output", "done")
