"""Compiled schemas: dialects, references, formats, and what is valid."""

import http.server
import socket
import threading

import pytest
from schema_samples import TREE, nested

from pokayoke.core.schema import schema as schema_module
from pokayoke.core.schema.problems import MAX_DEPTH
from pokayoke.core.schema.schema import compile_schema
from pokayoke.errors import ContractError


def chain(length):
    """A schema of references that each lead to the next one."""
    steps = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(length)}
    return {"$defs": {**steps, f"a{length}": {"type": "integer"}}, "$ref": "#/$defs/a0"}


def test_no_socket_opens_and_no_server_is_asked(monkeypatch):
    """A schema that refers to a running server is refused, and the server gets no request."""
    hits = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            hits.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"type": "integer"}')

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/s.json"

    def forbidden(*_args, **_kwargs):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", forbidden)
    try:
        for schema in ({"$ref": url}, {"$schema": url}, {"$id": url, "$ref": "#/$defs/x"}, {"$dynamicRef": url}):
            with pytest.raises(ContractError):
                compile_schema(schema)
        handed = compile_schema({"$ref": url}, resources={url: {"type": "integer", "$defs": {"x": {"$ref": "#"}}}})
        assert handed.is_valid(1)
        assert not handed.is_valid("x")
    finally:
        monkeypatch.undo()
        server.shutdown()
        server.server_close()
        thread.join()
    assert hits == []


def test_a_document_that_was_handed_in_may_not_reach_further():
    """A reference inside a passed-in document needs its own target passed in too."""
    with pytest.raises(ContractError, match="points outside"):
        compile_schema({"$ref": "http://x/a"}, resources={"http://x/a": {"$ref": "b"}})
    both = compile_schema(
        {"$ref": "http://x/a"}, resources={"http://x/a#": {"$ref": "b"}, "http://x/b": {"$id": "b", "type": "null"}}
    )
    assert both.is_valid(None)
    assert not both.is_valid(0)


def test_the_last_line_of_defence_fetches_nothing():
    """The retriever of the validator's registry only raises."""
    with pytest.raises(LookupError, match="http://x/a was not handed in"):
        schema_module._refuse_retrieval("http://x/a")


def test_documents_without_a_reference_are_not_read():
    """A broken document does no harm while nothing refers to it."""
    assert compile_schema({"type": "null"}, resources={"http://x/a": {"$ref": "#nowhere"}}).is_valid(None)


def test_a_broken_document_handed_in_is_named():
    """The error of a passed-in document that is no schema names the schema it was passed in for."""
    with pytest.raises(ContractError, match="input of 'pay'"):
        compile_schema(
            {"$ref": "http://x/a"}, where="input of 'pay'", resources={"http://x/a": {"$id": "http://y/%zz:://"}}
        )


@pytest.mark.parametrize(
    ("draft", "uri", "number"),
    [
        ("draft4", "http://json-schema.org/draft-04/schema#", 4),
        ("draft6", "http://json-schema.org/draft-06/schema", 6),
        ("draft7", "https://json-schema.org/draft-07/schema#", 7),
        ("2019-09", "https://json-schema.org/draft/2019-09/schema", 2019),
        ("2020-12", "https://json-schema.org/draft/2020-12/schema", 2020),
    ],
)
def test_the_dialect_comes_from_the_schema_else_from_the_caller(draft, uri, number):
    """$schema wins over the caller's draft=, and 2020-12 is the default."""
    assert compile_schema({"$schema": uri}, draft="2019-09").draft == draft
    assert compile_schema({}, draft=draft).draft == draft
    assert compile_schema({}).draft == "2020-12"
    tuples = compile_schema({"$schema": uri, "prefixItems": [{"type": "null"}]})
    assert tuples.is_valid([1]) is (number < 2020)


def test_the_schema_is_a_private_copy():
    """Changing the dict that was given changes neither the copy nor the verdicts."""
    given = {"type": "object", "properties": {"a": {"enum": [1]}}}
    schema = compile_schema(given)
    given["properties"]["a"]["enum"].append(2)
    assert schema.raw == {"type": "object", "properties": {"a": {"enum": [1]}}}
    assert not schema.accepts({"a": 2})
    assert compile_schema({"enum": (1, 2)}).raw == {"enum": [1, 2]}
    assert repr(schema) == "<Schema 2020-12>"


def test_formats_are_asserted_unless_switched_off():
    """A known format is a rule by default and an annotation on request; the problem says which format."""
    schema = {"type": "string", "format": "date"}
    assert not compile_schema(schema).accepts("03/04/2026")
    assert compile_schema(schema, formats=False).accepts("03/04/2026")
    (problem,) = compile_schema(schema).find_problems("03/04/2026")
    assert problem.keyword == "format"
    assert problem.data == {"format": "date"}


def test_an_unknown_format_is_an_annotation_and_is_reported():
    """A vendor's format does not break a tool, and unknown_formats names it."""
    schema = compile_schema(
        {"format": "int32", "properties": {"a": {"format": "date"}, "b": {"items": {"format": "x"}}}}
    )
    assert schema.unknown_formats == ("int32", "x")
    assert schema.is_valid(2**40)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1: 2},
        "\ud800",
        {"\ud800": 1},
        float("nan"),
        [float("inf")],
        nested(251),
        nested(250, leaf=float("nan")),
        nested(5000),
        b"x",
        (1, 2),
    ],
)
def test_what_is_no_json_value_is_never_valid(value):
    """accepts() is False and problems() names one `json` problem, even for a schema that allows everything."""
    schema = compile_schema(True)
    assert schema.accepts(value) is False
    (problem,) = schema.find_problems(value)
    assert problem.keyword == "json"
    assert not schema.is_provably_complete(value)


def test_a_cycle_in_a_value_ends():
    """A list that contains itself twice is refused, not followed endlessly."""
    cycle = []
    cycle += [cycle, cycle]
    assert not compile_schema(True).accepts(cycle)
    assert compile_schema(True).find_problems(cycle)[0].keyword == "json"


def test_an_exception_of_the_validator_means_invalid(monkeypatch):
    """If the validator itself raises, the value is not valid and the problem says so."""
    schema = compile_schema(True)

    def raising(_value):
        raise RuntimeError("engine failure")

    monkeypatch.setattr(schema, "is_valid", raising)
    assert schema.accepts(1) is False
    assert schema.find_problems(1)[0].keyword == "json"


def test_deep_values_are_safe_in_a_thread_with_a_small_stack():
    """A recursive schema decides on values at the depth limit in a 256 KB thread."""
    results = []
    # Held here, so that they end here: Python 3.13 itself needs more stack than that to free the deepest.
    values = [nested(depth, leaf={}) for depth in (10, MAX_DEPTH - 1, MAX_DEPTH, 5000)]

    def work():
        schema = compile_schema(TREE)
        results.append([schema.accepts(value) for value in values])
        results.append(len(schema.find_problems(nested(249))))
        narrow = compile_schema(
            {**chain(290), "$defs": {**chain(290)["$defs"], "a290": {"properties": {"a": {"$ref": "#"}}}}}
        )
        results.append(narrow.accepts(nested(249)))

    before = threading.stack_size(256 * 1024)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    threading.stack_size(before)
    assert results == [[True, True, False, False], 1, True]
