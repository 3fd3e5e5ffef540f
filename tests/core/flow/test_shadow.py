"""Two versions judge one call: what they agree on is silent, what they differ in is named."""

import msgspec
import pytest
from msgspec import UNSET

from pokayoke.core.call import ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.terms import Envelope
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.plan import build_snapshot
from pokayoke.core.flow.repetition import CallerView
from pokayoke.core.flow.shadow import shadow_event
from pokayoke.core.gate.rules import Principal
from pokayoke.core.output.last_known_good import LastKnownGood
from pokayoke.core.policy import Policy
from pokayoke.core.state.loop_guard import TurnHistory
from pokayoke.core.state.run_state import RunState
from pokayoke.runtime.memory.seen_answers import SeenAnswers

N, S = {"type": "number"}, {"type": "string"}


def obj(**properties):
    """A closed object schema whose fields are all required."""
    return {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False,
    }  # fmt: skip


class View:
    """A run in which everything has happened already, which is no business of a shadow."""

    def __init__(self):
        self.state, self.rounds = RunState("r", mode="stopped"), TurnHistory()
        for _ in range(9):
            self.rounds.repeats.add_failure("pay", "x")


def event(stable, candidate, raw=UNSET, arguments='{"a": 1}', policy=None, principal=None):
    """The event of one call under two versions that are given by their fields."""
    base = {"name": "pay", "input_schema": obj(a=N), "output_schema": obj(r=N), "effect": "read"}
    policy = policy or Policy()
    force = build_snapshot([Contract(**{**base, **stable})], policy)
    beside = build_snapshot([Contract(**{**base, "version": "2", **candidate})], policy)
    scene = CallEnvironment(
        snapshot=force, view=View(), run_id="r", claimant=None, tenant=None, principal=principal, step=3,
        now=1.5, last_good=LastKnownGood(), asks=False, caller=CallerView(SeenAnswers()), meter=None,
    )  # fmt: skip
    return shadow_event(ToolCall("c", "pay", arguments), scene, force.find_plan("pay"), beside, raw)


def test_agreement_is_one_short_line():
    """Where both say the same, the event says that and no more, whatever state the run is in."""
    assert event({}, {}, {"r": 1}) == {
        "ts": 1.5, "run_id": "r", "step": 3, "event": "shadow", "tool": "pay", "ok": True, "call_id": "c",
        "contract": "pay@1", "candidate": "pay@2",
    }  # fmt: skip


def one(value):
    """A corrector of a user."""
    return 1


def two(value):
    """Another one."""
    return 2


def fail(value):
    """A corrector that breaks."""
    raise RuntimeError


@pytest.mark.parametrize(
    ("stable", "candidate", "raw", "reason"),
    [
        ({}, {"input_schema": obj(a=S)}, UNSET, "arguments: not the same"),
        ({}, {"input_schema": obj(a={"type": "boolean"})}, UNSET, "call: allow -> wrong_type at /a"),
        ({"input_schema": obj(b=N)}, {}, UNSET, "call: missing_field at /b -> allow"),
        (
            {"input_schema": obj(b=N)},
            {"input_schema": obj(c=N)},
            UNSET,
            "call: missing_field at /b -> missing_field at /c",
        ),
        ({}, {"output_schema": obj(r=S)}, {"r": 1}, "output: valid -> wrong_type at /r"),
        ({"output_schema": obj(r=S)}, {}, {"r": 1}, "output: wrong_type at /r -> valid"),
        ({}, {"envelope": Envelope(ok="/ok", data="/d"), "output_schema": obj(r=N)}, {"r": 1}, "output: valid -> "),
        (
            {"output_schema": {}},
            {"envelope": Envelope(ok="/ok", data="/d"), "output_schema": {}},
            {"ok": True, "d": {"r": 1}},
            "value: not the same",
        ),
        ({}, {"roles": ("boss",)}, {"r": 1}, "call: allow -> permission_denied"),
    ],
)
def test_each_difference_is_named(stable, candidate, raw, reason):
    """The event says in what the versions differ, how, and what the candidate has found."""
    found = event(stable, candidate, raw)
    assert found["ok"] is False
    assert found["reason"].startswith(reason)
    assert found["differs"] == (reason.partition(":")[0],)


@pytest.mark.parametrize(
    ("stable", "candidate", "reason"),
    [
        (one, two, "arguments: not the same"),
        (one, fail, "call: allow -> "),
    ],
)
def test_code_of_both_versions_runs(stable, candidate, reason):
    """Correctors of users run for the shadow, too; one that raises costs its version the call."""
    found = event({"correctors": {"a": stable}}, {"correctors": {"a": candidate}}, {"r": 1}, '{"a": "many"}')
    assert found["reason"].startswith(reason)


def test_a_validator_that_raises_is_a_finding():
    """A candidate whose model breaks refuses the call in its own eyes; nobody else sees an exception."""
    found = event({}, {"validate_input": fail}, {"r": 1})
    assert found["reason"] == "call: allow -> corrector_failed"


def test_two_differences_are_two():
    """Other arguments and another verdict about the answer are both told."""
    stable, candidate = {"correctors": {"a": one}}, {"correctors": {"a": two}, "output_schema": obj(r=S)}
    found = event(stable, candidate, {"r": 1}, '{"a": "many"}')
    assert found["differs"] == ("arguments", "output")
    assert found["findings"][0].code == "wrong_type"


def test_a_declared_failure_is_no_difference():
    """Where the tool itself says that it failed, both versions hear it; one that does not, differs."""
    wrapped = {"envelope": Envelope(ok="/ok", data="/d", error="/e"), "output_schema": {}}
    said = {"ok": False, "e": "no such order"}
    assert event(wrapped, wrapped, said)["ok"] is True
    assert event(wrapped, {"output_schema": {}}, said)["reason"].startswith("output: failed -> ")


def test_monitor_mode_shows_what_would_be_refused():
    """In monitor mode, which refuses nothing, the difference is told all the same."""
    found = event({}, {"input_schema": obj(b=N)}, {"r": 1}, policy=Policy(mode="monitor"))
    assert found["reason"] == "call: allow -> missing_field at /b"


def test_who_calls_is_the_same_for_both():
    """A role that both versions want is no difference, and a marked field is handed on as marked."""
    boss = Principal("mo", ("boss",))
    assert event({"roles": ("boss",)}, {"roles": ("boss",)}, {"r": 1}, principal=boss)["ok"] is True
    found = event({"redact": ("r",)}, {"redact": ("q",), "output_schema": obj(r=S)}, {"r": 1})
    assert found["marks"] == ("r", "q")
    assert msgspec.json.encode(found)
