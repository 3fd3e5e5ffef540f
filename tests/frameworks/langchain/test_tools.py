"""What tools take and give: contracts, injected arguments, results, commands and errors."""

import asyncio
import threading
from typing import Annotated

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    TodoListMiddleware,
)
from langchain.tools import InjectedState, InjectedToolCallId, ToolRuntime
from langchain_core.callbacks import BaseCallbackHandler, CallbackManagerForToolRun
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.messages.content import create_file_block, create_image_block
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, ToolException, tool
from langchain_script import GO, REFUND, THREAD, Script, agent_of, answers, asks, together
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from pydantic import BaseModel, Field, create_model, field_validator

import pokayoke
from pokayoke.adapters.langchain import GuardMiddleware, contracts
from pokayoke.errors import UsageError
from pokayoke.stores.base import RecordQuery


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


REFUND_A1 = asks("refund", order="A1")


def test_injected_arguments_work_and_cannot_be_forged():
    """State, runtime and call id reach the tool; the model never sees them, and a key of that name is refused."""
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
    """Artifacts stay with the message, and pictures pass unread, however large."""

    @tool(response_format="content_and_artifact")
    def chart(order: str):
        """Draw."""
        return "a chart", {"points": [1, 2]}

    @tool
    def photo(order: str) -> list:
        """Take a photo."""
        return [{"type": "text", "text": "a photo"}, picture]

    both = together(asks("chart", order="A1"), asks("photo", "c2", order="A1"))
    agent, _ = agent_of(Script(turns=[both, "Done."]), [chart, photo], reads=["chart", "photo"])
    first, second = [one for one in agent.invoke(GO)["messages"] if one.type == "tool"]
    assert first.artifact == {"points": [1, 2]}
    assert "a chart" in first.text
    assert second.content[1] == picture
    assert "a photo" in second.text


def test_bytes_of_a_picture_are_shown_and_other_bytes_are_not():
    """LangChain would write either as the text that Python shows of it."""

    @tool
    def shoot(order: str) -> object:
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
    """A `return_direct` result is the user's text, and says if it is an old one; beside others the agent goes on."""

    @tool(return_direct=True)
    def refund(order: str) -> dict:
        """Refund."""
        return {"refunded": order}

    @tool(return_direct=direct)
    def find(order: str) -> str:
        """Find."""
        return "found"

    both = together(REFUND_A1, asks("find", "c2", order="A1"))
    turn = lambda asked: both if asked[-1].type == "human" else "Done."  # noqa: E731 - one of a script's
    agent, _ = agent_of(Script(turns=[turn]), [refund, find], reads=["find"])
    for mark in ("", "\n\n[Not run a second time: refund.]"):
        texts = [one.text for one in agent.invoke(GO, THREAD)["messages"] if one.type == "tool"]
        assert (texts == [f'{{"refunded": "A1"}}{mark}', "found"]) == direct
        assert any("<tool_output" in text for text in texts) != direct


def test_a_handover_that_is_declared_as_a_read_happens_again():
    """As a write it happens once, and model and user read that the second handover did not happen."""
    for reads, last in ((["transfer"], "Desk."), ([], "Still here.\n\n[Not run a second time: transfer.]")):
        agent, seen = desk_and_back(reads)
        ended = agent.invoke(GO, THREAD)
        assert ended["messages"][-1].text == last
        assert any("hands over to no one" in str(one) for one in seen) != bool(reads)


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


@pytest.mark.parametrize("asynchronous", [False, True])
def test_callbacks_hear_of_the_end_of_a_tool_that_hangs(asynchronous):
    """A span that LangChain began ends once: with an error when the tool is given up, or when its thread returns."""
    may_end = threading.Event()

    async def wait(order: str) -> str:
        """Wait."""
        await asyncio.sleep(20)
        return order

    def block(order: str) -> str:
        """Block a thread until the model has answered."""
        may_end.wait(20)
        return order

    heard = []

    class Listening(BaseCallbackHandler):
        def on_tool_start(self, serialized, text, *, run_id, **more):
            heard.append(("start", run_id))

        def on_tool_end(self, output, *, run_id, **more):
            heard.append(("end", run_id))

        def on_tool_error(self, error, *, run_id, **more):
            heard.append(("error", run_id))

    slow = tool("slow")(wait if asynchronous else block)
    agent, _ = agent_of(
        Script(turns=[asks("slow", order="A1"), "Done."]), [slow], config={"execution": {"timeout": 0.2}}
    )

    async def main():
        ended = await agent.ainvoke(GO, {"callbacks": [Listening()]})
        may_end.set()
        return ended

    assert "did not answer within 0.2 s" in answers(asyncio.run(main()))[0]
    (began, ident), *rest = heard
    assert (began, rest) == ("start", [("error" if asynchronous else "end", ident)])


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
    """A write that its own validator rejects is not in doubt: corrected, the same call runs."""
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
    """A tool that is a class, and takes what LangChain injects."""

    name: str = "get"
    description: str = "Get."
    args_schema: type = create_model("Key", key=(int, ...))
    seen: list = Field(default_factory=list)

    def _run(self, key: int, settings: "RunnableConfig", run_manager: "CallbackManagerForToolRun | None" = None):
        self.seen.append((key, "tags" in settings, type(run_manager).__name__))
        return {"key": key}


class Odd(Own):
    """The same, with the name of a type that does not exist at run time."""

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


def test_a_tool_without_a_synchronous_side_is_the_hosts_mistake():
    """It raises as it does unguarded, and the write that never started is not in doubt."""

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
    """A tool that another middleware runs may have started, so a write that fails there never runs again."""
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
