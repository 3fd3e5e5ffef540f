"""Contracts from the tools of Pydantic AI.

In: functions, `Tool` objects, toolsets, agents or tool definitions. Out: one contract per tool. Never: a contract of a
toolset that lists its tools only when it runs; `definitions` lists them first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import RunContext, Tool, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from pydantic_ai.usage import RunUsage

from pokayoke.adapters._host.contracts import ToolDescription, annotated_output, contracts_builder
from pokayoke.errors import UsageError


async def definitions(*toolsets: Any, deps: Any = None) -> list[ToolDefinition]:
    """List the tools of toolsets that list them only when they run: MCP servers, wrapped and dynamic toolsets.

    Args:
        toolsets: the toolsets, as the agent gets them, so that the names are those the model will read.
        deps: the agent's dependencies, for toolsets that depend on them.
    """
    context = RunContext(deps=deps, model=TestModel(), usage=RunUsage())
    found: list[ToolDefinition] = []
    for toolset in toolsets:
        async with toolset:
            found += [tool.tool_def for tool in (await toolset.get_tools(context)).values()]
    return found


def _describe_tools(tools: Iterable[Any]) -> Iterator[ToolDescription]:
    """Describe functions, `Tool` objects, function toolsets, agents, and what `definitions` returns."""
    for given in tools:
        for tool, function in _tool_definitions(given):
            output = annotated_output(function)
            yield ToolDescription(tool.name, tool.description or "", tool.parameters_json_schema, output=output)


contracts = contracts_builder(_describe_tools)


def _tool_definitions(given: Any) -> Iterator[tuple[ToolDefinition, Any]]:
    """Yield each definition, and the function behind it if there is one here."""
    if isinstance(given, ToolDefinition):
        yield given, None
    elif isinstance(given, Tool):
        yield given.tool_def, given.function
    elif isinstance(given, FunctionToolset):
        for tool in given.tools.values():
            yield tool.tool_def, tool.function
    elif isinstance(given, AbstractToolset):
        raise UsageError(f"{given.label} has to be asked for its tools: contracts(await definitions(toolset))")
    elif isinstance(toolsets := getattr(given, "toolsets", None), Sequence):
        for toolset in toolsets:
            yield from _tool_definitions(toolset)
    elif callable(given):
        yield Tool(given).tool_def, given
    else:
        raise UsageError(f"{given!r} is no tool: give functions, Tool objects, toolsets or an agent")
