"""What an `AssistantAgent` of AutoGen has to be given to be guarded.

In: a guard, a model client and tools. Out: the agent's arguments. Never: a tool without a contract, or one
conversation's run used for another conversation.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.tools import Workbench

from pokayoke.adapters._host.contracts import require_contract
from pokayoke.adapters._host.frames import Frame, require_frame
from pokayoke.adapters.autogen._contracts import as_tool
from pokayoke.adapters.autogen._model import GuardedClient
from pokayoke.adapters.autogen._run import AgentRun
from pokayoke.adapters.autogen._tools import GuardedWorkbench
from pokayoke.runtime.guard.guard import Guard


def guarded(
    guard: Guard,
    client: Any,
    tools: Any,
    *,
    run_id: str | None = None,
    model_context: Any = None,
    frame: Frame = "history",
    **who: Any,
) -> dict[str, Any]:
    """Return the arguments of a guarded `AssistantAgent`: client, context, workbench and summary formatter.

    They belong to one agent, and to its conversation: call this once for each agent. An agent that is reset, or that
    loads a state, begins another conversation.

    Args:
        guard: a guard with the contracts of the tools.
        client: the model client.
        tools: functions and tools as for `AssistantAgent`, a workbench, or several workbenches.
        run_id: id of the conversation, under which writes are remembered. Without one, neither a restart nor an agent
            that was reset, or has loaded a state, finds them.
        model_context: where the agent keeps its messages; None keeps all of them, as AutoGen does.
        frame: where `<tool_output …>` is around the results of calls that end ok: in the context and the events of the
            agent as well (`history`), or only in the requests (`wire`), so that they hold what the tools returned.
        who: session, tenant and principal, as for `Guard.run`.

    Raises:
        UsageError: a tool has no contract, or `frame` is another word.
    """
    agent_run = AgentRun(guard, run_id, who, on_wire=require_frame(frame))
    given = [tools] if isinstance(tools, Workbench) else list(tools)
    benches = [one for one in given if isinstance(one, Workbench)]
    own = [as_tool(one) for one in given if not isinstance(one, Workbench)]
    for tool in own:
        require_contract(guard, tool.name)
    return {
        "model_client": GuardedClient(client, agent_run),
        "model_context": _observe_context(model_context, agent_run),
        "workbench": GuardedWorkbench(own, benches, agent_run),
        "tool_call_summary_formatter": agent_run.format_summary,
    }


def _observe_context(context: Any, agent_run: AgentRun) -> Any:
    """Return the context so that the run ends with its conversation.

    AutoGen clears or loads the context to begin another conversation, and calls nothing else then.
    """
    context = UnboundedChatCompletionContext() if context is None else context
    # Another agent may have had this context before; its conversation is over.
    clear, load_state = (getattr(one, "__wrapped__", one) for one in (context.clear, context.load_state))

    @functools.wraps(clear)
    async def clear_and_renew() -> None:
        await clear()
        agent_run.end_run()

    @functools.wraps(load_state)
    async def load_and_renew(state: Mapping[str, Any]) -> None:
        await load_state(state)
        agent_run.end_run()

    context.clear, context.load_state = clear_and_renew, load_and_renew
    return context
