"""AutoGen: an `AssistantAgent` behind the guard, by giving it a guarded model client and a guarded workbench.

guard = Guard(contracts(tools, reads=("find_order",)))
agent = AssistantAgent("shop", **guarded(guard, client, tools), max_tool_iterations=10)
"""

from pokayoke.adapters._host.extras import require_extra

with require_extra("autogen-agentchat", "autogen"):
    from pokayoke.adapters.autogen._agent import guarded
    from pokayoke.adapters.autogen._contracts import contracts
    from pokayoke.adapters.autogen._model import GuardedClient, calls, message
    from pokayoke.adapters.autogen._tools import GuardedWorkbench

__all__ = ["GuardedClient", "GuardedWorkbench", "calls", "contracts", "guarded", "message"]
