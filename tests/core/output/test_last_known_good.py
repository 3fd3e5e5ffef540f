"""The last valid output: young, marked, of the same tenant, never shared or unbounded."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.contract.contract import Contract
from pokayoke.core.output.last_known_good import LastKnownGood, degraded_value, keeps_last_good, last_good_owner


def test_an_answer_comes_back_with_its_age():
    """What was kept comes back equal, with its age in seconds."""
    kept = LastKnownGood()
    kept.put("acme", "get@1", "h", b'{"a":[1]}', now=100.0)
    assert kept.get("acme", "get@1", "h", now=160.0, max_age=900) == (60.0, {"a": [1]})


def test_what_comes_back_is_a_copy():
    """Changing a value that came back does not change what is kept."""
    kept = LastKnownGood()
    kept.put(None, "get@1", "h", b"[1]", now=0.0)
    kept.get(None, "get@1", "h", now=1.0, max_age=900)[1].append(2)
    assert kept.get(None, "get@1", "h", now=1.0, max_age=900)[1] == [1]


@pytest.mark.parametrize(
    ("tenant", "contract", "digest"),
    [("other", "get@1", "h"), (None, "get@1", "h"), ("acme", "get@2", "h"), ("acme", "get@1", "x")],
)
def test_nothing_is_shared(tenant, contract, digest):
    """Another tenant, version or argument hash finds nothing."""
    kept = LastKnownGood()
    kept.put("acme", "get@1", "h", b"1", now=0.0)
    assert kept.get(tenant, contract, digest, now=1.0, max_age=900) == (0.0, None)


@pytest.mark.parametrize(
    ("now", "max_age", "found"), [(900.0, 900, True), (900.1, 900, False), (-0.1, 900, False), (0.0, 0, False)]
)
def test_age_decides(now, max_age, found):
    """Exactly at the limit is young enough; later, earlier than stored, or switched off is not."""
    kept = LastKnownGood()
    kept.put("t", "get@1", "h", b"1", now=0.0)
    assert (kept.get("t", "get@1", "h", now=now, max_age=max_age)[1] == 1) is found


NAMED = [(None, "ada"), (None, "bob"), ("acme", None), ("acme", "ada"), ("other", None), ("other", "ada")]


def test_an_answer_is_that_of_whoever_is_named_or_else_of_its_run():
    """A tenant, a user, or both share over runs; no two of them share, and neither does anybody who is not named."""

    def who(tenant, user, run_id):
        return last_good_owner(tenant, user or "", run_id)

    first, second = ([who(*one, run_id) for one in [*NAMED, (None, None), (None, "")]] for run_id in "ab")
    assert first[:-2] == second[:-2]
    assert len({*first, *second}) == len(NAMED) + 2


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=60))
def test_the_cache_stays_within_its_bounds(puts):
    """Neither the number of answers nor their bytes exceed the bounds, and the newest is always there."""
    kept = LastKnownGood(entries=4, max_bytes=100)
    for number, size in puts:
        data = json.dumps("x" * size).encode()
        kept.put("t", "get@1", str(number), data, now=0.0)
        assert len(kept) <= 4
        assert kept._bytes == sum(len(one.data) for one in kept._kept.values()) <= 100
        assert kept.get("t", "get@1", str(number), now=0.0, max_age=1)[1] == "x" * size


def test_an_answer_larger_than_the_cache_is_not_kept():
    """It replaces nothing but its own older self."""
    kept = LastKnownGood(max_bytes=10)
    kept.put("t", "get@1", "a", b"1", now=0.0)
    kept.put("t", "get@1", "b", b"1", now=0.0)
    kept.put("t", "get@1", "b", b'"' + b"x" * 20 + b'"', now=1.0)
    assert len(kept) == 1


def contract(**fields):
    return Contract.from_schema(
        "get", {"type": "object"}, **{"output_schema": {"type": "object"}, "effect": "read", **fields}
    )


@pytest.mark.parametrize(
    ("fields", "keeps"),
    [
        ({}, True),
        ({"effect": "write"}, False),
        ({"secret": True}, False),
        ({"output_schema": None}, False),
    ],
)
def test_only_outputs_of_reads_that_promise_something_may_stand_in(fields, keeps):
    """Those of writes, secret tools and unchecked tools are never kept."""
    assert keeps_last_good(contract(**fields)) is keeps


MARKS = {"_degraded": True, "_age_seconds": 1.5, "_message": "why"}


@pytest.mark.parametrize(
    ("value", "marked"),
    [
        ({"a": 1}, {"a": 1, **MARKS}),
        ([1], {"value": [1], **MARKS}),
        ("text", {"value": "text", **MARKS}),
        ({"_degraded": 0}, {"value": {"_degraded": 0}, **MARKS}),
    ],
)
def test_a_stand_in_is_marked(value, marked):
    """A value that stands in says so, with its age and why; the original is not changed."""
    before = json.dumps(value)
    assert degraded_value(value, 1.5, "why") == marked
    assert json.dumps(value) == before


def test_nothing_to_stand_in_is_marked_too():
    """Without a kept answer the mark says that there is no value."""
    assert degraded_value(None, None, "why") == {
        "_degraded": True,
        "_age_seconds": None,
        "_message": "why",
        "value": None,
    }
