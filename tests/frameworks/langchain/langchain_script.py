"""A scripted model and a shop for the tests of LangChain's adapter."""

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition
from pydantic import Field

import pokayoke
from pokayoke.adapters.langchain import GuardMiddleware, contracts

THREAD = {"configurable": {"thread_id": "t1"}}
GO = {"messages": [("user", "go")]}


def asks(name, ident="c1", **arguments):
    """A message that calls one tool."""
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": ident}])


def together(*messages):
    """One message with the calls of several."""
    return AIMessage("", tool_calls=[call for one in messages for call in one.tool_calls])


REFUND = asks("refund", order="A1", amount=5)


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


def agent_of(model, tools, *, reads=(), fields=None, config=None, store=None, window=None, **options):
    """A guarded agent, and its guard."""
    guard = pokayoke.Guard(contracts(tools, reads=reads, fields=fields), config=config, store=store)
    return create_agent(model, tools, middleware=[GuardMiddleware(guard, window=window)], **options), guard


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


def answers(state):
    """The texts that answered calls."""
    return [str(one.text) for one in state["messages"] if one.type == "tool"]


def waiting(state):
    """What a graph waits for."""
    return state["__interrupt__"]
