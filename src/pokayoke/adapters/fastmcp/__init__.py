"""FastMCP: a middleware that guards the tools of a server, for any client.

guard = pokayoke.Guard(contracts(server, reads=["get_order"]))
guard_server(server, guard)
"""

from pokayoke.adapters._host.extras import require_extra

with require_extra("fastmcp"):
    from pokayoke.adapters.fastmcp._contracts import contracts
    from pokayoke.adapters.fastmcp._run import GuardMiddleware, calls, guard_server
    from pokayoke.adapters.fastmcp._tools import message

__all__ = ["GuardMiddleware", "calls", "contracts", "guard_server", "message"]
