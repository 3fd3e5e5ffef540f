"""Names of tools as clients see them."""

import re

from hypothesis import given
from hypothesis import strategies as st

from pokayoke.gateway.servers.tool_names import MAX_LENGTH, public_name

NAMES = st.text(min_size=1, max_size=90) | st.text(alphabet="ab_-0", min_size=1, max_size=12)


@given(server=NAMES, tool=NAMES)
def test_every_provider_takes_a_name(server, tool):
    """A name has up to 64 letters, digits, `_` and `-`, whatever the server and the tool are called."""
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", public_name(server, tool), re.ASCII)


@given(one=st.tuples(NAMES, NAMES), other=st.tuples(NAMES, NAMES))
def test_two_tools_never_share_a_name(one, other):
    """Equal names mean equal servers and equal tools."""
    assert (public_name(*one) == public_name(*other)) == (one == other)


def test_names_that_meet_in_plain_form_are_told_apart():
    """`a` with `b__c` and `a__b` with `c`, and a tool that is called like a hashed form, all have different names."""
    hashed = public_name("a", "x" * 80)
    pairs = [("a", "b__c"), ("a__b", "c"), ("a_", "_b"), ("a", "__b"), ("a__", "b"), ("a", hashed.removeprefix("a__"))]
    names = [public_name(*one) for one in pairs]
    assert len({*names, hashed}) == len(pairs) + 1


def test_an_ordinary_name_can_be_read():
    """The plain form is SERVER__TOOL, and a long tool keeps its beginning."""
    assert public_name("files", "read_file") == "files__read_file"
    long = public_name("files", "read_" + "x" * 80)
    assert long.startswith("files__read_xxx")
    assert len(long) == MAX_LENGTH
