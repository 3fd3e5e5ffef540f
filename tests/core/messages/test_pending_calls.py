"""The unanswered calls at the end of a history."""

import pytest

from pokayoke.core.messages.replies import pending_calls

TOOLS = {"get": {"type": "object"}, "put": None}


def asks(*idents):
    calls = [{"id": key, "type": "function", "function": {"name": "get", "arguments": "{}"}} for key in idents]
    return {"role": "assistant", "content": None, "tool_calls": calls}


USER = {"role": "user", "content": "go"}


def tool(ident):
    return {"role": "tool", "tool_call_id": ident, "content": "x"}


def item(ident):
    return {"type": "function_call", "call_id": ident, "name": "get", "arguments": "{}"}


def out(ident):
    return {"type": "function_call_output", "call_id": ident, "output": "x"}


def use(*idents):
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": key, "name": "get", "input": {}} for key in idents],
    }


def result(*idents):
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": key, "content": "x"} for key in idents]}


@pytest.mark.parametrize(
    ("messages", "shape", "ids"),
    [
        ([], None, []),
        ([USER], None, []),
        ([USER, {"role": "assistant", "content": "done"}], None, []),
        ([USER, asks("a", "b")], "openai", ["a", "b"]),
        ([USER, asks("a", "b"), tool("b")], "openai", ["a"]),
        ([USER, asks("a"), tool("a")], None, []),
        ([USER, asks("a"), tool("a"), asks("a")], "openai", ["a"]),
        ([USER, asks("a"), USER], None, []),
        ([USER, {**asks(), "function_call": {"name": "get", "arguments": "{}"}}], "openai", ["call_1"]),
        (
            [USER, {**asks(), "function_call": {"name": "get"}}, {"role": "function", "name": "get", "content": "x"}],
            None,
            [],
        ),
        ([USER, item("a"), item("b")], "responses", ["a", "b"]),
        ([USER, item("a"), item("b"), out("a")], "responses", ["b"]),
        ([USER, {**item("a"), "type": "custom_tool_call", "input": "x"}], "responses", ["a"]),
        ([USER, use("a", "b")], "anthropic", ["a", "b"]),
        ([USER, use("a"), result("a"), use("b")], "anthropic", ["b"]),
        ([USER, use("a"), result("a")], None, []),
    ],
)
def test_what_a_history_leaves_unanswered(messages, shape, ids):
    """The calls after which nobody spoke and which have no answer, in order and in their own shape."""
    found = pending_calls(messages)
    assert (found and found.shape, [one.id for one in found.calls] if found else []) == (shape, ids)
    if found:
        assert found.messages == ()


def test_unanswered_calls_in_a_text():
    """For a model without tool calls, a last message that spells calls out waits for its answers; any other does not."""
    text = {"role": "assistant", "content": '{"name": "get", "arguments": {"a": 1}}'}
    assert [one.name for one in pending_calls([USER, text], tools=TOOLS).calls] == ["get"]
    assert pending_calls([USER, text]) is None
    assert pending_calls([USER, {"role": "assistant", "content": "done"}], tools=TOOLS) is None
