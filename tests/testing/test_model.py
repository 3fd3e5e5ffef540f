"""The scripted model."""

import json

import pytest

from pokayoke import testing
from pokayoke.testing import Reply, ScriptedModel, ScriptExhausted, ask


def test_turns_in_order():
    """A script answers its turns in order, whatever shape each is written in."""
    model = ScriptedModel([ask("a"), [ask("b"), ask("c")], Reply(text="hm", stop_reason="length"), "done"])
    first, second, third, fourth = (model() for _ in range(4))
    assert [call.name for call in first.calls] == ["a"]
    assert [call.name for call in second.calls] == ["b", "c"]
    assert (third.text, third.finish) == ("hm", "length")
    assert (fourth.text, fourth.calls, fourth.finish) == ("done", (), "stop")
    assert model.remaining == 0


def test_ids_are_numbered_over_the_script():
    """Calls without an id get different ids in the whole script; a given id is kept, even twice."""
    model = ScriptedModel([[ask("a"), ask("b", id="x")], [ask("c", id="x"), ask("d")]])
    assert [call.id for _ in range(2) for call in model().calls] == ["call_1", "x", "x", "call_2"]


def test_a_function_reacts_to_the_history():
    """A turn that is a function sees the history of its own request and decides with it."""
    model = ScriptedModel([lambda messages: f"I read {messages[-1]['content']}"])
    assert model([{"role": "user", "content": "hello"}]).text == "I read hello"


def test_one_turn_too_many_is_noticed():
    """An agent that asks beyond the script fails its test, and the message says how to go on."""
    model = ScriptedModel(["done"])
    model()
    with pytest.raises(ScriptExhausted, match=r"1 turns .* turn 2.*then="):
        model()


def test_then_answers_for_ever():
    """With `then`, every answer after the script is that text."""
    model = ScriptedModel([], then="enough")
    assert [model().text for _ in range(3)] == ["enough"] * 3


def test_what_is_no_turn_is_refused():
    """Something that is no turn is a TypeError that lists what a turn may be."""
    with pytest.raises(TypeError, match="a text, a ToolCall"):
        ScriptedModel([42])()


def test_what_it_saw_is_kept_as_it_was():
    """The history seen at a request does not change when the caller's list grows later."""
    history = [{"role": "user", "content": "hi"}]
    model = ScriptedModel(["a", "b"])
    model(history, tools=["t"])
    history.append({"role": "assistant", "content": "a"})
    model(history)
    assert [len(seen) for seen in model.seen] == [1, 2]
    assert model.offered == [["t"], []]


async def test_async_is_the_same():
    """`acall` answers like the call."""
    model = ScriptedModel([ask("a", x=1)])
    assert (await model.acall()).calls[0].arguments == '{"x": 1}'


def test_ask_keeps_broken_text():
    """Argument text goes out byte for byte, so that it can be broken on purpose."""
    assert ask("a", '{"x": 1').arguments == '{"x": 1'
    assert ask("a", {"x": 1}, y="ü").arguments == '{"x": 1, "y": "ü"}'


def test_openai_shape():
    """The chat completion carries the arguments as text and answers null content beside calls."""
    reply = ScriptedModel([ask("pay", '{"cents": 1')])()
    body = reply.openai()
    choice = body["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"][0] == {
        "id": "call_1",
        "type": "function",
        "function": {"name": "pay", "arguments": '{"cents": 1'},
    }
    assert json.loads(json.dumps(body)) == body


def test_openai_shape_of_a_text():
    """A reply without calls has no `tool_calls` key at all."""
    message = Reply(text="hi").openai()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "hi"}


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"cents": 1}', {"cents": 1}),
        ('{"cents": 1', '{"cents": 1'),
        ("[1]", "[1]"),
        (b'{"a": 2}', {"a": 2}),
        ({"a": 3}, {"a": 3}),
    ],
)
def test_anthropic_shape(arguments, sent):
    """`input` is an object where the text is one, and the text itself where it is not."""
    reply = Reply(text="so", calls=(testing.ask("pay"),))
    call = type(reply.calls[0])(id="t1", name="pay", arguments=arguments)
    body = Reply(text="so", calls=(call,)).anthropic()
    assert body["content"] == [
        {"type": "text", "text": "so"},
        {"type": "tool_use", "id": "t1", "name": "pay", "input": sent},
    ]


@pytest.mark.parametrize(
    ("reply", "stop"),
    [
        (Reply(text="x"), "end_turn"),
        (Reply(calls=(ask("a"),)), "tool_use"),
        (Reply(calls=(ask("a"),), stop_reason="length"), "max_tokens"),
        (Reply(stop_reason="refusal"), "refusal"),
    ],
)
def test_anthropic_stop_reasons(reply, stop):
    """A stop reason is spelt in Anthropic's words; an unknown one is kept."""
    assert reply.anthropic()["stop_reason"] == stop


def test_what_would_be_lost_without_a_word_is_refused():
    """A text is no list of one-letter turns, and no field vanishes beside an argument text."""
    with pytest.raises(TypeError, match=r"such as \['Done\.'\]"):
        ScriptedModel("Done.")
    with pytest.raises(TypeError, match="write cents into it"):
        ask("charge", '{"order_id": "O-1"}', cents=5)
    assert ask("charge", {"order_id": "O-1"}, cents=5).arguments == '{"order_id": "O-1", "cents": 5}'
