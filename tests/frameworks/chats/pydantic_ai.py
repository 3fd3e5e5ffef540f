"""A chat with an agent of Pydantic AI, whose history is a file that is written after every step of the agent."""

import asyncio
import json
import warnings
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.tools import DeferredToolRequests

from pokayoke.adapters import pydantic_ai as adapter

warnings.filterwarnings("ignore", module=r"pydantic_ai\.")


class Chat:
    """A conversation; what is gone back to is an older history."""

    contracts = staticmethod(adapter.contracts)

    @staticmethod
    def tools(functions):
        return functions

    def __init__(self, folder: Path, tools, guard):
        self.file, self.waiting, self.tools_, self.guard = (
            folder / "history.json",
            folder / "waiting.json",
            tools,
            guard,
        )
        self.capability = adapter.Guarded(guard)

    @property
    def history(self):
        return ModelMessagesTypeAdapter.validate_json(self.file.read_bytes()) if self.file.exists() else []

    def _run(self, turns, text=None, history=None, **options):
        return asyncio.run(self._iterate(list(turns), text, self.history if history is None else history, **options))

    async def _iterate(self, turns, text, history, **options):
        def said(messages, info):
            turn = turns.pop(0)
            return ModelResponse([TextPart(turn)] if isinstance(turn, str) else [_call(*one) for one in turn])

        agent = Agent(
            FunctionModel(said),
            tools=self.tools_,
            capabilities=[self.capability],
            output_type=[str, DeferredToolRequests],
        )
        async with agent.iter(text, message_history=history, conversation_id="t", **options) as run:
            async for _ in run:
                self.file.write_bytes(ModelMessagesTypeAdapter.dump_json(run.all_messages()))
        self.file.write_bytes(ModelMessagesTypeAdapter.dump_json(run.all_messages()))
        assert not turns, turns
        output = run.result.output
        if isinstance(output, str):
            return output, []
        self.waiting.write_text(json.dumps([one.tool_call_id for one in output.approvals]))
        return "", [one.tool_name for one in output.approvals]

    def say(self, turns, text):
        return self._run(turns, text)

    def go_on(self, turns, text):
        return self._run(turns)

    def decide(self, turns, yes):
        waiting = json.loads(self.waiting.read_text())
        results = DeferredToolRequests(approvals=[ToolCallPart("", None, one) for one in waiting])
        return self._run(turns, deferred_tool_results=results.build_results(approvals=dict.fromkeys(waiting, yes)))

    def redeliver(self, turns):
        """Run the history anew that ends with the first calls."""
        first = next(at for at, one in enumerate(self.history) if isinstance(one, ModelResponse))
        return self._run(turns[1:], history=self.history[: first + 1])

    def travel(self, turns, text):
        """Say it with an empty history."""
        return self._run(turns, text, history=[])


def _call(ident, name, arguments):
    return ToolCallPart(name, json.dumps(arguments), ident)
