"""Pydantic AI's tools, replies and results in our terms, and back; for `pokayoke.adapters.pydantic_ai`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pokayoke.adapters import hosted
from pokayoke.adapters.hosted import Asked, Described
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.contract import Contract
from pokayoke.core.intake.reading import is_cut
from pokayoke.core.replies import Ids
from pokayoke.errors import MissingExtraError, UsageError

try:
    import pydantic_core
    from pydantic import TypeAdapter
    from pydantic_ai.exceptions import ToolRetryError
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturn, ToolReturnPart
    from pydantic_ai.messages import is_multi_modal_content as is_file
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.tools import RunContext, Tool, ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool
    from pydantic_ai.usage import RunUsage
except ImportError as error:
    raise MissingExtraError("pydantic-ai-slim", "pydantic-ai") from error

_MCP = "pydantic_ai.mcp"
_NO_TOOLS: AbstractToolset[Any] = FunctionToolset()
_ANYTHING = TypeAdapter(Any).validator


# -- tools --------------------------------------------------------------------------------------------


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
    known = [_described(one) for given in tools for one in _definitions(given)]
    return hosted.contracts(known, reads=reads, destructive=destructive, fields=fields)


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


def _definitions(given: Any) -> Iterator[ToolDefinition]:
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
            yield from _definitions(toolset)
    elif callable(given):
        yield Tool(given).tool_def
    else:
        raise UsageError(f"{given!r} is no tool: give functions, Tool objects, toolsets or an agent")


def _described(tool: ToolDefinition) -> Described:
    return Described(tool.name, tool.description or "", tool.parameters_json_schema)


def own_tool(name: str) -> ToolsetTool[Any]:
    """Return a stand-in by which the framework hands the calls of a name it does not know to the hooks."""
    return ToolsetTool(toolset=_NO_TOOLS, tool_def=ToolDefinition(name=name), max_retries=0, args_validator=_ANYTHING)


def is_framework_tool(tool_def: ToolDefinition) -> bool:
    """True for what the framework offers on its own behalf: tool search and the loading of capabilities."""
    return tool_def.tool_kind in ("tool-search", "capability-load")


def from_server(tool: ToolsetTool[Any] | None) -> bool:
    """True if a tool runs in an MCP server."""
    return tool is not None and any(kind.__module__ == _MCP for kind in type(tool.toolset).__mro__)


# -- replies ------------------------------------------------------------------------------------------


def stop_reason(response: ModelResponse) -> str | None:
    """Return why a message ended; a word that proves a cut, wherever the framework keeps it, comes first."""
    if response.state in ("incomplete", "interrupted"):
        return "incomplete"
    raw = (response.provider_details or {}).get("finish_reason")
    return raw if is_cut(raw) else response.finish_reason


def asked(part: ToolCallPart) -> Asked:
    """Return a call as it stands in a reply."""
    return Asked(part.tool_call_id, part.tool_name, part.args if part.args is not None else "")


def written(part: ToolCallPart, reason: str | None) -> ToolCall:
    """Return the call that stands in a message, with that message's end."""
    return ToolCall(part.tool_call_id, part.tool_name, asked(part).arguments, "length" if is_cut(reason) else None)


def calls(reply: ModelResponse, run: Any = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the tool calls of a reply, in order, argument texts as they came.

    Args:
        reply: what `pydantic_ai.direct.model_request` or a model's `request` returned.
        run: the run they are for.
    """
    ids, reason = Ids(), stop_reason(reply)
    return [
        ToolCall(ids.of(part.tool_call_id), part.tool_name, asked(part).arguments, reason)
        for part in reply.parts
        if isinstance(part, ToolCallPart)
    ]


def plain_text(parameters: ModelRequestParameters) -> bool:
    """True if the user may be answered with words of any kind, not with a structure."""
    return bool(parameters.allow_text_output) and parameters.output_mode in ("text", "tool", "tool_or_text")


def said(response: ModelResponse) -> str:
    """Return the text of a reply."""
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def reworded(parts: Iterable[Any], text: str) -> list[Any]:
    """Return the parts of a reply with one text in place of its own."""
    return [*(part for part in parts if not isinstance(part, TextPart)), TextPart(text)]


# -- results ------------------------------------------------------------------------------------------


def message(outcome: Outcome) -> ToolReturnPart:
    """Return the message part that answers a call."""
    return ToolReturnPart(
        tool_name=outcome.tool,
        content=outcome.text,
        tool_call_id=outcome.call_id,
        outcome="success" if outcome.ok else "retried",
    )


class Returned(NamedTuple):
    """What a tool returned, taken apart."""

    value: Any
    """For the guard."""
    more: ToolReturn[Any] | None
    """What the tool has to say beside its value."""


def taken_apart(result: Any) -> Returned:
    """Take a tool's return value apart: files become blocks that nobody reads, all else is data."""
    more = result if isinstance(result, ToolReturn) else None
    value = result if more is None else more.return_value
    items = value if isinstance(value, (list, tuple)) else [value]
    if any(map(is_file, items)):
        value = {"content": [_block(item) for item in items]}
    return Returned(value, more)


def _block(item: Any) -> dict[str, Any]:
    if is_file(item):
        return {"type": "file", "file": item}
    return {"type": "text", "text": item if isinstance(item, str) else pydantic_core.to_json(item).decode()}


def put_together(outcome: Outcome, more: ToolReturn[Any] | None) -> Any:
    """Return what the framework puts into its history for a call that ended well."""
    files = [block["file"] for block in outcome.content if isinstance(block, dict) and is_file(block.get("file"))]
    value = [outcome.text, *files] if files else outcome.text
    if more is None:
        return value
    return ToolReturn(return_value=value, content=more.content, metadata=more.metadata, tools=more.tools)


def refused(part: ToolCallPart, text: Any) -> ToolRetryError:
    """Return what makes the framework answer a call with an error, without a charge to its budget of retries."""
    return ToolRetryError(
        ToolReturnPart(tool_name=part.tool_name, content=text, tool_call_id=part.tool_call_id, outcome="retried")
    )
