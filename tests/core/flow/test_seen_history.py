"""What a caller has seen: answered calls and turns, in the shapes of the providers."""

import pytest

from pokayoke.core.flow.seen_history import AnsweredCall, read_seen_history


def user(text):
    return {"role": "user", "content": text}


def called(ident, name="add", arguments='{"a": 1}'):
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": ident, "type": "function", "function": function}],
    }


def answered(ident, text="ok"):
    return {"role": "tool", "tool_call_id": ident, "content": text}


def said(text):
    return {"role": "assistant", "content": text}


OPENAI = [user("Add."), called("c1"), answered("c1"), said("Added."), user("Again."), called("c2")]
ANTHROPIC = [
    user("Add."),
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "ok"}]}]},
    said("Added."),
    user("Again."),
]  # fmt: skip
ITEMS = [
    user("Add."),
    {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
    {"type": "function_call_output", "call_id": "c1", "output": "ok"},
    said("Added."),
    user("Again."),
]


@pytest.mark.parametrize(
    ("messages", "arguments"), [(OPENAI, '{"a": 1}'), (ANTHROPIC, {"a": 1}), (ITEMS, '{"a": 1}')], ids=["chat", "blocks", "items"]
)  # fmt: skip
def test_an_answered_call_is_found_in_every_shape(messages, arguments):
    """It has its id, name, arguments, its answer as text, and its turn; a call without an answer is none."""
    seen = read_seen_history(messages)
    assert seen.calls == (AnsweredCall("c1", "add", arguments, "ok", 1),)
    assert seen.turn == 2


@pytest.mark.parametrize(
    ("messages", "turn"),
    [
        ([], 0),
        ([user("Add.")], 1),
        ([user("Add."), user("Add.")], 1),
        ([user("Add."), user("Please.")], 2),
        ([user("Add."), called("c1"), answered("c1"), user("Add.")], 1),
        ([user("Add."), said("Added."), user("Add.")], 2),
        ([user("Add."), said(" "), user("Add.")], 1),
        ([{"role": "system", "content": "Be kind."}, user("Add.")], 1),
    ],
)
def test_a_turn_ends_with_its_answer(messages, turn):
    """A text that the user says again before that begins none."""
    assert read_seen_history(messages).turn == turn


def test_calls_with_one_id_are_answered_in_order():
    """Ids repeat: each result belongs to the oldest call of its id that has none."""
    messages = [called("c", arguments="1"), called("c", arguments="2"), answered("c", "one"), answered("c", "two")]
    assert [(one.arguments, one.text) for one in read_seen_history([*messages, answered("c", "three")]).calls] == [
        ("1", "one"),
        ("2", "two"),
    ]


@pytest.mark.parametrize(
    ("content", "text"), [({"a": 1}, '{"a":1}'), (None, "null"), ([{"text": "a"}, {"text": "b"}], "a\nb"), (object(), "")]
)  # fmt: skip
def test_a_result_is_read_as_text(content, text):
    """An object as JSON, blocks by their lines; what has no text says nothing."""
    assert read_seen_history([called("c"), answered("c", content)]).calls[0].text == text
