"""Canonical bytes: one spelling per value."""

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.json.canonical import canonical_bytes, sha256_hex
from pokayoke.core.json.dump import dump_compact

SMALL = st.integers(min_value=-(2**53) + 1, max_value=2**53 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = st.none() | st.booleans() | SMALL | FLOATS | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4))


@given(VALUES)
def test_equals_rfc_8785_where_that_is_defined(value):
    """For values without large whole numbers the bytes are those of RFC 8785."""
    if _has_large_whole(value):
        return
    assert canonical_bytes(value) == rfc8785.dumps(value)


def _has_large_whole(value):
    if isinstance(value, dict):
        return any(map(_has_large_whole, value.values()))
    if isinstance(value, list):
        return any(map(_has_large_whole, value))
    return isinstance(value, float) and value.is_integer() and abs(value) >= 2**53


@given(VALUES)
def test_the_dump_handed_in_changes_nothing(value):
    """Passing the sorted dump is only a shortcut: the bytes are the same."""
    assert canonical_bytes(value, dump_compact(value, sort=True)) == canonical_bytes(value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (0, -0.0),
        ({"a": 1, "b": 2}, {"b": 2.0, "a": 1}),
        (10**20, 1e20),
        (10**22, 1e22),
        ([1e3], [1000]),
    ],
)
def test_equal_values_have_one_spelling(one, other):
    """Values that mean the same have the same bytes."""
    assert canonical_bytes(one) == canonical_bytes(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (2**53, 2**53 + 1),
        (2**64, 2**64 + 1),
        (1, "1"),
        (1, True),
        ("\u00e9", "e\u0301"),
        (None, "null"),
        ([1, 2], [2, 1]),
    ],
)
def test_different_values_have_different_bytes(one, other):
    """Values that differ never share their bytes; integers of any size keep every digit."""
    assert canonical_bytes(one) != canonical_bytes(other)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"\U0001f600": 1, "\ufb33": 2}, '{"\U0001f600":1,"\ufb33":2}'),
        (123456789012345678901234567890, "123456789012345678901234567890"),
        ({"n": -(2**70)}, '{"n":-1180591620717411303424}'),
        (1e-7, "1e-7"),
        ([1.5e-6], "[0.0000015]"),
        (5e-324, "5e-324"),
        (True, "true"),
        ({"a": 1.5, "b": [2.5, 3]}, '{"a":1.5,"b":[2.5,3]}'),
        ((1, "a"), '[1,"a"]'),
    ],
)
def test_known_spellings(value, text):
    """Keys sort by UTF-16 code units, integers keep all digits, small doubles follow ECMAScript."""
    assert canonical_bytes(value) == text.encode()


def test_digest_is_sha_256():
    """The digest of nothing is the well-known SHA-256 of nothing."""
    assert sha256_hex(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@given(st.floats(min_value=1e15, max_value=2.0**53) | st.floats(min_value=-2e-3, max_value=2e-3))
def test_huge_and_tiny_numbers_are_spelt_as_in_rfc_8785(number):
    """Numbers of many digits before or after the point, alone, in a list and as a member."""
    for value in (number, [number, 1], {"a": number}):
        assert canonical_bytes(value, dump_compact(value, sort=True)) == rfc8785.dumps(value)


@pytest.mark.parametrize(
    "value",
    [
        {"a": ",1e5", "b": 2.5},
        {"a": "x:7.0,", "b": [0.5, "y", None]},
        {"a": "😀", "b": 1.25},
        {"a": 1.0, "b": ",3.0"},
        {"\ue000": 1, "😀": 2},
        {"a": 0.0001},
        {"a": 1e-7, "b": 1e-5},
        {"a": "née\x7f", "b": 5e-324},
        {"a": "3e4", "b": 1.5},
        {"a": 123456789012345680.0},
        -0.0,
    ],
)
def test_texts_that_look_like_numbers_are_checked(value):
    """A text that looks like a number, and a number that RFC 8785 spells otherwise, both get the canonical form."""
    assert canonical_bytes(value) == rfc8785.dumps(value)
    assert canonical_bytes(value, dump_compact(value, sort=True)) == canonical_bytes(value)
