"""Schemas: what is refused at registration, what is valid, why something is not, what cannot have been lost."""

import http.server
import itertools
import json
import socket
import threading
import time
from unittest import mock

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.schema import explain as schema_explain
from pokayoke.core.schema import schema as schema_module
from pokayoke.core.schema.cost import count_values, pattern_weight
from pokayoke.core.schema.problems import MAX_DEPTH, MAX_PROBLEMS, short_json
from pokayoke.core.schema.schema import compile_schema
from pokayoke.errors import ContractError

CLOSED = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"type": "integer", "minimum": 1}},
    "required": ["name"],
    "additionalProperties": False,
}


def bomb(levels):
    """A schema whose one place is checked on 2**levels paths."""
    steps = {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(levels)}
    return {"$defs": {**steps, f"a{levels}": {"type": "integer"}}, "$ref": "#/$defs/a0"}


def chain(length):
    """A schema of references that each lead to the next one."""
    steps = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(length)}
    return {"$defs": {**steps, f"a{length}": {"type": "integer"}}, "$ref": "#/$defs/a0"}


def one_of(choices):
    """A schema of alternatives, each a number."""
    return {"anyOf": [{"const": choice} for choice in range(choices)]}


def asked_again(levels, keyword="allOf", unevaluated="unevaluatedProperties"):
    """A schema whose branches each ask their own branches again what they have seen."""
    schema = {"properties": {"z": {}}}
    for _ in range(levels):
        schema = {keyword: schema if keyword in ("if", "contains") else [schema], unevaluated: False}
    return schema


def nested(depth, key="a", leaf=1):
    """An object in an object in an object."""
    value = leaf
    for _ in range(depth):
        value = {key: value}
    return value


def deep_schema(depth):
    """A schema nested in itself."""
    schema = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


TREE = {
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/tree"}, "b": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
        }
    },
    "$ref": "#/$defs/tree",
}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ([1], "a dict or a bool"),
        ({1: 2}, "not a string"),
        ({"const": b"x"}, "not a JSON value"),
        ({"const": float("nan")}, "not a JSON value"),
        ({"enum": list(range(100_001))}, "more than 100000 values"),
        (deep_schema(200), "deeper than 128"),
        ({"type": "strng"}, "not a valid JSON Schema at /type"),
        (bomb(24), "multiply"),
        (bomb(60), "multiply"),
        (asked_again(20), "multiply"),
        (asked_again(20, "anyOf"), "multiply"),
        (asked_again(20, "oneOf"), "multiply"),
        (asked_again(20, "if"), "multiply"),
        (asked_again(20, "allOf", "unevaluatedItems"), "multiply"),
        (asked_again(20, "contains", "unevaluatedItems"), "multiply"),
        (chain(400), "chain of more than 300"),
        ({"$ref": "#"}, "never ends"),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#"}]}}}, "never ends"),
        # The loop is found also when a part of it was first reached through a property.
        (
            {
                "$defs": {"n": {"properties": {"p": {"$ref": "#/$defs/m"}}, "allOf": [{"$ref": "#/$defs/m"}]},
                          "m": {"$ref": "#/$defs/n"}},
                "$ref": "#/$defs/n",
            },
            "never ends",
        ),
        ({"$ref": "http://127.0.0.1:9/x"}, "points outside"),
        ({"$ref": "file:///etc/passwd"}, "points outside"),
        ({"$ref": "other.json"}, "points outside"),
        ({"$defs": {"unused": {"items": {"$ref": "https://x/y#/a"}}}}, "points outside"),
        ({"$dynamicRef": "http://127.0.0.1:9/x"}, "points outside"),
        ({"contentSchema": {"$ref": "http://127.0.0.1:9/x"}}, "points outside"),
        ({"$id": "http://x/y", "$ref": "z"}, "points outside"),
        ({"$ref": "#/definitions/absent"}, "points to nothing"),
        ({"$ref": "#/$defs/a/0", "$defs": {"a": [1]}}, "not a valid JSON Schema"),
        ({"$ref": "#/allOf/7", "allOf": [{}]}, "points to nothing"),
        ({"$ref": "#nowhere"}, "no anchor 'nowhere'"),
        ({"$schema": "http://x/y"}, "unknown"),
        ({"pattern": "(?=a)b"}, "linear-time engine"),
        ({"pattern": r"(a)\1"}, "linear-time engine"),
        ({"pattern": "(a{1000}){1000}"}, "linear-time engine"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused_at_registration(schema, words):
    """Each of these raises a ContractError that names the schema and the reason."""
    with pytest.raises(ContractError, match="input of 'pay'") as caught:
        compile_schema(schema, where="input of 'pay'")
    assert words in str(caught.value)


@pytest.mark.parametrize("unevaluated", ["unevaluatedProperties", "unevaluatedItems"])
@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf", "if", "contains"])
def test_branches_that_are_asked_again_are_kept_while_they_are_few(keyword, unevaluated):
    """Closed schemas may be built on each other a few times over, and every one that is kept answers at once."""
    kept = compile_schema(asked_again(6, keyword, unevaluated))
    began = time.process_time()
    assert kept.is_valid({"y": 1}) is not (unevaluated == "unevaluatedProperties")
    kept.is_valid([{"z": 1}])
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize("pattern", ["(a+)+$", "^(([a-z])+.)+[A-Z]([a-z])+$", "(a|aa)+$", "(a|a?)+$", "(.*a){25}"])
def test_patterns_that_hang_other_engines_run_in_linear_time(pattern):
    """A pattern with catastrophic backtracking decides on 50,000 letters within the time limit."""
    compile_schema({"pattern": pattern}).is_valid("a" * 50_000 + "!")


def test_thousands_of_large_patterns_are_refused_at_once():
    """One large pattern compiles; 2,000 of them would take minutes and are refused at the first."""
    large = "(a{300}){300}"
    assert compile_schema({"pattern": large}).is_valid("") is False
    with pytest.raises(ContractError, match="linear-time engine"):
        compile_schema({"allOf": [{"pattern": large}] * 1_000, "patternProperties": {f"{i}": {} for i in range(1_000)}})


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"pattern": "(a{300}){300}b"}}},
        {"properties": {"a": {"allOf": [{"pattern": f"(a{{20}}){{20}}b{i}"} for i in range(200)]}}},
        {"patternProperties": {"(a{300}){300}b": {}}, "items": {"patternProperties": {"(a{300}){300}b": {}}}},
    ],
)
@pytest.mark.parametrize("value", [{"a": "a" * 200_000}, {"a" * 200_000: 1}, [{"a" * 200_000: 1}]])
def test_a_costly_pattern_is_not_asked_about_a_long_text(schema, value):
    """A pattern that would need minutes for a text makes that text invalid, with a problem that says why."""
    compiled = compile_schema(schema)
    limit = compiled.limits[0]
    assert limit.most < 200_000
    assert compiled.is_valid(value) is False
    assert compiled.accepts(value) is False
    (problem,) = compiled.find_problems(value)
    assert "costly" in problem.expected
    assert problem.data == {"limit": limit.most}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": one_of(4_000)}, [3_999] * 20_000),
        ({"contains": one_of(4_000), "minContains": 0}, [4_000] * 20_000),
        ({"additionalProperties": one_of(4_000)}, {f"k{i}": 3_999 for i in range(18_000)}),
        ({"patternProperties": {f"^k{i}[a-z]*x": {} for i in range(2_000)}}, {f"k{i}": 1 for i in range(18_000)}),
        ({"$defs": {"a": one_of(4_000)}, "properties": {f"k{i}": {"$ref": "#/$defs/a"} for i in range(9_000)}},
         {f"k{i}": 3_999 for i in range(9_000)}),
        ({"$defs": {"t": {"anyOf": [*one_of(3_000)["anyOf"], {"properties": {"a": {"$ref": "#/$defs/t"}},
                                                              "additionalProperties": {"$ref": "#/$defs/t"}}]}},
          "$ref": "#/$defs/t"}, {f"k{i}": {"a": 2_999} for i in range(9_000)}),
    ],
)  # fmt: skip
def test_many_alternatives_are_not_compared_with_very_many_values(schema, value):
    """A schema of thousands of alternatives is kept, and asked about as many values as take a moment."""
    compiled = compile_schema(schema)
    limit = compiled.limits[-1]
    assert 1_000 < limit.most < 10_000
    began = time.process_time()
    assert compiled.is_valid(value) is False
    (problem,) = compiled.find_problems(value)
    assert time.process_time() - began < 0.5
    assert (problem.keyword, problem.data) == ("schema", {"limit": limit.most})
    assert "values in all" in problem.expected


@pytest.mark.parametrize(
    "choices",
    [
        [{"key": number} for number in range(20_000)],
        [[number] for number in range(20_000)],
        [number + 0.5 for number in range(20_000)],
        [[number, number + 0.5] for number in range(9_000)],
        [2**63 + number for number in range(20_000)],
    ],
)
def test_a_value_is_not_compared_with_many_choices_many_times(choices):
    """Choices that cannot be looked up are alternatives: a long list of the last of them is refused at once."""
    compiled = compile_schema({"items": {"enum": choices}})
    assert compiled.is_valid([choices[-1]])
    began = time.process_time()
    assert not compiled.is_valid([choices[-1]] * 20_000)
    assert time.process_time() - began < 1
    assert "values in all" in compiled.find_problems([choices[-1]] * 20_000)[0].expected


@pytest.mark.parametrize(
    "choices", [[f"x{number}" for number in range(20_000)], list(range(20_000)), [0.05, 0.07, 0.19], [{}, [], None]]
)
def test_choices_that_are_few_or_looked_up_limit_nothing(choices):
    """Texts and whole numbers, and a handful of anything, are compared as often as a value holds them."""
    compiled = compile_schema({"items": {"enum": choices}})
    assert compiled.is_valid([choices[-1]] * 20_000)


@pytest.mark.parametrize("items", [{"type": "integer"}, {"type": "string"}, True])
@pytest.mark.parametrize("wrap", [lambda number: number, lambda number: [number], lambda number: {"a": [-number]}])
def test_integers_beyond_64_bits_are_not_compared_pair_by_pair_in_a_long_list(items, wrap):
    """6,000 integers that must differ are refused at once, with a problem that says why, at any depth."""
    compiled = compile_schema({"properties": {"ids": {"items": items, "uniqueItems": True}}})
    value = {"ids": [wrap(2**63 + 1 + number) for number in range(6_000)]}
    began = time.process_time()
    assert not compiled.is_valid(value)
    (problem,) = compiled.find_problems(value)
    assert time.process_time() - began < 1
    assert "integers beyond 64 bits" in problem.expected


def test_items_that_are_looked_up_may_be_many_and_differ():
    """20,000 texts, fractions and integers of 64 bits, and a hundred longer integers, are judged by the schema."""
    compiled = compile_schema({"uniqueItems": True, "items": {"type": ["integer", "number", "string", "array"]}})
    items = [x for n in range(5_000) for x in (f"x{n}", n + 0.5, [-(2**63), n], 2**63 - 1 - n)]
    assert compiled.is_valid([*items, *(10**30 + number for number in range(100))])
    assert not compiled.is_valid([*items, items[0]])
    assert not compiled.is_valid([10**30, 10**30])


@pytest.mark.parametrize("size", [0, 1, 99, 1_000])
def test_ordinary_amounts_of_values_meet_any_schema(size):
    """A list of a thousand choices out of a thousand is judged by its schema, value by value."""
    compiled = compile_schema({"items": one_of(1_000)})
    assert compiled.is_valid([999] * size)
    assert not compiled.is_valid([*([999] * size), 1_000])


@pytest.mark.parametrize(
    ("value", "values"), [(None, 1), ("text", 1), ([], 1), ([1, [2, 3]], 5), ({"a": {"b": []}, "c": [{}]}, 5)]
)
def test_values_are_counted_at_every_depth(value, values):
    """Every list, object and scalar counts as one."""
    assert count_values(value) == values


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        ("", 1), ("abc", 3), ("^a*b+c?$", 3), ("a{3}", 3), ("a{2,5}", 5), ("a{2,}", 3), ("a{0}", 1), ("(ab){3}c", 7),
        ("((a{2}){3}){4}", 24), ("(?:a|b){10}", 30), (r"\\{3}", 3), (r"[a{9}]{2}", 2), (r"[]{9}]{2}", 2), (r"[\]{9}]{2}", 2),
        ("^.{1,2000}$", 2000), ("a{99999999999}", 9999999), ("a)b", 2), ("((a", 1), ("{3}", 1), ("a{3}{4}", 12),
        (r"\({3}a", 4), ("a{b}", 4),
    ],
)  # fmt: skip
def test_repetitions_are_multiplied_out(pattern, steps):
    """The weight of a pattern is its steps with all counts written out, whatever its syntax."""
    assert pattern_weight(pattern) == steps


def test_usual_patterns_leave_the_bare_validator_in_place():
    """Schemas with everyday patterns validate through the engine's own method, without a limit."""
    usual = compile_schema(
        {"properties": {"a": {"pattern": "^[A-Z]{2,255}$"}}, "patternProperties": {r"^\w{1,64}$": {}}}
    )
    assert usual.limits == ()
    assert usual.is_valid.__self__.__class__ is jsonschema_rs.Draft202012Validator
    long = compile_schema({"properties": {"a": {"pattern": "^.{1,2000}$"}}})
    assert long.is_valid({"a": "x" * 2000, "b": [1, None]})
    assert not long.is_valid({"a": "x" * 2001})


def test_no_socket_opens_and_no_server_is_asked(monkeypatch):
    """A schema that refers to a running server is refused and the server sees no request."""
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
    """A reference inside a handed-in document needs its own target handed in too."""
    with pytest.raises(ContractError, match="points outside"):
        compile_schema({"$ref": "http://x/a"}, resources={"http://x/a": {"$ref": "b"}})
    both = compile_schema(
        {"$ref": "http://x/a"}, resources={"http://x/a#": {"$ref": "b"}, "http://x/b": {"$id": "b", "type": "null"}}
    )
    assert both.is_valid(None)
    assert not both.is_valid(0)


def test_the_last_line_of_defence_fetches_nothing():
    """What the validator's registry would call for an absent document only raises."""
    with pytest.raises(LookupError, match="http://x/a was not handed in"):
        schema_module._refuse_retrieval("http://x/a")


def test_documents_nobody_refers_to_are_not_even_read():
    """A broken document among those handed in does no harm while nothing points to it."""
    assert compile_schema({"type": "null"}, resources={"http://x/a": {"$ref": "#nowhere"}}).is_valid(None)


def test_a_broken_document_handed_in_is_named():
    """The error of a handed-in document that is no schema names the schema it was handed in for."""
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
    """$schema wins over the draft= of the caller, and 2020-12 is what is meant without both."""
    assert compile_schema({"$schema": uri}, draft="2019-09").draft == draft
    assert compile_schema({}, draft=draft).draft == draft
    assert compile_schema({}).draft == "2020-12"
    tuples = compile_schema({"$schema": uri, "prefixItems": [{"type": "null"}]})
    assert tuples.is_valid([1]) is (number < 2020)


def test_a_target_is_found_by_the_schema_that_refers_to_it():
    """target() gives what a subschema's $ref points to, and None where there is no $ref."""
    schema = compile_schema({"$defs": {"a": {"type": "null"}}, "items": {"$ref": "#/$defs/a"}})
    assert schema.resolve_ref(schema.raw["items"]) == {"type": "null"}
    assert schema.resolve_ref(schema.raw) is None


def test_a_dynamic_reference_does_not_hide_a_static_one():
    """With both kinds of reference in one schema, explanations follow $ref."""
    schema = {"$defs": {"a": {"type": "null"}, "b": {"$dynamicAnchor": "b"}}}
    for keys in (("$ref", "$dynamicRef"), ("$dynamicRef", "$ref")):
        both = dict.fromkeys(keys)
        both.update({"$ref": "#/$defs/a", "$dynamicRef": "#b"})
        (problem,) = compile_schema({**schema, "items": both}).find_problems([1])
        assert (problem.at, problem.expected) == ("/0", "null")


def test_keywords_with_the_wrong_shape_are_left_to_the_validator():
    """A list where a schema belongs, or the reverse, is refused as an invalid schema, not a crash."""
    for schema in ({"allOf": {}}, {"properties": []}, {"dependentSchemas": 1}, {"items": [1]}, {"prefixItems": {}}):
        with pytest.raises(ContractError, match="not a valid JSON Schema"):
            compile_schema(schema)


def test_references_by_every_name_are_followed():
    """$id, $anchor, old-style id fragments, urn: bases, escapes and keywords no draft knows are resolved."""
    named = compile_schema({
        "$id": "urn:example:root",
        "$defs": {"a": {"$anchor": "a", "type": "null"}, "b": {"$id": "urn:example:b", "$ref": "urn:example:root#a"},
                  "x/y~z": {"$ref": "#a"}},
        "properties": {"p": {"$ref": "#/$defs/x~1y~0z"}, "q": {"$ref": "urn:example:b"}, "r": {"$ref": "#/extra/0"}},
        "extra": [{"type": "integer"}],
    })  # fmt: skip
    assert named.is_valid({"p": None, "q": None, "r": 1})
    assert not any(map(named.is_valid, ({"p": 1}, {"q": 1}, {"r": None})))
    old = compile_schema({"definitions": {"a": {"$id": "#a", "type": "null"}}, "items": {"$ref": "#a"}}, draft="draft7")
    assert old.is_valid([None])
    meta = compile_schema({"$ref": "https://json-schema.org/draft/2020-12/schema"})
    assert not meta.is_valid({"type": "strng"})


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
    """A list that contains itself twice is refused, not followed for ever."""
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


# -- problems -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "integer"}, "x", ("", "type", "integer", '"x"', {"types": ["integer"]})),
        ({"type": ["string", "null"]}, 1, ("", "type", "string or null", "1", {"types": ["string", "null"]})),
        ({"enum": ["a", 1]}, "b", ("", "enum", 'one of "a", 1', '"b"', {"allowed": ["a", 1]})),
        ({"enum": ["a"]}, "b", ("", "enum", '"a"', '"b"', {"allowed": ["a"]})),
        ({"const": "a"}, "b", ("", "const", '"a"', '"b"', {"allowed": ["a"]})),
        ({"minimum": 1}, 0, ("", "minimum", "at least 1", "0", {"limit": 1})),
        ({"maximum": 1}, 2, ("", "maximum", "at most 1", "2", {"limit": 1})),
        ({"exclusiveMinimum": 1}, 1, ("", "exclusiveMinimum", "more than 1", "1", {"limit": 1})),
        ({"exclusiveMaximum": 1}, 1, ("", "exclusiveMaximum", "less than 1", "1", {"limit": 1})),
        ({"multipleOf": 0.01}, 0.005, ("", "multipleOf", "a multiple of 0.01", "0.005", {"limit": 0.01})),
        ({"minLength": 2}, "a", ("", "minLength", "at least 2 characters", '"a"', {"limit": 2})),
        ({"maxLength": 1}, "ab", ("", "maxLength", "at most 1 characters", '"ab"', {"limit": 1})),
        ({"minItems": 1}, [], ("", "minItems", "at least 1 items", "[]", {"limit": 1})),
        ({"maxItems": 1}, [1, 2], ("", "maxItems", "at most 1 items", "[1,2]", {"limit": 1})),
        ({"minProperties": 1}, {}, ("", "minProperties", "at least 1 properties", "{}", {"limit": 1})),
        ({"maxProperties": 0}, {"a": 1}, ("", "maxProperties", "at most 0 properties", '{"a":1}', {"limit": 0})),
        ({"uniqueItems": True}, [1, 1], ("", "uniqueItems", "items that all differ", "[1,1]", {})),
        ({"pattern": "^a$"}, "b", ("", "pattern", 'text matching the pattern "^a$"', '"b"', {"pattern": "^a$"})),
        ({"properties": {"a/b~": {"type": "null"}}}, {"a/b~": 1}, ("/a~1b~0", "type", "null", "1", {"types": ["null"]})),
        ({"items": {"type": "null"}}, [None, 1], ("/1", "type", "null", "1", {"types": ["null"]})),
        ({"prefixItems": [True, {"type": "null"}]}, [1, 2, 3], ("/1", "type", "null", "2", {"types": ["null"]})),
        ({"prefixItems": [True], "items": False}, [1, 2], ("/1", "false", "nothing here", "2", {})),
        ({"additionalProperties": {"type": "null"}}, {"a": 1}, ("/a", "type", "null", "1", {"types": ["null"]})),
        ({"patternProperties": {"^a": {"type": "null"}}}, {"a": 1, "b": 1}, ("/a", "type", "null", "1", {"types": ["null"]})),
        ({"required": ["a"]}, {"b": 1}, ("", "required", 'the property "a"', '["b"]', {"missing": "a", "allowed": []})),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1},
         ("", "required", 'the property "b"', '["a"]', {"missing": "b", "allowed": []})),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1},
         ("", "required", 'the property "b"', '["a"]', {"missing": "b", "allowed": []})),
        ({"additionalProperties": False}, {"a": 1},
         ("", "additionalProperties", "no property", '["a"]', {"unexpected": ["a"], "allowed": []})),
        ({"properties": {"a": {}}, "patternProperties": {"^x": {}}, "additionalProperties": False}, {"xa": 1, "b": 2},
         ("", "additionalProperties", 'no property beside "a"', '["b"]', {"unexpected": ["b"], "allowed": ["a"]})),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1, "c": 2},
         ("", "propertyNames", "property names that are at most 1 characters", '"ab"', {"unexpected": ["ab"]})),
        ({"contains": {"type": "null"}}, [1], ("", "contains", "at least 1 items of the wanted kind", "[1]", {"limit": 1})),
        ({"contains": {"type": "null"}, "maxContains": 1}, [None, None],
         ("", "contains", "at most 1 items of the wanted kind", "[null,null]", {"limit": 1})),
        ({"not": {"type": "null"}}, None, ("", "not", 'a value that does not fit {"type":"null"}', "null", {})),
        ({"allOf": [{"type": "null"}]}, 1, ("", "type", "null", "1", {"types": ["null"]})),
        ({"if": {"type": "null"}, "else": {"type": "string"}}, 1, ("", "type", "string", "1", {"types": ["string"]})),
        ({"if": {"type": "integer"}, "then": {"minimum": 5}}, 1, ("", "minimum", "at least 5", "1", {"limit": 5})),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, 1, ("", "type", "null", "1", {"types": ["null"]})),
        ({"not": {"type": "null"}, "contains": True, "maxItems": 1}, [1, 2], ("", "maxItems", "at most 1 items", "[1,2]", {"limit": 1})),
        (False, 1, ("", "false", "nothing here", "1", {})),
        ({"unevaluatedItems": False}, [1], ("", "schema", "a value the schema allows", "[1]", {})),
        ({"oneOf": [{"type": "integer"}, {"minimum": 0}, {"type": "null"}]}, 1,
         ("", "oneOf", "a value that fits exactly one of 3 variants, not 2", "1", {"matching": [0, 1]})),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}, {"enum": ["a"]}, False]}, "x",
         ("", "anyOf", 'integer or null or "a"', '"x"', {"variants": 4, "types": ["integer", "null"], "allowed": ["a"]})),
        ({"anyOf": [False, False]}, 1, ("", "anyOf", "another value", "1", {"variants": 2})),
        ({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}, 0,
         ("", "minimum", "at least 1", "0", {"variant": 0, "variants": 2, "tied": False, "limit": 1})),
    ],
)  # fmt: skip
def test_one_problem_says_what_where_expected_and_got(schema, value, expected):
    """Pointer, keyword, expectation, what came and data are exactly these; the sentence holds all of them."""
    (problem,) = compile_schema(schema).find_problems(value)
    assert (problem.at, problem.keyword, problem.expected, problem.got, problem.data) == expected
    assert problem.message == f"{expected[0] or 'the value'}: expected {expected[2]}, got {expected[3]}"
    assert not compile_schema(schema).accepts(value)


@pytest.mark.parametrize(
    ("draft", "schema", "value", "keyword", "expected"),
    [
        ("draft4", {"minimum": 1, "exclusiveMinimum": True}, 1, "minimum", "more than 1"),
        ("draft4", {"maximum": 1, "exclusiveMaximum": False}, 2, "maximum", "at most 1"),
        ("draft7", {"items": [{"type": "null"}], "additionalItems": False}, [None, 1], "false", "nothing here"),
        ("draft7", {"items": [{"type": "null"}]}, [1], "type", "null"),
        ("draft7", {"items": {"type": "null"}, "additionalItems": False}, [1], "type", "null"),
        ("draft7", {"dependencies": {"a": ["b"]}}, {"a": 1}, "required", 'the property "b"'),
        ("draft7", {"dependencies": {"a": {"minProperties": 2}}}, {"a": 1}, "minProperties", "at least 2 properties"),
        (
            "draft7",
            {"definitions": {"a": {"type": "null"}}, "allOf": [{"$ref": "#/definitions/a", "type": "string"}]},
            1,
            "type",
            "null",
        ),
    ],
)
def test_older_dialects_are_explained_by_their_own_rules(draft, schema, value, keyword, expected):
    """A schema of an older draft gives the problem its own draft speaks of, and no other."""
    (problem,) = compile_schema(schema, draft=draft).find_problems(value)
    assert (problem.keyword, problem.expected) == (keyword, expected)


def test_all_problems_come_at_once_in_the_order_of_the_schema():
    """A missing, an unexpected and a wrong field are three problems, each with its own pointer."""
    problems = compile_schema(CLOSED).find_problems({"size": 0, "nmae": "x"})
    assert [(p.keyword, p.at, p.data) for p in problems] == [
        ("minimum", "/size", {"limit": 1}),
        ("required", "", {"missing": "name", "allowed": ["name", "size"]}),
        ("additionalProperties", "", {"unexpected": ["nmae"], "allowed": ["name", "size"]}),
    ]
    assert problems[0].schema == CLOSED["properties"]["size"]
    assert compile_schema(CLOSED).find_problems({"name": "x"}) == ()


def test_the_number_of_problems_and_their_length_are_bounded():
    """100,000 wrong items give MAX_PROBLEMS problems; long values and long lists of choices are cut."""
    many = compile_schema({"items": {"type": "integer"}}).find_problems(["x"] * 100_000)
    assert len(many) == MAX_PROBLEMS
    assert many[0].at == "/0"
    wide = {"enum": [f"choice number {i}" for i in range(500)]}
    (problem,) = compile_schema(wide).find_problems("y" * 100_000)
    assert len(problem.message) < 800
    assert "and 488 more" in problem.expected
    names = {"properties": {f"f{i}": {} for i in range(100)}, "additionalProperties": False}
    (problem,) = compile_schema(names).find_problems({"x": 1})
    assert "and 88 more" in problem.expected


def test_wide_values_are_looked_at_a_bounded_number_of_times():
    """A slip behind more places than the budget allows still gives a problem, the general one."""
    schema = compile_schema({"items": {"properties": {"a": {}}, "required": ["a"]}})
    (problem,) = schema.find_problems([*[{"a": 1}] * 60_000, {}])
    assert problem.keyword == "schema"


def test_a_recursive_union_is_explained_in_linear_time():
    """A 60-level tree of a three-way union, wrong at its leaf, is explained at once and at the leaf."""
    expression = {
        "$defs": {
            "e": {
                "anyOf": [
                    {"type": "object", "properties": {"op": {"const": op}, "a": {"$ref": "#/$defs/e"}}, "required": ["op", "a"]}
                    for op in ("not", "neg", "abs")
                ] + [{"type": "integer"}]
            }
        },
        "$ref": "#/$defs/e",
    }  # fmt: skip
    value = "leaf"
    for _ in range(60):
        value = {"op": "neg", "a": value}
    problems = compile_schema(expression).find_problems(value)
    assert [p.at for p in problems] == ["/a" * 60]
    assert problems[0].keyword == "anyOf"


def test_the_branch_that_comes_closest_explains_a_union():
    """A tag decides between variants, else the fewest slips do; a draw is marked as one."""
    variants = [
        {"type": "object", "properties": {"kind": {"const": kind}, "n": {"type": "integer"}}, "required": ["kind", "n"]}
        for kind in ("circle", "square")
    ]
    schema = compile_schema({"properties": {"shape": {"oneOf": [*variants, {"type": "null"}]}}})
    (problem,) = schema.find_problems({"shape": {"kind": "square", "n": "x"}})
    assert (problem.at, problem.data["variant"], problem.data["tied"]) == ("/shape/n", 1, False)
    drawn = schema.find_problems({"shape": {"kind": "line", "n": 1}})
    assert all(p.data["tied"] for p in drawn)
    inner = compile_schema({"anyOf": [{"properties": {"a": {"anyOf": [{"minimum": 5}, {"maximum": -5}]}}}]})
    (problem,) = inner.find_problems({"a": 0})
    assert problem.data["tied"], "a draw inside stays a draw outside"


@pytest.mark.parametrize(
    ("schema", "value", "unexpected"),
    [
        ({"properties": {"a": {}}}, {"a": 1, "b": 2}, ["b"]),
        ({"allOf": [{"properties": {"a": {}}}]}, {"a": 1, "b": 2}, ["b"]),
        ({"anyOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {"type": "null"}}}]}, {"a": 1, "b": 2}, ["b"]),
        ({"if": {"required": ["a"]}, "then": {"properties": {"a": {}}}}, {"a": 1, "b": 2}, ["b"]),
        ({"if": {"required": ["z"]}, "else": {"properties": {"a": {}}}}, {"a": 1, "b": 2}, ["b"]),
        ({"if": {"properties": {"a": {}}}}, {"a": 1, "b": 2}, ["b"]),
        ({"dependentSchemas": {"a": {"properties": {"a": {}}}}}, {"a": 1, "b": 2}, ["b"]),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"patternProperties": {"^a": {}}}}}, {"a": 1, "b": 2}, ["b"]),
    ],
)  # fmt: skip
def test_unevaluated_properties_are_named(schema, value, unexpected):
    """What no keyword of the schema or of what it applies in place has seen is unexpected."""
    (problem,) = compile_schema({**schema, "unevaluatedProperties": False}).find_problems(value)
    assert problem.data["unexpected"] == unexpected


@pytest.mark.parametrize(
    "inside",
    [{"additionalProperties": True}, {"unevaluatedProperties": True}, {"oneOf": [{"additionalProperties": {}}]}],
)
def test_properties_seen_by_an_open_subschema_are_not_named(inside):
    """A subschema that evaluates every property leaves nothing unevaluated."""
    assert compile_schema({"allOf": [inside], "unevaluatedProperties": False}).find_problems({"a": 1}) == ()
    schema = {"allOf": [inside], "unevaluatedProperties": False, "required": ["b"]}
    assert [p.keyword for p in compile_schema(schema).find_problems({"a": 1})] == ["required"]


def test_unevaluated_properties_may_have_a_schema_of_their_own():
    """A schema under unevaluatedProperties is held against what is left over."""
    schema = {"properties": {"a": {}}, "unevaluatedProperties": {"type": "null"}}
    (problem,) = compile_schema(schema).find_problems({"a": 1, "b": 2})
    assert problem.at == "/b"


@pytest.mark.parametrize("value", [1, "x", None, [], {}])
def test_keywords_about_another_type_say_nothing(value):
    """Keywords of objects, arrays, texts and numbers pass every value of another type."""
    keywords = {
        "required": ["a"], "properties": {"a": False}, "patternProperties": {"a": False}, "additionalProperties": False,
        "propertyNames": {"maxLength": 9}, "unevaluatedProperties": False, "items": False, "prefixItems": [False],
        "contains": True, "dependentRequired": {"a": ["b"]}, "dependentSchemas": {"a": False}, "type": "boolean",
    }  # fmt: skip
    problems = compile_schema(keywords).find_problems(value)
    assert {p.keyword for p in problems} <= {"type", "required", "contains"}
    assert problems[-1].keyword == "type"


def test_a_full_stack_does_not_break_an_explanation():
    """Called with almost no stack left, problems() still returns a problem."""
    schema = compile_schema(TREE)
    value = nested(60)

    def descend():
        try:
            return descend()
        except RecursionError:
            return schema.find_problems(value)

    assert descend()


def test_problems_deeper_than_the_explanation_goes_are_still_problems():
    """A slip 240 levels down is reported at least as the general problem."""
    (problem,) = compile_schema(TREE).find_problems(nested(240))
    assert problem.keyword == "schema"
    tree = {**TREE["$defs"]["tree"], "unevaluatedProperties": False}
    ladder = {"$defs": {"tree": tree}, "$ref": "#/$defs/tree"}
    assert compile_schema(ladder).find_problems(nested(240))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a" * 100, '"' + "a" * 58 + "…"),
        (list(range(1000)), None),
        ({str(i): i for i in range(1000)}, None),
        (10**30, "1" + "0" * 30),
        pytest.param(10**5000, "<int>", id="huge"),
        ("\ud800", "<str>"),
        ({1, 2}, '"<set>"'),
        ("é", '"é"'),
    ],
)
def test_what_came_is_shown_short_and_never_fails(value, text):
    """Any Python value becomes at most 60 characters, and nothing of a foreign object is printed."""
    shown = short_json(value)
    assert len(shown) <= 60
    assert text is None or shown == text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=70), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.integers(1, 90))
def test_what_is_shown_is_the_beginning_of_the_compact_text(value, limit):
    """Whatever is left unlooked at, the text shown is that of the whole value, cut."""
    whole = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert short_json(value, limit) == (whole if len(whole) <= limit else whole[: limit - 1] + "…")


def test_a_value_in_itself_is_shown_to_the_limit():
    """A cycle ends where the text does."""
    cycle: dict = {}
    cycle["again"] = [cycle]
    assert short_json(cycle, 20) == '{"again":[{"again":…'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)
SCHEMAS = st.recursive(
    st.booleans()
    | st.builds(lambda kind: {"type": kind}, st.sampled_from(["integer", "string", "object", "array", "null"]))
    | st.builds(lambda values: {"enum": values}, st.lists(JSON, min_size=1, max_size=3))
    | st.just({"minimum": 0})
    | st.just({"minLength": 1}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "required": st.lists(st.sampled_from("ab"), unique=True, max_size=2),
            "additionalProperties": inner,
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "oneOf": st.lists(inner, min_size=1, max_size=3),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "contains": inner,
            "maxItems": st.integers(0, 3),
            "maxProperties": st.integers(0, 2),
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "unevaluatedProperties": st.just(False),
        },
    ),
    max_leaves=8,
)


@given(SCHEMAS, JSON)
def test_problems_and_validity_agree(schema, value):
    """There are problems exactly if the value is invalid, and each is explained by a keyword."""
    compiled = compile_schema(schema)
    problems = compiled.find_problems(value)
    assert bool(problems) is not compiled.is_valid(value)
    assert compiled.accepts(value) is compiled.is_valid(value)
    assert all(p.keyword != "schema" for p in problems)
    assert compiled.is_valid(value) == jsonschema_rs.Draft202012Validator(schema).is_valid(value)


@given(SCHEMAS, JSON)
def test_asking_for_whole_subschemas_only_saves_work(schema, value):
    """The problems are the same, in the same order, if the walk asks the validator for nothing but keywords."""
    asked = compile_schema(schema).find_problems(value)
    with mock.patch.object(schema_explain, "_MAX_ASKED", 0):
        walked = compile_schema(schema).find_problems(value)
    assert asked == walked


@pytest.mark.parametrize(
    "inner",
    [
        {"$ref": "#/$defs/n"},
        {"items": {"$ref": "#/$defs/n"}},
        {"anyOf": [{"type": "null"}, {"properties": {"a": {"$ref": "#/$defs/n"}}}]},
        {"properties": {str(n): {"type": "null"} for n in range(200)}},
        {"$id": "https://a.example/inner", "type": "object"},
    ],
)
def test_a_subschema_that_cannot_stand_alone_is_walked(inner):
    """References, own identities and very large subschemas are never compiled apart from their document."""
    schema = {"properties": {"good": inner, "bad": {"type": "null"}}, "$defs": {"n": {}}}
    problems = compile_schema(schema).find_problems({"good": {}, "bad": 1})
    assert [p.at for p in problems] == ["/bad"]


# -- nothing missing ------------------------------------------------------------------------------

FULL = {"name": "x", "size": 2}


@pytest.mark.parametrize(
    ("schema", "value", "proven"),
    [
        (CLOSED, FULL, True),
        (CLOSED, {"name": "x"}, False),  # an optional size may have been lost
        ({**CLOSED, "additionalProperties": True}, FULL, False),
        ({**CLOSED, "additionalProperties": {"type": "null"}}, FULL, False),
        ({**CLOSED, "patternProperties": {"^x": {}}}, FULL, False),
        ({"type": "object", "properties": {"a": {}}, "unevaluatedProperties": False}, {"a": 1}, True),
        ({"allOf": [{"properties": {"b": {}}}], "properties": {"a": {}}, "unevaluatedProperties": False}, {"a": 1}, False),
        ({"type": "object", "maxProperties": 1}, {"a": 1}, True),
        ({"type": "object", "maxProperties": 1}, {"a": {}}, False),
        ({"additionalProperties": False}, {}, True),
        ({"properties": {"o": CLOSED}, "additionalProperties": False}, {"o": FULL}, True),
        ({"properties": {"o": CLOSED}, "additionalProperties": False}, {"o": {"name": "x"}}, False),
        ({"properties": {"o": CLOSED, "z": {}}, "additionalProperties": False}, {"o": {"name": "x"}, "z": 1}, True),
        ({"properties": {"l": {"type": "array", "maxItems": 2}}, "additionalProperties": False}, {"l": [1, 2]}, True),
        ({"properties": {"l": {"type": "array", "maxItems": 2}}, "additionalProperties": False}, {"l": [1]}, False),
        ({"properties": {"l": {"type": "array", "maxItems": 1}}, "additionalProperties": False}, {"l": [[]]}, False),
        ({"items": CLOSED, "maxItems": 1}, [FULL], True),
        ({"items": CLOSED, "maxItems": 1}, [{"name": "x"}], False),
        ({"prefixItems": [CLOSED], "items": False}, [FULL], True),
        ({"prefixItems": [CLOSED], "items": False}, [{"name": "x"}], False),
        ({"maxItems": 0}, [], True),
        (True, "text", True),
        (True, {}, False),
        (True, [], False),
        ({"$ref": "#/$defs/c", "$defs": {"c": CLOSED}}, FULL, True),
        ({"$ref": "#/$defs/c", "$defs": {"c": CLOSED}}, {"name": "x"}, False),
        ({"allOf": [True, CLOSED]}, FULL, True),
        ({"anyOf": [CLOSED, {"type": "null"}]}, FULL, True),
        ({"oneOf": [CLOSED, {"type": ["null", "array"]}]}, FULL, True),
        ({"anyOf": [CLOSED, {"type": "object"}]}, FULL, False),
        ({"anyOf": [CLOSED, True]}, FULL, False),
        ({"anyOf": [CLOSED, False]}, FULL, True),
        ({"anyOf": [CLOSED, {"$ref": "#/$defs/c"}], "$defs": {"c": {"type": "null"}}}, FULL, False),  # not looked through
        ({"anyOf": [CLOSED, {"properties": {"name": {"const": "y"}}}]}, FULL, True),
        ({"anyOf": [CLOSED, {"properties": {"name": {"enum": ["y", "z"]}}}]}, FULL, True),
        ({"anyOf": [CLOSED, {"properties": {"name": {"enum": ["x"]}}}]}, FULL, False),
        ({"anyOf": [CLOSED, {"properties": {"name": True}}]}, FULL, False),
        ({"anyOf": [{"maxItems": 1}, {"type": "array", "items": True}]}, [1], False),
        ({"if": True, "then": CLOSED}, FULL, False),  # not understood
        (CLOSED, {"name": 1, "size": 2}, False),  # invalid anyway
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [CLOSED], "additionalItems": False}, [FULL], True),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {}}, "unevaluatedProperties": False}, {"a": 1}, False),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "allOf": [{"$ref": "#/definitions/o", **CLOSED}], "definitions": {"o": {}}}, FULL, False),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [CLOSED], "maxItems": 1}, [{"name": "x"}], False),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "anyOf": [CLOSED, {"type": "null"}]}, FULL, False),
    ],
)  # fmt: skip
def test_only_a_closed_and_full_schema_proves_that_nothing_was_lost(schema, value, proven):
    """The proof holds exactly where no continuation could be valid, and never where it is not understood."""
    assert compile_schema(schema).is_provably_complete(value) is proven


def continuations(value):
    """Values that go on where this one ends: one more member or item, at any open level."""
    if isinstance(value, dict):
        for name, extra in itertools.product(("a", "b", "c"), (None, 1, "x", {}, [])):
            if name not in value:
                yield {**value, name: extra}
        for name in list(value)[-1:]:
            yield from ({**value, name: longer} for longer in continuations(value[name]))
    elif isinstance(value, list):
        yield from ([*value, extra] for extra in (None, 1, "x", {}, []))
        for last in value[-1:]:
            yield from ([*value[:-1], longer] for longer in continuations(last))


@given(SCHEMAS, JSON)
def test_no_continuation_of_a_proven_value_is_valid(schema, value):
    """Whenever the proof holds, none of the ways to go on gives a valid value."""
    compiled = compile_schema(schema)
    if compiled.is_provably_complete(value):
        assert not any(compiled.is_valid(longer) for longer in continuations(value))


def test_a_proof_takes_a_bounded_number_of_steps():
    """A proof behind thousands of branches is given up on, not searched for."""
    assert compile_schema({"allOf": [*[True] * 1000, CLOSED]}).is_provably_complete(FULL) is True
    assert compile_schema({"allOf": [*[True] * 3000, CLOSED]}).is_provably_complete(FULL) is False
