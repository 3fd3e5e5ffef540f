"""Contracts from CrewAI's tools.

In: tools, such as functions decorated with `@tool`. Out: contracts under the names by which CrewAI offers the tools:
`Find Order` is `find_order`. Never: a contract of a name that CrewAI's models do not read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crewai.utilities.string_utils import sanitize_tool_name

from pokayoke.adapters._host.contracts import ToolDescription, annotated_output, contracts_builder


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
            output=annotated_output(getattr(one, "func", None) or type(one)._run),  # noqa: SLF001 - what a class of tools has
        )
        for one in tools
    ]


contracts = contracts_builder(_describe_tools, no_effect_errors=(ToolNotStartedError,))
