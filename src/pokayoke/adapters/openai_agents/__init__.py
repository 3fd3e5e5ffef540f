"""OpenAI Agents SDK: any agent behind the guard, by starting it with `GuardedRunner` instead of `Runner`.

guard = Guard(contracts(agent.tools, reads=("find_order",)))
runner = GuardedRunner(guard)
result = await runner.run(agent, "Refund my order.")
"""

from pokayoke.adapters._host.extras import require_extra

with require_extra("openai-agents"):
    from pokayoke.adapters.openai_agents._contracts import contracts
    from pokayoke.adapters.openai_agents._model import GuardedModel, GuardedProvider, calls, message
    from pokayoke.adapters.openai_agents._runner import GuardedRunner

__all__ = ["GuardedModel", "GuardedProvider", "GuardedRunner", "calls", "contracts", "message"]
