"""The one MCP server that clients see in front of several servers, on the SDK's low level.

In: requests of clients, in either era.
Out: merged listings, and the results of the server behind each name.
Never: an empty listing because a server could not be asked, or a request for one server sent to another.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.gateway.auth.tokens import CallerIdentity
from pokayoke.gateway.http.gate import IDENTITY
from pokayoke.gateway.interceptor import Interceptor, ServerGoneError
from pokayoke.gateway.messages.results import PREFIX, Era, as_of_era, error_result
from pokayoke.gateway.runs import Caller
from pokayoke.gateway.servers.connection import VERSION
from pokayoke.gateway.servers.guarded_call import ServerErrorAnswer, guard_call
from pokayoke.gateway.servers.upstream import AnswerLost, ServerUnavailable, UpstreamServer
from pokayoke.gateway.servers.upstreams import Target, Upstreams, as_json, describe_missing

SERVERS_KEY: Final = f"{PREFIX}servers"
"""Under which a listing tells the state of every server."""
_PROCESS: Final = f"stdio/{uuid.uuid4()}"
_TTL_MS: Final = 10_000
_MAX_SESSIONS: Final = 1_000
_HELLO_SECONDS: Final = 3.0
_LISTS: Final = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
_BY_NAME: Final = {"prompts/get": ("prompts", "name"), "resources/read": ("resources", "uri")}


class Front:
    """The server that clients see.

    Args:
        upstreams: the servers behind it.
        interceptor: guards their tools.
    """

    def __init__(self, upstreams: Upstreams, interceptor: Interceptor) -> None:
        self._upstreams, self._interceptor = upstreams, interceptor
        self._bus: Any = InMemorySubscriptionBus()
        self._sessions: OrderedDict[str, Any] = OrderedDict()
        self._schemas: dict[str, Any] = {}
        self.server: Any = Server(
            "pokayoke",
            version=VERSION,
            on_list_tools=_never,
            on_call_tool=_never,
            on_list_prompts=_never,
            on_get_prompt=_never,
            on_list_resources=_never,
            on_list_resource_templates=_never,
            on_read_resource=_never,
            on_completion=_never,
            on_subscriptions_listen=ListenHandler(self._bus),
            get_tool_input_schema=self._find_schema,
        )
        self.server.middleware = [self._handle]  # replaces the SDK's tracing, which costs time for each message
        self._describe()

    async def on_change(self, _changed: UpstreamServer) -> None:
        """Take in that the state or a listing of a server has changed, and tell the clients."""
        tools = self._upstreams.items("tools")
        before = self._schemas
        self._schemas = {one["name"]: one.get("inputSchema") for one in tools}
        self._interceptor.tools.take(tools)
        self._describe()
        if before == self._schemas:
            return
        await self._bus.publish(ToolsListChanged())
        for ident, session in list(self._sessions.items()):
            try:
                await session.send_tool_list_changed()
            except Exception:  # noqa: BLE001 - that client has gone
                self._sessions.pop(ident, None)

    def _find_schema(self, name: str) -> Any:
        """Return what a tool takes, by which the SDK holds headers to the arguments they repeat."""
        return self._schemas.get(name)

    def _describe(self) -> None:
        """Tell in the server's instructions which servers are missing, and what those that are there say."""
        parts = [describe_missing(self._upstreams.missing())]
        parts += [f"{one.name}: {one.instructions}" for one in self._upstreams.all if one.instructions]
        self.server.instructions = "\n\n".join(filter(None, parts)) or None

    async def _handle(self, context: Any, call_next: Any) -> Any:
        """Answer a request, before the SDK's models would drop what they do not know."""
        method, params = context.method, context.params or {}
        if context.request_id is None:
            if method == "notifications/initialized":
                self._remember(context)
            return await call_next(context)
        if method in _LISTS:
            return await self._list(_LISTS[method], context)
        if method == "tools/call":
            return await self._call_tool(params, context)
        if method in _BY_NAME:
            return await self._forward_named(method, params, context)
        if method == "completion/complete":
            return await self._complete(params, context)
        if method in ("server/discover", "initialize"):
            await self._upstreams.settle(_HELLO_SECONDS)  # the instructions tell which servers are missing
        return await call_next(context)

    async def _list(self, kind: str, context: Any) -> dict[str, Any]:
        await self._upstreams.settle()
        await self._upstreams.refresh()
        items, missing = self._upstreams.items(kind), self._upstreams.missing()
        # Of servers that are there, most have no prompts or resources; without tools, nothing can be said of a server.
        if missing and not items and (kind == "tools" or len(missing) == len(self._upstreams.all)):
            raise MCPError(code=types.INTERNAL_ERROR, message=describe_missing(missing))
        states = [as_json(one) for one in self._upstreams.statuses()]
        result: dict[str, Any] = {kind: items, "_meta": {SERVERS_KEY: states}}
        if kind == "tools":
            result = dict(self._interceptor.take_listing(result, _read_caller(context), _era(context)))
        if _is_modern(context):
            result |= {"ttlMs": 0 if missing else _TTL_MS, "cacheScope": "private"}
        return self._finish(result, context)

    async def _call_tool(self, params: Mapping[str, Any], context: Any) -> dict[str, Any]:
        if not isinstance(params.get("name"), str):
            raise MCPError(code=types.INVALID_PARAMS, message="a call names its tool: params.name is a text")
        if not (is_listed := self._upstreams.find("tools", params["name"]) is not None):
            await self._upstreams.settle()
            is_listed = self._upstreams.find("tools", params["name"]) is not None
        if not is_listed and (lost := self._server_of(params["name"])) is not None:
            return self._finish(error_result(describe_missing([lost]), era=_era(context)), context)

        async def forward(sent: dict[str, Any]) -> dict[str, Any]:
            target = self._upstreams.find("tools", sent["name"])  # the guard may have corrected the name
            if target is None:
                raise ToolNotStarted("its server does not list it any more", blame="tool")
            return await _send_call(target, sent, context)

        try:
            result = await guard_call(
                self._interceptor,
                params,
                _read_caller(context),
                forward,
                era=_era(context),
                request_id=context.request_id,
                ask=_question_channel(context),
            )
        except ServerErrorAnswer as answered:
            raise _as_sdk_error(answered.error) from None
        return self._finish(result, context)

    def _server_of(self, name: str) -> Any:
        """Return the state of the missing server whose prefix a name has, or None."""
        for one in self._upstreams.missing():
            if not self._upstreams.has_prefixes or name.startswith(f"{one.name}__"):
                return one
        return None

    async def _forward_named(self, method: str, params: Mapping[str, Any], context: Any) -> dict[str, Any]:
        kind, member = _BY_NAME[method]
        await self._upstreams.settle()
        name = params.get(member)
        target = self._upstreams.find(kind, name) if isinstance(name, str) else None
        if target is None:
            missing = describe_missing(self._upstreams.missing())
            words = f"no server has {name!r} among its {kind}. {missing}".strip()
            raise MCPError(code=types.INVALID_PARAMS, message=words)
        return self._finish(await _send(target, method, {**params, member: target.name}, context), context)

    async def _complete(self, params: Mapping[str, Any], context: Any) -> dict[str, Any]:
        ref: Any = params.get("ref")
        about = ref if isinstance(ref, dict) else {}  # pyright: ignore[reportUnknownVariableType]
        is_prompt = about.get("type") == "ref/prompt"
        kind, member = ("prompts", "name") if is_prompt else ("resourceTemplates", "uri")
        name: Any = about.get(member)
        target = self._upstreams.find(kind, name) if isinstance(name, str) else None
        if target is None:
            raise MCPError(code=types.INVALID_PARAMS, message="nothing of that name can be completed")
        sent = {**params, "ref": {**about, member: target.name}}
        return self._finish(await _send(target, "completion/complete", sent, context), context)

    def _remember(self, context: Any) -> None:
        """Keep a session of the handshake era, to tell it of changes."""
        self._sessions[_session_id(context)] = context.session
        if len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)

    def _finish(self, result: dict[str, Any], context: Any) -> dict[str, Any]:
        """Return a result with what the client's era asks for, and without what it does not know."""
        if not _is_modern(context):
            return {key: value for key, value in result.items() if key != "resultType"}
        meta = {**(result.get("_meta") or {}), types.SERVER_INFO_META_KEY: self.server.server_info_stamp}
        return {**(result if "resultType" in result else as_of_era(result, "modern")), "_meta": meta}


async def _send_call(target: Target, params: dict[str, Any], context: Any) -> dict[str, Any]:
    """Send a call to its server; raise what tells the guard whether it can have been executed."""
    words = f"the MCP server {target.upstream.name!r}"
    try:
        return await _send_request(target, "tools/call", {**params, "name": target.name}, context)
    except ServerUnavailable as error:
        raise ToolNotStarted(f"{words} is not available: {error}", blame="tool") from None
    except AnswerLost as error:
        raise ServerGoneError(f"{words} gave no answer: {error}") from None
    except MCPError as answered:
        said = answered.error
        raise ServerErrorAnswer({"code": said.code, "message": said.message, "data": said.data}) from None


async def _send(target: Target, method: str, params: dict[str, Any], context: Any) -> dict[str, Any]:
    """Send a request that is no call; one that gets no answer is answered with an error that names the server."""
    try:
        return await _send_request(target, method, params, context)
    except (ServerUnavailable, AnswerLost) as error:
        words = f"the MCP server {target.upstream.name!r}: {error}"
        raise MCPError(code=types.INTERNAL_ERROR, message=words) from None


async def _send_request(target: Target, method: str, params: dict[str, Any], context: Any) -> dict[str, Any]:
    wants_progress = (context.meta or {}).get("progress_token") is not None
    on_progress = context.session.report_progress if wants_progress else None
    return await target.upstream.send_request(method, params, on_progress=on_progress)


async def _never(_context: Any, _params: Any) -> Any:
    """Stand for a handler that the middleware has answered before; the SDK reads from it what is offered."""
    raise MCPError(code=types.METHOD_NOT_FOUND, message="not served here")


def _as_sdk_error(error: Mapping[str, Any]) -> Any:
    return MCPError(code=error["code"], message=str(error.get("message")), data=error.get("data"))


def _era(context: Any) -> Era:
    return "modern" if _is_modern(context) else "legacy"


def _question_channel(context: Any) -> Any:
    """Return how the person at the client is asked; None where the client offers no way back during a call."""
    offered = context.session.client_capabilities
    if _is_modern(context) or offered is None or offered.elicitation is None or not context.session.can_send_request:
        return None

    async def ask(question: dict[str, Any]) -> Any:
        try:
            answer = await context.session.elicit_form(
                question["message"], question["requestedSchema"], related_request_id=context.request_id
            )
        except MCPError:  # the client cannot show it: the question stays open
            return None
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    return ask


def _read_caller(context: Any) -> Caller:
    """Return on whose behalf a request is made."""
    request, can_ask = context.request, _question_channel(context) is not None
    identity: CallerIdentity | None = None if request is None else request.scope.get(IDENTITY)
    if identity is not None:
        return Caller(identity.subject, identity.scopes, "", can_ask)
    return Caller("", (), "" if _is_modern(context) else _session_id(context), can_ask)


def _session_id(context: Any) -> str:
    return _PROCESS if context.request is None else str(context.request.headers.get("mcp-session-id", ""))


def _is_modern(context: Any) -> bool:
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS
