"""FastMCP's tools: one guarded call, and the result that its client gets.

In: a `tools/call` request, and how FastMCP goes on with it. Out: the tool's value for the guard, and a `ToolResult`.
Never: a preview, or a result that was not kept, in the place where a program expects the value.
"""

from __future__ import annotations

import re
from traceback import walk_tb
from typing import Any

from fastmcp.exceptions import NotFoundError, ValidationError
from fastmcp.exceptions import ToolError as FastMCPToolError
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY, TextContent
from pydantic_core import PydanticSerializationError

from pokayoke.adapters._host.tools import ToolSide
from pokayoke.adapters.fastmcp._contracts import WRAPPED
from pokayoke.core.call import Outcome
from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.core.json.dump import dump_compact
from pokayoke.errors import ToolError
from pokayoke.runtime.guard.guard import Guard

# The text that FastMCP writes for a value that it cannot serialise, where the tool has no output schema: a whole text,
# or a whole string inside JSON. Inside other words it is a quotation.
_REPR = re.compile(r"<[\w.<> ]+ (?:object )?at 0x[0-9a-f]+>")
_IN_JSON = re.compile(rf'"{_REPR.pattern}"')
_UNSERIALISABLE = object()


class DirectAnswer(Exception):  # noqa: N818 - no error: the client is asked something, and will call again
    """Raised when the tool asks the client for something before it does anything, or an extension takes the call over.

    Args:
        result: the answer to the client, unchanged.
        problem: raised instead, if the request cannot be served at all.
    """

    def __init__(self, result: Any, problem: Exception | None = None) -> None:
        super().__init__("the client is asked")
        self.result, self.problem = result, problem


class ToolInvocation(ToolSide):
    """One guarded call of a server's tool.

    Args:
        guard: the guard.
        context: the middleware's context of the request.
        call_next: runs the rest of FastMCP's chain.
        name: the tool's name in its contract.
        wrapped: for each tool, whether FastMCP puts its values into an object; filled as that is found out.
    """

    __slots__ = ("_call_next", "_context", "_guard", "_name", "_result", "_wrapped")

    def __init__(self, guard: Guard, context: Any, call_next: Any, name: str, wrapped: dict[str, bool]) -> None:
        """Begin before the tool has run."""
        self._guard, self._context, self._call_next = guard, context, call_next
        self._name, self._wrapped = name, wrapped
        self._result: Any = None

    async def run_tool(self, arguments: dict[str, Any]) -> Any:
        """Run the tool through FastMCP's chain."""
        message = self._context.message.model_copy(update={"name": self._name, "arguments": arguments})
        result = await _run_tool(self._call_next, self._context.copy(message=message))
        if not isinstance(result, ToolResult):
            return result
        self._result = result
        return _tool_value(result)

    async def framework_result(self, outcome: Outcome) -> Any:
        """Return the client's result: the text for a model, and the value for a program."""
        result = self._result
        content = [TextContent(type="text", text=outcome.text), *outcome.content]
        if _has_failed(outcome) or (outcome.status == "replayed" and self._has_lost_value(outcome)):
            return ToolResult(content=content, is_error=True)
        if result is not None and result.structured_content is not None:  # blocks beside the value were not checked
            content += [block for block in result.content if not isinstance(block, TextContent)]
        is_wrapped = await self._is_wrapped(outcome.tool)
        value = outcome.value
        structured: Any = {"result": value} if is_wrapped else value if isinstance(value, dict) else None
        if structured is not None and len(dump_compact(structured)) > self._guard.snapshot.policy.context.offload_chars:
            # A preview is no value: a program that expects one must not take it for one.
            if not is_wrapped or not isinstance(value, str):
                return ToolResult(content=content, is_error=True)
            structured = {"result": outcome.text}
        meta = {**((result.meta if result is not None else None) or {})}
        if is_wrapped:
            meta["fastmcp"] = {"wrap_result": True}
        return ToolResult(content=content, structured_content=structured, meta=meta or None)

    def _has_lost_value(self, outcome: Outcome) -> bool:
        """Return whether a program expects a value that a repeated call no longer has."""
        contract = self._guard.snapshot.find_contract(outcome.tool)
        promised = None if contract is None else contract.output
        return outcome.value is None and promised is not None and not promised.accepts(None)

    async def _is_wrapped(self, name: str) -> bool:
        """Return whether FastMCP puts this tool's values into an object, as MCP knows only objects."""
        if self._result is not None:
            self._wrapped[name] = _says_wrapped(self._result)
        elif name not in self._wrapped:
            tool = await self._context.fastmcp_context.fastmcp.get_tool(name)
            self._wrapped[name] = bool(tool is not None and (tool.output_schema or {}).get(WRAPPED))
        return self._wrapped[name]


def message(outcome: Outcome) -> Any:
    """Return the result that answers a call."""
    content = [TextContent(type="text", text=outcome.text), *outcome.content]
    return ToolResult(content=content, is_error=_has_failed(outcome))


async def _run_tool(call_next: Any, context: Any) -> Any:
    """Run a tool; raise for each of FastMCP's exceptions the one that says whether the tool has started."""
    raised: FastMCPToolError | None = None
    result: Any = None
    try:
        result = await call_next(context)
    except NotFoundError as missing:
        if str(missing) != f"Unknown tool: {context.message.name!r}":
            raise
        raise ToolNotStarted("this server does not offer it now", blame="model") from None
    except ValidationError as refused:  # FastMCP's own check of the arguments; a tool's body raises another class
        raise ToolNotStarted("FastMCP does not take these arguments", blame="model") from refused
    except MCPError as problem:
        if problem.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY:
            raise DirectAnswer(None, problem) from None
        raise
    except FastMCPToolError as failed:
        raised = failed
    if raised is not None:  # here, where no exception is handled: what the tool has raised keeps its own context
        return _refused_value(raised)
    if isinstance(result, InputRequiredToolResult) or not isinstance(result, ToolResult):
        raise DirectAnswer(result)
    return result


def _refused_value(failed: FastMCPToolError) -> Any:
    """Return the value of a tool that ran, where it was FastMCP that refused it; raise what the tool has raised."""
    cause = failed.__cause__
    if cause is None:
        raise ToolError(str(failed), effect="unknown")
    if isinstance(cause, PydanticSerializationError):
        return _UNSERIALISABLE
    frame = [*walk_tb(cause.__traceback__)][-1][0]
    if frame.f_code is ToolResult.__init__.__code__:
        return frame.f_locals["structured_content"]
    raise cause  # FastMCP has put its text into a message for the client


def _tool_value(result: Any) -> Any:
    """Return the tool's value, as far as FastMCP's result holds it."""
    if result.is_error:
        return result
    structured = result.structured_content
    if structured is not None:
        value = structured["result"] if _says_wrapped(result) else structured
        words = [{"type": "text", "text": one.text} for one in result.content if isinstance(one, TextContent)]
        return value if value is None else {"content": words, "structuredContent": value}
    if any(not isinstance(block, TextContent) for block in result.content):
        return result
    texts = [block.text for block in result.content]
    return _UNSERIALISABLE if any(map(_is_repr, texts)) else "\n".join(texts)


def _says_wrapped(result: Any) -> bool:
    return bool(((result.meta or {}).get("fastmcp") or {}).get("wrap_result"))


def _is_repr(text: str) -> bool:
    return bool(_REPR.fullmatch(text) or (text.startswith(('"', "[", "{")) and _IN_JSON.search(text)))


def _has_failed(outcome: Outcome) -> bool:
    """Return whether a call brought nothing; an older result counts, and its text says that it is older."""
    return not outcome.ok and (outcome.status != "degraded" or outcome.value is None)
