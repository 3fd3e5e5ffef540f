"""Texts that lack one sign: read only if one place for it fits the schema."""

import time

import pytest
from argument_cases import AB, FLAT

from pokayoke.core.intake import read_arguments


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1, b": "x"}', AB),
        ('{"a": 1, "b": x"}', AB),
        ('{"a": 1, "b": "x}', None),
        ('{"a": 1 "b": "x"}', AB),
        ('{"a" 1, "b": "x"}', AB),
        ('{"a": 1, "b: "x"}', AB),
        ('{"a": 1, "b": 2"}', {"a": 1, "b": "2"}),
        ('{"a": 1, b: 2"}', None),
        ('{"a": 1, "b: \n"x"}', AB),
        ('{"a": 1, "b": "x, "y"}', None),
        ('{"a": 1, "b": \'x"}', None),
        ('{"a": 1, "b": `x"}', None),
        ('{"a": 1, "b": (x"}', None),
        ('{"a": 1, "b": ;x"}', None),
        ('{"a": 1, "b": \\"x"}', None),
        ('{"b": "x\\", "a": 1}', None),
        ('{"b": "x{, "a": 1}', None),
        ('{"b": "(x), "a": 1}', {"a": 1, "b": "(x)"}),
        ('{"a": 1, "b": (x)"}', {"a": 1, "b": "(x)"}),
    ],
)
def test_a_reading_one_sign_away_is_edited_only_if_there_is_one(text, value):
    """Exactly one insertion that parses and fits the schema gives an edited reading, with the reason beside it."""
    reading = read_arguments(text, schema=FLAT)
    if value is None:
        assert reading.grade in ("ambiguous", "lossy")
        assert reading.value is None
    else:
        assert (reading.grade, reading.value, reading.repairs) == ("edited", value, ("inserted_sign",))
        assert reading.reason == "edit_suggested"
    assert read_arguments(text).value is None


def test_two_insertions_that_fit_are_both_told():
    """Where two insertions fit, the text is refused and the values it may mean are given."""
    schema = {"properties": {"a": {"type": "array", "items": {"type": "integer"}}}}
    reading = read_arguments('{"a": [1 234 5]}', schema=schema)
    assert reading.value is None
    reading = read_arguments('{"a": [1, [2, 3}', schema={"type": "object"})
    assert (reading.value, reading.grade) == (None, "lossy")
    reading = read_arguments('{"a": [[1, 2, [3]]}', schema={"type": "object"})
    assert reading.value is None
    assert len(reading.readings) == 2
    assert reading.reason == "mismatched_closer"


def test_the_second_stage_gives_up_on_long_texts():
    """Trying insertions is bounded: a long text is refused with its first reason instead."""
    members = ", ".join(f'"k{index}": "v"' for index in range(3000))
    reading = read_arguments("{" + members + ', "a" 1}', schema={"type": "object"}, max_chars=10**6)
    assert reading.reason == "missing_colon"


LISTED = {
    "type": "object",
    "properties": {"l": {"type": "array", "items": {}}, "s": {"type": "string"}, "o": {"type": "object"}},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "text",
    [
        '{"s": "x," "l": [1]}',
        '{"l": ["x]", "s": "y"}',
        '{"l": "[x"], "s": "y"}',
        '{"o": {"x:" "y"}}',
        '{"l": [1, 2 1]}',
        '{"l": [1, 2\n1]}',
    ],
)
def test_a_sign_that_is_there_already_is_not_inserted(text):
    """It stands on the wrong side of a quote, or the digits may be one number: another reading than the insertion."""
    reading = read_arguments(text, schema=LISTED)
    assert (reading.grade in ("ambiguous", "lossy"), reading.value) == (True, None)


@pytest.mark.parametrize("text", ['{"a":"' + "\n" * 60_000 + '\n{"a":"x"}', "{" + "\x0b" * 60_000 + '\n{"a":"x"}'])
def test_a_lost_sign_is_looked_for_in_white_space_only_once(text):
    """However long a run of white space is, it does not count for each place in it."""
    begun = time.thread_time()
    read_arguments(text, schema=FLAT)
    assert time.thread_time() - begun < 2


def test_an_inserted_sign_makes_up_no_name():
    """A name that the schema does not know may be what is left of more than one sign."""
    open_schema = {"type": "object", "properties": {"path": {}, "to_address": {}}}
    assert read_arguments('{ess":981}', schema=open_schema).value is None
    assert read_arguments('{path":981}', schema=open_schema).value == {"path": 981}
    assert read_arguments('{ess":981}', schema={"type": "object"}).value == {"ess": 981}
