"""What a schema expects at a place, in words."""

import pytest

from pokayoke.core.check.expected import describe_expected
from pokayoke.core.schema.facts import facts_at
from pokayoke.core.schema.schema import compile_schema


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({}, "a value"),
        ({"type": "integer"}, "an integer"),
        ({"type": ["integer", "number"]}, "a number"),
        ({"type": "number", "minimum": 1}, "a number of at least 1"),
        ({"type": "number", "maximum": 1}, "a number of at most 1"),
        ({"type": "number", "exclusiveMinimum": 0}, "a number above 0"),
        ({"type": "number", "exclusiveMaximum": 1}, "a number below 1"),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, "a number above 0 below 1"),
        ({"type": "number", "multipleOf": 5}, "a number, a multiple of 5"),
        ({"type": "string", "minLength": 2}, "a text of at least 2 characters"),
        ({"type": "string", "maxLength": 2}, "a text of at most 2 characters"),
        (
            {"type": "string", "format": "email"},
            "a text in the format email (one plain address), such as mia@shop.example",
        ),
        (
            {"type": "string", "format": "date-time"},
            "a text in the format date-time with a time zone, such as 2026-11-21T09:30:00+01:00",
        ),
        (
            {"anyOf": [{"type": "string", "format": "time"}, {"type": "string", "format": "date"}]},
            "a text in the format date, such as 2026-11-21, or time, such as 09:30:00",
        ),
        (
            {"type": "string", "pattern": "^K-[0-9]+$", "examples": ["K-1", "K-2"]},
            'a text that fits ^K-[0-9]+$, such as "K-1"',
        ),
        ({"type": "string", "pattern": "^K", "examples": [1]}, "a text that fits ^K"),
        ({"type": "array"}, "a list, each a value"),
        ({"type": "array", "items": {"type": "array"}}, "a list, each a list"),
        ({"type": "object"}, "an object"),
        ({"type": "object", "properties": {"a": {}, "b": {}}}, "an object with a, b"),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"]}, "an object with b"),
        ({"type": "null"}, "null"),
        ({"const": 3}, "one of 3"),
        ({"enum": list(range(14))}, "one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more"),
    ],
)
def test_expectations_are_plain_words(node, words):
    """The expectation at a place is worded plainly."""
    schema = compile_schema(node)
    assert describe_expected(facts_at(schema, ()), schema) == words
