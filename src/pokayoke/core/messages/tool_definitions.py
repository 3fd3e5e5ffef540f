"""Builds tool definitions in each provider's format, and instructions for models without tool calls.

In: contracts.
Out: definitions with names in the provider's alphabet, or a text that lists the tools.
Never: give two tools one name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.names import DefinitionFormat, provider_name
from pokayoke.core.json.values import is_object
from pokayoke.errors import ContractError


def build_definitions(contracts: Iterable[Contract], format: DefinitionFormat = "openai") -> list[dict[str, Any]]:  # noqa: A002 - the published name
    """Return tool definitions for a request.

    Args:
        contracts: the tools to offer.
        format: `openai` (chat completions), `anthropic` (messages), or `mcp` (tools/list entries).

    Raises:
        ContractError: the format is unknown, or two tools get the same name in it.
    """
    if format not in _BUILDERS:
        raise ContractError(f"unknown format {format!r}: use openai, anthropic or mcp")
    made: dict[str, dict[str, Any]] = {}
    for contract in contracts:
        name = provider_name(contract.name, format)
        if name in made:
            raise ContractError(f"two tools are called {name!r} in the format {format}. Rename one of them")
        made[name] = _BUILDERS[format](name, contract)
    return list(made.values())


def _openai_definition(name: str, contract: Contract) -> dict[str, Any]:
    function: dict[str, Any] = {"name": name, "parameters": contract.model_schema}
    if contract.description:
        function["description"] = contract.description
    return {"type": "function", "function": function}


def _anthropic_definition(name: str, contract: Contract) -> dict[str, Any]:
    definition: dict[str, Any] = {"name": name, "input_schema": contract.model_schema}
    if contract.description:
        definition["description"] = contract.description
    return definition


def _mcp_definition(name: str, contract: Contract) -> dict[str, Any]:
    definition: dict[str, Any] = {"name": name, "inputSchema": contract.model_schema}
    if contract.description:
        definition["description"] = contract.description
    output = contract.output_schema
    if is_object(output) and output.get("type") == "object":  # MCP allows no other root
        definition["outputSchema"] = output
    definition["annotations"] = {
        "readOnlyHint": contract.effect == "read",
        "destructiveHint": contract.effect == "destructive",
        "idempotentHint": contract.idempotent,
        "openWorldHint": contract.open_world is not False,
    }
    return definition


_BUILDERS = {"openai": _openai_definition, "anthropic": _anthropic_definition, "mcp": _mcp_definition}


def build_instructions(tools: Iterable[dict[str, Any]], format: Literal["json", "jsonl"]) -> str:  # noqa: A002 - as above
    """Return instructions for a model without tool calls: the tools, and how to write a call.

    Args:
        tools: definitions in the format `mcp`.
        format: `json` for one object per message, `jsonl` for one object per line.

    Raises:
        ContractError: the format is unknown.
    """
    if format not in _CALL_INSTRUCTIONS:
        raise ContractError(f"unknown format {format!r}: use json or jsonl")
    listed = [
        msgspec.json.encode({name: tool[name] for name in ("name", "description", "inputSchema") if name in tool})
        for tool in tools
    ]
    if not listed:
        return "There are no tools. Answer directly."
    shown = "\n".join(line.decode() for line in listed)
    return (
        "You can use these tools. Each line is one, with the JSON Schema of its arguments:\n"
        f"{shown}\n\n{_CALL_INSTRUCTIONS[format]}"
    )


_CALL_EXAMPLE = '{"name": "<name of the tool>", "arguments": {<its arguments>}}'
_CALL_INSTRUCTIONS = {
    "json": f"To use a tool, answer with nothing but one JSON object: {_CALL_EXAMPLE}\nOtherwise answer in plain text.",
    "jsonl": (
        f"To use tools, answer with nothing but one JSON object per line, one line per call: {_CALL_EXAMPLE}\n"
        "Otherwise answer in plain text."
    ),
}
