"""Google ADK: a plugin that guards the tools of every agent of an app.

guard = pokayoke.Guard(contracts(agent.tools, reads=["get_order"]))
app = App(name="shop", root_agent=agent, plugins=[GuardPlugin(guard)])

Models through LiteLLM also need `LiteLlm(model=..., llm_client=GuardClient())`: ADK parses their argument texts, and
drops what it cannot parse, before any plugin is asked.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs

from pokayoke.adapters._host.bounded_cache import BoundedCache
from pokayoke.adapters._host.calls import (
    ReplyCall,
    decode_call,
    effective_call,
    encode_unreadable_call,
    is_encoded_call,
)
from pokayoke.adapters._host.contracts import ToolDescription
from pokayoke.adapters._host.contracts import build_contracts as hosted_contracts
from pokayoke.adapters._host.run import AdapterRun, AdapterRuns
from pokayoke.adapters._host.visibility import paging_tool
from pokayoke.core.call import Finding, Outcome, ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.names import history_name
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.messages.streams import CUT_STOP_REASON
from pokayoke.errors import MissingExtraError, UsageError

try:
    from google.adk.agents.run_config import ToolThreadPoolConfig
    from google.adk.models.llm_response import LlmResponse
    from google.adk.plugins.base_plugin import BasePlugin
    from google.adk.tools.agent_tool import AgentTool
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.function_tool import FunctionTool
    from google.genai import types
except ImportError as error:
    raise MissingExtraError("google-adk", "google-adk") from error

from pokayoke.adapters.google_adk._model import (
    guard_client_class,
    has_broken_off,
    original_call,
    original_calls_var,
    require_client,
)
from pokayoke.adapters.google_adk._tools import (
    PagingTool,
    PendingCall,
    function_response,
    hide_tools,
    pass_unguarded_tool,
    pending_call_var,
    result_for_adk,
    tool_missing,
    verdict_changed,
    wrap_run_async,
)

if TYPE_CHECKING:
    from pokayoke.adapters.google_adk._litellm import GuardClient
    from pokayoke.runtime.guard.guard import Guard
    from pokayoke.runtime.run.run import Run

__all__ = ["GuardClient", "GuardPlugin", "calls", "contracts", "message"]

_KEPT_CALLS = 100
# Where ADK keeps the tools by which it steers itself; everything else in it reaches something outside.
_ADK_TOOL_MODULES = (
    "google.adk.agents.",
    "google.adk.tools._request_input_tool",
    "google.adk.tools.agent_tool",
    "google.adk.tools.example_tool",
    "google.adk.tools.exit_loop_tool",
    "google.adk.tools.get_user_choice_tool",
    "google.adk.tools.google_search_tool",
    "google.adk.tools.load_artifacts_tool",
    "google.adk.tools.load_memory_tool",
    "google.adk.tools.preload_memory_tool",
    "google.adk.tools.set_model_response_tool",
    "google.adk.tools.transfer_to_agent_tool",
    "google.adk.tools.url_context_tool",
)


def __getattr__(name: str) -> Any:
    """Import what needs LiteLLM only for those who use it: ADK does not install it."""
    if name != "GuardClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return guard_client_class()


_outer_run_var: ContextVar[tuple[str, str] | None] = ContextVar("pokayoke_adk_outer", default=None)
"""Session and run inside which an agent is called as a tool: ADK gives that agent a session nobody could know again."""


class GuardPlugin(BasePlugin):
    """Guards the tools of every agent of an app or a runner. One plugin serves any number of sessions at once.

    Args:
        guard: its contracts are those of `build_contracts`.
        unguarded: names of tools that ADK may run without a contract, beside those by which it steers itself.
        threads: most synchronous tools that run at once, each in a thread, so that one that hangs can be given up.
            0 leaves them in the event loop, unless the `RunConfig` says otherwise.
        principal: makes of a user's id whom `Guard.run` takes: an id, or `{"id": ..., "roles": [...]}`.
        name: the plugin's name.

    The run id is `app/user/session`; a slash in one of them is `%2F`, and a percent sign `%25`. A tool without a
    contract is a `UsageError` when the model is first asked; so is a model through LiteLLM without a `GuardClient`.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        unguarded: Collection[str] = (),
        threads: int = 16,
        principal: Callable[[str], Any] = str,
        name: str = "pokayoke",
    ) -> None:
        """Begin without runs."""
        super().__init__(name=name)
        self.guard = guard
        self._runs = AdapterRuns(guard)
        self._unguarded, self._threads, self._principal = frozenset(unguarded), threads, principal

    # -- around a run --------------------------------------------------------------------------------

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: Any) -> None:
        """Begin a turn. An answer to a long-running tool or to a question is none."""
        texts = [part.text for part in user_message.parts or () if part.text]
        if texts:
            self._run_of(invocation_context).run.user("\n".join(texts))

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        """Have synchronous tools leave the event loop free."""
        config = invocation_context.run_config
        if self._threads and config is not None and config.tool_thread_pool_config is None:
            pool = ToolThreadPoolConfig(max_workers=self._threads)
            invocation_context.run_config = config.model_copy(update={"tool_thread_pool_config": pool})

    async def after_run_callback(self, *, invocation_context: Any) -> None:  # noqa: ARG002 - ADK passes it by name
        """Write the trace out."""
        original_calls_var.set(None)
        self.guard.trace.flush()

    # -- around a request ----------------------------------------------------------------------------

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> Any:
        """Take the tools away where only an answer is allowed. A run that was stopped asks nobody."""
        require_client(callback_context._invocation_context.agent)  # noqa: SLF001 - the public way copies all of it
        hosted = self._run_of(callback_context)
        self._require_contracts(hosted, llm_request.tools_dict)
        request = hosted.begin_request()
        if request.final and hosted.run.mode == "stopped":
            return LlmResponse(content=_text_content(hosted.final_text(None)))
        if request.instruction is not None:
            llm_request.append_instructions([request.instruction])
        if request.final:
            llm_request.config.tools, llm_request.config.tool_config = [], None
            llm_request.tools_dict.clear()
        else:
            hide_tools(llm_request.config, hosted.run)
            if (more := paging_tool(hosted.run)) is not None:
                llm_request.append_tools([PagingTool(more)])
        original_calls_var.set({})
        hosted.notes["said"] = None
        return None

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> Any:
        """Read what the model asks for, before ADK acts on it; give an empty end an honest text."""
        if llm_response.partial:
            return None
        hosted = self._run_of(callback_context)
        asked = list(_function_calls(llm_response))
        if not asked and _is_redundant_reply(llm_response, hosted.notes.get("said")):
            return None
        usage = llm_response.usage_metadata
        if usage is not None and usage.total_token_count:
            hosted.run.usage(usage.total_token_count)
        if hosted.is_final or not asked:
            ended = _final_reply(hosted, callback_context, llm_response, called=bool(asked))
            hosted.notes["said"] = "text" if ended is not None or _has_content(llm_response) else None
            return ended
        hosted.notes["said"] = "call"
        said = [original_call(one) for one in asked]
        cut = next((one.stop_reason for one in said if is_cut(one.stop_reason)), llm_response.finish_reason)
        if has_broken_off(callback_context._invocation_context.agent, llm_response):  # noqa: SLF001 - as above
            cut = CUT_STOP_REASON
        # ADK numbers calls without an id across all branches, and knows such ids by how they begin.
        heard = hosted.take_reply([
            ReplyCall(one.id or f"adk-{uuid.uuid4()}", one.name, cast("Any", one.arguments)) for one in said
        ], cut)  # fmt: skip
        snapshot, kept = hosted.run.snapshot, _call_cache(hosted)
        for one, call in zip(asked, heard, strict=True):
            plan = snapshot.find_plan(call.name)
            name = history_name(call.name) if isinstance(plan, Finding) else plan.contract.name
            given = encode_unreadable_call(call)
            _rewrite_call(one, call.id, name, (effective_call(hosted.run, call, given) or (name, given))[1])
            kept.put(call.id, (call, copy.deepcopy(one.args)))
        if is_cut(cut):  # every call is answered with that reason, and the run goes on
            llm_response.error_code = llm_response.error_message = None
        return None

    # -- around a tool -------------------------------------------------------------------------------

    async def before_tool_callback(self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any) -> Any:
        """Answer what must not run; send the rest on to the tool, where the guard waits for it."""
        hosted = self._run_of(tool_context)
        ident = tool_context.function_call_id or ""
        call, shown = _call_cache(hosted).pop(ident) or (None, {})
        if call is None:
            call = decode_call(ident, tool.name, tool_args)
        elif not is_encoded_call(shown) and tool_args != shown:  # a plugin before this one wants others
            call = structs.replace(call, arguments=dict(tool_args))
        plan = hosted.run.snapshot.find_plan(call.name)
        nested = (tool_context.session.id, f"{hosted.run.id}/{tool.name}") if isinstance(tool, AgentTool) else None
        _outer_run_var.set(nested)
        if type(tool) in (BaseTool, PagingTool):  # the first is what ADK calls a tool the agent does not have
            pages = not isinstance(plan, Finding) and plan.contract is self.guard.pager
            return result_for_adk(await hosted.acall(call, None if pages else tool_missing), tool_context)
        if isinstance(plan, Finding):
            self._require_contracts(hosted, {tool.name: tool})
            return await pass_unguarded_tool(tool, tool_args, hosted, call)
        if plan.contract.name != tool.name:  # only a history that somebody has changed says two things
            return result_for_adk(await hosted.acall(call, tool_missing), tool_context)
        expected = tool_args
        if _is_watched(tool, tool_context):
            # Callbacks of the agent and ADK's own confirmation see the arguments that the tool will get.
            verdict = hosted.run.check(call)
            if verdict.arguments is None or not (verdict.ok or verdict.decision == "ask"):
                return result_for_adk(await hosted.acall(call, verdict_changed), tool_context)
            tool_args.clear()
            tool_args.update(copy.deepcopy(verdict.arguments))
            expected = verdict.arguments
        pending_call_var.set(PendingCall(tool_context, hosted, call, expected))
        wrap_run_async(tool)
        return None

    # -- parts ---------------------------------------------------------------------------------------

    def _run_of(self, context: Any) -> AdapterRun:
        session = context.session
        outer = _outer_run_var.get()
        if outer is not None and outer[0] != session.id:
            ident = outer[1]
        else:
            ident = "/".join(map(_escape_part, (session.app_name, session.user_id, session.id)))
        taken = (call.id for event in session.events for call in event.get_function_calls() if call.id)
        return self._runs.run_for(
            ident, part=context.branch or "", taken=taken, principal=self._principal(session.user_id)
        )

    def _require_contracts(self, hosted: AdapterRun, tools: Mapping[str, Any]) -> None:
        snapshot = hosted.run.snapshot
        known: tuple[Any, set[str]] = hosted.notes.get("known", (None, set()))
        if known[0] is not snapshot:
            known = hosted.notes["known"] = (snapshot, set())
        for name in tools.keys() - known[1]:
            strange = isinstance(snapshot.find_plan(name), Finding)
            if strange and name not in self._unguarded and not _tool_module(tools[name]).startswith(_ADK_TOOL_MODULES):
                raise UsageError(
                    f"the tool {name!r} has no contract: hand it to contracts(...), or name it in "
                    f"GuardPlugin(unguarded=...) to let ADK run it as it is"
                )
            known[1].add(name)


def contracts(
    tools: Iterable[Callable[..., Any] | BaseTool],
    *,
    reads: Collection[str] = (),
    destructive: Collection[str] = (),
    fields: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Contract]:
    """Build the contracts of an agent's tools. What is not declared is a write, and its output is unchecked.

    Tools by which ADK steers itself (such as agents as tools) get one only if they are named here.

    Args:
        tools: what stands in `LlmAgent(tools=...)`; of a toolset, what its `get_tools_with_prefix()` returns.
        reads: names of those that change nothing.
        destructive: names of those whose effect cannot be undone.
        fields: further fields of the contracts, by tool name, such as `{"refund": {"identity": ("order",)}}`.

    Raises:
        UsageError: something is no tool, or a tool is named that does not exist.
        ContractError: a field contradicts another or its schema.
    """
    named = {*reads, *destructive, *(fields or {})}
    known = [
        tool
        for tool in map(_as_tool, tools)
        if tool.name in named or not _tool_module(tool).startswith(_ADK_TOOL_MODULES)
    ]
    described = [ToolDescription(tool.name, tool.description or "", _declared_schema(tool)) for tool in known]
    return hosted_contracts(described, reads=reads, destructive=destructive, fields=fields)


def calls(reply: Any, run: Run | None = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the tool calls of a reply, in order.

    Args:
        reply: an `LlmResponse`, or an event.
        run: the run they are for.
    """
    stop = reply.finish_reason
    reason = None if stop is None else str(getattr(stop, "value", stop))
    said = [decode_call(one.id, one.name or "", one.args) for one in _function_calls(reply)]
    return [ToolCall(one.id, one.name, one.arguments, one.stop_reason or reason) for one in said]


def message(outcome: Outcome) -> Any:
    """Return the part of a content that answers a call."""
    told = types.FunctionResponse(id=outcome.call_id, name=outcome.tool, response=function_response(outcome))
    return types.Part(function_response=told)


def _function_calls(reply: Any) -> Iterator[Any]:
    """The calls of a reply as ADK holds them."""
    for part in (reply.content and reply.content.parts) or ():
        if part.function_call is not None:
            yield part.function_call


def _has_content(reply: Any) -> bool:
    return any(part.text is None or part.text.strip() for part in (reply.content and reply.content.parts) or ())


def _is_redundant_reply(reply: Any, said: str | None) -> bool:
    """True if a reply without calls holds nothing after what was said to the same request: so ADK may end a stream."""
    no_event = not (reply.content and reply.content.parts)  # then it does not end the loop, which an empty text would
    return not _has_content(reply) and (said == "text" or (said == "call" and no_event))


def _call_cache(hosted: AdapterRun) -> BoundedCache[str, tuple[ToolCall, dict[str, Any]]]:
    """What the model wrote and the arguments ADK was shown of it, by call id, until the tool's turn."""
    return cast(
        "BoundedCache[str, tuple[ToolCall, dict[str, Any]]]",
        hosted.notes.setdefault("calls", BoundedCache(_KEPT_CALLS)),
    )


def _rewrite_call(one: Any, ident: str, name: str, arguments: dict[str, Any]) -> None:
    """Write a call as ADK may hold it. What stands there already stays: pydantic looks twice at what is set."""
    if one.id != ident:
        one.id = ident
    if one.name != name:
        one.name = name
    if one.args is not arguments:
        one.args = arguments


def _final_reply(hosted: AdapterRun, context: Any, reply: Any, *, called: bool) -> Any:
    """Return the reply that ends the run instead of the model's, or None if that one may."""
    parts = (reply.content and reply.content.parts) or []
    text = "".join(part.text for part in parts if part.text and not part.thought)
    if not text.strip() and not called and not hosted.is_final:
        more = any(part.text is None for part in parts)  # a picture, or code that ADK will run
        if more or (reply.finish_reason is None and reply.error_code is None):
            return None
    word = hosted.final_text(None if called else text)
    if word == text:
        return None
    if text.strip() and not called and getattr(context.get_invocation_context().agent, "output_schema", None):
        return None  # a note would break the structure the application waits for
    thoughts = [part for part in parts if part.thought]
    return reply.model_copy(update={"content": types.Content(role="model", parts=[*thoughts, types.Part(text=word)])})


def _is_watched(tool: Any, context: Any) -> bool:
    """True if anybody looks at a call between the plugin and the tool."""
    within = context._invocation_context  # noqa: SLF001 - the public way to it copies all of it
    others = getattr(within.agent, "before_tool_callback", None) or len(within.plugin_manager.plugins) > 1
    return bool(others or getattr(tool, "_require_confirmation", True))


def _as_tool(one: Any) -> Any:
    if isinstance(one, BaseTool):
        return one
    if callable(one):
        return FunctionTool(one)
    raise UsageError(
        f"{one!r} is no tool: hand over functions and tools; of a toolset, `await toolset.get_tools_with_prefix()`"
    )


def _tool_module(tool: Any) -> str:
    """The module a tool's work is defined in."""
    if isinstance(tool, AgentTool):
        return str(AgentTool.__module__)
    function = getattr(tool, "func", None)
    return str(getattr(tool if function is None else function, "__module__", ""))


def _declared_schema(tool: Any) -> Mapping[str, Any]:
    """What the model is told of a tool's arguments, as JSON Schema."""
    declared = tool._get_declaration()  # noqa: SLF001 - what ADK itself offers the model
    if declared is not None and declared.parameters_json_schema is not None:
        return cast("Mapping[str, Any]", declared.parameters_json_schema)
    if declared is not None and declared.parameters is not None:
        return cast("Mapping[str, Any]", declared.parameters.json_schema.model_dump(mode="json", exclude_none=True))
    return {"type": "object", "properties": {}}


def _escape_part(name: str) -> str:
    """Return a name as a part of a run's id: with a slash in it, it must not read as another user's or session's."""
    return name.replace("%", "%25").replace("/", "%2F")


def _text_content(text: str) -> Any:
    return types.Content(role="model", parts=[types.Part(text=text)])
