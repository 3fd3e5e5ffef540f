"""The middleware by which a FastMCP server asks the guard, and the run behind each request.

In: requests of clients. Out: results, and a listing of the tools that a client may use. Never: a retry taken for a
second call, or two callers' calls for one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, cast
from urllib.parse import quote

from fastmcp.server.dependencies import get_access_token
from fastmcp.server.middleware import Middleware
from fastmcp.tools.base import Tool, ToolResult
from mcp_types import ToolAnnotations

from pokayoke.adapters._host.frames import Frame, require_frame
from pokayoke.adapters._host.run import AdapterRun, AdapterRuns
from pokayoke.adapters.fastmcp._contracts import list_tools
from pokayoke.adapters.fastmcp._tools import DirectAnswer, ToolInvocation
from pokayoke.core.call import ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.core.gate.rules import as_principal
from pokayoke.core.json.dump import dump_compact
from pokayoke.errors import UsageError
from pokayoke.runtime.guard.guard import Guard
from pokayoke.runtime.run.run import Run

KEY_FIELD = "idempotencyKey"
"""The member of a call's `_meta` by which a client says that a retry is the same call."""
_ASIDE = "put_aside"
_NO_REQUEST = "a server never sees the request to the model; programs read the value in structuredContent"
_CHANGED = (
    "{} was not run: its server lists other arguments by now than its contract has. An operator has to make a new "
    "contract. Try another way, or tell the user."
)

_original_arguments_var: ContextVar[dict[str, Any] | None] = ContextVar("pokayoke_mcp_aside", default=None)
RunId = str | Callable[[Any], str | None]


class GuardMiddleware(Middleware):
    """Guards every tool call of a server. `guard_server` installs it.

    Args:
        guard: its contracts are those of `contracts`.
        run_id: which calls belong together, as a durable name: a text, or a function of the middleware's context.
        unguarded: names of tools that FastMCP may run without a contract. Others without one are neither listed
            nor run.
        paging: True to offer the tool by which a model pages through an output that is too long to show.
        frame: only `history`, for the reason that the error says.

    Raises:
        UsageError: `frame` is another word.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        run_id: RunId | None = None,
        unguarded: Collection[str] = (),
        paging: bool = True,
        frame: Frame = "history",
    ) -> None:
        """Begin without runs."""
        require_frame(frame, _NO_REQUEST)
        self.guard, self._run_id, self._unguarded = guard, run_id, frozenset(unguarded)
        self._runs = AdapterRuns(guard, through=(DirectAnswer,))
        self._process = f"process/{uuid.uuid4()}"
        self._paging, self._wrapped = paging, dict[str, bool]()
        self._schemas: dict[str, Any] = {}
        self._changed: dict[str, Any] = {}

    async def on_list_tools(self, context: Any, call_next: Any) -> Any:
        """List the tools that have a contract and are not denied to the client, and the guard's own tool."""
        listed, who = await call_next(context), as_principal(_current_principal())
        snapshot, pager = self.guard.snapshot, self.guard.pager
        mine = [one for one in listed if one.name not in self._unguarded and snapshot.is_offered(one.name, who)]
        self._compare_schemas(mine)
        kept = [one for one in listed if one.name in self._unguarded or (one in mine and one.name not in self._changed)]
        pages = self._paging and self.guard.view.paged.is_offered(pager.name, who)
        if pages and all(one.name != pager.name for one in kept):
            kept.append(_paging_tool(pager))
        return kept

    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        """Take a call to its outcome. A question of the tool to the client passes through."""
        asked = context.message
        if asked.name in self._unguarded:
            return await call_next(context)
        if asked.name in self._changed:
            return ToolResult(content=_CHANGED.format(asked.name), is_error=True)
        adapter_run = self._run_of(context)
        # There are no turns of a user here: nothing else would end a streak of failures, and an equal call that
        # follows an answer may be a client's retry.
        adapter_run.run.rounds.clear()
        adapter_run.run.seen.knows_turns = False
        call = ToolCall(_request_id(context.fastmcp_context), asked.name, _call_arguments(asked.arguments))
        contract = adapter_run.run.snapshot.find_contract(call.name)
        name = call.name if contract is None else contract.name
        invocation = ToolInvocation(self.guard, context, call_next, name, self._wrapped)
        try:
            outcome = await invocation.take_call(adapter_run, call, has_tool=name != self.guard.pager.name)
        except DirectAnswer as passed:
            if passed.problem is not None:
                raise passed.problem from None
            return passed.result
        return await invocation.framework_result(outcome)

    def keep_schemas(self, tools: Iterable[Any]) -> None:
        """Keep the arguments with which the tools were listed when they got their contracts."""
        self._schemas.update({tool.name: tool.parameters for tool in tools})

    def _compare_schemas(self, tools: Iterable[Any]) -> None:
        """Find the tools that are listed with other arguments by now: a model would be held to what it cannot read."""
        for tool in tools:
            if self._schemas.setdefault(tool.name, tool.parameters) == tool.parameters:
                self._changed.pop(tool.name, None)
            elif self._changed.get(tool.name) != tool.parameters:
                self._changed[tool.name] = tool.parameters
                reason = f"{tool.name} is hidden: its server lists other arguments than its contract was made from"
                event = {"ts": self.guard.clock.now(), "event": "contracts", "tool": tool.name}
                self.guard.trace.record({**event, "ok": False, "reason": reason})

    def _run_of(self, context: Any) -> AdapterRun:
        """Return the run of a call: by the client's key, by `run_id`, by session, or of this process."""
        within = context.fastmcp_context
        who = _current_principal()
        request = within.request_context
        meta = (request.meta if request is not None else None) or {}
        key = meta.get(KEY_FIELD)
        if isinstance(key, str) and key:
            # A caller's id may hold a slash, and a key may hold any text.
            return self._runs.run_for(f"key/{quote((who or {}).get('id', ''), safe='')}/{key}", principal=who)
        named = self._run_id(context) if callable(self._run_id) else self._run_id
        if named is not None:
            return self._runs.run_for(named, principal=who)
        session = getattr(getattr(request and request.session, "_connection", None), "session_id", None)
        if session is not None:
            return self._runs.run_for(f"session/{session}", principal=who)
        if within.transport in (None, "stdio"):
            return self._runs.run_for(self._process, durable=False, principal=who)
        # Over HTTP without a session, a retry cannot be told from a second wish.
        return AdapterRun(self.guard.run(principal=who), through=(DirectAnswer,))


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
    known, listed = guard.snapshot, list_tools(server)
    middleware.keep_schemas(listed)
    if lacking := sorted(
        one.name
        for one in listed
        if known.find_contract(one.name) is None and one.name not in options.get("unguarded", ())
    ):
        raise UsageError(f"no contract for {', '.join(lacking)}: call contracts(server) after all tools are there")
    server.add_middleware(middleware)
    server._mcp_server.middleware.append(_put_aside)  # noqa: SLF001 - FastMCP's own sees parsed requests only
    return middleware


def calls(reply: Any, run: Run | None = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the call of a `tools/call` request, given as its parameters or as raw JSON."""
    asked: Any = reply if isinstance(reply, dict) else reply.model_dump(by_alias=True)
    given = asked.get("arguments")
    text = given if isinstance(given, (dict, str)) else "" if given is None else dump_compact(given).decode()
    return [ToolCall("", str(asked.get("name") or ""), cast("Any", text))]


async def _put_aside(context: Any, call_next: Any) -> Any:
    """Replace arguments that are no object: they would fail as a protocol error, which no model reads."""
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
    """Return the arguments as the client sent them; those that are neither object nor text as their JSON text."""
    found = arguments or {}
    kept = _original_arguments_var.get()
    if kept is None or (key := found.get(_ASIDE)) not in kept:
        return found
    given = kept[key]
    return given if isinstance(given, str) else dump_compact(given).decode()


def _current_principal() -> dict[str, Any] | None:
    """Return the caller, if the server authenticates its clients; the scopes of the token are its roles."""
    token = get_access_token()
    if token is None:
        return None
    subject = (token.claims or {}).get("sub")
    # A client's own name may hold a slash, and must not read as that of another client's user.
    ident = "/".join(quote(str(part), safe="@:") for part in (token.client_id, subject or None) if part is not None)
    return {"id": ident, "roles": tuple(token.scopes or ())}


def _request_id(within: Any) -> str:
    """Return the id of a request, by which a trace and a client's log can be joined."""
    return within.request_id if within.request_context is not None else f"call-{uuid.uuid4().hex[:12]}"


def _paging_tool(contract: Contract) -> Any:
    return Tool(
        name=contract.name,
        description=contract.description,
        parameters=contract.model_schema,
        annotations=ToolAnnotations(read_only_hint=True),
    )
