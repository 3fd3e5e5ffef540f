"""Units: exact conversion and the names they go by."""

from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.contract import units

UNITS = ["kg", "g", "mg", "lb", "oz", "km", "m", "in", "mi", "s", "h", "wk", "l", "ml", "kB", "MiB", "C", "F", "K"]


@given(st.sampled_from(UNITS), st.sampled_from(UNITS), st.integers(-(10**6), 10**6))
def test_law_conversion_is_exact_and_reversible(one, other, number):
    """Converting there and back gives the same number, and units of another dimension never convert."""
    first, second = units.find_unit(one), units.find_unit(other)
    there = units.convert_amount(f"{number} {one}", second)
    assert (there is None) == (first.dimension != second.dimension)
    if there is not None:
        assert (there * second.factor + second.offset - first.offset) / first.factor == number


def test_unit_names():
    """Symbols are exact, words are read in any case, and ambiguous names are unknown."""
    assert units.find_unit("Kilograms") is units.find_unit("kilograms") is not None
    assert units.find_unit("Mg") is None
    for name in ("gallon", "ton", "pint", "KB", "month", ""):
        assert units.find_unit(name) is None
