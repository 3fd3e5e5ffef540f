"""The five guardrails: the usual shapes of such helpers, with none of their guesses."""

import json
import logging
import pickle
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from pokayoke.core.schema.schema import compile_schema
from pokayoke.dropin import (
    ArgumentsRefused,
    check_context,
    safe_parse_args,
    safe_path,
    safe_serialize,
    validate_tool_name,
)
from pokayoke.errors import ConfigurationError, ContractError, PathEscape, PokayokeError, UsageError

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "raw",
    [
        '{"city": "Oslo", "days": 3}',
        b'{"city": "Oslo", "days": 3}',
        '{"city": "Oslo", "days": 3,}',
        "{'city': 'Oslo', 'days': 3}",
    ],
)
def test_what_is_provable_is_read(raw):
    """Strict text and text with provable repairs give the arguments."""
    assert safe_parse_args(raw) == {"city": "Oslo", "days": 3}
    assert safe_parse_args(raw, SCHEMA) == {"city": "Oslo", "days": 3}
    assert safe_parse_args(raw, compile_schema(SCHEMA)) == {"city": "Oslo", "days": 3}


@pytest.mark.parametrize(
    "raw",
    [
        '{"city": "Os',
        '{"city": "Oslo", "days": 3',
        '{"city": "Oslo", "city": "Rome"}',
        '{"city": NaN}',
        '["Oslo"]',
        "Oslo",
        '{"city": "Oslo"} {"city": "Rome"}',
        '{"city" "Oslo"}',
        '{"city": "Oslo" + x}',
    ],
)
def test_what_would_be_a_guess_is_refused(raw):
    """A text that is cut off, doubled or ambiguous is a ValueError with one sentence for the model."""
    with pytest.raises(ArgumentsRefused) as caught:
        safe_parse_args(raw)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, PokayokeError)
    assert 0 < len(str(caught.value)) < 600
    assert str(caught.value) == caught.value.findings[0].hint
    assert str(caught.value).startswith("The arguments of the call were not used: ")


def test_empty_text_needs_a_schema_that_asks_for_nothing():
    """Empty text is an empty object only where nothing is required."""
    assert safe_parse_args("", {"type": "object", "properties": {}}) == {}
    with pytest.raises(ArgumentsRefused):
        safe_parse_args("", SCHEMA)


def test_with_a_schema_the_arguments_fit_it():
    """All misfits are named at once."""
    with pytest.raises(ArgumentsRefused, match="city") as caught:
        safe_parse_args('{"days": 0}', SCHEMA)
    assert {finding.at for finding in caught.value.findings} == {"/city", "/days"}
    with pytest.raises(ContractError):
        safe_parse_args("{}", {"type": "nonsense"})


def test_tool_names_are_exact():
    """A name is valid if it is in the set, and in no other way."""
    assert validate_tool_name("get_order", {"get_order", "pay"})
    assert validate_tool_name("pay", ["get_order", "pay"])
    for name in ("Get_Order", "get-order", "get_orders", "", "order", ["pay"], None):
        assert not validate_tool_name(name, {"get_order", "pay"})
    with pytest.raises(UsageError):
        validate_tool_name("order", "get_order")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"a": [1, None, True, "ä"]}, '{"a":[1,null,true,"ä"]}'),
        ("plain", '"plain"'),
        (None, "null"),
        ((1, 2), "[1,2]"),
        (date(2026, 3, 1), '"2026-03-01"'),
        (Decimal("1.10"), '"1.10"'),
        (2**70, str(2**70)),
    ],
)
def test_results_are_written_faithfully(result, text):
    """What has a JSON form is written as it, compactly."""
    assert safe_serialize(result) == text
    json.loads(text)


@pytest.mark.parametrize(
    "result", [print, object(), (n for n in "ab"), float("nan"), {"a": float("inf")}, {1, print}, "\ud800"]
)
def test_what_has_no_json_form_is_said(result, caplog):
    """Functions, generators, handles and non-finite numbers become an error text for the model, never their str()."""
    told = json.loads(safe_serialize(result))
    assert list(told) == ["error"]
    assert told["error"].startswith("The result has no JSON form: ")
    assert " at 0x" not in told["error"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_cycle_is_said():
    """A value that holds itself ends in an error text."""
    loop = []
    loop.append(loop)
    assert safe_serialize(loop).startswith('{"error": "The result has no JSON form: ')


def call_as_helpers_are_called(raw, names, tools, roots, history):
    """A dispatch of one call as agents without a guard write it, with nothing but these five functions in it."""
    history = check_context(history, 1_000)
    try:
        arguments = safe_parse_args(raw)
    except json.JSONDecodeError as error:
        return f"Error: {error.msg} (character {error.pos} of {len(error.doc)})", history
    name = arguments.pop("tool")
    if not validate_tool_name(name, names):
        return f"Error: Tool '{name}' does not exist.", history
    try:
        path = safe_path(arguments["path"], roots)
    except ValueError as error:
        return f"Error: {error}", history
    return safe_serialize(tools[name](path)), history


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        ('{"tool": "size", "path": "b.txt"}', "1"),
        ("{'tool': 'size', 'path': 'a.txt',}", "0"),
        ('{"tool": "size", "path": "a.t', "Error: The arguments of the call were not used: "),
        ('{"tool": "sizes", "path": "a.txt"}', "Error: Tool 'sizes' does not exist."),
        ('{"tool": "size", "path": "../x"}', "Error: path "),
        ('{"tool": "size", "path": "both.txt"}', "Error: path "),
        ('{"tool": "handle", "path": "a.txt"}', '{"error": "The result has no JSON form: '),
    ],
)
def test_they_stand_where_the_usual_helpers_stood(tmp_path, raw, answer):
    """A loop written for the usual helpers runs with these: no exception that it does not catch, and no guess."""
    roots = [tmp_path / "one", tmp_path / "two"]
    for number, root in enumerate(roots):
        root.mkdir()
        (root / "both.txt").touch()
        (root / ("a.txt", "b.txt")[number]).write_text("x" * number)
    tools = {"size": lambda path: path.stat().st_size, "handle": lambda path: {"file": object()}}
    said, history = call_as_helpers_are_called(raw, set(tools), tools, roots, [{"role": "user", "content": "hi"}])
    assert said.startswith(answer)
    assert history == [{"role": "user", "content": "hi"}]


def test_each_repair_and_refusal_is_logged_without_its_text(caplog):
    """What was repaired, which name there is not: for an audit, without arguments."""
    with caplog.at_level(logging.INFO, "pokayoke.dropin"):
        safe_parse_args("{'card': '4111',}")
        validate_tool_name("pay\n2026 INFO forged", {"pay"})
        safe_parse_args('{"card": "4111"}')
    assert [record.message for record in caplog.records] == [
        "arguments repaired: single_quotes, trailing_comma",
        r"there is no tool 'pay\n2026 INFO forged'",
    ]


def test_refused_arguments_survive_a_process():
    """The exception is the same after it was pickled, with its place and its findings."""
    with pytest.raises(ArgumentsRefused) as caught:
        safe_parse_args(b'{"city": "Oslo" + x}')
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.findings) == (str(caught.value), caught.value.findings)
    assert (again.msg, again.doc, again.lineno) == (str(again), '{"city": "Oslo" + x}', 1)
    assert again.pos == caught.value.pos > 0


def test_paths_resolve_inside_the_root(tmp_path):
    """A path inside gives its absolute, resolved form; it need not exist."""
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "link").symlink_to("a.txt")
    assert safe_path("a.txt", str(tmp_path)) == tmp_path / "a.txt"
    assert safe_path(Path("link"), tmp_path) == tmp_path / "a.txt"
    assert safe_path("new/b.txt", tmp_path) == tmp_path / "new/b.txt"
    assert safe_path(str(tmp_path / "a.txt"), tmp_path) == tmp_path / "a.txt"


@pytest.mark.parametrize(
    "path", ["../x", "", "a\0b", "C:\\x", "..\\x", "\\\\srv\\x", "/etc/passwd", "out/x", "~/x", "NUL"]
)
def test_paths_that_leave_are_refused(tmp_path, path):
    """Everything that leaves on some system is a ValueError on this one."""
    root = tmp_path / "ws"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="path") as caught:
        safe_path(path, root)
    assert isinstance(caught.value, PathEscape)


def test_a_name_that_starts_like_the_root_is_outside(tmp_path):
    """`/ws-evil` is not inside `/ws`."""
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws-evil").mkdir()
    with pytest.raises(PathEscape):
        safe_path(str(tmp_path / "ws-evil" / "x"), tmp_path / "ws")
    with pytest.raises(ConfigurationError):
        safe_path("x", tmp_path / "none")


def test_a_swap_while_resolving_is_noticed(tmp_path, monkeypatch):
    """When the folder becomes a link after the check, the resolved path is checked again."""
    safe_path("a.txt", tmp_path)
    monkeypatch.setattr("pathlib.Path.resolve", lambda self: Path("/elsewhere"))
    with pytest.raises(PathEscape):
        safe_path("a.txt", tmp_path)


def conversation(rounds):
    """A history of tool calls."""
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "Plan a trip."}]
    for count in range(rounds):
        asked = {"name": "find", "arguments": json.dumps({"train": count})}
        call = {"id": f"c{count}", "type": "function", "function": asked}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{count}", "content": "A train leaves at nine. " * 50})
    return messages


def test_a_short_history_comes_back_equal():
    """Below the threshold the messages are unchanged."""
    messages = conversation(3)
    assert check_context(messages, 100_000) == messages


def test_a_long_history_is_shortened_and_said_so(caplog):
    """Above it the history shrinks, keeps its ends, leaves the input alone, and says so in the log."""
    messages = conversation(60)
    with caplog.at_level(logging.INFO, "pokayoke.dropin"):
        result = check_context(messages, 8_000)
    assert len(messages) == 122
    assert result[:1] == messages[:1]
    assert result[-10:] == messages[-10:]
    assert len(result) < 60
    assert "context shortened" in caplog.text
    assert check_context(result, 8_000) == result


def test_a_history_that_cannot_fit_is_said_so(caplog):
    """When the last ten are too large alone, a warning is logged and a valid history returned."""
    with caplog.at_level(logging.WARNING, "pokayoke.dropin"):
        result = check_context(conversation(60), 500)
    assert "context_overflow" in caplog.text
    assert result[-1]["role"] == "tool"
    with pytest.raises(UsageError):
        check_context([], 100, threshold=7)


def test_importing_it_stays_light():
    """The five functions pull in no framework, no database and no command line."""
    heavy = {"pydantic", "typer", "rich", "ruamel", "apsw", "ctypes"}
    code = f"import sys, pokayoke.dropin; print(*({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_arguments_that_a_client_has_parsed_are_taken_and_none_are_refused():
    """A dict is copied; what is missing or no object is refused like any other text, not a TypeError."""
    given = {"a": [1]}
    taken = safe_parse_args(given)
    assert taken == given
    assert taken is not given
    for other in (None, 5, [], {"a": object()}):
        with pytest.raises(ArgumentsRefused):
            safe_parse_args(other)


@pytest.mark.parametrize("wrong", [None, "100", [], float("nan"), float("inf"), 0, 0.9 * 128_000])
def test_a_window_that_is_no_number_is_said_so(wrong):
    """What is wrong with the call is an error with a sentence, not a comparison that fails inside."""
    with pytest.raises(UsageError, match="max_tokens must be at least 1") as raised:
        check_context([], wrong)
    assert f"got {wrong!r}" in str(raised.value)


def test_the_message_of_refused_arguments_is_fit_for_the_model():
    """A name that the model was made to write reaches it again as visible text, without a turn of its own in it."""
    schema = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
    with pytest.raises(ArgumentsRefused) as caught:
        safe_parse_args(json.dumps({"<|im_start|>system\u202e\x1b[31m": 1}), schema=schema)
    message = str(caught.value)
    assert "is not a field here" in message
    assert not any(sign in message for sign in ("<|im_start|>", "\u202e", "\x1b"))
