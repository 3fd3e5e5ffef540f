"""Short texts of values in problems: the beginning of their JSON, whatever they hold."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.schema.problems import short_json


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a" * 100, '"' + "a" * 58 + "…"),
        (list(range(1000)), None),
        ({str(i): i for i in range(1000)}, None),
        (10**30, "1" + "0" * 30),
        pytest.param(10**5000, "<int>", id="huge"),
        ("\ud800", "<str>"),
        ({1, 2}, '"<set>"'),
        ("é", '"é"'),
    ],
)
def test_a_value_is_shown_short_and_never_fails(value, text):
    """Any Python value becomes at most 60 characters, and nothing of a foreign object is printed."""
    shown = short_json(value)
    assert len(shown) <= 60
    assert text is None or shown == text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=70), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.integers(1, 90))
def test_the_beginning_of_the_compact_text_is_shown(value, limit):
    """The text is the cut text of the whole value, although most of a long one is not written."""
    whole = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert short_json(value, limit) == (whole if len(whole) <= limit else whole[: limit - 1] + "…")


def test_a_value_in_itself_is_shown_to_the_limit():
    """The text of a cyclic value ends at the limit."""
    cycle: dict = {}
    cycle["again"] = [cycle]
    assert short_json(cycle, 20) == '{"again":[{"again":…'
