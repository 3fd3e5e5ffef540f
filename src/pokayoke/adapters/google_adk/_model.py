"""Where what a model wrote waits, while ADK is shown something that it can parse. Nothing here imports LiteLLM."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from pokayoke.core.call import ToolCall
from pokayoke.errors import MissingExtraError, UsageError

try:
    from google.adk.models.registry import LLMRegistry
except ImportError as error:
    raise MissingExtraError("google-adk", "google-adk") from error

__all__ = [
    "KEY",
    "OriginalCalls",
    "guard_client_class",
    "has_broken_off",
    "original_call",
    "original_calls_var",
    "require_client",
]

# Whose streams always say why they ended.
_STREAMS_WITH_REASON = frozenset({"google.adk.models.google_llm", "google.adk.models.anthropic_llm"})

OriginalCalls = dict[str, ToolCall]
original_calls_var: ContextVar[OriginalCalls | None] = ContextVar("pokayoke_adk_aside", default=None)
"""Where the client puts what a model wrote in answer to this request. None: there is no plugin to take it up."""
KEY = "put_aside"
"""The argument by which ADK carries the name of a place there."""


def original_call(asked: Any) -> ToolCall:
    """Return a call as the model wrote it, from what ADK made of it."""
    calls, given = original_calls_var.get() or {}, asked.args or {}
    found = calls.pop(key, None) if isinstance(key := given.get(KEY), str) else None
    if found is None:
        return ToolCall(asked.id or "", asked.name or "", given)
    return ToolCall(asked.id or "", found.name, found.arguments, found.stop_reason)


def guard_client_class() -> Any:
    """Return `GuardClient`.

    Raises:
        MissingExtraError: LiteLLM is not installed: ADK itself does without.
    """
    return import_module("pokayoke.adapters.google_adk._litellm").GuardClient


def require_client(agent: Any) -> None:
    """Refuse a model whose argument texts would be lost, also one that is only named: ADK makes a `LiteLlm` of it."""
    for model, made_of in _answering_models(getattr(agent, "canonical_model", None)):
        kind: Any = getattr(sys.modules.get("google.adk.models.lite_llm"), "LiteLlm", None)
        if kind is None or not issubclass(made_of, kind):
            continue
        if not isinstance(getattr(model, "llm_client", None), guard_client_class()):
            named = getattr(model, "model", model)
            raise UsageError(
                f"ADK would drop calls of the agent {agent.name!r} before the guard sees them: "
                f"use LiteLlm(model={named!r}, llm_client=GuardClient())"
            )


def has_broken_off(agent: Any, response: Any) -> bool:
    """True for a stream that ended before its provider said why: ADK makes a whole reply of what there was of it."""
    if response.partial is not False or response.finish_reason is not None:
        return False
    kinds = [kind for _, kind in _answering_models(getattr(agent, "canonical_model", None))]
    return all(any(one.__module__ in _STREAMS_WITH_REASON for one in kind.__mro__) for kind in kinds)


def _answering_models(model: Any) -> Iterator[tuple[Any, type]]:
    """The models that may answer, each with its class: several, where ADK falls back from one to the next."""
    several: Any = getattr(sys.modules.get("google.adk.models._fallback_model"), "FallbackModel", None)
    if several is not None and isinstance(model, several):
        for one in model.models:
            yield from _answering_models(one)
    else:
        yield model, LLMRegistry.resolve(model) if isinstance(model, str) else type(model)
