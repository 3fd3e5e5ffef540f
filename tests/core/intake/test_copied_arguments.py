"""Arguments that a client has parsed: proven to be plain JSON, and copied."""

import datetime as dt
import decimal
import enum
import math
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.intake import (
    copy_arguments,
    read_arguments,
)


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
