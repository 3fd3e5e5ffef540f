"""Stop reasons that prove a cut, in every provider's spelling."""

import enum
import types

import pytest

from pokayoke.core.intake import (
    is_cut,
)


@pytest.mark.parametrize(
    ("reason", "cut"),
    [
        ("length", True),
        ("LENGTH", True),
        (" max_tokens ", True),
        ("FinishReason.MAX_TOKENS", True),
        ("max-tokens", True),
        ("max tokens", True),
        ("max_output_tokens", True),
        ("model_length", True),
        ("model_context_window_exceeded", True),
        ("incomplete", True),
        ("content_filter", True),
        ("FinishReason.SAFETY", True),
        ("RECITATION", True),
        ("guardrail_intervened", True),
        ("MALFORMED_FUNCTION_CALL", True),
        ("ERROR_LIMIT", True),
        ("insufficient_system_resource", True),
        ("network_error", True),
        ("sensitive", True),
        ("NOT_FINISHED", True),
        ("FinishReason.LANGUAGE", True),
        ("stop", False),
        ("tool_calls", False),
        ("end_turn", False),
        ("tool_use", False),
        ("completed", False),
        ("lengthy", False),
        ("", False),
        (None, False),
        (enum.Enum("FinishReason", ["MAX_TOKENS"]).MAX_TOKENS, True),
        (enum.IntEnum("FinishReason", ["STOP", "MAX_TOKENS"]).MAX_TOKENS, True),
        (enum.Enum("FinishReason", {"CUT": "length"}, type=str).CUT, True),
        (enum.Enum("FinishReason", ["STOP"]).STOP, False),
        (2, False),
        ("maxTokens", True),
        ("Max_Tokens", True),
        ("Max Output Tokens", True),
        ("FINISH_REASON_MAX_TOKENS", True),
        ("STOP_REASON_STOP", False),
        (b"length", True),
        ({"reason": "max_output_tokens"}, True),
        ({"type": "max_tokens"}, True),
        ({"type": "tool_use"}, False),
        (types.SimpleNamespace(reason="max_output_tokens"), True),
    ],
)
def test_cut_messages_are_known_in_every_spelling(reason, cut):
    """Reasons that prove a cut are told from all others, whatever the provider's spelling."""
    assert is_cut(reason) is cut
