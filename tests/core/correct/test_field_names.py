"""Field names: spellings and typos that are one known name, and those left alone."""

import time

import pytest
from correction_samples import (
    FIELDS,
    INTEGER,
    ITEM,
    READ,
    STRING,
    WRITE,
    contract,
    one,
)

from pokayoke.core.correct.correct import correct_arguments
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.output.model_text import refusal_text


@pytest.mark.parametrize(
    ("sent", "meant", "kind"),
    [
        ({"userId": "u"}, {"user_id": "u"}, "equivalent"),
        ({"USER-ID": "u"}, {"user_id": "u"}, "equivalent"),
        ({"user_id": "u", "Amount": "2"}, {"user_id": "u", "amount": 2}, "equivalent"),
        ({"user_id": "u", "ammount": 2}, {"user_id": "u", "amount": 2}, "likely"),
        ({"user_id": "u", "am_ount_": 2}, {"user_id": "u", "amount": 2}, "equivalent"),
        ({"user_id": "u", "am_mount": 2}, {"user_id": "u", "amount": 2}, "likely"),
        ({"user_id": "u", "amuont": "2"}, {"user_id": "u", "amount": 2}, "likely"),
    ],
)
def test_field_names(sent, meant, kind):
    """Case and separators of a name have no meaning; one slip in a long word is a likely typo."""
    prepared = correct_arguments(sent, contract(FIELDS), kinds=READ)
    assert prepared.value == meant
    assert (prepared.corrections[0].rule, prepared.corrections[0].kind) == ("field_name", kind)
    allowed = correct_arguments(sent, contract(FIELDS), kinds=WRITE)
    assert bool(allowed.findings) == (kind == "likely")
    if kind == "likely":
        assert "Did you mean `amount`?" in allowed.findings[0].hint
        text = refusal_text(allowed.findings, tool="pay")
        assert (text.count("Did you mean"), "Add `amount`" in text) == (1, False)


@pytest.mark.parametrize(
    "sent",
    [
        {"user_id": "u", "amnt": 2},
        {"user_id": "u", "mni_prcie": 2},
        {"user_id": "u", "amount": 1, "ammount": 2},
        {"user_id": "u", "ammount": 2, "amuont": 3},
        {"user_id": "u", "ammount": 2, "note": 3},
        {"user_id": "u", "mix_price": 2},
        {"user_id": "u", "mim_price": 2, "max_price": 3},
        {"user_id": "u", "linel": "x"},
        {"user_id": "u", "line3": "x"},
        {"user_id": "u", "lne1": "x"},
        {"user_id": "u", "ammount": "a lot"},
        {"user_id": "u", "": 1},
        {"user_id": "u", "数量": 1},
        {"user_id": "u", "a" * 100: 1},
        {"userid": "u", "user-id": "v"},
        {"user_id": "u", "userId": "v"},
        {"user_id": "u", "pricemin": 1},
    ],
)
def test_field_names_left_alone(sent):
    """Short words, rivals, antonyms, numbered fields, present fields and misfits are never renamed."""
    assert correct_arguments(sent, contract(FIELDS), kinds=READ).findings


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        ("amount_€", "amount_$"),
        ("开始date", "结束date"),
        ("цена1", "вес1"),
        ("vote+", "vote-"),
        ("购买数量值", "购买重量值"),
        ("ascending", "descending"),
        ("inclusive", "exclusive"),
        ("encrypted", "decrypted"),
        ("include_available", "include_unavailable"),
        ("published", "unpublished"),
        ("increment", "decrement"),
        ("latitude", "altitude"),
        ("from", "form"),
        ("size", "sise"),
        ("customer_address", "custmer_adress"),
        ("employer_id", "employee_id"),
        ("interviewer", "interviewee"),
        ("cell_1_11", "cell_11_1"),
        ("v10", "v1.0"),
        ("status", "-status"),
        ("status", "status-"),
    ],
)
def test_another_name_is_not_another_spelling(field, sent):
    """Signs outside ASCII, a minus sign and separators between digits belong to a name."""
    schema = {"type": "object", "properties": {field: INTEGER}, "additionalProperties": False}
    assert correct_arguments({sent: 1}, contract(schema), kinds=READ).findings


def test_dashes_and_digits_of_another_spelling_are_the_same_name():
    """Dashes of a command line, and a separator between a word and digits, have no meaning."""
    schema = {"type": "object", "properties": {"dry_run": INTEGER, "line1": INTEGER}, "additionalProperties": False}
    prepared = correct_arguments({"--dry-run": 1, "line_1": 2}, contract(schema), kinds=WRITE)
    assert prepared.value == {"dry_run": 1, "line1": 2}


def test_a_name_in_quotes_is_the_same_name():
    """Quotes, dots and slashes around the words of a name have no meaning."""
    for sent in ('"user_id"', "user.id", "user/id", "`userId`", "user:id"):
        assert correct_arguments({sent: "u"}, contract(FIELDS), kinds=WRITE).value == {"user_id": "u"}


@pytest.mark.timeout(30)
def test_very_many_unknown_names_are_not_compared():
    """The work for thousands of unknown names is bounded (the limit only catches a hang)."""
    sent = {f"user_idx{n}": 1 for n in range(20_000)}
    assert correct_arguments(sent, contract(FIELDS), kinds=READ).findings


def test_numbered_fields_are_not_typos():
    """`street2` is not a slip for `street1`, also where it is the only field near."""
    schema = {"type": "object", "properties": {"street1": STRING}, "additionalProperties": False}
    assert correct_arguments({"street2": "x"}, contract(schema), kinds=READ).findings


def test_two_typos_of_one_field():
    """Two names that may mean one field are left alone, in an open object too."""
    schema = {"type": "object", "properties": {"amount": INTEGER}, "required": ["amount"]}
    assert correct_arguments({"ammount": 2}, contract(schema), kinds=READ).value == {"amount": 2}
    for sent in ({"ammount": 2, "amuont": 3}, {"Amount": 2, "ammount": 3}):
        assert correct_arguments(sent, contract(schema), kinds=READ).findings


def test_names_are_matched_per_object():
    """A name that means a field in one item of a list means nothing in an item that has the field."""
    rows = one({"type": "array", "items": ITEM})
    assert correct_arguments({"v": [{"N": 1}, {"n_": 2}]}, rows, kinds=WRITE).value == {"v": [{"n": 1}, {"n": 2}]}
    for first in ({"N": 1}, {"n": 1}):
        assert correct_arguments({"v": [first, {"N": 2, "n": 3}]}, rows, kinds=READ).findings


def test_a_renamed_value_that_fits_is_as_it_was():
    """A value that fits under its right name is not changed."""
    made = contract({"properties": {"user_name": {"type": ["string", "integer"]}}, "additionalProperties": False})
    assert correct_arguments({"userName": "5"}, made, kinds=WRITE).value == {"user_name": "5"}


def test_two_fields_of_one_spelling():
    """A schema with two fields that differ in case only leaves a third spelling to the model."""
    schema = {"type": "object", "properties": {"ID": STRING, "id": STRING}, "additionalProperties": False}
    assert correct_arguments({"Id": "x"}, contract(schema), kinds=READ).findings


def test_long_words_may_slip_twice():
    """A word of nine letters or more is recognised with two slips."""
    schema = {"type": "object", "properties": {"destination": STRING}, "required": ["destination"]}
    assert correct_arguments({"destnatoin": "x"}, contract(schema), kinds=READ).value == {"destination": "x"}


OPEN = {
    "type": "object",
    "properties": {
        "path": STRING,
        "dry_run": {"type": "boolean"},
        "recursive": {"type": "boolean"},
        "rows": {"type": "array", "items": {"type": "object", "properties": {"style_id": INTEGER}}},
    },
    "required": ["path"],
}


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ({"path": "/srv", "dryRun": True}, {"path": "/srv", "dry_run": True}),
        ({"path": "/srv", "DRY-RUN": "true"}, {"path": "/srv", "dry_run": True}),
        ({"Path": "/srv", "extra": 1}, {"path": "/srv", "extra": 1}),
        (
            {"path": "/srv", "rows": [{}, {"styleId": 1, "other": 2}]},
            {"path": "/srv", "rows": [{}, {"style_id": 1, "other": 2}]},
        ),
    ],
)
def test_another_spelling_counts_in_an_open_schema(sent, meant, written):
    """A declared field that is absent gets its own name back, at every depth; other names stay what they are."""
    dumped = dump_compact(sent, sort=True) if written else None
    prepared = correct_arguments(sent, contract(OPEN), kinds=WRITE, canonical=dumped)
    assert prepared.findings == ()
    assert prepared.value == meant
    assert prepared.corrections[-1].rule in ("field_name", "boolean_from_text")
    assert {change.kind for change in prepared.corrections} == {"equivalent"}
    assert correct_arguments(prepared.value, contract(OPEN), kinds=WRITE).changed is False


@pytest.mark.parametrize(
    ("sent", "at"),
    [
        ({"path": "/srv", "recusive": True}, "/recusive"),
        ({"path": "/srv", "dryRun": "maybe"}, "/dryRun"),
        ({"path": "/srv", "dry_run": True, "dryRun": False}, "/dryRun"),
        ({"path": "/srv", "rows": [{"stlye_id": 1}]}, "/rows/0/stlye_id"),
    ],
)
@pytest.mark.parametrize("kinds", [READ, WRITE])
def test_a_near_miss_in_an_open_schema_is_a_finding(sent, at, kinds):
    """A typo, a spelling whose value does not fit, and a second spelling never run as one field more."""
    prepared = correct_arguments(sent, contract(OPEN), kinds=kinds)
    assert [(finding.code, finding.at) for finding in prepared.findings] == [("unknown_field", at)]
    assert prepared.value == sent


def test_a_near_miss_says_what_was_meant():
    """The hint names the one declared field."""
    prepared = correct_arguments({"path": "/srv", "recusive": True}, contract(OPEN), kinds=READ)
    assert "Did you mean `recursive`?" in prepared.findings[0].hint


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        (OPEN, {"path": "/srv", "note": "x", "-path": 1, "run": 1}),
        ({"type": "object"}, {"dryRun": 1, "dry_run": 2}),
        ({**OPEN, "patternProperties": {"^dry": {}}}, {"path": "/srv", "dryRun": 1}),
        ({**OPEN, "additionalProperties": STRING}, {"path": "/srv", "recusive": "x"}),
        ({"anyOf": [OPEN, {"properties": {"dryRun": INTEGER}}]}, {"path": "/srv", "dryRun": 1}),
        (OPEN, {"path": "/srv", **{f"recusive{number}": 1 for number in range(70)}}),
    ],
)
def test_other_names_in_an_open_schema_stay(schema, sent):
    """What is far from every field, what a pattern or a branch declares, and the names of a map are the model's own."""
    prepared = correct_arguments(sent, contract(schema), kinds=READ)
    assert prepared.findings == ()
    assert prepared.value == sent


def test_a_map_takes_another_spelling_too():
    """Beside names with a schema of their own, another spelling of a declared field is that field."""
    tool = contract({"type": "object", "properties": {"Content-Type": STRING}, "additionalProperties": STRING})
    assert correct_arguments({"content_type": "a/b", "X-Id": "1"}, tool, kinds=WRITE).value == {
        "Content-Type": "a/b",
        "X-Id": "1",
    }


def test_very_many_open_objects_end_in_time():
    """Thousands of objects with a typo each are findings after a moment."""
    rows = one({"type": "array", "items": {"type": "object", "properties": {"style_id": INTEGER}}})
    began = time.process_time()
    assert correct_arguments({"v": [{"stlye_id": 1}] * 8_000}, rows, kinds=READ).findings
    assert correct_arguments({"v": [{"styleId": 1}] * 100}, rows, kinds=READ).findings == ()
    assert time.process_time() - began < 6
