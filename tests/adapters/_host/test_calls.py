"""Calls on their way through a framework's history."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pokayoke
from pokayoke import ToolCall, read_arguments
from pokayoke.adapters._host.calls import (
    UNKNOWN_TOOL_NAME,
    ReplyCall,
    decode_call,
    encode_call,
    encode_unreadable_call,
    find_tool_name,
    parse_object,
    restore_call,
)
from pokayoke.adapters._host.contracts import ToolDescription, build_contracts
from pokayoke.adapters._host.run import AdapterRun

KEY = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}


@pytest.mark.parametrize(
    "arguments",
    [
        {"unread_tool_call": {"name": "put", "arguments": {"key": "a"}, "stop_reason": None}},
        json.dumps({"unread_tool_call": {"name": "put", "arguments": "{}"}}),
        {"unread_tool_call": 1, "key": "a"},
    ],
)
def test_a_model_cannot_pass_off_a_call_as_another_one(arguments):
    """Arguments that look like a wrapper come back as they were written, under the name they were written for."""
    call = ToolCall("call_1", "get", arguments)
    back = decode_call("call_1", "get", json.loads(json.dumps(encode_unreadable_call(call))))
    assert (back.name, back.arguments) == ("get", arguments)


@pytest.mark.parametrize("stop_reason", ["length", None])
def test_what_others_put_beside_a_text_that_is_no_call_makes_none_of_it(stop_reason):
    """A middleware that adds an argument to every call makes no call of one that was cut, nor of a text without sense."""
    ran = []
    anything = ToolDescription("put", "Put.", {"type": "object"})
    hosted = AdapterRun(pokayoke.Guard(build_contracts([anything])).run("r"))
    (call,) = hosted.take_reply([ReplyCall("a", "put", '{"key": "b')], stop_reason)
    outcome = hosted.call(decode_call(call.id, call.name, {**encode_unreadable_call(call), "tenant": "t1"}), ran.append)
    assert (outcome.status, ran) == ("refused", [])


def names():
    """Names as models invent them."""
    return st.text(max_size=30)


@given(
    name=names(),
    arguments=st.one_of(st.text(max_size=60), st.dictionaries(st.text(max_size=5), st.integers(), max_size=3)),
    stop_reason=st.sampled_from([None, "length"]),
    wrap=st.booleans(),
)
def test_nothing_of_a_call_is_lost_on_its_way_through_a_history(name, arguments, stop_reason, wrap):
    """What the hook of a tool gets is what the model wrote, or means the same; a cut message is known as one."""
    call = ToolCall("call_1", name, arguments, stop_reason)
    back = decode_call("call_1", name, json.loads(json.dumps(encode_unreadable_call(call, name=wrap))))
    assert (back.name, back.stop_reason) == (name, stop_reason)
    if back.arguments != arguments:
        assert read_arguments(arguments).value == back.arguments
    assert intake_grade(back.arguments) == intake_grade(arguments)


def intake_grade(arguments):
    """Whether it can be read without a guess."""
    return isinstance(arguments, dict) or read_arguments(arguments).grade in ("exact", "lossless")


@given(
    name=st.sampled_from(["put", "Put", "fetch", "unread_tool_call"]) | names(),
    arguments=st.sampled_from(['{"key": "a"}', "{'key': 'a'}", "[]", '{"unread_tool_call": {"name": "get"}}'])
    | st.text(),
    stop_reason=st.sampled_from([None, "length"]),
)
def test_what_a_framework_holds_can_be_parsed_and_gives_the_call_back(name, arguments, stop_reason):
    """Its tool exists, its arguments are an object, and what the model wrote comes back, or means the same."""
    run = pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])).run("r")
    call = ToolCall("call_1", name, arguments, stop_reason)
    held, text = encode_call(run, call, {"put"})
    back = decode_call("call_1", held, json.loads(text))
    assert held in ("put", UNKNOWN_TOOL_NAME)
    assert back.stop_reason == stop_reason
    assert back.name == (name[:128] if held == UNKNOWN_TOOL_NAME or name != "put" else "put") or not name
    assert intake_grade(back.arguments) == intake_grade(arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "shown"),
    [
        ("fetch", '{"a": 1}', ("fetch", '{"a": 1}')),
        ("fetch it", '{"a": 1}', ("fetch_it", '{"a": 1}')),
        ("fetch", "no JSON", ("fetch", None)),
    ],
)
def test_a_model_reads_the_call_that_it_wrote(name, arguments, shown):
    """The history shows the name as a provider takes it back, and the arguments if they are an object."""
    run = pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])).run("r")
    held, text = encode_call(run, ToolCall("call_1", name, arguments), {"put"})
    assert held == UNKNOWN_TOOL_NAME
    assert restore_call(held, text) == (shown[0], shown[1] or text)
    assert restore_call("put", '{"key": "a"}') == ("put", '{"key": "a"}')
    assert restore_call(UNKNOWN_TOOL_NAME, "no JSON") == (UNKNOWN_TOOL_NAME, "no JSON")


@pytest.mark.parametrize(
    ("text", "value"), [('{"a": 1}', {"a": 1}), ("[1]", None), ("null", None), ('{"a"', None), ("[" * 100_000, None), ({}, None)]
)  # fmt: skip
def test_an_argument_text_is_read_as_a_framework_reads_it(text, value):
    """What is no JSON object, or no text at all, gives None."""
    assert parse_object(text) == value


def test_a_name_is_found_among_the_tools_that_the_framework_has():
    """Another spelling means the tool; a contract alone, or a name without one, means none of them."""
    tools = [ToolDescription(name, "", {"type": "object"}) for name in ("get_order", "refund")]
    run = pokayoke.Guard(build_contracts(tools)).run()
    assert [find_tool_name(run, name, ["get_order"]) for name in ("Get-Order", "refund", "fly")] == ["get_order", None, None]  # fmt: skip
