"""Approval above an amount, and of two people: at the guard, with both drivers."""

import pytest

from pokayoke import Contract, Guard, ToolCall
from pokayoke.errors import ConfigurationError, ContractError, StoreError

ARGUMENTS = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "amount": {"type": "number"}, "note": {"type": "string"}},
    "required": ["to", "amount"],
}
AMOUNTS = [
    {"tool": "transfer", "field": "amount", "above": 100},
    {"tool": "transfer", "field": "amount", "above": 1_000, "approvers": 2},
]


def transfer(schema=ARGUMENTS, **options):
    return Contract.from_schema("transfer", schema, output_schema={}, handler=lambda **given: {}, **options)


def call(amount, name="c"):
    return ToolCall(name, "transfer", {"to": "ann", "amount": amount})


def test_small_amounts_run_and_large_ones_wait(driver):
    """Nobody is asked up to the amount; above it one person, far above it two; `check` says the same."""
    with Guard([transfer()], config={"approvals": {"amounts": AMOUNTS}}) as guard:
        run = guard.run("r1")
        assert driver.call(run, call(100)).status == "ok"
        assert [run.check(call(amount)).decision for amount in (100, 101, 5_000)] == ["allow", "ask", "ask"]
        some, much = driver.call(run, call(101)), driver.call(run, call(5_000))
        assert (some.status, much.status) == ("pending", "pending")
        assert [guard.approvals.get(one.approval).approvers for one in (some, much)] == [1, 2]
        guard.approvals.approve(some.approval, by="ann")
        assert driver.call(run, call(101)).status == "ok"
        assert guard.approvals.approve(much.approval, by="ann").status == "waiting"
        assert driver.call(run, call(5_000)).status == "pending"
        with pytest.raises(StoreError, match="a second person"):
            guard.approvals.approve(much.approval, by="ann")
        guard.approvals.approve(much.approval, by="bob")
        assert driver.call(run, call(5_000)).status == "ok"


def test_a_corrected_amount_is_the_amount_that_counts(driver):
    """Text that is a number is measured as what the tool gets."""
    with Guard([transfer()], config={"approvals": {"amounts": AMOUNTS}}) as guard:
        assert driver.call(guard.run("r1"), call("2000")).status == "pending"
        assert driver.call(guard.run("r2"), call("99")).status == "ok"


def test_a_read_above_an_amount_asks_too(driver):
    """The shortcut of reads does not lead around the question."""
    with Guard([transfer(effect="read")], config={"approvals": {"amounts": AMOUNTS}}) as guard:
        run = guard.run("r1")
        assert [driver.call(run, call(amount)).status for amount in (100, 101)] == ["ok", "pending"]


def test_a_callback_is_one_person(driver):
    """A yes of the program's callback is the first of two; a person gives the second."""
    config = {"approvals": {"tools": ["transfer"], "second_approver": ["transfer"]}}
    with Guard([transfer()], config=config, on_ask=lambda approval: True) as guard:
        run = guard.run("r1")
        waiting = driver.call(run, call(1))
        assert waiting.status == "pending"
        assert guard.approvals.get(waiting.approval).first.by == "on_ask"
        guard.approvals.approve(waiting.approval, by="ann")
        assert driver.call(run, call(1)).status == "ok"


def test_monitor_mode_asks_nobody(driver):
    """Nothing is held back there."""
    with Guard([transfer()], config={"mode": "monitor", "approvals": {"amounts": AMOUNTS}}) as guard:
        assert driver.call(guard.run("r1"), call(5_000)).status == "ok"


@pytest.mark.parametrize(
    ("amounts", "schema", "said"),
    [
        ([{"tool": "transfr", "field": "amount", "above": 1}], ARGUMENTS, "Did you mean 'transfer'"),
        ([{"tool": "transfer", "field": "amuont", "above": 1}], ARGUMENTS | {"additionalProperties": False}, "amount"),
        ([{"tool": "transfer", "field": "note", "above": 1}], ARGUMENTS, "not as a number"),
        ([{"tool": "transfer", "field": "amount", "above": 1}], ARGUMENTS | {"required": ["to"]}, "may leave out"),
        ([{"tool": "transfer", "field": "amount", "above": -1}], ARGUMENTS, "above"),
        ([{"tool": "transfer", "field": "amount", "above": 1, "approvers": 3}], ARGUMENTS, "approvers"),
        ([{"tool": "transfer", "above": 1}], ARGUMENTS, "field"),
    ],
)
def test_a_misspelt_threshold_never_falls_open(amounts, schema, said):
    """An unknown tool or argument, or an amount nobody can measure, is an error while building."""
    with pytest.raises((ConfigurationError, ContractError), match=said):
        Guard([transfer(schema)], config={"approvals": {"amounts": amounts}})
