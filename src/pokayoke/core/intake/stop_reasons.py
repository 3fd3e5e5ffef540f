"""Recognises a stop reason which proves that a reply was cut.

In: what a provider or client library reports as stop reason, in any spelling.
Out: True if the reply is incomplete.
Never: take a reply for complete on the strength of a stop reason; servers report `tool_calls` for calls that were cut.
"""

from __future__ import annotations

import functools
from typing import cast

_CUT_WORDS = frozenset(
    {
        "abort",
        "aborted",
        "blocklist",
        "canceled",
        "cancelled",
        "content_filter",
        "content_filtered",
        "context_length",
        "context_length_exceeded",
        "context_window_exceeded",
        "error",
        "error_limit",
        "error_toxic",
        "failed",
        "guardrail_intervened",
        "incomplete",
        "insufficient_system_resource",
        "language",
        "length",
        "length_limit",
        "malformed_function_call",
        "malformed_model_output",
        "malformed_tool_use",
        "max_completion_tokens",
        "max_length",
        "max_new_tokens",
        "max_output_tokens",
        "max_tokens",
        "max_tokens_reached",
        "model_context_window_exceeded",
        "model_length",
        "network_error",
        "not_finished",
        "output_limit",
        "prohibited_content",
        "recitation",
        "refusal",
        "safety",
        "sensitive",
        "spii",
        "time_limit",
        "timeout",
        "token_limit",
        "token_limit_reached",
        "truncated",
        "user_cancel",
    }
)
"""Stop reasons of all providers for an incomplete reply."""
_LONGEST_WORD = 64  # a longer text is not worth caching


def is_cut(stop_reason: object) -> bool:
    """Return whether a stop reason proves that the reply was cut.

    Accepts every provider's spelling (`length`, `MAX_TOKENS`, `FinishReason.MAX_TOKENS`, ...). False
    proves nothing: servers report `tool_calls` for calls that were cut.
    """
    if stop_reason is None:
        return False
    if isinstance(stop_reason, str):
        return (
            _is_cut_word(stop_reason)
            if len(stop_reason) <= _LONGEST_WORD
            else _normalise_word(stop_reason) in _CUT_WORDS
        )
    if isinstance(stop_reason, bytes):
        return is_cut(stop_reason.decode(errors="replace"))
    # A client library may pass a member of its enumeration, whose name is the word, or the object around
    # the word, such as `incomplete_details`.
    return any(isinstance(part, str) and _normalise_word(part) in _CUT_WORDS for part in _reason_parts(stop_reason))


@functools.lru_cache(maxsize=256)
def _is_cut_word(text: str) -> bool:
    """Return whether a text is one of the words; cached, as every call brings one of a handful."""
    return _normalise_word(text) in _CUT_WORDS


def _reason_parts(stop_reason: object) -> tuple[object, ...]:
    """Return the parts of an object that may hold the word."""
    if isinstance(stop_reason, dict):
        given = cast("dict[str, object]", stop_reason)
        return given.get("reason"), given.get("type")
    return getattr(stop_reason, "name", None), getattr(stop_reason, "reason", None)


def _normalise_word(text: str) -> str:
    """Return one spelling for `MaxTokens`, `max-tokens` and `FINISH_REASON_MAX_TOKENS`."""
    last = text.strip().rpartition(".")[2]
    if last not in (last.lower(), last.upper()):
        last = "".join(f"_{one}" if one.isupper() else one for one in last).strip("_")
    word = last.lower().replace("-", "_").replace(" ", "_").replace("__", "_")
    return word.removeprefix("stop_reason_").removeprefix("finish_reason_")
