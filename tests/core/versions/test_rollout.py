"""Which run gets which version: drawn from the run's id alone, and then fixed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.call import ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.outcomes import NOT_RUN, ending_from_record
from pokayoke.core.flow.plan import build_snapshot
from pokayoke.core.flow.states import PreparedCall
from pokayoke.core.gate.rules import Principal, as_principal, stop_reason_for
from pokayoke.core.ledger.records import Record
from pokayoke.core.policy import Policy
from pokayoke.core.state.run_state import RunState
from pokayoke.core.versions.lock import Candidate, ContractLock, ToolLock, Version
from pokayoke.core.versions.rollout import (
    NOT_OFFERED,
    draw_number,
    pin_versions,
    version_for,
    versions_for,
    withdrawn_finding,
)

VERSIONS = {version: Version(f"sha256:{version}", "c.yaml") for version in ("1", "2")}


def tool(stable="1", share=0.0, stage="canary", rollout="r2"):
    """A tool whose version 2 is tried."""
    candidate = Candidate("2", stage, share, rollout) if share or stage == "shadow" else None
    return ToolLock(stable, VERSIONS, candidate)


def test_the_share_is_kept():
    """Of 20,000 runs, a tenth gets the canary, give or take four standard deviations."""
    given_ = [version_for(f"run-{number}", "refund", tool(share=0.1)) for number in range(20_000)]
    assert abs(given_.count("2") - 2_000) < 4 * (20_000 * 0.1 * 0.9) ** 0.5


def test_a_draw_is_one_number_for_ever():
    """The draw depends on nothing but its three names: this is what every other process and machine computes."""
    assert draw_number("run-1", "refund", "r2") == 0.8293495585491407
    assert (
        draw_number("run-1", "refund", "r3")
        != draw_number("run-1", "refund", "r2")
        != draw_number("run-1", "charge", "r2")
    )


@given(st.text(max_size=20), st.floats(0.001, 1.0), st.floats(0.001, 1.0))
def test_widening_takes_the_canary_from_nobody(run, one, other):
    """Whoever has the canary at a share has it at every larger share of the same rollout."""
    small, large = sorted((one, other))
    if version_for(run, "refund", tool(share=small)) == "2":
        assert version_for(run, "refund", tool(share=large)) == "2"


@given(st.text(max_size=20))
def test_the_ends_of_the_scale(run):
    """A share of 1 is everybody; a shadow, or no candidate, is nobody."""
    assert version_for(run, "refund", tool(share=1.0)) == "2"
    assert version_for(run, "refund", tool(stage="shadow")) == "1"
    assert version_for(run, "refund", tool()) == "1"


def test_a_new_tool_is_offered_to_a_share_only():
    """Without a stable version, a run gets the canary or no tool of that name."""
    found = {version_for(f"run-{number}", "refund", tool(stable=None, share=0.5)) for number in range(100)}
    assert found == {"2", NOT_OFFERED}


def test_only_what_is_locked_is_given_out():
    """A tool that the lock does not know has no version to draw."""
    assert versions_for("r", ContractLock(tools={"refund": tool()}), ["refund", "other"]) == {"refund": "1"}


def test_a_pin_holds():
    """What a run was pinned to stays; only tools it has not met before are added."""
    state = pin_versions(RunState("r"), {"refund": "1"})
    later = pin_versions(state, {"refund": "2", "charge": NOT_OFFERED})
    assert later.versions == (("charge", ""), ("refund", "1"))
    assert pin_versions(later, {"refund": "2"}) is later


def test_a_withdrawn_version_is_named_to_people_and_not_to_the_model():
    """The message says which version; the hint says what to do, and nothing about versions."""
    found = withdrawn_finding("refund", "2")
    assert "refund@2" in found.message
    assert "2" not in found.hint
    assert stop_reason_for(found) == "permission_denied"


def test_a_withdrawn_contract_keeps_its_name_and_has_no_plan():
    """A snapshot answers for a withdrawn version with the reason, under every spelling of its name."""
    force = build_snapshot([Contract(name="get_order", version="2")], Policy(), withdrawn={"get_order@2"})
    for spelling in ("get_order", "getOrder"):
        assert (force.find_plan(spelling).code, force.is_offered(spelling, None)) == ("version_withdrawn", False)
    assert (force.plans, force.simple) == ({}, {})


@pytest.mark.parametrize(
    ("promise", "recorded", "value"),
    [
        ({"type": "number"}, b"9.5", 9.5),
        ({"type": "string"}, b"9.5", None),
        ("text", b'"paid"', "paid"),
        ("text", b"9.5", None),
        (None, b"9.5", 9.5),
    ],
)
def test_a_recorded_result_is_read_by_who_can(promise, recorded, value):
    """What another version recorded is handed on if it fits this one's promise, and withheld otherwise."""
    plan = build_snapshot([Contract(name="pay", version="2", output_schema=promise)], Policy()).plans["pay@2"]
    record = Record("k", "h", "completed", 1, "c", 0.0, "pay", "pay@1", "r", 0.0, settled_at=1.0, output=recorded)
    ending = ending_from_record(PreparedCall(ToolCall("c", "pay", "{}"), plan), record, plan, NOT_RUN)
    outcome = ending.outcome
    assert (outcome.status, outcome.value, outcome.effect) == ("replayed", value, "done")
    assert ("does not fit pay@2" in outcome.message) is (value is None)


@pytest.mark.parametrize(
    ("given_", "found"),
    [
        (None, None),
        ("mo", Principal("mo")),
        ({"id": 7, "roles": ["a"]}, Principal("7", ("a",))),
        (Principal("x"), Principal("x")),
    ],
)
def test_who_acts_may_be_said_in_three_ways(given_, found):
    """A principal is an id, a mapping, or itself."""
    assert as_principal(given_) == found
