"""Costly schemas: how large a value they may check, and what a pattern weighs."""

import time

import jsonschema_rs
import pytest

from pokayoke.core.schema.cost import count_values, pattern_weight
from pokayoke.core.schema.schema import compile_schema


def one_of(choices):
    """A schema of alternatives, each a number."""
    return {"anyOf": [{"const": choice} for choice in range(choices)]}


@pytest.mark.parametrize("pattern", ["(a+)+$", "^(([a-z])+.)+[A-Z]([a-z])+$", "(a|aa)+$", "(a|a?)+$", "(.*a){25}"])
def test_patterns_that_hang_other_engines_run_in_linear_time(pattern):
    """A pattern with catastrophic backtracking decides on 50,000 letters within the time limit."""
    compile_schema({"pattern": pattern}).is_valid("a" * 50_000 + "!")


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"pattern": "(a{300}){300}b"}}},
        {"properties": {"a": {"allOf": [{"pattern": f"(a{{20}}){{20}}b{i}"} for i in range(200)]}}},
        {"patternProperties": {"(a{300}){300}b": {}}, "items": {"patternProperties": {"(a{300}){300}b": {}}}},
    ],
)
@pytest.mark.parametrize("value", [{"a": "a" * 200_000}, {"a" * 200_000: 1}, [{"a" * 200_000: 1}]])
def test_a_costly_pattern_does_not_check_a_long_text(schema, value):
    """A text that a pattern would check for minutes is invalid, and the problem gives the reason."""
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
    """A schema of thousands of alternatives is kept, and checks only as many values as take a moment."""
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
    """Choices that cannot be looked up cost like alternatives, so a long list of the last of them is refused at once."""
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
    """Texts, whole numbers and a handful of other choices limit no value."""
    compiled = compile_schema({"items": {"enum": choices}})
    assert compiled.is_valid([choices[-1]] * 20_000)


@pytest.mark.parametrize("items", [{"type": "integer"}, {"type": "string"}, True])
@pytest.mark.parametrize("wrap", [lambda number: number, lambda number: [number], lambda number: {"a": [-number]}])
def test_integers_beyond_64_bits_are_not_compared_pair_by_pair_in_a_long_list(items, wrap):
    """6,000 integers that must differ are refused at once, at any depth, and the problem gives the reason."""
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
