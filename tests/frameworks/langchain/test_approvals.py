"""Questions to a person: the guard's, a tool's own, and those of other middleware."""

import asyncio
import re
from typing import Annotated, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langchain_script import GO, REFUND, THREAD, Script, agent_of, answers, asks, graph_of, together, waiting
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.types import Command, interrupt

import pokayoke
from pokayoke.adapters.langchain import GuardMiddleware, contracts
from pokayoke.adapters.langchain._approvals import take_answer
from pokayoke.core.state.words import QUESTION_WORDS
from pokayoke.stores.base import RecordQuery

ASKING = {"refund": {"approval": True}}


def test_the_question_and_what_is_wrong_with_an_answer_may_be_the_hosts_own(shop):
    """Every word that a person reads is from the table: the question, and why an answer was none."""
    words = {key: f"«{key}»" + "".join(re.findall(r"\{\w+\}", text)) for key, text in QUESTION_WORDS.items()}
    model, saver = Script(turns=[REFUND]), InMemorySaver()
    agent, guard = agent_of(model, shop.tools, fields=ASKING, config={"words": words}, checkpointer=saver)
    (asked,) = waiting(agent.invoke(GO, THREAD))
    assert asked.value["question"] == "«may_run»refund"
    ident = asked.value["approval"]
    told = [
        take_answer(guard, ident, answer, alone=alone, is_meant=False, place="t/1")
        for answer, alone in (("well", True), (True, False), (True, True), ({"ap-0": True}, True))
    ]
    assert told == ["«no_answer»", "«which_call»", "«early_answer»", f"«unanswered»{ident}"]


def test_a_person_says_no(shop):
    """A denied call never runs, and the model is told."""
    agent, guard = agent_of(Script(turns=[REFUND, "Sorry."]), shop.tools, fields=ASKING, checkpointer=InMemorySaver())
    (asked,) = waiting(agent.invoke(GO, THREAD))
    ended = agent.invoke(Command(resume={"type": "reject", "message": "too much"}), THREAD)
    assert not shop.done
    assert "denied" in answers(ended)[0]
    assert guard.approvals.get(asked.value["approval"]).reason.startswith("too much")


@pytest.mark.parametrize("durable", [True, False])
def test_a_yes_is_for_the_call_that_was_shown(shop, tmp_path, durable):
    """A node that runs again and calls with other arguments asks again; what was shown is not what would run."""
    url = f"sqlite:///{tmp_path}/l.db" if durable else None
    if url:
        pokayoke.open_store(url, create=True).close()
    guard = pokayoke.Guard(contracts(shop.tools, fields=ASKING), store=url)
    guarded = GuardMiddleware(guard)
    turns = [asks("refund", "c1", order="A1", amount=amount) for amount in (5, 5000, 5000, 5000)]
    model = guarded.bind(Script(turns=turns), shop.tools)
    tools = guarded.tool_node(shop.tools)

    def step(state):
        said = model.invoke(state["messages"])
        return {"messages": [said, *tools.invoke({"messages": [*state["messages"], said]})["messages"]]}

    graph = (
        StateGraph(MessagesState).add_node("step", step).add_edge(START, "step").compile(checkpointer=InMemorySaver())
    )
    (asked,) = waiting(graph.invoke(GO, THREAD))
    assert asked.value["arguments"]["amount"] == 5
    (again,) = waiting(graph.invoke(Command(resume={"approved": True, "by": "ann"}), THREAD))
    assert (again.value["arguments"]["amount"], shop.done) == (5000, [])
    assert "before this was asked" in again.value["problem"]
    graph.invoke(Command(resume=True), THREAD)
    assert shop.done == [("refund", "A1", 5000)]
    assert [one.arguments["amount"] for one in guard.approvals.list()] == [5]


def test_an_answer_given_elsewhere_holds(shop):
    """Approved through the store, the call runs whatever the graph is resumed with."""
    agent, guard = agent_of(Script(turns=[REFUND, "Done."]), shop.tools, fields=ASKING, checkpointer=InMemorySaver())
    (asked,) = waiting(agent.invoke(GO, THREAD))
    guard.approvals.approve(asked.value["approval"], by="bob")
    agent.invoke(Command(resume="whatever"), THREAD)
    assert shop.done == [("refund", "A1", 5)]


def test_two_calls_wait_each_for_its_own_answer(shop):
    """Two calls of one message are asked about separately; a no to one is no answer to the other."""
    both = together(REFUND, asks("refund", "c2", order="B2", amount=7))
    agent, _ = agent_of(Script(turns=[both, "Done."]), shop.tools, fields=ASKING, checkpointer=InMemorySaver())
    asked = waiting(agent.invoke(GO, THREAD))
    said = {one.id: one.value["arguments"]["order"] == "B2" for one in asked}
    ended = agent.invoke(Command(resume=said), THREAD)
    assert shop.done == [("refund", "B2", 7)]
    assert "denied" in answers(ended)[0]


def test_a_node_with_two_calls_takes_no_answer_without_a_name(shop):
    """If calls share a task a bare yes could be meant for either, so it runs none; a yes with the question's id does."""
    both = together(REFUND, asks("refund", "c2", order="B2", amount=7))
    graph, guard = graph_of(Script(turns=[both, "Done."]), shop.tools, fields=ASKING, checkpointer=InMemorySaver())
    state = graph.invoke(GO, THREAD)
    state = graph.invoke(Command(resume=True), THREAD)
    assert "which one is meant" in str(waiting(state))
    assert not shop.done
    known = {one.arguments["order"]: one.id for one in guard.approvals.list()}
    for _ in range(4):
        if "__interrupt__" not in state:
            break
        state = graph.invoke(
            Command(resume={known["A1"]: True, **({known["B2"]: False} if "B2" in known else {})}), THREAD
        )
        known = {**known, **{one.arguments["order"]: one.id for one in guard.approvals.list()}}
    assert shop.done == [("refund", "A1", 5)]
    assert "denied" in answers(state)[1]


def test_without_a_checkpointer_the_model_is_told_to_wait(shop):
    """A graph that could never be resumed is not interrupted."""
    agent, guard = agent_of(Script(turns=[REFUND, "It waits."]), shop.tools, fields=ASKING)
    ended = agent.invoke(GO)
    assert not shop.done
    assert "approval" in answers(ended)[0]
    assert len(guard.approvals.list()) == 1


class Elsewhere(TypedDict):
    """A state whose messages have another name."""

    said: Annotated[list, add_messages]


@pytest.mark.parametrize("handed", ["under another key", "as calls"])
def test_one_yes_is_never_for_two_calls(shop, handed):
    """If several calls of a node wait, an answer has to name one, wherever the node found the calls."""
    guard = pokayoke.Guard(contracts(shop.tools, fields=ASKING))
    node = GuardMiddleware(guard).tool_node(shop.tools, messages_key="said")
    both = [*REFUND.tool_calls, *asks("refund", "c2", order="B2", amount=7).tool_calls]
    graph = StateGraph(Elsewhere)
    graph.add_node("tools", node if handed == "under another key" else lambda _: {"said": node.invoke(both)["said"]})
    graph.add_edge(START, "tools")
    app = graph.compile(checkpointer=InMemorySaver())
    state = app.invoke({"said": [("user", "go"), AIMessage("", tool_calls=both)]}, THREAD)
    for answer in (True, False):
        (asked,) = waiting(state)
        assert asked.value["approval"] in asked.value["resume_with"]
        state = app.invoke(Command(resume=answer), THREAD)
    assert not shop.done


def test_a_tool_that_asks_by_itself_gets_its_own_answer():
    """The guard's question and the tool's own are counted apart: the tool never reads the answer to the guard's."""
    done = []

    @tool
    def wire(order: str) -> str:
        """Wire money."""
        done.append((order, interrupt("to which account?")))
        return "wired"

    model = Script(turns=[asks("wire", order="A1"), "Done."])
    agent, _ = agent_of(model, [wire], fields={"wire": {"approval": True}}, checkpointer=InMemorySaver())
    assert "May wire run" in str(waiting(agent.invoke(GO, THREAD)))
    assert "which account" in str(waiting(agent.invoke(Command(resume=True), THREAD)))
    ended = agent.invoke(Command(resume="DE-7"), THREAD)
    assert done == [("A1", "DE-7")]
    assert "wired" in answers(ended)[0]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_interrupt_of_a_tool_goes_through(asynchronous):
    """A tool that interrupts has not failed and is not in doubt: resumed, it runs to its end, once."""
    done = []

    def ask(order: str) -> str:
        """Ask."""
        done.append(interrupt("sure?"))
        return f"{order}: {done[-1]}"

    async def aask(order: str) -> str:
        """Ask."""
        return ask(order)

    one = tool("ask")(aask if asynchronous else ask)
    agent, guard = agent_of(Script(turns=[asks("ask", order="A1"), "Done."]), [one], checkpointer=InMemorySaver())

    def go(put):
        return asyncio.run(agent.ainvoke(put, THREAD)) if asynchronous else agent.invoke(put, THREAD)

    assert waiting(go(GO))[0].value == "sure?"
    assert [record.state for record in guard.store.records(RecordQuery(run_id="t1"))] == ["failed_retriable"]
    assert "A1: yes" in answers(go(Command(resume="yes")))[0]
    assert done == ["yes"]


@pytest.mark.parametrize("answered", ["elsewhere", "at the second try"])
def test_a_tool_never_reads_an_answer_that_was_meant_for_the_guard(answered):
    """However the guard's question was settled, its resumes are no answer to the tool's own question."""
    done = []

    @tool
    def wire(order: str) -> str:
        """Wire money."""
        done.append((order, interrupt("to which account?")))
        return "wired"

    model = Script(turns=[asks("wire", order="A1"), "Done."])
    agent, guard = agent_of(model, [wire], fields={"wire": {"approval": True}}, checkpointer=InMemorySaver())
    (asked,) = waiting(agent.invoke(GO, THREAD))
    if answered == "elsewhere":
        guard.approvals.approve(asked.value["approval"], by="bob")
    else:
        assert "May wire run" in str(waiting(agent.invoke(Command(resume="perhaps"), THREAD)))
    assert "which account" in str(waiting(agent.invoke(Command(resume=True), THREAD)))
    agent.invoke(Command(resume="DE-7"), THREAD)
    assert done == [("A1", "DE-7")]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("approval", [False, True])
def test_where_calls_share_a_task_no_tool_gets_the_answer_to_another_question(asynchronous, approval):
    """LangGraph counts questions, and a finished write asks no more: a tool that asks needs a message of its own."""
    done = []

    def ask(order: str) -> dict:
        """Refund."""
        done.append((order, interrupt(f"how many cents for {order}?")))
        return {"refunded": order}

    async def aask(order: str) -> dict:
        """Refund."""
        return ask(order)

    @tool
    def pay(order: str) -> dict:
        """Pay."""
        done.append((order, "paid"))
        return {"paid": order}

    refund = tool("refund")(aask if asynchronous else ask)
    beside, alone = asks("pay" if approval else "refund", "c1", order="A1"), asks("refund", "c3", order="B2")
    both = together(beside, asks("refund", "c2", order="B2"))
    fields = {"pay": {"approval": approval}}
    model = Script(turns=[both, alone, "Done."])
    graph, _ = graph_of(model, [refund, pay], fields=fields, asynchronous=asynchronous, checkpointer=InMemorySaver())

    def go(put):
        return asyncio.run(graph.ainvoke(put, THREAD)) if asynchronous else graph.invoke(put, THREAD)

    state = go(GO)
    if approval:
        (asked,) = waiting(state)
        state = go(Command(resume={asked.value["approval"]: True}))
    assert [one.value for one in waiting(state)] == ["how many cents for B2?"]
    ended = go(Command(resume=700))
    assert done == [*([("A1", "paid")] if approval else []), ("B2", 700)]
    assert "message of its own" in answers(ended)[1]


def test_a_tool_that_asks_may_stand_beside_reads(shop):
    """A read runs again each time, so the count of questions stays right."""

    @tool
    def refund(order: str) -> dict:
        """Refund."""
        shop.done.append((order, interrupt("how many cents?")))
        return {"refunded": order}

    find = next(one for one in shop.tools if one.name == "find")
    both = together(asks("find", "c1", order="A1"), asks("refund", order="A1"))
    model = Script(turns=[both, "Done."])
    graph, _ = graph_of(model, [find, refund], reads=["find"], checkpointer=InMemorySaver())
    assert [one.value for one in waiting(graph.invoke(GO, THREAD))] == ["how many cents?"]
    graph.invoke(Command(resume=5), THREAD)
    assert ("A1", 5) in shop.done


@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("refund", {"order": "A1", "amount": 500}),
        ("refund", {"order": "A1", "amount": "500"}),
        ("refund", {"arguments": {"order": "A1", "amount": 500}}),
        ("Refund", {"order": "A1", "amount": 500}),
        ("functions.refund", {"order": "A1", "amount": "500"}),
    ],
)
def test_a_middleware_that_asks_a_person_judges_what_will_run(shop, name, given, mode, monkeypatch):
    """A person reads the arguments that a yes runs, however the model spelt them; the trace has both."""
    traced = []
    people = HumanInTheLoopMiddleware(
        {
            "refund": {
                "allowed_decisions": ["approve", "reject"],
                "when": lambda one: one.tool_call["args"]["amount"] > 9,
            }
        },
        interrupt_mode=mode,
    )
    guard = pokayoke.Guard(contracts(shop.tools))
    monkeypatch.setattr(guard.trace, "record", lambda event: traced.append(event) or event)
    model = Script(turns=[asks(name, **given), "Done."])
    middleware = [people, GuardMiddleware(guard)]
    agent = create_agent(model, shop.tools, middleware=middleware, checkpointer=InMemorySaver())
    (asked,) = agent.invoke(GO, THREAD)["__interrupt__"]
    shown = asked.value if mode == "per_call" else asked.value["action_requests"][0]
    assert (shown["name"], shown["args"]) == ("refund", {"order": "A1", "amount": 500})
    assert shop.done == []
    yes = {"type": "approve"}
    agent.invoke(Command(resume=yes if mode == "per_call" else {"decisions": [yes]}), THREAD)
    assert shop.done == [("refund", "A1", 500)]
    (call,) = [event for event in traced if event["event"] == "tool_call"]
    assert bool(call.get("corrections")) == (given != {"order": "A1", "amount": 500})


@pytest.mark.parametrize("yes", [True, False])
@pytest.mark.parametrize("durable", [True, False])
def test_a_write_that_a_user_wants_once_more_is_asked_about(shop, tmp_path, yes, durable):
    """A write that repeats only if a person says so interrupts the graph in a later turn, and a yes is for one more."""
    url = f"sqlite:///{tmp_path}/l.db" if durable else None
    if url:
        pokayoke.open_store(url, create=True).close()
    again = asks("refund", "c2", order="A1", amount=5)
    fields = {"refund": {"repeats": "once"}}
    model = Script(turns=[REFUND, "Done.", again, "Done again."])
    agent, guard = agent_of(model, shop.tools, fields=fields, store=url, checkpointer=InMemorySaver())
    assert "__interrupt__" not in agent.invoke(GO, THREAD)
    (asked,) = waiting(agent.invoke({"messages": [("user", "Once more.")]}, THREAD))
    assert (asked.value["tool"], len(shop.done)) == ("refund", 1)
    ended = agent.invoke(Command(resume=yes), THREAD)
    assert len(shop.done) == 1 + yes
    assert ("Not done: refund" in ended["messages"][-1].text) is not yes
    assert guard.approvals.list() == ()


def test_without_a_checkpointer_a_repetition_is_replayed(shop):
    """A graph that cannot wait asks nobody: the model reads that the write was not run again."""
    model = Script(turns=[REFUND, "Done.", asks("refund", "c2", order="A1", amount=5), "Done again."])
    agent, _ = agent_of(model, shop.tools, fields={"refund": {"repeats": "once"}})
    first = agent.invoke(GO, THREAD)
    ended = agent.invoke({"messages": [*first["messages"], ("user", "Once more.")]}, THREAD)
    assert answers(ended)[1].startswith("Not run again")
    assert len(shop.done) == 1


def test_a_tool_that_asks_by_itself_reads_its_own_answer_beside_a_question_about_a_repetition(shop):
    """The guard's question about a repetition comes first, and the tool's own question gets the second answer."""
    got = []

    @tool
    def refund(order: str, amount: int) -> str:
        """Refund an order."""
        got.append(interrupt("which account?"))
        return "refunded"

    again = asks("refund", "c2", order="A1", amount=5)
    model = Script(turns=[REFUND, "Done.", again, "Done again."])
    agent, _ = agent_of(model, [refund], fields={"refund": {"repeats": "once"}}, checkpointer=InMemorySaver())
    agent.invoke(GO, THREAD)
    agent.invoke(Command(resume="giro"), THREAD)
    agent.invoke({"messages": [("user", "Once more.")]}, THREAD)
    (own,) = waiting(agent.invoke(Command(resume=True), THREAD))
    assert own.value == "which account?"
    agent.invoke(Command(resume="savings"), THREAD)
    assert got == ["giro", "savings"]
