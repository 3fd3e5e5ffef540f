"""Schemas of every kind, and JSON values for them."""

from hypothesis import strategies as st

CLOSED = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"type": "integer", "minimum": 1}},
    "required": ["name"],
    "additionalProperties": False,
}
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


def nested(depth, key="a", leaf=1):
    """An object in an object in an object."""
    value = leaf
    for _ in range(depth):
        value = {key: value}
    return value


TREE = {
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/tree"}, "b": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
        }
    },
    "$ref": "#/$defs/tree",
}
