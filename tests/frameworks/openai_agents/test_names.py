"""What hooks, histories and the model see of a call that runs nothing: the name and the arguments it was written with."""

import pytest
from agents import RunHooks, SQLiteSession
from agents.testing import ScriptedModel, assistant_message
from model_server import Turn
from openai.types.responses import ResponseFunctionToolCall
from openai_agents_support import ASKING, QUIET, REFUND, agent_of, ask, guard_of, made
from test_streams import served

from pokayoke.adapters.openai_agents import GuardedRunner
from pokayoke.adapters.openai_agents._run import original_call


class Listening(RunHooks):
    """Hooks that keep the names and arguments of tools that start."""

    def __init__(self):
        self.started = []

    async def on_tool_start(self, context, agent, tool):
        self.started.append((tool.name, context.tool_name, context.tool_arguments))


def called(items):
    return [(one["name"], one["arguments"]) for one in items if one.get("type") == "function_call"]


async def test_a_tool_that_does_not_exist_keeps_its_name():
    """In hooks, in the list of items, in the session and in the next request; the run goes on."""
    tools, hooks, session = made([]), Listening(), SQLiteSession("s")
    written = ("invent", '{"made_up": 1}')
    model = ScriptedModel([[ask(*written)], [ask(*REFUND, call_id="call_2")], [assistant_message("Done.")]])
    runner = GuardedRunner(guard_of(tools))
    result = await runner.run(agent_of(model, tools), "Go.", hooks=hooks, session=session, run_config=QUIET)
    assert result.final_output.startswith("Done.")
    assert hooks.started == [("invent", *written), ("refund", *REFUND)]
    for items in (result.to_input_list(), await session.get_items(), model.calls[1].input):
        assert called(items)[0] == written
    assert [tool.name for tool in model.calls[1].tools] == ["refund", "find"]


async def test_a_name_that_no_provider_takes_is_held_under_another():
    """Providers refuse a history with such a name: the items have the adapter's own tool, the request a spelling."""
    tools, hooks = made([]), Listening()
    model = ScriptedModel([[ask("in vent!", "{}")], [assistant_message("Done.")]])
    result = await GuardedRunner(guard_of(tools)).run(agent_of(model, tools), "Go.", hooks=hooks, run_config=QUIET)
    assert hooks.started[0][0] == called(result.to_input_list())[0][0] == "unread_tool_call"
    assert called(model.calls[1].input) == [("in_vent_", "{}")]


@pytest.mark.parametrize("wire", ["chat", "responses"])
@pytest.mark.parametrize("config", [{}, ASKING])
@pytest.mark.parametrize("name", ["refund", "invent"])
async def test_arguments_of_a_cut_message_that_parse_stay(wire, config, name):
    """Nothing runs and no person is asked; hooks, items and the next request have the text that the model wrote."""
    log, hooks = [], Listening()
    tools = made(log)
    written = (name, REFUND[1])
    async with served([Turn(calls=(("call_1", *written),), stop="length"), Turn("Done.")], wire) as (server, model):
        agent, runner = agent_of(model, tools), GuardedRunner(guard_of(tools, config))
        result = await runner.run(agent, "Go.", hooks=hooks, run_config=QUIET)
        sent = str(server.bodies[1])
    assert (log, result.interruptions) == ([], [])
    assert hooks.started == [(name, *written)]
    assert called(result.to_input_list()) == [written]
    assert "was cut" in sent
    assert "unread_tool_call" not in sent


def test_a_process_after_a_restart_knows_that_a_message_was_cut():
    """The status of the item says it, as no run in this process does."""
    item = ResponseFunctionToolCall(call_id="c", name="refund", arguments="{}", type="function_call")
    assert original_call("c", "refund", "{}", item).stop_reason is None
    item.status = "incomplete"
    assert original_call("c", "refund", "{}", item).stop_reason == "length"
