"""Google ADK: a plugin that guards the tools of every agent of an app.

guard = pokayoke.Guard(contracts(agent.tools, reads=["get_order"]))
app = App(name="shop", root_agent=agent, plugins=[GuardPlugin(guard)])

Models through LiteLLM also need `LiteLlm(model=..., llm_client=GuardClient())`: ADK parses their argument texts, and
drops a text that it cannot parse, before any plugin sees it.
"""

from typing import TYPE_CHECKING, Any

from pokayoke.adapters._host.extras import require_extra

with require_extra("google-adk"):
    from pokayoke.adapters.google_adk._contracts import contracts
    from pokayoke.adapters.google_adk._model import calls
    from pokayoke.adapters.google_adk._run import GuardPlugin
    from pokayoke.adapters.google_adk._tools import message

if TYPE_CHECKING:
    from pokayoke.adapters.google_adk._litellm import GuardClient

__all__ = ["GuardClient", "GuardPlugin", "calls", "contracts", "message"]


def __getattr__(name: str) -> Any:
    """Import `GuardClient` on first use: it needs LiteLLM, which ADK does not install."""
    if name != "GuardClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with require_extra("litellm", bounded=False):  # the bound is that of another adapter
        from pokayoke.adapters.google_adk._litellm import GuardClient  # noqa: PLC0415 - as above

    return GuardClient
