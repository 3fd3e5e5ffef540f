"""What intake tells others: the sentence for the model, cut messages, and values already parsed."""

import datetime as dt
import decimal
import enum
import math
import types
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.intake import (
    CODES,
    REFUSALS,
    REPAIRS,
    Reading,
    copy_arguments,
    is_cut,
    read_arguments,
    reading_finding,
)
from pokayoke.core.json import strict
from pokayoke.errors import UsageError

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a", "b"]}


@pytest.mark.parametrize("reason", sorted(REFUSALS))
def test_every_refusal_becomes_one_short_sentence(reason):
    """For each reason the finding carries its code, place and meaning, and a hint below 600 characters."""
    grade, meaning = REFUSALS[reason]
    reading = Reading(grade=grade, reason=reason, position=7)
    finding = reading_finding(reading, effect="write", tool="pay")
    assert (finding.code, finding.at, finding.blame) == (reason, "", "model")
    assert CODES[reason] == meaning
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
    """Repairs and refusals have a meaning each, and codes of both rooms agree where they share a name."""
    assert all(REPAIRS.values())
    assert {grade for grade, _ in REFUSALS.values()} == {"edited", "ambiguous", "lossy"}
    assert REFUSALS.keys() & strict.CODES.keys() == {
        "control_character",
        "duplicate_key",
        "invalid_utf8",
        "lone_surrogate",
        "not_finite",
        "number_too_long",
        "too_deep",
        "too_long",
    }


@pytest.mark.parametrize(
    ("reason", "cut"),
    [
        ("length", True),
        ("LENGTH", True),
        (" max_tokens ", True),
        ("FinishReason.MAX_TOKENS", True),
        ("max-tokens", True),
        ("max tokens", True),
        ("max_output_tokens", True),
        ("model_length", True),
        ("model_context_window_exceeded", True),
        ("incomplete", True),
        ("content_filter", True),
        ("FinishReason.SAFETY", True),
        ("RECITATION", True),
        ("guardrail_intervened", True),
        ("MALFORMED_FUNCTION_CALL", True),
        ("ERROR_LIMIT", True),
        ("insufficient_system_resource", True),
        ("network_error", True),
        ("sensitive", True),
        ("NOT_FINISHED", True),
        ("FinishReason.LANGUAGE", True),
        ("stop", False),
        ("tool_calls", False),
        ("end_turn", False),
        ("tool_use", False),
        ("completed", False),
        ("lengthy", False),
        ("", False),
        (None, False),
        (enum.Enum("FinishReason", ["MAX_TOKENS"]).MAX_TOKENS, True),
        (enum.IntEnum("FinishReason", ["STOP", "MAX_TOKENS"]).MAX_TOKENS, True),
        (enum.Enum("FinishReason", {"CUT": "length"}, type=str).CUT, True),
        (enum.Enum("FinishReason", ["STOP"]).STOP, False),
        (2, False),
        ("maxTokens", True),
        ("Max_Tokens", True),
        ("Max Output Tokens", True),
        ("FINISH_REASON_MAX_TOKENS", True),
        ("STOP_REASON_STOP", False),
        (b"length", True),
        ({"reason": "max_output_tokens"}, True),
        ({"type": "max_tokens"}, True),
        ({"type": "tool_use"}, False),
        (types.SimpleNamespace(reason="max_output_tokens"), True),
    ],
)
def test_cut_messages_are_known_in_every_spelling(reason, cut):
    """Reasons that prove a cut are told from all others, whatever the provider's spelling."""
    assert is_cut(reason) is cut


# ------------------------------------------------------------------ values already parsed


class Colour(enum.Enum):
    RED = 1


class Text(str):
    __slots__ = ()


class Table(dict):
    pass


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"a": float("nan")}, "not_json"),
        ({"a": float("inf")}, "not_json"),
        ({"a": [1, (2, 3)]}, "not_json"),
        ({1: "a"}, "not_json"),
        ({None: "a"}, "not_json"),
        ({"a": b"x"}, "not_json"),
        ({"a": {1, 2}}, "not_json"),
        ({"a": object()}, "not_json"),
        ({"a": dt.date(2026, 1, 1)}, "not_json"),
        ({"a": uuid.UUID(int=1)}, "not_json"),
        ({"a": decimal.Decimal("1.5")}, "not_json"),
        ({"a": 2**70, "b": decimal.Decimal("1.5")}, "not_json"),
        ({"a": 2**70, "b": dt.date(2026, 1, 1)}, "not_json"),
        ({"a": 10**5000}, "not_json"),
        ({"a": Colour.RED}, "not_json"),
        ({"a": Text("x")}, "not_json"),
        (Table(a=1), "not_json"),
        ({"a": "\ud800"}, "not_json"),
        ({"a": len}, "not_json"),
        ([1], "not_an_object"),
        ("x", "not_an_object"),
        (None, "not_an_object"),
        ({"a": "x" * 300_000}, "too_long"),
        ({"a": "é" * 199_993}, "too_long"),
    ],
)
def test_only_plain_json_passes_as_parsed_arguments(value, reason):
    """What would change, fail or surprise on its way through JSON is refused."""
    assert (copy_arguments(value).grade, copy_arguments(value).reason) == ("lossy", reason)


def test_cycles_and_depth_without_end_are_refused():
    """A value that contains itself, or nests thousands of levels, ends in a refusal."""
    cycle: dict = {}
    cycle["a"] = [cycle, cycle]
    deep: dict = {}
    pairs: tuple = ()
    for _ in range(100_000):
        deep, pairs = {"a": deep}, (pairs,)
    turn: list = []
    turn.append((turn,))
    assert copy_arguments(cycle).reason == copy_arguments({"a": turn}).reason == "not_json"
    assert copy_arguments({"a": math.nan, "b": pairs}).reason == "not_json"
    assert copy_arguments(deep).reason == copy_arguments({"a": pairs}).reason == "too_deep"


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(10**30), 10**30)
            | st.text()
            | st.floats(allow_nan=False, allow_infinity=False),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
            max_leaves=10,
        ),
    )
)
def test_plain_arguments_are_exact_and_copied(value):
    """A plain value is graded exact, equal with its types, and shares no container with the one given."""
    reading = copy_arguments(value)
    assert reading.grade == "exact"
    assert (
        repr(reading.value) == repr(dict(sorted(value.items(), key=lambda item: item[0].encode())))
        or reading.value == value
    )
    assert reading.value is not value
    inner = [item for item in value.values() if isinstance(item, dict | list)]
    assert not {id(item) for item in inner} & {id(item) for item in (reading.value or {}).values()}


def test_the_size_of_parsed_arguments_is_counted_in_characters():
    """Text of many bytes and few characters passes up to the cap."""
    assert copy_arguments({"a": "é" * 100}, max_chars=110).grade == "exact"
    assert copy_arguments({"a": "é" * 100}, max_chars=105).reason == "too_long"


def test_a_cut_message_gives_no_parsed_arguments_either():
    """Arguments a client completed from a cut message are refused like its text."""
    assert read_arguments({"a": 1}, stop_reason="max_tokens").reason == "cut_message"
    assert read_arguments({"a": 1}, stop_reason="stop").grade == "exact"
