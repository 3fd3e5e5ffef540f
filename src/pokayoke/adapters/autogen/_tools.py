"""The tools' side of AutoGen: each call goes through the guard, which runs the tool if it may.

In: an agent's tools and workbenches. Out: one guarded workbench. Never: a tool without a contract.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from autogen_core import CancellationToken
from autogen_core.tools import (
    BaseTool,
    StaticStreamWorkbench,
    StaticWorkbench,
    StreamTool,
    TextResultContent,
    ToolResult,
)
from pydantic import ValidationError

from pokayoke.adapters._host.calls import UNKNOWN_TOOL_NAME
from pokayoke.adapters._host.contracts import require_contract
from pokayoke.adapters._host.frames import history_form, value_text
from pokayoke.adapters._host.tools import ToolSide
from pokayoke.adapters.autogen._run import AgentRun
from pokayoke.core.call import ToolCall
from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.errors import UsageError

_END = object()


class GuardedWorkbench(StaticStreamWorkbench):
    """A workbench whose calls go through the guard; for one agent.

    Args:
        tools: tools that it runs itself.
        benches: workbenches that it hands the other calls to.
        agent_run: the agent's conversation.
    """

    def __init__(self, tools: Sequence[Any], benches: Sequence[Any], agent_run: AgentRun) -> None:
        """Take the tools over."""
        super().__init__(list(tools))
        self._own = {tool.name: tool for tool in tools}
        self._schemas = [tool.schema for tool in tools]
        self._benches, self._agent_run = list(benches), agent_run
        self._at: dict[str, Any] = {}
        agent_run.tools = list(self._own)

    async def list_tools(self) -> list[Any]:
        """Return the tools that there are now.

        Raises:
            UsageError: one of another workbench has no contract.
        """
        listed, agent_run = list(self._schemas), self._agent_run
        if self._benches:
            listed += await self._list_bench_tools()
            agent_run.tools = [schema["name"] for schema in listed]
        if agent_run.has_pages and (pager := agent_run.guard.pager).name not in agent_run.tools:
            listed.append(_tool_schema(pager.name, pager.description, pager.input_schema))
        if agent_run.has_unknown_calls:
            listed.append(
                _tool_schema(UNKNOWN_TOOL_NAME, "Answers what cannot be run.", {"type": "object", "properties": {}})
            )
        return listed

    async def _list_bench_tools(self) -> list[Any]:
        listed: list[Any] = []
        self._at = {}
        for bench in self._benches:
            for schema in await bench.list_tools():
                remedy = "give what list_tools() returns to contracts()"
                require_contract(self._agent_run.guard, schema["name"], remedy)
                self._at[schema["name"]] = bench
                listed.append(schema)
        return listed

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: Any = None,
        call_id: str | None = None,
    ) -> Any:
        """Take one call."""
        token = cancellation_token or CancellationToken()
        call = self._agent_run.original_call(call_id, name, dict(arguments or {}))
        return await self._take_call(call, name, token, None)

    async def call_tool_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: Any = None,
        call_id: str | None = None,
    ) -> AsyncGenerator[Any]:
        """Take one call; events of the running tool are passed on before the result."""
        if not isinstance(self._own.get(name), StreamTool):
            yield await self.call_tool(name, arguments, cancellation_token, call_id)
            return
        token = cancellation_token or CancellationToken()
        call = self._agent_run.original_call(call_id, name, dict(arguments or {}))
        events: asyncio.Queue[Any] = asyncio.Queue()
        task = asyncio.ensure_future(self._take_call(call, name, token, events))
        task.add_done_callback(lambda _: events.put_nowait(_END))
        try:
            while (event := await events.get()) is not _END:
                yield event
            yield await task
        finally:
            task.cancel()

    async def _take_call(self, call: ToolCall, name: str, token: Any, events: Any) -> Any:
        agent_run = self._agent_run
        side = _ToolInvocation(self._own.get(name), self._at.get(name), (name, call.id), token, events)
        # A cancelled token ends the tool, and the run at its next request. AutoGen would wait endlessly for a call
        # that does not answer at all.
        outcome = await side.take_call(agent_run.adapter_run, call, has_tool=name in agent_run.tools)
        agent_run.keep_outcome(outcome)
        text = outcome.text
        if agent_run.on_wire:
            forms = (side.own, value_text(outcome.value))
            text = history_form(agent_run.adapter_run, outcome, name, forms, str)
        return ToolResult(name=name, result=[TextResultContent(content=text)], is_error=not outcome.ok)

    # -- the workbenches behind it ---------------------------------------------------------------------

    async def start(self) -> None:
        """Start them."""
        for bench in self._benches:
            await bench.start()

    async def stop(self) -> None:
        """Stop them."""
        for bench in self._benches:
            await bench.stop()

    async def reset(self) -> None:
        """Reset them."""
        for bench in self._benches:
            await bench.reset()

    async def save_state(self) -> Mapping[str, Any]:
        """Return their states, and those of the tools."""
        return {"own": await super().save_state(), "benches": [await bench.save_state() for bench in self._benches]}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load the states that `save_state` returned."""
        await super().load_state(state["own"])
        for bench, kept in zip(self._benches, state["benches"], strict=True):
            await bench.load_state(kept)

    def dump_component(self) -> Any:
        """Refuse: a workbench that is loaded again would not be guarded.

        Raises:
            UsageError: always.
        """
        raise UsageError("a guarded workbench cannot be dumped: build it in code")


class _ToolInvocation(ToolSide):
    """One call of a tool, or of a workbench.

    Attributes:
        own: the text that AutoGen alone would have made of the result.
    """

    def __init__(self, tool: Any, bench: Any, call: tuple[str, str], token: Any, events: Any) -> None:
        self._tool, self._bench, self.own = tool, bench, ""
        (self._name, self._call_id), self._token, self._events = call, token, events

    async def run_tool(self, arguments: dict[str, Any]) -> Any:
        if self._tool is None:
            return await self._run_at_bench(arguments)
        try:
            if self._events is None:
                work = asyncio.ensure_future(self._tool.run_json(arguments, self._token, call_id=self._call_id))
                self._token.link_future(work)
                value = await work
            else:
                value = await self._run_streamed(arguments)
            self.own = self._tool.return_value_as_string(value)
            return _value_or_text(self._tool, value)
        except ValidationError as refusal:
            if _can_take_arguments(self._tool, arguments):
                raise
            raise ToolNotStarted("the arguments do not fit the tool's own types", blame="model") from refusal

    async def _run_streamed(self, arguments: dict[str, Any]) -> Any:
        last: Any = _END
        async for item in self._tool.run_json_stream(arguments, self._token, call_id=self._call_id):
            if last is not _END:
                self._events.put_nowait(last)
            last = item
        return None if last is _END else last

    async def _run_at_bench(self, arguments: dict[str, Any]) -> Any:
        result = await self._bench.call_tool(self._name, arguments, self._token, self._call_id)
        if result.is_error and isinstance(self._bench, StaticWorkbench):
            raise RuntimeError("the tool raised")  # its text is the exception's, which is not for the model
        self.own = result.to_text()
        content = [
            {"type": "text", "text": part.content}
            if isinstance(part, TextResultContent)
            else {"type": "image", "data": part.content.to_base64(), "mimeType": "image/png"}
            for part in result.result
        ]
        return {"content": content, "isError": bool(result.is_error)}


def _value_or_text(tool: Any, value: Any) -> Any:
    """Return the value, or its text if the tool has a text of its own for it, as agents and teams as tools have."""
    own = type(tool).return_value_as_string is not BaseTool.return_value_as_string
    return tool.return_value_as_string(value) if own else value


def _can_take_arguments(tool: Any, arguments: dict[str, Any]) -> bool:
    """Return whether the tool's own types take the arguments: then the tool itself has raised."""
    try:
        tool.args_type().model_validate(arguments)
    except ValidationError:
        return False
    return True


def _tool_schema(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": description, "parameters": dict(parameters), "strict": False}
