"""What an effect asks of a person: never to send a write again whose effect is unknown."""

import msgspec
import pytest

from pokayoke.core.flow.doubts import describe_next_step, find_next_step, preview_answer
from pokayoke.core.ledger.records import MAX_ATTEMPTS, Record

NOW = 1_000.0
RECORD = Record("k" * 64, "h", "completed", 1, "c0", 105.0, "pay", "pay@1", "r", 95.0, settled_at=96.0)
AT_WORK = {"lease_until": NOW + 60.0, "settled_at": None}


@pytest.mark.parametrize(
    ("changes", "undone", "step", "words"),
    [
        ({}, None, "none", "never runs again"),
        ({}, {"state": "completed", "claimed_at": 97.0}, "undone", "it was undone"),
        ({}, {"state": "completed", "claimed_at": 90.0}, "none", "never runs again"),  # an earlier attempt was undone
        ({}, {"state": "in_doubt", "claimed_at": 97.0}, "none", "never runs again"),
        ({"output_ok": False}, None, "look", "never runs again"),
        ({"state": "in_doubt"}, None, "settle", "--happened REF"),
        ({"state": "executing", "settled_at": None}, None, "settle", "--not-happened"),  # its lease is over
        ({"state": "executing", **AT_WORK}, None, "wait", "1970-01-01T00:17:40Z"),
        ({"state": "resolving", **AT_WORK}, None, "wait", "it is at work"),
        ({"state": "failed_retriable"}, None, "repeat", "the same call may run again"),
        ({"state": "failed_retriable", "attempt": MAX_ATTEMPTS}, None, "allow", "--not-happened"),
        ({"state": "failed_retriable", "attempt": MAX_ATTEMPTS, "decided_by": "ann"}, None, "repeat", "may run again"),
        ({"state": "failed_final"}, None, "reconcile", "pokayoke ledger reconcile"),
    ],
)
def test_the_next_step(changes, undone, step, words):
    """Each state, row by row, and what is said of it."""
    record = msgspec.structs.replace(RECORD, **changes)
    undoing = None if undone is None else msgspec.structs.replace(RECORD, key="u" * 64, **undone)
    assert find_next_step(record, undoing, NOW) == step
    assert words in describe_next_step(record, undoing, NOW)


def test_what_the_model_will_read():
    """A decision that it happened shows the sentence of the next equal call; one that it did not, that it runs."""
    record = msgspec.structs.replace(RECORD, state="in_doubt")
    happened = preview_answer(record, happened=True)
    assert "pay" in happened
    assert "reference" in happened
    assert "runs once more" in preview_answer(record, happened=False)
