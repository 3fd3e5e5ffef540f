"""Messages in every shape: role, text, calls and results, read without being changed."""

from types import MappingProxyType, SimpleNamespace

import pytest

from pokayoke.core.json.values import read_field
from pokayoke.core.messages.messages import calls_in, role_of, text_of


@pytest.mark.parametrize(
    ("message", "role"),
    [
        ({"role": "developer"}, "system"),
        ({"role": "model"}, "assistant"),
        ({"role": "function"}, "tool"),
        ({"type": "human"}, "user"),
        ({"type": "ai"}, "assistant"),
        ({"type": "reasoning"}, "assistant"),
        ({"type": "function_call_output"}, "tool"),
        ({"type": "message", "role": "user"}, "user"),
        ({"role": "narrator"}, ""),
        ({"role": 3}, ""),
        (None, ""),
        ("text", ""),
        (SimpleNamespace(role="user", content=[{"type": "tool_result"}]), "tool"),
    ],
)
def test_roles(message, role):
    """Every provider's word for a role is understood, and no other."""
    assert role_of(message) == role


def test_fields_of_any_mapping():
    """A dict, another mapping, an object and what LangChain dumped give the same field."""
    for message in (
        {"content": "a"},
        MappingProxyType({"content": "a"}),
        SimpleNamespace(content="a"),
        {"type": "human", "data": {"content": "a"}},
        MappingProxyType({"type": "human", "data": {"content": "a"}}),
    ):
        assert read_field(message, "content") == "a"
        assert read_field(message, "absent") is None
    assert read_field({"type": "redacted_thinking", "data": "x"}, "content") is None


def test_text_of_a_message():
    """The text is what stands in text blocks, in order."""
    assert text_of("a") == "a"
    assert (
        text_of({"content": ["a", {"type": "text", "text": "b"}, {"type": "image"}, {"type": "x", "text": 3}]})
        == "a\nb"
    )
    assert text_of({"content": None}) == ""


def test_calls_of_a_message():
    """Calls are read once each, with their id, name and arguments, from wherever the provider puts them."""
    block = {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}
    assert calls_in({"content": [block, {"type": "text", "text": "hi"}]}) == [("a", "f", {"x": 1})]
    assert calls_in({"content": [block], "tool_calls": [{"id": "a", "name": "f", "args": {}}]}) == [("a", "f", {})]
    assert calls_in({"function_call": "auto"}) == []
    assert calls_in({"tool_calls": [{"function": {}}]}) == [(None, "", None)]
    assert calls_in({"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f"}) == [("c1", "f", None)]
