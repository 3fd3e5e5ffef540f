"""Handoffs, and agents as tools."""

import contextlib

import pytest
from agents import (
    Agent,
    Handoff,
    handoff,
)
from agents.testing import ScriptedModel, assistant_message
from openai_agents_support import ASKING, QUIET, REFUND, SCRIPT, agent_of, ask, guard_of, made
from pydantic import BaseModel

import pokayoke
from pokayoke.adapters.openai_agents import GuardedRunner, contracts
from pokayoke.runtime.run.run import Run


async def test_agents_that_are_handed_over_to_are_guarded_too():
    """Handoffs in a circle, named by the agent or built with `handoff`: every agent's calls go through the guard."""
    log = []
    tools = made(log)
    desk = agent_of([[ask("transfer_to_cashier")], [assistant_message("never")]], [], name="desk")
    cashier = agent_of(
        [[ask("refund", "{'order': 'A1',}", "c1")], [ask(*REFUND, "c2")], [assistant_message("Done.")]],
        tools,
        name="cashier",
        handoffs=[handoff(desk)],
    )
    desk.handoffs = [cashier]
    result = await GuardedRunner(guard_of(tools)).run(desk, "Refund A1.", run_config=QUIET)
    assert (result.final_output, log) == ("Done.\n\n[Not run a second time: refund.]", ["A1"])
    assert result.last_agent.name == "cashier"


@pytest.mark.parametrize("first", ["refund", "handoff"])
async def test_a_handoff_may_share_its_id_with_a_call(first):
    """The call runs, the other agent takes over, and each is answered under an id of its own."""
    log = []
    tools = made(log)
    other = agent_of([[assistant_message("Over to me.")]], [], name="cashier")
    turn = [ask(*REFUND), ask("transfer_to_cashier")]
    agent = agent_of([turn if first == "refund" else turn[::-1]], tools, handoffs=[other])
    result = await GuardedRunner(guard_of(tools)).run(agent, "Refund A1.", run_config=QUIET)
    assert (result.final_output, log) == ("Over to me.", ["A1"])
    items = result.to_input_list()
    for kind in ("function_call", "function_call_output"):
        assert sorted(one["call_id"] for one in items if one.get("type") == kind) == ["call_1", "call_1_2"]


async def test_an_agent_that_a_handoff_makes_belongs_to_the_run():
    """Its question is asked in the run that began, and answered there: nothing is left to wait."""
    log = []
    tools = made(log)

    async def over(_context, _text):
        return agent_of(SCRIPT, tools, name="cashier")

    by_hand = Handoff("to_cashier", "Hand over.", {}, over, "cashier")
    guard = guard_of(tools, ASKING)
    runner, agent = GuardedRunner(guard), agent_of([[ask("to_cashier")]], tools, handoffs=[by_hand])
    state = (await runner.run(agent, "Refund A1.", run_config=QUIET)).to_state()
    state.approve(state.get_interruptions()[0])
    result = await runner.run(agent, state, run_config=QUIET)
    assert (result.final_output, log) == ("Done.", ["A1"])
    assert [known.status for known in guard.approvals.list(waiting=False)] == ["approved"]


class Reason(BaseModel):
    """What a handoff is told."""

    reason: str
    urgent: bool = False


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{'reason': 'late',}", "late"),
        ('{"reason": "late", "urgent": "true", "more": 1}', "late"),
        ('{"reason": ', "ends between a key and its value"),
        ("{}", "Add `reason`"),
        ("", "there is no text"),
    ],
)
async def test_arguments_of_a_handoff_are_mended_where_that_is_no_guess_and_sent_back_otherwise(text, told):
    """The run does not end over them: the model reads what is wrong, under the name that it wrote."""
    heard = []
    tools = made([])
    other = agent_of([[assistant_message("The cashier.")]], [], name="cashier")
    over = handoff(other, on_handoff=lambda _context, given: heard.append(given.reason), input_type=Reason)
    model = ScriptedModel([[ask("transfer_to_cashier", text)], [assistant_message("Done.")]])
    runner = GuardedRunner(guard_of(tools))
    result = await runner.run(agent_of(model, tools, handoffs=[over]), "Refund A1.", run_config=QUIET)
    if heard:
        assert (heard, result.final_output) == ([told], "The cashier.")
        return
    assert result.final_output == "Done."
    call, answer = model.calls[1].input[-2:]
    assert (call["name"], call["call_id"]) == ("transfer_to_cashier", answer["call_id"])
    assert told in answer["output"]


async def test_a_model_that_cannot_hand_over_loses_its_tools():
    """Arguments that a handoff cannot take count like those of any call: the run ends with an honest answer."""
    tools = made([])
    over = handoff(agent_of([], [], name="cashier"), on_handoff=lambda _context, _given: None, input_type=Reason)
    model = ScriptedModel([[ask("transfer_to_cashier", "{}")]] * 3)
    result = await GuardedRunner(guard_of(tools)).run(agent_of(model, tools, handoffs=[over]), "Go.", run_config=QUIET)
    assert "could not finish" in result.final_output
    assert not model.calls[-1].handoffs


async def test_a_guarded_agent_as_a_tool_has_a_run_of_its_own_and_can_be_interrupted(monkeypatch):
    """The inner agent asks for approval, the outer run is interrupted, and after the yes both end; it runs once."""
    ended, close = set(), Run.close
    monkeypatch.setattr(Run, "close", lambda run: (ended.add(run.id), close(run)))
    log = []
    tools = made(log)
    inner = agent_of(SCRIPT, tools, name="cashier")
    guard = guard_of(tools, ASKING)
    helper = inner.as_tool("cashier", "Refunds.")
    guard.replace([*guard.tools, *contracts([helper], fields={"cashier": {"output_schema": "text"}})])
    runner = GuardedRunner(guard)
    helper = runner.guarded(inner).as_tool("cashier", "Refunds.", run_config=QUIET)
    outer = agent_of([[ask("cashier", '{"input": "A1"}', "o1")], [assistant_message("All done.")]], [helper])
    result = await runner.run(outer, "Refund A1.", run_config=QUIET)
    assert not ended
    assert [item.tool_name for item in result.interruptions] == ["refund"]
    state = result.to_state()
    state.approve(state.get_interruptions()[0])
    result = await runner.run(outer, state, run_config=QUIET)
    assert (result.final_output, log) == ("All done.", ["A1"])
    assert len(ended) == 2


async def test_an_agent_as_a_tool_that_would_write_past_the_guard_is_refused():
    """It is said with the way to do it; an agent that can only speak needs none."""
    tools = made([])
    inner = agent_of(SCRIPT, tools, name="cashier")
    teller = Agent(name="teller", model=ScriptedModel([[assistant_message("Hello.")]]))
    for one, match in ((inner, r"runner.guarded\(agent\).as_tool"), (teller, None)):
        helper = one.as_tool("helper", "Helps.")
        runner = GuardedRunner(guard_of([*tools, helper]))
        outer = agent_of([[ask("helper", '{"input": "A1"}')], [assistant_message("All done.")]], [helper])
        expected = pytest.raises(pokayoke.errors.UsageError, match=match) if match else contextlib.nullcontext()
        with expected:
            assert (await runner.run(outer, "Go.", run_config=QUIET)).final_output == "All done."
