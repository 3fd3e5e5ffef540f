"""Differences of schemas: what a delta does not say does not happen to any value."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pokayoke.core.schema import compile_schema
from pokayoke.core.schema_diff import Delta, schema_deltas

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-4, 4), st.sampled_from([0.5, 2.5]), st.sampled_from(["", "a", "ab", "b7"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("pqr"), inner, max_size=3)),
    max_leaves=6,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])


def optional(**words):
    """An object schema with any selection of these keywords."""
    return st.fixed_dictionaries({}, optional=words)


def of(inner):
    """Schemas over an inner strategy."""
    return st.one_of(
        st.booleans(),
        optional(
            type=st.one_of(TYPES, st.lists(TYPES, min_size=1, max_size=3, unique=True)),
            enum=st.lists(SCALARS, min_size=1, max_size=3),
            const=SCALARS,
            description=st.just("words"),
        ),
        optional(
            minimum=st.integers(-3, 3),
            exclusiveMinimum=st.integers(-3, 3),
            maximum=st.integers(-3, 3),
            exclusiveMaximum=st.integers(-3, 3),
            multipleOf=st.sampled_from([1, 2]),
            minLength=st.integers(0, 2),
            maxLength=st.integers(0, 2),
            pattern=st.sampled_from(["^a", "7$"]),
        ),
        optional(
            type=st.just("object"),
            properties=st.dictionaries(st.sampled_from("pqr"), inner, max_size=2),
            required=st.lists(st.sampled_from("pqr"), max_size=2, unique=True),
            additionalProperties=inner,
            minProperties=st.integers(0, 2),
            maxProperties=st.integers(0, 2),
        ),
        optional(items=inner, minItems=st.integers(0, 2), maxItems=st.integers(0, 2), uniqueItems=st.booleans()),
        optional(anyOf=st.lists(inner, min_size=1, max_size=3), allOf=st.lists(inner, min_size=1, max_size=2)),
        optional(**{"$ref": st.sampled_from(["#/$defs/one", "#/$defs/two"])}),
        optional(**{"not": inner, "patternProperties": st.dictionaries(st.just("^p"), inner, max_size=1)}),
    )


NODES = st.recursive(st.booleans(), of, max_leaves=4)
SCHEMAS = st.tuples(NODES, NODES, NODES).map(
    lambda parts: (
        {"$defs": {"one": parts[1], "two": parts[2]}, "allOf": [parts[0]]}
        if "$ref" in str(parts[0])
        else (parts[0] if isinstance(parts[0], dict) else {"allOf": [parts[0]]})
    )
)


def compiled(schema):
    """The schema, or None if it is one we refuse (an endless reference, for one)."""
    try:
        return compile_schema(schema, where="test")
    except Exception:
        return None


@settings(max_examples=250, deadline=None)
@given(SCHEMAS, SCHEMAS, st.lists(VALUES, min_size=5, max_size=12))
def test_what_no_delta_says_happens_to_no_value(old, new, values):
    """If nothing is narrower, what was accepted still is; if nothing is wider, what was refused still is."""
    one, other = compiled(old), compiled(new)
    if one is None or other is None:
        return
    deltas = schema_deltas(one.raw, other.raw)
    narrower, wider = any(d.narrower for d in deltas), any(d.wider for d in deltas)
    for value in values:
        before, after = one.is_valid(value), other.is_valid(value)
        assert narrower or not before or after, (value, deltas)
        assert wider or before or not after, (value, deltas)


@given(SCHEMAS)
def test_a_schema_does_not_differ_from_itself(schema):
    """Equal schemas have no deltas."""
    assert schema_deltas(schema, dict(reversed(schema.items()))) == ()


def obj(required=(), *, closed=True, **properties):
    """An object schema."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": not closed,
    }


N, S = {"type": "number"}, {"type": "string"}


@pytest.mark.parametrize(
    ("old", "new", "deltas"),
    [
        (obj(a=N), obj(a=S), [Delta("/a", "type: number -> string", True, True)]),
        (obj(a={"type": "integer"}), obj(a=N), [Delta("/a", "type: integer -> number", False, True)]),
        (obj(a=N), obj(a={"type": ["number", "null"]}), [Delta("/a", "type: number -> null or number", False, True)]),
        (obj(a=N), obj(a=N, b=S), [Delta("/b", "field added", False, True, "added")]),
        (obj(a=N, b=S), obj(a=N), [Delta("/b", "field removed", True, False, "removed")]),
        (obj(a=N, closed=False), obj(a=N, b=S, closed=False), [Delta("/b", "field added", True, False, "added")]),
        (obj(a=N), obj(["a"], a=N), [Delta("/a", "is required now", True)]),
        (obj(["a"], a=N), obj(a=N), [Delta("/a", "is not required any more", False, True)]),
        (obj(a=N), obj(a=N, closed=False), [Delta("/*", "other fields: was not allowed", False, True)]),
        ({"enum": ["a", "b"]}, {"enum": ["b", "c"]}, [Delta("", 'values: "c" added, "a" removed', True, True)]),
        ({"enum": ["a"]}, {"const": "a"}, []),
        ({"enum": ["a"]}, {}, [Delta("", "values: any value now", False, True)]),
        ({}, {"const": 1}, [Delta("", "values: only 1 now", True)]),
        ({"minimum": 1}, {"exclusiveMinimum": 1}, [Delta("", "minimum: 1 -> 1", True)]),
        ({"maximum": 9}, {}, [Delta("", "maximum: 9 -> none", False, True)]),
        ({"maxLength": 5}, {"maxLength": 3}, [Delta("", "maxLength: 5 -> 3 characters", True)]),
        ({"minItems": 1}, {}, [Delta("", "minItems: 1 -> 0 items", False, True)]),
        ({"multipleOf": 2}, {"multipleOf": 4}, [Delta("", "multipleOf: 2 -> 4", True, True)]),
        ({"exclusiveMinimum": True}, {}, [Delta("", "`exclusiveMinimum` of an old draft changed", True, True)]),
        ({"pattern": "a"}, {"pattern": "b"}, [Delta("", "pattern: a -> b", True, True)]),
        ({"uniqueItems": True}, {}, [Delta("", "items need not differ now", False, True)]),
        ({"items": N}, {"items": S}, [Delta("/*", "type: number -> string", True, True)]),
        ({"items": [N]}, {"items": [S]}, [Delta("", "`items` changed", True, True)]),
        ({"items": [N]}, {"items": [N], "$comment": "x"}, [Delta("", "`$comment` reads differently")]),
        (
            {"exclusiveMinimum": True},
            {"exclusiveMinimum": True, "minLength": 1},
            [Delta("", "minLength: 0 -> 1 characters", True)],
        ),
        ({"items": N}, {"items": False}, [Delta("/*", "nothing is allowed here now", True)]),
        ({"anyOf": [N, S]}, {"anyOf": [N]}, [Delta("", "`anyOf`: 0 added, 1 removed", True)]),
        ({"anyOf": [N]}, {"anyOf": [N, S]}, [Delta("", "`anyOf`: 1 added, 0 removed", False, True)]),
        (
            {"anyOf": [N, S]},
            {"anyOf": [{"type": "integer"}, S]},
            [Delta("", "type: number -> integer", True)],
        ),
        ({"anyOf": [N]}, {}, [Delta("", "`anyOf` went", False, True)]),
        ({"anyOf": [N, S]}, {"anyOf": [S, N]}, []),
        ({"allOf": [N]}, {"allOf": [N, S]}, [Delta("", "`allOf`: 1 added, 0 removed", True)]),
        ({"not": N}, {"not": S}, [Delta("", "`not` changed", True, True)]),
        (
            {"properties": {"a/b": N}},
            {"properties": {"a/b": S}},
            [Delta("/a~1b", "type: number -> string", True, True)],
        ),
        ({"description": "x"}, {"description": "y"}, [Delta("", "`description` reads differently")]),
        ({"items": False}, {"items": N}, [Delta("/*", "was not allowed", False, True)]),
        (
            {"patternProperties": {"^a": N}, "properties": {"a": N}},
            {"patternProperties": {"^a": N}},
            [Delta("/a", "field removed", True, True, "removed")],
        ),
        (
            {"$ref": "#/$defs/x", "$defs": {"x": obj(a=N)}},
            {"$ref": "#/$defs/y", "$defs": {"y": obj(a=S)}},
            [Delta("/a", "type: number -> string", True, True)],
        ),
        (
            {"$defs": {"x": N}, "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/x"}}},
            {"$defs": {"x": S}, "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/x"}}},
            [Delta("/a", "type: number -> string", True, True), Delta("/b", "type: number -> string", True, True)],
        ),
        ({"$ref": "#/$defs/x", "$defs": {"x": N}}, S, [Delta("", "type: number -> string", True, True)]),
        (
            {"$ref": "https://x/y"},
            {"$ref": "https://x/z"},
            [Delta("", "a reference that cannot be followed here", True, True)],
        ),
        (
            {"$ref": "#/$defs/none"},
            {"$ref": "#/$defs/nothing"},
            [Delta("", "a reference that cannot be followed here", True, True)],
        ),
        (
            {"$defs": {"x": N}, "anyOf": [{"$ref": "#/$defs/x"}, S]},
            {"$defs": {"x": S}, "anyOf": [{"$ref": "#/$defs/x"}]},
            [Delta("", "`anyOf` changed", True, True)],
        ),
        (
            {"$defs": {"x": N}, "allOf": [{"$ref": "#/$defs/x"}, S]},
            {"$defs": {"x": S}, "allOf": [{"$ref": "#/$defs/x"}]},
            [Delta("", "`allOf` changed", True, True)],
        ),
    ],
)
def test_a_difference_is_told(old, new, deltas):
    """Each kind of difference has its words, its place and its direction."""
    assert schema_deltas(old, new) == tuple(deltas)


def test_a_recursive_schema_ends():
    """A schema that refers to itself is compared once around."""

    def tree(leaf):
        return {"$ref": "#/$defs/t", "$defs": {"t": {"properties": {"next": {"$ref": "#/$defs/t"}, "leaf": leaf}}}}

    assert schema_deltas(tree(N), tree(S)) == (Delta("/leaf", "type: number -> string", True, True),)


def test_what_is_too_deep_is_said_to_be():
    """Beyond 64 levels, and beyond what can be compared in reasonable time, nothing is claimed."""

    def deep(leaf, levels=80):
        return leaf if not levels else {"items": deep(leaf, levels - 1)}

    (found,) = schema_deltas(deep(N), deep(S))
    assert found.unknown
    assert "too deeply" in found.what

    def doubling(leaf):
        steps = {f"s{n}": {"properties": {c: {"$ref": f"#/$defs/s{n + 1}"} for c in "ab"}} for n in range(40)}
        return {"$ref": "#/$defs/s0", "$defs": {**steps, "s40": leaf}}

    assert any(one.unknown and "too large" in one.what for one in schema_deltas(doubling(N), doubling(S)))
