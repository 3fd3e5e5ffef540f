"""Runs and turns: threads, invocations, agents inside agents, and the caller of now."""

import asyncio

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain_core.tools import tool
from langchain_script import GO, REFUND, THREAD, Script, agent_of, answers, asks
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition

import pokayoke
from pokayoke.adapters.langchain import GuardMiddleware, contracts
from pokayoke.errors import UsageError


def test_outside_of_a_graph_a_thread_is_needed(shop):
    """Without a graph and without a thread the run has no id, and the error says so."""
    guarded = GuardMiddleware(pokayoke.Guard(contracts(shop.tools)))
    chat = guarded.bind(Script(turns=["Done."]), shop.tools)
    with pytest.raises(UsageError, match="thread_id"):
        chat.invoke([("user", "go")])
    assert chat.invoke([("user", "go")], THREAD).text == "Done."


async def test_concurrent_runs_do_not_mix(shop):
    """Thirty invocations of one agent at once: each is a run of its own, named or not, and each write happens."""

    def say(messages):
        order = str(messages[0].text)
        return "Done." if messages[-1].type == "tool" else asks("refund", order=order, amount=1)

    agent, _ = agent_of(Script(turns=[say]), shop.tools)
    puts = [
        ({"messages": [("user", f"A{n}")]}, {"configurable": {"thread_id": f"t{n}"}} if n % 2 else {})
        for n in range(30)
    ]
    ended = await asyncio.gather(*(agent.ainvoke(put, config) for put, config in puts))
    assert sorted(shop.done) == sorted(("refund", f"A{n}", 1) for n in range(30))
    assert all(one["messages"][-1].text == "Done." for one in ended)
    again = await asyncio.gather(*(agent.ainvoke(put, config) for put, config in puts))
    assert [("already ran" in answers(one)[-1]) for one in again] == [bool(n % 2) for n in range(30)]


def test_a_new_turn_of_the_user_gives_the_tools_back(shop):
    """The tools that a stuck turn lost come back with the user's next text, and only with that."""
    turns = [*[asks("fetch", f"c{n}") for n in range(3)], asks("find", "c9", order="A1"), "Found."]
    model = Script(turns=turns)
    agent, _ = agent_of(model, shop.tools, reads=["find"], checkpointer=InMemorySaver())
    assert "could not finish" in agent.invoke(GO, THREAD)["messages"][-1].text
    ended = agent.invoke({"messages": [("user", "Then find A1.")]}, THREAD)
    assert ended["messages"][-1].text == "Found."
    assert shop.done == [("find", "A1")]
    assert "Tools are off" not in str(ended["messages"])


@wrap_model_call
def reminding(request, handler):
    """Middleware that adds a message to each request that no user has written, as a dict."""
    return handler(request.override(messages=[*request.messages, {"role": "user", "content": "It is Monday."}]))


@pytest.mark.parametrize("turn", [asks("fetch", order="A1"), ""])
@pytest.mark.parametrize("middleware", [[], [reminding]])
def test_what_middleware_adds_to_a_request_is_no_turn(shop, turn, middleware):
    """A model that is stuck or silent loses its tools, whatever middleware adds to its requests."""
    model = Script(turns=[turn])
    guarded = GuardMiddleware(pokayoke.Guard(contracts(shop.tools)))
    ended = create_agent(model, shop.tools, middleware=[*middleware, guarded]).invoke(GO)
    assert len(model.asked) == (3 if turn else 2)
    assert "could not finish" in ended["messages"][-1].text


@pytest.mark.parametrize("turn", [asks("fetch", order="A1"), ""])
def test_what_a_node_adds_to_a_request_is_no_turn(shop, turn):
    """The same holds in a graph of the user's own, whose requests may hold messages without an id."""
    model = Script(turns=[turn])
    guarded = GuardMiddleware(pokayoke.Guard(contracts(shop.tools)))
    chat = guarded.bind(model, shop.tools)
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [chat.invoke([*state["messages"], ("user", "It is Monday.")])]})
    graph.add_node("tools", guarded.tool_node(shop.tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    ended = graph.compile().invoke(GO)
    assert len(model.asked) == (3 if turn else 2)
    assert "could not finish" in ended["messages"][-1].text


def test_an_agent_that_is_a_node_gets_its_turns(shop):
    """The user's next text gives the tools back to an agent inside a graph; for two such nodes one text is one turn."""
    turns = [*[asks("fetch", f"c{n}") for n in range(3)], "Nothing to do.", asks("find", "c9", order="A1"), "Found."]
    model = Script(turns=turns)
    guard = pokayoke.Guard(contracts(shop.tools, reads=["find"]))
    agent = create_agent(model, shop.tools, middleware=[GuardMiddleware(guard)])
    graph = StateGraph(MessagesState)
    graph.add_node("first", agent)
    graph.add_node("second", lambda state: agent.invoke({"messages": state["messages"][:1]}))
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    whole = graph.compile(checkpointer=InMemorySaver())
    whole.invoke(GO, THREAD)
    run = guard.run("t1")
    assert (run.state.turn, run.mode) == (1, "final_answer")
    whole.invoke({"messages": [("user", "Then find A1.")]}, THREAD)
    assert shop.done == [("find", "A1")]


def test_ids_of_the_history_are_not_given_again(shop):
    """After a restart an id in the history belongs to an old call, so a new call gets another one."""
    saver = InMemorySaver()
    for order in ("A1", "B2"):
        agent, _ = agent_of(Script(turns=[asks("find", order=order), "Done."]), shop.tools, checkpointer=saver)
        ended = agent.invoke(GO, THREAD)
    ids = [one.tool_call_id for one in ended["messages"] if one.type == "tool"]
    assert ids == ["c1", "c1_2"]


def test_of_a_read_in_which_an_agent_wrote_nobody_says_that_nothing_was_changed(shop):
    """The inner agent refunds and then its model breaks: the outer model does not read that nothing was changed."""

    def breaks(_):
        raise RuntimeError("gone")

    @tool
    def ask_billing(question: str) -> str:
        """Ask the billing agent."""
        return inner.invoke({"messages": [("user", question)]})["messages"][-1].text

    guard = pokayoke.Guard(contracts([*shop.tools, ask_billing], reads=["ask_billing"]))
    inner = create_agent(Script(turns=[REFUND, breaks]), shop.tools, middleware=[GuardMiddleware(guard)])
    model = Script(turns=[asks("ask_billing", question="Refund A1."), "It failed."])
    ended = create_agent(model, [ask_billing], middleware=[GuardMiddleware(guard)]).invoke(GO)
    assert shop.done == [("refund", "A1", 5)]
    (told,) = answers(ended)
    assert "The call itself changes nothing" in told
    assert "Nothing was changed" not in told


def helper_of(inner):
    """A tool that asks another agent."""

    @tool
    def helper(task: str) -> str:
        """Ask a helper."""
        return str(inner.invoke({"messages": [("user", task)]})["messages"][-1].text)

    return helper


def test_a_sub_agent_shares_the_ledger_of_its_thread(shop):
    """A write that an agent and an agent inside its tool both call happens once; the inner task begins no turn."""
    guard = pokayoke.Guard(contracts([shop.refund, helper_of(None)], reads=["helper"]))
    guarded = GuardMiddleware(guard)
    inside_model = Script(turns=[REFUND, "Inside."])
    inner = create_agent(inside_model, [shop.refund], middleware=[guarded])
    helper = helper_of(inner)
    model = Script(turns=[asks("helper", task="refund A1"), asks("refund", "c1", order="A1", amount=5), "Done."])
    agent = create_agent(model, [shop.refund, helper], middleware=[guarded], checkpointer=InMemorySaver())
    for config in (THREAD, {"configurable": {"thread_id": "t2"}}):
        model.asked.clear()
        inside_model.asked.clear()
        ended = agent.invoke(GO, config)
        inside, again = answers(ended)
        assert "Inside." in inside
        assert "already ran" in again
    assert shop.done == [("refund", "A1", 5)] * 2
    assert guard.run("t1").state.turn == 1


def test_the_guard_knows_on_whose_behalf_it_acts(shop):
    """`who` reads the principal from the graph's config, and roles decide."""
    access = {"access": {"roles": {"refund": ["clerk"]}}}
    guard = pokayoke.Guard(contracts(shop.tools), config=access)
    guarded = GuardMiddleware(guard, who=lambda config: {"principal": config["configurable"]["user"]})
    agent = create_agent(Script(turns=[REFUND, "Done."]), shop.tools, middleware=[guarded])
    for roles in ([], ["clerk"]):
        agent = create_agent(Script(turns=[REFUND, "Done."]), shop.tools, middleware=[guarded])
        agent.invoke(GO, {"configurable": {"thread_id": str(roles), "user": {"id": "ann", "roles": roles}}})
    assert shop.done == [("refund", "A1", 5)]


@pytest.mark.parametrize("order", [(["clerk"], []), ([], ["clerk"])])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_thread_acts_for_whoever_calls_now(shop, order, asynchronous):
    """Roles are those of the caller, not of the first user of the thread, and so are the tools that the model is offered."""
    guard = pokayoke.Guard(contracts(shop.tools), config={"access": {"roles": {"refund": ["clerk"]}}})
    guarded = GuardMiddleware(guard, who=lambda config: {"principal": config["configurable"]["user"]})
    model = Script(turns=[lambda asked: "Done." if asked[-1].type == "tool" else asks("refund", order="A1", amount=5)])
    agent = create_agent(model, shop.tools, middleware=[guarded], checkpointer=InMemorySaver())
    for roles in order:
        shop.done.clear()
        model.offered.clear()
        config = {"configurable": {"thread_id": "t", "user": {"id": "ann", "roles": roles}}}
        asyncio.run(agent.ainvoke(GO, config)) if asynchronous else agent.invoke(GO, config)
        assert len(shop.done) == len(roles)
        assert ("refund" in str(model.offered[0])) == bool(roles)


def test_a_thread_belongs_to_one_tenant(shop):
    """A caller of another tenant cannot use a thread of the same id."""
    guarded = GuardMiddleware(
        pokayoke.Guard(contracts(shop.tools)), who=lambda config: {"tenant": config["configurable"]["tenant"]}
    )
    agent = create_agent(Script(turns=[REFUND, "Done."]), shop.tools, middleware=[guarded])
    agent.invoke(GO, {"configurable": {"thread_id": "t", "tenant": "acme"}})
    with pytest.raises(UsageError, match="acme"):
        agent.invoke(GO, {"configurable": {"thread_id": "t", "tenant": "evil"}})


def test_a_long_invocation_outlives_a_thousand_others(shop, monkeypatch):
    """While an invocation goes on, its write happens once, however many run meanwhile; ended invocations are closed."""
    monkeypatch.setattr("pokayoke.adapters._host.run._KEPT_RUNS", 3)

    @tool
    def wait(order: str) -> str:
        """Serve others."""
        for _ in range(5):
            other.invoke(GO)
        return "served"

    guarded = GuardMiddleware(pokayoke.Guard(contracts([*shop.tools, wait], reads=["wait"])))
    other = create_agent(Script(turns=["Hello."]), shop.tools, middleware=[guarded])
    turns = [REFUND, asks("wait", "c2", order="A1"), asks("refund", "c3", order="A1", amount=5), "Done."]
    ended = create_agent(Script(turns=turns), [*shop.tools, wait], middleware=[guarded]).invoke(GO)
    assert shop.done == [("refund", "A1", 5)]
    assert "already ran" in answers(ended)[-1]
    runs = guarded._runs
    other.invoke(GO)
    assert len(runs._living) <= 2
