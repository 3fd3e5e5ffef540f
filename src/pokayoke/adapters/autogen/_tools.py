"""The tools' side of AutoGen: each call is taken by the guard, which runs the tool if it may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from pokayoke.adapters.autogen._run import UNKNOWN_TOOL_NAME, AgentRun
from pokayoke.core.call import Finding, Outcome, ToolCall
from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.errors import MissingExtraError, UsageError

try:
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
except ImportError as error:
    raise MissingExtraError("autogen-agentchat", "autogen") from error

__all__ = ["GuardedWorkbench"]

_END = object()


class GuardedWorkbench(StaticStreamWorkbench):
    """A workbench whose calls go through the guard; for one agent.

    Args:
        tools: tools that it runs itself.
        benches: workbenches that it hands the other calls to.
        conversation: the agent's conversation.
    """

    def __init__(self, tools: Sequence[Any], benches: Sequence[Any], conversation: AgentRun) -> None:
        """Take the tools over."""
        super().__init__(list(tools))
        self._own = {tool.name: tool for tool in tools}
        self._schemas = [tool.schema for tool in tools]
        self._benches, self._conversation = list(benches), conversation
        self._at: dict[str, Any] = {}
        conversation.tools = list(self._own)

    async def list_tools(self) -> list[Any]:
        """List the tools that there are now.

        Raises:
            UsageError: one of another workbench has no contract.
        """
        listed, conversation = list(self._schemas), self._conversation
        if self._benches:
            listed += await self._list_bench_tools()
            conversation.tools = [schema["name"] for schema in listed]
        if conversation.has_pages and (pager := conversation.guard.pager).name not in conversation.tools:
            listed.append(_tool_schema(pager.name, pager.description, pager.input_schema))
        if conversation.sinks:
            listed.append(
                _tool_schema(UNKNOWN_TOOL_NAME, "Answers what cannot be run.", {"type": "object", "properties": {}})
            )
        return listed

    async def _list_bench_tools(self) -> list[Any]:
        listed: list[Any] = []
        self._at = {}
        for bench in self._benches:
            for schema in await bench.list_tools():
                name = schema["name"]
                plan = self._conversation.guard.snapshot.find_plan(name)
                if isinstance(plan, Finding) or plan.contract.name != name:
                    raise UsageError(f"{name} has no contract: give what list_tools() returns to contracts()")
                self._at[name] = bench
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
        call = self._conversation.original_call(call_id, name, dict(arguments or {}))
        return _framework_result(name, await self._take_call(call, name, token, None))

    async def call_tool_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: Any = None,
        call_id: str | None = None,
    ) -> AsyncGenerator[Any]:
        """Take one call; what the tool tells while it runs is passed on before the result."""
        if not isinstance(self._own.get(name), StreamTool):
            yield await self.call_tool(name, arguments, cancellation_token, call_id)
            return
        token = cancellation_token or CancellationToken()
        call = self._conversation.original_call(call_id, name, dict(arguments or {}))
        events: asyncio.Queue[Any] = asyncio.Queue()
        task = asyncio.ensure_future(self._take_call(call, name, token, events))
        task.add_done_callback(lambda _: events.put_nowait(_END))
        try:
            while (event := await events.get()) is not _END:
                yield event
            yield _framework_result(name, await task)
        finally:
            task.cancel()

    async def _take_call(self, call: ToolCall, name: str, token: Any, events: Any) -> Outcome:
        hosted = self._conversation.open_run()
        plan = hosted.run.snapshot.find_plan(call.name)
        running: Any = None  # what the guard answers itself
        if name in self._conversation.tools:
            running = _ToolInvocation(self._own.get(name), self._at.get(name), (name, call.id), token, events)
        elif not isinstance(plan, Finding) and plan.contract is not self._conversation.guard.pager:
            running = _missing_tool(plan.contract.name)
        # A cancelled token ends the tool, and the run at its next request. AutoGen waits for ever for a call that
        # does not answer at all.
        return self._conversation.keep_outcome(await hosted.acall(call, running))

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
        """Take states back."""
        await super().load_state(state["own"])
        for bench, kept in zip(self._benches, state["benches"], strict=True):
            await bench.load_state(kept)

    def dump_component(self) -> Any:
        """Refuse: what is read back would not be guarded.

        Raises:
            UsageError: always.
        """
        raise UsageError("a guarded workbench cannot be dumped: build it in code")


class _ToolInvocation:
    """Runs the tool, with the arguments that the guard lets through."""

    def __init__(self, tool: Any, bench: Any, call: tuple[str, str], token: Any, events: Any) -> None:
        self._tool, self._bench = tool, bench
        (self._name, self._call_id), self._token, self._events = call, token, events

    async def __call__(self, arguments: dict[str, Any]) -> Any:
        if self._tool is None:
            return await self._run_at_bench(arguments)
        try:
            if self._events is None:
                work = asyncio.ensure_future(self._tool.run_json(arguments, self._token, call_id=self._call_id))
                self._token.link_future(work)
                return _value_or_text(self._tool, await work)
            return _value_or_text(self._tool, await self._run_streamed(arguments))
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
        content = [
            {"type": "text", "text": part.content}
            if isinstance(part, TextResultContent)
            else {"type": "image", "data": part.content.to_base64(), "mimeType": "image/png"}
            for part in result.result
        ]
        return {"content": content, "isError": bool(result.is_error)}


def _value_or_text(tool: Any, value: Any) -> Any:
    """The value, or its text if the tool has words of its own for it, as agents and teams that are tools have."""
    own = type(tool).return_value_as_string is not BaseTool.return_value_as_string
    return tool.return_value_as_string(value) if own else value


def _missing_tool(name: str) -> Any:
    def tool_missing(_arguments: dict[str, Any]) -> Any:
        raise ToolNotStarted(f"{name} is not among the tools of the agent now", blame="model")

    return tool_missing


def _can_take_arguments(tool: Any, arguments: dict[str, Any]) -> bool:
    """Whether the tool's own types take the arguments, so that it was the tool itself that raised."""
    try:
        tool.args_type().model_validate(arguments)
    except ValidationError:
        return False
    return True


def _tool_schema(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": description, "parameters": dict(parameters), "strict": False}


def _framework_result(name: str, outcome: Outcome) -> Any:
    return ToolResult(name=name, result=[TextResultContent(content=outcome.text)], is_error=not outcome.ok)
