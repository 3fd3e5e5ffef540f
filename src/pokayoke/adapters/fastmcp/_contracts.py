"""Contracts from the tools of a FastMCP server.

In: a server, or its tools. Out: one contract per tool, output schemas included. Never: a read on a tool's own word,
unless the programmer trusts its hints.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from pokayoke.adapters._host.contracts import ToolDescription, build_contracts
from pokayoke.core.contract.contract import Contract, OutputSchema

WRAPPED = "x-fastmcp-wrap-result"
"""The keyword of an output schema by which FastMCP says that it puts values into an object."""


def contracts(
    server: Any,
    *,
    reads: Collection[str] = (),
    destructive: Collection[str] = (),
    fields: Mapping[str, Mapping[str, Any]] | None = None,
    trust_hints: bool = False,
) -> list[Contract]:
    """Build the contracts of a server's tools from its own listing, output schemas included.

    Args:
        server: the server, or the tools of `await server.list_tools()`.
        reads: names of the tools that change nothing.
        destructive: names of the tools whose effect cannot be undone.
        fields: further fields of the contracts, by tool name.
        trust_hints: True to believe `readOnlyHint` and `destructiveHint` where a tool is in neither list. They are
            hints, written by the author of the tool.

    Raises:
        UsageError: a tool is named that does not exist.
        ContractError: a field contradicts another or its schema.
    """
    tools = list_tools(server)
    more = {name: dict(given) for name, given in (fields or {}).items()}
    read, worse = set(reads), set(destructive)
    for tool in tools:
        if (schema := _output_schema(tool)) is not None:
            more.setdefault(tool.name, {}).setdefault("output_schema", schema)
        hints = tool.annotations
        if trust_hints and hints is not None and tool.name not in read | worse:
            if hints.read_only_hint:
                read.add(tool.name)
            elif hints.destructive_hint:
                worse.add(tool.name)
    described = [ToolDescription(tool.name, tool.description or "", tool.parameters) for tool in tools]
    return build_contracts(described, reads=read, destructive=worse, fields=more)


def list_tools(server: Any) -> list[Any]:
    """Return the tools of a server, or the tools given; lists them in a thread, so that an event loop may run here."""
    if not hasattr(server, "list_tools"):
        return list(cast("Iterable[Any]", server))
    found: list[Any] = []
    problem: list[BaseException] = []

    def list_in_thread() -> None:
        try:
            found.extend(asyncio.run(server.list_tools(run_middleware=False)))
        except BaseException as raised:  # noqa: BLE001 - raised again in the caller's thread
            problem.append(raised)

    thread = threading.Thread(target=list_in_thread, name="pokayoke-listing")
    thread.start()
    thread.join()
    if problem:
        raise problem[0]
    return found


def _output_schema(tool: Any) -> OutputSchema:
    """Return what a tool promises, without the object that FastMCP puts around values; any text is "text"."""
    schema = tool.output_schema
    if not schema or not schema.get(WRAPPED):
        return cast("dict[str, Any] | None", schema or None)
    inner = dict(schema["properties"]["result"])
    if inner == {"type": "string"}:
        return "text"
    if "$defs" in schema:
        inner["$defs"] = schema["$defs"]
    return inner
