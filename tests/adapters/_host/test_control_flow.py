"""Exceptions by which a framework steers itself, and tools that do not start."""

import pytest

import pokayoke
from pokayoke.adapters._host.contracts import ToolDescription, build_contracts
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.core.flow.steps import ToolNotStarted

KEY = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}


class ParkedError(Exception):
    """What a framework raises to come back later."""


def parked(arguments):
    """Come back later."""
    raise ParkedError(arguments["key"])


def again(arguments):
    """Ask the model for another try."""
    raise ToolNotStarted("asked for another try", blame="tool")


def test_what_a_framework_steers_by_is_no_failure():
    """It is raised once the call is settled, the tool is not started again, and the model has failed in nothing."""
    guard = pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)]))
    hosted = AdapterRun(guard.run("r"), through=(ParkedError,))
    for number in range(5):
        with pytest.raises(ParkedError, match="a"):
            hosted.call(pokayoke.ToolCall(f"call_{number}", "put", {"key": f"a{number}"}), parked)
        assert not hosted.begin_request().final
    outcome = hosted.call(pokayoke.ToolCall("call_9", "put", {"key": "a0"}), lambda arguments: arguments)
    assert outcome.status == "ok"
    assert outcome.effect == "done"


async def test_what_a_framework_steers_by_is_no_failure_for_those_who_await():
    """The same for asynchronous code."""
    hosted = AdapterRun(
        pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])).run("r"), through=(ParkedError,)
    )
    for number in range(5):
        with pytest.raises(ParkedError, match="a"):
            await hosted.acall(pokayoke.ToolCall(f"call_{number}", "put", {"key": f"a{number}"}), parked)
        assert not hosted.begin_request().final


def test_a_tool_that_asks_for_another_try_did_nothing_and_counts():
    """Its write is not in doubt, it is not started again by itself, and the second in a row takes the tools away."""
    hosted = AdapterRun(pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])).run("r"))
    for number in range(2):
        outcome = hosted.call(pokayoke.ToolCall(f"call_{number}", "put", {"key": "a"}), again)
        assert (outcome.status, outcome.effect, outcome.attempts) == ("failed", "none", 1)
        final = hosted.begin_request().final
        assert final == (number == 1)


@pytest.mark.parametrize(("blame", "counts"), [("model", True), ("policy", True), ("host", False)])
def test_what_a_framework_does_not_begin_counts_unless_it_is_the_hosts_doing(blame, counts):
    """A model that goes on sending what the framework's own rules turn away loses its tools."""
    hosted = AdapterRun(pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])).run("r"))

    def turned_away(arguments):
        raise ToolNotStarted("not like this", blame=blame)

    for number in range(2):
        outcome = hosted.call(pokayoke.ToolCall(f"call_{number}", "put", {"key": f"a{number}"}), turned_away)
        assert (outcome.status, outcome.effect) == ("failed", "none")
        final = hosted.begin_request().final
    assert final is counts
