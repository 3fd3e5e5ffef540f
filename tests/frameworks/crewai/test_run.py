"""Runs and turns: tasks, attempts, kickoffs and the caller of now."""

import asyncio
import copy
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from crewai import Agent, Crew, Task
from crewai.tools import tool
from crewai_script import REFUND, Scripted, crew_of, guard_of

import pokayoke
from pokayoke.adapters.crewai import contracts, guarded
from pokayoke.errors import UsageError


class Rebuilt(Scripted):
    """A model that is copied as CrewAI's `LLM` is: made anew from its settings."""

    def __copy__(self):
        made = Scripted()
        made.additional_params = self.additional_params
        return made

    def __deepcopy__(self, memo=None):
        return copy.copy(self)


@pytest.mark.parametrize("kind", [Scripted, Rebuilt])
def test_a_copy_of_a_crew_is_guarded(tools, done, kind):
    """`kickoff_for_each` copies a crew with its models: each copy is guarded, however its model is copied."""
    model = kind([("c1", "refund", REFUND)], [("c2", "refund", REFUND)], "Done.")
    llm, wrapped = guarded(guard_of(tools), model, tools)
    assert [one.raw for one in crew_of(llm, wrapped).kickoff_for_each(inputs=[{"o": "A1"}])] == [
        "Done.\n\n[Not run a second time: refund.]"
    ]
    assert done == [("refund", "A1", 5)]
    assert type(copy.deepcopy(llm)).__name__.startswith("Guarded")


def test_an_attempt_that_crew_ai_starts_over_repeats_no_write(tools, done):
    """An error of the model makes CrewAI do the task again without its history: the write of before is replayed."""
    model = Scripted([("c1", "refund", REFUND)], RuntimeError("connection lost"), [("c1", "refund", REFUND)], "Done.")
    llm, wrapped = guarded(guard_of(tools), model, tools)
    assert crew_of(llm, wrapped).kickoff().raw == "Done."
    assert done == [("refund", "A1", 5)]
    assert "already" in model.read[-1]


@pytest.mark.parametrize("name", [None, "ticket-7"])
def test_an_attempt_that_delegates_again_repeats_no_write(tools, done, name):
    """CrewAI makes a new task of each delegation; the same text to the same coworker is the same task."""
    ask = json.dumps({"task": "Refund A1.", "context": "Now.", "coworker": "Cashier"})
    delegates = [("c1", "delegate_work_to_coworker", ask)]
    guard = guard_of(tools)
    first, own = guarded(guard, Scripted(delegates, RuntimeError("lost"), delegates, "Done."), tools[:1], run_id=name)
    pays = [("c1", "refund", REFUND)]
    second, theirs = guarded(guard, Scripted(pays, "Paid.", pays, "Paid."), tools[1:], run_id=name)
    boss = Agent(role="Boss", goal="Help.", backstory="A shop.", llm=first, tools=own, allow_delegation=True)
    cashier = Agent(role="Cashier", goal="Pay.", backstory="A shop.", llm=second, tools=theirs)
    task = Task(description="Refund A1.", expected_output="An answer.", agent=boss)
    assert Crew(agents=[boss, cashier], tasks=[task]).kickoff().raw == "Done."
    assert done == [("refund", "A1", 5)]


def test_two_tasks_of_a_crew_are_two_runs_though_they_say_the_same(tools, done):
    """Without a name each task of a crew is a run of its own, even with the same text."""
    pays = [("c1", "refund", REFUND)]
    llm, wrapped = guarded(guard_of(tools), Scripted(pays, "Paid.", pays, "Paid."), tools)
    crew = crew_of(llm, wrapped)
    crew.tasks.append(Task(description="Refund A1.", expected_output="An answer.", agent=crew.agents[0]))
    crew.kickoff()
    assert len(done) == 2


def test_each_input_of_a_named_kickoff_is_a_run(tools, done):
    """Inputs that a task's text names are part of its run: the same input again is the same run."""
    pays = [("c1", "refund", REFUND)]
    guard = guard_of(tools)
    for inputs in ({"order": "A1", "at": 1}, {"order": "B2", "at": 1}, {"order": "A1", "at": 2}):
        llm, wrapped = guarded(guard, Scripted(pays, "Paid."), tools, run_id="batch")
        crew_of(llm, wrapped, prompt="Look after {order}.").kickoff(inputs=inputs)
    assert len(done) == 2


def test_each_kickoff_is_a_run_and_each_name_is_one(tools, done):
    """A crew may refund again in its next kickoff; under one `run_id` it may not."""
    turns = [[("c1", "refund", REFUND)], "Done."]
    model = Scripted(*turns, *turns)
    llm, wrapped = guarded(guard_of(tools), model, tools)
    crew = crew_of(llm, wrapped)
    crew.kickoff()
    crew.kickoff()
    assert len(done) == 2
    guard = guard_of(tools)
    for _ in range(2):
        model = Scripted(*turns)
        llm, wrapped = guarded(guard, model, tools, run_id=lambda: "ticket-7")
        crew_of(llm, wrapped).kickoff()
    assert len(done) == 3
    assert "already" in model.read[-1]


def test_crews_beside_each_other_do_not_mix(done):
    """Eight threads over one guarded model: each gets its own results, and a stuck one stops alone."""

    @tool
    def get_order(order_id: str) -> dict:
        """Look up an order."""
        return {"order_id": order_id}

    class Several(Scripted):
        """A model that reads from the prompt what to do."""

        def call(self, messages, tools=None, callbacks=None, available_functions=None, **kwargs):
            asked = next(one["content"] for one in messages if one["role"] == "user")
            number = int(asked.split("Order number ")[1].split(".")[0])
            results = [one["content"] for one in messages if one["role"] == "tool"]
            if not tools or (len(results) == 3 and number % 2):
                return " ".join(results)
            name = "get_order" if number % 2 else "no_such_tool"
            text = json.dumps({"order_id": f"{number}-{len(results)}"})
            return [{"id": "call_1", "type": "function", "function": {"name": name, "arguments": text}}]

    llm, wrapped = guarded(pokayoke.Guard(contracts([get_order], reads=["get_order"])), Several(), [get_order])

    def one(number):
        return crew_of(llm, wrapped, prompt=f"Order number {number}.").kickoff().raw

    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(one, range(8)))
    for number, text in enumerate(texts):
        if number % 2:
            assert all(f'"{number}-{turn}"' in text for turn in range(3)), text
        else:
            assert text.count("no_such_tool") >= 2


async def test_kickoffs_of_every_kind(tools, done):
    """`kickoff_async`, `akickoff` and an agent's own `kickoff` are guarded alike."""
    for number, kind in enumerate(("kickoff_async", "akickoff", "agent")):
        model = Scripted([("c1", "refund", REFUND), ("c2", "fetch", "{}")], [("c3", "refund", REFUND)], "Done.")
        llm, wrapped = guarded(guard_of(tools), model, tools)
        crew = crew_of(llm, wrapped)
        if kind == "agent":
            ended = await asyncio.to_thread(crew.agents[0].kickoff, "Refund A1.")
        else:
            ended = await getattr(crew, kind)()
        assert ended.raw == "Done.\n\n[Not run a second time: refund.]", kind
        assert len(done) == number + 1, kind
        assert "already" in model.read[-1], kind


def test_tenant_and_principal_come_from_task_and_agent(tools, done):
    """`who` is called for each run, with both."""
    guard, seen = guard_of(tools, fields={"refund": {"approval": True}}), []

    def who(task, agent):
        seen.append((task.name, agent.role))
        return {"tenant": task.name, "principal": agent.role}

    for tenant in ("ann", "bob"):
        model = Scripted([("c1", "refund", REFUND)], "Done.")
        llm, wrapped = guarded(guard, model, tools, run_id=f"ticket-of-{tenant}", who=who)
        crew_of(llm, wrapped, task={"name": tenant}).kickoff()
    assert set(seen) == {("ann", "Clerk"), ("bob", "Clerk")}
    assert len(guard.approvals.list()) == 2


def test_each_kickoff_of_a_name_acts_for_whoever_starts_it(tools, done):
    """The same task under the same name is the same run, with the rights of the caller of this kickoff."""
    guard = guard_of(tools, config={"access": {"roles": {"refund": ["clerk"]}}})
    asking = {"id": "ada", "roles": ["clerk"]}
    model = Scripted(
        [("c1", "refund", REFUND)], "Done.", [("c2", "refund", '{"order_id": "B2", "amount": 5}')], "Done."
    )
    llm, wrapped = guarded(guard, model, tools, run_id="ticket-7", who=lambda task, agent: {"principal": asking})
    crew_of(llm, wrapped).kickoff()
    asking = {"id": "bob", "roles": []}
    crew_of(llm, wrapped).kickoff()
    assert done == [("refund", "A1", 5)]
    assert model.seen[-1]["tools"] == ["get_order"]


def test_a_question_waits_in_the_guards_books(tools, done, tmp_path):
    """CrewAI cannot wait: the model reads that a person is asked, and the next kickoff finds the answer."""
    store = f"sqlite:///{tmp_path}/ledger.db"
    pokayoke.open_store(store, create=True).close()
    guard = guard_of(tools, fields={"refund": {"approval": True}}, store=store)

    def kickoff():
        model = Scripted([("c1", "refund", REFUND)], "So be it.")
        llm, wrapped = guarded(guard, model, tools, run_id="ticket-9")
        return crew_of(llm, wrapped).kickoff().raw

    assert "Not done: refund" in kickoff()
    (waiting,) = guard.approvals.list()
    assert done == []
    guard.approvals.approve(waiting.id, by="ann")
    assert kickoff() == "So be it."
    assert done == [("refund", "A1", 5)]
    guard.close()


def test_feedback_of_a_person_begins_a_turn(tools, done, monkeypatch):
    """After an answer that was given without tools, a person's feedback brings the tools back."""
    stuck = [("s", "fetch", "{}")]
    model = Scripted(stuck, stuck, "I am lost.", [("c1", "refund", REFUND)], "Done.")
    llm, wrapped = guarded(guard_of(tools), model, tools)
    said = iter(["Use refund.", ""])
    monkeypatch.setattr("builtins.input", lambda *_: next(said))
    crew = crew_of(llm, wrapped, task={"human_input": True})
    assert crew.kickoff().raw == "Done."
    assert model.seen[2]["tools"] == []
    assert model.seen[3]["tools"] == ["get_order", "refund"]
    assert done == [("refund", "A1", 5)]


def test_the_frame_is_always_in_the_texts_of_crewai():
    """The option of other adapters is an error that says why."""
    with pytest.raises(UsageError, match="writes results into texts"):
        guarded(pokayoke.Guard([]), Scripted(), [], frame="wire")
