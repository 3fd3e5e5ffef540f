"""How many people have to approve a call: tables, and the law that more money never needs fewer people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.gate.approval_rule import ApprovalRule
from pokayoke.core.policy import AmountApproval


def row(above, approvers=1, field="amount"):
    return AmountApproval(tool="transfer", field=field, above=above, approvers=approvers)


STEPS = (row(100), row(1_000, 2))


@pytest.mark.parametrize(
    ("rule", "arguments", "is_asked", "count"),
    [
        (ApprovalRule(), {"amount": 9}, False, 0),
        (ApprovalRule(), {"amount": 9}, True, 1),
        (ApprovalRule(always=True), {}, False, 1),
        (ApprovalRule(always=True, needs_two=True), {}, False, 2),
        (ApprovalRule(needs_two=True), {}, False, 0),
        (ApprovalRule(needs_two=True), {}, True, 2),
        (ApprovalRule(amounts=STEPS), {"amount": 100}, False, 0),
        (ApprovalRule(amounts=STEPS), {"amount": 100.01}, False, 1),
        (ApprovalRule(amounts=STEPS), {"amount": 1_001}, False, 2),
        (ApprovalRule(amounts=STEPS), {"amount": -1_001}, False, 2),
        (ApprovalRule(amounts=STEPS), {"amount": "1001"}, False, 2),
        (ApprovalRule(amounts=STEPS), {"amount": 10**400}, False, 2),
        (ApprovalRule(amounts=STEPS), {"amount": float("nan")}, False, 2),
        (ApprovalRule(amounts=STEPS), {"amount": None}, False, 2),
        (ApprovalRule(amounts=STEPS), {"amount": {"value": 1}}, False, 2),
        (ApprovalRule(amounts=STEPS), {}, False, 2),
        (ApprovalRule(amounts=STEPS, defaults={"amount": 5}), {}, False, 0),
        (ApprovalRule(amounts=STEPS, defaults={"amount": 500}), {}, False, 1),
        (ApprovalRule(amounts=(row(1, field="fee"), row(5, 2))), {"fee": 2, "amount": 3}, False, 1),
        (ApprovalRule(always=True, amounts=STEPS), {"amount": 1}, False, 1),
    ],
)
def test_who_is_asked(rule, arguments, is_asked, count):
    """Nobody up to the amount, people above it; what cannot be measured or is left out is more than any amount."""
    assert rule.count_approvers(arguments, is_asked=is_asked) == count


ROWS = st.lists(st.builds(row, st.floats(0, 1e6), st.sampled_from([1, 2])), max_size=4).map(tuple)


@given(ROWS, st.booleans(), st.booleans(), st.floats(0, 1e7), st.floats(0, 1e7), st.booleans())
def test_more_money_never_needs_fewer_people(amounts, always, needs_two, one, other, is_asked):
    """The count rises with the amount, it is 0, 1 or 2, and another rule that asks never lowers it."""
    rule = ApprovalRule(always=always, amounts=amounts, needs_two=needs_two)
    low, high = (rule.count_approvers({"amount": value}) for value in sorted((one, other)))
    assert 0 <= low <= high <= 2
    assert rule.count_approvers({"amount": one}, is_asked=is_asked) >= rule.count_approvers({"amount": one})
    assert rule.may_ask or (low, high) == (0, 0)
