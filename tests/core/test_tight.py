"""JSON texts in memory of their own size."""

import tracemalloc

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.json.dump import dump_exact_size

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


def test_what_orjson_does_not_know_goes_through_the_default():
    """The default is asked, and without one it is a TypeError."""
    assert dump_exact_size({"a": {1}}, default=sorted) == b'{"a":[1]}'
    with pytest.raises(TypeError):
        dump_exact_size({1})


@pytest.mark.parametrize("size", [0, 10, 600, 5_000, 100_000])
def test_a_text_takes_little_more_memory_than_it_has_bytes(size):
    """A hundred texts that are kept take their length and a bytes object's head each."""
    value = "x" * size
    tracemalloc.start()
    try:
        kept = [dump_exact_size(value) for _ in range(100)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / len(kept) < len(kept[0]) + 100
