"""At most once: keys, records, and who may do what next."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.ledger import (
    Claim,
    Record,
    Settlement,
    claim,
    ledger_key,
    settle,
)
from pokayoke.core.ledger_explain import in_doubt, no_scope, store_unavailable

WISH = Claim("k", "h1", "c1", "pay", "pay@1", "r", now=100.0, lease=10.0)
STATES = ("executing", "completed", "failed_retriable", "failed_final", "in_doubt")


def record(state="executing", **changes):
    base = Record("k", "h1", state, 1, "c0", 105.0, "pay", "pay@1", "r", 95.0)
    return msgspec.structs.replace(base, **changes)


def test_the_first_claim_executes():
    """Without a record the wish becomes one, attempt 1, with a lease from now."""
    kept, answer = claim(None, WISH)
    assert answer.kind == "execute"
    assert (kept.state, kept.attempt, kept.claim_id, kept.lease_until) == ("executing", 1, "c1", 110.0)


@pytest.mark.parametrize("state", STATES)
def test_other_arguments_never_execute(state):
    """Same key, other arguments: refused in every state, and the record stays as it is."""
    kept, answer = claim(record(state), msgspec.structs.replace(WISH, args_hash="h2"))
    assert (kept, answer.kind, answer.finding.code) == (None, "refuse", "conflict")


@pytest.mark.parametrize(
    ("changes", "kind", "code", "state_after"),
    [
        ({"state": "completed"}, "replay", None, None),
        ({"state": "failed_final"}, "failed", "failed_before", None),
        ({"state": "failed_retriable"}, "execute", None, "executing"),
        ({"state": "failed_retriable", "attempt": 3}, "failed", "failed_before", None),
        ({"state": "executing"}, "refuse", "in_progress", None),
        ({"state": "executing", "lease_until": 100.0}, "in_doubt", "in_doubt", "in_doubt"),
        ({"state": "executing", "lease_until": 10.0}, "in_doubt", "in_doubt", "in_doubt"),
        ({"state": "in_doubt"}, "in_doubt", "in_doubt", None),
    ],
)
def test_what_the_second_caller_is_told(changes, kind, code, state_after):
    """The second caller's table of the specification, row by row; a lapsed lease never executes."""
    kept, answer = claim(record(**changes), WISH)
    assert answer.kind == kind
    assert (answer.finding.code if answer.finding else None) == code
    assert (kept.state if kept else None) == state_after


def test_a_new_attempt_raises_the_fencing_token():
    """A retry after a harmless failure is attempt 2 under the new claim."""
    kept, _ = claim(record("failed_retriable"), WISH)
    assert (kept.attempt, kept.claim_id) == (2, "c1")


def test_a_running_claim_says_when_to_ask_again():
    """`retry_after` is what remains of the lease."""
    assert claim(record(), WISH)[1].retry_after == 5.0


@pytest.mark.parametrize(
    ("state", "report", "accepted", "after"),
    [
        ("executing", "completed", True, "completed"),
        ("executing", "failed_retriable", True, "failed_retriable"),
        ("executing", "failed_final", True, "failed_final"),
        ("executing", "in_doubt", True, "in_doubt"),
        ("in_doubt", "completed", True, "completed"),
        ("in_doubt", "failed_retriable", False, None),
        ("in_doubt", "failed_final", False, None),
        ("in_doubt", "in_doubt", True, None),
        ("completed", "completed", True, None),
        ("completed", "failed_retriable", False, None),
        ("completed", "in_doubt", False, None),
        ("failed_final", "completed", False, None),
        ("failed_retriable", "completed", False, None),
    ],
)
def test_who_may_report_what(state, report, accepted, after):
    """Only an open record takes a report; a completed one never changes; a repeated report is harmless."""
    kept, said = settle(record(state), Settlement("k", "c0", report, 101.0, b"1"))
    assert (said, kept.state if kept else None) == (accepted, after)


@pytest.mark.parametrize("known", [None, record(claim_id="somebody else")])
def test_a_report_without_the_claim_is_refused(known):
    """Nobody but the owner of the claim settles it."""
    assert settle(known, Settlement("k", "c0", "completed", 101.0)) == (None, False)


@given(
    st.lists(
        st.tuples(st.sampled_from(("claim", "settle")), st.integers(0, 2), st.sampled_from(STATES[1:])), max_size=12
    )
)
def test_completed_is_final_and_attempts_only_grow(script):
    """Whatever callers do in whatever order: at most one owner, completed never changes, attempts grow."""
    known, attempts, final = None, 0, None
    for clock, (what, who, report) in enumerate(script):
        if what == "claim":
            kept, answer = claim(known, msgspec.structs.replace(WISH, claim_id=f"c{who}", now=float(clock)))
            if answer.kind == "execute":
                assert kept.attempt == attempts + 1
                attempts = kept.attempt
        else:
            kept, _ = settle(known, Settlement("k", f"c{who}", report, float(clock), b"%d" % who))
        known = kept or known
        if final is not None:
            assert known == final
        if known is not None and known.state == "completed":
            final = known


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({}, True),
        ({"occurrence": 1}, False),
        ({"epoch": 1}, False),
        ({"scope": ("run", "r2")}, False),
        ({"scope": ("session", "r1")}, False),
        ({"effect_name": "pay2"}, False),
        ({"identity": "h2"}, False),
    ],
)
def test_what_makes_a_key(changed, same):
    """Scope, name, epoch, occurrence and identity make the key."""
    base = {"scope": ("run", "r1"), "effect_name": "pay", "identity": "h1"}
    one, other = (
        ledger_key(x.pop("scope"), x.pop("effect_name"), x.pop("identity"), **x)
        for x in (dict(base), {**base, **changed})
    )
    assert (one == other) is same


def test_keys_do_not_run_together():
    """Moving a character from one part of the key to the next makes another key."""
    parts = ["run", "a", "b", "c"]
    keys = {
        ledger_key(("run", "".join(cut[0])), "".join(cut[1]), "".join(cut[2]))
        for cut in ((parts[:i], parts[i:j], parts[j:]) for i, j in itertools.combinations(range(1, 4), 2))
    }
    assert len(keys) == 3


def test_refusals_blame_the_host_and_stay_short():
    """What the host did is blamed on the host, and the model is told not to repeat it."""
    for finding in (no_scope("pay"), store_unavailable("pay", "OSError"), in_doubt(record())):
        assert finding.blame == "host"
        assert 0 < len(finding.hint) < 600
