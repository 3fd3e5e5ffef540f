"""Models without tool calls, which write them into the text."""

import json

import pytest
from crewai.tools import tool
from crewai_script import REFUND, Scripted, act, crew_of, guard_of, hooked

from pokayoke.adapters.crewai import guarded


def test_calls_in_a_text_are_read_as_they_were_written(tools, done):
    """The guard reads the model's own text, not CrewAI's repair of it, and replays a write."""
    model = Scripted(
        act("get_order", "{'order_id': 'A1',}"),
        act("refund", '{"order_id": "A1" "amount": 5}'),
        act("refund", REFUND),
        act("refund", REFUND),
        "Thought: I am done.\nFinal Answer: Refunded.",
        native=False,
    )
    llm, wrapped = guarded(guard_of(tools), model, tools)
    assert crew_of(llm, wrapped).kickoff().raw.startswith("Refunded.")
    assert done == [("get_order", "A1"), ("refund", "A1", 5)]
    history = json.dumps(model.seen[-1])
    assert "already" in history
    assert "not used" in history


@pytest.mark.parametrize(("says", "ran"), [(False, []), (3, [("refund", "A1", 3)]), (None, [("refund", "A1", 5)])])
def test_hooks_of_the_user_know_the_tool_of_a_call_in_a_text(tools, done, says, ran):
    """A hook for one tool sees such a call with the arguments that will run, and may stop or change it."""
    asked = []

    def hook(context):
        if context.tool_name != "refund":
            return None
        asked.append((dict(context.tool_input), context.agent.role, context.task.description))
        if says == 3:
            context.tool_input["amount"] = "3"
        return False if says is False else None

    spelt = f'{{"arguments": {REFUND}}}'
    model = Scripted(act("Refund", spelt), "Thought: I am done.\nFinal Answer: Done.", native=False)
    llm, wrapped = guarded(guard_of(tools), model, tools)
    crew = crew_of(llm, wrapped)
    with hooked(hook):
        crew.kickoff()
    assert asked == [({"order_id": "A1", "amount": 5}, crew.agents[0].role, crew.tasks[0].description)]
    assert done == ran


def test_a_result_may_be_the_answer_to_a_model_without_tool_calls(done):
    """Such a tool keeps its name in the text and is guarded: the task ends with its result."""

    @tool(result_as_answer=True)
    def close(order_id: str) -> str:
        """Close an order."""
        done.append(order_id)
        return f"closed {order_id}"

    model = Scripted(act("close", "{'order_id': 'A1',}"), native=False)
    guard = guard_of([close])
    llm, wrapped = guarded(guard, model, [close])
    assert crew_of(llm, wrapped).kickoff().raw == "closed A1"
    assert done == ["A1"]


@pytest.mark.parametrize(("says", "ran"), [(False, []), ("A2", ["A2"]), (None, ["A1"])])
def test_a_hook_has_the_last_word_also_where_the_result_is_the_answer(done, says, ran):
    """A hook sees CrewAI's reading of the text and then the guard's; a change of the latter counts."""
    asked = []

    @tool(result_as_answer=True)
    def close(order_id: str) -> str:
        """Close an order."""
        done.append(order_id)
        return f"closed {order_id}"

    def hook(context):
        asked.append(context.tool_input["order_id"])
        if says:
            context.tool_input["order_id"] = says
        return False if says is False else None

    model = Scripted(act("close", "{'order_id': 'A1',}"), "Thought: I am done.\nFinal Answer: Stopped.", native=False)
    llm, wrapped = guarded(guard_of([close]), model, [close])
    with hooked(hook):
        crew_of(llm, wrapped).kickoff()
    assert asked == (["A1"] if says is False else ["A1", "A1"])
    assert done == ran


def test_a_stuck_model_without_tool_calls_ends_with_an_honest_answer(tools, done):
    """Its tools stand in its prompt, but a call after the tools went is replaced by the answer."""
    model = Scripted(act("refund", '{"order_id": "A1", "amount": "a lot"}'), native=False)
    llm, wrapped = guarded(guard_of(tools), model, tools)
    text = crew_of(llm, wrapped).kickoff().raw
    assert "could not finish" in text
    assert len(model.seen) == 3
    assert done == []
