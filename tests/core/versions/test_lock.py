"""The lock: every operation is a pure function, leaves an entry, and refuses what makes no sense."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.contract.contract import Contract
from pokayoke.core.versions import lock as locking
from pokayoke.core.versions.lock import (
    ContractLock,
    StepReason,
    ToolLock,
    describe_versions,
    lock_problem,
    promise_digest,
)
from pokayoke.errors import ConfigurationError, ContractError

NOTE = StepReason("2026-11-21T08:00:00Z", "mo", "because")


def contract(version="1", name="get_order", **fields):
    """A version of a tool, which says in its description what it is."""
    schema = {"type": "object", "properties": {"id": {"type": "string"}}}
    return Contract.from_schema(name, schema, version=version, effect="read", description=f"v{version}", **fields)


def known(*versions, stable="1"):
    """A lock that knows these versions of get_order."""
    lock = ContractLock()
    for version in versions:
        lock = locking.add_version(lock, contract(version), "contracts.yaml", NOTE, stable=version == stable)
    return lock


def steps(lock):
    """What the history says, without who, when and why."""
    return [(one.step, one.version, one.before, one.after) for one in lock.history]


def test_the_first_version_is_stable():
    """The first version of a tool that is locked is in force at once; a second one is only known."""
    lock = known("1", "2")
    assert describe_versions(lock.tools["get_order"]) == "1"
    assert sorted(lock.tools["get_order"].versions) == ["1", "2"]
    assert steps(lock) == [("lock", "1", "nothing", "1"), ("lock", "2", "1", "1")]


def test_a_new_tool_may_wait():
    """A tool that is locked without being put in force is offered to nobody."""
    lock = locking.add_version(ContractLock(), contract(), "c.yaml", NOTE, stable=False)
    assert (describe_versions(lock.tools["get_order"]), lock.tools["get_order"].in_force) == ("none", ())


def test_the_same_promise_again_changes_nothing():
    """Locking what is locked leaves the lock as it is, without a line of history."""
    lock = known("1")
    assert locking.add_version(lock, contract("1"), "contracts.yaml", NOTE, stable=True) is lock


def test_a_promise_may_move_to_another_file():
    """A version that stands in another file now is the same version; the move is recorded."""
    lock = locking.add_version(known("1"), contract("1"), "v1.yaml", NOTE, stable=True)
    assert lock.tools["get_order"].versions["1"].source == "v1.yaml"
    assert len(lock.history) == 2


def test_a_changed_promise_needs_a_new_version():
    """What is locked under a version cannot promise something else later."""
    with pytest.raises(ContractError, match=r"get_order@1 in contracts\.yaml is not what is locked .* a new version"):
        locking.add_version(known("1"), contract("1", max_chars=7), "contracts.yaml", NOTE, stable=True)


def test_the_whole_way():
    """Shadow, canary, wider, promoted: each step is possible after the one before, and each is recorded."""
    lock = known("1", "2")
    lock = locking.start_shadow(lock, "get_order", "2", NOTE)
    assert lock.tools["get_order"].in_force == ("1", "2")
    lock = locking.start_canary(lock, "get_order", "2", 0.005, NOTE)
    lock = locking.widen_canary(lock, "get_order", 0.5, NOTE)
    lock = locking.promote_candidate(lock, "get_order", NOTE)
    assert steps(lock)[2:] == [
        ("shadow", "2", "1", "1, and 2 as shadow"),
        ("canary", "2", "1, and 2 as shadow", "1, and 2 as canary for 0.5 %"),
        ("widen", "2", "1, and 2 as canary for 0.5 %", "1, and 2 as canary for 50 %"),
        ("promote", "2", "1, and 2 as canary for 50 %", "2"),
    ]
    assert [one.revision for one in lock.history] == [1, 2, 3, 4, 5, 6]
    assert {(one.at, one.by, one.reason) for one in lock.history} == {(NOTE.at, "mo", "because")}


def test_widening_keeps_the_draw():
    """A wider canary is the same attempt, so nobody who had it loses it; a new canary draws anew."""
    lock = locking.start_canary(known("1", "2"), "get_order", "2", 0.1, NOTE)
    first = lock.tools["get_order"].candidate.rollout
    wider = locking.widen_canary(lock, "get_order", 0.2, NOTE)
    assert wider.tools["get_order"].candidate.rollout == first
    again = locking.start_canary(locking.roll_back(wider, "get_order", NOTE), "get_order", "2", 0.1, NOTE)
    assert again.tools["get_order"].candidate.rollout != first


def test_a_canary_rolled_back_is_withdrawn():
    """Rolling a canary back leaves the stable version, and marks the canary for the runs that have it."""
    lock = locking.roll_back(locking.start_canary(known("1", "2"), "get_order", "2", 0.1, NOTE), "get_order", NOTE)
    tool = lock.tools["get_order"]
    assert (tool.stable, tool.candidate, tool.withdrawn) == ("1", None, ("2",))


def test_a_shadow_rolled_back_was_used_by_nobody():
    """Ending a shadow withdraws nothing: no run has used it."""
    lock = locking.roll_back(locking.start_shadow(known("1", "2"), "get_order", "2", NOTE), "get_order", NOTE)
    assert (lock.tools["get_order"].candidate, lock.tools["get_order"].withdrawn) == (None, ())


def test_a_promotion_can_be_rolled_back_step_by_step():
    """Two promotions are two steps back, the latest first; then there is nothing left."""
    lock = known("1", "2", "3")
    for version in ("2", "3"):
        lock = locking.promote_candidate(locking.start_canary(lock, "get_order", version, 1.0, NOTE), "get_order", NOTE)
    lock = locking.roll_back(lock, "get_order", NOTE)
    assert (lock.tools["get_order"].stable, lock.tools["get_order"].withdrawn) == ("2", ("3",))
    lock = locking.roll_back(lock, "get_order", NOTE)
    assert (lock.tools["get_order"].stable, lock.tools["get_order"].withdrawn) == ("1", ("3", "2"))
    with pytest.raises(ConfigurationError, match="nothing to roll back"):
        locking.roll_back(lock, "get_order", NOTE)


def test_what_is_in_force_again_is_not_withdrawn():
    """A version that is tried or stable again after a roll-back may be called by those who began with it."""
    lock = locking.roll_back(locking.start_canary(known("1", "2"), "get_order", "2", 0.1, NOTE), "get_order", NOTE)
    assert locking.start_canary(lock, "get_order", "2", 0.2, NOTE).tools["get_order"].withdrawn == ()
    lock = locking.promote_candidate(
        locking.start_canary(known("1", "2"), "get_order", "2", 1.0, NOTE), "get_order", NOTE
    )
    lock = locking.roll_back(locking.start_canary(lock, "get_order", "1", 0.5, NOTE), "get_order", NOTE)
    assert lock.tools["get_order"].withdrawn == ("1",)
    lock = locking.roll_back(lock, "get_order", NOTE)
    assert (lock.tools["get_order"].stable, lock.tools["get_order"].withdrawn) == ("1", ("2",))


def test_a_new_tool_for_a_share():
    """A tool without a stable version is offered to a share, promoted like any other, and has no way back before."""
    lock = locking.start_canary(known("1", stable=None), "get_order", "1", 0.25, NOTE)
    assert describe_versions(lock.tools["get_order"]) == "none, and 1 as canary for 25 %"
    assert locking.promote_candidate(lock, "get_order", NOTE).tools["get_order"].previous == ()
    with pytest.raises(ConfigurationError, match="nothing to roll back"):
        locking.roll_back(locking.promote_candidate(lock, "get_order", NOTE), "get_order", NOTE)


CANARY = locking.start_canary(known("1", "2", "3"), "get_order", "2", 0.1, NOTE)
SHADOW = locking.start_shadow(known("1", "2", "3"), "get_order", "2", NOTE)


@pytest.mark.parametrize(
    ("lock", "step", "words"),
    [
        (
            ContractLock(),
            lambda lock: locking.start_canary(lock, "get_order", "2", 0.1, NOTE),
            "no tool 'get_order' is locked",
        ),
        (known("1"), lambda lock: locking.start_canary(lock, "get_order", "2", 0.1, NOTE), "get_order@2 is not locked"),
        (
            known("1"),
            lambda lock: locking.start_canary(lock, "get_order", "1", 0.1, NOTE),
            "is the stable version already",
        ),
        (
            CANARY,
            lambda lock: locking.start_canary(lock, "get_order", "2", 0.2, NOTE),
            "a canary for 10 % already.*widen",
        ),
        (
            CANARY,
            lambda lock: locking.start_canary(lock, "get_order", "3", 0.2, NOTE),
            "@2 is tried as canary: promote",
        ),
        (
            CANARY,
            lambda lock: locking.start_shadow(lock, "get_order", "2", NOTE),
            "is used by runs: roll it back first",
        ),
        (SHADOW, lambda lock: locking.start_shadow(lock, "get_order", "2", NOTE), "is a shadow already"),
        (SHADOW, lambda lock: locking.start_shadow(lock, "get_order", "3", NOTE), "@2 is tried as shadow"),
        (known("1", stable=None), lambda lock: locking.start_shadow(lock, "get_order", "1", NOTE), "no stable version"),
        (
            known("1", "2"),
            lambda lock: locking.start_canary(lock, "get_order", "2", 0.0, NOTE),
            "above 0 and is at most 1",
        ),
        (known("1", "2"), lambda lock: locking.start_canary(lock, "get_order", "2", 10, NOTE), "0.1 is a tenth"),
        (known("1", "2"), lambda lock: locking.widen_canary(lock, "get_order", 0.5, NOTE), "has no canary to widen"),
        (SHADOW, lambda lock: locking.widen_canary(lock, "get_order", 0.5, NOTE), "has no canary to widen"),
        (CANARY, lambda lock: locking.widen_canary(lock, "get_order", 0.1, NOTE), "10 % is not more"),
        (CANARY, lambda lock: locking.widen_canary(lock, "get_order", 0.05, NOTE), "5 % is not more"),
        (CANARY, lambda lock: locking.widen_canary(lock, "get_order", 1.5, NOTE), "at most 1"),
        (known("1", "2"), lambda lock: locking.promote_candidate(lock, "get_order", NOTE), "no candidate to promote"),
        (SHADOW, lambda lock: locking.promote_candidate(lock, "get_order", NOTE), "no run has used yet"),
        (known("1", "2"), lambda lock: locking.roll_back(lock, "get_order", NOTE), "nothing to roll back"),
        (known("1"), lambda lock: locking.drop_version(lock, "get_order", "1", NOTE), "is in force"),
        (CANARY, lambda lock: locking.drop_version(lock, "get_order", "2", NOTE), "is in force"),
        (known("1"), lambda lock: locking.drop_version(lock, "get_order", "9", NOTE), "is not locked"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(lock, step, words):
    """A step that cannot be meant is refused with a sentence that says how things stand, or what to do instead."""
    with pytest.raises(ConfigurationError, match=words):
        step(lock)


def test_a_shadow_is_promoted_only_on_purpose():
    """A version that no run has used becomes stable only if somebody says that they know it."""
    assert locking.promote_candidate(SHADOW, "get_order", NOTE, unseen=True).tools["get_order"].stable == "2"


def test_a_version_can_be_forgotten():
    """A version that is not in force can be dropped, from everywhere; the last one takes its tool along."""
    lock = locking.promote_candidate(CANARY, "get_order", NOTE)
    lock = locking.drop_version(locking.drop_version(lock, "get_order", "1", NOTE), "get_order", "3", NOTE)
    tool = lock.tools["get_order"]
    assert (tool.stable, sorted(tool.versions), tool.previous) == ("2", ["2"], ())
    waiting = locking.add_version(ContractLock(), contract(), "c.yaml", NOTE, stable=False)
    gone = locking.drop_version(waiting, "get_order", "1", NOTE)
    assert (gone.tools, gone.history[-1].after) == ({}, "nothing")


def test_what_a_dropped_version_promised_stays_fixed():
    """A version that was dropped can be locked again as what it was and stays withdrawn; as nothing else, ever."""
    lock = locking.roll_back(locking.start_canary(known("1", "2"), "get_order", "2", 0.1, NOTE), "get_order", NOTE)
    lock = locking.drop_version(lock, "get_order", "2", NOTE)
    with pytest.raises(ContractError, match=r"get_order@2 in c\.yaml is not what was locked under that version"):
        locking.add_version(lock, contract("2", max_chars=7), "c.yaml", NOTE, stable=False)
    again = locking.add_version(lock, contract("2"), "c.yaml", NOTE, stable=False)
    assert again.tools["get_order"].withdrawn == ("2",)
    alone = locking.add_version(ContractLock(), contract(), "c.yaml", NOTE, stable=False)
    gone = locking.drop_version(alone, "get_order", "1", NOTE)
    with pytest.raises(ContractError, match="is not what was locked"):
        locking.add_version(gone, contract(max_chars=7), "c.yaml", NOTE, stable=True)
    assert locking.add_version(gone, contract(), "c.yaml", NOTE, stable=True).tools["get_order"].stable == "1"


def test_the_digest_is_of_the_promise():
    """Spelling, order, name, version and code are no part of a promise; everything declared is."""
    plain = Contract.from_mapping({"name": "a", "input_schema": {"type": "object", "properties": {}}, "timeout": 1})
    other = Contract.from_mapping(
        {"timeout": 1.0, "version": "9", "input_schema": {"properties": {}, "type": "object"}, "name": "b"},
        handler=lambda: None,
    )
    assert promise_digest(plain) == promise_digest(other)
    for changed in ({"timeout": 2}, {"effect": "read"}, {"approval": True}, {"output_schema": "text"}):
        fields = {"name": "a", "input_schema": {"type": "object", "properties": {}}, "timeout": 1, **changed}
        assert promise_digest(Contract.from_mapping(fields)) != promise_digest(plain), changed


@given(st.lists(st.sampled_from(["shadow", "canary", "widen", "promote", "rollback", "drop"]), max_size=12), st.data())
def test_no_sequence_of_steps_loses_a_version(chosen, data):
    """After any steps, what is in force is known, never withdrawn, and as many lines as steps were written."""
    lock = known("1", "2", "3")
    done = len(lock.history)
    for step in chosen:
        version = data.draw(st.sampled_from(["1", "2", "3"]))
        share = data.draw(st.sampled_from([0.1, 0.5, 1.0]))
        try:
            lock = {
                "shadow": lambda lock, version=version: locking.start_shadow(lock, "get_order", version, NOTE),
                "canary": lambda lock, version=version, share=share: locking.start_canary(
                    lock, "get_order", version, share, NOTE
                ),
                "widen": lambda lock, share=share: locking.widen_canary(lock, "get_order", share, NOTE),
                "promote": lambda lock: locking.promote_candidate(lock, "get_order", NOTE),
                "rollback": lambda lock: locking.roll_back(lock, "get_order", NOTE),
                "drop": lambda lock, version=version: locking.drop_version(lock, "get_order", version, NOTE),
            }[step](lock)
        except ConfigurationError:
            continue
        done += 1
        tool = lock.tools["get_order"]
        assert set(tool.in_force) <= tool.versions.keys()
        assert not set(tool.in_force) & set(tool.withdrawn)
        assert set(tool.previous) <= tool.versions.keys()
        assert tool.stable not in tool.previous
        assert lock_problem("get_order", tool) is None
    assert lock.revision == len(lock.history) == done


def test_a_lock_survives_its_file():
    """What is written down is read back as the same value."""
    for lock in (CANARY, locking.drop_version(CANARY, "get_order", "3", NOTE)):
        assert msgspec.json.decode(msgspec.json.encode(lock), type=ContractLock) == lock
    assert isinstance(CANARY.tools["get_order"], ToolLock)
