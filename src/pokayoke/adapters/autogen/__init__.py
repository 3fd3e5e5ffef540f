"""AutoGen: an `AssistantAgent` behind the guard, by giving it a guarded model client and a guarded workbench.

guard = Guard(contracts(tools, reads=("find_order",)))
agent = AssistantAgent("shop", **guarded(guard, client, tools), max_tool_iterations=10)
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pokayoke.adapters._host.contracts import ToolDescription, build_contracts
from pokayoke.core.call import Finding, Outcome, ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.errors import MissingExtraError, UsageError

try:
    from autogen_core.model_context import UnboundedChatCompletionContext
    from autogen_core.models import FunctionExecutionResult
    from autogen_core.tools import BaseTool, FunctionTool, Workbench
except ImportError as error:
    raise MissingExtraError("autogen-agentchat", "autogen") from error

from pokayoke.adapters.autogen._model import GuardedClient
from pokayoke.adapters.autogen._run import AgentRun
from pokayoke.adapters.autogen._tools import GuardedWorkbench

if TYPE_CHECKING:
    from pokayoke.runtime.guard.guard import Guard
    from pokayoke.runtime.run.run import Run

__all__ = ["GuardedClient", "GuardedWorkbench", "calls", "contracts", "guarded", "message"]


def contracts(
    tools: Iterable[Any],
    *,
    reads: Collection[str] = (),
    destructive: Collection[str] = (),
    fields: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Contract]:
    """Build the contracts of an agent's tools. What is not declared is a write, and its output is unchecked.

    Args:
        tools: functions and tools as for `AssistantAgent`, or the schemas that a workbench lists.
        reads: names of those that change nothing.
        destructive: names of those whose effect cannot be undone.
        fields: further fields of the contracts, by tool name, such as `{"refund": {"identity": ("order",)}}`.

    Raises:
        UsageError: a tool is named that does not exist.
        ContractError: a field contradicts another or its schema.
    """
    schemas = [one if isinstance(one, Mapping) else _as_tool(one).schema for one in tools]
    described = (
        ToolDescription(
            schema["name"], schema.get("description", ""), dict(schema.get("parameters") or {"type": "object"})
        )
        for schema in schemas
    )
    return build_contracts(described, reads=reads, destructive=destructive, fields=fields)


def guarded(
    guard: Guard, client: Any, tools: Any, *, run_id: str | None = None, model_context: Any = None, **who: Any
) -> dict[str, Any]:
    """Return what an `AssistantAgent` has to be given: model client and context, workbench, and how results are told.

    They belong to one agent, and to the conversation it has: call this once for each agent. An agent that is reset
    begins another one, and so does one that loads a state.

    Args:
        guard: a guard with the contracts of the tools.
        client: the model client.
        tools: functions and tools as for `AssistantAgent`, a workbench, or several workbenches.
        run_id: id of the conversation, under which writes are remembered. Without one, neither a restart nor an agent
            that was reset, or has loaded a state, knows anything.
        model_context: where the agent keeps its messages; None keeps all of them, as AutoGen does.
        who: session, tenant and principal, as for `Guard.run`.

    Raises:
        UsageError: a tool has no contract.
    """
    conversation = AgentRun(guard, run_id, who)
    given = [tools] if isinstance(tools, Workbench) else list(tools)
    benches = [one for one in given if isinstance(one, Workbench)]
    own = [_as_tool(one) for one in given if not isinstance(one, Workbench)]
    for tool in own:
        plan = guard.snapshot.find_plan(tool.name)
        if isinstance(plan, Finding) or plan.contract.name != tool.name:
            raise UsageError(f"{tool.name} has no contract: give its tool to contracts(), and those to the guard")
    return {
        "model_client": GuardedClient(client, conversation),
        "model_context": _observe_context(model_context, conversation),
        "workbench": GuardedWorkbench(own, benches, conversation),
        "tool_call_summary_formatter": conversation.format_summary,
    }


def calls(reply: Any, run: Run | None = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the calls of a `CreateResult`, in order, argument texts as they came."""
    if isinstance(reply.content, str):
        return []
    return [ToolCall(call.id, call.name, call.arguments, reply.finish_reason) for call in reply.content]


def message(outcome: Outcome) -> Any:
    """Return the `FunctionExecutionResult` that answers a call."""
    return FunctionExecutionResult(
        content=outcome.text, name=outcome.tool, call_id=outcome.call_id, is_error=not outcome.ok
    )


def _observe_context(context: Any, conversation: AgentRun) -> Any:
    """The context, which AutoGen clears or loads to begin another conversation; it tells nobody else of that."""
    context = UnboundedChatCompletionContext() if context is None else context
    # Another agent may have had this context before; its conversation is over.
    clear, load_state = (getattr(one, "__wrapped__", one) for one in (context.clear, context.load_state))

    @functools.wraps(clear)
    async def clear_and_renew() -> None:
        await clear()
        conversation.end_run()

    @functools.wraps(load_state)
    async def load_and_renew(state: Mapping[str, Any]) -> None:
        await load_state(state)
        conversation.end_run()

    context.clear, context.load_state = clear_and_renew, load_and_renew
    return context


def _as_tool(one: Any) -> Any:
    """The tool that `AssistantAgent` would make of what it is given."""
    return one if isinstance(one, BaseTool) else FunctionTool(one, description=one.__doc__ or "")
