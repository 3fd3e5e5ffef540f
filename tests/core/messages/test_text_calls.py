"""Calls written into a reply's text: which are taken, and which can never run."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pokayoke
from pokayoke.core.intake import REFUSALS, read_arguments
from pokayoke.core.messages.answers import result_messages
from pokayoke.core.messages.replies import read_reply

TOOLS = {"get": {"type": "object"}, "put": None}


def said(text, tools=TOOLS, **more):
    return read_reply({"choices": [{"message": {"role": "assistant", "content": text}, **more}]}, tools=tools)


@pytest.mark.parametrize(
    ("text", "calls", "rest"),
    [
        ('{"name": "get", "arguments": {"a": 1}}', [("get", {"a": 1})], ""),
        ('{"name": "get", "arguments": {"a": 1}}\n{"name": "put", "arguments": {}}', [("get", {"a": 1}), ("put", {})], ""),
        ('I look.\n```json\n{"tool": "get", "args": {"a": 1}}\n```', [("get", {"a": 1})], "I look."),
        ("<tool_call>{\"name\": \"get\", \"arguments\": {'a': 1}}</tool_call>", [("get", {"a": 1})], ""),
        ("Nothing to call.", [], "Nothing to call."),
    ],
)  # fmt: skip
def test_calls_in_a_text(text, calls, rest):
    """Calls a text spells out are taken in order, with ids of their own; what stands around them is the text."""
    reply = said(text)
    assert [(one.name, one.arguments) for one in reply.calls] == calls
    assert [one.id for one in reply.calls] == [f"text_{number}" for number in range(1, len(calls) + 1)]
    assert reply.text == rest
    assert reply.shape == ("text" if calls else "openai")
    assert reply.messages[0]["content"] == text


def test_without_tools_a_text_is_a_text():
    """Where no tool is known, no text is read for calls."""
    assert said('{"name": "get", "arguments": {"a": 1}}', tools=None).calls == ()


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ('{"name": "get", "arguments": {"a": 1}}', [None, "not_native"]),
        ('{"name": "put", "arguments": {"a": 2}}', [None]),
        ("I put it.", [None]),
    ],
)
def test_beside_a_native_call_one_in_the_text_is_a_suggestion(text, unread):
    """Both are taken, unless they are one call that a server sends twice; answers have the form of their calls."""
    native = {"id": "n", "type": "function", "function": {"name": "put", "arguments": '{"a":2}'}}
    reply = read_reply({"role": "assistant", "content": text, "tool_calls": [native]}, tools=TOOLS)
    assert [one.unread for one in reply.calls] == unread
    assert (reply.shape, reply.written) == ("openai", text)
    outcomes = [pokayoke.Outcome(status="ok", call_id=one.id, tool=one.name, text="x") for one in reply.calls]
    answers = result_messages(outcomes, reply.shape, in_text=reply.in_text)
    assert [one["role"] for one in answers] == ["tool", "user"][: len(unread)]
    (only,) = result_messages(outcomes, "anthropic", in_text=reply.in_text)
    assert [one["type"] for one in only["content"]] == ["tool_result", "text"][: len(unread)]


DAMAGED = [
    ("cut in the envelope", '{"name": "get", "arguments": {"a": 12', "cut_in_number"),
    ("cut in a text inside", json.dumps({"name": "get", "arguments": '{"a": 12'}), "cut_in_number"),
    ("cut two levels inside", json.dumps({"function": {"name": "get", "arguments": '{"a": 12'}}), "cut_in_number"),
    ("a key twice", '{"name": "get", "arguments": {"a": 1, "a": 2}}', "duplicate_key"),
    ("a list for an object", '{"name": "get", "arguments": [1]}', "not_an_object"),
    ("something beside it", '{"name": "get", "arguments": {"a": 1}, "amount": 5}', "unknown_envelope"),
    ("a name that is a value", "get(a=user)", "bare_reference"),
]


@pytest.mark.parametrize(("text", "reason"), [row[1:] for row in DAMAGED], ids=[row[0] for row in DAMAGED])
def test_damaged_arguments_are_refused_as_such(text, reason):
    """Arguments that cannot be read are handed on with the refusal, never as the sound object around them."""
    (one,) = said(text).calls
    assert one.unread == reason
    assert read_arguments(one.arguments, schema=EDITED).value is None


EDITED = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def test_an_edited_text_stays_a_suggestion():
    """What one character would mend keeps its grade, so that a write still gets a suggestion and a read may run."""
    inner = '{"a": 1, "b" 2}'
    (one,) = said(json.dumps({"name": "get", "id": "x", "arguments": inner}), tools={"get": EDITED}).calls
    assert (one.arguments, one.unread) == ({"a": 1, "b": 2}, "edit_suggested")
    (one,) = said('{"name": "get", "arguments": {\n"a": 1,\n}}', tools={"get": {**EDITED, "required": []}}).calls
    assert (one.arguments, one.unread) == ({"a": 1}, "uneven_commas")


@pytest.mark.parametrize(
    "text",
    [
        'They wrote "{"name": "get", "arguments": {"a": 1, "b": 2}}"',
        '> <function=get>{"a": 1, "b": 2}</function>',
        '<think>maybe <function=get>{"a": 1, "b": 2 </function>',
    ],
)
def test_the_text_of_a_refused_call_is_no_object(text):
    """Who has nothing but the text, as a replay of the trace has, cannot take it for arguments either."""
    (one,) = said(text, tools={"get": EDITED}).calls
    assert one.unread in ("disowned", "quoted")
    assert read_arguments(one.arguments, schema=EDITED).value is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('Not this: "<function=delete_file>{"path": "x"}</function>"', "disowned"),
        ('<think>maybe <function=delete_file>{"path": "x"</function>', "quoted"),
        ("<function=move_file><parameter=path>x<parameter=to>y</parameter></function>", "tagged_value"),
    ],
)
@pytest.mark.parametrize("effect", ["read", "write"])
def test_a_refused_call_never_runs_in_the_loop(text, code, effect):
    """What its surroundings refuse stays refused where the arguments alone would fit the schema."""
    ran, heard = [], []

    @pokayoke.tool(effect=effect, output="text")
    def delete_file(path: str) -> str:
        """Delete a file."""
        ran.append(path)
        return "deleted"

    @pokayoke.tool(effect=effect, output="text")
    def move_file(path: str, to: str = "") -> str:
        """Move a file."""
        ran.append(path + to)
        return "moved"

    replies = iter([text, "done", "done"])

    def model(messages, _):
        heard.append(str(messages))
        return {"role": "assistant", "content": next(replies)}

    pokayoke.Guard([delete_file, move_file]).loop(model, "go", format="json")
    assert ran == []
    assert REFUSALS[code][1] in heard[1]


@given(st.text(max_size=40))
def test_no_damage_makes_an_envelope_run(inner):
    """Whatever stands where arguments belong: what runs is what it reads as, or nothing."""
    envelope = json.dumps({"name": "get", "arguments": inner})
    expected = read_arguments(inner, schema={"type": "object"})
    for one in said(envelope).calls:
        if expected.grade in ("exact", "lossless"):
            assert one.arguments == expected.value
        else:
            assert one.unread is not None
            assert isinstance(one.arguments, dict) == (expected.grade == "edited")


def test_a_cut_text_runs_nothing():
    """The stop reason of the reply is on every call found in its text."""
    reply = said('{"name": "get", "arguments": {"a": 1}}', finish_reason="length")
    assert [one.stop_reason for one in reply.calls] == ["length"]
