"""JSON pointers and paths."""

import pytest

from pokayoke.core.json.pointer import get_at


@pytest.mark.parametrize(("value", "path"), [({"a": 1}, ("a", "b")), ([1], ("x",)), ([1], ("5",)), ({}, ("a",))])
def test_a_path_that_leads_nowhere_is_a_lookup_error(value, path):
    """A step below a scalar, and an absent name or index, raise a LookupError."""
    with pytest.raises(LookupError):
        get_at(value, path)
