"""Microsoft Agent Framework: two middlewares, one around each model request and one around each tool.

guard = pokayoke.Guard(contracts(tools, reads=["find_order"]))
agent = Agent(client, tools=tools, middleware=middleware(guard))
"""

from pokayoke.adapters._host.extras import require_extra

with require_extra("agent-framework-core", "agent-framework"):
    from pokayoke.adapters.agent_framework._contracts import contracts
    from pokayoke.adapters.agent_framework._middleware import middleware
    from pokayoke.adapters.agent_framework._model import calls
    from pokayoke.adapters.agent_framework._tools import message

__all__ = ["calls", "contracts", "message", "middleware"]
