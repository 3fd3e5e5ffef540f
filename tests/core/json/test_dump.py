"""Dumps: compact JSON bytes in memory of their own size."""

import json
import tracemalloc

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.json.dump import dump_compact, dump_exact_size

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON, st.booleans())
def test_the_text_is_what_orjson_writes(value, sort):
    """Nothing is added, and nothing is missing."""
    option = orjson.OPT_SORT_KEYS if sort else 0
    assert dump_exact_size(value, option) == orjson.dumps(value, option=option)


def test_unknown_values_go_through_the_default():
    """The default converts unknown values; without one they raise a TypeError."""
    assert dump_exact_size({"a": {1}}, default=sorted) == b'{"a":[1]}'
    with pytest.raises(TypeError):
        dump_exact_size({1})


@pytest.mark.parametrize("size", [0, 10, 600, 5_000, 100_000])
def test_a_text_takes_little_more_memory_than_it_has_bytes(size):
    """A hundred dumps take their length and the header of a bytes object each."""
    value = "x" * size
    tracemalloc.start()
    try:
        kept = [dump_exact_size(value) for _ in range(100)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / len(kept) < len(kept[0]) + 100


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(ANY_JSON)
def test_the_compact_dump_is_that_of_the_fast_encoder(value):
    """If orjson can dump a value, the dump is its; otherwise the dump is still the same value."""
    try:
        expected = orjson.dumps(value)
    except TypeError:
        assert json.loads(dump_compact(value)) == value
    else:
        assert dump_compact(value) == expected


def test_a_sorted_dump_keeps_integers_of_any_size():
    """Keys are sorted and integers beyond 64 bits keep their digits."""
    assert json.loads(dump_compact({"b": 2**80, "a": 1}, sort=True)) == {"a": 1, "b": 2**80}
    assert dump_compact({"b": 2**80, "a": 1}, sort=True).startswith(b'{"a"')
