"""Requests and replies of an agent's model."""

import asyncio

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    wrap_model_call,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langchain_script import GO, REFUND, THREAD, Script, agent_of, answers, asks, graph_of
from langgraph.checkpoint.memory import InMemorySaver
from model_server import ModelServer, Turn
from pydantic import BaseModel

import pokayoke
from pokayoke import ToolCall
from pokayoke.adapters.langchain import GuardMiddleware, calls, contracts, message


@pytest.mark.parametrize("asynchronous", [False, True])
def test_both_nodes_of_a_plain_graph_are_guarded(shop, asynchronous):
    """Over real HTTP, an array, a cut message and a duplicate write are refused or replayed in a plain graph."""
    refund = '{"order": "A1", "amount": 5}'
    turns = [
        Turn(calls=(("a", "find", '["A1"]'), ("b", "refund", refund))),
        Turn(calls=(("c", "refund", '{"order": "B2", "amount": 7}'),), stop="length"),
        Turn(calls=(("d", "refund", refund),)),
        Turn("Done."),
    ]
    with ModelServer(turns) as server:
        model = ChatOpenAI(model="m", base_url=f"{server.url}/v1", api_key="k", max_retries=0)
        graph, _ = graph_of(model, shop.tools, reads=["find"], asynchronous=asynchronous)
        ended = asyncio.run(graph.ainvoke(GO)) if asynchronous else graph.invoke(GO)
        assert not server.refused
    assert shop.done == [("refund", "A1", 5)]
    told = answers(ended)
    assert "object" in told[0]
    assert "refunded" in told[1]
    assert "cut" in told[2]
    assert told[3].startswith("Not run again: refund already ran at ")
    assert ended["messages"][-1].text == "Done.\n\n[Not run a second time: refund.]"


def test_a_stuck_model_of_a_plain_graph_loses_its_tools(shop):
    """After two bad rounds the request offers no tools and says why, and the final text is the fallback."""
    model = Script(turns=[asks("fetch", order="A1")])
    graph, _ = graph_of(model, shop.tools)
    ended = graph.invoke(GO)
    assert len(model.asked) == 3
    assert len(model.offered) == 2
    assert "fetch" in str(model.asked[-1][-1].text)
    assert "could not finish" in ended["messages"][-1].text
    assert not any("Tools are off" in str(one.text) for one in ended["messages"])


def test_a_history_may_be_written_in_any_way_that_langchain_reads(shop):
    """Middleware may put pairs, dicts and messages into a request."""

    @wrap_model_call
    def adds(request, handler):
        before = [("user", "hello"), {"role": "ai", "content": "hi"}]
        return handler(request.override(messages=[*before, *request.messages]))

    script = Script(turns=[asks("find", order="A1"), "Done."])
    guard = pokayoke.Guard(contracts(shop.tools, reads=["find"]))
    agent = create_agent(script, shop.tools, middleware=[adds, GuardMiddleware(guard)])
    assert agent.invoke(GO)["messages"][-1].text == "Done."
    assert shop.done == [("find", "A1")]
    assert [one.type for one in script.asked[-1]] == ["human", "ai", "human", "ai", "tool"]


def test_a_demand_for_a_tool_that_is_denied_is_dropped(shop):
    """A tool choice that names a hidden tool is dropped: providers reject a request that demands it."""

    class Demanding(AgentMiddleware):
        def wrap_model_call(self, request, handler):
            return handler(request.override(tool_choice="refund"))

    class Listening(AgentMiddleware):
        def wrap_model_call(self, request, handler):
            heard.append(request.tool_choice)
            return handler(request)

    heard = []
    for config in ({"access": {"deny": ["refund"]}}, {}):
        guarded = GuardMiddleware(pokayoke.Guard(contracts(shop.tools), config=config))
        agent = create_agent(Script(turns=["Done."]), shop.tools, middleware=[Demanding(), guarded, Listening()])
        agent.invoke(GO)
    assert heard == [None, "refund"]


def test_a_window_shortens_the_request_and_not_the_history(shop, monkeypatch):
    """Above the window the model gets a shorter valid history; the graph keeps all of it, and the trace has an event."""

    @tool
    def read(order: str) -> str:
        """Read."""
        return f"{order} " * 300

    turns = [asks("read", f"c{n}", order=f"A{n}") for n in range(14)]
    model = Script(turns=[*turns, "Done."])
    agent, guard = agent_of(model, [read], reads=["read"], window=8_000)
    traced = []
    with monkeypatch.context() as patched:
        patched.setattr(guard.trace, "record", lambda event: traced.append(event) or event)
        ended = agent.invoke(GO)
    assert [event["ok"] for event in traced if event["event"] == "context"]
    assert len(ended["messages"]) == 30
    assert len(model.asked[-1]) < 20
    sizes = [sum(len(str(one.text)) for one in asked) for asked in model.asked]
    assert max(sizes) < 8_000 * 5
    assert model.asked[-1][0].text == "go"


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("window", [None, 50_000])
def test_a_call_that_nobody_answered_is_answered_in_each_request(shop, asynchronous, window):
    """A user may speak while an approval waits: the request is valid, and says what the ledger knows by then.

    The graph's own history stays as it is.
    """
    model = Script(turns=[REFUND, "Hello.", "Done."])
    fields = {"refund": {"approval": True}}
    agent, guard = agent_of(model, shop.tools, fields=fields, window=window, checkpointer=InMemorySaver())

    def say(text):
        given = {"messages": [("user", text)]}
        return asyncio.run(agent.ainvoke(given, THREAD)) if asynchronous else agent.invoke(given, THREAD)

    waiting = say("go")["__interrupt__"][0].value["approval"]
    say("Hello?")
    kinds = ["human", "ai", "tool", "human"]
    assert [one.type for one in model.asked[-1]] == kinds
    assert str(model.asked[-1][2].text).startswith("No result of this call is known.")
    guard.approvals.approve(waiting)
    assert (
        guard.run("t1")
        .call(ToolCall("c1", "refund", {"order": "A1", "amount": 5}), invoke=lambda _: {"refunded": "A1"})
        .ok
    )
    ended = say("And now?")
    assert [one.type for one in model.asked[-1]] == [*kinds, "ai", "human"]
    assert str(model.asked[-1][2].text).startswith("Not run again: refund already ran at ")
    assert [one.type for one in ended["messages"]] == ["human", "ai", "human", "ai", "human", "ai"]


def test_what_never_fits_is_not_sent(shop):
    """A user's text above the window is answered without a request."""
    model = Script(turns=["Done."])
    agent, _ = agent_of(model, shop.tools, window=500)
    ended = agent.invoke({"messages": [("user", "x y z " * 2_000)]})
    assert not model.asked
    assert "could not finish" in ended["messages"][-1].text


class Answer(BaseModel):
    """A structured answer."""

    order: str
    cents: int = 0


def test_a_structured_response_passes(shop):
    """LangChain answers its own call for the structured response; other calls are guarded."""
    structured = asks("Answer", "c2", order="A1", cents=5)
    agent, _ = agent_of(Script(turns=[REFUND, structured]), shop.tools, response_format=ToolStrategy(Answer))
    ended = agent.invoke(GO)
    assert ended["structured_response"] == Answer(order="A1", cents=5)
    assert shop.done == [("refund", "A1", 5)]


def test_calls_beside_a_structured_response_keep_their_places(shop):
    """The call that gives a structured response stands where the model wrote it, behind another tool's."""
    both = asks("find", order="A1")
    both.tool_calls += asks("Answer", "c2", order="A1", cents=5).tool_calls
    agent, _ = agent_of(Script(turns=[both]), shop.tools, response_format=ToolStrategy(Answer))
    ended = agent.invoke(GO)
    assert [call["name"] for call in ended["messages"][1].tool_calls] == ["find", "Answer"]
    assert (ended["structured_response"], shop.done) == (Answer(order="A1", cents=5), [("find", "A1")])


@pytest.mark.parametrize("first", [0, 1])
def test_a_structured_response_that_shares_its_id_with_a_call_hides_it_from_nobody(shop, first):
    """The call runs and is answered under an id of its own; the history holds each call once."""
    both = [*asks("refund", order="A1", amount=5).tool_calls, *asks("Answer", order="A1", cents=5).tool_calls]
    script = Script(turns=[AIMessage("", tool_calls=[both[first], both[1 - first]])])
    agent, _ = agent_of(script, shop.tools, response_format=ToolStrategy(Answer))
    ended = agent.invoke(GO)
    calls_of = ended["messages"][1].tool_calls
    assert [call["name"] for call in calls_of] == [both[first]["name"], both[1 - first]["name"]]
    answered = [one.tool_call_id for one in ended["messages"] if one.type == "tool"]
    assert sorted(answered) == sorted(call["id"] for call in calls_of) == ["c1", "c1_2"]
    assert (ended["structured_response"], shop.done) == (Answer(order="A1", cents=5), [("refund", "A1", 5)])


@pytest.mark.parametrize("stop", [None, "length"])
def test_arguments_of_a_cut_message_that_parse_stay(shop, stop):
    """The history and the next request have the object that the model wrote; it runs in no process, a new one included.

    The graph stops before its tools, and another guard and agent go on with it.
    """
    saver = InMemorySaver()
    refund = '{"order": "A1", "amount": 5}'
    with ModelServer([Turn(calls=(("c1", "refund", refund),), stop=stop), Turn("Done.")]) as server:
        model = ChatOpenAI(model="m", base_url=f"{server.url}/v1", api_key="k", max_retries=0)
        for given in (GO, None):
            agent, _ = agent_of(model, shop.tools, checkpointer=saver, interrupt_before=["tools"] if given else None)
            ended = agent.invoke(given, THREAD)
            assert ended["messages"][1].tool_calls[0]["args"] == {"order": "A1", "amount": 5}
        assert "unread_tool_call" not in str(server.bodies)
    assert shop.done == ([] if stop else [("refund", "A1", 5)])
    assert ("cut" in answers(ended)[0]) is (stop is not None)


def test_a_structured_response_of_a_cut_message_is_none(shop):
    """A cut message whose fields happen to validate is no answer: the model is asked again."""
    cut = asks("Answer", "c2", order="A1").model_copy(update={"response_metadata": {"finish_reason": "length"}})
    model = Script(turns=[cut, asks("Answer", "c3", order="A1", cents=5)])
    agent, _ = agent_of(model, shop.tools, response_format=ToolStrategy(Answer))
    ended = agent.invoke(GO)
    assert ended["structured_response"] == Answer(order="A1", cents=5)
    assert "cut" in answers(ended)[0]


def test_what_a_middleware_makes_of_a_corrected_call_counts(shop):
    """It changes arguments in place after the model: its arguments run, neither the model's nor the guard's."""

    class Smaller(AgentMiddleware):
        def after_model(self, state, runtime):
            for one in state["messages"][-1].tool_calls:
                one["args"]["amount"] = 1

    guard = pokayoke.Guard(contracts(shop.tools))
    model = Script(turns=[asks("refund", order="A1", amount="5"), "Done."])
    create_agent(model, shop.tools, middleware=[Smaller(), GuardMiddleware(guard)]).invoke(GO)
    assert shop.done == [("refund", "A1", 1)]


def test_another_middleware_may_exchange_the_calls(shop):
    """The calls that a middleware between model and guard puts into the message run, not the model's."""

    class Smaller(AgentMiddleware):
        def wrap_model_call(self, request, handler):
            response = handler(request)
            said = response.result[0]
            for one in said.tool_calls:
                one["args"] = {**one["args"], "amount": 1}
            return response

    with ModelServer([Turn(calls=(("a", "refund", '{"order": "A1", "amount": 5}'),)), Turn("Done.")]) as server:
        model = ChatOpenAI(model="m", base_url=f"{server.url}/v1", api_key="k")
        guard = pokayoke.Guard(contracts(shop.tools))
        agent = create_agent(model, shop.tools, middleware=[GuardMiddleware(guard), Smaller()])
        agent.invoke(GO)
    assert shop.done == [("refund", "A1", 1)]


def test_a_repeated_message_id_overwrites_nothing(shop):
    """A server that gives every reply one id loses no message of the history."""
    first, second = REFUND.model_copy(update={"id": "r"}), AIMessage("Done.", id="r")
    agent, _ = agent_of(Script(turns=[first, second]), shop.tools)
    assert [one.type for one in agent.invoke(GO)["messages"]] == ["human", "ai", "tool", "ai"]


def test_the_users_model_is_not_touched(shop):
    """The model is called through a wrapper: its class, its attributes and its own state do not change."""
    model = Script(turns=["Done."])
    before = set(vars(model))
    agent, _ = agent_of(model, shop.tools)
    agent.invoke(GO)
    assert type(model) is Script
    assert set(vars(model)) - before <= {"_serialized"}  # LangChain's own cache
    assert len(model.asked) == 1
    copy = model.model_copy(update={"turns": ["Other."]})
    assert copy.invoke([HumanMessage("go")]).text == "Other."


def test_a_message_and_an_outcome_are_read_and_written(shop):
    """In a loop of the user's own, `calls` and `message` convert between LangChain's messages and a run."""
    guard = pokayoke.Guard(contracts(shop.tools))
    bad = {"name": "refund", "args": "{'order': 'A1', 'amount': 5}", "id": None, "error": None}
    said = AIMessage("", tool_calls=REFUND.tool_calls, invalid_tool_calls=[bad])
    with guard.run() as run:
        outcomes = run.call_batch(calls(said, run), invoke=lambda call, arguments: {"refunded": "A1"})
    made = [message(one) for one in outcomes]
    assert [(one.tool_call_id, one.status, one.name) for one in made] == [
        ("c1", "success", "refund"),
        ("call_1", "success", "refund"),
    ]
    assert "already ran" in made[1].text
    cut = AIMessage("", tool_calls=REFUND.tool_calls, response_metadata={"stop_reason": "max_tokens"})
    with guard.run() as run:
        assert run.call_batch(calls(cut, run))[0].findings[0].code == "cut_message"
