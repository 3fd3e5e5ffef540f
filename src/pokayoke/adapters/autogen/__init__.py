"""AutoGen: an `AssistantAgent` behind the guard, by giving it a guarded model client and a guarded workbench.

guard = Guard(contracts(tools, reads=("find_order",)))
agent = AssistantAgent("shop", **guarded(guard, client, tools), max_tool_iterations=10)
"""

from pokayoke.errors import MissingExtraError

try:
    from pokayoke.adapters.autogen._agent import guarded
    from pokayoke.adapters.autogen._contracts import contracts
    from pokayoke.adapters.autogen._model import GuardedClient, calls, message
    from pokayoke.adapters.autogen._tools import GuardedWorkbench
except ImportError as error:
    raise MissingExtraError("autogen-agentchat", "autogen") from error

__all__ = ["GuardedClient", "GuardedWorkbench", "calls", "contracts", "guarded", "message"]
