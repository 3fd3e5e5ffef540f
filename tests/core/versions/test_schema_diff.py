"""Differences of schemas: a value changes its validity only where the difference says so."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pokayoke.core.schema.schema import compile_schema
from pokayoke.core.versions.schema_diff import schema_deltas
from pokayoke.core.versions.schema_keywords import Delta
from pokayoke.errors import ContractError

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-4, 4), st.sampled_from([0.5, 2.5]), st.sampled_from(["", "a", "ab", "b7"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("pqr"), inner, max_size=3)),
    max_leaves=6,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
REFERENCES = ("#/$defs/one", "#/$defs/two", "#tip", "urn:own")


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
        optional(anyOf=branches(inner), allOf=st.lists(inner, min_size=1, max_size=2)),
        st.fixed_dictionaries({"oneOf": branches(inner)}, optional={"type": TYPES}),
        st.builds(lambda a, b: {"oneOf": [told_by(0, a), told_by(1, b)]}, inner, inner),
        st.fixed_dictionaries({"$ref": st.sampled_from(REFERENCES)}),
        optional(**{"not": inner, "patternProperties": st.dictionaries(st.just("^p"), inner, max_size=1)}),
        optional(**{"if": inner, "then": inner, "dependentSchemas": st.dictionaries(st.just("p"), inner, max_size=1)}),
        optional(
            allOf=st.lists(inner, min_size=1, max_size=2),
            properties=st.dictionaries(st.sampled_from("pq"), inner),
            unevaluatedProperties=st.one_of(st.just(False), inner),
        ),
        optional(prefixItems=branches(inner), items=inner, contains=inner, unevaluatedItems=st.just(False)),
    )


def branches(inner):
    """Several subschemas."""
    return st.lists(inner, min_size=1, max_size=3)


def told_by(value, inner):
    """One of several objects that are told apart by a field."""
    return {"type": "object", "properties": {"p": {"const": value}, "q": inner}, "required": ["p"]}


NODES = st.recursive(st.one_of(st.booleans(), st.builds(lambda name: {"type": name}, TYPES)), of, max_leaves=5)


def document(root, one, two):
    """A schema in which every reference leads somewhere: by path, by anchor, and to a schema with a name of its own."""
    if "$ref" not in str(root):
        return root if isinstance(root, dict) else {"allOf": [root]}
    tip = {"$anchor": "tip", "allOf": [two]}
    own = {"$id": "urn:own", "$defs": {"one": two, "two": one, "tip": {"$anchor": "tip"}}, "items": two}
    return {"$defs": {"one": one, "two": two, "tip": tip, "own": own}, "allOf": [root]}


SCHEMAS = st.builds(document, NODES, NODES, NODES)
# Half of the pairs differ in a definition only: what refers to it reads as before.
PAIRS = st.one_of(
    st.tuples(SCHEMAS, SCHEMAS),
    st.builds(lambda root, a, b, c: (document(root, a, c), document(root, b, c)), NODES, NODES, NODES, NODES),
)


def compiled(schema):
    """The schema, or None if it is one we refuse (an endless reference, for one)."""
    try:
        return compile_schema(schema, where="test")
    except ContractError:
        return None


def deltas_of(old, new, **resources):
    """What differs between two schemas that stand here as plain data."""
    return schema_deltas(*(compile_schema(one, where="test", resources=resources) for one in (old, new)))


@settings(max_examples=250, deadline=None)
@given(PAIRS, st.lists(VALUES, min_size=5, max_size=12))
def test_what_no_delta_says_happens_to_no_value(pair, values):
    """If nothing is narrower, what was accepted still is; if nothing is wider, what was refused still is."""
    one, other = map(compiled, pair)
    if one is None or other is None:
        return
    deltas = schema_deltas(one, other)
    narrower, wider = any(d.narrower for d in deltas), any(d.wider for d in deltas)
    for value in values:
        before, after = one.is_valid(value), other.is_valid(value)
        assert narrower or not before or after, (value, deltas)
        assert wider or before or not after, (value, deltas)


@given(SCHEMAS)
def test_a_schema_does_not_differ_from_itself(schema):
    """Equal schemas have no deltas."""
    one, other = compiled(schema), compiled(dict(reversed(schema.items())))
    assert one is None or schema_deltas(one, other) == ()


def obj(required=(), *, closed=True, **properties):
    """An object schema."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": not closed,
    }


N, S = {"type": "number"}, {"type": "string"}
DRAFT4, DRAFT7 = ({"$schema": f"http://json-schema.org/draft-0{number}/schema#"} for number in (4, 7))


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
        (obj(a=N), obj(a=N, closed=False), [Delta("/*", "other fields: was not allowed", False, True, "added")]),
        ({"enum": ["a", "b"]}, {"enum": ["b", "c"]}, [Delta("", 'values: "c" added, "a" removed', True, True)]),
        ({"enum": ["a"]}, {"const": "a"}, []),
        ({"enum": ["a"]}, {}, [Delta("", "values: any value now", False, True)]),
        ({}, {"const": 1}, [Delta("", "values: only 1 now", True)]),
        ({"minimum": 1}, {"exclusiveMinimum": 1}, [Delta("", "minimum: 1 -> 1", True)]),
        ({"maximum": 9}, {}, [Delta("", "maximum: 9 -> none", False, True)]),
        ({"maxLength": 5}, {"maxLength": 3}, [Delta("", "maxLength: 5 -> 3 characters", True)]),
        ({"minItems": 1}, {}, [Delta("", "minItems: 1 -> 0 items", False, True)]),
        ({"multipleOf": 2}, {"multipleOf": 4}, [Delta("", "multipleOf: 2 -> 4", True, True)]),
        (
            {**DRAFT4, "minimum": 0, "exclusiveMinimum": True},
            {**DRAFT4, "minimum": 0},
            [Delta("", "`exclusiveMinimum` of an old draft changed", True, True)],
        ),
        ({"pattern": "a"}, {"pattern": "b"}, [Delta("", "pattern: a -> b", True, True)]),
        ({"uniqueItems": True}, {}, [Delta("", "items need not differ now", False, True)]),
        ({"items": N}, {"items": S}, [Delta("/*", "type: number -> string", True, True)]),
        ({**DRAFT7, "items": [N]}, {**DRAFT7, "items": [S]}, [Delta("", "`items` changed", True, True)]),
        (
            {**DRAFT7, "items": [N]},
            {**DRAFT7, "items": [N], "$comment": "x"},
            [Delta("", "`$comment` reads differently")],
        ),
        (
            {**DRAFT4, "minimum": 0, "exclusiveMinimum": True},
            {**DRAFT4, "minimum": 0, "exclusiveMinimum": True, "minLength": 1},
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
            {"$defs": {"x": N}, "anyOf": [{"$ref": "#/$defs/x"}, S]},
            {"$defs": {"x": S}, "anyOf": [{"$ref": "#/$defs/x"}]},
            [Delta("", "`anyOf`: 0 added, 1 removed", True)],
        ),
        (
            {"$defs": {"x": N}, "allOf": [{"$ref": "#/$defs/x"}, S]},
            {"$defs": {"x": S}, "allOf": [{"$ref": "#/$defs/x"}]},
            [Delta("", "`allOf`: 0 added, 1 removed", False, True)],
        ),
    ],
)
def test_a_difference_is_told(old, new, deltas):
    """Each kind of difference has its words, its place and its direction."""
    assert deltas_of(old, new) == tuple(deltas)


REF = {"$ref": "#/$defs/x"}
NULL = {"type": "null"}
DRAFT2020 = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def behind(node, x):
    """A schema with a field, and a definition that it leads to."""
    return {"properties": {"a": node}, "$defs": {"x": x}}


@pytest.mark.parametrize(
    "node",
    [
        {"not": REF},
        {"if": REF, "then": N},
        {"prefixItems": [REF]},
        {"patternProperties": {"^x": REF}},
        {"contains": {"items": REF}},
        {"oneOf": [REF, {"minimum": 1}]},
        {"$ref": "#/$defs/x", "minimum": 1},
        {**REF, "unevaluatedProperties": False},
    ],
)
def test_what_a_keyword_refers_to_counts(node):
    """A definition that changed is told where it is referred to, also by keywords that are compared by their text."""
    (found,) = deltas_of(behind(node, N), behind(node, S))
    assert (found.at, found.is_unknown) == ("/a", True)
    assert deltas_of(behind(node, N), {**behind(node, N), "title": "x"}) == (Delta("", "`title` reads differently"),)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (behind({"$ref": "#i"}, {"$anchor": "i", **N}), behind({"$ref": "#i"}, {"$anchor": "i", **S})),
        (
            behind(REF, {"$id": "urn:x", "$defs": {"x": N}, "items": REF}),
            behind(REF, {"$id": "urn:x", "$defs": {"x": S}, "items": REF}),
        ),
        (behind({"$ref": "#/$defs/x%20y"}, {}) | {"$defs": {"x y": N}},
         behind({"$ref": "#/$defs/x%20y"}, {}) | {"$defs": {"x y": S}}),
    ],
)  # fmt: skip
def test_a_reference_leads_where_the_validator_goes(old, new):
    """Anchors, schemas with a name of their own and escaped names are followed."""
    assert [one.what for one in deltas_of(old, new)] == ["type: number -> string"]


def test_documents_that_were_handed_in_are_compared():
    """A reference out of the schema leads to the documents that belong to it."""
    schema = {"$ref": "https://x/y"}
    one, other = (compile_schema(schema, where="test", resources={"https://x/y": target}) for target in (N, S))
    assert schema_deltas(one, other) == (Delta("", "type: number -> string", True, True),)


def test_what_cannot_be_followed_is_unknown():
    """A dialect's own schema, and references that depend on the way that led to them, are unknown, unless all is equal."""
    meta = {"$ref": "https://json-schema.org/draft/2020-12/schema"}
    assert deltas_of(meta, {}) == (Delta("", "a reference that cannot be followed here", True, True),)

    def tree(leaf):
        return {"$dynamicAnchor": "n", "properties": {"next": {"$dynamicRef": "#n"}, "leaf": leaf}}

    assert Delta("/next", "`$dynamicRef` changed", True, True) in deltas_of(tree(N), tree(S))
    assert deltas_of(tree(N), tree({"type": "number"})) == ()


def tagged(field, value, **fields):
    """One branch of a union that is told apart by a field."""
    return obj([field, *fields], **{field: {"const": value}, **fields})


@pytest.mark.parametrize(
    ("old", "new", "deltas"),
    [
        (N, {"anyOf": [N, NULL]}, [Delta("", "`anyOf` came", False, True)]),
        (N, {"anyOf": [NULL, {}]}, [Delta("", "`anyOf` came", False, True)]),
        ({"anyOf": [N, NULL], "title": "a"}, {**N, "title": "a"}, [Delta("", "`anyOf` went", True)]),
        (N, {"anyOf": [N], "title": "b"}, [Delta("", "`title` reads differently")]),
        (behind(REF, obj(a=N)), behind({"anyOf": [REF, NULL]}, obj(a=N)), [Delta("/a", "`anyOf` came", False, True)]),
        (N, {"oneOf": [N, NULL]}, [Delta("", "`oneOf` came", False, True)]),
        (
            N,
            {"anyOf": [S, NULL]},
            [Delta("", "type: number -> anything", False, True), Delta("", "`anyOf` came", True)],
        ),
        (
            N,
            {"oneOf": [N, {"minimum": 1}]},
            [Delta("", "type: number -> anything", False, True), Delta("", "`oneOf` came", True)],
        ),
        ({"anyOf": [N, S]}, {"oneOf": [N, S, NULL]}, [Delta("", "`oneOf` came, `anyOf` went", False, True)]),
        ({"oneOf": [N, S]}, {"oneOf": [S, N]}, []),
        ({"oneOf": [N, S]}, {"oneOf": [S, N, NULL]}, [Delta("", "`oneOf`: 1 added, 0 removed", False, True)]),
        ({"oneOf": [False, S]}, {"oneOf": [False, N, S]}, [Delta("", "`oneOf`: 1 added, 0 removed", False, True)]),
        ({"oneOf": [N, {}]}, {"oneOf": [N, {}, S]}, [Delta("", "`oneOf` changed", True, True)]),
        (
            {"oneOf": [{"const": 1}, {"enum": [2, 3]}]},
            {"oneOf": [{"const": 1}, {"enum": [2]}]},
            [Delta("", "values: 3 removed", True)],
        ),
        (
            {**DRAFT4, "oneOf": [{"enum": [1]}, {"enum": [2]}]},
            {**DRAFT4, "oneOf": [{"enum": [1]}, {"enum": [3]}]},
            [Delta("", "`oneOf` changed", True, True)],
        ),
        (
            {"oneOf": [tagged("kind", "card"), tagged("kind", "bank", iban=S)], "discriminator": {"propertyName": "k"}},
            {"oneOf": [tagged("kind", "card"), tagged("kind", "bank", iban=S), tagged("kind", "cash")]},
            [
                Delta("", "`discriminator` reads differently"),
                Delta("", "`oneOf`: 1 added, 0 removed", False, True),
            ],
        ),
        (
            {"oneOf": [REF, tagged("kind", "card")], "$defs": {"x": tagged("kind", "bank", iban=S)}},
            {"oneOf": [REF, tagged("kind", "card")], "$defs": {"x": tagged("kind", "bank", iban=S, bic=S)}},
            [Delta("/bic", "is required now", True), Delta("/bic", "field added", False, True, "added")],
        ),
    ],
)
def test_unions(old, new, deltas):
    """What one branch accepts is not lost, and a `oneOf` is a choice where no value fits twice."""
    assert deltas_of(old, new) == tuple(deltas)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            {"properties": {"a": N, "b": S}, "unevaluatedProperties": False},
            {"properties": {"a": N}, "unevaluatedProperties": False},
        ),
        (
            {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False},
            {"allOf": [{"properties": {}}], "unevaluatedProperties": False},
        ),
        (
            {"additionalProperties": {}, "unevaluatedProperties": False},
            {"unevaluatedProperties": False},
        ),
        ({"items": {}, "unevaluatedItems": False}, {"unevaluatedItems": False}),
    ],
)
def test_what_is_left_over_depends_on_the_neighbours(old, new):
    """A value that nothing looks at any more may be refused by what looks at the rest."""
    assert any(one.is_unknown for one in deltas_of(old, new))


def test_a_map_gets_no_new_field():
    """A field of a map that is described by itself now is compared with what the map said of every field."""
    number = {"type": "object", "additionalProperties": N}
    both = {"type": ["number", "string"]}
    assert deltas_of(number, {**number, "properties": {"b": both}}) == (
        Delta("/b", "type: number -> number or string", False, True),
    )
    (found,) = deltas_of(number, {**number, "additionalProperties": both})
    assert (found.field, found.wider) == ("", True)
    (found,) = deltas_of({"additionalProperties": {"title": "x"}}, {"properties": {"b": N}})[:1]
    assert found == Delta("/b", "field added", True, False, "added")


@pytest.mark.parametrize(
    ("old", "new", "unknown"),
    [
        ({**DRAFT7, **obj(a=N)}, {**DRAFT2020, **obj(a=N)}, False),
        ({**DRAFT7, "properties": {"a": False}}, {**DRAFT2020, "properties": {"a": False}}, False),
        ({**DRAFT7, "format": "uuid"}, {**DRAFT2020, "format": "uuid"}, True),
        ({**DRAFT7, "prefixItems": [N]}, {**DRAFT2020, "prefixItems": [N]}, True),
        ({**DRAFT4, **N}, {**DRAFT2020, **N}, True),
        ({"properties": {"a": {**DRAFT7, "prefixItems": [N]}}}, {"properties": {"a": {"prefixItems": [N]}}}, True),
    ],
)
def test_another_dialect(old, new, unknown):
    """What reads the same may mean something else in another dialect."""
    assert any(one.is_unknown for one in deltas_of(old, new)) == unknown


def test_a_recursive_schema_ends():
    """A schema that refers to itself is compared once around."""

    def tree(leaf):
        return {"$ref": "#/$defs/t", "$defs": {"t": {"properties": {"next": {"$ref": "#/$defs/t"}, "leaf": leaf}}}}

    assert deltas_of(tree(N), tree(S)) == (Delta("/leaf", "type: number -> string", True, True),)


def test_what_is_too_deep_is_said_to_be():
    """Beyond 64 levels, and beyond what can be compared in reasonable time, nothing is claimed."""

    def deep(leaf, levels=80):
        return leaf if not levels else {"items": deep(leaf, levels - 1)}

    (found,) = deltas_of(deep(N), deep(S))
    assert found.is_unknown
    assert "too deeply" in found.what

    def doubling(leaf):
        steps = {f"s{n}": {"properties": {c: {"$ref": f"#/$defs/s{n + 1}"} for c in "ab"}} for n in range(40)}
        return {"$ref": "#/$defs/s0", "$defs": {**steps, "s40": leaf}}

    assert any(one.is_unknown and "too large" in one.what for one in deltas_of(doubling(N), doubling(S)))


def test_a_large_union_leaves_room_for_the_rest():
    """Branches that a field tells apart are not compared with each other, so that what follows still is."""

    def many(leaf, **more):
        branches = [tagged("kind", str(number), **dict.fromkeys("abc", N), **more) for number in range(60)]
        return {"properties": {"a": {"oneOf": branches}, "b": leaf}}

    assert deltas_of(many(N), many(S, d=N)) == (
        Delta("/a", "`oneOf`: 60 added, 60 removed", True, True),
        Delta("/b", "type: number -> string", True, True),
    )
