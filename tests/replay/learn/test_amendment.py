"""A schema that is amended gets wider, and no wider than the calls need."""

import copy

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.replay.learn.amendment import SchemaAmendment

SCALARS = st.none() | st.booleans() | st.integers(-5, 60) | st.sampled_from(["a", "bb", "ccc", "EUR"])
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.sampled_from("xyz"), SCALARS, max_size=2)
ARGUMENTS = st.dictionaries(st.sampled_from(["a", "b", "c", "d/~e"]), VALUES, max_size=4)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["integer", "string", "array", "object", ["string", "null"]]),
        "minimum": st.integers(-3, 10),
        "maximum": st.integers(10, 40),
        "minLength": st.integers(0, 2),
        "maxLength": st.integers(2, 3),
        "maxItems": st.integers(0, 2),
        "enum": st.lists(st.sampled_from(["a", "EUR", 3]), min_size=1, max_size=2, unique=True),
        "items": st.fixed_dictionaries({"type": st.just("integer")}),
        "pattern": st.just("^[a-c]*$"),
    },
)
SCHEMAS = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from(["a", "b", "d/~e"]), FIELDS)},
    optional={"required": st.just(["a", "c"]), "additionalProperties": st.just(False)},
)


@given(SCHEMAS, st.lists(ARGUMENTS, max_size=4), ARGUMENTS)
def test_nothing_gets_narrower(schema, calls, other):
    """What was admitted is valid, what was valid stays valid, and a call that is left changes nothing."""
    before = copy.deepcopy(schema)
    amendment = SchemaAmendment(schema)
    first = jsonschema_rs.validator_for(schema)
    for number, call in enumerate(calls):
        known = copy.deepcopy(amendment.schema)
        if amendment.admit(call, f"f:{number}"):
            assert jsonschema_rs.validator_for(amendment.schema).is_valid(call)
        else:
            assert amendment.schema == known
    wider = jsonschema_rs.validator_for(amendment.schema)
    assert not first.is_valid(other) or wider.is_valid(other)
    assert schema == before


@pytest.mark.parametrize(
    ("field", "value", "at", "after"),
    [
        ({"maximum": 40}, 60, "maximum", 60),
        ({"minimum": 3}, -1, "minimum", -1),
        ({"maxLength": 2}, "abcd", "maxLength", 4),
        ({"minLength": 2}, "", "minLength", 0),
        ({"maxItems": 1}, [1, 2], "maxItems", 2),
        ({"enum": ["a"]}, "b", "enum", ["a", "b"]),
        ({"type": "string"}, 4, "type", ["string", "integer"]),
        ({"type": ["string"]}, None, "type", ["string", "null"]),
        ({"items": {"maximum": 1}}, [1, 7], "items/maximum", 7),
    ],
)
def test_one_keyword_moves_as_far_as_the_call_needs(field, value, at, after):
    """Each keyword of the table, and nothing beside it."""
    amendment = SchemaAmendment({"type": "object", "properties": {"x": field}})
    assert amendment.admit({"x": value}, "f:1")
    assert [(one.at, one.after, one.calls, one.first) for one in amendment.changes.values()] == [
        (f"/properties/x/{at}", after, 1, "f:1")
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ({"pattern": "^a$"}, "b"),
        ({"const": 1}, 2),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "x"),
        ({"exclusiveMaximum": 4}, 4),
        ({"enum": ["a"]}, ["a"]),
        ({"enum": [*range(50)]}, 50),
        ({"enum": ["a"]}, "[redacted]"),
        (False, 1),
    ],
)
def test_what_is_left_to_a_person(field, value):
    """Patterns, branches, and values that nobody should copy into a contract are not guessed at."""
    amendment = SchemaAmendment({"type": "object", "properties": {"x": field}})
    assert not amendment.admit({"x": value}, "f:1")
    assert not amendment.changes
