"""At most once: keys, records, and who may do what next."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.ledger.findings import (
    in_doubt_finding,
    no_scope_finding,
    store_unavailable_finding,
)
from pokayoke.core.ledger.key import compensation_key, ledger_key
from pokayoke.core.ledger.records import Claim, Record, Resolution, Settlement
from pokayoke.core.ledger.transitions import claim_effect, resolve_by_person, settle

WISH = Claim("k", "h1", "c1", "pay", "pay@1", "r", now=100.0, lease=10.0, owner="me")
DONE = {"state": "completed", "settled_at": 99.0, "output": b"1"}
EARLY = {"state": "completed", "settled_at": None}
RESOLVING = {"state": "resolving", "resolver": "c9"}
DOUBT = {"state": "in_doubt", "failure": "tool_timeout"}
STATES = ("executing", "resolving", "completed", "failed_retriable", "failed_final", "in_doubt")


def record(state="executing", **changes):
    base = Record("k", "h1", state, 1, "c0", 105.0, "pay", "pay@1", "r", 95.0, owner="them", epoch=4)
    return msgspec.structs.replace(base, **changes)


def wish(**changes):
    return msgspec.structs.replace(WISH, **changes)


def changed(before, after):
    """The fields in which two records differ."""
    return {
        name: getattr(after, name) for name in Record.__struct_fields__ if getattr(before, name) != getattr(after, name)
    }


# -- claims -------------------------------------------------------------------------------------------


def test_the_first_claim_executes():
    """Without a record the wish becomes one: attempt 1, a lease from now, everything as wished, nothing settled."""
    kept, answer = claim_effect(None, wish(compensates="k0"))
    assert (answer.kind, answer.record, answer.finding) == ("execute", kept, None)
    assert kept == Record(
        "k", "h1", "executing", 1, "c1", 110.0, "pay", "pay@1", "r", 100.0, owner="me", compensates="k0"
    )


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    "licence", [{}, {"reruns": True}, {"resolves": True}, {"proceed": True}, {"dead": "c0", "dead_at": 100.0}]
)
def test_other_arguments_never_execute(state, licence):
    """Same key, other arguments: refused in every state and with every licence; the record stays, both hashes are told."""
    kept, answer = claim_effect(record(state), wish(args_hash="h2", claim_id="c0", **licence))
    assert (kept, answer.kind, answer.finding.code) == (None, "refuse", "conflict")
    assert answer.finding.data == {"recorded": "h1", "now": "h2"}


# What the record is, what the wish adds, what it is told, and in which fields the record changes.
TABLE = [
    # completed: the record answers, whatever the wish could do
    (DONE, {}, "replay", None, None),
    (DONE, {"reruns": True}, "replay", None, None),
    (DONE, {"resolves": True}, "replay", None, None),
    (DONE, {"dead": "c0", "dead_at": 100.0}, "replay", None, None),
    (DONE, {"claim_id": "c0"}, "replay", None, None),
    ({**DONE, "output": None}, {}, "replay", None, None),
    ({**DONE, "output_ok": False}, {"reruns": True}, "replay", None, None),
    # completed in the effect's own transaction: its output is on its way, until nobody can bring it any more
    (EARLY, {}, "refuse", "in_progress", None),
    (EARLY, {"reruns": True}, "refuse", "in_progress", None),
    (EARLY, {"dead": "somebody"}, "refuse", "in_progress", None),
    (EARLY, {"dead": "c0", "dead_at": 100.0}, "replay", None, {"settled_at": 100.0}),
    ({**EARLY, "lease_until": 100.0}, {}, "replay", None, {"settled_at": 100.0}),
    (EARLY, {"claim_id": "c0", "owner": "them"}, "replay", None, {"settled_at": 100.0}),
    (EARLY, {"claim_id": "c0"}, "refuse", "in_progress", None),  # a fork has the claim's id as well
    # failed
    ({"state": "failed_final"}, {}, "failed", "failed_before", None),
    ({"state": "failed_final"}, {"reruns": True}, "failed", "failed_before", None),
    ({"state": "failed_retriable"}, {}, "execute", None, 2),
    ({"state": "failed_retriable", "attempt": 2}, {}, "execute", None, 3),
    ({"state": "failed_retriable", "attempt": 3}, {}, "failed", "failed_before", None),
    ({"state": "failed_retriable", "attempt": 3}, {"max_attempts": 4}, "execute", None, 4),
    ({"state": "failed_retriable", "attempt": 3, "decided_by": "ann"}, {}, "execute", None, 4),
    # executing, its lease valid
    ({}, {}, "refuse", "in_progress", None),
    ({}, {"reruns": True}, "refuse", "in_progress", None),
    ({}, {"resolves": True}, "refuse", "in_progress", None),
    ({}, {"dead": "somebody"}, "refuse", "in_progress", None),
    ({}, {"claim_id": "c0", "owner": "them"}, "execute", None, {"lease_until": 110.0}),
    ({}, {"claim_id": "c0", "owner": "them", "doubt": "OSError"}, "execute", None, {"lease_until": 110.0, "failure": "OSError"}),
    ({"failure": "x"}, {"claim_id": "c0", "owner": "them", "doubt": "OSError"}, "execute", None, {"lease_until": 110.0}),
    ({}, {"claim_id": "c0"}, "refuse", "in_progress", None),  # a fork has the claim's id as well
    # executing, its lease lapsed or its owner proven dead: a doubt, and no licence
    ({"lease_until": 100.0}, {}, "in_doubt", "in_doubt", {"state": "in_doubt", "failure": "the caller never reported back"}),
    # a day ahead is what clocks may differ by; a claim from further ahead has the times of a wrong one
    ({"lease_until": 86_510.0, "claimed_at": 86_500.0}, {"resolves": True}, "refuse", "in_progress", None),
    ({"lease_until": 86_510.0, "claimed_at": 86_500.1}, {}, "in_doubt", "in_doubt", {"state": "in_doubt", "failure": "the caller never reported back"}),
    ({**EARLY, "lease_until": 86_510.0, "claimed_at": 86_500.1}, {}, "replay", None, {"settled_at": 100.0}),
    ({"lease_until": 10.0}, {"proceed": True}, "in_doubt", "in_doubt", {"state": "in_doubt", "failure": "the caller never reported back"}),
    ({}, {"dead": "c0", "dead_at": 100.0}, "in_doubt", "in_doubt", {"state": "in_doubt", "failure": "the caller never reported back", "dead_since": 100.0}),
    ({"dead_since": 97.0}, {"dead": "c0", "dead_at": 100.0}, "in_doubt", "in_doubt", {"state": "in_doubt", "failure": "the caller never reported back"}),
    ({"lease_until": 10.0}, {"dead": "c7", "dead_at": 100.0}, "in_doubt", "in_doubt", {"state": "in_doubt", "failure": "the caller never reported back"}),
    ({"lease_until": 10.0}, {"dead": "c5"}, "in_doubt", "in_doubt", {"state": "in_doubt", "failure": "the caller never reported back"}),
    ({"lease_until": 10.0}, {"reruns": True}, "execute", None, 2),
    ({}, {"reruns": True, "dead": "c0"}, "execute", None, 2),
    ({"lease_until": 10.0}, {"resolves": True}, "resolve", None, {"state": "resolving", "resolver": "c1", "lease_until": 110.0, "failure": "the caller never reported back"}),
    ({}, {"resolves": True, "dead": "c0", "dead_at": 100.0}, "resolve", None, {"state": "resolving", "resolver": "c1", "lease_until": 110.0, "failure": "the caller never reported back", "dead_since": 100.0}),
    ({"lease_until": 10.0}, {"claim_id": "c0", "owner": "them"}, "execute", None, {"lease_until": 110.0}),
    ({"lease_until": 10.0}, {"claim_id": "c0"}, "in_doubt", "in_doubt", {"state": "in_doubt", "failure": "the caller never reported back"}),
    # in doubt
    (DOUBT, {}, "in_doubt", "in_doubt", None),
    (DOUBT, {"proceed": True}, "in_doubt", "in_doubt", None),
    (DOUBT, {"claim_id": "c0"}, "in_doubt", "in_doubt", None),
    (DOUBT, {"dead": "c0", "dead_at": 100.0}, "in_doubt", "in_doubt", None),
    (DOUBT, {"reruns": True}, "execute", None, 2),
    (DOUBT, {"resolves": True}, "resolve", None, {"state": "resolving", "resolver": "c1", "lease_until": 110.0}),
    ({**DOUBT, "dead_since": 98.0}, {"resolves": True, "proceed": True}, "resolve", None, {"state": "resolving", "resolver": "c1", "lease_until": 110.0}),
    # resolving
    (RESOLVING, {}, "refuse", "in_progress", None),
    (RESOLVING, {"resolves": True}, "refuse", "in_progress", None),
    (RESOLVING, {"proceed": True}, "refuse", "in_progress", None),
    (RESOLVING, {"reruns": True}, "refuse", "in_progress", None),
    (RESOLVING, {"resolves": True, "dead": "c0"}, "refuse", "in_progress", None),
    (RESOLVING, {"claim_id": "c0"}, "refuse", "in_progress", None),
    (RESOLVING, {"claim_id": "c0", "owner": "them"}, "refuse", "in_progress", None),
    (RESOLVING, {"claim_id": "c9", "resolves": True}, "resolve", None, None),
    (RESOLVING, {"claim_id": "c9", "resolves": True, "proceed": True}, "execute", None, 2),
    ({**RESOLVING, "lease_until": 10.0}, {"claim_id": "c9", "proceed": True}, "execute", None, 2),
    ({**RESOLVING, "failure": "OSError"}, {"claim_id": "c9", "proceed": True, "doubt": "OSError"}, "execute", None, 2),
    ({**RESOLVING, "failure": "OSError"}, {"claim_id": "c9", "proceed": True}, "execute", None, 2),
    ({**RESOLVING, "lease_until": 10.0}, {}, "in_doubt", "in_doubt", {"state": "in_doubt", "resolver": "", "failure": "the caller never reported back"}),
    ({**RESOLVING, "lease_until": 10.0, "failure": "tool_timeout"}, {}, "in_doubt", "in_doubt", {"state": "in_doubt", "resolver": ""}),
    ({**RESOLVING, "lease_until": 10.0}, {"resolves": True}, "resolve", None, {"resolver": "c1", "lease_until": 110.0, "failure": "the caller never reported back"}),
    ({**RESOLVING, "lease_until": 10.0}, {"proceed": True, "resolves": True}, "resolve", None, {"resolver": "c1", "lease_until": 110.0, "failure": "the caller never reported back"}),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "wishes", "kind", "code", "after"), TABLE)
def test_what_the_second_caller_is_told(changes, wishes, kind, code, after):
    """The second caller's table, cell by cell: the answer, and exactly what changes in the record (a number: a new attempt)."""
    before = record(**changes)
    kept, answer = claim_effect(before, wish(**wishes))
    assert (answer.kind, answer.finding.code if answer.finding else None) == (kind, code)
    if isinstance(after, int):
        open_still = (
            (before.failure or "the caller never reported back") if "reruns" in wishes else wishes.get("doubt", "")
        )
        assert kept == Record(
            "k", "h1", "executing", after, wishes.get("claim_id", "c1"),
            110.0, "pay", "pay@1", "r", 100.0, owner="me", failure=open_still,
        )  # fmt: skip
    else:
        assert (None if kept is None else changed(before, kept)) == after
    assert answer.record == (kept or before)


@pytest.mark.parametrize("state", STATES)
def test_which_records_answer(state):
    """Only a completed one, and only when its output is known; whatever else was settled does not."""
    assert record(state, settled_at=99.0).is_final is (state == "completed")
    assert record(state, settled_at=None).is_final is False


@pytest.mark.parametrize("changes", [{}, RESOLVING, EARLY])
def test_a_running_claim_says_when_to_ask_again(changes):
    """`retry_after` is what remains of the lease; no other answer names a time."""
    assert claim_effect(record(**changes), WISH)[1].retry_after == 5.0
    for other in ({"lease_until": 10.0}, DOUBT, DONE, {"state": "failed_final"}):
        assert claim_effect(record(**other), WISH)[1].retry_after is None


# -- reports ------------------------------------------------------------------------------------------

OWN, ASKING = "c0", "c9"
REPORTS = [
    # state before, who reports, what; whether it is accepted, the state after (None: unchanged)
    ("executing", OWN, "completed", True, "completed"),
    ("executing", OWN, "failed_retriable", True, "failed_retriable"),
    ("executing", OWN, "failed_final", True, "failed_final"),
    ("executing", OWN, "in_doubt", True, "in_doubt"),
    ("in_doubt", OWN, "completed", True, "completed"),
    ("in_doubt", OWN, "failed_retriable", False, None),
    ("in_doubt", OWN, "failed_final", False, None),
    ("in_doubt", OWN, "in_doubt", True, None),
    ("resolving", OWN, "completed", True, "completed"),
    ("resolving", OWN, "failed_retriable", False, None),
    ("resolving", OWN, "failed_final", False, None),
    ("resolving", OWN, "in_doubt", False, None),
    ("completed", OWN, "completed", True, None),
    ("completed", OWN, "failed_retriable", False, None),
    ("completed", OWN, "in_doubt", False, None),
    ("failed_final", OWN, "completed", False, None),
    ("failed_final", OWN, "failed_final", True, None),
    ("failed_retriable", OWN, "completed", False, None),
    ("failed_retriable", OWN, "failed_retriable", True, None),
    ("resolving", ASKING, "completed", True, "completed"),
    ("resolving", ASKING, "in_doubt", True, "in_doubt"),
    ("resolving", ASKING, "failed_final", True, "failed_final"),
    *((state, ASKING, "completed", False, None) for state in STATES if state != "resolving"),
    *((state, ASKING, "in_doubt", False, None) for state in STATES if state != "resolving"),
    *((state, "c7", report, False, None) for state in STATES for report in ("completed", "in_doubt")),
]


@pytest.mark.parametrize(("state", "who", "report", "accepted", "after"), REPORTS)
def test_who_may_report_what(state, who, report, accepted, after):
    """Only an open record takes a report, only from its owner or its resolver; a report that came through is recognised."""
    resolver = ASKING if state == "resolving" else ""
    known = record(state, settled_at=99.0, output=b"1", resolver=resolver)
    kept, said = settle(known, Settlement("k", who, report, 101.0, b"1"))
    assert (said, kept.state if kept else None) == (accepted, after)


@pytest.mark.parametrize(
    ("state", "who", "report", "accepted", "after"),
    [
        ("executing", OWN, "failed_final", True, "in_doubt"),
        ("executing", OWN, "failed_retriable", True, "in_doubt"),
        ("executing", OWN, "completed", True, "completed"),
        ("executing", "c7", "failed_final", False, None),
        ("in_doubt", OWN, "failed_final", True, None),
        ("in_doubt", OWN, "completed", True, "completed"),
        ("failed_final", OWN, "failed_final", True, None),
        ("failed_retriable", OWN, "failed_retriable", True, None),
    ],
)
def test_a_failure_ends_no_doubt_about_an_execution_before_it(state, who, report, accepted, after):
    """What an earlier execution left open stays open, but for a completion; what is settled stays settled."""
    known = record(state, failure="OSError", settled_at=None if state == "executing" else 99.0)
    kept, said = settle(known, Settlement("k", who, report, 101.0))
    assert (said, kept.state if kept else None) == (accepted, after)
    if after == "in_doubt":
        assert kept.failure == "OSError"


def test_a_report_without_a_record_is_refused():
    """Nothing is settled that was never claimed."""
    assert settle(None, Settlement("k", "c0", "completed", 101.0)) == (None, False)


def test_what_a_report_leaves_in_the_record():
    """Exactly the report's own fields, and the resolver's place is free again."""
    known = record(**RESOLVING, reference="old")
    report = Settlement("k", "c9", "completed", 101.0, b"2", output_ok=False, failure="html", reference="R1")
    kept, _ = settle(known, report)
    assert changed(known, kept) == {
        "state": "completed", "settled_at": 101.0, "output": b"2", "output_ok": False, "failure": "html",
        "reference": "R1", "resolver": "",
    }  # fmt: skip
    assert settle(known, Settlement("k", "c9", "completed", 101.0))[0].reference == "old"


@pytest.mark.parametrize(
    ("known", "said", "kept"), [(None, None, None), (None, 90.0, 90.0), (80.0, None, 80.0), (80.0, 90.0, 80.0)]
)
def test_the_first_proof_of_death_stays(known, said, kept):
    """A doubt keeps the earliest second at which its executor was seen dead; without one, nothing is made up."""
    before = record(**RESOLVING, dead_since=known)
    assert settle(before, Settlement("k", "c9", "in_doubt", 101.0, dead_since=said))[0].dead_since == kept


@pytest.mark.parametrize("changes", [{"output": b"2"}, {"output_ok": False}, {"output": None}])
def test_a_completion_by_somebody_else_overtakes_the_executor(changes):
    """What a lookup or a person has recorded is the answer for all: the executor's other output is not accepted."""
    found = record(**{**DONE, **changes})
    assert settle(found, Settlement("k", "c0", "completed", 101.0, b"1")) == (None, False)


EARLY_REPORTS = [
    # a second early report, the output, a report that it failed
    ({"state": "completed", "early": True}, True, None),
    ({"state": "completed", "output": b"2"}, True, {"settled_at": 101.0, "output": b"2"}),
    (
        {"state": "completed", "output_ok": False, "failure": "html", "reference": "R2"},
        True,
        {"settled_at": 101.0, "output_ok": False, "failure": "html", "reference": "R2"},
    ),
    ({"state": "in_doubt", "output": b"2", "failure": "tool_timeout"}, False, {"settled_at": 101.0}),
    ({"state": "failed_retriable"}, False, {"settled_at": 101.0}),
    ({"state": "failed_final"}, False, {"settled_at": 101.0}),
]


@pytest.mark.parametrize(("report", "accepted", "after"), EARLY_REPORTS)
def test_what_follows_a_completion_in_the_effects_own_transaction(report, accepted, after):
    """Its output is filled in once; a failure only says that there is none: what is committed stays completed."""
    known = record(**EARLY, reference="R1")
    kept, said = settle(known, Settlement("k", "c0", now=101.0, **report))
    assert (said, None if kept is None else changed(known, kept)) == (accepted, after)
    assert settle(known, Settlement("k", "c7", now=101.0, **report)) == (None, False)


@pytest.mark.parametrize("changes", [{}, DOUBT, RESOLVING])
def test_an_early_completion_leaves_room_for_its_output(changes):
    """Completed at once, but not settled: `settled_at` stays empty until the output is known; a doubt is over."""
    before = record(**{**changes, "failure": ""})
    kept, said = settle(before, Settlement("k", "c0", "completed", 101.0, reference="R1", early=True))
    assert (said, kept.state, kept.settled_at, kept.output, kept.reference) == (True, "completed", None, None, "R1")
    assert kept.resolver == ""


@pytest.mark.parametrize("doubt", ["", "OSError"])
def test_a_tool_that_never_began_has_used_up_no_attempt(doubt):
    """Its number is given back, once, however often that is reported; an earlier doubt stays, and keeps its own."""
    before = record(attempt=3, failure=doubt)
    report = Settlement("k", "c0", "failed_retriable", 101.0, failure="no thread was free", unstarted=True)
    kept, accepted = settle(before, report)
    assert (accepted, kept.state, kept.attempt) == (True, *(("in_doubt", 3) if doubt else ("failed_retriable", 2)))
    assert settle(kept, report) == (None, True)
    if not doubt:
        again, answer = claim_effect(kept, WISH)
        assert (answer.kind, again.attempt) == ("execute", 3)


# -- people ---------------------------------------------------------------------------------------------

DECISIONS = [
    ({"state": "in_doubt"}, True),
    ({"lease_until": 101.0}, True),
    ({"lease_until": 101.1}, False),
    ({"lease_until": 86_511.0, "claimed_at": 86_501.0}, False),
    ({"lease_until": 86_511.0, "claimed_at": 86_501.1}, True),  # a clock that was ahead by more than a day
    ({**RESOLVING, "lease_until": 101.0}, True),
    ({**RESOLVING, "lease_until": 101.1}, False),
    (DONE, False),
    ({**EARLY, "lease_until": 1.0}, False),
    ({"state": "failed_retriable", "attempt": 3}, True),
    # A failure is what its tool, or another person, has said; only its row in the target refutes that.
    ({"state": "failed_final"}, "if it happened"),
    ({"state": "failed_retriable", "decided_by": "bob"}, "if it happened"),
]


@pytest.mark.parametrize("happened", [True, False])
@pytest.mark.parametrize(("changes", "open_to"), DECISIONS)
def test_what_a_person_may_settle(changes, open_to, happened):
    """A doubt, what is as good as one, and what failed; the word, its speaker and its time stand in the record."""
    before = record(**changes)
    kept = resolve_by_person(
        before, Resolution("k", happened, "ann", "asked the bank", 101.0, "R1" if happened else "")
    )
    assert (kept is not None) is (happened if open_to == "if it happened" else open_to)
    if kept is not None:
        assert kept.state == ("completed" if happened else "failed_retriable")
        assert (kept.decided_by, kept.settled_at, kept.resolver) == ("ann", 101.0, "")
        assert kept.reference == ("R1" if happened else "")
        assert kept.failure == ("" if happened else "a person said that it did not happen: asked the bank")


def test_a_persons_no_allows_one_more_attempt_and_closes_the_old_one():
    """Beyond the highest number of attempts too, once; once that has begun, the first executor's word comes too late."""
    no = resolve_by_person(record("in_doubt", attempt=3), Resolution("k", False, "ann", "asked", 101.0))
    again, answer = claim_effect(no, wish(now=102.0))
    assert (answer.kind, again.attempt, again.decided_by) == ("execute", 4, "")
    assert settle(again, Settlement("k", "c0", "completed", 102.0)) == (None, False)
    failed, _ = settle(again, Settlement("k", "c1", "failed_retriable", 103.0))
    assert claim_effect(failed, wish(claim_id="c2", now=104.0))[1].kind == "failed"


def test_an_executor_knows_better_than_a_persons_no():
    """Its completion is taken as long as no other attempt has begun: that attempt would be a second effect."""
    no = resolve_by_person(record("in_doubt"), Resolution("k", False, "ann", "asked", 101.0))
    for other in (("c0", "failed_retriable"), ("c0", "in_doubt"), ("c7", "completed")):
        assert settle(no, Settlement("k", other[0], other[1], 102.0))[0] is None
    done, accepted = settle(no, Settlement("k", "c0", "completed", 102.0, b"1"))
    assert (accepted, done.state, done.output, done.decided_by) == (True, "completed", b"1", "ann")
    assert claim_effect(done, WISH)[1].kind == "replay"


def test_a_persons_yes_is_the_answer_for_all():
    """Afterwards every caller is answered from the record, the executor too."""
    yes = resolve_by_person(record("in_doubt"), Resolution("k", True, "ann", "asked", 101.0, "R1"))
    assert claim_effect(yes, WISH)[1].kind == "replay"
    assert settle(yes, Settlement("k", "c0", "completed", 102.0, b"1")) == (None, False)


# -- laws -----------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("claim", "settle", "decide")),
            st.integers(0, 2),
            st.sampled_from(("completed", "failed_retriable", "failed_final", "in_doubt")),
            st.fixed_dictionaries(
                {}, optional={"reruns": st.booleans(), "resolves": st.booleans(), "proceed": st.booleans()}
            ),
            st.booleans(),
            st.integers(0, 12),
        ),
        max_size=14,
    )
)
def test_completed_is_final_and_attempts_only_grow(script):
    """Whoever does what in whatever order: completed stays, its output is filled in once at most, attempts grow by one."""
    known, attempts, clock = None, 0, 100.0
    for what, who, report, licence, early, seconds in script:
        clock += seconds
        before = known
        if what == "claim":
            kept, answer = claim_effect(known, wish(claim_id=f"c{who}", now=clock, **licence))
            if answer.kind == "execute" and (before is None or before.attempt != kept.attempt):
                assert kept.attempt == attempts + 1
                attempts = kept.attempt
            assert (answer.kind == "execute") <= (kept is not None)
        elif what == "settle":
            kept, _ = settle(known, Settlement("k", f"c{who}", report, clock, b"%d" % who, early=early))
        else:
            kept = None if known is None else resolve_by_person(known, Resolution("k", early, "ann", "so", clock))
        known = kept or known
        if before is not None and before.state == "completed":
            assert known.state == "completed"
            assert before.settled_at is None or known == before


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"occurrence": 1}, False),
        ({"epoch": 1}, False),
        ({"scope": ("run", "r2")}, False),
        ({"scope": ("session", "r1")}, False),
        ({"effect_name": "pay2"}, False),
        ({"identity": "h2"}, False),
        ({"occurrence": 1, "epoch": 1}, False),
    ],
)
def test_what_makes_a_key(changes, same):
    """Scope, name, epoch, occurrence and identity make the key."""
    base = {"scope": ("run", "r1"), "effect_name": "pay", "identity": "h1"}
    one, other = (
        ledger_key(x.pop("scope"), x.pop("effect_name"), x.pop("identity"), **x)
        for x in (dict(base), {**base, **changes})
    )
    assert (one == other) is same


def test_an_epoch_is_no_occurrence():
    """Raising the epoch and asking for a repetition are two different keys."""
    scope = ("run", "r")
    assert ledger_key(scope, "pay", "h", epoch=1) != ledger_key(scope, "pay", "h", occurrence=1)


def test_keys_do_not_run_together():
    """Moving a character from one part of the key to the next makes another key."""
    parts = ["run", "a", "b", "c"]
    keys = {
        ledger_key(("run", "".join(cut[0])), "".join(cut[1]), "".join(cut[2]))
        for cut in ((parts[:i], parts[i:j], parts[j:]) for i, j in itertools.combinations(range(1, 4), 2))
    }
    assert len(keys) == 3


def test_undoing_has_its_own_key():
    """The key of a compensation is neither its effect's nor another effect's compensation's."""
    assert len({"k1", compensation_key("k1"), compensation_key("k2"), compensation_key(compensation_key("k1"))}) == 4


def test_refusals_blame_the_host_and_stay_short():
    """What the host did is blamed on the host, and the model is told not to repeat it."""
    for finding in (no_scope_finding("pay"), store_unavailable_finding("pay", "OSError"), in_doubt_finding(record())):
        assert finding.blame == "host"
        assert 0 < len(finding.hint) < 600
    assert "Do not send it again" in in_doubt_finding(record()).hint
    assert in_doubt_finding(record()).data == {"key": "k", "attempt": 1}
