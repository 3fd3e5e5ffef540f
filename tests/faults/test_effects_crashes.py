"""A process is killed at every point of a write, and of resolving a doubt."""

import json

import msgspec
import pytest
from effects_stage import LOOKUP, call, only_record, receipts, staged

from pokayoke.testing import died

BEFORE_CLAIM = ["store_admit_before"]
BEFORE_EFFECT = ["store_admit_after", "after_claim", "before_invoke", "before_effect"]
IN_TOOL_AFTER_EFFECT = ["after_effect"]
BEFORE_COMPLETE = ["after_invoke", "store_settle_before"]
AFTER_COMPLETE = ["store_settle_after", "after_settle"]
# The resolver's first admission takes the doubt, its second one starts the execution.
RESOLVER = [
    "store_admit_before", "store_admit_after", "in_lookup", "store_admit_before_2", "store_admit_after_2", "after_claim",
    "before_invoke", "before_effect", "after_effect", "after_invoke", "store_settle_before", "store_settle_after",
    "after_settle",
]  # fmt: skip
FOUND = ["store_admit_after", "in_lookup", "store_settle_before", "store_settle_after", "store_admit_before_2"]


def changed(spec, **fields):
    return msgspec.structs.replace(spec, **fields)


def killed(spec, point, **fields):
    """Let a process make the call and die at a point."""
    done = staged(changed(spec, crash=point, **fields))
    assert died(done.returncode), done


@pytest.fixture(params=["sync", "async"])
def asynchronous(request):
    return request.param == "async"


@pytest.mark.parametrize("point", BEFORE_CLAIM)
def test_killed_before_the_claim(spec, point, asynchronous):
    """There is no row and no effect; the next call executes."""
    killed(spec, point, asynchronous=asynchronous)
    assert (only_record(spec), receipts(spec)) == (None, [])
    assert call(spec).status == "ok"
    assert len(receipts(spec)) == 1


@pytest.mark.parametrize("point", BEFORE_EFFECT)
def test_killed_between_claim_and_effect(spec, point, asynchronous):
    """A person has to look; a lookup with proof of death brings the one effect."""
    killed(spec, point, asynchronous=asynchronous)
    assert (only_record(spec).state, receipts(spec)) == ("executing", [])
    for _ in range(2):
        assert call(spec).status == "in_doubt"
    assert (only_record(spec).state, receipts(spec)) == ("in_doubt", [])
    outcome = call(changed(spec, fields=LOOKUP, asynchronous=asynchronous))
    assert (outcome.status, [outcome.value["receipt"]]) == ("ok", receipts(spec))
    assert (only_record(spec).state, only_record(spec).attempt) == ("completed", 2)


@pytest.mark.parametrize("point", IN_TOOL_AFTER_EFFECT)
def test_killed_in_the_tool_after_the_effect(spec, point, asynchronous):
    """There is never a second effect; a lookup completes the record with what the target knows."""
    _after_the_effect(spec, point, asynchronous)


@pytest.mark.parametrize("point", BEFORE_COMPLETE)
def test_killed_between_effect_and_completion(spec, point, asynchronous):
    """As in the tool itself: in doubt, and a lookup completes it."""
    _after_the_effect(spec, point, asynchronous)


def _after_the_effect(spec, point, asynchronous):
    killed(spec, point, asynchronous=asynchronous)
    done = receipts(spec)
    assert (only_record(spec).state, len(done)) == ("executing", 1)
    for _ in range(2):
        outcome = call(spec)
        assert (outcome.status, outcome.effect) == ("in_doubt", "unknown")
    outcome = call(changed(spec, fields=LOOKUP, asynchronous=asynchronous))
    assert (outcome.status, outcome.value) == ("replayed", {"receipt": done[0]})
    assert (only_record(spec).state, receipts(spec)) == ("completed", done)


@pytest.mark.parametrize("point", AFTER_COMPLETE)
def test_killed_between_completion_and_answer(spec, point, asynchronous):
    """The record is completed, and the next call gets the same bytes."""
    killed(spec, point, asynchronous=asynchronous)
    (done,) = receipts(spec)
    record = only_record(spec)
    assert (record.state, json.loads(record.output)) == ("completed", {"receipt": done})
    outcome = call(changed(spec, asynchronous=asynchronous))
    assert (outcome.status, outcome.value) == ("replayed", {"receipt": done})
    assert receipts(spec) == [done]


@pytest.mark.parametrize("point", RESOLVER)
def test_the_resolver_is_killed_while_it_starts_anew(spec, point):
    """Whoever resolves after it brings the effect exactly once, or finds it."""
    killed(spec, "before_effect")
    killed(spec, point, fields={**LOOKUP, "timeout": 0.2})
    assert len(receipts(spec)) <= 1
    outcome = call(changed(spec, fields={**LOOKUP, "timeout": 5.0}))
    assert outcome.ok, outcome
    assert [outcome.value["receipt"]] == receipts(spec)
    assert only_record(spec).state == "completed"


@pytest.mark.parametrize("point", FOUND)
def test_the_resolver_is_killed_while_it_records_what_it_found(spec, point):
    """The effect that was there stays the only one, and becomes the answer."""
    killed(spec, "after_effect")
    (done,) = receipts(spec)
    killed(spec, point, fields={**LOOKUP, "timeout": 0.2})
    outcome = call(changed(spec, fields=LOOKUP))
    assert (outcome.status, outcome.value) == ("replayed", {"receipt": done})
    assert receipts(spec) == [done]
