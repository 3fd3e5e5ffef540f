"""How a guarded call reaches an ADK tool, and what becomes of what the tool returns.

The guard waits at the tool itself, behind the callbacks of the agent and ADK's own confirmation: all of them stay
what they are, and see the arguments that the tool will get.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec import structs

from pokayoke.adapters._host.run import AdapterRun
from pokayoke.adapters._host.visibility import is_hidden
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.core.intake.arguments import read_arguments
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.errors import MissingExtraError, StoreError, ToolError

try:
    from google.adk.tools.base_tool import BaseTool
    from google.genai import types
except ImportError as error:
    raise MissingExtraError("google-adk", "google-adk") from error

if TYPE_CHECKING:
    from pokayoke.runtime.run.run import Run

_TRANSFER = "transfer_to_agent"
_CONFIRMATION = "adk_request_confirmation"
_APPROVAL = "approval"
_CONTROL_ACTIONS = ("escalate", "transfer_to_agent", "skip_summarization")
_PAUSED = "waits for a person"
_ENDS = (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)


class PendingCall(NamedTuple):
    """A call on its way from the plugin to its tool."""

    context: Any
    hosted: AdapterRun
    call: ToolCall
    arguments: dict[str, Any]


pending_call_var: ContextVar[PendingCall | None] = ContextVar("pokayoke_adk_waiting", default=None)


class GuardedRunAsync:
    """Stands where a tool's own `run_async` was. A call that no plugin has announced walks straight through.

    Args:
        tool: the tool.
    """

    def __init__(self, tool: Any) -> None:
        """Keep what was there."""
        self._tool, self._run = tool, tool.run_async

    async def __call__(self, *, args: dict[str, Any], tool_context: Any) -> Any:
        """Run the tool, guarded if a plugin of this very call says so."""
        announced = pending_call_var.get()
        if announced is None or announced.context is not tool_context:
            return await self._run(args=args, tool_context=tool_context)
        pending_call_var.set(None)
        call = announced.call
        if args != announced.arguments:  # a callback of the agent wants others
            call = structs.replace(call, arguments=args)
        return await self._run_guarded(call, announced.hosted, tool_context)

    async def _run_guarded(self, call: ToolCall, hosted: AdapterRun, context: Any) -> Any:
        tool = _ToolInvocation(self._run, context)
        said = context.tool_confirmation if _is_guard_answer(context) else None
        if said is not None:
            context.tool_confirmation = None  # the tool has asked nothing yet
        outcome = await hosted.acall(call, tool.run)
        if outcome.status == "pending" and outcome.approval is not None and not _is_node(context):
            if said is None:
                return _request_confirmation(outcome, context)
            _answer_approval(hosted, outcome.approval, said, by=context.user_id)
            outcome = await hosted.acall(call, tool.run)
        if tool.interrupt is not None:
            raise tool.interrupt
        if tool.paused:
            return tool.result if said is None else _ask_to_repeat(outcome, context)
        _remember_actions(outcome, hosted, context.actions)
        if outcome.status == "ok" and self._tool.is_long_running and not tool.result:
            return tool.result  # its answer comes later, from the application
        answer = result_for_adk(outcome, context)
        if _is_node(context):
            return tool.returned if outcome.status == "ok" else answer
        for place, part in enumerate(tool.media, 1):
            answer[f"media_{place}"] = part
        return answer


class _ToolInvocation:
    """The tool of one guarded call, and what it did that ADK has to know beside the outcome.

    Args:
        run: runs it.
        context: ADK's, of this call.

    Attributes:
        returned: what it returned.
        result: that without its media.
        media: those.
        paused: True if it did nothing yet: it asked a person. ADK calls it again later.
        interrupt: what ADK interrupted it with; no `Exception`, so that nobody takes it for a failure.
    """

    __slots__ = ("_context", "_run", "interrupt", "media", "paused", "result", "returned")

    def __init__(self, run: Callable[..., Awaitable[Any]], context: Any) -> None:
        """Begin with a tool that did nothing."""
        self._run, self._context = run, context
        self.returned: Any = None
        self.result: Any = None
        self.media: list[Any] = []
        self.paused = False
        self.interrupt: BaseException | None = None

    async def run(self, arguments: dict[str, Any]) -> Any:
        """Run it; what has paused is raised as not begun, so that its claim is given back."""
        try:
            result = await self._run(args=arguments, tool_context=self._context)
        except (Exception, *_ENDS):
            raise
        except BaseException as interrupt:  # noqa: BLE001 - ADK's own derive from it
            self.interrupt = interrupt
            raise ToolNotStarted(_PAUSED) from None
        if _has_asked_person(self._context):
            self.result, self.paused = result, True
            raise ToolNotStarted(_PAUSED)
        self.returned = result
        self.result, self.media = _split_media(result)
        return self.result


def wrap_run_async(tool: Any) -> None:
    """Put a door before a tool, once."""
    if not isinstance(tool.run_async, GuardedRunAsync):
        tool.run_async = GuardedRunAsync(tool)


def result_for_adk(outcome: Outcome, context: Any) -> Any:
    """Return what ADK is told of a call: `function_response`, or, if a node of a workflow made it, the value.

    No model reads that value.

    Raises:
        ToolError: that node gets no value; its workflow is not to go on with anything else.
    """
    if not _is_node(context):
        return function_response(outcome)
    if not outcome.ok:
        raise ToolError(outcome.text)
    return outcome.value


def _is_node(context: Any) -> bool:
    return type(getattr(context, "node", None)).__name__ == "_ToolNode"  # it has no public name


def function_response(outcome: Outcome) -> dict[str, Any]:
    """Return what ADK tells the model of a call: `result`, or `error` if it brought none."""
    brought = outcome.ok or (outcome.status == "degraded" and outcome.value is not None)
    told: dict[str, Any] = {"result" if brought else "error": outcome.text}
    for place, block in enumerate(outcome.content, 1):
        told[f"content_{place}"] = _to_part(block)
    return told


class PagingTool(BaseTool):
    """The guard's own tool, by which a model reads on in a large output. ADK never runs it: the plugin answers.

    Args:
        contract: of that tool.
    """

    def __init__(self, contract: Contract) -> None:
        """Take over its name."""
        super().__init__(name=contract.name, description=contract.description)
        self._schema = contract.model_schema

    def _get_declaration(self) -> Any:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._schema
        )


def hide_tools(config: Any, run: Run) -> None:
    """Leave out of a request the declarations of tools that its user may not use."""
    shown: list[Any] = []
    for tool in config.tools or ():
        declared = getattr(tool, "function_declarations", None)
        kept = [one for one in declared or () if not is_hidden(run, one.name or "")]
        if not declared or len(kept) == len(declared):
            shown.append(tool)
        elif kept:
            shown.append(tool.model_copy(update={"function_declarations": kept}))
    if shown != config.tools and (shown or config.tools):
        config.tools, config.tool_config = shown, config.tool_config if shown else None
    wish: Any = config.tool_config
    demand = getattr(wish, "function_calling_config", None)
    named: list[str] = getattr(demand, "allowed_function_names", None) or []
    allowed = [name for name in named if not is_hidden(run, name)]
    if demand is not None and len(allowed) < len(named):  # an empty list would allow all of them
        less = {"allowed_function_names": allowed} if allowed else {"allowed_function_names": None, "mode": "NONE"}
        config.tool_config = wish.model_copy(update={"function_calling_config": demand.model_copy(update=less)})


async def tool_missing(_: dict[str, Any]) -> Any:
    """Run nothing: the guard knows a tool of that name, and this agent has none."""
    raise ToolNotStarted("this agent has no such tool", blame="model")


async def verdict_changed(_: dict[str, Any]) -> Any:
    """Run nothing: it was refused, and only in between it would not have been any more."""
    raise ToolNotStarted("it may run now, and was refused a moment ago", blame="host")


async def pass_unguarded_tool(
    tool: Any, arguments: dict[str, Any], hosted: AdapterRun, call: ToolCall
) -> dict[str, Any] | None:
    """Let a tool pass that the guard does not know, if the arguments are whole and can be read.

    Args:
        tool: the tool.
        arguments: what ADK will call it with; what the model meant is written into it.
        hosted: the run.
        call: what the model wrote.

    Returns:
        The answer instead of the tool's, or None.
    """
    if is_cut(call.stop_reason):
        return function_response(await hosted.acall(call))
    if isinstance(call.arguments, str):
        reading = read_arguments(call.arguments)
        meant = reading.value if reading.grade in ("exact", "lossless") else None
    else:
        meant = cast("dict[str, Any]", call.arguments)
    problem = "could not be read: send one JSON object" if meant is None else _transfer_problem(tool, meant)
    if problem is not None:
        await hosted.acall(call)  # a bad round like any other
        return {"error": f"The arguments of {tool.name} {problem}."}
    arguments.clear()
    arguments.update(meant or {})
    return None


def _transfer_problem(tool: Any, arguments: dict[str, Any]) -> str | None:
    """ADK ends the whole run when a model hands over to an agent it made up."""
    if tool.name != _TRANSFER:
        return None
    schema: Any = tool._get_declaration().parameters_json_schema or {}  # noqa: SLF001 - the only way to its agents
    agents = schema.get("properties", {}).get("agent_name", {}).get("enum")
    if agents is None or arguments.get("agent_name") in agents:
        return None
    return f"name no agent to transfer to: agent_name is one of {', '.join(agents)}"


def _has_asked_person(context: Any) -> bool:
    actions, ident = context.actions, context.function_call_id
    return ident in actions.requested_tool_confirmations or ident in actions.requested_auth_configs


def _is_guard_answer(context: Any) -> bool:
    """True if a call comes back with the answer to the guard's question, and not to one of the tool's or of ADK's."""
    if context.tool_confirmation is None:
        return False
    for event in reversed(context.session.events):
        for asked in event.get_function_calls():
            given: dict[str, Any] = asked.args or {}
            about: dict[str, Any] = given.get("originalFunctionCall") or {}
            if asked.name == _CONFIRMATION and about.get("id") == context.function_call_id:
                payload = (given.get("toolConfirmation") or {}).get("payload")
                return isinstance(payload, dict) and _APPROVAL in payload
    return False


def _request_confirmation(outcome: Outcome, context: Any) -> dict[str, Any]:
    """Hand the question to whoever answers ADK's confirmations; the run pauses."""
    context.request_confirmation(hint=outcome.message or outcome.text, payload={_APPROVAL: outcome.approval})
    context.actions.skip_summarization = True
    return function_response(outcome)


def _ask_to_repeat(outcome: Outcome, context: Any) -> dict[str, Any]:
    """Have the model send a call once more: of one that a person has answered, ADK asks nobody a second time."""
    for asked in (context.actions.requested_tool_confirmations, context.actions.requested_auth_configs):
        asked.pop(context.function_call_id, None)
    return {"error": f"{outcome.tool} was allowed and now asks a person something itself. Send the same call again."}


def _answer_approval(hosted: AdapterRun, approval: str, confirmation: Any, *, by: str) -> None:
    approvals = hosted.run.guard.approvals
    with contextlib.suppress(StoreError):  # somebody was faster; the call finds what was decided
        approvals.answer(approval, approved=confirmation.confirmed, by=by, reason="answered in the conversation")


def _remember_actions(outcome: Outcome, hosted: AdapterRun, actions: Any) -> None:
    """Keep where a tool steered ADK, and steer there again when its call is replayed."""
    kept: dict[str | None, list[Any]] = hosted.notes.setdefault("steered", {})
    if outcome.status == "ok" and outcome.key is not None:
        if any(steered := [getattr(actions, name) for name in _CONTROL_ACTIONS]):
            kept[outcome.key] = steered
    elif outcome.status == "replayed":
        for name, value in zip(_CONTROL_ACTIONS, kept.get(outcome.key, ()), strict=False):
            setattr(actions, name, value)


def _split_media(result: Any) -> tuple[Any, list[Any]]:
    """Take the parts out that ADK hands to the model beside the text, where it looks for them itself."""
    if isinstance(result, types.Part):
        return {}, [result]
    if not isinstance(result, (dict, list)):
        return result, []
    entries: Any = result
    media = [one for one in (entries.values() if isinstance(result, dict) else entries) if isinstance(one, types.Part)]
    if not media:
        return result, []
    if isinstance(result, dict):
        return {key: one for key, one in entries.items() if not isinstance(one, types.Part)}, media
    return [one for one in entries if not isinstance(one, types.Part)], media


def _to_part(block: Any) -> Any:
    """A block of a tool's result as ADK's own part if it is media, else as plain data."""
    held: dict[str, Any] = block if isinstance(block, dict) else block.model_dump(mode="json", by_alias=True)
    data, kind = held.get("data"), held.get("mimeType") or held.get("mime_type")
    if isinstance(data, str) and isinstance(kind, str):
        with contextlib.suppress(ValueError):
            return types.Part.from_bytes(data=base64.b64decode(data, validate=True), mime_type=kind)
    return held
