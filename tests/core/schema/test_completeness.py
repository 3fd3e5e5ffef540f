"""Completeness: what proves that nothing was lost after a value."""

import itertools

import pytest
from hypothesis import given
from schema_samples import CLOSED, JSON, SCHEMAS

from pokayoke.core.schema.schema import compile_schema

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
    """The proof holds exactly where no continuation could be valid, and never for keywords it does not understand."""
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
    """If the proof holds, no continuation of the value is valid."""
    compiled = compile_schema(schema)
    if compiled.is_provably_complete(value):
        assert not any(compiled.is_valid(longer) for longer in continuations(value))


def test_a_proof_takes_a_bounded_number_of_steps():
    """A proof behind thousands of branches is abandoned."""
    assert compile_schema({"allOf": [*[True] * 1000, CLOSED]}).is_provably_complete(FULL) is True
    assert compile_schema({"allOf": [*[True] * 3000, CLOSED]}).is_provably_complete(FULL) is False
