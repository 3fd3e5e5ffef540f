"""Where a text that stands for no value is a finding, and where it is what it says."""

import pytest

from pokayoke import Contract, Guard, ToolCall
from pokayoke.core.check.argument_checks import ArgumentChecks
from pokayoke.core.check.findings import stand_in_findings
from pokayoke.core.correct.correct import correct_arguments
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.schema.schema import compile_schema

STRING = {"type": "string"}


def codes(node, text, *, name="v", required=True, **fields):
    """The findings about a text in one field of a tool, by text and by dict alike."""
    schema = {"type": "object", "properties": {name: node}, "required": [name] * required}
    tool = Contract.from_schema("t", schema, **fields)
    value = {name: [text] if node.get("type") == "array" else text}
    found = [
        [(finding.code, finding.at) for finding in correct_arguments(value, tool, kinds=(), canonical=dumped).findings]
        for dumped in (None, dump_compact(value, sort=True))
    ]
    assert found[0] == found[1]
    return [code for code, _ in found[0]]


@pytest.mark.parametrize(("text", "code"), [("TODO", "placeholder"), ("/tmp/x</arg_value>", "leaked_markup")])
@pytest.mark.parametrize(
    ("name", "node", "fields"),
    [
        ("path", STRING, {}),
        ("filePath", STRING, {"required": False}),
        ("paths", {"type": "array", "items": STRING}, {}),
        ("user_id", STRING, {}),
        ("orderIds", {"type": "array", "items": STRING}, {}),
        ("v", STRING, {"identity": ("v",)}),
        ("v", STRING, {"paths": {"v": ("/tmp",)}}),
        ("v", {"type": "string", "pattern": "^."}, {}),
        ("v", {"type": "string", "format": "uri-reference"}, {}),
        ("v", {"anyOf": [{"enum": ["a"]}, STRING]}, {}),
    ],
)
def test_a_place_with_a_form_takes_no_stand_in(name, node, fields, text, code):
    """At a path, an id, an identity, a format, a pattern or a choice, a placeholder and markup are findings."""
    if node.get("format") and code == "leaked_markup":
        assert codes(node, text, name=name, **fields)
        return
    assert codes(node, text, name=name, **fields) == [code]
    assert codes(node, text, name=name, literal=(name,), **fields) == []


@pytest.mark.parametrize("text", ["TODO", "...", "<user_id>", "{{name}}", "say </arg_value> <|im_end|>"])
@pytest.mark.parametrize(
    ("name", "node", "fields"),
    [
        ("body", STRING, {}),
        ("user_id", STRING, {"required": False}),
        ("v", {"type": "string", "format": "markdown"}, {}),
        ("v", {"type": "string", "format": "regex"}, {"identity": ("v",)}),
        ("v", {"type": "string", "minLength": 1}, {}),
        ("v", {"type": "array", "items": STRING}, {}),
        ("tags", {"type": "array", "items": STRING}, {}),
    ],
)
def test_other_texts_are_what_they_say(name, node, fields, text):
    """A letter, an optional id, a template: what looks like a placeholder there may be meant."""
    if node.get("format") == "regex" and text.startswith("{{"):
        return  # no regular expression
    assert codes(node, text, name=name, **fields) == []


def test_a_name_has_to_be_declared_to_give_a_form():
    """What an open object holds beside its declared fields is no path or id by its name."""
    tool = Contract.from_schema("t", {"properties": {"user_id": STRING}, "required": ["user_id"]})
    assert correct_arguments({"user_id": "u1", "other_path": "TODO"}, tool, kinds=()).findings == ()


@pytest.mark.parametrize(
    "node",
    [
        {"type": "string", "pattern": ".", "default": "TODO"},
        {"enum": ["TODO", "DONE"]},
        {"type": "string", "pattern": ".", "examples": ["TODO"]},
        {"type": "string", "pattern": ".", "const": "TODO"},
    ],
)
def test_the_schema_may_name_it(node):
    """A text that the schema names at a place is a value there."""
    assert codes(node, "TODO") == []


def test_a_refused_value_is_named_for_what_it_is():
    """Where the schema refuses a value, a placeholder is the reason to name, at any place."""
    assert codes({"type": "integer"}, "TODO") == ["placeholder"]
    assert codes({"type": "integer"}, "soon") == ["wrong_type"]
    assert codes({"type": "array", "items": STRING}, "TODO", name="path") == ["placeholder"]


@pytest.mark.parametrize(
    ("text", "required", "found"), [("\u200b\u200b", True, 1), ("\u200b", False, 0), ("", True, 0), (" ", True, 0)]
)
def test_a_required_text_has_to_show_something(text, required, found):
    """Invisible characters are no value of a required field; an empty text is what the schema says about it."""
    assert codes(STRING, text, required=required) == ["unseen_text"] * found
    assert codes(STRING, text, required=required, literal=("v",)) == []


def test_finding():
    """A finding says where it stands and what to send instead, at every depth, in order."""
    schema = compile_schema({"properties": {"user": {"properties": {"id": STRING}, "required": ["id"]}}})
    checks = ArgumentChecks(schema, guarded=("tags",))
    found = stand_in_findings({"user": {"id": "<user_id>"}, "tags": ["a", "x<|end|>"], "ok": "fine"}, checks)
    assert [(finding.code, finding.at) for finding in found] == [
        ("placeholder", "/user/id"),
        ("leaked_markup", "/tags/1"),
    ]
    assert "`user.id`" in found[0].hint
    assert "`tags[1]`" in found[1].hint
    assert "value alone" in found[1].hint
    assert stand_in_findings("TODO", checks, {()})[0].at == ""


@pytest.mark.parametrize("text", ["/tmp/x</arg_value>", 'notes Tokyo<|"|>'])
def test_markup_in_a_path_stops_a_write(text):
    """A write whose path holds leaked markup is refused with a hint, and nothing ran."""
    ran = []
    schema = {"type": "object", "properties": {"path": STRING}, "required": ["path"]}
    save = Contract.from_schema("save", schema, output_schema="text", handler=lambda path: ran.append(path) or "ok")
    with Guard([save]).run() as run:
        outcome = run.call(ToolCall("c1", "save", {"path": text}))
    assert (outcome.status, outcome.findings[0].code, ran) == ("refused", "leaked_markup", [])
    assert "`path`" in outcome.text


def test_a_tool_without_such_places_is_not_searched():
    """Where nothing in a schema has a form, a placeholder is no reason to look."""
    closed = {"properties": {"body": STRING}, "additionalProperties": False}
    value = {"body": "<user_id>"}
    assert not ArgumentChecks(compile_schema(closed)).may_need_change(value, dump_compact(value))
    guarded = ArgumentChecks(compile_schema(closed), guarded=("body",))
    assert guarded.may_need_change(value, dump_compact(value))
