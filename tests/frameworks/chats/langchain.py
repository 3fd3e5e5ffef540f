"""A chat with LangChain's `create_agent`, whose history is LangGraph's checkpoints in a file."""

from pathlib import Path

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from pokayoke.adapters import langchain as adapter

THREAD = {"configurable": {"thread_id": "t"}}


class Script(BaseChatModel):
    """A model that says one thing after the other."""

    turns: list

    @property
    def _llm_type(self):
        return "script"

    def bind_tools(self, tools, **options):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **options):
        turn = self.turns.pop(0)
        said = AIMessage(turn) if isinstance(turn, str) else AIMessage("", tool_calls=[_call(*one) for one in turn])
        return ChatResult(generations=[ChatGeneration(message=said)])


def _call(ident, name, arguments):
    return {"id": ident, "name": name, "args": arguments}


class Chat:
    """A thread; what a fork is made from is one of its checkpoints."""

    contracts = staticmethod(adapter.contracts)

    @staticmethod
    def tools(functions):
        return functions

    def __init__(self, folder: Path, tools, guard):
        self.path, self.tools_, self.middleware = str(folder / "checkpoints.db"), tools, adapter.GuardMiddleware(guard)

    def _run(self, turns, given, config=None, at=None):
        with SqliteSaver.from_conn_string(self.path) as saver:
            model = Script(turns=list(turns))
            agent = create_agent(model, self.tools_, middleware=[self.middleware], checkpointer=saver)
            if at is not None:
                config = at(list(agent.get_state_history(THREAD)))
            ended = agent.invoke(given, config or THREAD)
            assert not model.turns, model.turns
        waits = [one.value["tool"] for one in ended.get("__interrupt__", ())]
        return str(ended["messages"][-1].text), waits

    def say(self, turns, text):
        return self._run(turns, {"messages": [("user", text)]})

    def go_on(self, turns, text):
        return self._run(turns, None)

    def decide(self, turns, yes):
        return self._run(turns, Command(resume=yes))

    def redeliver(self, turns):
        """Run the tools node once more, from the checkpoint before it; the model goes on behind it."""
        return self._run(turns[1:], None, at=lambda states: [one for one in states if "tools" in one.next][-1].config)

    def travel(self, turns, text):
        """Fork the thread before its first message."""
        return self._run(turns, {"messages": [("user", text)]}, at=lambda states: states[-1].config)
