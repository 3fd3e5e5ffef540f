"""Replies in pieces: put together they read like the whole, and one that breaks off runs nothing."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.intake import is_cut
from pokayoke.core.messages.replies import read_reply
from pokayoke.streams import AnthropicStream, ChatStream, ResponsesStream

TEXT = st.text(max_size=30)
VALUES = st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=10), st.lists(st.booleans(), max_size=3)), max_size=4)  # fmt: skip
CALLS = st.lists(st.tuples(st.sampled_from(["get", "put"]), VALUES), max_size=4)


@st.composite
def pieces(draw, text):
    """A text in pieces; none, some or all of them empty."""
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[start:end] for start, end in itertools.pairwise([0, *cuts, len(text)])]


def dealt(draw, hands):
    """Deal several lists into one, each in its own order."""
    hands = [list(hand) for hand in hands if hand]
    while hands:
        hand = hands[draw(st.integers(0, len(hands) - 1))]
        yield hand.pop(0)
        hands = [one for one in hands if one]


def read(stream, events):
    said = "".join(stream.add_event(event) for event in events)
    return read_reply(stream.build_reply()), said


def chunk(delta=None, finish=None, **more):
    return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}


def piece(index, text=None, **first):
    function = {key: first.pop(key) for key in ("name",) if key in first}
    if text is not None:
        function["arguments"] = text
    return chunk({"tool_calls": [{"index": index, "function": function, **first}]})


@given(st.data(), TEXT, CALLS)
def test_a_chat_completion_in_pieces_reads_like_the_whole(data, text, calls):
    """However text and arguments are cut and calls are mixed: calls, message, stop reason and cost are the same."""
    written = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(value)}}
        for n, (name, value) in enumerate(calls)
    ]
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    message = {"role": "assistant", "content": text or None, **({"tool_calls": written} if written else {})}
    whole = {"choices": [{"message": message, "finish_reason": "tool_calls" if calls else "stop"}], "usage": usage}
    hands = [[chunk({"content": part}) for part in data.draw(pieces(text))]]
    for number, one in enumerate(written):
        function = one["function"]
        first = piece(number, id=one["id"], type="function", name=function["name"])
        hands.append([first, *(piece(number, part) for part in data.draw(pieces(function["arguments"])))])
    last = [chunk(finish=whole["choices"][0]["finish_reason"]), {"choices": [], "usage": usage}]
    events = [chunk({"role": "assistant"}), *dealt(data.draw, hands), *last]
    found, said = read(ChatStream(), events)
    assert found == read_reply(whole)
    assert said == text
    broken, _ = read(ChatStream(), events[: data.draw(st.integers(0, len(events) - 2)) or 1][:-1])
    assert broken.stop_reason == "incomplete"
    assert all(is_cut(one.stop_reason) for one in broken.calls)


@given(st.data(), CALLS, st.sampled_from([0, None]), st.booleans())
def test_calls_that_share_an_index_are_told_apart_by_their_ids(data, calls, index, named):
    """Where every delta carries its call's id, any mixture of calls at one index, or at none, gives the calls."""
    hands, begun = [], []
    for number, (name, value) in enumerate(calls):
        own = {"id": f"c{number}", **({"name": name} if named else {})}
        parts = [piece(index, part, **own) for part in data.draw(pieces(json.dumps(value)))]
        hands.append([piece(index, id=f"c{number}", name=name), *parts])
    events = [*dealt(data.draw, hands), chunk(finish="tool_calls")]
    for event_ in events[:-1]:
        ident = event_["choices"][0]["delta"]["tool_calls"][0]["id"]
        begun += [ident] if ident not in begun else []
    found, _ = read(ChatStream(), events)
    expected = {f"c{number}": (f"c{number}", name, json.dumps(value)) for number, (name, value) in enumerate(calls)}
    assert [(one.id, one.name, one.arguments) for one in found.calls] == [expected[ident] for ident in begun]


@given(st.data(), CALLS)
def test_items_that_share_an_index_are_told_apart_by_their_ids(data, calls):
    """The same for the items of a response that ends without repeating them."""
    hands = []
    for number, (name, value) in enumerate(calls):
        item = {"type": "function_call", "id": f"f{number}", "call_id": f"c{number}", "name": name, "arguments": ""}
        parts = [
            event("function_call_arguments.delta", 0, item_id=f"f{number}", delta=part)
            for part in data.draw(pieces(json.dumps(value)))
        ]
        hands.append([event("output_item.added", 0, item=item), *parts])
    events = [*dealt(data.draw, hands), event("completed", response={"status": "completed"})]
    found, _ = read(ResponsesStream(), events)
    assert {(one.id, one.name, one.arguments) for one in found.calls} == {
        (f"c{number}", name, json.dumps(value)) for number, (name, value) in enumerate(calls)
    }


@given(st.data(), CALLS)
def test_blocks_that_share_an_index_follow_each_other(data, calls):
    """The same for Anthropic, whose pieces carry no id: a start at a used index begins another block."""
    events = []
    for number, (name, value) in enumerate(calls):
        begun = {"type": "tool_use", "id": f"t{number}", "name": name, "input": {}}
        deltas = [block(0, "delta", delta={"partial_json": part}) for part in data.draw(pieces(json.dumps(value)))]
        events += [block(0, "start", content_block=begun), *deltas, block(0, "stop")]
    found, _ = read(AnthropicStream(), [*events, {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}])
    assert [(one.id, one.name, one.arguments) for one in found.calls] == [
        (f"t{number}", name, json.dumps(value)) for number, (name, value) in enumerate(calls)
    ]


def block(place, kind, **more):
    return {"type": f"content_block_{kind}", "index": place, **more}


@given(st.data(), TEXT, CALLS)
def test_an_anthropic_message_in_pieces_reads_like_the_whole(data, text, calls):
    """The same for Anthropic, whose arguments come as text and stand in the whole as an object."""
    content = [{"type": "text", "text": text}] if text else []
    content += [
        {"type": "tool_use", "id": f"t{n}", "name": name, "input": value} for n, (name, value) in enumerate(calls)
    ]
    usage = {"input_tokens": 3, "output_tokens": 4}
    stop = "tool_use" if calls else "end_turn"
    whole = {"type": "message", "role": "assistant", "content": content, "stop_reason": stop, "usage": usage}
    hands = []
    for place, one in enumerate(content):
        if one["type"] == "text":
            parts = [{"type": "text_delta", "text": part} for part in data.draw(pieces(text))]
            begun = {"type": "text", "text": ""}
        else:
            written = data.draw(pieces(json.dumps(one["input"])))
            parts, begun = (
                [{"type": "input_json_delta", "partial_json": part} for part in written],
                {**one, "input": {}},
            )
        deltas = [block(place, "delta", delta=part) for part in parts]
        hands.append([block(place, "start", content_block=begun), *deltas, block(place, "stop")])
    start = {"type": "message_start", "message": {"type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 3, "output_tokens": 1}}}  # fmt: skip
    end = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"input_tokens": None, "output_tokens": 4}}
    events = [start, *dealt(data.draw, hands), end, {"type": "message_stop"}]
    found, said = read(AnthropicStream(), events)
    expected = read_reply(whole)
    assert [(one.id, one.name, json.loads(one.arguments)) for one in found.calls] == [
        (one.id, one.name, one.arguments) for one in expected.calls
    ]
    assert (found.messages, found.text, found.stop_reason, found.tokens, said) == (
        expected.messages, expected.text, stop, 7, text,
    )  # fmt: skip
    broken, _ = read(AnthropicStream(), events[: data.draw(st.integers(0, len(events) - 2))])
    assert broken.stop_reason == "incomplete"
    assert all(is_cut(one.stop_reason) for one in broken.calls)


def event(kind, place=None, **more):
    return {"type": f"response.{kind}", **({} if place is None else {"output_index": place}), **more}


@given(st.data(), TEXT, CALLS, st.booleans())
def test_a_response_in_pieces_reads_like_the_whole(data, text, calls, complete):
    """The same for responses, whether the last event repeats the whole output or not."""
    output = [
        {"type": "function_call", "id": f"f{n}", "call_id": f"c{n}", "name": name, "arguments": json.dumps(value), "status": "completed"}
        for n, (name, value) in enumerate(calls)
    ]  # fmt: skip
    if text:
        output.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
    whole = {
        "status": "completed",
        "output": output,
        "usage": {"total_tokens": 7, "input_tokens": 3, "output_tokens": 4},
    }
    hands = []
    for place, one in enumerate(output):
        if one["type"] == "message":
            parts = [event("output_text.delta", place, content_index=0, delta=part) for part in data.draw(pieces(text))]
            begun = {**one, "content": []}
        else:
            written = data.draw(pieces(one["arguments"]))
            parts = [event("function_call_arguments.delta", place, delta=part) for part in written]
            parts.append(event("function_call_arguments.done", place, arguments=one["arguments"]))
            begun = {**one, "arguments": "", "status": "in_progress"}
        hands.append(
            [event("output_item.added", place, item=begun), *parts, event("output_item.done", place, item=one)]
        )
    end = event("completed", response=whole if complete else {**whole, "output": []})
    events = [event("created", response={"status": "in_progress"}), *dealt(data.draw, hands), end]
    found, said = read(ResponsesStream(), events)
    assert found == read_reply(whole)
    assert said == text
    broken, _ = read(ResponsesStream(), events[: data.draw(st.integers(0, len(events) - 1))])
    assert broken.stop_reason == "incomplete"
    assert all(is_cut(one.stop_reason) for one in broken.calls)


def one_call(*parts, **first):
    return [piece(0, id="a", name="get", **first), *(piece(0, part) for part in parts)]


@pytest.mark.parametrize(
    ("events", "calls"),
    [
        # A server that names the place of no call: each message's calls stand in their order.
        ([chunk({"tool_calls": [{"id": "a", "function": {"name": "get", "arguments": "{"}}]}), chunk({"tool_calls": [{"function": {"arguments": "}"}}]})], [("a", "get", "{}")]),
        # One that gives every call the place 0: a new id with a name, behind arguments, is a new call.
        ([piece(0, "{}", id="a", name="get"), piece(0, "[]", id="b", name="put")], [("a", "get", "{}"), ("b", "put", "[]")]),
        # One that repeats id and name, or sends another id with each piece.
        ([piece(0, "{", id="a", name="get"), piece(0, "}", id="a", name="get")], [("a", "get", "{}")]),
        ([piece(0, "{", id="a", name="get"), piece(0, "}", id="z")], [("a", "get", "{}")]),
        ([piece(1, "{}", id="b", name="put"), piece(0, "{}", id="a", name="get")], [("a", "get", "{}"), ("b", "put", "{}")]),
        # One that numbers the calls of each chunk anew, and one that gives all of a message's calls one id.
        ([piece(0, "{", id="a", name="get"), piece(1, "[", id="b", name="put"), piece(0, "]", id="b"), piece(0, "}", id="a")], [("a", "get", "{}"), ("b", "put", "[]")]),
        ([piece(0, "{", id="a", name="get"), piece(1, "[", id="a", name="put"), piece(0, "}", id="a"), piece(1, "]", id="a")], [("a", "get", "{}"), ("a_2", "put", "[]")]),
        # One that sends the name in pieces.
        ([piece(0, "", id="a", name="get"), piece(0, "", name="_order"), piece(0, "{}")], [("a", "get_order", "{}")]),
        ([piece(0, "", id="a", name="get"), piece(0, "{}", id="a", name="_order")], [("a", "get_order", "{}")]),
        # One that gives no ids and one place to all: a name behind whole arguments begins the next call.
        ([piece(0, '{"a": 1}', name="get"), piece(0, '{"b": 2}', name="put")], [("call_1", "get", '{"a": 1}'), ("call_2", "put", '{"b": 2}')]),
        ([piece(0, "{", name="get"), piece(0, "}"), piece(0, "{}", name="get"), piece(0, name="put")], [("call_1", "get", "{}"), ("call_2", "get", "{}"), ("call_3", "put", "")]),
        ([piece(0, {"a": 1}, name="get"), piece(0, "{}", name="put")], [("call_1", "get", {"a": 1}), ("call_2", "put", "{}")]),
        # One that repeats the name with each piece, and at the end.
        ([piece(0, "{", name="get"), piece(0, "}", name="get"), piece(0, "", name="get")], [("call_1", "get", "{}")]),
        # A name behind arguments that are not whole begins none: no tool is called so.
        ([piece(0, "[]", name="get"), piece(0, "{}", name="put")], [("call_1", "getput", "[]{}")]),
        ([piece(0, '{"a": ', name="get"), piece(0, "{}", name="put")], [("call_1", "getput", '{"a": {}')]),
        # One whose id comes late.
        ([piece(0, name="get"), piece(0, "{}", id="a", name="get")], [("a", "get", "{}")]),
        # Arguments that come as an object, and what cannot be joined.
        ([piece(0, {"a": 1}, id="a", name="get")], [("a", "get", {"a": 1})]),
        ([piece(0, "{", id="a", name="get"), piece(0, {"a": 1})], [("a", "get", '["{",{"a":1}]')]),
        (one_call(), [("a", "get", "")]),
        # A custom tool, and the former spelling.
        ([chunk({"tool_calls": [{"index": 0, "id": "a", "type": "custom", "custom": {"name": "sql", "input": "sel"}}]}), chunk({"tool_calls": [{"index": 0, "custom": {"input": "ect"}}]})], [("a", "sql", "select")]),
        ([chunk({"function_call": {"name": "get", "arguments": "{"}}), chunk({"function_call": {"arguments": "}"}})], [("call_1", "get", "{}")]),
    ],
)  # fmt: skip
def test_how_chunks_of_calls_are_joined(events, calls):
    """By their place, as servers number it or not; the text of a call is never completed."""
    found, _ = read(ChatStream(), [*events, chunk(finish="tool_calls")])
    assert [(one.id, one.name, one.arguments) for one in found.calls] == calls


def test_text_in_parts():
    """Content that comes as parts is text, without the thoughts beside it; a block may begin with text."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    parts = [[thought], [{"type": "text", "text": "I "}, {"type": "text", "text": "look"}], None]
    found, said = read(ChatStream(), [*(chunk({"content": one}) for one in parts), chunk(finish="stop")])
    assert (said, found.text) == ("I look", "I look")
    begun = block(0, "start", content_block={"type": "text", "text": "I "})
    found, said = read(AnthropicStream(), [begun, block(0, "delta", delta={"type": "text_delta", "text": "look"})])
    assert (said, found.text) == ("I look", "I look")


def test_a_server_that_numbers_nothing():
    """Blocks and items without an index are told apart by their beginnings and their ids; no call is lost."""
    started = [{"type": "tool_use", "id": one, "name": name, "input": {}} for one, name in (("a", "get"), ("b", "put"))]
    events = [block(0, "start", content_block={"type": "text", "text": "hm"})]
    for number, one in enumerate(started):
        events += [block(0, "start", content_block=one)]
        events += [block(0, "delta", delta={"partial_json": part}) for part in ('{"n": ', f"{number}}}")]
    for one in events:
        del one["index"]
    ended = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}
    found, _ = read(AnthropicStream(), [*events, ended])
    assert [(one.id, one.name, one.arguments) for one in found.calls] == [
        ("a", "get", '{"n": 0}'), ("b", "put", '{"n": 1}'),
    ]  # fmt: skip
    events = [
        {
            "type": "response.output_item.added",
            "item": {"type": "function_call", "id": f"f{n}", "call_id": n, "name": n},
        }
        for n in ("a", "b")
    ]
    parts = (("a", '{"n": '), ("b", '{"m": '), ("a", "0}"), ("b", "1}"))
    events += [{"type": "response.function_call_arguments.delta", "item_id": f"f{n}", "delta": one} for n, one in parts]
    found, _ = read(ResponsesStream(), [*events, {"type": "response.completed", "response": {"status": "completed"}}])
    assert [(one.id, one.arguments) for one in found.calls] == [("a", '{"n": 0}'), ("b", '{"m": 1}')]


def test_a_second_answer_is_not_listened_to():
    """Of several answers in one stream the first is guarded; the others are left out."""
    other = {"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"}]}
    found, said = read(ChatStream(), [chunk({"content": "a"}), other])
    assert (said, found.text, found.stop_reason) == ("a", "a", "incomplete")


def test_a_refusal_in_pieces():
    """A refusal is put together, is no text for the user while it streams, and is known as a refusal."""
    found, said = read(ChatStream(), [chunk({"refusal": "I can"}), chunk({"refusal": "not."}), chunk(finish="stop")])
    assert (said, found.text, found.refused) == ("", "I cannot.", True)
    parts = [event("refusal.delta", 0, content_index=0, delta=part) for part in ("I can", "not.")]
    found, said = read(ResponsesStream(), [*parts, event("completed", response={"status": "completed"})])
    assert (said, found.text, found.refused) == ("", "I cannot.", True)


def test_a_response_that_breaks_off_keeps_what_was_said():
    """Text and arguments that came stay readable, as cut; events nobody knows change nothing."""
    events = [
        event("output_item.added", 0, item={"type": "message", "role": "assistant", "content": []}),
        event("output_text.delta", 0, delta="I lo"),
        event("output_text.delta", 0, content_index=1, delta="ok"),
        event("function_call_arguments.delta", 1, delta='{"a": '),
        event("custom_tool_call_input.delta", 2, delta="sel"),
        event("custom_tool_call_input.delta", 2, delta=None),
        event("reasoning_summary_text.delta", 3, delta="hm"),
        event("output_text.done", 0, text="I look"),
        {"type": "error", "message": "overloaded"},
        {},
    ]
    found, said = read(ResponsesStream(), events)
    assert (said, found.text, found.stop_reason) == ("I look", "I lo\nok", "incomplete")
    assert [(one.name, one.arguments) for one in found.calls] == [("", '{"a": '), ("", "sel")]
    again, _ = read(ResponsesStream(), [event("output_text.delta", 0, delta="hi")])
    assert again.text == "hi"


def test_a_response_that_failed_is_cut():
    """A failed response is not whole, whatever it holds."""
    item = {"type": "function_call", "call_id": "c", "name": "get", "arguments": "{}"}
    found, _ = read(ResponsesStream(), [event("failed", response={"status": "failed", "output": [item]})])
    assert is_cut(found.calls[0].stop_reason)


def test_pieces_of_anthropic_blocks():
    """Thinking keeps its signature; a call without any piece has the object it began with; unknown events are passed over."""
    events = [
        block(0, "start", content_block={"type": "thinking", "thinking": ""}),
        block(0, "delta", delta={"type": "thinking_delta", "thinking": "hm"}),
        block(0, "delta", delta={"type": "signature_delta", "signature": "s"}),
        block(1, "start", content_block={"type": "tool_use", "id": "t", "name": "now", "input": {}}),
        block(2, "delta", delta={"partial_json": '{"a": 1}'}),
        block(3, "delta", delta={"text": "hi"}),
        {"type": "ping"},
        {"type": "content_block_delta"},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    ]
    found, said = read(AnthropicStream(), events)
    assert said == "hi"
    assert found.messages[0]["content"][0] == {"type": "thinking", "thinking": "hm", "signature": "s"}
    assert [(one.id, one.name, one.arguments) for one in found.calls] == [("t", "now", {}), ("toolu_1", "", '{"a": 1}')]


def test_calls_are_known_only_when_the_reply_is_whole():
    """Nothing comes out of a stream but text until somebody asks for the reply as far as it is: cut, while it runs."""
    stream = ChatStream()
    for one in one_call("{}"):
        stream.add_event(one)
    assert is_cut(read_reply(stream.build_reply()).calls[0].stop_reason)
    stream.add_event(chunk(finish="tool_calls"))
    assert not is_cut(read_reply(stream.build_reply()).calls[0].stop_reason)


@pytest.mark.parametrize("indexed", [True, False], ids=["all at place 0", "without places"])
@pytest.mark.parametrize("given", ["", None], ids=["empty arguments", "no arguments"])
def test_a_call_without_arguments_does_not_swallow_the_next(indexed, given):
    """Another id and another name begin another call, also where the first one was given nothing."""
    stream = ChatStream()
    for ident, name, text in (("a", "list_users", given), ("b", "delete_user", '{"id": 5}')):
        event = piece(0, text, id=ident, name=name)
        if not indexed:
            del event["choices"][0]["delta"]["tool_calls"][0]["index"]
        stream.add_event(event)
    stream.add_event(chunk(finish="tool_calls"))
    calls = read_reply(stream.build_reply()).calls
    assert [(call.id, call.name, call.arguments or "") for call in calls] == [
        ("a", "list_users", ""),
        ("b", "delete_user", '{"id": 5}'),
    ]


def test_a_cut_that_was_told_stays_told():
    """A later, friendlier stop reason does not make a reply whole again."""
    chat, message = ChatStream(), AnthropicStream()
    for reason in ("length", "stop"):
        chat.add_event(chunk(finish=reason))
    for reason in ("max_tokens", "end_turn"):
        message.add_event({"type": "message_delta", "delta": {"stop_reason": reason}})
    assert chat.build_reply()["choices"][0]["finish_reason"] == "length"
    assert message.build_reply()["stop_reason"] == "max_tokens"
