"""How a guarded agent is built, and which run it belongs to."""

import asyncio
import copy
import inspect
import json

import pytest
from agents import (
    Agent,
    ModelProvider,
    RunConfig,
    Runner,
    SQLiteSession,
    UserError,
)
from agents.testing import ModelStep, ScriptedModel, assistant_message
from openai_agents_support import QUIET, SCRIPT, agent_of, ask, guard_of, made

import pokayoke
from pokayoke.adapters.openai_agents import GuardedRunner, calls, message
from pokayoke.runtime.run.run import Run


async def test_a_tool_without_a_contract_is_said_before_anything_runs():
    """It is the programmer's mistake."""
    tools = made([])
    with pytest.raises(pokayoke.errors.UsageError, match="refund has no contract"):
        await GuardedRunner(guard_of(tools[1:])).run(agent_of(SCRIPT, tools), "Go.", run_config=QUIET)


async def test_a_guarded_agent_that_something_else_starts_is_refused():
    """Its calls would belong to no run."""
    log = []
    tools = made(log)
    agent = GuardedRunner(guard_of(tools)).guarded(agent_of(SCRIPT, tools))
    with pytest.raises((pokayoke.errors.UsageError, UserError), match=r"GuardedRunner\.run"):
        await Runner.run(agent, "Go.", run_config=QUIET)
    assert not log


async def test_models_that_are_named_are_guarded():
    """Agents with a model's name keep it: the provider of the run's configuration is guarded, and so is its model."""
    log = []
    tools = made(log)

    class Provider(ModelProvider):
        def get_model(self, model_name):
            assert model_name == "small"
            return model

    for config, name in (
        ({"model_provider": Provider()}, "small"),
        (RunConfig(model_provider=Provider(), tracing_disabled=True, model="small"), None),
        (RunConfig(model=ScriptedModel([[ask("invent")], *SCRIPT]), tracing_disabled=True), "other"),
    ):
        model = ScriptedModel([[ask("invent")], *SCRIPT])
        log.clear()
        agent = Agent(name="a", model=name, tools=tools)
        result = await GuardedRunner(guard_of(tools)).run(agent, "Go.", run_config=config)
        assert (result.final_output, log) == ("Done.", ["A1"])


async def test_calls_and_message_are_for_loops_of_ones_own():
    """A reply's calls go through a run by hand, and the outcome becomes an input item."""
    tools = made([])
    reply = ModelStep(output=[ask("find", "{'order': 'A1'}")])
    with guard_of(tools).run() as run:
        outcome = run.call(calls(reply, run)[0], invoke=lambda arguments: "open")
    assert message(outcome)["call_id"] == "call_1"
    assert message(outcome)["type"] == "function_call_output"


async def test_a_guarded_tool_tells_the_sdk_at_once_what_it_takes():
    """The SDK asks for it before every call; what is told is true, and a context has no narrower type."""
    agent = GuardedRunner(guard_of(made([]))).guarded(Agent(name="a", tools=made([])))
    for tool in agent.tools:
        invoke = tool.on_invoke_tool
        told = vars(invoke)["__signature__"]
        assert inspect.signature(invoke) is told
        del invoke.__signature__
        assert inspect.signature(invoke) == told


async def test_what_the_model_reads_is_a_text_that_a_copy_does_not_double():
    """The SDK copies the item of every call; the outcome behind it may hold a long output."""
    tools = made([])
    result = await GuardedRunner(guard_of(tools)).run(agent_of(SCRIPT, tools), "Refund A1.", run_config=QUIET)
    output = next(item.output for item in result.new_items if item.type == "tool_call_output_item")
    assert copy.deepcopy([output])[0] is output
    assert copy.copy(output) == output


async def test_runs_side_by_side_do_not_mix():
    """Twenty runs with the same ids and arguments: each refunds once, and no stuck one stops another."""
    log = []
    tools = made(log)
    runner = GuardedRunner(guard_of(tools))

    def replies(number):
        return [[ask("invent")], [ask("invent", "{}", "c2")]] * 2 if number % 2 else SCRIPT

    ended = await asyncio.gather(
        *(runner.run(agent_of(replies(number), tools), "Go.", run_config=QUIET) for number in range(20))
    )
    assert log == ["A1"] * 10
    assert [("could not finish" in one.final_output) for one in ended] == [bool(number % 2) for number in range(20)]


async def test_a_session_is_one_run_and_each_input_a_turn(tmp_path):
    """An equal write that the next input wants is a new one, bad rounds count anew, and nothing of ours is kept."""
    store = f"sqlite:///{tmp_path / 'ledger.db'}"
    pokayoke.open_store(store, create=True).close()
    log = []
    tools = made(log)
    guard = guard_of(tools, store=store)
    session = SQLiteSession("thread-7")
    stuck = [[ask("invent")], [ask("invent", "{}", "c2")], [assistant_message("No.")]]
    for number, replies in enumerate((stuck, SCRIPT, SCRIPT)):
        model = ScriptedModel(replies)
        agent = agent_of(model, tools, instructions="Be brief.")
        result = await GuardedRunner(guard).run(agent, "Refund A1.", session=session, run_config=QUIET)
        assert result.final_output == ("Done." if number else "No.")
        if not number:
            assert not model.calls[-1].tools
            assert model.calls[-1].system_instructions.startswith("Be brief.\n\nIn the last 2 rounds")
    assert log == ["A1", "A1"]
    items = await session.get_items()
    ids = [item["call_id"] for item in items if item.get("type") == "function_call"]
    assert len(ids) == len(set(ids)) == 4
    assert "Tools are off" not in json.dumps(items)
    guard.close()


async def test_only_what_the_user_says_now_begins_a_turn(monkeypatch):
    """A history that is handed in again holds what was said before, and answered."""
    said, user = [], Run.user
    monkeypatch.setattr(Run, "user", lambda run, text: (said.append(text), user(run, text)))
    tools = made([])
    history = []
    for number in range(3):
        note = {"role": "developer", "content": "Be brief."}
        history += [{"role": "user", "content": f"Hello {number}."}, {"role": "user", "content": "Please."}, note]
        agent = agent_of([[assistant_message("Hello.")]], tools)
        result = await GuardedRunner(guard_of(tools)).run(agent, history, run_config=QUIET)
        history = result.to_input_list()
    assert said == [one for number in range(3) for one in (f"Hello {number}.", "Please.")]


async def test_without_an_id_a_durable_ledger_refuses_writes(tmp_path):
    """A restart could not know the run again."""
    store = f"sqlite:///{tmp_path / 'ledger.db'}"
    pokayoke.open_store(store, create=True).close()
    log = []
    tools = made(log)
    guard = guard_of(tools, store=store)
    with pytest.warns(UserWarning, match="durable store"):
        await GuardedRunner(guard).run(agent_of(SCRIPT, tools), "Refund A1.", run_config=QUIET)
    assert not log
    guard.close()
