"""OpenAI Agents SDK: any agent behind the guard, by starting it with `GuardedRunner` instead of `Runner`.

guard = Guard(contracts(agent.tools, reads=("find_order",)))
runner = GuardedRunner(guard)
result = await runner.run(agent, "Refund my order.")
"""

from __future__ import annotations

import copy
import inspect
import uuid
import weakref
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pokayoke.adapters._host.contracts import ToolDescription, build_contracts
from pokayoke.adapters._host.run import AdapterRuns
from pokayoke.core.call import Finding, Outcome, ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.core.messages.answers import result_message
from pokayoke.errors import MissingExtraError, UsageError

try:
    from agents import FunctionTool, Handoff, Model, RunConfig, Runner, RunState
except ImportError as error:
    raise MissingExtraError("openai-agents", "openai-agents") from error

from pokayoke.adapters.openai_agents._model import GuardedModel, GuardedProvider
from pokayoke.adapters.openai_agents._run import AgentRun, agent_run_var, current_agent_run
from pokayoke.adapters.openai_agents._tools import (
    ObservedMCPServer,
    PendingApprovals,
    final_output_behavior,
    guard_tool,
)
from pokayoke.adapters.openai_agents._unknown_calls import without_strict_mode

if TYPE_CHECKING:
    from pokayoke.runtime.guard.guard import Guard
    from pokayoke.runtime.run.run import Run

_RUN_ATTRIBUTE = "_pokayoke_slot"

__all__ = ["GuardedModel", "GuardedProvider", "GuardedRunner", "calls", "contracts", "message"]


def contracts(
    tools: Iterable[Any],
    *,
    reads: Collection[str] = (),
    destructive: Collection[str] = (),
    fields: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Contract]:
    """Build the contracts of an agent's tools. What is not declared is a write, and its output is unchecked.

    Tools that the provider runs itself (web search and the like) have none. A tool's `timeout_seconds` becomes the
    contract's; a parameter with a default may be left out.

    Args:
        tools: the tools of one agent, or of all; a tool of a namespace is called `namespace.name`.
        reads: names of those that change nothing.
        destructive: names of those whose effect cannot be undone.
        fields: further fields of the contracts, by tool name, such as `{"refund": {"identity": ("order",)}}`.

    Raises:
        UsageError: a tool is named that does not exist, or two that differ have one name.
        ContractError: a field contradicts another or its schema.
    """
    known: dict[str, tuple[ToolDescription, float | None]] = {}
    for tool in tools:
        if isinstance(tool, FunctionTool):
            name = tool.qualified_name
            found = ToolDescription(name, tool.description, without_strict_mode(_schema_of(tool))), tool.timeout_seconds
            if known.setdefault(name, found) != found:
                raise UsageError(f"two tools are called {name}, and they differ: give one another name_override")
    more: dict[str, Mapping[str, Any]] = dict(fields or {})
    for name, (_, timeout) in known.items():
        if timeout is not None:
            more[name] = {"timeout": timeout, **more.get(name, {})}
    described = (one for one, _ in known.values())
    return build_contracts(described, reads=reads, destructive=destructive, fields=more)


def _schema_of(tool: Any) -> dict[str, Any]:
    """The schema of a tool's arguments, with the defaults of None that strict mode drops if its function is known."""
    schema: dict[str, Any] = tool.params_json_schema
    try:
        known = inspect.signature(tool.__wrapped__).parameters
    except (AttributeError, TypeError, ValueError):
        return schema
    shown: dict[str, Any] = schema.get("properties", {})
    dropped = [name for name in shown if name in known and known[name].default is None]
    return {**schema, "properties": {**shown, **{name: {**shown[name], "default": None} for name in dropped}}}


def calls(reply: Any, run: Run | None = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the function calls of a `ModelResponse`, in order, argument texts as they came."""
    return [ToolCall(item.call_id, item.name, item.arguments) for item in reply.output if item.type == "function_call"]


def message(outcome: Outcome) -> dict[str, Any]:
    """Return the input item that answers a call."""
    return result_message(outcome, "responses")


class GuardedRunner:
    """Starts agents as `agents.Runner` does, with every model, tool and handoff of theirs behind a guard.

    Args:
        guard: a guard with the contracts of all their tools.
    """

    def __init__(self, guard: Guard) -> None:
        """Begin with no run."""
        self.guard = guard
        self._runs = AdapterRuns(guard)
        self._classes: dict[type, type] = {}

    # -- running -----------------------------------------------------------------------------------

    async def run(self, agent: Any, input: Any, *, run_id: str | None = None, **options: Any) -> Any:  # noqa: A002 - the framework's name
        """Run an agent, as `Runner.run` does.

        Args:
            agent: the agent, guarded or not.
            input: the user's text, input items, or the state of an interrupted run.
            run_id: id under which writes are remembered; None takes that of the session or of the conversation
                at the server, or the `group_id` of the run's configuration. Without any, a restart knows nothing.
            options: as for `Runner.run`, and `tenant` and `principal` as for `Guard.run`. A state of this process
                goes on with those it began with, where none are given.

        Raises:
            UsageError: a tool has no contract, or the state belongs to an agent that is not guarded.
                What the SDK raises goes through.
        """
        with self._begin_run(agent, input, run_id, options) as (slot, guarded):
            result = await Runner.run(guarded, input, **options)
        return self._end_run(slot, result)

    def run_sync(self, agent: Any, input: Any, *, run_id: str | None = None, **options: Any) -> Any:  # noqa: A002 - as above
        """`run` for synchronous code."""
        with self._begin_run(agent, input, run_id, options) as (slot, guarded):
            result = Runner.run_sync(guarded, input, **options)
        return self._end_run(slot, result)

    def run_streamed(self, agent: Any, input: Any, *, run_id: str | None = None, **options: Any) -> Any:  # noqa: A002 - as above
        """`run` with events, as `Runner.run_streamed` does. No tool starts before its reply is whole."""
        with self._begin_run(agent, input, run_id, options) as (slot, guarded):
            result = Runner.run_streamed(guarded, input, **options)
        if (task := result.run_loop_task) is not None:
            task.add_done_callback(lambda _: self._end_run(slot, result))
        return result

    def decide(self, state: Any, *, run_id: str | None = None, **who: Any) -> bool:
        """Put into the state of an interrupted run what `guard.approvals` has been told meanwhile.

        Args:
            state: from `result.to_state()` or `RunState.from_json`.
            run_id: as in `run`; not needed for a state of this process.
            who: `tenant` and `principal` as in `run`; neither is needed for a state of this process.

        Returns:
            True if no question of the guard's waits any more, so that the run can go on.
        """
        slot = self._run_for(run_id, who, state)
        settled = True
        for item in state.get_interruptions():
            question = PendingApprovals.find_question(slot.adapter_run, PendingApprovals.interrupted_call(item))
            if question is None:
                continue  # the tool's own wish: whoever wrote it decides
            if question.status == "waiting":
                settled = False
            elif question.granted:
                state.approve(item)
            else:
                state.reject(item, rejection_message=f"A person has denied this call of {item.tool_name}.")
        return settled

    # -- agents ------------------------------------------------------------------------------------

    def guarded(self, agent: Any) -> Any:
        """Return an agent like this one, guarded; for `as_tool`, and to read the state of an interrupted run.

        Raises:
            UsageError: a tool has no contract.
        """
        return self._guard_agent(agent, {})

    def _guard_agent(self, agent: Any, done: dict[int, Any]) -> Any:
        """A clone of an agent and of all that it hands over to, for one run; `done` holds them by their originals."""
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
        """The agent's class, with the tools of its MCP servers guarded as they are listed."""
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
        plan = self.guard.snapshot.find_plan(name)
        if isinstance(plan, Finding) or plan.contract.name != name:
            raise UsageError(f"{name} has no contract: give its tool to contracts(), and those to the guard")
        if inner is not None and getattr(type(inner), "guarded_by", None) is None and _can_act(inner):
            raise UsageError(f"the agent behind {name} is not guarded: make it by runner.guarded(agent).as_tool(...)")
        return guard_tool(tool, asks=plan.asks, typed=plan.contract.output is not None)

    def _guard_handoff(self, one: Any, done: dict[int, Any]) -> Any:
        if not isinstance(one, Handoff):
            return self._guard_agent(one, done)
        clone, original = copy.copy(one), one.on_invoke_handoff
        target = one._agent_ref() if one._agent_ref is not None else None  # noqa: SLF001 - whose names a state is read by
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
        """Make the options what the SDK needs, and be found by everything that runs inside."""
        if isinstance(given, RunState) and not self._is_guarded(given._current_agent or agent):  # noqa: SLF001 - public nowhere
            raise UsageError("the tools of this state are not guarded: RunState.from_json(runner.guarded(agent), ...)")
        options["run_config"] = config = _guard_config(options.get("run_config"))
        who: dict[str, Any] = {name: options.pop(name) for name in ("tenant", "principal") if name in options}
        if session := getattr(options.get("session"), "session_id", None):
            who["session"] = session
        ident = run_id or session or options.get("conversation_id") or config.group_id
        slot = self._run_for(ident, who, given)
        guarded = self._agent_for_run(agent, slot)
        if isinstance(given, RunState):
            for item in given.get_interruptions():
                if _approval_status(given, item) is False:
                    PendingApprovals.record_denial(slot.adapter_run, PendingApprovals.interrupted_call(item))
        token = agent_run_var.set(slot)
        try:
            yield slot, guarded
        except BaseException:
            self._runs.close_run(slot.ident)
            raise
        finally:
            agent_run_var.reset(token)

    def _agent_for_run(self, agent: Any, slot: AgentRun) -> Any:
        """The agent, guarded, for one run: the state of an interrupted one holds its agents, and nothing else of it."""
        clones: dict[int, Any] = {}
        guarded = self._guard_agent(agent, clones)
        for clone in clones.values():
            clone.__dict__[_RUN_ATTRIBUTE] = slot
        return guarded

    def _run_of_state(self, state: Any) -> AgentRun | None:
        """The run of a state of this process."""
        agent = state._current_agent if isinstance(state, RunState) else None  # noqa: SLF001 - public nowhere
        return getattr(agent, _RUN_ATTRIBUTE, None)

    def _run_for(self, ident: str | None, who: dict[str, Any], given: Any) -> AgentRun:
        """Where a run is found: that of a state goes on, on behalf of whoever calls now if that is said."""
        known, said = self._run_of_state(given), _user_texts(given)
        if known is not None and ident in (None, known.ident):
            return AgentRun(self._runs, known.ident, durable=known.durable, who={**known.who, **who}, said=said)
        return AgentRun(self._runs, ident or uuid.uuid4().hex, durable=ident is not None, who=who, said=said)

    def _end_run(self, slot: AgentRun, result: Any) -> Any:
        if not result.interruptions:
            self._runs.close_run(slot.ident)
        return result


def _can_act(agent: Any) -> bool:
    """Whether an agent can do anything but speak."""
    return bool(agent.tools or agent.handoffs or agent.mcp_servers)


def _guard_config(given: Any) -> Any:
    """The configuration of a run, with guarded models, however they are named."""
    config = RunConfig(**given) if isinstance(given, dict) else given or RunConfig()
    model = GuardedModel(config.model) if isinstance(config.model, Model) else config.model
    return replace(config, model=model, model_provider=GuardedProvider(config.model_provider))


def _approval_status(state: Any, item: Any) -> bool | None:
    """How a person has answered an interruption in the state itself: yes, no, or not yet."""
    context = state._context  # noqa: SLF001 - public nowhere
    status: bool | None = context.get_approval_status(item.tool_name, item.call_id, current_invocation=item)
    return status


def _user_texts(given: Any) -> list[str]:
    """The texts of the user that a run begins with: those behind all that was answered before."""
    if isinstance(given, str):
        return [given]
    said: list[str] = []
    for item in reversed(given if isinstance(given, list) else []):
        if (role := item.get("role")) == "user":
            said.insert(0, _content_text(item.get("content")))
        elif role not in ("system", "developer"):
            break
    return said


def _content_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and part.get("text"))
