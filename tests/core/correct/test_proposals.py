"""Proposals: other spellings of one value, and what no rule touches."""

import json
import time

import pytest
from correction_samples import (
    BOOLEAN,
    DATE,
    EMAIL,
    INTEGER,
    ITEM,
    MOMENT,
    NUMBER,
    NUMBERS,
    READ,
    STRING,
    STRINGS,
    WRITE,
    one,
)

from pokayoke.core.contract.contract import Contract
from pokayoke.core.correct.correct import correct_arguments
from pokayoke.core.json.values import equal_json
from pokayoke.core.schema.facts import facts_at


@pytest.mark.parametrize("before", [0, 600])
def test_many_wrong_choices_out_of_very_many_take_a_moment(before):
    """64 values that are none of 90,000 choices take a moment, whatever was checked before."""
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
        *(
            (STRINGS, text, [text], "list_from_single_value")
            for text in ("/tmp/a.txt", "~/a.txt", "../a-b/c", "C:\\a\\b.txt", "https://x.example/a?b=c/d")
        ),
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
                "A b/C",
                "/a /b",
                "a & b",
                "",
                "[a]",
                "'a'",
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
    """An ambiguous value is refused in every class and returned unchanged, also the second time."""
    for given_value, schema in (({"v": value}, node), ({"v": [value, value]}, {"type": "array", "items": node})):
        for canonical in (None, json.dumps(given_value).encode()):
            prepared = correct_arguments(given_value, one(schema), kinds=READ, canonical=canonical)
            assert prepared.findings
            assert prepared.value is given_value
            assert prepared.corrections == ()
            assert not prepared.changed


def test_an_object_with_a_gap_is_no_item():
    """An object that lacks a field of an item is not wrapped: the finding expects a list."""
    node = {"type": "array", "items": {"properties": {"n": INTEGER, "m": INTEGER}, "required": ["n", "m"]}}
    assert [finding.at for finding in correct_arguments({"v": {"n": 1}}, one(node), kinds=READ).findings] == ["/v"]


@pytest.mark.parametrize(
    ("node", "before", "after", "suggestion"),
    [
        (STRING, 12, "12", '"12"'),
        (STRINGS, 7, ["7"], '["7"]'),
        *(
            (STRINGS, text, [text], f'["{text}"]')
            for text in ("New York", "a and b", "a/b", "a→b", "a->b", "1..5", "http://a/http://b")
        ),
    ],
)
def test_likely(node, before, after, suggestion):
    """A guess runs for reads only; for writes it becomes a hint that names field and value."""
    read = correct_arguments({"v": before}, one(node), kinds=READ)
    assert read.value == {"v": after}
    assert read.corrections[0].kind == "likely"
    write = correct_arguments({"v": before}, one(node), kinds=WRITE)
    assert f"Send `v` as {suggestion} if that is what you mean." in write.findings[0].hint
    assert write.findings[0].data["suggestion"] == after
    assert write.findings[0].data["class"] == "likely"


@pytest.mark.parametrize("mark", "،·‧；—«")
def test_marks_of_every_script_may_separate_items(mark):
    """A text with a mark that may separate items is not one item, in any script."""
    contract = Contract.from_schema("tool", {"properties": {"l": {"type": "array", "items": {"type": "string"}}}})
    for text in (f"Milk{mark}Eggs", f"Milk{mark} Eggs"):
        assert correct_arguments({"l": text}, contract, kinds=("equivalent", "declared", "likely")).findings
    assert correct_arguments({"l": "L’Oréal"}, contract, kinds=("equivalent",)).value == {"l": ["L’Oréal"]}


NOTHING = ["", " ", "null", "NULL", "None", "none", "nil", "undefined"]


@pytest.mark.parametrize("word", NOTHING)
@pytest.mark.parametrize(
    "node",
    [
        *(INTEGER, BOOLEAN, NUMBERS, STRINGS, DATE, {"type": "object"}, {"enum": ["a", "b"]}),
        *({"type": "string", "pattern": "^[0-9]+$"}, {"type": "string", "minLength": 12}),
    ],
)
def test_a_word_for_nothing_is_left_out(node, word):
    """An optional field that cannot hold such a word is left out for reads, and a write hears that it may be."""
    tool = one(node, required=False)
    read = correct_arguments({"v": word}, tool, kinds=READ)
    assert (read.value, read.findings) == ({}, ())
    assert [(change.rule, change.before, change.kind) for change in read.corrections] == [
        ("absent_from_null", word, "likely")
    ]
    write = correct_arguments({"v": word}, tool, kinds=WRITE)
    assert write.value == {"v": word}
    assert "Leave `v` out if it has no value." in write.findings[0].hint
    assert correct_arguments({"v": word}, one(node), kinds=READ).findings, "a required field is never dropped"


def test_a_word_that_means_something_stays():
    """A text, a choice and null keep the word, each in its own sense; inside a list nothing is dropped."""
    assert not correct_arguments({"v": "none"}, one(STRING, required=False), kinds=READ).changed
    assert correct_arguments({"v": "NONE"}, one({"enum": ["none"]}, required=False), kinds=WRITE).value == {"v": "none"}
    assert correct_arguments({"v": "null"}, one({"type": ["integer", "null"]}, required=False), kinds=WRITE).value == {
        "v": None
    }
    assert correct_arguments({"v": ["none"]}, one(NUMBERS, required=False), kinds=READ).findings
    nested = one({"type": "object", "properties": {"n": INTEGER}})
    assert correct_arguments({"v": {"n": "null"}}, nested, kinds=READ).value == {"v": {}}
