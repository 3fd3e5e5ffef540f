"""Explanations: why a value breaks its schema, all at once and in bounded time."""

from unittest import mock

import jsonschema_rs
import pytest
from hypothesis import given
from schema_samples import CLOSED, JSON, SCHEMAS, TREE, nested

from pokayoke.core.schema import explain as schema_explain
from pokayoke.core.schema.problems import MAX_PROBLEMS
from pokayoke.core.schema.schema import compile_schema


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
        ({"required": ["a"]}, {"b": 1}, ("", "required", 'the property "a"', '["b"]', {"missing": "a", "allowed": [], "sent": ["b"]})),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1},
         ("", "required", 'the property "b"', '["a"]', {"missing": "b", "allowed": [], "sent": ["a"]})),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1},
         ("", "required", 'the property "b"', '["a"]', {"missing": "b", "allowed": [], "sent": ["a"]})),
        ({"additionalProperties": False}, {"a": 1},
         ("", "additionalProperties", "no property", '["a"]', {"unexpected": ["a"], "allowed": []})),
        ({"properties": {"a": {}}, "patternProperties": {"^x": {}}, "additionalProperties": False}, {"xa": 1, "b": 2},
         ("", "additionalProperties", 'no property other than "a"', '["b"]', {"unexpected": ["b"], "allowed": ["a"]})),
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
    """A schema of an older draft gives the problem of its own draft, and no other."""
    (problem,) = compile_schema(schema, draft=draft).find_problems(value)
    assert (problem.keyword, problem.expected) == (keyword, expected)


def test_all_problems_come_at_once_in_the_order_of_the_schema():
    """A missing, an unexpected and a wrong field are three problems, each with its own pointer."""
    problems = compile_schema(CLOSED).find_problems({"size": 0, "nmae": "x"})
    assert [(p.keyword, p.at, p.data) for p in problems] == [
        ("minimum", "/size", {"limit": 1}),
        ("required", "", {"missing": "name", "allowed": ["name", "size"], "sent": ["size", "nmae"]}),
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


def test_wide_values_are_explained_in_bounded_work():
    """An error behind more places than the budget allows still gives the general problem."""
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
    tag, missing = schema.find_problems({"shape": {"kind": "line"}})
    assert (tag.at, tag.data["allowed"], tag.data["tied"]) == ("/shape/kind", ["circle", "square"], False)
    assert tag.message == '/shape/kind: expected one of "circle", "square", got "line"'
    assert missing.data["tied"], "what else is wrong depends on the variant"
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
    """A property that no keyword of the schema or its in-place branches evaluates is unexpected."""
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
    """A schema under unevaluatedProperties checks the remaining properties."""
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
    """The problems are the same, in the same order, if the validator checks single keywords only."""
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
