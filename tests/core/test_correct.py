"""Corrections: the provable happens, the guessed is suggested, the rest is refused; laws over all of it."""

import copy
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.call import Correction
from pokayoke.core.contract.contract import Contract
from pokayoke.core.correct.correct import correct_arguments
from pokayoke.core.gate.confidence import call_confidence
from pokayoke.core.json.pointer import get_at
from pokayoke.core.json.values import equal_json
from pokayoke.core.schema.facts import facts_at

WRITE = ("equivalent", "declared")
READ = (*WRITE, "likely")


def contract(schema, **fields):
    return Contract.from_schema("book", schema, **fields)


def one(node, *, required=True, **fields):
    """A contract with one argument `v`."""
    return contract(
        {"type": "object", "properties": {"v": node}, "required": ["v"] * required, "additionalProperties": False},
        **fields,
    )


INTEGER, NUMBER, STRING, BOOLEAN = ({"type": name} for name in ("integer", "number", "string", "boolean"))
NUMBERS, STRINGS = {"type": "array", "items": NUMBER}, {"type": "array", "items": STRING}
ITEM = {"type": "object", "properties": {"n": INTEGER}, "required": ["n"], "additionalProperties": False}
DATE, MOMENT, EMAIL = ({"type": "string", "format": name} for name in ("date", "date-time", "email"))


@pytest.mark.parametrize("before", [0, 600])
def test_many_wrong_choices_out_of_very_many_are_judged_at_once(before):
    """64 values that are none of 90,000 choices take a moment, whatever other places were asked about before."""
    choices = [f"choice number {number}" for number in range(90_000)]
    long = one({"type": "object", "properties": {"n": NUMBERS, "c": {"type": "array", "items": {"enum": choices}}}})
    for number in range(before):
        facts_at(long.input, ("v", "n", str(number)))
    began = time.process_time()
    refused = correct_arguments({"v": {"c": [f"wrong {number}" for number in range(64)]}}, long, kinds=READ)
    assert time.process_time() - began < 4
    assert refused.findings
    assert correct_arguments({"v": {"c": [" CHOICE  number 7"]}}, long, kinds=READ).value["v"]["c"] == choices[7:8]


@pytest.mark.parametrize(
    ("node", "before", "after", "rule"),
    [
        (INTEGER, "2", 2, "number_from_text"),
        (INTEGER, " 2\n", 2, "number_from_text"),
        (INTEGER, "+2", 2, "number_from_text"),
        (INTEGER, "-12", -12, "number_from_text"),
        (INTEGER, "2.0", 2, "number_from_text"),
        (INTEGER, "9007199254740993", 9007199254740993, "number_from_text"),
        (NUMBER, "2.50", 2.5, "number_from_text"),
        (NUMBER, "1.525", 1.525, "number_from_text"),
        (NUMBER, "1e3", 1000.0, "number_from_text"),
        (NUMBER, "100.00", 100, "number_from_text"),
        (NUMBER, "12.50", 12.5, "number_from_text"),
        (BOOLEAN, "True", True, "boolean_from_text"),
        (BOOLEAN, " false", False, "boolean_from_text"),
        ({"type": ["integer", "null"]}, "null", None, "null_from_text"),
        (ITEM, '{"n": 1}', {"n": 1}, "value_from_json_text"),
        (NUMBERS, "[1, 2]", [1, 2], "value_from_json_text"),
        (STRINGS, "a", ["a"], "list_from_single_value"),
        (STRINGS, "mon-fri", ["mon-fri"], "list_from_single_value"),
        (NUMBERS, 5, [5], "list_from_single_value"),
        ({"type": "array"}, 5, [5], "list_from_single_value"),
        (NUMBERS, "5", [5], "list_from_single_value"),
        ({"type": "array", "items": BOOLEAN}, True, [True], "list_from_single_value"),
        ({"type": "array", "items": {"enum": ["New York", "a, b"]}}, "a, b", ["a, b"], "list_from_single_value"),
        ({"type": "array", "items": ITEM}, {"n": 1}, [{"n": 1}], "list_from_single_value"),
        (INTEGER, [3], 3, "value_from_single_item"),
        (INTEGER, ["3"], 3, "value_from_single_item"),
        ({"enum": ["CNY", "USD"]}, " cny ", "CNY", "choice_spelling"),
        ({"enum": ["in  stock", "gone"]}, "In Stock", "in  stock", "choice_spelling"),
        ({"enum": ["AA", "Aa"]}, " AA", "AA", "choice_spelling"),
        ({"enum": [1, 2, "auto"]}, "1", 1, "number_from_text"),
        ({"enum": ["in_progress", "done"]}, "In Progress", "in_progress", "choice_spelling"),
        ({"enum": ["in-progress", "inprogress"]}, "in_progress", "in-progress", "choice_spelling"),
        ({"enum": ["in progress", "in_progress"]}, "IN_PROGRESS", "in_progress", "choice_spelling"),
        ({"enum": ["open", "done"]}, '"Open"', "open", "choice_spelling"),
        ({"enum": ["UTC-5", "UTC"]}, "utc-5", "UTC-5", "choice_spelling"),
        ({"enum": ["phase-1", "phase-2"]}, "Phase 1", "phase-1", "choice_spelling"),
        ({"enum": ["1m", "1h"]}, " 1m ", "1m", "choice_spelling"),
        ({"enum": ["iOS", "Android"]}, "IOS", "iOS", "choice_spelling"),
        (INTEGER, '"5"', 5, "number_from_text"),
        (NUMBER, "'2.5'", 2.5, "number_from_text"),
        (BOOLEAN, '"true"', True, "boolean_from_text"),
        (DATE, '"2026/11/21"', "2026-11-21", "date_spelling"),
        ({"type": ["integer", "null"]}, "None", None, "null_from_text"),
        ({"type": ["array", "null"], "items": STRING}, "null", None, "null_from_text"),
        ({"type": "array", "items": {"enum": ["none", "all"]}}, "none", ["none"], "list_from_single_value"),
        ({"enum": ["kW", "MW"]}, "mw", "MW", "choice_spelling"),
        ({"enum": ["MX", "US"]}, "mx", "MX", "choice_spelling"),
        (STRINGS, "['a', 'b']", ["a", "b"], "value_from_json_text"),
        ({"type": "array"}, "[True, None, 'x']", [True, None, "x"], "value_from_json_text"),
        ({"type": "object"}, "{'a': 1}", {"a": 1}, "value_from_json_text"),
        (DATE, "2026/11/21", "2026-11-21", "date_spelling"),
        (DATE, "2026.1.5", "2026-01-05", "date_spelling"),
        (DATE, "20261121", "2026-11-21", "date_spelling"),
        (MOMENT, "2026-11-21 10:00:00Z", "2026-11-21T10:00:00Z", "date_spelling"),
        (MOMENT, "2026/11/21 10:00:00 +0100", "2026-11-21T10:00:00+01:00", "date_spelling"),
        (MOMENT, "2026-11-21 10:00:00.5-05:30", "2026-11-21T10:00:00.5-05:30", "date_spelling"),
        (EMAIL, " a@b.de ", "a@b.de", "surrounding_spaces"),
        ({"anyOf": [ITEM, {"type": "null"}]}, {"n": "1"}, {"n": 1}, "number_from_text"),
    ],
)
def test_equivalent(node, before, after, rule):
    """Another spelling of the same value is corrected, for writes too, and recorded."""
    given_value = {"v": before}
    prepared = correct_arguments(given_value, one(node), kinds=WRITE)
    assert prepared.findings == ()
    assert equal_json(prepared.value, {"v": after})
    assert prepared.changed
    last = prepared.corrections[-1]
    assert (last.rule, last.kind) == (rule, "equivalent")
    assert given_value == {"v": before}


@pytest.mark.parametrize(
    ("node", "value"),
    [
        *(
            (INTEGER, text)
            for text in ("2-3", "1.5", "1,234", "1.234", "1.000", "2.000", "1 234", "1_000", "1e3", "007")
        ),
        *((INTEGER, text) for text in ("0x10", "٢", "２", "2件", "two", "", " ", "--2", "2%", "½", "1e999", "9" * 61)),
        *((NUMBER, text) for text in ("1,5", "1.500", "NaN", "inf", "Infinity", "1e999", ".5", "5.", "1.2.3", "5 kg")),
        *((BOOLEAN, value) for value in ("yes", "1", "on", 1, 0, "t")),
        (INTEGER, True),
        (INTEGER, None),
        (INTEGER, [1, 2]),
        (INTEGER, []),
        (INTEGER, 1.5),
        (INTEGER, {"value": 1}),
        (STRING, 1.5),
        (STRING, True),
        (STRING, {"a": 1}),
        *(
            (STRINGS, text)
            for text in (
                "a, b",
                "a;b",
                "a|b",
                "a\nb",
                "a and b",
                "a/b",
                "a & b",
                "a - b",
                "a→b",
                "a->b",
                "",
                "[a]",
                "'a'",
                "1..5",
            )
        ),
        (NUMBERS, "1-2"),
        (NUMBERS, "[1, 2"),
        (NUMBERS, '{"a": 1}'),
        ({"type": "array", "items": {"type": "object"}}, {"n": 1}),
        ({"type": "array", "items": ITEM}, {"n": 1, "m": 2}),
        (ITEM, '{"n": 1, "n": 2}'),
        (ITEM, "{" + " " * 30_000 + '"n": 1}'),
        ({"enum": ["AA", "Aa"]}, "aa"),
        ({"enum": ["red", "green"]}, "rd"),
        ({"enum": ["red", "green"]}, ""),
        ({"enum": ["in-progress", "in_progress"]}, "in progress"),
        ({"enum": ["-1", "1-"]}, "1"),
        ({"enum": ["A", "A-"]}, "a_"),
        (INTEGER, '"5'),
        (INTEGER, "\"5'"),
        (INTEGER, '""5""'),
        (INTEGER, "\\5\\"),
        (INTEGER, '"5" "6"'),
        (INTEGER, '"1,234"'),
        (STRINGS, "['a', 'b'"),
        (STRINGS, "['a', 'b',]"),
        (STRINGS, "('a', 'b')"),
        (STRINGS, "['a', b]"),
        (STRINGS, "['it's']"),
        ({"type": "object"}, "{a: 1}"),
        (DATE, "03/04/2026"),
        (DATE, "2026-11-21T10:00:00Z"),
        (DATE, "2026/02/30"),
        (DATE, "21 November 2026"),
        (MOMENT, "2026-11-21"),
        (MOMENT, "2026-11-21 10:00:00"),
        (MOMENT, "2026/13/21 10:00:00Z"),
        ({"type": "integer", "minimum": 1}, "0"),
        ({"type": ["integer", "array"], "items": INTEGER}, "5"),
        ({"enum": [3, [3, 4]]}, [3]),
        *(({"type": ["integer", "null"]}, text) for text in ("NULL", "nil", "none", "-")),
        ({"type": "array", "items": {"type": ["integer", "null"]}}, None),
        ({"type": "array", "items": {"properties": {"n": INTEGER}, "additionalProperties": False}}, {}),
        (INTEGER, [[3]]),
        ({"type": "array", "items": NUMBERS}, 5),
        *(({"not": STRING}, text) for text in ("5", "true", "null", "[1]", '{"a": 1}')),
        ({"enum": ["UTC-5", "UTC", "UTC+5"]}, "UTC 5"),
        ({"enum": ["offset -1", "offset 0"]}, "offset 1"),
        ({"enum": ["1m", "5m", "1h"]}, "1M"),
        ({"enum": ["mW", "W", "kW"]}, "MW"),
        ({"enum": ["W", "kW", "MW"]}, "mW"),
        ({"enum": ["5 kPa", "5 MPa"]}, "5 mPa"),
        *((STRINGS, text) for text in ("null", "None", "none", "NIL", "undefined")),
        ({"enum": ["MB", "GB"]}, "Mb"),
        ({"enum": ["5MB", "5GB"]}, "5Mb"),
        (NUMBER, "12345678901234567.89"),
        (NUMBER, "1e-400"),
        *(({"type": "array", "items": NUMBERS}, value) for value in ([1, 2], ["1"], "[1, 5]", ["1", [2]])),
        ({"type": "array", "items": {"type": "array"}}, ["INV-7", 250, "EUR"]),
        ({"not": INTEGER}, 5),
        (INTEGER, "1000.000"),
        *(({"type": [name, "number"], "items": INTEGER}, "1.500") for name in ("object", "array")),
        *((STRINGS, text) for text in ("['a', 'b'] and c", "['a'] ['b']")),
        ({"type": ["string", "null"], "format": "date"}, "tomorrow"),
        ({"not": {"pattern": "^ "}}, " a"),
        ({"type": ["string", "integer"], "minLength": 5}, "12"),
        *(({"anyOf": [EMAIL, {"pattern": "^2026-"}]}, text) for text in ("2026/11/21", "2026/11/21 10:00:00Z")),
    ],
)
def test_refused(node, value):
    """What may mean something else, or nothing, is refused for every class, and comes back as it came; twice, too."""
    for given_value, schema in (({"v": value}, node), ({"v": [value, value]}, {"type": "array", "items": node})):
        for canonical in (None, json.dumps(given_value).encode()):
            prepared = correct_arguments(given_value, one(schema), kinds=READ, canonical=canonical)
            assert prepared.findings
            assert prepared.value is given_value
            assert prepared.corrections == ()
            assert not prepared.changed


def test_an_object_with_a_gap_is_no_item():
    """An object that lacks a field of an item is not called one: what is asked for is a list."""
    node = {"type": "array", "items": {"properties": {"n": INTEGER, "m": INTEGER}, "required": ["n", "m"]}}
    assert [finding.at for finding in correct_arguments({"v": {"n": 1}}, one(node), kinds=READ).findings] == ["/v"]


@pytest.mark.parametrize(
    ("node", "before", "after", "suggestion"),
    [(STRING, 12, "12", '"12"'), (STRINGS, "New York", ["New York"], '["New York"]'), (STRINGS, 7, ["7"], '["7"]')],
)
def test_likely(node, before, after, suggestion):
    """A guess runs for reads only; for writes it comes back as a hint that names field and value."""
    read = correct_arguments({"v": before}, one(node), kinds=READ)
    assert read.value == {"v": after}
    assert read.corrections[0].kind == "likely"
    write = correct_arguments({"v": before}, one(node), kinds=WRITE)
    assert f"Send `v` as {suggestion} if that is what you mean." in write.findings[0].hint
    assert write.findings[0].data["suggestion"] == after
    assert write.findings[0].data["class"] == "likely"


FIELDS = {
    "type": "object",
    "properties": {
        "user_id": STRING,
        "amount": INTEGER,
        "min_price": NUMBER,
        "max_price": NUMBER,
        "line1": STRING,
        "line2": STRING,
    },
    "required": ["user_id"],
    "additionalProperties": False,
}


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
    """Case and separators of a name carry no meaning; one slip in a long word is a likely typo."""
    prepared = correct_arguments(sent, contract(FIELDS), kinds=READ)
    assert prepared.value == meant
    assert (prepared.corrections[0].rule, prepared.corrections[0].kind) == ("field_name", kind)
    allowed = correct_arguments(sent, contract(FIELDS), kinds=WRITE)
    assert bool(allowed.findings) == (kind == "likely")
    if kind == "likely":
        assert "Did you mean `amount`?" in allowed.findings[0].hint


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
    """Signs outside ASCII, a minus sign and what stands between digits are part of a name; words differ by either end."""
    schema = {"type": "object", "properties": {field: INTEGER}, "additionalProperties": False}
    assert correct_arguments({sent: 1}, contract(schema), kinds=READ).findings


def test_dashes_and_digits_of_another_spelling_are_the_same_name():
    """A flag as a command line has it, and digits that are parted from a word, carry no meaning."""
    schema = {"type": "object", "properties": {"dry_run": INTEGER, "line1": INTEGER}, "additionalProperties": False}
    prepared = correct_arguments({"--dry-run": 1, "line_1": 2}, contract(schema), kinds=WRITE)
    assert prepared.value == {"dry_run": 1, "line1": 2}


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
def test_what_takes_very_many_steps_is_given_up(item, value):
    """Hundreds of corrections whose proofs are dear end in a moment, with what is wrong and with nothing changed."""
    long = one({"type": "array", "items": item})
    began = time.process_time()
    prepared = correct_arguments({"v": value}, long, kinds=READ)
    assert time.process_time() - began < 4
    assert prepared.findings
    assert prepared.value == {"v": value}


def test_a_name_in_quotes_is_the_same_name():
    """Quotes, dots and slashes around the words of a name carry no meaning."""
    for sent in ('"user_id"', "user.id", "user/id", "`userId`", "user:id"):
        assert correct_arguments({sent: "u"}, contract(FIELDS), kinds=WRITE).value == {"user_id": "u"}


@pytest.mark.timeout(30)
def test_very_many_unknown_names_are_not_compared():
    """Nobody means thousands of fields at once: the work stays bounded (the bound only catches a hang)."""
    sent = {f"user_idx{n}": 1 for n in range(20_000)}
    assert correct_arguments(sent, contract(FIELDS), kinds=READ).findings


def test_numbered_fields_are_not_typos():
    """`street2` is not a slip for `street1`, also where it is the only field near."""
    schema = {"type": "object", "properties": {"street1": STRING}, "additionalProperties": False}
    assert correct_arguments({"street2": "x"}, contract(schema), kinds=READ).findings


def test_two_typos_of_one_field():
    """In an open object, too, nobody chooses between two fields that may be meant."""
    schema = {"type": "object", "properties": {"amount": INTEGER}, "required": ["amount"]}
    assert correct_arguments({"ammount": 2}, contract(schema), kinds=READ).value == {"amount": 2}
    for sent in ({"ammount": 2, "amuont": 3}, {"Amount": 2, "ammount": 3}):
        assert correct_arguments(sent, contract(schema), kinds=READ).findings


def test_what_a_name_means_is_found_out_for_each_object():
    """A name that means a field in one item of a list means nothing in another that has the field."""
    rows = one({"type": "array", "items": ITEM})
    assert correct_arguments({"v": [{"N": 1}, {"n_": 2}]}, rows, kinds=WRITE).value == {"v": [{"n": 1}, {"n": 2}]}
    for first in ({"N": 1}, {"n": 1}):
        assert correct_arguments({"v": [first, {"N": 2, "n": 3}]}, rows, kinds=READ).findings


def test_a_renamed_value_that_fits_is_as_it_was():
    """What fits under its right name is not spelled in another way, too."""
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


def test_unknown_field_is_never_dropped():
    """A field the schema does not know is not thrown away to make the rest fit."""
    prepared = correct_arguments({"user_id": "u", "note": "urgent"}, contract(FIELDS), kinds=READ)
    assert [finding.code for finding in prepared.findings] == ["unknown_field"]


def test_missing_is_never_filled():
    """A required field is asked for, also where the schema has a default."""
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
    """An envelope that holds exactly the arguments is opened, and what is inside corrected."""
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
    """Anything beside the arguments, another tool's name, or a misfit inside keeps it closed."""
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
    """What is wrong with the whole and with a field are two findings, and nothing is exchanged between them."""
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
    """Two fields that would fit with each other's value are left alone: exchanged or misspelt, nobody knows."""
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
    """Whichever keyword speaks against a name, the loop ends with an answer."""
    made = contract({"type": "object", "properties": {"user_name": STRING}, **schema})
    assert correct_arguments({"user_nam_": "x", "long_name_": 1}, made, kinds=READ).value


def test_no_json_value():
    """Python values that are no JSON are a finding, not an exception, with and without a dump."""
    for canonical in (None, b"{}"):
        for odd in ({1, 2}, object()):
            found = correct_arguments({"v": odd}, one({}), kinds=READ, canonical=canonical).findings
            assert [finding.code for finding in found] == ["not_json"]


def test_placeholders_are_refused():
    """A placeholder is a finding also where it fits the schema, and hides a lesser finding at its place."""
    for canonical in (None, b'{"v":"<user_id>"}'):
        found = correct_arguments({"v": "<user_id>"}, one(STRING), kinds=READ, canonical=canonical).findings
        assert [finding.code for finding in found] == ["placeholder"]
    assert [finding.code for finding in correct_arguments({"v": "TODO"}, one(INTEGER), kinds=READ).findings] == [
        "placeholder"
    ]
    assert correct_arguments({"v": '["..."]'}, one(STRINGS), kinds=READ).findings[0].at == "/v/0"
    made = one(STRING, correctors={"v": lambda value: "<user_id>"})
    found = correct_arguments({"v": True}, made, kinds=WRITE, canonical=b'{"v":true}').findings
    assert [finding.code for finding in found] == ["placeholder"]


def test_valid_is_the_same_object():
    """A valid value passes as the very object it is, on every way in."""
    value = {"v": "a <b> c"}
    for canonical in (None, json.dumps(value).encode(), b'{"v":"$5"}'):
        prepared = correct_arguments(value, one(STRING), kinds=READ, canonical=canonical)
        assert prepared.value is value
        assert not prepared.changed


@pytest.mark.parametrize(
    ("repairs", "corrections", "given_value", "expected"),
    [
        ((), (), None, 1.0),
        (("a", "b"), (), None, 0.9),
        ((), [("/a", "r", "equivalent")], None, 0.9),
        ((), [("/a", "r", "likely")], None, 0.6),
        ((), [("/a", "r", "likely"), ("/b", "r", "likely")], None, 0.2),
        ((), [("/a/0", "r", "equivalent"), ("/a/1", "r", "equivalent"), ("/a/2", "r", "equivalent")], None, 0.9),
        (("x",) * 40, (), None, 0.0),
        ((), (), 0.7, 0.7),
        ((), [("/a", "r", "likely")], 0.7, 0.55),
        (("x",), (), 0.7, 0.65),
        ((), (), 7.0, 1.0),
        ((), (), -1.0, 0.0),
        ((), (), float("nan"), 0.0),
    ],
)
def test_confidence(repairs, corrections, given_value, expected):
    """The heuristic of the design; what the host gave is lowered by at most 0.15."""
    made = [Correction(at, rule, 1, 2, kind) for at, rule, kind in corrections]
    assert call_confidence(repairs, made, given_value) == expected


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
    """Touching nothing in place; valid or refused; twice is once; only allowed classes; all of it recorded."""
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
    """A required field that is absent stays absent whatever else is corrected."""
    prepared = correct_arguments({"price": "2", "ok": "true"}, LAWFUL, kinds=READ)
    assert [finding.at for finding in prepared.findings] == ["/count"]


def test_a_declared_field_is_no_envelope():
    """A field the schema declares is a value, even if it is called like an envelope and holds all arguments."""
    schema = {
        "type": "object",
        "properties": {"input": {"type": "string"}, "sku": {"type": "string"}},
        "required": ["sku"],
        "additionalProperties": False,
    }
    made = Contract.from_schema("t", schema, effect="read")
    prepared = correct_arguments({"input": {"sku": "S1"}}, made, kinds=("equivalent", "declared", "likely"))
    assert {(f.code, f.at) for f in prepared.findings} == {("missing_field", "/sku"), ("wrong_type", "/input")}


@pytest.mark.parametrize(("value", "path"), [({"a": 1}, ("a", "b")), ([1], ("x",)), ([1], ("5",)), ({}, ("a",))])
def test_a_path_that_leads_nowhere_is_a_lookup_error(value, path):
    """A step below a scalar, and a name or number that is not there, are errors and no value."""
    with pytest.raises(LookupError):
        get_at(value, path)


@pytest.mark.parametrize("mark", "،·‧；—«")
def test_marks_of_every_script_may_separate_items(mark):
    """A text with a mark that may stand between items is not one item, whatever script the mark is of."""
    contract = Contract.from_schema("tool", {"properties": {"l": {"type": "array", "items": {"type": "string"}}}})
    for text in (f"Milk{mark}Eggs", f"Milk{mark} Eggs"):
        assert correct_arguments({"l": text}, contract, kinds=("equivalent", "declared", "likely")).findings
    assert correct_arguments({"l": "L’Oréal"}, contract, kinds=("equivalent",)).value == {"l": ["L’Oréal"]}
