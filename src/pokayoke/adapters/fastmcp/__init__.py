"""FastMCP: a middleware that guards the tools of a server, whoever its client is.

guard = pokayoke.Guard(contracts(server, reads=["get_order"]))
guard_server(server, guard)
"""

from __future__ import annotations

import asyncio
import re
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from pokayoke.adapters._host.contracts import ToolDescription
from pokayoke.adapters._host.contracts import build_contracts as hosted_contracts
from pokayoke.adapters._host.run import AdapterRun, AdapterRuns
from pokayoke.core.call import Finding, Outcome, ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.core.gate.rules import as_principal
from pokayoke.core.json.dump import dump_compact
from pokayoke.errors import MissingExtraError, ToolError, UsageError

try:
    from fastmcp.exceptions import NotFoundError, ValidationError
    from fastmcp.exceptions import ToolError as FastMCPToolError
    from fastmcp.server.dependencies import get_access_token
    from fastmcp.server.middleware import Middleware
    from fastmcp.tools.base import InputRequiredToolResult, Tool, ToolResult
    from mcp.shared.exceptions import MCPError
    from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY, TextContent, ToolAnnotations
    from pydantic_core import PydanticSerializationError
except ImportError as error:
    raise MissingExtraError("fastmcp", "fastmcp") from error

if TYPE_CHECKING:
    from pokayoke.runtime.guard.guard import Guard
    from pokayoke.runtime.run.run import Run

__all__ = ["GuardMiddleware", "calls", "contracts", "guard_server", "message"]

KEY_FIELD = "idempotencyKey"
"""What a client puts into a call's `_meta` to say that a retry is the same call."""
_ASIDE = "put_aside"
_WRAPPED = "x-fastmcp-wrap-result"
_LARGEST = 20_000
# What FastMCP writes for a value that it cannot serialise, where the tool has no output schema: a whole text, or a
# whole string inside JSON. Inside other words it is a quotation.
_REPR = re.compile(r"<[\w.<> ]+ (?:object )?at 0x[0-9a-f]+>")
_IN_JSON = re.compile(rf'"{_REPR.pattern}"')

_original_arguments_var: ContextVar[dict[str, Any] | None] = ContextVar("pokayoke_mcp_aside", default=None)
RunId = str | Callable[[Any], str | None]


class _DirectAnswer(Exception):  # noqa: N818 - no error: the client is asked something, and will call again
    """The tool asks the client for something before it does anything, or an extension took the call over.

    Args:
        result: what goes to the client as it is.
        problem: what is raised instead, if the request cannot be served at all.
    """

    def __init__(self, result: Any, problem: Exception | None = None) -> None:
        super().__init__("the client is asked")
        self.result, self.problem = result, problem


class GuardMiddleware(Middleware):
    """Guards every tool call of a server. `guard_server` installs it.

    Args:
        guard: its contracts are those of `build_contracts`.
        run_id: which calls belong together, as a durable name: a text, or a function of the middleware's context.
        unguarded: names of tools that FastMCP may run without a contract. Others without one are neither listed
            nor run.
        paging: True to offer the tool by which a model reads on in an output that is too long to show.
    """

    def __init__(
        self, guard: Guard, *, run_id: RunId | None = None, unguarded: Collection[str] = (), paging: bool = True
    ) -> None:
        """Begin without runs."""
        self.guard, self._run_id, self._unguarded = guard, run_id, frozenset(unguarded)
        self._runs = AdapterRuns(guard, through=(_DirectAnswer,))
        self._process = f"process/{uuid.uuid4()}"
        self._paging, self._wrapped = paging, dict[str, bool]()

    async def on_list_tools(self, context: Any, call_next: Any) -> Any:
        """List what has a contract and is not denied to the client, and the guard's own tool."""
        listed, who = await call_next(context), as_principal(_current_principal())
        snapshot, pager = self.guard.snapshot, self.guard.pager
        kept = [one for one in listed if one.name in self._unguarded or snapshot.is_offered(one.name, who)]
        pages = self._paging and self.guard.view.paged.is_offered(pager.name, who)
        if pages and all(one.name != pager.name for one in kept):
            kept.append(_paging_tool(pager))
        return kept

    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        """Take a call to its outcome. What the tool asks of the client goes through."""
        asked = context.message
        if asked.name in self._unguarded:
            return await call_next(context)
        hosted = self._run_of(context)
        # No user speaks here, so nothing else would ever end a streak of failures.
        hosted.run.rounds.clear()
        call = ToolCall(_request_id(context.fastmcp_context), asked.name, _call_arguments(asked.arguments))
        returned: list[Any] = []

        async def run_tool(arguments: dict[str, Any]) -> Any:
            message = asked.model_copy(update={"name": self._contract_name(hosted, call), "arguments": arguments})
            result = await _run_tool(call_next, context.copy(message=message))
            if result is _UNSERIALISABLE:
                return result
            returned[:] = [result]
            return _tool_value(result)

        own = self._contract_name(hosted, call) == self.guard.pager.name
        try:
            outcome = await hosted.acall(call, None if own else run_tool)
        except _DirectAnswer as passed:
            if passed.problem is not None:
                raise passed.problem from None
            return passed.result
        return await self._framework_result(outcome, context, returned[0] if returned else None)

    # -- parts ---------------------------------------------------------------------------------------

    def _contract_name(self, hosted: AdapterRun, call: ToolCall) -> str:
        plan = hosted.run.snapshot.find_plan(call.name)
        return call.name if isinstance(plan, Finding) else plan.contract.name

    def _run_of(self, context: Any) -> AdapterRun:
        """The run of a call: by the client's key, as the host says, by session, or of this process."""
        within = context.fastmcp_context
        who = _current_principal()
        request = within.request_context
        meta = (request.meta if request is not None else None) or {}
        key = meta.get(KEY_FIELD)
        if isinstance(key, str) and key:
            # A caller's id may hold a slash, and a key whatever the client likes.
            return self._runs.run_for(f"key/{quote((who or {}).get('id', ''), safe='')}/{key}", principal=who)
        named = self._run_id(context) if callable(self._run_id) else self._run_id
        if named is not None:
            return self._runs.run_for(named, principal=who)
        session = getattr(getattr(request and request.session, "_connection", None), "session_id", None)
        if session is not None:
            return self._runs.run_for(f"session/{session}", principal=who)
        if within.transport in (None, "stdio"):
            return self._runs.run_for(self._process, durable=False, principal=who)
        # Over HTTP without a session, nobody can tell a retry from a second wish.
        return AdapterRun(self.guard.run(principal=who), through=(_DirectAnswer,))

    async def _framework_result(self, outcome: Outcome, context: Any, result: Any) -> Any:
        """What the client gets: the text for a model, and the value for a program."""
        content = [TextContent(type="text", text=outcome.text), *outcome.content]
        if _has_failed(outcome) or (outcome.status == "replayed" and self._has_lost_value(outcome)):
            return ToolResult(content=content, is_error=True)
        if result is not None and result.structured_content is not None:  # what stands beside it was not read
            content += [block for block in result.content if not isinstance(block, TextContent)]
        wrapped = await self._is_wrapped(outcome.tool, context, result)
        value = outcome.value
        structured: Any = {"result": value} if wrapped else value if isinstance(value, dict) else None
        if structured is not None and len(dump_compact(structured)) > self.guard.snapshot.policy.context.offload_chars:
            # A preview is no value: a program that expects one must not take it for one.
            if not wrapped or not isinstance(value, str):
                return ToolResult(content=content, is_error=True)
            structured = {"result": outcome.text}
        meta = {**((result.meta if result is not None else None) or {})}
        if wrapped:
            meta["fastmcp"] = {"wrap_result": True}
        return ToolResult(content=content, structured_content=structured, meta=meta or None)

    def _has_lost_value(self, outcome: Outcome) -> bool:
        """Whether a program expects a value that a repeated call does not have any more."""
        plan = self.guard.snapshot.find_plan(outcome.tool)
        promised = None if isinstance(plan, Finding) else plan.contract.output
        return outcome.value is None and promised is not None and not promised.accepts(None)

    async def _is_wrapped(self, name: str, context: Any, result: Any) -> bool:
        """Whether FastMCP puts this tool's values into an object, since MCP knows no others."""
        if result is not None:
            self._wrapped[name] = bool(((result.meta or {}).get("fastmcp") or {}).get("wrap_result"))
        elif name not in self._wrapped:
            tool = await context.fastmcp_context.fastmcp.get_tool(name)
            self._wrapped[name] = bool(tool is not None and (tool.output_schema or {}).get(_WRAPPED))
        return self._wrapped[name]


def guard_server(server: Any, guard: Guard, **options: Any) -> GuardMiddleware:
    """Guard a FastMCP server, arguments that are no object included.

    Args:
        server: the server; also one made by `create_proxy`.
        guard: the guard.
        options: those of `GuardMiddleware`.

    Raises:
        UsageError: the server has a tool without a contract that is not named in `unguarded`.
    """
    middleware = GuardMiddleware(guard, **options)
    known = guard.snapshot
    if lacking := sorted(
        one.name
        for one in _list_tools(server)
        if isinstance(known.find_plan(one.name), Finding) and one.name not in options.get("unguarded", ())
    ):
        raise UsageError(f"no contract for {', '.join(lacking)}: call contracts(server) after all tools are there")
    server.add_middleware(middleware)
    server._mcp_server.middleware.append(_put_aside)  # noqa: SLF001 - FastMCP's own sees parsed requests only
    return middleware


async def _put_aside(context: Any, call_next: Any) -> Any:
    """Keep arguments that are no object from failing as a protocol error, which no model ever reads."""
    given = (context.params or {}).get("arguments")
    if context.method != "tools/call" or given is None or isinstance(given, dict):
        return await call_next(context)
    key = uuid.uuid4().hex
    token = _original_arguments_var.set({key: given})
    try:
        return await call_next(replace(context, params={**context.params, "arguments": {_ASIDE: key}}))
    finally:
        _original_arguments_var.reset(token)


def _call_arguments(arguments: dict[str, Any] | None) -> Any:
    """The arguments as the client sent them; what was no object and no text, as its JSON text."""
    found = arguments or {}
    kept = _original_arguments_var.get()
    if kept is None or (key := found.get(_ASIDE)) not in kept:
        return found
    given = kept[key]
    return given if isinstance(given, str) else dump_compact(given).decode()


def _current_principal() -> dict[str, Any] | None:
    """Who calls, if the server authenticates its clients; the scopes of the token are its roles."""
    token = get_access_token()
    if token is None:
        return None
    subject = (token.claims or {}).get("sub")
    # A client's own name may hold a slash, and must not read as that of another one's user.
    ident = "/".join(quote(str(part), safe="@:") for part in (token.client_id, subject or None) if part is not None)
    return {"id": ident, "roles": tuple(token.scopes or ())}


def _request_id(within: Any) -> str:
    """The id of a request, by which a trace and a client's log are held together."""
    return within.request_id if within.request_context is not None else f"call-{uuid.uuid4().hex[:12]}"


async def _run_tool(call_next: Any, context: Any) -> Any:
    """Let FastMCP run the tool; say of what it raises whether the tool was there at all."""
    try:
        result = await call_next(context)
    except NotFoundError as missing:
        if str(missing) != f"Unknown tool: {context.message.name!r}":
            raise
        raise ToolNotStarted("this server does not offer it now", blame="model") from None
    except ValidationError as refused:  # FastMCP's own reading of the arguments; a tool's body raises another
        raise ToolNotStarted("FastMCP does not take these arguments", blame="model") from refused
    except MCPError as problem:
        if problem.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY:
            raise _DirectAnswer(None, problem) from None
        raise
    except FastMCPToolError as failed:
        cause = failed.__cause__
        if isinstance(cause, PydanticSerializationError):
            return _UNSERIALISABLE  # it ran, and returned what nobody can read
        if cause is not None:
            raise cause from None  # FastMCP has put its text into a message for the client
        raise ToolError(str(failed)) from None
    if isinstance(result, InputRequiredToolResult) or not isinstance(result, ToolResult):
        raise _DirectAnswer(result)
    return result


_UNSERIALISABLE = object()


def _tool_value(result: Any) -> Any:
    """What the tool returned, as far as FastMCP lets see it."""
    if result.is_error:
        return result
    structured = result.structured_content
    if structured is not None:
        wrapped = ((result.meta or {}).get("fastmcp") or {}).get("wrap_result")
        return structured["result"] if wrapped else structured
    if any(not isinstance(block, TextContent) for block in result.content):
        return result
    texts = [block.text for block in result.content]
    return _UNSERIALISABLE if any(map(_is_repr, texts)) else "\n".join(texts)


def _is_repr(text: str) -> bool:
    return bool(_REPR.fullmatch(text) or (text.startswith(('"', "[", "{")) and _IN_JSON.search(text)))


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
        reads: names of tools that change nothing.
        destructive: names of those whose effect cannot be undone.
        fields: further fields of the contracts, by tool name.
        trust_hints: True to believe `readOnlyHint` and `destructiveHint` where a tool is in neither list. They are
            hints: whoever wrote the tool wrote them.

    Raises:
        UsageError: a tool is named that does not exist.
        ContractError: a field contradicts another or its schema.
    """
    tools = _list_tools(server)
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
    return hosted_contracts(described, reads=read, destructive=worse, fields=more)


def calls(reply: Any, run: Run | None = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the call of a `tools/call` request, as its parameters or as raw JSON."""
    asked: Any = reply if isinstance(reply, dict) else reply.model_dump(by_alias=True)
    given = asked.get("arguments")
    text = given if isinstance(given, (dict, str)) else "" if given is None else dump_compact(given).decode()
    return [ToolCall("", str(asked.get("name") or ""), cast("Any", text))]


def message(outcome: Outcome) -> Any:
    """Return the result that answers a call."""
    content = [TextContent(type="text", text=outcome.text), *outcome.content]
    return ToolResult(content=content, is_error=_has_failed(outcome))


def _has_failed(outcome: Outcome) -> bool:
    """A result of another time is one; its text says so."""
    return not outcome.ok and (outcome.status != "degraded" or outcome.value is None)


def _list_tools(server: Any) -> list[Any]:
    """The tools of a server; asked in a thread of its own, so that it does not matter whether a loop runs here."""
    if not hasattr(server, "list_tools"):
        return list(cast("Iterable[Any]", server))
    found: list[Any] = []
    problem: list[BaseException] = []

    def list_in_thread() -> None:
        try:
            found.extend(asyncio.run(server.list_tools(run_middleware=False)))
        except BaseException as raised:  # noqa: BLE001 - raised again by who asked
            problem.append(raised)

    thread = threading.Thread(target=list_in_thread, name="pokayoke-listing")
    thread.start()
    thread.join()
    if problem:
        raise problem[0]
    return found


def _output_schema(tool: Any) -> dict[str, Any] | None:
    """What a tool's values are like, without the object that FastMCP puts around them."""
    schema = tool.output_schema
    if not schema or not schema.get(_WRAPPED):
        return cast("dict[str, Any] | None", schema or None)
    inner = dict(schema["properties"]["result"])
    if "$defs" in schema:
        inner["$defs"] = schema["$defs"]
    return inner


def _paging_tool(contract: Contract) -> Any:
    return Tool(
        name=contract.name,
        description=contract.description,
        parameters=contract.model_schema,
        annotations=ToolAnnotations(read_only_hint=True),
    )
