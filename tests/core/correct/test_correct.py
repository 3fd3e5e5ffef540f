"""Corrections: laws over all of them, envelopes, bounds, and what is refused."""

import copy
import json
import time

import pytest
from correction_samples import (
    BOOLEAN,
    DATE,
    FIELDS,
    INTEGER,
    ITEM,
    NUMBER,
    NUMBERS,
    READ,
    STRING,
    STRINGS,
    WRITE,
    contract,
    one,
)
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.contract.contract import Contract
from pokayoke.core.correct.correct import correct_arguments

VARIANTS = [
    {"properties": {"k": {"const": number}, "v": INTEGER}, "required": ["k", "v"], "additionalProperties": False}
    for number in range(60)
]
WIDE = {
    "properties": {f"field_{sign}name": INTEGER for sign in "abcdefghijklmnopqrstuvwxyz"},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ({"oneOf": VARIANTS}, [{"k": number, "v": "1"} for number in range(60)] * 5),
        (WIDE, [{f"field{sign.upper()}name": 1 for sign in "abcdefghijklmnopqrstuvwxyz"}] * 80),
    ],
)
def test_very_many_steps_are_given_up(item, value):
    """Hundreds of corrections with expensive proofs end in a moment, with findings and without a change."""
    long = one({"type": "array", "items": item})
    began = time.process_time()
    prepared = correct_arguments({"v": value}, long, kinds=READ)
    assert time.process_time() - began < 4
    assert prepared.findings
    assert prepared.value == {"v": value}


def test_unknown_field_is_never_dropped():
    """A field the schema does not know is not thrown away to make the rest fit."""
    prepared = correct_arguments({"user_id": "u", "note": "urgent"}, contract(FIELDS), kinds=READ)
    assert [finding.code for finding in prepared.findings] == ["unknown_field"]


def test_missing_is_never_filled():
    """A missing required field is a finding, even if the schema has a default."""
    assert correct_arguments({}, one({"type": "integer", "default": 3}), kinds=READ).findings[0].code == "missing_field"


def test_null_for_an_absent_optional():
    """Null for an optional field is left out; for a required, undeclared or listed one it is refused."""
    assert correct_arguments({"v": None}, one(INTEGER, required=False), kinds=WRITE).value == {}
    assert correct_arguments({"v": None}, one(INTEGER), kinds=WRITE).findings
    open_map = contract({"type": "object", "additionalProperties": INTEGER})
    assert correct_arguments({"x": None}, open_map, kinds=WRITE).findings
    assert correct_arguments({"v": [None]}, one(NUMBERS), kinds=WRITE).findings
    held = correct_arguments({"v": None}, one(INTEGER, required=False), kinds=()).findings[0]
    assert "Leave `v` out" in held.hint


@pytest.mark.parametrize(
    "sent",
    [
        {"arguments": {"v": 1}},
        {"input": {"v": "1"}},
        {"args": '{"v": 1}'},
        {"name": "book", "arguments": {"v": 1}},
    ],
)
def test_envelope(sent):
    """An envelope that holds exactly the arguments is opened, and its content corrected."""
    prepared = correct_arguments(sent, one(INTEGER), kinds=WRITE)
    assert prepared.value == {"v": 1}
    assert prepared.corrections[0].rule == "envelope"


@pytest.mark.parametrize(
    "sent",
    [
        {"name": "other", "arguments": {"v": 1}},
        {"arguments": {"v": 1}, "more": 2},
        {"arguments": {"v": 1}, "comment": "book"},
        {"arguments": {"v": 1}, "input": {"v": 2}},
        {"arguments": [1]},
        {"arguments": "v=1"},
        {"arguments": 5},
        {"arguments": {"w": 1}},
        {"arguments": {"v": "a"}},
        {"arguments": {"v": 1}, "v": 2},
    ],
)
def test_no_envelope(sent):
    """Another field, another tool's name, or invalid content keeps it closed."""
    assert correct_arguments(sent, one(INTEGER), kinds=READ).findings


def test_envelope_needs_its_class():
    """Without the class equivalent, the envelope is not opened."""
    assert correct_arguments({"arguments": {"v": 1}}, one(INTEGER), kinds=("likely",)).findings


def test_empty_envelope():
    """An envelope around no arguments is opened where no argument is needed."""
    assert correct_arguments({"arguments": {}}, one(INTEGER, required=False), kinds=WRITE).value == {}


@pytest.mark.parametrize("whole", [[{"v": 1}, 2], ["arguments"], "arguments", None])
def test_wrong_whole(whole):
    """Arguments that are no object at all are one finding about the whole."""
    assert [finding.at for finding in correct_arguments(whole, one(INTEGER), kinds=READ).findings] == [""]


def test_a_rule_about_the_whole_beside_one_about_a_field():
    """Problems of the whole and of a field are two findings, and nothing is swapped."""
    made = contract({"type": "object", "properties": {"v": INTEGER}, "not": {"required": ["w"]}})
    found = correct_arguments({"v": "two", "w": 1}, made, kinds=READ).findings
    assert sorted(finding.at for finding in found) == ["", "/v"]


def test_inner_places():
    """JSON text is opened and its inside corrected; every step is recorded with its pointer."""
    node = {"type": "array", "items": {"type": "object", "properties": {"a/b": {"type": "array", "items": INTEGER}}}}
    prepared = correct_arguments({"v": '[{"a/b": "[\\"1\\"]"}]'}, one(node), kinds=WRITE)
    assert prepared.value == {"v": [{"a/b": [1]}]}
    assert [item.at for item in prepared.corrections] == ["/v", "/v/0/a~1b", "/v/0/a~1b/0"]


def test_references_are_followed():
    """Facts behind references, combinations and conditions count, also those in a document that was handed in."""
    schema = {
        "type": "object",
        "properties": {"v": {"$ref": "#/$defs/n"}, "w": {"allOf": [{"$ref": "urn:x#/$defs/n"}]}, "self": {"$ref": "#"}},
        "$defs": {"n": {"type": "integer"}},
        "if": {"required": ["k"]},
        "then": {"properties": {"k": {"const": 1}}},
        "dependentSchemas": {"v": {"properties": {"z": {"type": "integer"}}}},
        "patternProperties": {"^p": {"type": "integer"}},
    }
    resources = {"urn:x": {"$id": "urn:x", "$defs": {"n": {"type": "integer"}}}}
    made = contract(schema, schemas=resources)
    sent = {"v": "1", "self": {"v": "2"}, "k": "1", "z": "3", "p1": "4", "w": "5"}
    assert correct_arguments(sent, made, kinds=WRITE).value == {
        "v": 1,
        "self": {"v": 2},
        "k": 1,
        "z": 3,
        "p1": 4,
        "w": 5,
    }


def test_tuples():
    """Items are judged by their own place: prefix items by position, the rest by the rest."""
    node = {"type": "array", "prefixItems": [STRING, INTEGER], "items": BOOLEAN}
    assert correct_arguments({"v": ["a", "1", "true"]}, one(node), kinds=WRITE).value == {"v": ["a", 1, True]}


def test_nothing_else_may_get_worse():
    """A step that breaks another rule is not taken: equal items where all must differ."""
    node = {"type": "array", "items": {"enum": ["A", "B"]}, "uniqueItems": True}
    assert correct_arguments({"v": ["A", "a"]}, one(node), kinds=WRITE).findings


def test_many_alike():
    """A long list with the same slip in every item is corrected in few validations; beyond the bound refused."""
    assert correct_arguments({"v": [str(i) for i in range(200)]}, one(NUMBERS), kinds=WRITE).value == {
        "v": list(range(200))
    }
    too_many = correct_arguments({"v": [str(i) for i in range(400)]}, one(NUMBERS), kinds=WRITE)
    assert too_many.findings
    assert too_many.corrections == ()


def test_alike_but_not_all():
    """One bad item among many refuses the whole, and the finding names that item."""
    prepared = correct_arguments({"v": ["1", "2", "x", "4"]}, one(NUMBERS), kinds=WRITE)
    assert [finding.at for finding in prepared.findings] == ["/v/2"]
    gaps = correct_arguments({"v": [{}, {}]}, one({"type": "array", "items": ITEM}), kinds=READ)
    assert [finding.at for finding in gaps.findings] == ["/v/0/n", "/v/1/n"]


def test_alike_with_other_results():
    """Items that would collide are settled one by one as far as that goes, and then refused."""
    node = {"type": "array", "items": INTEGER, "uniqueItems": True}
    assert correct_arguments({"v": ["1", "2"]}, one(node), kinds=WRITE).value == {"v": [1, 2]}
    assert correct_arguments({"v": ["1", "1.0"]}, one(node), kinds=WRITE).findings


def test_values_in_each_others_place():
    """Two fields that would fit with swapped values are left alone: swapped or misspelt is unknown."""
    schema = {
        "type": "object",
        "properties": {"place": STRING, "items": STRINGS, "n": INTEGER, "l": {"properties": {"m": INTEGER}}},
    }
    swapped = {"place": ["fries"], "items": "Joe's"}
    found = correct_arguments(swapped, contract(schema), kinds=READ)
    assert (found.value, found.corrections) == (swapped, ())
    assert [finding.at for finding in found.findings] == ["/place", "/items"]
    alone = correct_arguments(
        {"place": "Joe's", "items": "fries", "n": "2", "l": {"m": "3"}}, contract(schema), kinds=WRITE
    )
    assert alone.value == {"place": "Joe's", "items": ["fries"], "n": 2, "l": {"m": 3}}


def test_large_values_end_soon():
    """A large value that cannot be corrected costs a bounded number of validations."""
    rows = [{"n": "1-2", "note": "x" * 200} for _ in range(500)]
    node = {"type": "array", "items": {"type": "object", "properties": {"n": INTEGER, "note": STRING}}}
    assert correct_arguments({"v": rows}, one(node), kinds=READ).findings
    mixed = [{f"Nn{i}": 1} for i in range(60)]
    odd = {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {f"nn{i}": INTEGER for i in range(60)},
            "additionalProperties": False,
        },
    }
    padded = {"v": mixed, "w": "x" * 150_000}
    schema = {"type": "object", "properties": {"v": odd, "w": STRING}}
    assert correct_arguments(padded, contract(schema), kinds=READ).findings


def test_rounds_are_bounded():
    """JSON text in JSON text is opened a few times, not without end."""
    node = {"type": "object", "properties": {"v": {"$ref": "#"}}, "additionalProperties": False}

    def nested(levels):
        value = {}
        for _ in range(levels):
            value = {"v": json.dumps(value)}
        return value

    assert correct_arguments(nested(5), contract(node), kinds=WRITE).findings == ()
    assert correct_arguments(nested(10), contract(node), kinds=WRITE).findings


@pytest.mark.parametrize(
    "schema",
    [
        {"unevaluatedProperties": False},
        {"propertyNames": {"maxLength": 8}},
        {"dependentRequired": {"user_nam_": ["user_name"]}},
        {"if": {"required": ["user_nam_"]}, "then": {"required": ["user_name"]}},
    ],
)
def test_names_by_other_rules(schema):
    """The search ends with an answer, whichever keyword refuses a name."""
    made = contract({"type": "object", "properties": {"user_name": STRING}, **schema})
    assert correct_arguments({"user_nam_": "x", "long_name_": 1}, made, kinds=READ).value


def test_no_json_value():
    """Python values that are no JSON are a finding, not an exception."""
    for canonical in (None, b"{}"):
        for odd in ({1, 2}, object()):
            found = correct_arguments({"v": odd}, one({}), kinds=READ, canonical=canonical).findings
            assert [finding.code for finding in found] == ["not_json"]


def named(node, **fields):
    """A contract whose one argument identifies its effect."""
    return one(node, identity=("v",), **fields)


def test_placeholders_are_refused():
    """A placeholder is a finding also where it fits the schema, and hides a lesser finding at its place."""
    for canonical in (None, b'{"v":"<user_id>"}'):
        found = correct_arguments({"v": "<user_id>"}, named(STRING), kinds=READ, canonical=canonical).findings
        assert [finding.code for finding in found] == ["placeholder"]
    assert [finding.code for finding in correct_arguments({"v": "TODO"}, one(INTEGER), kinds=READ).findings] == [
        "placeholder"
    ]
    assert correct_arguments({"v": '["..."]'}, named(STRINGS), kinds=READ).findings[0].at == "/v/0"
    made = named(STRING, correctors={"v": lambda value: "<user_id>"})
    found = correct_arguments({"v": True}, made, kinds=WRITE, canonical=b'{"v":true}').findings
    assert [finding.code for finding in found] == ["placeholder"]


def test_valid_is_the_same_object():
    """A valid value passes as the very object it is, on every way in."""
    value = {"v": "a <b> c"}
    for canonical in (None, json.dumps(value).encode(), b'{"v":"$5"}'):
        prepared = correct_arguments(value, one(STRING), kinds=READ, canonical=canonical)
        assert prepared.value is value
        assert not prepared.changed


SCHEMA = {
    "type": "object",
    "properties": {
        "count": INTEGER, "price": NUMBER, "name": STRING, "ok": BOOLEAN, "tags": STRINGS, "day": DATE, "item": ITEM,
        "unit": {"enum": ["kg", "g", "Stück"]}, "maybe": {"anyOf": [ITEM, NUMBERS, {"type": "null"}]},
        "user_name": {"type": ["string", "integer"]},
    },
    "required": ["count"],
    "additionalProperties": False,
}  # fmt: skip
LAWFUL = contract(
    SCHEMA, correctors={"count": "counter_suffix", "price": "unit:kg", "unit": {"aliases": {"kilo": "kg"}}}
)
SCALARS = st.sampled_from(
    ["2", "2件", "2.0", "true", "KG", "kilo", "a", "a, b", "[1]", '{"n": "1"}', "2026/01/02", "5 g", "<x_id>",
     "null", " "]
)  # fmt: skip
SCALARS |= st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
SCALARS |= st.text(max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["n", "N", "m"]), inner, max_size=2),
    max_leaves=6,
)
NAMES = st.sampled_from([*SCHEMA["properties"], "Count", "userName", "pirce", "arguments", "extra"])


@given(st.dictionaries(NAMES, VALUES, max_size=5), st.sampled_from([WRITE, READ, (), ("equivalent",)]))
def test_laws(value, kinds):
    """Nothing is changed in place; the result is valid or refused; a second run changes nothing; all is recorded."""
    before = copy.deepcopy(value)
    prepared = correct_arguments(value, LAWFUL, kinds=kinds)
    assert value == before
    if LAWFUL.input.accepts(value) and not prepared.findings:
        assert prepared.value is value
        assert prepared.corrections == ()
    if prepared.findings:
        assert prepared.value is value
        assert not prepared.changed
        return
    assert LAWFUL.input.accepts(prepared.value)
    assert prepared.changed == bool(prepared.corrections)
    assert {item.kind for item in prepared.corrections} <= set(kinds)
    again = correct_arguments(prepared.value, LAWFUL, kinds=kinds)
    assert again.value is prepared.value
    assert again.corrections == ()
    assert again.findings == ()


def test_law_no_value_appears_from_nowhere():
    """A missing required field stays missing whatever else is corrected."""
    prepared = correct_arguments({"price": "2", "ok": "true"}, LAWFUL, kinds=READ)
    assert [finding.at for finding in prepared.findings] == ["/count"]


def test_a_declared_field_is_no_envelope():
    """A declared field is a value, even if it is named like an envelope and holds all arguments."""
    schema = {
        "type": "object",
        "properties": {"input": {"type": "string"}, "sku": {"type": "string"}},
        "required": ["sku"],
        "additionalProperties": False,
    }
    made = Contract.from_schema("t", schema, effect="read")
    prepared = correct_arguments({"input": {"sku": "S1"}}, made, kinds=("equivalent", "declared", "likely"))
    assert {(f.code, f.at) for f in prepared.findings} == {("missing_field", "/sku"), ("wrong_type", "/input")}
