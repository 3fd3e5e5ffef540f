"""Contracts from the tools of Google ADK.

In: functions and ADK's tools. Out: one contract per tool. Never: a contract for a tool by which ADK steers itself,
unless it is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool

from pokayoke.adapters._host.contracts import ToolDescription, annotated_output, contracts_builder
from pokayoke.errors import UsageError

# The modules of ADK's tools that steer ADK itself; every other tool of ADK's reaches something outside.
_ADK_TOOL_MODULES = (
    "google.adk.agents.",
    "google.adk.tools._request_input_tool",
    "google.adk.tools.agent_tool",
    "google.adk.tools.example_tool",
    "google.adk.tools.exit_loop_tool",
    "google.adk.tools.get_user_choice_tool",
    "google.adk.tools.google_search_tool",
    "google.adk.tools.load_artifacts_tool",
    "google.adk.tools.load_memory_tool",
    "google.adk.tools.preload_memory_tool",
    "google.adk.tools.set_model_response_tool",
    "google.adk.tools.transfer_to_agent_tool",
    "google.adk.tools.url_context_tool",
)


def _describe_tools(tools: Iterable[Any]) -> Iterator[ToolDescription]:
    """Describe the tools of `LlmAgent(tools=...)`; of a toolset, the result of its `get_tools_with_prefix()`."""
    for tool in map(_as_tool, tools):
        steers = is_framework_tool(tool)
        output = annotated_output(getattr(tool, "func", None))
        schema = _declared_schema(tool)
        yield ToolDescription(tool.name, tool.description or "", schema, only_if_named=steers, output=output)


contracts = contracts_builder(_describe_tools)


def is_framework_tool(tool: Any) -> bool:
    """Return whether this is a tool by which ADK steers itself."""
    if isinstance(tool, AgentTool):
        return True
    function = getattr(tool, "func", None)
    module = str(getattr(tool if function is None else function, "__module__", ""))
    return module.startswith(_ADK_TOOL_MODULES)


def _as_tool(one: Any) -> Any:
    if isinstance(one, BaseTool):
        return one
    if callable(one):
        return FunctionTool(one)
    raise UsageError(
        f"{one!r} is no tool: hand over functions and tools; of a toolset, `await toolset.get_tools_with_prefix()`"
    )


def _declared_schema(tool: Any) -> Mapping[str, Any]:
    """Return the JSON Schema of a tool's arguments that the model reads."""
    declared = tool._get_declaration()  # noqa: SLF001 - what ADK itself offers the model
    if declared is not None and declared.parameters_json_schema is not None:
        return cast("Mapping[str, Any]", declared.parameters_json_schema)
    if declared is not None and declared.parameters is not None:
        return cast("Mapping[str, Any]", declared.parameters.json_schema.model_dump(mode="json", exclude_none=True))
    return {"type": "object", "properties": {}}
