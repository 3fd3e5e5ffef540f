"""Findings about a value: every problem at once, at the right place, with a hint that can be followed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.check.findings import check_value, clarification_question
from pokayoke.core.finding_codes import FINDING_CODES
from pokayoke.core.schema.facts import facts_at, facts_of_branch
from pokayoke.core.schema.schema import compile_schema

ORDER = {
    "type": "object",
    "properties": {
        "user": {"type": "string", "minLength": 2, "maxLength": 5},
        "amount": {"type": "integer", "minimum": 1, "maximum": 100},
        "currency": {"enum": ["CNY", "USD"]},
        "day": {"type": "string", "format": "date"},
        "code": {"type": "string", "pattern": "^[A-Z]+$"},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2, "uniqueItems": True},
        "box": {"type": "object", "properties": {"w": {"type": "number"}}, "required": ["w"], "maxProperties": 1},
        "step": {"type": "number", "multipleOf": 5},
        "odd": {"not": {"type": "string"}},
        "either": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
        "fixed": {"const": 7},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}], "items": False},
        "never": False,
        "map": {"type": "object", "propertyNames": {"maxLength": 2}, "minProperties": 1},
    },
    "required": ["user"],
    "additionalProperties": False,
}
SCHEMA = compile_schema(ORDER)


@pytest.mark.parametrize(
    ("value", "code", "at"),
    [
        ({}, "missing_field", "/user"),
        ({"user": "abc", "usr": 1}, "unknown_field", "/usr"),
        ({"user": 1}, "wrong_type", "/user"),
        ({"user": "abc", "amount": 0}, "out_of_range", "/amount"),
        ({"user": "abc", "amount": 101}, "out_of_range", "/amount"),
        ({"user": "abc", "currency": "GBP"}, "not_in_enum", "/currency"),
        ({"user": "abc", "fixed": 8}, "not_in_enum", "/fixed"),
        ({"user": "abc", "day": "tomorrow"}, "bad_format", "/day"),
        ({"user": "abc", "code": "a"}, "bad_pattern", "/code"),
        ({"user": "a"}, "too_short", "/user"),
        ({"user": "abcdef"}, "too_long", "/user"),
        ({"user": "abc", "tags": []}, "too_few_items", "/tags"),
        ({"user": "abc", "tags": ["a", "b", "c"]}, "too_many_items", "/tags"),
        ({"user": "abc", "tags": ["a", "a"]}, "duplicate_items", "/tags"),
        ({"user": "abc", "tags": [1]}, "wrong_type", "/tags/0"),
        ({"user": "abc", "box": {}}, "missing_field", "/box/w"),
        ({"user": "abc", "box": {"w": 1, "v": 1}}, "too_many_fields", "/box"),
        ({"user": "abc", "map": {}}, "too_few_fields", "/map"),
        ({"user": "abc", "step": 4}, "out_of_range", "/step"),
        ({"user": "abc", "odd": "x"}, "schema_mismatch", "/odd"),
        ({"user": "abc", "odd": float("inf")}, "not_json", "/odd"),
        ({"user": "abc", "never": 1}, "unknown_field", "/never"),
        ({"user": "abc", "pair": ["a", "b"]}, "schema_mismatch", "/pair/1"),
        ({"user": "abc", "map": {"long": 1}}, "unknown_field", "/map/long"),
    ],
)
def test_code_and_place(value, code, at):
    """Each kind of problem has its own code and points at the place that has to change."""
    found = check_value(value, SCHEMA)
    assert (code, at) in [(finding.code, finding.at) for finding in found]
    assert all(finding.blame == "model" and finding.message and finding.hint for finding in found)


def test_everything_at_once():
    """One check reports every problem, each once."""
    found = check_value({"amount": 0, "currency": "X", "extra": 1, "more": 2, "tags": [1, 2]}, SCHEMA)
    places = [finding.at for finding in found]
    assert sorted(places) == ["/amount", "/currency", "/extra", "/more", "/tags/0", "/tags/1", "/user"]


def test_one_place_that_is_wrong_in_one_way_is_named_once():
    """Two rules of a kind that are both broken are one finding."""
    schema = compile_schema({"type": "integer", "minimum": 10, "multipleOf": 5})
    assert [finding.code for finding in check_value(3, schema)] == ["out_of_range"]


def test_valid_is_silent():
    """A valid value has no findings."""
    assert check_value({"user": "abc"}, SCHEMA) == ()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({}, "Add `user`: a text of 2 to 5 characters."),
        ({"user": "abc", "amount": "x"}, "Send `amount` as an integer from 1 to 100."),
        ({"user": "abc", "amount": 0}, "`amount` has to be an integer from 1 to 100."),
        ({"user": "abc", "currency": "x"}, 'one of "CNY", "USD"'),
        ({"user": "abc", "day": "x"}, "in the format date, such as 2026-11-21"),
        ({"user": "abc", "code": "x"}, "a text that fits ^[A-Z]+$"),
        ({"user": "abc", "usr": 1}, "`usr` is not a field here. Fields: `user`,"),
        ({"user": "abc", "tags": "x"}, "a list of 1 to 2 items, each a text"),
        ({"user": "abc", "tags": ["a", "a"]}, "every item of `tags` once"),
        ({"user": "abc", "box": 1}, "an object with w"),
        ({"user": "abc", "either": "x"}, "`either` has to be integer or boolean."),
        ({"user": "abc", "odd": float("nan")}, "`odd` cannot be used: send a finite number"),
    ],
)
def test_hint(value, says):
    """A hint names the field and what to send."""
    assert says in " ".join(finding.hint for finding in check_value(value, SCHEMA))


@pytest.mark.parametrize(
    ("node", "value", "says"),
    [
        ({"type": "number", "minimum": 0, "exclusiveMinimum": 0}, 0, "more than 0"),
        ({"allOf": [{"type": "integer", "minimum": 0}, {"minimum": 10, "maximum": 20}]}, 5, "at least 10"),
        ({"type": "string", "format": "uuid", "pattern": "^a"}, "b5a3f2f0-1111-4111-8111-111111111111", "^a"),
        ({"type": "string", "format": "uri", "maxLength": 5}, "http://x.example", "at most 5"),
        ({"maximum": 3}, 5, "at most 3"),
    ],
)
def test_a_hint_never_asks_for_what_was_refused(node, value, says):
    """If several rules apply to a place, the hint is about the one that failed."""
    hint = check_value({"a": value}, compile_schema({"properties": {"a": node}}))[0].hint
    assert says in hint


CLOSED = {"type": "array", "prefixItems": [{"type": "integer"}], "unevaluatedItems": False}


@pytest.mark.parametrize("node", [CLOSED, {"anyOf": [CLOSED, {"type": "null"}]}, {"anyOf": [{"$ref": "#/$defs/c"}]}])
def test_a_value_that_breaks_an_unexplained_keyword_is_named(node):
    """It is named at its place, in addition to all other problems."""
    schema = compile_schema({"properties": {"a": node, "b": {"type": "integer"}}, "$defs": {"c": CLOSED}})
    assert [(found.code, found.at) for found in check_value({"a": [1, 2], "b": "x"}, schema)] == [
        ("schema_mismatch", "/a"),
        ("wrong_type", "/b"),
    ]
    assert check_value({"a": [1], "b": 2}, schema) == ()


def test_unknown_field_without_any_known():
    """Where an object has no fields at all, the hint says so."""
    schema = compile_schema({"type": "object", "additionalProperties": False})
    assert "Fields: none" in check_value({"a": 1}, schema)[0].hint


def test_a_tie_is_not_hidden():
    """Where two variants fit equally well, the hint does not pretend that only one may be sent."""
    schema = compile_schema({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]})
    assert "another variant" in check_value({}, schema)[0].hint


def test_root_is_named():
    """The whole value has the name that the caller gives it."""
    assert "`output`" in check_value([], SCHEMA, root="output")[0].hint


def test_hints_stay_short():
    """However long the schema, a hint stays under 600 characters."""
    many = {f"field_number_{i}_{'x' * 50}": {"type": "string"} for i in range(300)}
    schema = compile_schema({"properties": many, "additionalProperties": False})
    assert all(len(finding.hint) < 600 for finding in check_value({"y" * 5000: 1}, schema))
    assert all(len(finding.message) < 800 for finding in check_value({"y" * 5000: 1}, schema))
    choices = compile_schema({"enum": ["x" * 500 + str(i) for i in range(500)]})
    assert all(len(finding.hint) < 600 for finding in check_value("no", choices))


def test_clarification_asks_for_the_required_fields():
    """The question lists the required fields with ranges and choices; without any, all fields."""
    assert "`user` (a text of 2 to 5" in clarification_question(SCHEMA)
    assert "amount" not in clarification_question(SCHEMA)
    assert "`a` (an integer)" in clarification_question(compile_schema({"properties": {"a": {"type": "integer"}}}))
    assert clarification_question(compile_schema(True)).endswith(".")


def test_clarification_asks_for_corrected_places():
    """For a call made uncertain by corrections, the question lists the corrected places, each once."""
    assert "`amount` (" in clarification_question(SCHEMA, [("amount",), ("amount",)])
    assert clarification_question(SCHEMA, [("amount",), ("amount",)]).count("`") == 2


def variants(*kinds):
    """An object of one of several kinds, each with an `n` of its own."""
    fields = [{"k": {"const": name}, "n": node} for name, node in kinds]
    return {"oneOf": [{"properties": one, "required": ["k", "n"], "additionalProperties": False} for one in fields]}


LOW, HIGH = {"type": "integer", "maximum": 10}, {"type": "integer", "minimum": 100}
OPERATION = variants(("a", LOW), ("b", HIGH), ("c", {"type": "string"}))
PROVINCE = {
    "properties": {"country": {"enum": ["CA", "US"]}},
    "if": {"properties": {"country": {"const": "CA"}}},
    "then": {"properties": {"p": {"enum": ["ON", "QC"]}}},
    "else": {"properties": {"p": {"enum": ["TX", "NY"]}}},
}
PAID = {
    "properties": {"by": {"enum": ["card", "transfer"]}},
    "if": {"properties": {"by": {"const": "card"}}},
    "then": {"properties": {"number": {"type": "string"}}},
    "else": {"properties": {"iban": {"type": "string"}, "bic": {"type": "string"}}},
    "unevaluatedProperties": False,
}
PAIR = {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 2, "items": False}


@pytest.mark.parametrize(
    ("node", "value", "said"),
    [
        (OPERATION, {"k": "a", "n": 50}, "`n` has to be an integer of at most 10."),
        (OPERATION, {"k": "a"}, "Add `n`: an integer of at most 10."),
        (OPERATION, {"k": "c", "n": 5}, "Send `n` as a text."),
        (OPERATION, {"k": "a", "n": 5, "x": 1}, "Fields: `k`, `n`."),
        ({"properties": {"n": {"anyOf": [LOW, HIGH]}}}, {"n": 50}, "`n` has to be an integer."),
        (PROVINCE, {"country": "CA", "p": "TX"}, 'Send `p` as one of "ON", "QC".'),
        (
            {"properties": {"n": {"type": "integer", "allOf": [{"minimum": 1}, {"minimum": 10}]}}},
            {"n": "x"},
            "an integer.",
        ),
        ({"properties": {"n": {"allOf": [{"enum": ["a", "b"]}, {"enum": ["b"]}]}}}, {"n": "x"}, 'one of "a", "b".'),
        ({"properties": {"n": {"allOf": [{"type": "string"}, {"minLength": 3}]}}}, {"n": 5}, "a text of at least 3"),
        ({"allOf": [{"properties": {"n": LOW}}, {"required": ["n"]}]}, {}, "Add `n`: an integer of at most 10."),
        ({"properties": {"n": PAIR}}, {"n": ["x"]}, "Send `n` as a list of a text, then an integer."),
        ({"properties": {"n": {**PAIR, "prefixItems": [LOW] * 6, "minItems": 6}}}, {"n": []}, "at most 10, and more."),
        ({"properties": {"n": PAIR}}, {"n": ["x", 1, 2]}, "Leave `n[2]` out."),
        ({"patternProperties": {"^x_": LOW}, "additionalProperties": False}, {"y": 1}, "Fields: names that fit ^x_."),
        ({"propertyNames": {"enum": ["north", "south"]}}, {"North": 1}, 'one of "north", "south".'),
        ({"properties": {"a": False, "b": LOW, "c": True}}, {"a": 1}, "Fields: `b`, `c`."),
        (PAID, {"by": "card", "iban": "x", "bic": "y"}, "Fields: `by`, `number`."),
        ({**PROVINCE, "else": {"properties": {"p": False}}}, {"country": "US", "p": "TX"}, "Fields: `country`."),
        ({"properties": {"b": LOW}, "minProperties": 1}, {}, "at least 1 properties, such as `b`."),
        ({"minProperties": 1}, {}, "`arguments` has to be at least 1 properties."),
        ({"not": {"required": ["key"]}}, {"key": 1}, "Leave `key` out."),
        ({"not": {"required": ["key", "id"]}}, {"key": 1, "id": 1}, "does not fit"),
        ({"properties": {"n": {"not": {"const": 1}}}}, {"n": 1}, "does not fit"),
    ],
)
def test_a_hint_is_about_the_branch_that_failed(node, value, said):
    """The hint says what the refusing branch expects, and nothing of other branches."""
    assert said in check_value(value, compile_schema(node))[0].hint


def test_a_subschema_that_is_not_of_the_place_chooses_nothing():
    """For a foreign subschema all branches of the place count."""
    schema = compile_schema({"properties": {"n": OPERATION}})
    assert facts_of_branch(schema, ("n",), {}) == facts_at(schema, ("n",))


def test_clarification_stays_short():
    """Hundreds of required fields give one question under 600 characters that says how many are left out."""
    fields = [f"field{i}" for i in range(300)]
    text = clarification_question(compile_schema({"properties": {key: {} for key in fields}, "required": fields}))
    assert len(text) < 600
    assert "more" in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=15,
)


@given(JSON | st.fixed_dictionaries({"user": st.text(), "amount": JSON, "tags": JSON, "box": JSON}))
def test_law_findings_say_whether_it_is_valid(value):
    """There are findings exactly if the validator refuses, all with known codes, short hints, JSON data."""
    found = check_value(value, SCHEMA)
    assert bool(found) != SCHEMA.accepts(value)
    for finding in found:
        assert finding.code in FINDING_CODES
        assert len(finding.hint) < 600
        json.dumps(dict(finding.data))


def test_places_are_remembered_within_bounds():
    """Hints are the same with and without the cache, and invented names do not fill it."""
    schema = compile_schema({"properties": {"a": {"enum": [1, 2]}}, "additionalProperties": {"type": "integer"}})
    first = check_value({"a": 3}, schema)
    assert check_value({"a": 3}, schema) == first
    for number in range(1_000):
        check_value({f"x{number}": "no", "y" * 10_000: "no"}, schema)
    assert check_value({"a": 3}, schema) == first
    assert len(schema.places) <= 500
    assert all(len(step) < 200 for _, path in schema.places for step in path)


def test_a_wrong_tag_names_the_choices_of_all_variants():
    """A tag that no variant has is answered with the tags of all; what one variant lacks is said with its doubt."""
    variants = [
        {"type": "object", "properties": {"k": {"const": k}, n: {"type": "number"}}, "required": ["k", n]}
        for k, n in (("circle", "r"), ("rect", "w"), ("rect", "h"))
    ]
    schema = compile_schema({"properties": {"s": {"oneOf": variants}}})
    tag, missing = check_value({"s": {"k": "tri"}}, schema)
    assert tag.hint == 'Send `s.k` as one of "circle", "rect".'
    assert (missing.at, missing.hint.endswith("Or fit another variant that is allowed there.")) == ("/s/r", True)


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"file_path": "/x"}, "`file_path` is no field here: if you meant `path`"),
        ({"a": 1, "b": 2}, "`a`, `b` are no fields here"),
        ({"mode": "r"}, None),
        (dict.fromkeys("abcd", 1), None),
    ],
)
def test_a_missing_field_names_what_was_sent_in_its_place(sent, words):
    """Few unknown names beside a missing field are named, in an open schema too; declared ones are not."""
    schema = compile_schema({"properties": {"path": {"type": "string"}, "mode": {}}, "required": ["path"]})
    (finding,) = check_value(sent, schema)
    assert finding.code == "missing_field"
    assert words in finding.hint if words else "here" not in finding.hint
