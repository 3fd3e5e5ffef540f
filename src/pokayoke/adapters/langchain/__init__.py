"""LangChain and LangGraph.

guard = pokayoke.Guard(contracts(tools, reads=["find_order"]), store="sqlite:///ledger.db")
agent = create_agent(model, tools, middleware=[GuardMiddleware(guard)])

In a graph of your own the same object guards both nodes:

guarded = GuardMiddleware(guard)
chat, tool_node = guarded.bind(model, tools), guarded.tool_node(tools)
"""

from __future__ import annotations

from pokayoke.adapters._host.extras import require_extra

with require_extra("langchain"):
    from pokayoke.adapters.langchain._contracts import contracts
    from pokayoke.adapters.langchain._middleware import GuardMiddleware, calls, message

__all__ = ["GuardMiddleware", "calls", "contracts", "message"]
