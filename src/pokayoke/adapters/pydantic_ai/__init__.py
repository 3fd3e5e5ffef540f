"""Pydantic AI: one capability guards every tool call of an agent.

guard = Guard(contracts(tools, reads=["get_order"]))
agent = Agent("openai:gpt-5", tools=tools, capabilities=[Guarded(guard)])
"""

from pokayoke.adapters._host.extras import require_extra

with require_extra("pydantic-ai-slim", "pydantic-ai"):
    from pokayoke.adapters.pydantic_ai._contracts import contracts, definitions
    from pokayoke.adapters.pydantic_ai._model import calls
    from pokayoke.adapters.pydantic_ai._run import Guarded
    from pokayoke.adapters.pydantic_ai._tools import message

__all__ = ["Guarded", "calls", "contracts", "definitions", "message"]
