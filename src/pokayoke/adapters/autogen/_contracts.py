"""Contracts from the tools of AutoGen.

In: functions and tools as for `AssistantAgent`, or the schemas that a workbench lists. Out: a description of each.
Never: another schema than the one that AutoGen sends to the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from autogen_core.tools import BaseTool, FunctionTool

from pokayoke.adapters._host.contracts import ToolDescription, annotated_output, contracts_builder


def _describe_tools(tools: Iterable[Any]) -> Iterator[ToolDescription]:
    for one in tools:
        tool = one if isinstance(one, Mapping) else as_tool(one)
        schema = tool if isinstance(tool, Mapping) else tool.schema
        parameters = dict(schema.get("parameters") or {"type": "object"})
        output = annotated_output(getattr(tool, "_func", None))
        yield ToolDescription(schema["name"], schema.get("description", ""), parameters, output=output)


contracts = contracts_builder(_describe_tools)


def as_tool(one: Any) -> Any:
    """Return the tool that `AssistantAgent` would make of a function or a tool."""
    return one if isinstance(one, BaseTool) else FunctionTool(one, description=one.__doc__ or "")
