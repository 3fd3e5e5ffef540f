"""The plugin by which Google ADK asks the guard, and the run behind each of its sessions.

In: ADK's callbacks. Out: their results, decided by the guard. Never: two sessions whose names lead to one run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from typing import Any

from google.adk.agents.run_config import ToolThreadPoolConfig
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool

from pokayoke.adapters._host.calls import decode_call, is_encoded_call
from pokayoke.adapters._host.control_flow import invoke_without_tool
from pokayoke.adapters._host.frames import Frame, require_frame
from pokayoke.adapters._host.run import AdapterRun, AdapterRuns, PendingCall
from pokayoke.adapters.google_adk._contracts import is_framework_tool
from pokayoke.adapters.google_adk._model import PagingTool, model_side, original_calls_var, require_client
from pokayoke.adapters.google_adk._tools import (
    ON_WIRE,
    is_node,
    pass_unguarded_tool,
    pending_call_var,
    result_for_adk,
    verdict_changed,
    wrap_run_async,
)
from pokayoke.errors import UsageError
from pokayoke.runtime.guard.guard import Guard

_outer_run_var: ContextVar[tuple[str, str] | None] = ContextVar("pokayoke_adk_outer", default=None)
"""Session and run that call an agent as a tool: ADK gives that agent a new session, which no restart would find."""


class GuardPlugin(BasePlugin):
    """Guards the tools of every agent of an app or a runner. One plugin serves any number of sessions at once.

    Args:
        guard: its contracts are those of `contracts`.
        unguarded: names of tools that ADK may run without a contract, beside those by which it steers itself.
        threads: most synchronous tools that run at once, each in a thread, so that one that hangs can be given up.
            0 leaves them in the event loop, unless the `RunConfig` says otherwise.
        principal: returns for a user's id the principal of `Guard.run`: an id, or `{"id": ..., "roles": [...]}`.
        name: the plugin's name.
        frame: where `<tool_output …>` is around the results of calls that end ok: in the session and the callbacks as
            well (`history`), or only in the requests (`wire`), so that they hold what the tools returned.

    Raises:
        UsageError: `frame` is another word.

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
        frame: Frame = "history",
    ) -> None:
        """Begin without runs."""
        super().__init__(name=name)
        self._on_wire = require_frame(frame)
        self.guard = guard
        self._runs = AdapterRuns(guard)
        self._unguarded, self._threads, self._principal = frozenset(unguarded), threads, principal

    # -- around a run --------------------------------------------------------------------------------

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: Any) -> None:
        """Begin a turn. An answer to a long-running tool or to a question begins none."""
        texts = [part.text for part in user_message.parts or () if part.text]
        if texts:
            self._run_of(invocation_context).run.user("\n".join(texts))

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        """Let synchronous tools run in threads, so that they do not block the event loop."""
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
        """Shape the request as the run's state demands. A run that was stopped asks no model."""
        require_client(callback_context)
        adapter_run = self._run_of(callback_context)
        self._require_contracts(adapter_run, llm_request.tools_dict)
        return model_side(adapter_run).shape_request(adapter_run, callback_context, llm_request)

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> Any:
        """Take the calls of a reply before ADK acts on them; give an empty end an honest text."""
        if llm_response.partial:
            return None
        adapter_run = self._run_of(callback_context)
        return model_side(adapter_run).take_response(adapter_run, callback_context, llm_response)

    # -- around a tool -------------------------------------------------------------------------------

    async def before_tool_callback(self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any) -> Any:
        """Answer a call that must not run; announce any other, so that the guard waits for it at its tool."""
        adapter_run = self._run_of(tool_context)
        run = adapter_run.run
        if not is_node(tool_context):
            run.can_ask = True
        ident = tool_context.function_call_id or ""
        written = model_side(adapter_run).written.pop(ident)
        if written is None:
            call = decode_call(ident, tool.name, tool_args)
        else:  # a plugin before this one may have changed the arguments
            is_encoded = is_encoded_call(written.arguments)
            call = written.call if is_encoded else written.with_arguments(dict(tool_args))
        contract = run.snapshot.find_contract(call.name)
        nested = (tool_context.session.id, f"{run.id}/{tool.name}") if isinstance(tool, AgentTool) else None
        _outer_run_var.set(nested)
        is_missing = type(tool) in (BaseTool, PagingTool)  # ADK makes a `BaseTool` for a tool the agent does not have
        if is_missing or (contract is not None and contract.name != tool.name):
            outcome = await adapter_run.acall(call, invoke_without_tool(run, call.name))
            return result_for_adk(outcome, tool_context)
        if contract is None:
            self._require_contracts(adapter_run, {tool.name: tool})
            return await pass_unguarded_tool(tool, tool_args, adapter_run, call)
        expected = tool_args
        if _is_watched(tool, tool_context):
            # Callbacks of the agent and ADK's own confirmation see the arguments that the tool will get.
            verdict = run.check(call)
            if verdict.arguments is None or not (verdict.ok or verdict.decision == "ask"):
                return result_for_adk(await adapter_run.acall(call, verdict_changed), tool_context)
            tool_args.clear()
            tool_args.update(copy.deepcopy(verdict.arguments))
            expected = verdict.arguments
        pending_call_var.set((tool_context, PendingCall(adapter_run, call, expected)))
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
        adapter_run = self._runs.run_for(
            ident, part=context.branch or "", taken=taken, principal=self._principal(session.user_id)
        )
        adapter_run.notes[ON_WIRE] = self._on_wire
        return adapter_run

    def _require_contracts(self, adapter_run: AdapterRun, tools: Mapping[str, Any]) -> None:
        snapshot = adapter_run.run.snapshot
        known: tuple[Any, set[str]] = adapter_run.notes.get("known", (None, set()))
        if known[0] is not snapshot:
            known = adapter_run.notes["known"] = (snapshot, set())
        for name in tools.keys() - known[1]:
            is_unknown = snapshot.find_contract(name) is None
            if is_unknown and name not in self._unguarded and not is_framework_tool(tools[name]):
                raise UsageError(
                    f"the tool {name!r} has no contract: hand it to contracts(...), or name it in "
                    f"GuardPlugin(unguarded=...) to let ADK run it as it is"
                )
            known[1].add(name)


def _is_watched(tool: Any, context: Any) -> bool:
    """Return whether other code sees a call between the plugin and the tool."""
    within = context._invocation_context  # noqa: SLF001 - the public way to it copies all of it
    others = getattr(within.agent, "before_tool_callback", None) or len(within.plugin_manager.plugins) > 1
    return bool(others or getattr(tool, "_require_confirmation", True))


def _escape_part(name: str) -> str:
    """Return a name as a part of a run's id: with a slash in it, it must not read as another user's or session's."""
    return name.replace("%", "%25").replace("/", "%2F")
