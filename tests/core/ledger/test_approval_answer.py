"""Answers to questions: one no decides, one yes or two of different people do."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.ledger.admission import AdmissionRequest, Approval, Endorsement, StoredState, admit
from pokayoke.core.ledger.approval_answer import apply_answer
from pokayoke.core.state.run_state import RunState

ONE = Approval("ap-1", "f", "pay", "pay@1", {}, "r", 100.0, 200.0)
TWO = msgspec.structs.replace(ONE, approvers=2)
HALF = msgspec.structs.replace(TWO, first=Endorsement("Ann B", "fine", 110.0))


@pytest.mark.parametrize(
    ("question", "approved", "by", "found"),
    [
        (ONE, True, "ann", "approved"), (ONE, True, "", "approved"), (ONE, False, "ann", "denied"),
        (TWO, True, "ann", "waiting"), (TWO, False, "ann", "denied"), (TWO, True, "", "say who"),
        (TWO, True, "unnamed", "say who"), (TWO, True, " Unnamed ", "say who"),
        (HALF, True, "bob", "approved"), (HALF, False, "bob", "denied"), (HALF, False, "Ann B", "denied"),
        (HALF, True, "Ann B", "a second person"), (HALF, True, " ann  b", "a second person"),
        (HALF, True, "\uff21nn B", "a second person"), (HALF, True, "", "say who"),
        (msgspec.structs.replace(HALF, status="approved", by="bob"), True, "cy", "approved already, by bob"),
        (msgspec.structs.replace(HALF, expires_at=120.0), True, "bob", "expired already"),
    ],
)  # fmt: skip
def test_an_answer_decides_or_waits_or_says_why_not(question, approved, by, found):
    """The first yes of two is recorded, the second decides, one person twice is refused, and a no needs no second."""
    after = apply_answer(question, approved=approved, by=by, reason="why", now=130.0)
    if isinstance(after, str):
        assert found in after
        return
    assert after.status == found
    if found == "waiting":
        assert (after.first, after.by) == (Endorsement("ann", "why", 130.0), None)
    else:
        assert (after.by, after.reason, after.decided_at, after.first) == (by, "why", 130.0, question.first)


NAMES = st.sampled_from(["ann", "Ann", " ann ", "bob", "cy", "", "unnamed"])


@given(st.lists(st.tuples(NAMES, st.booleans()), max_size=6))
def test_two_different_people_or_nobody(answers):
    """Whatever is answered in whatever order: it runs only after two yes of different named people and no no before."""
    known, yes = TWO, []
    for at, (by, approved) in enumerate(answers):
        after = apply_answer(known, approved=approved, by=by, reason="", now=101.0 + at)
        if isinstance(after, str):
            continue
        known = after
        if approved:
            yes.append(by.strip().casefold())
    assert (known.status == "approved") == (len(yes) == 2)
    assert len(set(yes)) == len(yes)
    assert not {"", "unnamed"} & set(yes)


@pytest.mark.parametrize(
    ("known", "kind"),
    [
        (msgspec.structs.replace(ONE, status="approved", by="ann"), "pending"),
        (msgspec.structs.replace(ONE, status="denied", by="ann"), "refuse"),
        (ONE, "pending"), (TWO, "pending"), (HALF, "pending"),
        (msgspec.structs.replace(HALF, status="approved", by="bob"), "execute"),
    ],
)  # fmt: skip
def test_a_yes_of_one_is_none_where_two_are_needed(known, kind):
    """A policy that needs a second person by now asks anew; a no stays a no."""
    asked = AdmissionRequest("r", "pay", "read", (), 150.0, approval=TWO)
    result = admit(asked, StoredState(RunState("r"), approval=known))
    assert result.answer.kind == kind
    assert (result.approval == TWO) == (known.approvers == 1 and known.status != "denied")
    if known is HALF:
        assert "of a second person, beside Ann B" in result.answer.finding.message
