"""A set of hashes answers as a set of values does, and stays small."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.hash_set import HashSet


@given(st.lists(st.text(max_size=3)), st.text(max_size=3))
def test_it_answers_as_a_set_does(values, other):
    """What was added is in it, once, and nothing else is."""
    known = HashSet(values)
    assert all(value in known for value in values)
    assert ((other in known), len(known)) == (other in values, len(set(values)))
    known.clear()
    assert (other in known, len(known)) == (False, 0)


def test_very_many_values_take_eight_bytes_each():
    """Most of them are sorted in, and each of them is found."""
    known = HashSet(range(20_000))
    known.add(7)
    assert len(known) == 20_000
    assert all(number in known for number in range(20_000))
    assert not any(number in known for number in range(20_000, 21_000))
    assert sys.getsizeof(known._sorted) <= 20_000 * 9
