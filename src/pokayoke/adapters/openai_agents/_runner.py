"""Starts agents of the OpenAI Agents SDK behind a guard.

In: an agent, and what `Runner.run` takes. Out: what `Runner.run` returns. Never: a tool, a handoff or a model of that
agent, or of one that it hands over to, that runs past the guard.
"""

from __future__ import annotations

import copy
import uuid
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from agents import FunctionTool, Handoff, Model, RunConfig, Runner, RunState

from pokayoke.adapters._host.contracts import require_contract
from pokayoke.adapters._host.frames import Frame, require_frame
from pokayoke.adapters._host.model import texts_since_reply
from pokayoke.adapters._host.run import AdapterRun, AdapterRuns
from pokayoke.adapters.openai_agents._approvals import answer_interruptions, asking_run, record_denials
from pokayoke.adapters.openai_agents._model import GuardedModel, GuardedProvider
from pokayoke.adapters.openai_agents._run import AgentRun, agent_run_var, current_agent_run
from pokayoke.adapters.openai_agents._tools import ObservedMCPServer, final_output_behavior, guard_tool
from pokayoke.core.messages.messages import text_of
from pokayoke.core.output.content_blocks import may_be_media
from pokayoke.errors import UsageError
from pokayoke.runtime.guard.guard import Guard

_RUN_ATTRIBUTE = "_pokayoke_slot"
_KEPT_BY_SERVER = ("conversation_id", "previous_response_id", "auto_previous_response_id")
"""Options of `Runner.run` by which the server keeps the conversation."""


class GuardedRunner:
    """Starts agents as `agents.Runner` does, with every model, tool and handoff of theirs behind a guard.

    Args:
        guard: a guard with the contracts of all their tools.
        frame: where `<tool_output …>` is around the results of calls that end ok: in the items and hooks of the SDK
            as well (`history`), or only in the requests (`wire`), so that items and hooks hold what the tools returned.

    Raises:
        UsageError: `frame` is another word.
    """

    def __init__(self, guard: Guard, *, frame: Frame = "history") -> None:
        """Begin with no run."""
        self.guard, self._on_wire = guard, require_frame(frame)
        self._runs = AdapterRuns(guard)
        self._classes: dict[type, type] = {}

    # -- running -----------------------------------------------------------------------------------

    async def run(self, agent: Any, input: Any, *, run_id: str | None = None, **options: Any) -> Any:  # noqa: A002 - the framework's name
        """Run an agent, as `Runner.run` does.

        Args:
            agent: the agent, guarded or not.
            input: the user's text, input items, or the state of an interrupted run.
            run_id: id under which writes are remembered; None takes that of the session or of the conversation
                at the server, or the `group_id` of the run's configuration. Without any, a restart knows nothing,
                and a stored state goes on only while the guard's books hold its question.
            options: as for `Runner.run`, and `tenant` and `principal` as for `Guard.run`. A state of this process
                goes on with those it began with, where none are given.

        Raises:
            UsageError: a tool has no contract, the state belongs to an agent that is not guarded, nothing says
                to which run, or the server keeps the conversation and the frame is on the wire only.
                What the SDK raises goes through.
        """
        with self._begin_run(agent, input, run_id, options) as (agent_run, guarded):
            result = await Runner.run(guarded, input, **options)
        return self._end_run(agent_run, result)

    def run_sync(self, agent: Any, input: Any, *, run_id: str | None = None, **options: Any) -> Any:  # noqa: A002 - as above
        """`run` for synchronous code."""
        with self._begin_run(agent, input, run_id, options) as (agent_run, guarded):
            result = Runner.run_sync(guarded, input, **options)
        return self._end_run(agent_run, result)

    def run_streamed(self, agent: Any, input: Any, *, run_id: str | None = None, **options: Any) -> Any:  # noqa: A002 - as above
        """`run` with events, as `Runner.run_streamed` does. No tool starts before its reply is whole."""
        with self._begin_run(agent, input, run_id, options) as (agent_run, guarded):
            result = Runner.run_streamed(guarded, input, **options)
        if (task := result.run_loop_task) is not None:
            task.add_done_callback(lambda _: self._end_run(agent_run, result))
        return result

    def decide(self, state: Any, *, run_id: str | None = None, **who: Any) -> bool:
        """Put the answers that `guard.approvals` holds by now into the state of an interrupted run.

        Args:
            state: from `result.to_state()` or `RunState.from_json`.
            run_id: as in `run`; not needed for a state of this process.
            who: `tenant` and `principal` as in `run`; neither is needed for a state of this process.

        Returns:
            True if no question of the guard waits any more, so that the run can go on.
        """
        return answer_interruptions(self._run_for(run_id, who, state).adapter_run, state)

    # -- agents ------------------------------------------------------------------------------------

    def guarded(self, agent: Any) -> Any:
        """Return an agent like this one, guarded; for `as_tool`, and to read the state of an interrupted run.

        Raises:
            UsageError: a tool has no contract.
        """
        return self._guard_agent(agent, {})

    def _guard_agent(self, agent: Any, done: dict[int, Any]) -> Any:
        """Return a clone of an agent and of all that it hands over to; `done` holds them by `id()` of the original."""
        if id(agent) in done:
            return done[id(agent)]
        clone = done[id(agent)] = copy.copy(agent)
        if self._is_guarded(agent):
            clone.handoffs = [self._guard_handoff(one, done) for one in agent.handoffs]
            return clone
        clone.__class__ = self._guarded_class(type(agent))
        clone.tools = [self.guarded_tool(tool) for tool in agent.tools]
        clone.handoffs = [self._guard_handoff(one, done) for one in agent.handoffs]
        clone.mcp_servers = [ObservedMCPServer(server) for server in agent.mcp_servers]
        clone.tool_use_behavior = final_output_behavior(agent.tool_use_behavior)
        if isinstance(agent.model, Model):
            clone.model = GuardedModel(agent.model)
        return clone

    def _is_guarded(self, agent: Any) -> bool:
        return getattr(type(agent), "guarded_by", None) is self

    def _guarded_class(self, kind: type) -> type:
        """Return the agent's class, with the tools of its MCP servers guarded when they are listed."""
        made = self._classes.get(kind)
        if made is None:
            runner = self

            async def get_mcp_tools(agent: Any, run_context: Any) -> list[Any]:
                listed = await kind.get_mcp_tools(agent, run_context)  # type: ignore[attr-defined]  # an agent's class
                return [runner.guarded_tool(tool) for tool in listed]

            body = {"get_mcp_tools": get_mcp_tools, "guarded_by": self, "__module__": kind.__module__}
            made = self._classes[kind] = type(kind.__name__, (kind,), body)
        return made

    def guarded_tool(self, tool: Any) -> Any:
        """Return a tool that goes through the guard; one that is not run here stays as it is.

        Raises:
            UsageError: it has no contract, or starts an agent whose own tools would run past the guard.
        """
        if not isinstance(tool, FunctionTool):
            return tool
        name, inner = tool.qualified_name, tool._agent_instance  # noqa: SLF001 - public nowhere
        plan = require_contract(self.guard, name)
        if inner is not None and getattr(type(inner), "guarded_by", None) is None and _can_act(inner):
            raise UsageError(f"the agent behind {name} is not guarded: make it by runner.guarded(agent).as_tool(...)")
        output = plan.contract.output
        asks = plan.approval_rule.may_ask or (plan.contract.effect != "read" and plan.contract.repeat_rule == "once")
        return guard_tool(tool, asks=asks, typed=output is not None and not may_be_media(output.raw))

    def _guard_handoff(self, one: Any, done: dict[int, Any]) -> Any:
        if not isinstance(one, Handoff):
            return self._guard_agent(one, done)
        clone, original = copy.copy(one), one.on_invoke_handoff
        target = one._agent_ref() if one._agent_ref is not None else None  # noqa: SLF001 - a state is read by their names
        known = self._guard_agent(target, done) if target is not None else None

        async def invoke_handoff(context: Any, text: str) -> Any:
            agent = await original(context, text)
            return known if agent is target and known is not None else self._agent_for_run(agent, current_agent_run())

        clone.on_invoke_handoff = invoke_handoff
        if known is not None:
            clone._agent_ref = weakref.ref(known)  # noqa: SLF001 - as above
        return clone

    # -- runs --------------------------------------------------------------------------------------

    @contextmanager
    def _begin_run(
        self, agent: Any, given: Any, run_id: str | None, options: dict[str, Any]
    ) -> Generator[tuple[AgentRun, Any]]:
        """Change the options to guarded ones, and set the run that everything inside belongs to."""
        if isinstance(given, RunState) and not self._is_guarded(given._current_agent or agent):  # noqa: SLF001 - public nowhere
            raise UsageError("the tools of this state are not guarded: RunState.from_json(runner.guarded(agent), ...)")
        if self._on_wire and any(map(options.get, _KEPT_BY_SERVER)):
            raise UsageError(
                'frame="wire" frames the results of the history in each request, and a server that keeps the '
                f'conversation is sent no history: leave out {", ".join(_KEPT_BY_SERVER)}, or take frame="history"'
            )
        options["run_config"] = config = _guard_config(options.get("run_config"))
        who: dict[str, Any] = {name: options.pop(name) for name in ("tenant", "principal") if name in options}
        if session := getattr(options.get("session"), "session_id", None):
            who["session"] = session
        ident = run_id or session or options.get("conversation_id") or config.group_id
        agent_run = self._run_for(ident, who, given)
        guarded = self._agent_for_run(agent, agent_run)
        if isinstance(given, RunState):
            _recall_reply(agent_run.adapter_run, given)
            record_denials(agent_run.adapter_run, given)
        token = agent_run_var.set(agent_run)
        try:
            yield agent_run, guarded
        except BaseException:
            self._runs.close_run(agent_run.ident)
            raise
        finally:
            agent_run_var.reset(token)

    def _agent_for_run(self, agent: Any, agent_run: AgentRun) -> Any:
        """Return the agent, guarded, for one run; its clones know the run, because a state holds nothing else of it."""
        clones: dict[int, Any] = {}
        guarded = self._guard_agent(agent, clones)
        for clone in clones.values():
            clone.__dict__[_RUN_ATTRIBUTE] = agent_run
        return guarded

    def _run_of_state(self, state: Any) -> AgentRun | None:
        """Return the run of a state, if it began in this process."""
        agent = state._current_agent if isinstance(state, RunState) else None  # noqa: SLF001 - public nowhere
        return getattr(agent, _RUN_ATTRIBUTE, None)

    def _run_for(self, ident: str | None, who: dict[str, Any], given: Any) -> AgentRun:
        """Return the run of a state of this process, for the caller of now if it is named; else another run."""
        known = self._run_of_state(given)
        same: dict[str, Any] = {"user_texts": _user_texts(given), "on_wire": self._on_wire}
        if known is not None and ident in (None, known.ident):
            return AgentRun(self._runs, known.ident, durable=known.durable, who={**known.who, **who}, **same)
        if ident is None and isinstance(given, RunState) and not (ident := asking_run(self.guard, given)):
            raise UsageError(
                "this state does not say which run it belongs to, so what ran before could run again: "
                "give run_id= when the run starts, and again with its state"
            )
        return AgentRun(self._runs, ident or uuid.uuid4().hex, durable=ident is not None, who=who, **same)

    def _end_run(self, agent_run: AgentRun, result: Any) -> Any:
        if not result.interruptions:
            self._runs.close_run(agent_run.ident)
        return result


def _recall_reply(adapter_run: AdapterRun, state: Any) -> None:
    """Say what the request carried whose calls wait in a state; a server may have known more than the state."""
    given, responses = state._original_input, state._model_responses  # noqa: SLF001 - public nowhere
    if not responses or state._conversation_id or state._previous_response_id:  # noqa: SLF001 - as above
        return
    ids = {one.call_id for one in responses[-1].output if one.type == "function_call"}
    items = [one.to_input_item() for one in state._generated_items if one.type != "tool_approval_item"]  # noqa: SLF001 - as above
    before = [one for one in items if one.get("call_id") not in ids]
    adapter_run.recall_reply(
        ids, [{"role": "user", "content": given}, *before] if isinstance(given, str) else [*given, *before]
    )


def _can_act(agent: Any) -> bool:
    """Return whether an agent can do anything but speak."""
    return bool(agent.tools or agent.handoffs or agent.mcp_servers)


def _guard_config(given: Any) -> Any:
    """Return the configuration of a run with guarded models."""
    config = RunConfig(**given) if isinstance(given, dict) else given or RunConfig()
    model = GuardedModel(config.model) if isinstance(config.model, Model) else config.model
    return replace(config, model=model, model_provider=GuardedProvider(config.model_provider))


def _user_texts(given: Any) -> list[str]:
    """Return the texts of the user that a run begins with."""
    if isinstance(given, str):
        return [given]
    roles = {"user": "user", "system": None, "developer": None}
    items = given if isinstance(given, list) else []
    return texts_since_reply((roles.get(item.get("role"), "reply"), text_of(item)) for item in reversed(items))
