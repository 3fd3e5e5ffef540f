"""Pydantic AI's tools in our terms; for `pokayoke.adapters.pydantic_ai`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pokayoke.adapters._host.contracts import ToolDescription, build_contracts
from pokayoke.adapters._host.visibility import is_hidden
from pokayoke.core.call import Finding
from pokayoke.core.contract.contract import Contract
from pokayoke.errors import MissingExtraError, UsageError

try:
    from pydantic import TypeAdapter
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ToolCallPart
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.settings import ModelSettings, ToolOrOutput
    from pydantic_ai.tools import DeferredToolRequests, RunContext, Tool, ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool
    from pydantic_ai.usage import RunUsage
except ImportError as error:
    raise MissingExtraError("pydantic-ai-slim", "pydantic-ai") from error

if TYPE_CHECKING:
    from pokayoke.runtime.run.run import Run

_MCP = "pydantic_ai.mcp"
HIDDEN: dict[str, Any] = {}
"""The schema of a tool that a run may not use."""
_PLACEHOLDER = {"pokayoke": "stranger"}
_NO_TOOLS: AbstractToolset[Any] = FunctionToolset()
_ANYTHING = TypeAdapter(Any).validator


def contracts(
    tools: Iterable[Any],
    *,
    reads: Collection[str] = (),
    destructive: Collection[str] = (),
    fields: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Contract]:
    """Build the contracts of an agent's tools. What is not declared is a write, and its output is unchecked.

    Args:
        tools: functions, `Tool` objects, function toolsets, agents, or definitions from `definitions`.
        reads: names of those that change nothing.
        destructive: names of those whose effect cannot be undone.
        fields: further fields of the contracts, by tool name, such as `{"refund": {"identity": ("order",)}}`.

    Raises:
        UsageError: something is no tool, or a tool is named that does not exist.
        ContractError: a field contradicts another or its schema.
    """
    known = [_describe_tool(one) for given in tools for one in _tool_definitions(given)]
    return build_contracts(known, reads=reads, destructive=destructive, fields=fields)


def settings_without_hidden(run: Run, settings: ModelSettings) -> ModelSettings:
    """Return what a request is sent with, without a demand for tools that are hidden: the framework refuses that.

    A list to choose from gets shorter, and never open.
    """
    choice = settings.get("tool_choice")
    names = choice.function_tools if isinstance(choice, ToolOrOutput) else choice
    if not isinstance(names, list) or not any(is_hidden(run, name) for name in names):
        return settings
    shown = [name for name in names if not is_hidden(run, name)]
    if isinstance(choice, ToolOrOutput):
        return {**settings, "tool_choice": ToolOrOutput(function_tools=shown)}
    return {**settings, "tool_choice": shown or "none"}


async def definitions(*toolsets: Any, deps: Any = None) -> list[ToolDefinition]:
    """List the tools of toolsets that have to be asked: MCP servers, and wrapped or dynamic toolsets.

    Args:
        toolsets: the toolsets, as the agent is given them, so that the names are those the model will read.
        deps: what the agent's dependencies will be, for toolsets that look at them.
    """
    context = RunContext(deps=deps, model=TestModel(), usage=RunUsage())
    found: list[ToolDefinition] = []
    for toolset in toolsets:
        async with toolset:
            found += [tool.tool_def for tool in (await toolset.get_tools(context)).values()]
    return found


def _tool_definitions(given: Any) -> Iterator[ToolDefinition]:
    if isinstance(given, ToolDefinition):
        yield given
    elif isinstance(given, Tool):
        yield given.tool_def
    elif isinstance(given, FunctionToolset):
        for tool in given.tools.values():
            yield tool.tool_def
    elif isinstance(given, AbstractToolset):
        raise UsageError(f"{given.label} has to be asked for its tools: contracts(await definitions(toolset))")
    elif isinstance(toolsets := getattr(given, "toolsets", None), Sequence):
        for toolset in toolsets:
            yield from _tool_definitions(toolset)
    elif callable(given):
        yield Tool(given).tool_def
    else:
        raise UsageError(f"{given!r} is no tool: give functions, Tool objects, toolsets or an agent")


def _describe_tool(tool: ToolDefinition) -> ToolDescription:
    return ToolDescription(tool.name, tool.description or "", tool.parameters_json_schema)


def framework_names(run: Run, ctx: RunContext[Any], parts: Iterable[ToolCallPart]) -> list[str]:
    """Return the names by which the framework shall know the calls of a reply.

    A name that means one of its tools becomes that tool's. Any other is made known for this step, also where there is
    no tool at all: the calls have to come to the hooks, or the framework would answer by itself, and charge for it.
    """
    tools = ctx.tool_manager.tools if ctx.tool_manager is not None else None
    names = [part.tool_name for part in parts]
    return names if tools is None else [name if name in tools else _framework_name(run, name, tools) for name in names]


def _framework_name(run: Run, name: str, tools: dict[str, ToolsetTool[Any]]) -> str:
    plan = run.snapshot.find_plan(name)
    if not isinstance(plan, Finding) and plan.contract.name in tools:
        return plan.contract.name
    stranger = ToolDefinition(name=name, metadata=_PLACEHOLDER)
    tools[name] = ToolsetTool(toolset=_NO_TOOLS, tool_def=stranger, max_retries=0, args_validator=_ANYTHING)
    return name


def is_placeholder(tool_def: ToolDefinition) -> bool:
    """True for what stands in for a tool that the agent does not have."""
    return tool_def.metadata is _PLACEHOLDER


def is_framework_tool(tool_def: ToolDefinition) -> bool:
    """True for what the framework offers on its own behalf: tool search and the loading of capabilities."""
    return tool_def.tool_kind in ("tool-search", "capability-load")


def is_from_server(tool: ToolsetTool[Any] | None) -> bool:
    """True if a tool runs in an MCP server."""
    return tool is not None and any(kind.__module__ == _MCP for kind in type(tool.toolset).__mro__)


def schema_for(tool: ToolDefinition, run: Run) -> dict[str, Any] | None:
    """Return the schema to show the model instead of a tool's own; `HIDDEN` if it may not use the tool.

    Raises:
        UsageError: there is no contract for it.
    """
    if is_framework_tool(tool):
        return None
    if is_hidden(run, tool.name):
        return HIDDEN
    plan = run.snapshot.find_plan(tool.name)
    if isinstance(plan, Finding):
        raise UsageError(
            f"the agent offers {tool.name!r}, and the guard has no contract for it: build one with contracts([...]), "
            "for an MCP server or a wrapped toolset with contracts(await definitions(toolset))"
        )
    contract = plan.contract
    return None if contract.key_argument is None else contract.model_schema


def may_defer(ctx: RunContext[Any]) -> bool:
    """True if the framework takes a call that waits for a person out of the run."""
    output = getattr(ctx.agent, "output_type", None)
    if DeferredToolRequests in (output if isinstance(output, (list, tuple)) else [output]):
        return True
    others: list[Any] = []
    if ctx.root_capability is not None:
        ctx.root_capability.apply(others.append)
    base = AbstractCapability.handle_deferred_tool_calls
    return any(type(one).handle_deferred_tool_calls is not base for one in others)
