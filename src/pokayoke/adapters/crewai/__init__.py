"""CrewAI: the agent's language model and its tools, each wrapped; no global hook is registered.

guard = pokayoke.Guard(contracts(tools, reads=["find_order"]))
llm, tools = guarded(guard, LLM(model="..."), tools)
agent = Agent(role=..., goal=..., backstory=..., llm=llm, tools=tools)
"""

from __future__ import annotations

from pokayoke.adapters._host.extras import require_extra

with require_extra("crewai"):
    from pokayoke.adapters.crewai._contracts import contracts
    from pokayoke.adapters.crewai._model import calls, guarded, message

__all__ = ["calls", "contracts", "guarded", "message"]
