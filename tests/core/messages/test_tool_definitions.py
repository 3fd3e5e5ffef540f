"""Instructions for models without tool calls."""

import json

import pytest

from pokayoke.core.contract.contract import Contract
from pokayoke.core.messages.replies import read_reply
from pokayoke.core.messages.tool_definitions import build_definitions, build_instructions
from pokayoke.errors import ContractError

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    Contract.from_schema("weather", SCHEMA, description="Look at the sky.", output_schema="text", effect="read"),
    Contract.from_schema("plain", SCHEMA, output_schema="text"),
]


@pytest.mark.parametrize(("kind", "phrase"), [("json", "one JSON object:"), ("jsonl", "one JSON object per line")])
def test_the_tools_and_how_to_call_them(kind, phrase):
    """Each tool is one line with its schema; how a call is written follows; nothing a model need not know is said."""
    text = build_instructions(build_definitions(TOOLS, "mcp"), kind)
    lines = [json.loads(line) for line in text.splitlines() if line.startswith('{"name"')]
    assert lines == [
        {"name": "weather", "description": "Look at the sky.", "inputSchema": SCHEMA},
        {"name": "plain", "inputSchema": SCHEMA},
    ]
    assert phrase in text


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_a_call_written_as_told_is_read(kind):
    """A model that does what the text says is understood: the example it gives, filled in, is one call."""
    text = build_instructions(build_definitions(TOOLS, "mcp"), kind)
    start = text.index('{"name": "<')
    written = (
        text[start : text.index("}}", start) + 2]
        .replace("<name of the tool>", "weather")
        .replace("{<its arguments>}", '{"city": "Ulm"}')
    )
    found = read_reply({"role": "assistant", "content": written}, tools={"weather": SCHEMA})
    assert [(one.name, one.arguments) for one in found.calls] == [("weather", {"city": "Ulm"})]


def test_without_tools_it_says_so():
    """No tool, no manual: the model is told to answer."""
    assert build_instructions([], "json") == "There are no tools. Answer directly."


def test_an_unknown_format_is_an_error():
    """A format nobody knows is an error that names those there are."""
    with pytest.raises(ContractError, match="use json or jsonl"):
        build_instructions([], "xml")
