"""Contracts from LangChain's tools, and the exceptions that prove that no tool has acted.

In: tools as `create_agent` takes them. Out: contracts of the tools as the model sees them. Never: an argument that
LangGraph injects as part of a contract.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.tools import tool as as_tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.errors import GraphBubbleUp

from pokayoke.adapters._host.contracts import ToolDescription, annotated_output, contracts_builder
from pokayoke.errors import ToolError


class ArgumentsRejected(ToolError):  # noqa: N818 - no error: an answer to the model
    """The tool's own validators rejected the arguments, so it never started. The text is for the model."""


class StartUnknown(Exception):  # noqa: N818 - a middleware's word, not an error of ours
    """Another middleware says that the tool failed, and not whether it started."""


class HostException(Exception):  # noqa: N818 - no error of ours: it carries the host's own
    """Carries an exception of the host, not of the tool, past the guard; its cause is that exception."""


class AmbiguousResume(HostException):
    """The tool asks a person something, and the answer could be meant for another call."""


CONTROL_EXCEPTIONS: tuple[type[Exception], ...] = (GraphBubbleUp, HostException)
"""Exceptions by which LangGraph steers itself. A tool that raises one has done nothing yet: it will run again."""


def as_langchain_tool(tool: Any) -> Any:
    """Return a tool or a function as LangChain's own tool."""
    return tool if isinstance(tool, BaseTool) else as_tool(tool)


def _describe_tools(tools: Iterable[Any]) -> list[ToolDescription]:
    """Describe what the model is shown; the provider runs the tools that are dicts."""
    described: list[ToolDescription] = []
    for made in (as_langchain_tool(tool) for tool in tools if not isinstance(tool, dict)):
        shown = convert_to_openai_tool(made).get("function", {})
        schema = shown.get("parameters", {"type": "object"})
        described.append(ToolDescription(made.name, made.description, schema, output=_output_of(made)))
    return described


def _output_of(tool: Any) -> Any:
    """Return what a tool promises; one that returns an artifact beside its content promises nothing of the latter."""
    if tool.response_format != "content":
        return None
    return annotated_output(getattr(tool, "func", None) or getattr(tool, "coroutine", None) or type(tool)._run)  # noqa: SLF001 - what a class of tools has


contracts = contracts_builder(_describe_tools, no_effect_errors=(*CONTROL_EXCEPTIONS, ArgumentsRejected))
