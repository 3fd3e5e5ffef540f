"""Entries of a tool list: what differs is listed, and what is hashed is what is listed."""

import pytest

from pokayoke.core.versions.listing_changes import find_listed_tools, list_changes, promises_hash

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "kept": {}}}
OLD = {"name": "pay", "description": "Pay.", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"description": "Pay all."}, ("description", "Pay.", "Pay all.")),
        ({"title": "Pay"}, ("title", "", "Pay")),
        ({"title": ""}, ("title", "", '""')),
        ({"annotations": {"readOnlyHint": "true"}}, ("annotations/readOnlyHint", "true", '"true"')),
        ({"annotations": None}, ("annotations", '{"readOnlyHint":true}', "")),
        ({"annotations": {"readOnlyHint": True, "x": None}}, ("annotations/x", "", "null")),
        ({"inputSchema": {**SCHEMA, "required": ["n"]}}, ("inputSchema/required", "", '["n"]')),
        (
            {"inputSchema": {**SCHEMA, "properties": {"n": {"type": "number"}, "kept": {}}}},
            ("inputSchema/properties/n", '{"type":"integer"}', '{"type":"number"}'),
        ),
        ({"inputSchema": {**SCHEMA, "properties": 1}}, ("inputSchema/properties", '{"kept":{},"n":{"type":"integer"}}', "1")),
    ],
)  # fmt: skip
def test_each_difference_of_the_hash_is_listed(change, expected):
    """A value that looks like another one, or like nothing, is told apart; before and after stand whole."""
    new = {**OLD, **change}
    assert promises_hash(new) != promises_hash(OLD)
    assert [tuple(one.values()) for one in list_changes(OLD, new)] == [expected]


def test_what_no_approval_covers_is_no_difference():
    """Icons, `_meta`, a null and the order of keys change neither the hash nor the list."""
    new = {"_meta": {"at": 1}, "icons": [], "title": None, **dict(reversed(OLD.items()))}
    assert promises_hash(new) == promises_hash(OLD)
    assert list_changes(OLD, new) == []


def test_a_list_can_be_cut_for_a_trace():
    """Longest texts and most differences are bounds, and without them everything is there."""
    new = {"name": "pay", "title": "t" * 50, "description": "d" * 50}
    assert [one["at"] for one in list_changes({}, new)] == ["title", "description"]
    (only,) = list_changes({}, new, longest=10, most=1)
    assert only == {"at": "title", "before": "", "after": "t" * 9 + "…"}


@pytest.mark.parametrize("answer", [{"result": {"tools": [OLD, 5]}}, {"tools": [OLD]}, [OLD, "x"]])
def test_a_saved_answer_is_read_in_each_of_its_forms(answer):
    """The whole message, its result, or the list alone; what is no entry is left out."""
    assert find_listed_tools(answer) == [OLD]


@pytest.mark.parametrize("answer", [None, {}, {"tools": {}}, 5])
def test_what_is_no_answer_holds_no_tools(answer):
    """Another value has no entries."""
    assert find_listed_tools(answer) == []
