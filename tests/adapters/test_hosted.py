"""A run in somebody else's loop: what every adapter of a framework stands on."""

import pytest

from pokayoke.adapters.hosted import Described, contracts

KEY = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}


@pytest.mark.parametrize(
    ("more", "closed"),
    [
        ({}, True),
        ({"additionalProperties": True}, False),
        ({"patternProperties": {"^x": {}}}, False),
        ({"allOf": [{"properties": {"more": {}}}]}, False),
    ],
)
def test_a_schema_that_names_its_properties_is_closed(more, closed):
    """A key the tool does not name is refused unless the schema says that there may be others."""
    made = contracts([Described("get", "Get.", {**KEY, **more})])
    assert (made[0].input_schema.get("additionalProperties") is False) is closed


def test_a_schema_without_properties_stays_open():
    """An object of which nothing is said may hold anything."""
    assert "additionalProperties" not in contracts([Described("get", "Get.", {"type": "object"})])[0].input_schema
