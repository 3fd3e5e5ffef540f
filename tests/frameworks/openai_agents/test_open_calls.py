"""Calls of a history that nobody answered: what the model reads of them."""

import pytest
from agents import Runner, SQLiteSession
from agents.testing import ScriptedModel, assistant_message
from openai_agents_support import QUIET, REFUND, SCRIPT, agent_of, guard_of, made

from pokayoke.adapters.openai_agents import GuardedRunner
from pokayoke.core.context.groups import UNANSWERED

USER, LATER = ({"role": "user", "content": text} for text in ("Refund A1.", "Hello?"))
OPEN = {"type": "function_call", "call_id": "call_1", "name": REFUND[0], "arguments": REFUND[1]}
RESULT = {"type": "function_call_output", "call_id": "call_0", "output": "A0 is open"}


def outputs(items):
    return {one["call_id"]: one["output"] for one in items if one.get("type") == "function_call_output"}


async def test_the_sdk_alone_sends_the_open_call_of_a_given_history():
    """It drops such calls of its own runs only; a provider refuses the request."""
    model = ScriptedModel([[assistant_message("Hello.")]])
    await Runner.run(agent_of(model, made([])), [USER, OPEN, LATER], run_config=QUIET)
    assert model.calls[0].input == [USER, OPEN, LATER]


@pytest.mark.parametrize("frame", ["history", "wire"])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("done", [False, True])
async def test_an_open_call_is_sent_with_what_the_ledger_knows(done, streamed, frame):
    """A write that is done reads so, one without a record that nothing is known; nothing runs, the caller's list stays."""
    log = []
    tools = made(log)
    runner = GuardedRunner(guard_of(tools), frame=frame)
    if done:
        await runner.run(agent_of(SCRIPT, tools), "Refund A1.", run_config=QUIET, run_id="r")
    before, model = [*log], ScriptedModel([[assistant_message("Hello.")]])
    history = [USER, OPEN, LATER]
    if streamed:
        async for _ in runner.run_streamed(
            agent_of(model, tools), history, run_config=QUIET, run_id="r"
        ).stream_events():
            pass
    else:
        await runner.run(agent_of(model, tools), history, run_config=QUIET, run_id="r")
    (text,) = outputs(model.calls[0].input).values()
    assert [one.get("type", "message") for one in model.calls[0].input][1:3] == [
        "function_call",
        "function_call_output",
    ]
    assert text.startswith("Not run again: refund already ran at ") if done else text == UNANSWERED
    assert (log, history) == (before, [USER, OPEN, LATER])


async def test_the_sdk_drops_the_open_call_of_a_session(tmp_path):
    """A process that died leaves it there, and the guard sees a request without it."""
    tools, session = made([]), SQLiteSession("s", tmp_path / "s.db")
    runner = GuardedRunner(guard_of(tools))
    await session.add_items([USER, OPEN])
    model = ScriptedModel([[assistant_message("Hello.")]])
    await runner.run(agent_of(model, tools), "Hello?", run_config=QUIET, session=session)
    assert all(one.get("call_id") is None for one in model.calls[0].input)
    session.close()


async def test_results_whose_calls_a_server_keeps_stay():
    """The items of such a request are the end of a history, so nothing in them is mended."""
    tools, model = made([]), ScriptedModel([[assistant_message("Hello.")]])
    given = [RESULT, OPEN, LATER]
    await GuardedRunner(guard_of(tools)).run(
        agent_of(model, tools), given, run_config=QUIET, previous_response_id="resp_1"
    )
    assert model.calls[0].input == given
