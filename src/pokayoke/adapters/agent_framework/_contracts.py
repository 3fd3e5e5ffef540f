"""Contracts from the tools of Microsoft Agent Framework.

In: functions, `FunctionTool`s, connected MCP tools, or a list of them. Out: a description of each function. Never:
a contract of a hosted tool, which the provider runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent_framework import SKIP_PARSING, FunctionTool, UserInputRequiredException, normalize_tools

from pokayoke.adapters._host.contracts import ToolDescription, annotated_output, contracts_builder


class ToolNotStartedError(Exception):
    """The framework, or middleware behind the guard, rejected a call before its tool began."""


def _describe_tools(tools: Any) -> Iterator[ToolDescription]:
    for tool in normalize_tools(tools):
        for one in [tool] if isinstance(tool, FunctionTool) else getattr(tool, "functions", ()):
            if isinstance(one, FunctionTool):
                parser = getattr(
                    one.result_parser, "parser", one.result_parser
                )  # what the author's own returns is a text
                output = annotated_output(one.func) if parser in (None, SKIP_PARSING) else None
                yield ToolDescription(one.name, one.description, one.parameters(), output=output)


contracts = contracts_builder(_describe_tools, no_effect_errors=(ToolNotStartedError, UserInputRequiredException))
