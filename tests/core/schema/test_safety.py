"""Schemas that are refused before they are compiled, and those that are not."""

import time

import pytest

from pokayoke.core.schema.schema import compile_schema
from pokayoke.errors import ContractError


def bomb(levels):
    """A schema whose one place is checked on 2**levels paths."""
    steps = {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(levels)}
    return {"$defs": {**steps, f"a{levels}": {"type": "integer"}}, "$ref": "#/$defs/a0"}


def chain(length):
    """A schema of references that each lead to the next one."""
    steps = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(length)}
    return {"$defs": {**steps, f"a{length}": {"type": "integer"}}, "$ref": "#/$defs/a0"}


def asked_again(levels, keyword="allOf", unevaluated="unevaluatedProperties"):
    """A schema whose branches evaluate their own branches again."""
    schema = {"properties": {"z": {}}}
    for _ in range(levels):
        schema = {keyword: schema if keyword in ("if", "contains") else [schema], unevaluated: False}
    return schema


def deep_schema(depth):
    """A schema nested in itself."""
    schema = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


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
        ({"pattern": "(?=a"}, "cannot be used"),
        ({"pattern": "(a{1000}){1000}"}, "cannot be used"),
        ({"pattern": "(?=b)(a{1000}){1000}"}, "cannot be used"),
    ],
)  # fmt: skip
def test_unsafe_schemas_are_refused_at_registration(schema, words):
    """Each of these raises a ContractError that names the schema and the reason."""
    with pytest.raises(ContractError, match="input of 'pay'") as caught:
        compile_schema(schema, where="input of 'pay'")
    assert words in str(caught.value)


@pytest.mark.parametrize("unevaluated", ["unevaluatedProperties", "unevaluatedItems"])
@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf", "if", "contains"])
def test_branches_that_are_evaluated_again_are_kept_while_they_are_few(keyword, unevaluated):
    """Closed schemas may build on each other a few times, and each of these answers at once."""
    kept = compile_schema(asked_again(6, keyword, unevaluated))
    began = time.process_time()
    assert kept.is_valid({"y": 1}) is not (unevaluated == "unevaluatedProperties")
    kept.is_valid([{"z": 1}])
    assert time.process_time() - began < 0.1


def test_thousands_of_large_patterns_are_refused_at_once():
    """One large pattern compiles; 2,000 of them would take minutes and are refused at the first."""
    large = "(a{300}){300}"
    assert compile_schema({"pattern": large}).is_valid("") is False
    with pytest.raises(ContractError, match="cannot be used"):
        compile_schema({"allOf": [{"pattern": large}] * 1_000, "patternProperties": {f"{i}": {} for i in range(1_000)}})


@pytest.mark.parametrize(
    ("node", "value"),
    [
        ({"type": "string", "nullable": True}, "a"),
        ({"type": ["string", "integer"], "nullable": True, "enum": ["a", 1]}, 1),
        ({"$ref": "#/$defs/T", "nullable": True, "description": "who"}, "a"),
        ({"allOf": [{"$ref": "#/$defs/T"}], "nullable": True}, "a"),
        ({"type": "string", "const": "a", "nullable": True}, "a"),
    ],
)
def test_nullable_of_openapi_counts(node, value):
    """`nullable: true` allows null, also for a reference or a choice; false, and that of the whole, say nothing."""
    schema = {"$defs": {"T": {"type": "string"}}, "type": "object", "properties": {"v": node}, "nullable": True}
    compiled = compile_schema(schema)
    assert compiled.accepts({"v": None})
    assert compiled.accepts({"v": value})
    assert not compiled.accepts({"v": 2.5})
    assert not compiled.accepts(None)
    assert compile_schema(compiled.raw).accepts({"v": None})
    assert not compile_schema({"items": {**node, "nullable": False}, "$defs": schema["$defs"]}).accepts([None])


def test_nullable_alone_allows_what_was_allowed():
    """Beside nothing that could refuse null, the word changes nothing."""
    assert compile_schema({"items": {"nullable": True, "title": "any"}}).accepts([None, 1])


def test_a_target_is_found_by_the_schema_that_refers_to_it():
    """resolve_ref() returns the target of a subschema's $ref, and None without one."""
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
