"""A run in somebody else's loop: what every adapter of a framework stands on."""

import pytest

import pokayoke
from pokayoke.adapters.hosted import Described, Hosted, Runs, contracts
from pokayoke.core.steps import NotBegun

KEY = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}


@pytest.mark.parametrize(
    ("more", "closed"),
    [
        ({}, True),
        ({"additionalProperties": True}, False),
        ({"patternProperties": {"^x": {}}}, False),
        ({"allOf": [{"properties": {"more": {}}}]}, False),
    ],
)
def test_a_schema_that_names_its_properties_is_closed(more, closed):
    """A key the tool does not name is refused unless the schema says that there may be others."""
    made = contracts([Described("get", "Get.", {**KEY, **more})])
    assert (made[0].input_schema.get("additionalProperties") is False) is closed


def test_a_schema_without_properties_stays_open():
    """An object of which nothing is said may hold anything."""
    assert "additionalProperties" not in contracts([Described("get", "Get.", {"type": "object"})])[0].input_schema


class ParkedError(Exception):
    """What a framework raises to come back later."""


def parked(arguments):
    """Come back later."""
    raise ParkedError(arguments["key"])


def again(arguments):
    """Ask the model for another try."""
    raise NotBegun("asked for another try", blame="tool")


def test_what_a_framework_steers_by_is_no_failure():
    """It is raised once the call is settled, the tool is not started again, and the model has failed in nothing."""
    guard = pokayoke.Guard(contracts([Described("put", "Put.", KEY)]))
    hosted = Hosted(guard.run("r"), through=(ParkedError,))
    for number in range(5):
        with pytest.raises(ParkedError, match="a"):
            hosted.call(pokayoke.ToolCall(f"call_{number}", "put", {"key": f"a{number}"}), parked)
        assert not hosted.before().final
    outcome = hosted.call(pokayoke.ToolCall("call_9", "put", {"key": "a0"}), lambda arguments: arguments)
    assert outcome.status == "ok"
    assert outcome.effect == "done"


async def test_what_a_framework_steers_by_is_no_failure_for_those_who_await():
    """The same for asynchronous code."""
    hosted = Hosted(pokayoke.Guard(contracts([Described("put", "Put.", KEY)])).run("r"), through=(ParkedError,))
    for number in range(5):
        with pytest.raises(ParkedError, match="a"):
            await hosted.acall(pokayoke.ToolCall(f"call_{number}", "put", {"key": f"a{number}"}), parked)
        assert not hosted.before().final


def test_a_tool_that_asks_for_another_try_did_nothing_and_counts():
    """Its write is not in doubt, it is not started again by itself, and the second in a row takes the tools away."""
    hosted = Hosted(pokayoke.Guard(contracts([Described("put", "Put.", KEY)])).run("r"))
    for number in range(2):
        outcome = hosted.call(pokayoke.ToolCall(f"call_{number}", "put", {"key": "a"}), again)
        assert (outcome.status, outcome.effect, outcome.attempts) == ("failed", "none", 1)
        final = hosted.before().final
        assert final == (number == 1)


def test_several_loops_of_one_run_are_told_apart_and_share_its_ledger():
    """A sub-agent has its own ids and notes, and a write of one loop is not repeated by another."""
    runs = Runs(pokayoke.Guard(contracts([Described("put", "Put.", KEY)])))
    outer, inner = runs.of("r"), runs.of("r", part="sub")
    assert outer is runs.of("r")
    assert inner is not outer
    outer.notes["seen"] = 1
    assert not inner.notes
    call = pokayoke.ToolCall("call_1", "put", {"key": "a"})
    assert [hosted.call(call, lambda arguments: "put").status for hosted in (outer, inner)] == ["ok", "replayed"]
    runs.close("r", part="sub")
    assert runs.of("r", part="sub") is not inner
    assert runs.of("r") is outer
