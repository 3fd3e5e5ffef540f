"""Arguments in tags: read by the types of the schema, or refused."""

import json

import pytest
from intake_cases import TOOLS

from pokayoke import Contract, Guard
from pokayoke.core.intake import read_calls

GLM = "<tool_call>f\n{}\n</tool_call>"


def pair(key, value):
    """One argument in tags."""
    return f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (GLM.format(pair("a", "x")), {"a": "x"}),
        (GLM.format(pair("a", "5") + "\n" + pair("n", "5")), {"a": "5", "n": 5}),
        (GLM.format(pair("l", "[1, 2]")), {"l": [1, 2]}),
        (GLM.format(pair("a", 'it\'s "so"')), {"a": 'it\'s "so"'}),
        (GLM.format(pair("a", "")), {"a": ""}),
        ("<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>", {"a": "x"}),
        ('<invoke name="f">\n<parameter name="a">x</parameter>\n</invoke>', {"a": "x"}),
    ],
)
def test_arguments_in_tags_are_read_by_the_types_of_the_schema(text, value):
    """The declared type says whether a value is text or JSON."""
    (call,) = read_calls(text, tools=TOOLS).calls
    assert (call.name, call.reading.grade, call.reading.value) == ("f", "lossless", value)
    assert call.reading.repairs == ("tagged_arguments",)
    assert call.reading.canonical == json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
    assert read_calls(text).calls[0].reading.value is None


@pytest.mark.parametrize(
    "body",
    [
        pair("n", "five"),
        pair("n", ""),
        pair("u", "5"),
        pair("any", "5"),
        pair("true", "5"),
        pair("other", "x"),
        pair("a", "x") + pair("a", "x"),
        pair("a", "\nx\n"),
        pair("a", "x &amp; y"),
        pair("a", "<parameter=b>x"),
        pair("a", "x") + "and more",
        "<parameter=a>\nx</parameter>",
    ],
)
def test_an_argument_in_tags_that_is_in_doubt_refuses_the_call(body):
    """No type, two types, no JSON, an escape, a line break that may be layout, anything beside the tags."""
    (call,) = read_calls(GLM.format(body) if "arg_key" in body else f"<function=f>{body}</function>", tools=TOOLS).calls
    assert call.reading.value is None


NULLABLE = {
    "properties": {
        "s": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "n": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        "both": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        "open": {"anyOf": [{"type": "integer"}, {"maxLength": 5}]},
    }
}


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("s", "Paris", {"s": "Paris"}),
        ("s", "5", {"s": "5"}),
        ("n", "5", {"n": 5}),
        ("n", "null", {"n": None}),
        ("s", "null", None),
        ("s", "None", None),
        ("s", "", None),
        ("both", "5", None),
        ("open", "5", None),
    ],
)
def test_an_optional_argument_in_tags_is_read_where_it_can_be_nothing_else(key, written, value):
    """Text or null is text if it does not say null; of a union of other kinds, and of an open one, nobody knows."""
    (call,) = read_calls(GLM.format(pair(key, written)), tools={"f": NULLABLE}).calls
    assert call.reading.value == value


def test_arguments_in_tags_without_an_end_are_refused():
    """More of them may have been cut off."""
    (call,) = read_calls("<tool_call>f\n" + pair("a", "x"), tools=TOOLS).calls
    assert call.reading.value is None


BASH = {
    "type": "object",
    "properties": {
        "command": {"type": "string"},
        "keep": {"type": "boolean"},
        "place": {"$ref": "#/$defs/Place"},
        "mode": {"enum": ["a", "b"]},
        "either": {"type": ["string", "integer"]},
    },
    "$defs": {"Place": {"type": "object", "properties": {"row": {"type": "integer"}}}},
}


def on_lines(**values):
    """A call in the tags of Qwen-Coder, each value on lines of its own."""
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function=f>\n{body}</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (on_lines(command="wc -l < in.txt"), {"command": "wc -l < in.txt"}),
        (on_lines(command="cat <<END\nx\nEND"), {"command": "cat <<END\nx\nEND"}),
        (on_lines(command="<p>x</p>\n<!-- y -->"), {"command": "<p>x</p>\n<!-- y -->"}),
        (on_lines(command="  indented: 1  "), {"command": "  indented: 1  "}),
        (on_lines(command="\nx\n"), {"command": "\nx\n"}),
        (on_lines(command="x", keep="False"), {"command": "x", "keep": False}),
        (on_lines(place='{"row": 3}', mode="b"), {"place": {"row": 3}, "mode": "b"}),
        (on_lines(either="three"), {"either": "three"}),
        ('<function=f><parameter="command">x -y</parameter></function>', {"command": "x -y"}),
        (
            "<function name='f'><param name='command'><![CDATA[a < b && c]]></param></function>",
            {"command": "a < b && c"},
        ),
        ('<tool name="f"><parameter name="command">x</parameter></tool>', {"command": "x"}),
        (
            (
                '<｜DSML｜invoke name="f"><｜DSML｜parameter name="command" string="true">\n007 &amp;\n</｜DSML｜parameter>'
                '<｜DSML｜parameter name="other" string="false">[1]</｜DSML｜parameter></｜DSML｜invoke>'
            ),
            {"command": "\n007 &amp;\n", "other": [1]},
        ),
        (
            '<|tool_call>call:f{command:<|"|>a "b" {c}<|"|>,place:{row:3}}<tool_call|>',
            {"command": 'a "b" {c}', "place": {"row": 3}},
        ),
        ("<start_function_call>call:f{keep:true}<end_function_call>", {"keep": True}),
        ("<tool_call>f</tool_call>", {}),
    ],
)
def test_a_value_is_read_where_only_one_thing_can_be_meant(text, value):
    """Signs of a shell, of HTML and of Python, indentation, quoted names, references and attributes leave no doubt."""
    (call,) = read_calls(text, tools={"f": BASH}).calls
    assert (call.name, call.reading.grade, call.reading.value) == ("f", "lossless", value)


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("<function=f><parameter=command>ls</function>", "command: </function>"),
        ("<function=f><parameter=command>ls", "command: the missing </parameter>"),
        (on_lines(command="echo </tool_call> x"), "command: </tool_call>"),
        (on_lines(command="x").replace("</parameter>", "<parameter=keep>"), "command: <parameter=keep>"),
        (on_lines(either="3"), "either: it may be text"),
        (on_lines(keep="yes"), "keep: it is not JSON"),
        (on_lines(other="x"), "other: its type is not declared"),
        (on_lines(command="x &lt; y"), "command: &lt;"),
        ("<function=f><parameter=command>x\n</parameter></function>", "command: there is a line break at an end"),
        (2 * "<function=f><parameter=command>x</parameter>" + "</function>", "f: <function=f><paramet"),
        (
            "<function=f><parameter=command>x</parameter><parameter=command>y</parameter></function>",
            "command: it is given twice",
        ),
    ],
)
def test_a_refused_value_is_named_with_its_sign(text, about):
    """The hint names both, so that the model does not repeat itself."""
    (call, *_) = read_calls(text, tools={"f": BASH}).calls
    assert (call.reading.reason, call.reading.about) == ("tagged_value", about)
    refused = call.to_tool_call("c1")
    assert refused.unread == f"tagged_value {about}"
    tool = Contract.from_schema("f", BASH, output_schema="text", effect="read", handler=lambda **_: "ran")
    with Guard([tool]).run() as run:
        assert f"({about})" in run.call(refused).findings[0].hint


@pytest.mark.parametrize("text", ['{a:<|"|>x}', '{a:"x"}', '{a:<|"|>x<|"|>,b:<|"|>y}'])
def test_texts_between_tokens_need_both(text):
    """A token without its partner, or a quotation mark beside one, is a lost quote."""
    (call,) = read_calls(f"<|tool_call>call:f{text}<tool_call|>", tools={"f": None}).calls
    assert call.reading.reason == "lost_quote"
