"""Tools of every kind, and the user's hooks before them."""

import asyncio
import json

import pytest
from crewai import Agent, Crew, Task
from crewai.tools import BaseTool, tool
from crewai.tools.tool_failure import ToolFailure
from crewai_script import REFUND, Scripted, crew_of, guard_of, hooked
from pydantic import BaseModel, field_validator

import pokayoke
from pokayoke.adapters.crewai import contracts, guarded
from pokayoke.errors import UsageError


def test_contracts_have_the_names_the_model_reads(tools):
    """A tool called `Get Order` is `get_order`; a name that no tool has is an error, and so is a model's name."""
    made = contracts(tools, reads=["get_order"], destructive=["refund"])
    assert [(one.name, one.effect, one.description) for one in made] == [
        ("get_order", "read", "Look up an order."), ("refund", "destructive", "Refund an order."),
    ]  # fmt: skip
    with pytest.raises(UsageError, match="Get Order"):
        contracts(tools, reads=["Get Order"])
    with pytest.raises(UsageError, match="BaseLLM"):
        guarded(guard_of(tools), "gpt-4o", tools)


def test_a_hook_of_the_user_may_still_change_arguments(tools, done):
    """The arguments that a hook sets are those that run."""

    def hook(context):
        if "amount" in context.tool_input:
            context.tool_input["amount"] = 3

    model = Scripted([("c1", "refund", REFUND)], "Done.")
    llm, wrapped = guarded(guard_of(tools), model, tools)
    with hooked(hook):
        crew_of(llm, wrapped).kickoff()
    assert done == [("refund", "A1", 3)]


@pytest.mark.parametrize(
    "written", ['{"order_id": "A1", "amount": "5"}', f'{{"arguments": {REFUND}}}', "{'order_id': 'A1', 'amount': 5,}"]
)
@pytest.mark.parametrize("stops", [True, False])
def test_a_hook_of_the_user_judges_what_would_run(tools, done, written, stops):
    """A hook judges the arguments as corrected by the guard; the history keeps the model's text."""
    asked = []

    def hook(context):
        asked.append({key: context.tool_input.get(key) for key in ("order_id", "amount")})
        return False if stops else None

    model = Scripted([("c1", "Refund", written)], "Done.")
    llm, wrapped = guarded(guard_of(tools), model, tools)
    with hooked(hook):
        crew_of(llm, wrapped).kickoff()
    assert asked == [{"order_id": "A1", "amount": 5}]
    assert done == ([] if stops else [("refund", "A1", 5)])


def test_tools_of_classes_and_coroutines(done):
    """A class with a formatter, a coroutine, a limit of uses and a tool's own failure work as in CrewAI alone."""

    class Look(BaseTool):
        name: str = "look"
        description: str = "Look."

        def _run(self, place: str) -> dict:
            done.append(place)
            return {"place": place}

        def format_output_for_agent(self, raw_result):
            return f"at {raw_result['place']}"

    @tool
    async def wait(seconds: int) -> dict:
        """Wait."""
        await asyncio.sleep(0)
        return {"waited": seconds}

    @tool(max_usage_count=1)
    def once(word: str) -> str:
        """Say."""
        done.append(word)
        return word

    @tool
    def fail(word: str) -> str:
        """Fail."""
        return ToolFailure(message="The printer is out of paper.", code="E7")

    turn = [
        ("c1", "look", '{"place": "here"}'), ("c2", "wait", '{"seconds": 1}'), ("c3", "once", '{"word": "a"}'),
    ]  # fmt: skip
    more = [("c4", "once", '{"word": "b"}'), ("c5", "fail", '{"word": "x"}')]
    model = Scripted(turn, more, "Done.")
    own = [Look(), wait, once, fail]
    llm, wrapped = guarded(pokayoke.Guard(contracts(own, reads=["look", "wait", "fail"])), model, own)
    crew_of(llm, wrapped).kickoff()
    assert sorted(done) == ["a", "here"]
    look, waited, first, second, failed = model.read
    assert "at here" in look
    assert '"waited":1' in waited
    assert "a" in first
    assert "ToolNotStartedError" in second
    assert "The printer is out of paper. (code: E7)" in failed


def test_what_a_validator_of_the_user_turns_away_has_not_happened(done):
    """CrewAI applies a tool's own validators before the tool starts: its write is not in doubt."""

    class Even(BaseModel):
        amount: int

        @field_validator("amount")
        @classmethod
        def even(cls, value):
            if value % 2:
                raise ValueError("odd")
            return value

    class Pay(BaseTool):
        name: str = "pay"
        description: str = "Pay."
        args_schema: type[BaseModel] = Even

        def _run(self, amount: int) -> str:
            done.append(amount)
            raise ValueError("no paper")

    model = Scripted([("c1", "pay", '{"amount": 3}')], [("c2", "pay", '{"amount": 4}')], "Done.")
    llm, wrapped = guarded(guard_of([Pay()]), model, [Pay()])
    text = crew_of(llm, wrapped).kickoff().raw
    assert done == [4]
    assert "ToolNotStartedError" in model.read[0]
    assert "ToolNotStartedError" not in model.read[1]
    assert "It is not known whether pay took effect" in text


def test_a_refused_call_is_no_answer(done):
    """A tool with `result_as_answer` ends the task only with a result."""

    @tool(result_as_answer=True)
    def close(order_id: str) -> str:
        """Close an order."""
        done.append(order_id)
        return f"closed {order_id}"

    model = Scripted([("c1", "close", '{"order": "A1", "x": 1}')], [("c2", "close", '{"order_id": "A1"}')], "Done.")
    llm, wrapped = guarded(guard_of([close]), model, [close])
    assert crew_of(llm, wrapped).kickoff().raw == "closed A1"
    assert len(model.seen) == 2


def test_tools_of_crew_ai_itself_run_beside_guarded_ones(tools, done):
    """A delegation has no contract and runs without the guard."""
    ask = json.dumps({"question": "Is A1 paid?", "context": "Order A1.", "coworker": "Boss"})
    model = Scripted([("c1", "ask_question_to_coworker", ask), ("c2", "refund", REFUND)], "Done.")
    llm, wrapped = guarded(guard_of(tools), model, tools)
    boss = Agent(role="Boss", goal="Answer.", backstory="A shop.", llm=Scripted("It is paid."))
    clerk = Agent(role="Clerk", goal="Help.", backstory="A shop.", llm=llm, tools=wrapped, allow_delegation=True)
    task = Task(description="Refund A1.", expected_output="An answer.", agent=clerk)
    assert Crew(agents=[clerk, boss], tasks=[task]).kickoff().raw == "Done."
    assert "It is paid." in model.read[0]
    assert done == [("refund", "A1", 5)]


@pytest.mark.parametrize("where", ["agent", "task"])
def test_a_tool_beside_the_guarded_ones_has_to_be_named(tools, done, where):
    """A forgotten tool is a UsageError; one in `unguarded` runs as CrewAI runs it."""
    pays = [("c1", "refund", REFUND)]
    for unguarded in ((), ("refund",)):
        llm, wrapped = guarded(guard_of(tools), Scripted(pays, "Paid."), tools, unguarded=unguarded)
        bare = [wrapped[0], tools[1]]
        crew = crew_of(llm, wrapped, task={"tools": bare}) if where == "task" else crew_of(llm, bare)
        if unguarded:
            assert crew.kickoff().raw == "Paid."
        else:
            with pytest.raises(UsageError, match="'refund'"):
                crew.kickoff()
            assert done == []
    assert len(done) == 1


def test_a_guarded_tool_in_other_hands_is_guarded(tools, done):
    """Code that runs such a tool itself gets the guard's answer, in a run of its own each time."""
    _, wrapped = guarded(guard_of(tools), Scripted("x"), tools)
    assert '"refunded":"A1"' in wrapped[1].run(order_id="A1", amount=5)
    assert "amount" in wrapped[1].run(order_id="A1").message
    assert len(done) == 1
