"""Arguments in tags: read by the types of the schema, or refused."""

import json

import pytest
from intake_cases import TOOLS

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
