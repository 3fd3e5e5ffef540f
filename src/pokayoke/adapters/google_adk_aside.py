"""Where what a model wrote waits, while ADK is shown something that it can parse. Nothing here imports LiteLLM."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from pokayoke.core.call import ToolCall
from pokayoke.errors import UsageError

__all__ = ["KEY", "PutAside", "aside", "client", "require_client", "taken_up"]

PutAside = dict[str, ToolCall]
aside: ContextVar[PutAside | None] = ContextVar("pokayoke_adk_aside", default=None)
"""Where the client puts what a model wrote in answer to this request. None: there is no plugin to take it up."""
KEY = "put_aside"
"""The argument by which ADK carries the name of a place there."""


def taken_up(asked: Any) -> ToolCall:
    """Return a call as the model wrote it, from what ADK made of it."""
    calls, given = aside.get() or {}, asked.args or {}
    found = calls.pop(key, None) if isinstance(key := given.get(KEY), str) else None
    if found is None:
        return ToolCall(asked.id or "", asked.name or "", given)
    return ToolCall(asked.id or "", found.name, found.arguments, found.stop_reason)


def client() -> Any:
    """Return `GuardClient`.

    Raises:
        MissingExtraError: LiteLLM is not installed: ADK itself does without.
    """
    return import_module("pokayoke.adapters.google_adk_litellm").GuardClient


def require_client(agent: Any) -> None:
    """Refuse a model whose argument texts would be lost, also one that is only named: ADK makes a `LiteLlm` of it."""
    model: Any = getattr(agent, "canonical_model", None)
    kind: Any = getattr(sys.modules.get("google.adk.models.lite_llm"), "LiteLlm", None)
    if kind is None or not isinstance(model, kind):
        return
    if not isinstance(getattr(model, "llm_client", None), client()):
        named = getattr(agent.canonical_model, "model", "...")
        raise UsageError(
            f"ADK would drop calls of the agent {agent.name!r} before the guard sees them: "
            f"use LiteLlm(model={named!r}, llm_client=GuardClient())"
        )
