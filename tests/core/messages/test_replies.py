"""Replies of three providers: what is read, and what goes into the history."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from provider_rules import anthropic_problems, chat_problems, item_problems

from pokayoke.core.call import Outcome
from pokayoke.core.intake import is_cut
from pokayoke.core.messages.answers import result_messages
from pokayoke.core.messages.replies import CallIds, read_reply, to_dict
from pokayoke.errors import UsageError


def call(ident="c1", name="get", arguments='{"a": 1}', **more):
    inner = {"name": name, "arguments": arguments}
    return {"id": ident, "type": "function", "function": {k: v for k, v in inner.items() if v is not ...}, **more}


def chat(*calls, content=None, stop="tool_calls", usage=None, **message):
    message = {"role": "assistant", "content": content, **message}
    if calls:
        message["tool_calls"] = list(calls)
    return {"choices": [{"message": message, "finish_reason": stop}], "usage": usage}


def response(*items, status="completed", **more):
    return {"object": "response", "status": status, "output": list(items), **more}


def item(ident="c1", name="get", arguments='{"a": 1}', **more):
    return {"type": "function_call", "call_id": ident, "name": name, "arguments": arguments, **more}


def says(*parts):
    return {"type": "message", "role": "assistant", "content": list(parts)}


def claude(*blocks, stop="tool_use", usage=None):
    return {"type": "message", "role": "assistant", "content": list(blocks), "stop_reason": stop, "usage": usage}


def use(ident="toolu_1", name="get", given=..., **more):
    return {"type": "tool_use", "id": ident, "name": name, "input": {"a": 1} if given is ... else given, **more}


def asked(said):
    return [(one.id, one.name, one.arguments) for one in said.calls]


CHAT = [
    ("one call", chat(call()), [("c1", "get", '{"a": 1}')]),
    ("parallel calls", chat(call("a"), call("b")), [("a", "get", '{"a": 1}'), ("b", "get", '{"a": 1}')]),
    ("ids missing", chat(call(None), call("")), [("call_1", "get", '{"a": 1}'), ("call_2", "get", '{"a": 1}')]),
    ("an id that is no text", chat(call(7)), [("call_1", "get", '{"a": 1}')]),
    ("ids equal", chat(call(), call(), call("c1_2")), [("c1", "get", '{"a": 1}'), ("c1_2", "get", '{"a": 1}'), ("c1_2_2", "get", '{"a": 1}')]),
    ("arguments null", chat(call(arguments=None)), [("c1", "get", "")]),
    ("arguments missing", chat(call(arguments=...)), [("c1", "get", "")]),
    ("arguments an object", chat(call(arguments={"a": 1})), [("c1", "get", {"a": 1})]),
    ("arguments a list", chat(call(arguments=[1])), [("c1", "get", "[1]")]),
    ("arguments damaged", chat(call(arguments='{"a": ')), [("c1", "get", '{"a": ')]),
    ("no name", chat(call(name=None)), [("c1", "", '{"a": 1}')]),
    ("a call that is none", chat(None), [("call_1", "", "")]),
    ("a custom tool", chat({"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}), [("c1", "sql", "select 1")]),
    ("the former spelling", chat(stop="function_call", function_call={"name": "get", "arguments": "{}"}), [("call_1", "get", "{}")]),
    ("both spellings", chat(call(), function_call={"name": "old", "arguments": "{}"}), [("c1", "get", '{"a": 1}')]),
    ("no call", chat(content="hi", stop="stop"), []),
    ("no choice", {"choices": []}, []),
    ("choices null", {"choices": None}, []),
    ("a choice without message", {"choices": [{"finish_reason": "stop"}]}, []),
    ("a bare message", {"role": "assistant", "content": "hi", "tool_calls": [call()]}, [("c1", "get", '{"a": 1}')]),
]  # fmt: skip


@pytest.mark.parametrize(("reply", "calls"), [row[1:] for row in CHAT], ids=[row[0] for row in CHAT])
def test_chat_completions(reply, calls):
    """A chat completion's calls are read as they came, and its message can be sent again once each is answered."""
    said = read_reply(reply)
    assert (said.shape, asked(said)) == ("openai", calls)
    outcomes = [Outcome(status="ok", call_id=one.id, tool=one.name, text="x") for one in said.calls]
    if outcomes:
        assert chat_problems([*said.messages, *result_messages(outcomes)]) == []
    assert [one.id for one in read_reply(said.messages[0]).calls] == [one.id for one in said.calls]


RESPONSES = [
    ("one call", response(item()), [("c1", "get", '{"a": 1}')]),
    ("reasoning before it", response({"type": "reasoning", "id": "r"}, item()), [("c1", "get", '{"a": 1}')]),
    ("ids missing", response(item(None), item(None)), [("call_1", "get", '{"a": 1}'), ("call_2", "get", '{"a": 1}')]),
    ("the item's own id", response(item(None, id="fc_1")), [("fc_1", "get", '{"a": 1}')]),
    ("ids equal", response(item(), item()), [("c1", "get", '{"a": 1}'), ("c1_2", "get", '{"a": 1}')]),
    ("a custom tool", response({"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "select 1"}), [("c1", "sql", "select 1")]),
    ("no call", response(says({"type": "output_text", "text": "hi"})), []),
    ("nothing", response(), []),
]  # fmt: skip


@pytest.mark.parametrize(("reply", "calls"), [row[1:] for row in RESPONSES], ids=[row[0] for row in RESPONSES])
def test_responses(reply, calls):
    """A response's calls are read as they came; each item stays, and every kind of call is answered by its own kind."""
    said = read_reply(reply)
    assert (said.shape, asked(said)) == ("responses", calls)
    outcomes = [Outcome(status="ok", call_id=one.id, tool=one.name, text="x") for one in said.calls]
    history = [*said.messages, *result_messages(outcomes, "responses", custom=said.custom)]
    assert item_problems(history) == []
    assert ["custom" in one["type"] for one in history if one["type"].endswith("call")] == [
        "custom" in one["type"] for one in history if one["type"].endswith("output")
    ]


ANTHROPIC = [
    ("one call", claude(use()), [("toolu_1", "get", {"a": 1})]),
    ("text beside it", claude({"type": "text", "text": "I look."}, use()), [("toolu_1", "get", {"a": 1})]),
    ("thinking before it", claude({"type": "thinking", "thinking": "hm", "signature": "s"}, use()), [("toolu_1", "get", {"a": 1})]),
    ("a blank text", claude({"type": "text", "text": " \n"}, use()), [("toolu_1", "get", {"a": 1})]),
    ("ids missing", claude(use(None), use(None)), [("toolu_1", "get", {"a": 1}), ("toolu_2", "get", {"a": 1})]),
    ("ids equal", claude(use(), use()), [("toolu_1", "get", {"a": 1}), ("toolu_1_2", "get", {"a": 1})]),
    ("an id in another alphabet", claude(use("functions.get:0")), [("functions_get_0", "get", {"a": 1})]),
    ("a text for an object", claude(use(given='{"a": 1}')), [("toolu_1", "get", '{"a": 1}')]),
    ("a damaged text", claude(use(given='{"a": ')), [("toolu_1", "get", '{"a": ')]),
    ("no input", claude(use(given=None)), [("toolu_1", "get", "")]),
    ("an input that is no object", claude(use(given=[1])), [("toolu_1", "get", "[1]")]),
    ("a bare message", {"role": "assistant", "content": [use()]}, [("toolu_1", "get", {"a": 1})]),
    ("without a type", {"content": [use()], "stop_reason": "tool_use"}, [("toolu_1", "get", {"a": 1})]),
]  # fmt: skip


@pytest.mark.parametrize(("reply", "calls"), [row[1:] for row in ANTHROPIC], ids=[row[0] for row in ANTHROPIC])
def test_anthropic_messages(reply, calls):
    """An Anthropic message's calls are read as they came, and its blocks can be sent again."""
    said = read_reply(reply)
    assert (said.shape, asked(said)) == ("anthropic", calls)
    outcomes = [Outcome(status="refused", call_id=one.id, tool=one.name, text="x") for one in said.calls]
    history = [{"role": "user", "content": "go"}, *said.messages, *result_messages(outcomes, "anthropic")]
    assert anthropic_problems(history) == []
    assert [block["is_error"] for block in history[-1]["content"]] == [True] * len(calls)


@pytest.mark.parametrize(
    ("given", "sent", "faithful"),
    [({"a": 1}, {"a": 1}, True), ('{"a": 1}', {"a": 1}, True), ('{"a": 1,}', {"a": 1}, True), ('{"a": ', {}, False), (None, {}, False), ("", {}, False)],
)  # fmt: skip
def test_a_text_that_is_no_object_is_not_sent_again(given, sent, faithful):
    """Anthropic takes objects only; where the message cannot show what was asked for, the reply says so."""
    said = read_reply(claude(use(given=given)))
    assert (said.messages[0]["content"][0]["input"], said.faithful) == (sent, faithful)


@pytest.mark.parametrize("name", ["foo bar", "", "ünder", "a" * 80, "get</name>"])
@pytest.mark.parametrize(
    "shape", [lambda n: chat(call(name=n)), lambda n: response(item(name=n)), lambda n: claude(use(name=n))]
)
def test_a_name_no_provider_would_take_is_respelt_in_the_history_only(name, shape):
    """The call keeps the name as it was written; the history gets one that does not break the next request."""
    said = read_reply(shape(name))
    assert said.calls[0].name == name
    problems = {"openai": chat_problems, "responses": item_problems, "anthropic": anthropic_problems}[said.shape]
    start = [{"role": "user", "content": "go"}]
    outcome = Outcome(status="refused", call_id=said.calls[0].id, tool="x", text="no")
    assert problems([*start, *said.messages, *result_messages([outcome], said.shape)]) == []


STOPS = [
    (chat(call(), stop="length"), "length"),
    (chat(call(), stop="content_filter"), "content_filter"),
    (chat(call(), stop="error"), "error"),
    (response(item(), status="incomplete", incomplete_details={"reason": "max_output_tokens"}), "max_output_tokens"),
    (response(item(), status="incomplete", incomplete_details={"reason": "content_filter"}), "content_filter"),
    (response(item(), status="incomplete", incomplete_details={"reason": "new word"}), "incomplete"),
    (response(item(), status="incomplete"), "incomplete"),
    (response(item(), status="failed"), "incomplete"),
    (response(item(), status="in_progress"), "incomplete"),
    (claude(use(), stop="max_tokens"), "max_tokens"),
    (claude(use(), stop="model_context_window_exceeded"), "model_context_window_exceeded"),
    (claude(use(), stop="refusal"), "refusal"),
]


@pytest.mark.parametrize(("reply", "stop"), STOPS, ids=[row[1] for row in STOPS])
def test_what_was_cut_says_so(reply, stop):
    """Every way in which a provider says that a message is not whole reaches each of its calls."""
    said = read_reply(reply)
    assert said.stop_reason == stop
    assert all(is_cut(one.stop_reason) for one in said.calls)


def test_one_item_of_a_response_may_be_cut():
    """An item that is incomplete is cut, whatever the response says of itself; the batch then runs none."""
    said = read_reply(response(item("a"), item("b", status="incomplete")))
    assert [is_cut(one.stop_reason) for one in said.calls] == [False, True]


@pytest.mark.parametrize(
    ("reply", "text", "refused"),
    [
        (chat(content="hi", stop="stop"), "hi", False),
        (chat(content=[{"type": "text", "text": "a"}, {"type": "x"}, {"type": "text"}], stop="stop"), "a", False),
        (chat(refusal="No.", stop="stop"), "No.", True),
        (chat(content=[{"type": "refusal", "refusal": "No."}], stop="content_filter"), "No.", True),
        (chat(stop="stop"), "", False),
        (
            response(says({"type": "output_text", "text": "a"}), says({"type": "output_text", "text": "b"})),
            "a\nb",
            False,
        ),
        (response(says({"type": "refusal", "refusal": "No."})), "No.", True),
        (response(status="incomplete", incomplete_details={"reason": "content_filter"}), "", True),
        (claude({"type": "text", "text": "a"}, {"type": "text", "text": "b"}, stop="end_turn"), "a\nb", False),
        (claude({"type": "text", "text": "a"}, stop="refusal"), "a", True),
        (claude(stop="end_turn"), "", False),
    ],
)
def test_what_it_says_to_the_user(reply, text, refused):
    """Texts of a reply are joined by lines; a refusal is a text, and known as one."""
    said = read_reply(reply)
    assert (said.text, said.refused) == (text, refused)


@pytest.mark.parametrize(
    ("reply", "tokens", "sent"),
    [
        (chat(usage={"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}), 15, 10),
        (chat(usage={"prompt_tokens": 10, "completion_tokens": 5}), 15, 10),
        (chat(usage={"prompt_tokens": 10}), 10, 10),
        (chat(usage={"prompt_tokens": 0, "completion_tokens": 5, "total_tokens": 5}), None, None),
        (chat(usage={"total_tokens": "many"}), None, None),
        (chat(), None, None),
        (response(usage={"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}), 15, 10),
        (claude(usage={"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": None}), 115, 110),
    ],
)  # fmt: skip
def test_what_it_cost(reply, tokens, sent):
    """The provider's count of the whole conversation, and of the request alone; what a cache held counts too."""
    said = read_reply(reply)
    assert (said.tokens, said.input_tokens) == (tokens, sent)


def test_ids_of_the_history_are_taken():
    """A call that comes with an id the history holds already gets another, so that no answer fits two calls."""
    said = read_reply(chat(call("a"), call(None)), taken={"a", "call_1"})
    assert [one.id for one in said.calls] == ["a_2", "call_2"]


@given(st.lists(st.sampled_from([None, "", "a", "a_2", "call_1", "b"]), max_size=12))
def test_ids_are_never_equal(wanted):
    """However ids repeat, each call gets one of its own, and one that is free is kept."""
    ids = CallIds({"b"})
    given_out = [ids.unique_id(one) for one in wanted]
    assert len(set(given_out)) == len(given_out)
    assert "b" not in given_out
    assert all(given_out)
    if wanted and wanted[0] == "a":
        assert given_out[0] == "a"


@pytest.mark.parametrize(
    "wrong", [None, 3, "text", {}, {"role": "user", "content": "hi"}, SimpleNamespace(model_dump=1)]
)
def test_what_is_no_reply_is_an_error(wrong):
    """Something that is no reply is the programmer's error, which says what to hand over."""
    with pytest.raises(UsageError, match="is no reply of a model"):
        read_reply(wrong)


def test_objects_are_dumped():
    """An SDK object says what was set in it; a scripted reply says itself."""
    asked_for = {}

    def dump(**options):
        asked_for.update(options)
        return {"a": 1}

    assert to_dict(SimpleNamespace(model_dump=dump)) == {"a": 1}
    assert asked_for == {"exclude_unset": True, "warnings": False}
    assert to_dict(SimpleNamespace(openai=lambda: {"b": 1})) == {"b": 1}
    assert to_dict(SimpleNamespace(anthropic=lambda: {"c": 1})) == {"c": 1}
