"""LangChain and LangGraph, guarded: what is special to them. The rows of the table are in `scenarios.py`."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, TypedDict

import pytest

pytest.importorskip("langchain", reason="run by make frameworks")

from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    TodoListMiddleware,
    wrap_model_call,
)
from langchain.agents.structured_output import ToolStrategy
from langchain.tools import InjectedState, InjectedToolCallId, ToolRuntime
from langchain_anthropic import ChatAnthropic
from langchain_core.callbacks import CallbackManagerForToolRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.messages.content import create_file_block, create_image_block
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, ToolException, tool
from langchain_openai import ChatOpenAI
from langchain_process import effects
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from model_server import ModelServer, Turn
from pydantic import BaseModel, Field, create_model, field_validator

import pokayoke
from pokayoke.adapters.langchain import GuardMiddleware, calls, contracts, message
from pokayoke.errors import UsageError
from pokayoke.stores.base import RecordQuery

OBJECT = {"type": "object"}
THREAD = {"configurable": {"thread_id": "t1"}}
GO = {"messages": [("user", "go")]}


def asks(name, ident="c1", **arguments):
    """A message that calls one tool."""
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": ident}])


class Script(BaseChatModel):
    """A model that says one thing after the other, and remembers what it was asked. The last one is repeated."""

    turns: list
    asked: list = Field(default_factory=list)
    offered: list = Field(default_factory=list)

    @property
    def _llm_type(self):
        return "script"

    def bind_tools(self, tools, **options):
        self.offered.append(tools)
        return self

    def _generate(self, messages, stop=None, run_manager=None, **options):
        said = self.turns[min(len(self.asked), len(self.turns) - 1)]
        self.asked.append(list(messages))
        said = said(messages) if callable(said) else said
        said = AIMessage(said) if isinstance(said, str) else said.model_copy()
        return ChatResult(generations=[ChatGeneration(message=said)])


class Pieces(Script):
    """The same, streamed: a turn is a list of chunks."""

    def _stream(self, messages, stop=None, run_manager=None, **options):
        turn = self.turns[min(len(self.asked), len(self.turns) - 1)]
        self.asked.append(list(messages))
        for piece in turn:
            yield ChatGenerationChunk(message=piece)


class Shop:
    """Tools that count what they do."""

    def __init__(self):
        self.done = []
        done = self.done

        @tool
        def find(order: str) -> dict:
            """Find an order."""
            done.append(("find", order))
            return {"order": order}

        @tool
        def refund(order: str, amount: int) -> dict:
            """Refund an order."""
            done.append(("refund", order, amount))
            return {"refunded": order}

        self.find, self.refund = find, refund
        self.tools = [find, refund]


@pytest.fixture
def shop():
    return Shop()


def agent_of(model, tools, *, reads=(), fields=None, config=None, store=None, window=None, **options):
    """A guarded agent, and its guard."""
    guard = pokayoke.Guard(contracts(tools, reads=reads, fields=fields), config=config, store=store)
    return create_agent(model, tools, middleware=[GuardMiddleware(guard, window=window)], **options), guard


def answers(state):
    """The texts that answered calls."""
    return [str(one.text) for one in state["messages"] if one.type == "tool"]


REFUND = asks("refund", order="A1", amount=5)
REFUND_A1 = asks("refund", order="A1")


# -- adopting ----------------------------------------------------------------------------------------


def test_five_lines_guard_an_agent(shop):
    """A duplicate write of an agent that is guarded in five lines happens once."""
    model = Script(turns=[REFUND, asks("refund", "c2", order="A1", amount=5), "Done."])
    guard = pokayoke.Guard(contracts(shop.tools, reads=["find"]))
    agent = create_agent(model, shop.tools, middleware=[GuardMiddleware(guard)])
    ended = agent.invoke(GO)
    assert shop.done == [("refund", "A1", 5)]
    assert "already ran" in answers(ended)[1]
    assert ended["messages"][-1].text == "Done."


def test_what_is_missing_is_named():
    """Without LangChain the import says which extra to install."""
    code = "import sys; sys.modules['langchain'] = None\nimport pokayoke.adapters.langchain"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "pip install 'pokayoke[langchain]'" in done.stderr


def test_a_tool_without_a_contract_is_the_programmers_mistake(shop):
    """A tool of another middleware that the guard does not know is named before the model is asked."""
    guard = pokayoke.Guard(contracts(shop.tools))
    model = Script(turns=["Done."])
    agent = create_agent(model, shop.tools, middleware=[TodoListMiddleware(), GuardMiddleware(guard)])
    with pytest.raises(UsageError, match="write_todos"):
        agent.invoke(GO)
    assert not model.asked


def test_tools_of_other_middleware_work(shop):
    """A middleware's tool that answers with a command changes the state, through the guard."""
    todo = TodoListMiddleware()
    guard = pokayoke.Guard(contracts([*shop.tools, *todo.tools]))
    plan = {"todos": [{"content": "refund", "status": "in_progress"}]}
    model = Script(turns=[asks("write_todos", **plan), "Done."])
    ended = create_agent(model, shop.tools, middleware=[todo, GuardMiddleware(guard)]).invoke(GO)
    assert ended["todos"] == plan["todos"]
    assert "trust=" in answers(ended)[0]


def test_a_message_and_an_outcome_are_read_and_written(shop):
    """In a loop of one's own, `calls` and `message` stand between LangChain's messages and a run."""
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


# -- killed and resumed ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nursery():
    """A process that makes processes."""
    here = Path(__file__).with_name("langchain_process.py")
    with subprocess.Popen([sys.executable, here], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def play(folder, nursery):
    """Plays one process; returns what it left."""

    def played(*step, dies=False):
        (folder / "deadly").touch() if dies else (folder / "deadly").unlink(missing_ok=True)
        nursery.stdin.write(json.dumps([str(folder), *step]) + "\n")
        nursery.stdin.flush()
        ended = json.loads(nursery.stdout.readline())
        assert ended["exit"] == (-signal.SIGKILL if dies else 0)
        assert dies or "wrong" not in ended["result"], ended["result"]["wrong"]
        return ended["result"]

    return played


@pytest.fixture
def folder(tmp_path):
    pokayoke.open_store(f"sqlite:///{tmp_path}/ledger.db", create=True).close()
    return tmp_path


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    ("kind", "said", "state"),
    [
        ("human", "not known whether", "in_doubt"),
        ("lookup", "refunded", "completed"),
        ("downstream", "refunded", "completed"),
    ],
)
def test_a_process_killed_in_mid_write_leaves_one_effect(folder, play, kind, said, state, mode):
    """Killed after the effect and before its record, and resumed from LangGraph's checkpoint, it happened once.

    A write nobody can ask about is in doubt; one whose target can be asked, or drops repeats, is completed.
    """
    play(kind, mode, "begin", dies=True)
    assert len(effects(folder)) == 1
    again = play(kind, mode, "go on")
    assert len(effects(folder)) == 1
    assert again["ledger"] == [state]
    assert said in again["said"][-1][1]
    assert len(play(kind, mode, "go on")["said"]) == len(again["said"])
    assert len(effects(folder)) == 1


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_approval_survives_its_process(folder, play, mode):
    """The graph waits for a person; a new process resumes it with a yes, and the effect happens once."""
    begun = play("approved", mode, "begin")
    assert begun["waits"][0]["arguments"] == {"order": "A1", "cents": 500}
    unclear = play("approved", mode, '"what?"')
    assert "no answer" in unclear["waits"][0]["problem"]
    assert not effects(folder)
    ended = play("approved", mode, '{"approved": true, "by": "ann"}')
    assert len(effects(folder)) == 1
    assert "refunded" in ended["said"][-1][1]
    assert ended["ledger"] == ["completed"]


def test_a_process_killed_after_an_approval_leaves_one_effect(folder, play):
    """Approved, run, and killed before the record: the doubt is not solved by running it again."""
    play("approved", "sync", "begin")
    play("approved", "sync", "true", dies=True)
    again = play("approved", "sync", "go on")
    assert len(effects(folder)) == 1
    assert again["ledger"] == ["in_doubt"]


# -- people ------------------------------------------------------------------------------------------

ASKING = {"refund": {"approval": True}}


def waiting(state):
    """What a graph waits for."""
    return state["__interrupt__"]


def test_a_person_says_no(shop):
    """A denied call never runs, and the model is told."""
    agent, guard = agent_of(Script(turns=[REFUND, "Sorry."]), shop.tools, fields=ASKING, checkpointer=InMemorySaver())
    (asked,) = waiting(agent.invoke(GO, THREAD))
    ended = agent.invoke(Command(resume={"type": "reject", "message": "too much"}), THREAD)
    assert not shop.done
    assert "denied" in answers(ended)[0]
    assert guard.approvals.get(asked.value["approval"]).reason.startswith("too much")


def test_an_answer_given_elsewhere_holds(shop):
    """Approved through the store, the call runs whatever the graph is resumed with."""
    agent, guard = agent_of(Script(turns=[REFUND, "Done."]), shop.tools, fields=ASKING, checkpointer=InMemorySaver())
    (asked,) = waiting(agent.invoke(GO, THREAD))
    guard.approvals.approve(asked.value["approval"], by="bob")
    agent.invoke(Command(resume="whatever"), THREAD)
    assert shop.done == [("refund", "A1", 5)]


def test_two_calls_wait_each_for_its_own_answer(shop):
    """Two calls of one message are asked about separately; a no to one is no answer to the other."""
    both = AIMessage("", tool_calls=[*REFUND.tool_calls, *asks("refund", "c2", order="B2", amount=7).tool_calls])
    agent, _ = agent_of(Script(turns=[both, "Done."]), shop.tools, fields=ASKING, checkpointer=InMemorySaver())
    asked = waiting(agent.invoke(GO, THREAD))
    said = {one.id: one.value["arguments"]["order"] == "B2" for one in asked}
    ended = agent.invoke(Command(resume=said), THREAD)
    assert shop.done == [("refund", "B2", 7)]
    assert "denied" in answers(ended)[0]


def test_a_node_with_two_calls_takes_no_answer_without_a_name(shop):
    """Where calls share a task a bare yes could be meant for either, so it runs none; by the question's id it does."""
    both = AIMessage("", tool_calls=[*REFUND.tool_calls, *asks("refund", "c2", order="B2", amount=7).tool_calls])
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


def test_a_tool_that_asks_by_itself_gets_its_own_answer():
    """Our question and the tool's own are counted apart: the tool never reads the answer to ours."""
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
    """However the guard's question was settled, what its resumes said is no answer to the tool's own."""
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
    """A write that is done asks no more, and LangGraph counts questions: so a tool that asks has to stand alone."""
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
    both = AIMessage("", tool_calls=[*beside.tool_calls, *asks("refund", "c2", order="B2").tool_calls])
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
    """Reads ask again each time, so that the count stays what it was."""

    @tool
    def refund(order: str) -> dict:
        """Refund."""
        shop.done.append((order, interrupt("how many cents?")))
        return {"refunded": order}

    find = next(one for one in shop.tools if one.name == "find")
    both = AIMessage(
        "", tool_calls=[*asks("find", "c1", order="A1").tool_calls, *asks("refund", order="A1").tool_calls]
    )
    model = Script(turns=[both, "Done."])
    graph, _ = graph_of(model, [find, refund], reads=["find"], checkpointer=InMemorySaver())
    assert [one.value for one in waiting(graph.invoke(GO, THREAD))] == ["how many cents?"]
    graph.invoke(Command(resume=5), THREAD)
    assert ("A1", 5) in shop.done


class Elsewhere(TypedDict):
    """A state whose messages have another name."""

    said: Annotated[list, add_messages]


@pytest.mark.parametrize("handed", ["under another key", "as calls"])
def test_one_yes_is_never_for_two_calls(shop, handed):
    """Wherever a node finds the calls of a message: where several wait, an answer has to say which one it means."""
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


# -- a graph of your own -----------------------------------------------------------------------------


def graph_of(model, tools, *, fields=None, reads=(), asynchronous=False, **options):
    """LangGraph's usual two nodes, guarded, and the guard."""
    guard = pokayoke.Guard(contracts(tools, fields=fields, reads=reads))
    guarded = GuardMiddleware(guard)
    chat = guarded.bind(model, tools)

    def ask(state):
        return {"messages": [chat.invoke(state["messages"])]}

    async def aask(state):
        return {"messages": [await chat.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", aask if asynchronous else ask)
    graph.add_node("tools", guarded.tool_node(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(**options), guard


@pytest.mark.parametrize("asynchronous", [False, True])
def test_both_nodes_of_a_plain_graph_are_guarded(shop, asynchronous):
    """Over real HTTP: an array, a cut message and a duplicate write end well in a graph that nobody else guards."""
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
    assert "already ran" in told[3]
    assert ended["messages"][-1].text == "Done."


def test_a_stuck_model_of_a_plain_graph_loses_its_tools(shop):
    """After two bad rounds the request offers no tools, says so, and the last word is honest."""
    model = Script(turns=[asks("fetch", order="A1")])
    graph, _ = graph_of(model, shop.tools)
    ended = graph.invoke(GO)
    assert len(model.asked) == 3
    assert len(model.offered) == 2
    assert "fetch" in str(model.asked[-1][-1].text)
    assert "could not finish" in ended["messages"][-1].text
    assert not any("Tools are off" in str(one.text) for one in ended["messages"])


def test_outside_of_a_graph_a_thread_is_needed(shop):
    """Without a graph and without a thread nobody could know the run, and that is said."""
    guarded = GuardMiddleware(pokayoke.Guard(contracts(shop.tools)))
    chat = guarded.bind(Script(turns=["Done."]), shop.tools)
    with pytest.raises(UsageError, match="thread_id"):
        chat.invoke([("user", "go")])
    assert chat.invoke([("user", "go")], THREAD).text == "Done."


# -- what tools take and give ------------------------------------------------------------------------


def test_injected_arguments_work_and_cannot_be_forged():
    """State, runtime and call id reach the tool, the model never sees them, and a key of that name is refused."""
    seen = []

    @tool
    def look(
        order: str,
        runtime: ToolRuntime,
        state: Annotated[dict, InjectedState],
        called: Annotated[str, InjectedToolCallId],
    ) -> str:
        """Look."""
        seen.append((order, runtime.tool_call_id, len(state["messages"]), called))
        return "ok"

    made = contracts([look], reads=["look"])
    assert list(made[0].model_schema["properties"]) == ["order"]
    model = Script(turns=[asks("look", order="A1"), asks("look", "c2", order="A1", called="forged"), "Done."])
    agent, _ = agent_of(model, [look], reads=["look"])
    ended = agent.invoke(GO)
    assert seen == [("A1", "c1", 2, "c1")]
    assert "`called` is not a field" in answers(ended)[1]


def test_what_the_guard_corrects_reaches_the_tool(shop):
    """The effective arguments are the tool's, and the name may be spelt in another way."""
    agent, _ = agent_of(Script(turns=[asks("functions.Refund", order="A1", amount="5"), "Done."]), shop.tools)
    agent.invoke(GO)
    assert shop.done == [("refund", "A1", 5)]


@pytest.mark.parametrize(
    "picture",
    [
        create_image_block(base64="A" * 400_000, mime_type="image/png"),
        {"type": "image", "base64": "aGk=", "mime_type": "image/png"},
        create_file_block(url="https://x/y.pdf"),
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
    ],
)
def test_artifacts_and_blocks_stay(picture):
    """What is not for the model stays with the message, and pictures are handed on unread, however large."""

    @tool(response_format="content_and_artifact")
    def chart(order: str):
        """Draw."""
        return "a chart", {"points": [1, 2]}

    @tool
    def photo(order: str) -> list:
        """Take a photo."""
        return [{"type": "text", "text": "a photo"}, picture]

    both = AIMessage(
        "", tool_calls=[*asks("chart", order="A1").tool_calls, *asks("photo", "c2", order="A1").tool_calls]
    )
    agent, _ = agent_of(Script(turns=[both, "Done."]), [chart, photo], reads=["chart", "photo"])
    first, second = [one for one in agent.invoke(GO)["messages"] if one.type == "tool"]
    assert first.artifact == {"points": [1, 2]}
    assert "a chart" in first.text
    assert second.content[1] == picture
    assert "a photo" in second.text


def test_bytes_of_a_picture_are_shown_and_other_bytes_are_not():
    """LangChain would write either as the text that Python shows of it."""

    @tool
    def shoot(order: str) -> list:
        """Take a photo."""
        return pokayoke.Raw(b"hi", "image/png") if order == "A1" else b"\x89\x00"

    agent, _ = agent_of(Script(turns=[asks("shoot", order="A1"), asks("shoot", "c2", order="B2"), "Done."]), [shoot])
    first, second = [one.content for one in agent.invoke(GO)["messages"] if one.type == "tool"]
    assert first[1] == {"type": "image", "base64": "aGk=", "mime_type": "image/png"}
    assert "not text: 1" in first[0]["text"]
    assert len(second) == 1
    assert "not text: 1" in second[0]["text"]


class Counted(AgentState):
    """A state with a field of its own."""

    refunds: int


def test_a_command_changes_the_state_once():
    """A tool's command is applied, with the guarded text in its message; a replay changes nothing again."""

    @tool
    def refund(order: str, ident: Annotated[str, InjectedToolCallId], state: Annotated[dict, InjectedState]) -> Command:
        """Refund."""
        said = ToolMessage("<script>refunded</script>", tool_call_id=ident)
        return Command(update={"refunds": state.get("refunds", 0) + 1, "messages": [said]})

    model = Script(turns=[asks("refund", order="A1"), asks("refund", "c2", order="A1"), "Done."])
    agent, _ = agent_of(model, [refund], state_schema=Counted)
    ended = agent.invoke(GO)
    assert ended["refunds"] == 1
    first, second = answers(ended)
    assert first.startswith("<tool_output")
    assert "already ran" in second


@pytest.mark.parametrize("direct", [True, False])
def test_what_goes_to_the_user_directly_is_not_dressed_for_a_model(direct):
    """An agent that ends with a tool's answer ends with its own words, replayed or not; beside other calls it goes on."""

    @tool(return_direct=True)
    def refund(order: str) -> dict:
        """Refund."""
        return {"refunded": order}

    @tool(return_direct=direct)
    def find(order: str) -> str:
        """Find."""
        return "found"

    both = AIMessage("", tool_calls=[*REFUND_A1.tool_calls, *asks("find", "c2", order="A1").tool_calls])
    turn = lambda asked: both if asked[-1].type == "human" else "Done."  # noqa: E731 - one of a script's
    agent, _ = agent_of(Script(turns=[turn]), [refund, find], reads=["find"])
    for _ in range(2):
        texts = [one.text for one in agent.invoke(GO, THREAD)["messages"] if one.type == "tool"]
        assert (texts == ['{"refunded": "A1"}', "found"]) == direct
        assert any("<tool_output" in text for text in texts) != direct


def test_a_handover_that_is_declared_as_a_read_happens_again():
    """As a write it happens once, and the model is told that nobody was handed over the second time."""
    for reads, last in ((["transfer"], "Desk."), ([], "Still here.")):
        agent, seen = desk_and_back(reads)
        ended = agent.invoke(GO, THREAD)
        assert ended["messages"][-1].text == last
        assert any("nobody is handed over now" in str(one) for one in seen) != bool(reads)


def desk_and_back(reads):
    """An agent that hands over to a desk, which sends back once; and what the agent's model was asked."""

    @tool
    def transfer(runtime: ToolRuntime) -> Command:
        """Hand over."""
        said = ToolMessage("Transferred.", tool_call_id=runtime.tool_call_id)
        return Command(goto="desk", graph=Command.PARENT, update={"messages": [*runtime.state["messages"], said]})

    model = Script(turns=[asks("transfer"), asks("transfer", "c2"), "Still here."])
    agent, _ = agent_of(model, [transfer], reads=reads)
    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)
    graph.add_node("desk", lambda _: {"messages": [AIMessage("Desk.")]})
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("desk", lambda _: "agent" if len(model.asked) < 2 else "__end__")
    return graph.compile(), model.asked


def test_objects_are_data_and_not_their_repr():
    """A pydantic object reaches the model as JSON, where LangChain alone would write its repr."""

    class Order(BaseModel):
        name: str
        cents: int

    @tool
    def find(order: str) -> Order:
        """Find."""
        return Order(name=order, cents=500)

    agent, _ = agent_of(Script(turns=[asks("find", order="A1"), "Done."]), [find], reads=["find"])
    assert '{"name":"A1","cents":500}' in answers(agent.invoke(GO))[0]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_a_tool_raises_stays_here(asynchronous):
    """However LangGraph handles errors, the model reads no exception's text, and a write is in doubt."""

    @tool
    def refund(order: str) -> str:
        """Refund."""
        raise RuntimeError("password=hunter2")

    guard = pokayoke.Guard(contracts([refund]))
    node = GuardMiddleware(guard).tool_node([refund], handle_tool_errors=True)
    graph = StateGraph(MessagesState)
    graph.add_node("tools", node)
    graph.add_edge(START, "tools")
    given = {"messages": [asks("refund", order="A1")]}
    run = graph.compile()
    ended = asyncio.run(run.ainvoke(given)) if asynchronous else run.invoke(given)
    (answer,) = answers(ended)
    assert "hunter2" not in answer
    assert "not known whether it took effect" in answer
    assert ended["messages"][-1].status == "error"


def test_a_tools_own_words_are_for_the_model():
    """The text of a ToolException is read only where the tool says how it is handled."""

    def refused(order: str) -> str:
        """Refund."""
        raise ToolException("this order is too old")

    for handled in (True, False):
        one = tool("refund")(refused)
        one.handle_tool_error = handled
        agent, _ = agent_of(Script(turns=[asks("refund", order="A1"), "Done."]), [one])
        assert ("too old" in answers(agent.invoke(GO))[0]) is handled


def test_the_tools_own_validators_prove_that_it_never_began():
    """A write that its own validator refuses is no doubt: corrected, the same call runs."""
    done = []

    class Arguments(BaseModel):
        order: str

        @field_validator("order")
        @classmethod
        def known(cls, value):
            """Only orders of this year."""
            if not done and value == "A1":
                done.append("asked")
                raise ValueError("no order of this year")
            return value

    @tool(args_schema=Arguments)
    def refund(order: str) -> str:
        """Refund."""
        done.append(order)
        return "refunded"

    model = Script(turns=[asks("refund", order="A1"), asks("refund", "c2", order="A1"), "Done."])
    agent, _ = agent_of(model, [refund])
    first, second = answers(agent.invoke(GO))
    assert "no order of this year" in first
    assert "refunded" in second
    assert done == ["asked", "A1"]


class Own(BaseTool):
    """A tool that is a class, and wants to know what LangChain has for it."""

    name: str = "get"
    description: str = "Get."
    args_schema: type = create_model("Key", key=(int, ...))
    seen: list = Field(default_factory=list)

    def _run(self, key: int, settings: "RunnableConfig", run_manager: "CallbackManagerForToolRun | None" = None):
        self.seen.append((key, "tags" in settings, type(run_manager).__name__))
        return {"key": key}


class Odd(Own):
    """The same, with the name of a type that is nowhere at run time."""

    def _run(self, key: int, settings: "Nowhere" = None, run_manager=None):  # noqa: F821 - that is the case
        self.seen.append((key, settings, type(run_manager).__name__))
        return {"key": key}


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("kind", [Own, Odd])
def test_a_tool_that_is_a_class_gets_what_langchain_has_for_it(kind, asynchronous):
    """Guarded or not, LangChain finds the same signature and the same types."""
    seen = []
    for guarded in (False, True):
        own = kind()
        middleware = [GuardMiddleware(pokayoke.Guard(contracts([own], reads=["get"])))] if guarded else []
        agent = create_agent(Script(turns=[asks("get", key=2), "Done."]), [own], middleware=middleware)
        asyncio.run(agent.ainvoke(GO)) if asynchronous else agent.invoke(GO)
        seen.append(own.seen)
    assert seen[0] == seen[1]
    assert len(seen[0]) == 1


def test_a_message_that_a_tool_returned_keeps_what_is_not_the_guards():
    """Only its text, its name and its status are the guard's; a message of another class stays one."""

    class Noted(ToolMessage):
        note: str = "mine"

    @tool
    def get(key: int, ident: Annotated[str, InjectedToolCallId]) -> ToolMessage:
        """Get."""
        return (Noted if key else ToolMessage)("x", tool_call_id=ident, artifact={"key": key}, id=f"m{key}", extra="e")

    guard = pokayoke.Guard(contracts([get], reads=["get"]))
    script = Script(turns=[asks("get", "c0", key=0), asks("get", "c1", key=1), "Done."])
    messages = create_agent(script, [get], middleware=[GuardMiddleware(guard)]).invoke(GO)["messages"]
    plain, noted = (one for one in messages if one.type == "tool")
    for place, one in enumerate((plain, noted)):
        assert (one.id, one.artifact, one.extra, one.name) == (f"m{place}", {"key": place}, "e", "get")
        assert "<tool_output" in one.text
        assert {"content", "name", "status", "artifact", "extra"} <= one.model_fields_set
    assert (type(plain), noted.note) == (ToolMessage, "mine")


def test_a_history_may_be_written_in_any_way_that_langchain_reads(shop):
    """Pairs, dicts and messages: what middleware puts into a request is read like the rest."""

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


def test_a_tool_without_a_synchronous_side_is_the_hosts_mistake():
    """It raises as it does unguarded, and the write that never began is not in doubt."""

    @tool
    async def refund(order: str) -> str:
        """Refund."""
        return "refunded"

    agent, guard = agent_of(Script(turns=[asks("refund", order="A1"), "Done."]), [refund])
    with pytest.raises(NotImplementedError):
        agent.invoke(GO, THREAD)
    assert [record.state for record in guard.store.records(RecordQuery(run_id="t1"))] == ["failed_retriable"]


def test_the_key_argument_is_the_guards_alone():
    """The model is not shown the argument that carries the ledger key, and the tool gets it."""
    keys = []

    @tool
    def refund(order: str, key: str) -> str:
        """Refund."""
        keys.append(key)
        return "refunded"

    model = Script(turns=[asks("refund", order="A1"), "Done."])
    agent, _ = agent_of(model, [refund], fields={"refund": {"key_argument": "key", "on_ambiguous": "downstream_key"}})
    agent.invoke(GO)
    assert list(model.offered[0][0]["function"]["parameters"]["properties"]) == ["order"]
    assert len(keys[0]) == 64


def test_large_outputs_are_put_aside_and_paged():
    """Of a large output the model gets a preview, and from then on a tool to read on."""

    @tool
    def read(order: str) -> str:
        """Read."""
        return "x" * 30_000 + "END"

    page = asks("read_output", "c2", handle="out-1", offset=29_990)
    model = Script(turns=[asks("read", order="A1"), page, "Done."])
    agent, guard = agent_of(model, [read], reads=["read"], fields={"read": {"output_schema": "text"}})
    page.tool_calls[0]["name"] = guard.pager.name
    first, second = answers(agent.invoke(GO))
    assert len(first) < 3_000
    assert "END" in second
    assert [len(offered) for offered in model.offered] == [1, 2, 2]


# -- streams -----------------------------------------------------------------------------------------


def served(turn, wire):
    """A server with one reply and an end, and the model at it."""
    server = ModelServer([turn, Turn("Done.")])

    def model():
        if wire == "anthropic":
            return ChatAnthropic(model="m", base_url=server.url, api_key="k", max_retries=0)
        responses = wire == "responses"
        return ChatOpenAI(
            model="m", base_url=f"{server.url}/v1", api_key="k", max_retries=0, use_responses_api=responses
        )

    return server, model


async def astreamed(agent, mode):
    """The last state of a streamed run."""
    last = None
    async for kind, part in agent.astream(GO, stream_mode=[mode, "values"]):
        last = part if kind == "values" else last
    return last


@pytest.mark.parametrize("wire", ["chat", "responses", "anthropic"])
@pytest.mark.parametrize("left", [1, 2])
async def test_a_stream_that_breaks_off_runs_nothing(shop, wire, left):
    """A stream that ends before it says why runs no call, even where LangChain completes its text to one that parses."""
    calls_ = (("a", "refund", '{"order": "A1", "amount": 5}'), ("b", "refund", '{"order": "B2", "amount": 77}'))
    whole = {"chat": 24, "responses": 26, "anthropic": 29}[wire]
    server, model = served(Turn(calls=calls_, breaks=whole - left * 4), wire)
    with server:
        agent, _ = agent_of(model(), shop.tools)
        with contextlib.suppress(Exception):  # a client that notices by itself
            await astreamed(agent, "messages")
    assert not shop.done


async def test_a_cut_that_a_stream_has_told_is_not_taken_back(shop):
    """A later chunk with another reason to stop changes nothing about the first."""
    turn = Turn(calls=(("a", "refund", '{"order": "A1", "amount": 5}'),), stop="length", then="tool_calls")
    server, model = served(turn, "chat")
    with server:
        agent, _ = agent_of(model(), shop.tools)
        await astreamed(agent, "messages")
    assert not shop.done


@pytest.mark.parametrize("wire", ["chat", "responses", "anthropic"])
@pytest.mark.parametrize("mode", ["messages", "updates", "custom", "debug"])
async def test_no_stream_mode_runs_a_cut_message(shop, wire, mode):
    """A message that ended for its length runs nothing in any stream mode, though its arguments parse."""
    server, model = served(Turn(calls=(("a", "refund", '{"order": "A1", "amount": 5}'),), stop="length"), wire)
    with server:
        agent, _ = agent_of(model(), shop.tools)
        ended = await astreamed(agent, mode)
        assert not server.refused
    assert not shop.done
    assert "cut" in answers(ended)[0]


@pytest.mark.filterwarnings("ignore:The v3 streaming protocol")  # experimental, as LangChain says itself
@pytest.mark.parametrize("stop", ["length", None])
def test_the_event_stream_runs_only_what_is_whole(shop, stop):
    """LangChain's newer event stream goes another way to the message; a cut one runs nothing there either."""
    server, model = served(Turn(calls=(("a", "refund", '{"order": "A1", "amount": 5}'),), stop=stop), "chat")
    with server:
        agent, _ = agent_of(model(), shop.tools)
        stream = agent.stream_events(GO, version="v3")
        ended = stream.output
        assert not server.refused
    assert shop.done == ([] if stop else [("refund", "A1", 5)])
    assert ("cut" if stop else "refunded") in answers(ended)[0]


def test_a_text_that_was_only_completed_is_read_as_it_came(shop):
    """Of a stream whose arguments end in the middle, the model reads that they ended; nothing is guessed."""
    part = {"name": "refund", "args": '{"order": "A1", "amount": 12', "id": "a", "index": 0}
    turns = [[AIMessageChunk("", tool_call_chunks=[part])], [AIMessageChunk("Done.")]]
    agent, _ = agent_of(Pieces(turns=turns), shop.tools)
    ended = None
    for kind, state in agent.stream(GO, stream_mode=["messages", "values"]):
        ended = state if kind == "values" else ended
    assert not shop.done
    assert "ends" in answers(ended)[0]


def test_who_read_the_stream_gets_the_correction_too(shop):
    """A last word that was replaced is a message of its own, so a reader of the stream sees it as well."""
    turns = [
        [AIMessageChunk("", tool_call_chunks=[{"name": "fetch", "args": "{}", "id": f"c{n}", "index": 0}])]
        for n in range(3)
    ]
    agent, _ = agent_of(Pieces(turns=turns), shop.tools)
    seen = [str(one.text) for one, _ in agent.stream(GO, stream_mode="messages")]
    assert any("could not finish" in one for one in seen)


# -- runs --------------------------------------------------------------------------------------------


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
    """What a stuck turn lost comes back with the user's next text, and only with that."""
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
    """Middleware that adds to each request what nobody has said, as a dict."""
    return handler(request.override(messages=[*request.messages, {"role": "user", "content": "It is Monday."}]))


@pytest.mark.parametrize("turn", [asks("fetch", order="A1"), ""])
@pytest.mark.parametrize("middleware", [[], [reminding]])
def test_what_middleware_adds_to_a_request_is_no_turn(shop, turn, middleware):
    """A model that is stuck, or says nothing, loses its tools however a request was added to."""
    model = Script(turns=[turn])
    guarded = GuardMiddleware(pokayoke.Guard(contracts(shop.tools)))
    ended = create_agent(model, shop.tools, middleware=[*middleware, guarded]).invoke(GO)
    assert len(model.asked) == (3 if turn else 2)
    assert "could not finish" in ended["messages"][-1].text


@pytest.mark.parametrize("turn", [asks("fetch", order="A1"), ""])
def test_what_a_node_adds_to_a_request_is_no_turn(shop, turn):
    """The same in a graph of one's own, whose requests may be made of messages that have no id."""
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
    """The user's next text gives the tools back to an agent inside a graph; two such nodes hear one text as one turn."""
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
    """After a restart an id that the history holds is another call's, so the new call gets one of its own."""
    saver = InMemorySaver()
    for order in ("A1", "B2"):
        agent, _ = agent_of(Script(turns=[asks("find", order=order), "Done."]), shop.tools, checkpointer=saver)
        ended = agent.invoke(GO, THREAD)
    ids = [one.tool_call_id for one in ended["messages"] if one.type == "tool"]
    assert ids == ["c1", "c1_2"]


def test_of_a_read_in_which_an_agent_wrote_nobody_says_that_nothing_was_changed(shop):
    """The inner agent refunds and then its model breaks: the outer model hears what is known, and no more."""

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


def test_a_sub_agent_shares_the_ledger_of_its_thread(shop):
    """A write that an agent and an agent inside its tool both ask for happens once; a task is no turn of the user's."""
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


def helper_of(inner):
    """A tool that asks another agent."""

    @tool
    def helper(task: str) -> str:
        """Ask a helper."""
        return str(inner.invoke({"messages": [("user", task)]})["messages"][-1].text)

    return helper


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
    """Roles are those of the caller, not of who used the thread first, and so are the tools the model is offered."""
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


def test_a_demand_for_a_tool_that_is_denied_is_dropped(shop):
    """Providers refuse a request that demands a tool it does not offer."""

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


def test_a_thread_belongs_to_one_tenant(shop):
    """Another tenant's caller does not hear what a thread of the same id has done."""
    guarded = GuardMiddleware(
        pokayoke.Guard(contracts(shop.tools)), who=lambda config: {"tenant": config["configurable"]["tenant"]}
    )
    agent = create_agent(Script(turns=[REFUND, "Done."]), shop.tools, middleware=[guarded])
    agent.invoke(GO, {"configurable": {"thread_id": "t", "tenant": "acme"}})
    with pytest.raises(UsageError, match="acme"):
        agent.invoke(GO, {"configurable": {"thread_id": "t", "tenant": "evil"}})


def test_a_long_invocation_outlives_a_thousand_others(shop, monkeypatch):
    """While it goes on, a write of it happens once, however many were served meanwhile; what has ended is let go."""
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


def test_tokens_are_counted_as_the_provider_counts(shop):
    """The run's tokens are those of the reply."""
    with ModelServer([Turn("Done.", tokens=(1_200, 34))]) as server:
        model = ChatOpenAI(model="m", base_url=f"{server.url}/v1", api_key="k")
        agent, guard = agent_of(model, shop.tools)
        agent.invoke(GO, THREAD)
        assert guard.run("t1").tokens == 1_234


# -- requests and replies ----------------------------------------------------------------------------


def test_a_window_shortens_the_request_and_not_the_history(shop, monkeypatch):
    """Above the window the model is sent less, a valid history all the same; the graph keeps everything, the trace says so."""

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


def test_what_never_fits_is_not_sent(shop):
    """A user's text above the window is answered without asking the model."""
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
    """LangChain answers its own calls by itself; ours beside them are guarded."""
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


def test_a_structured_response_of_a_cut_message_is_none(shop):
    """A cut message whose fields happen to validate is no answer: the model is asked again."""
    cut = asks("Answer", "c2", order="A1").model_copy(update={"response_metadata": {"finish_reason": "length"}})
    model = Script(turns=[cut, asks("Answer", "c3", order="A1", cents=5)])
    agent, _ = agent_of(model, shop.tools, response_format=ToolStrategy(Answer))
    ended = agent.invoke(GO)
    assert ended["structured_response"] == Answer(order="A1", cents=5)
    assert "cut" in answers(ended)[0]


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
    """No spelling that the guard puts right passes it by: the person reads what a yes runs. The trace has both."""
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


def test_what_a_middleware_makes_of_a_corrected_call_counts(shop):
    """Behind the model it changes arguments in their place: neither the model's own nor the guard's come back."""

    class Smaller(AgentMiddleware):
        def after_model(self, state, runtime):
            for one in state["messages"][-1].tool_calls:
                one["args"]["amount"] = 1

    guard = pokayoke.Guard(contracts(shop.tools))
    model = Script(turns=[asks("refund", order="A1", amount="5"), "Done."])
    create_agent(model, shop.tools, middleware=[Smaller(), GuardMiddleware(guard)]).invoke(GO)
    assert shop.done == [("refund", "A1", 1)]


def test_another_middleware_may_exchange_the_calls(shop):
    """What a middleware between model and guard puts into the message counts, not what the model had written."""

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
    """The model is asked through a view: its class, its attributes and its own state are the user's as before."""
    model = Script(turns=["Done."])
    before = set(vars(model))
    agent, _ = agent_of(model, shop.tools)
    agent.invoke(GO)
    assert type(model) is Script
    assert set(vars(model)) - before <= {"_serialized"}  # LangChain's own cache
    assert len(model.asked) == 1
    copy = model.model_copy(update={"turns": ["Other."]})
    assert copy.invoke([HumanMessage("go")]).text == "Other."


def test_a_plain_tool_node_may_be_wrapped_by_hand(shop):
    """`ToolNode` takes the two hooks as they are."""
    guarded = GuardMiddleware(pokayoke.Guard(contracts(shop.tools)))
    node = ToolNode(shop.tools, wrap_tool_call=guarded.wrap_tool_call, awrap_tool_call=guarded.awrap_tool_call)
    graph = StateGraph(MessagesState)
    graph.add_node("tools", node)
    graph.add_edge(START, "tools")
    ended = graph.compile().invoke({"messages": [asks("refund", order="A1", amount="five")]})
    assert "amount" in answers(ended)[0]
    assert not shop.done


def test_a_tool_that_a_middleware_exchanged_is_in_doubt_when_it_fails(shop):
    """What runs behind another middleware may have begun, so a write that fails there is never started again."""
    done = []

    @tool("refund")
    def other(order: str, amount: int) -> str:
        """Refund elsewhere."""
        done.append(order)
        raise RuntimeError("password=hunter2")

    class Elsewhere(AgentMiddleware):
        def wrap_tool_call(self, request, handler):
            return handler(request.override(tool=other))

    guard = pokayoke.Guard(contracts(shop.tools))
    again = asks("refund", "c2", order="A1", amount=5)
    model = Script(turns=[REFUND, again, "Done."])
    agent = create_agent(model, shop.tools, middleware=[GuardMiddleware(guard), Elsewhere()])
    first, second = answers(agent.invoke(GO))
    assert done == ["A1"]
    assert "hunter2" not in first + second
    assert "not known whether it took effect" in first
    assert "doubt" in second or "not known" in second
