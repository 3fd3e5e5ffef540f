"""A chat with an agent of the OpenAI Agents SDK, whose history is a session in a file, and a state where it waits."""

import asyncio
import json
from pathlib import Path

from agents import Agent, RunConfig, RunState, SQLiteSession, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from pokayoke.adapters import openai_agents as adapter

QUIET = RunConfig(tracing_disabled=True)


class Chat:
    """A session; what is gone back to is an older input."""

    contracts = staticmethod(adapter.contracts)

    @staticmethod
    def tools(functions):
        return [function_tool(one) for one in functions]

    def __init__(self, folder: Path, tools, guard):
        self.path, self.state, self.tools_ = str(folder / "session.db"), folder / "state.json", tools
        self.runner = adapter.GuardedRunner(guard)

    def _run(self, turns, given, *, with_session=True):
        return asyncio.run(self._arun(turns, given, with_session))

    async def _arun(self, turns, given, with_session):
        model = ScriptedModel(
            [[assistant_message(turn)] if isinstance(turn, str) else [_call(*one) for one in turn] for turn in turns]
        )
        agent = Agent(name="shop", model=model, tools=self.tools_)
        session = SQLiteSession("t", self.path)
        if callable(given):
            given = await given(self.runner, agent, session)
        where = {"session": session} if with_session else {"run_id": "t"}
        result = await self.runner.run(agent, given, run_config=QUIET, **where)
        session.close()
        assert len(model.calls) == len(turns), turns[len(model.calls) :]
        waits = [one.tool_name for one in result.interruptions]
        if waits:
            self.state.write_text(json.dumps(result.to_state().to_json()))
        return str(result.final_output or ""), waits

    def say(self, turns, text):
        return self._run(turns, text)

    def go_on(self, turns, text):
        """Say it once more: the SDK stores no state of a run that does not wait."""
        return self._run(turns, text)

    def decide(self, turns, yes):
        async def stored(runner, agent, session):
            state = await RunState.from_json(runner.guarded(agent), json.loads(self.state.read_text()))
            for one in state.get_interruptions():
                (state.approve if yes else state.reject)(one)
            return state

        return self._run(turns, stored)

    def redeliver(self, turns):
        """Run the first input anew; the model asks for the same."""

        async def first(runner, agent, session):
            return (await session.get_items())[:1]

        return self._run(turns, first, with_session=False)

    def travel(self, turns, text):
        """Say it with an empty history."""
        return self._run(turns, text, with_session=False)


def _call(ident, name, arguments):
    return function_call(name, json.dumps(arguments), call_id=ident)
