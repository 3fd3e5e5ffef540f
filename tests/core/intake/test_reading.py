"""The finding that returns a reading to the model."""

import pytest

from pokayoke.core.finding_codes import FINDING_CODES
from pokayoke.core.intake import (
    REFUSALS,
    REPAIRS,
    Reading,
    read_arguments,
    reading_finding,
)
from pokayoke.errors import UsageError

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a", "b"]}


@pytest.mark.parametrize("reason", sorted(REFUSALS))
def test_every_refusal_becomes_one_short_sentence(reason):
    """For each reason the finding carries its code, place and meaning, and a hint below 600 characters."""
    grade, meaning = REFUSALS[reason]
    reading = Reading(grade=grade, reason=reason, position=7)
    finding = reading_finding(reading, effect="write", tool="pay")
    assert (finding.code, finding.at, finding.blame) == (reason, "", "model")
    assert FINDING_CODES[reason].meaning == meaning
    assert meaning in finding.message
    assert "'pay'" in finding.message
    assert f"{meaning} at character 7" in finding.hint
    assert len(finding.hint) < 600
    assert finding.data == {"grade": grade, "position": 7, "repairs": []}
    assert " at character" not in reading_finding(Reading(grade=grade, reason=reason), effect="write", tool="pay").hint


def test_an_edited_reading_is_a_suggestion_to_a_write_and_runs_for_a_read():
    """A write gets the whole reading to confirm, as long as it is short; a read has nothing to be told."""
    reading = read_arguments('{"a": 1, "b": x"}', schema=SCHEMA)
    for effect in ("write", "destructive"):
        finding = reading_finding(reading, effect=effect, tool="pay")
        assert '{"a":1,"b":"x"}' in finding.hint
        assert finding.code == "edit_suggested"
    with pytest.raises(UsageError):
        reading_finding(reading, effect="read", tool="pay")
    long = read_arguments('{"a": 1, "b": ' + "x" * 500 + '"}', schema=SCHEMA)
    assert long.grade == "edited"
    assert len(reading_finding(long, effect="write", tool="pay").hint) < 600


@pytest.mark.parametrize("text", ['{"a": 1}', '{"a": 1,}'])
def test_a_reading_that_may_run_has_no_finding(text):
    """Asking for the refusal of a proven reading is the programmer's mistake."""
    with pytest.raises(UsageError):
        reading_finding(read_arguments(text), effect="write", tool="pay")


def test_a_tool_name_cannot_speak_to_the_model():
    """A name with control characters, or a very long one, is shortened and escaped in the sentence."""
    finding = reading_finding(read_arguments("x"), effect="read", tool="a\x1b[31m\n" + "b" * 500)
    assert "\x1b" not in finding.hint + finding.message
    assert "\n" not in finding.hint + finding.message
    assert len(finding.hint) < 600


def test_names_are_documented_once():
    """Repairs and refusals have a meaning each, and a refusal has a grade that may not run for a write."""
    assert all(REPAIRS.values())
    assert {grade for grade, _ in REFUSALS.values()} == {"edited", "ambiguous", "lossy"}
