"""Contracts from CrewAI's tools.

In: tools, such as functions decorated with `@tool`. Out: contracts under the names by which CrewAI offers the tools:
`Find Order` is `find_order`. Never: a contract of a name that CrewAI's models do not read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crewai.tools import BaseTool
from crewai.utilities.string_utils import sanitize_tool_name

from pokayoke.adapters._host.contracts import ToolDescription, annotated_output, contracts_builder
from pokayoke.core.contract.contract import OutputSchema


class ToolNotStartedError(Exception):
    """CrewAI rejected a call before its tool started."""


def crewai_name(name: str) -> str:
    """Return the name by which CrewAI offers a tool."""
    return str(sanitize_tool_name(name)) if name else ""


def _describe_tools(tools: Iterable[Any]) -> list[ToolDescription]:
    return [
        ToolDescription(
            crewai_name(one.name),
            one.description,
            one.args_schema.model_json_schema(),
            output=_output_of(one),
        )
        for one in tools
    ]


def _output_of(tool: Any) -> OutputSchema:
    """Return what a tool promises; of one with an author's own text for the agent, that text is the result."""
    if type(tool).format_output_for_agent is not BaseTool.format_output_for_agent:
        return None
    return annotated_output(getattr(tool, "func", None) or type(tool)._run)  # noqa: SLF001 - what a class of tools has


contracts = contracts_builder(_describe_tools, no_effect_errors=(ToolNotStartedError,))
