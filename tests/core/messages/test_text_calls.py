"""Calls written into a reply's text: which are taken, and which can never run."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pokayoke
from pokayoke.core.intake import REFUSALS, read_arguments
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
    """Only for models without tool calls is a text looked at; a native call makes looking needless."""
    text = '{"name": "get", "arguments": {"a": 1}}'
    assert said(text, tools=None).calls == ()
    native = {"id": "n", "type": "function", "function": {"name": "put", "arguments": "{}"}}
    reply = read_reply({"role": "assistant", "content": text, "tool_calls": [native]}, tools=TOOLS)
    assert [one.id for one in reply.calls] == ["n"]


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
    assert (one.arguments, one.unread) == (inner, None)
    assert read_arguments(inner, schema=EDITED).grade == "edited"


def test_an_edit_that_has_no_text_of_its_own_is_refused():
    """An envelope that was mended as a whole is not taken for arguments."""
    (one,) = said('{"name": "get", "arguments": {\n"a": 1,\n}}', tools={"get": {**EDITED, "required": []}}).calls
    assert one.unread == "uneven_commas"


@pytest.mark.parametrize(
    "text",
    [
        'Do not run this: {"name": "get", "arguments": {"a": 1, "b": 2}}',
        'Do not run this: <function=get>{"a": 1, "b": 2}}</function>',
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
        ('Do not run this: <function=delete_file>{"path": "x"}}</function>', "disowned"),
        ('<think>maybe <function=delete_file>{"path": "x"</function>', "quoted"),
        ('{"name": "move_file", "arguments": {\n"path": "x",\n}}', "not_read"),
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
            assert one.unread is not None or (one.arguments, expected.grade) == (inner, "edited")
            assert one.unread is None or read_arguments(one.arguments, schema={"type": "object"}).value is None


def test_a_cut_text_runs_nothing():
    """The stop reason of the reply is on every call found in its text."""
    reply = said('{"name": "get", "arguments": {"a": 1}}', finish_reason="length")
    assert [one.stop_reason for one in reply.calls] == ["length"]
