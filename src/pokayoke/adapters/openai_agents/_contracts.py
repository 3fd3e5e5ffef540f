"""Contracts from the tools of the OpenAI Agents SDK.

In: the tools of one agent, or of several. Out: a description of each function tool. Never: one contract for two tools
that share a name and differ.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from agents import FunctionTool

from pokayoke.adapters._host.contracts import ToolDescription, annotated_output, contracts_builder
from pokayoke.errors import UsageError


def _describe_tools(tools: Iterable[Any]) -> list[ToolDescription]:
    """Describe the function tools; a tool of a namespace is called `namespace.name`.

    A tool's `timeout_seconds` becomes the contract's; a parameter with a default may be left out.

    Raises:
        UsageError: two tools that differ have one name.
    """
    known: dict[str, ToolDescription] = {}
    for tool in tools:
        if isinstance(tool, FunctionTool):
            name, schema = tool.qualified_name, without_strict_mode(_schema_of(tool))
            output = annotated_output(getattr(tool, "__wrapped__", None))
            found = ToolDescription(name, tool.description, schema, tool.timeout_seconds, output=output)
            if known.setdefault(name, found) != found:
                raise UsageError(f"two tools are called {name}, and they differ: give one another name_override")
    return [*known.values()]


contracts = contracts_builder(_describe_tools)


def _schema_of(tool: Any) -> dict[str, Any]:
    """Return the schema of a tool's arguments, with the defaults of None that strict mode has dropped."""
    schema: dict[str, Any] = tool.params_json_schema
    try:
        known = inspect.signature(tool.__wrapped__).parameters
    except (AttributeError, TypeError, ValueError):
        return schema
    shown: dict[str, Any] = schema.get("properties", {})
    dropped = [name for name in shown if name in known and known[name].default is None]
    return {**schema, "properties": {**shown, **{name: {**shown[name], "default": None} for name in dropped}}}


def without_strict_mode(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema whose fields with a default are optional; strict mode requires every field."""
    loose = dict(schema)
    shown = loose.get("properties", {})
    if "required" in loose:
        loose["required"] = [name for name in loose["required"] if "default" not in shown.get(name, {})]
    return loose
