"""Calls written as text: found in order, each whole or refused by name."""

import json
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.intake import Calls, read_arguments, read_calls
from pokayoke.core.intake import call_finder as module
from pokayoke.errors import UsageError

F = ("f", {"a": 1})

G = ("g", {"b": "x"})

CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
    "additionalProperties": False,
}

WITH = {"a": 1, "b": "x"}


def seen(calls):
    """Names and values, in order."""
    return [(call.name, call.reading.value) for call in calls.calls]


WHOLE = [
    ('{"name": "f", "arguments": {"a": 1}}', [F], ""),
    ('{"name": "f", "parameters": {"a": 1}}', [F], ""),
    ('{"tool": "f", "args": {"a": 1}}', [F], ""),
    ('{"function": "f", "params": {"a": 1}}', [F], ""),
    ('{"tool_name": "f", "tool_input": {"a": 1}, "id": "c1"}', [F], ""),
    ('{"function_name": "f", "kwargs": {"a": 1}}', [F], ""),
    ('{"name": "f", "arguments": "{\\"a\\": 1}"}', [F], ""),
    ('{"type": "function", "id": "1", "function": {"name": "f", "arguments": "{\\"a\\": 1}"}}', [F], ""),
    ('{"function_call": {"name": "f", "arguments": {"a": 1}}}', [F], ""),
    ('{"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}, {"name": "g", "arguments": {"b": "x"}}]}', [F, G], ""),
    ("{'name': 'f', 'arguments': {'a': 1}}", [F], ""),
    ('[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {"b": "x"}}]', [F, G], ""),
    ('{"name": "f", "arguments": {"a": 1}}\n{"name": "g", "arguments": {"b": "x"}}\n', [F, G], ""),
    ('{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {"b": "x"}}', [F, G], ""),
    ('<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n<tool_call>{"name": "g", "arguments": {"b": "x"}}</tool_call>', [F, G], ""),
    ('<tool_call>\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}', [F], ""),
    ('[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]', [F], ""),
    ('[TOOL_CALLS]f{"a": 1}', [F], ""),
    ('[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{"b": "x"}', [F, G], ""),
    ('<function=f>{"a": 1}<function=g>{"b": "x"}', [F, G], ""),
    ('[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{"a": 1}', [F], ""),
    (('<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>'
     '<|tool_call_begin|>g<|tool_call_argument_begin|>{"b": "x"}<|tool_call_end|><|tool_calls_section_end|>'), [F, G], ""),
    (('<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>'
     '<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{"b": "x"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'), [F, G], ""),
    ("You could say `f(a=1)` instead.", [], "You could say `f(a=1)` instead."),
    ('<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>', [F], ""),
    ("f(a=1)", [F], ""),
    ("<|python_tag|>f(a=1)<|eom_id|>", [F], ""),
    ('```python\nf(a=1)\ng(b="x")\n```', [F, G], ""),
    ("f(a=1); g(b='x')", [F, G], ""),
    ("f(a=1), g(b='x');", [F, G], ""),
    ('{"tool_calls": [], "function_calls": [{"name": "f", "arguments": {"a": 1}}]}', [F], ""),
    ('<|channel|>analysis<|message|>Not {"name": "g", "arguments": {}}.<|end|>f(a=1)', [F], None),
    ('<!-- so -- {"name": "g", "arguments": {}} -->\n{"name": "f", "arguments": {"a": 1}}', [F], None),
    ("[f(a=1), g(b='x')]", [F, G], ""),
    ('f({"a": 1})', [F], ""),
    ("f( a = 1 , )", [F], ""),
    ("f()", [("f", {})], ""),
    ('shop.f(a={"x": [1, None]}, b=(1, 2))', [("shop.f", {"a": {"x": [1, None]}, "b": [1, 2]})], ""),
    ('<function=f>{"a": 1, "t": "</function><function=g>{}</function>"}</function>', [("f", {"a": 1, "t": "</function><function=g>{}</function>"})], ""),
    ('<think>Not {"name": "g", "arguments": {}}.</think>{"name": "f", "arguments": {"a": 1}}', [F], 'Not {"name": "g", "arguments": {}}.'),
    ('Not {"name": "g", "arguments": {}}.</think>{"name": "f", "arguments": {"a": 1}}', [F], 'Not {"name": "g", "arguments": {}}.'),
    ('<tools>[{"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}}]</tools>', [], None),
    ('{"name": "f", "arguments": {"a": 1, "t": "<think>"}}', [("f", {"a": 1, "t": "<think>"})], ""),
    ("no calls here, {just} words [1] and print(x).", [], "no calls here, {just} words [1] and print(x)."),
    ("f(1, 2) is a call of another language", [], "f(1, 2) is a call of another language"),
    ('The answer is {"a": 1}.', [], 'The answer is {"a": 1}.'),
    ('[{"x": 1}]', [], '[{"x": 1}]'),
    ("[1, 2, 3]", [], "[1, 2, 3]"),
    ('{"unfinished', [], '{"unfinished'),
    ("[f(a=1)\nx", [], "[f(a=1)\nx"),
    ("[ f(a=1), 5]", [], "[ f(a=1), 5]"),
    ("", [], ""),
]  # fmt: skip


BESIDE = [
    ('Sure!\n```json\n{"name": "f", "arguments": {"a": 1}}\n```\nThen {this}.', [F], "Sure!\nThen {this}."),
    ('<function=f>{"a": 1}</function><function="g">{"b": "x"}</function> ok', [F, G], "ok"),
    ("Call: `f(a=1)`", [F], "Call:"),
    ('Thought: I must.\nAction: f\nAction Input: {"a": 1}\nObservation: it worked', [F], "Thought: I must.\nObservation: it worked"),
    ("f(a=1); and so on", [F], "and so on"),
    ("[f(a=1)]\nDone", [F], "Done"),
    ('<tool_response>{"name": "g", "arguments": {}}</tool_response>f(a=1)', [F], '{"name": "g", "arguments": {}}'),
    ('[TOOL_RESULTS]{"name": "g", "arguments": {}}[/TOOL_RESULTS][TOOL_CALLS]f{"a": 1}', [F], '{"name": "g", "arguments": {}}'),
    ('{"name": "f", "arguments": {"a": 1}}\n<tool_output tool="f">{"name": "g", "arguments": {}}</tool_output>', [F], '{"name": "g", "arguments": {}}'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "calls", "rest"), BESIDE)
def test_a_call_with_other_text_beside_it_is_a_suggestion(text, calls, rest):
    """It is read, and graded edited: a read runs, and a write is offered back."""
    found = read_calls(text)
    assert (seen(found), found.rest) == (calls, rest)
    assert {(call.reading.grade, call.reading.reason) for call in found} == {("edited", "beside_text")}


@pytest.mark.parametrize(("text", "calls", "rest"), WHOLE)
def test_every_form_of_a_call_is_found_in_order(text, calls, rest):
    """Each text gives exactly its calls, in order, graded exact or lossless, and the rest of the text."""
    for given_text in (text, text.encode()):
        found = read_calls(given_text)
        assert seen(found) == calls
        assert found.rest == rest or rest is None
        assert all(call.reading.grade in ("exact", "lossless") for call in found.calls)


@pytest.mark.parametrize(("text", "calls", "rest"), [row for row in WHOLE if row[1]])
def test_a_cut_message_lets_no_call_through(text, calls, rest):
    """A stop reason that proves a cut keeps the names and refuses every reading."""
    found = read_calls(text, stop_reason="length")
    assert [call.name for call in found.calls] == [name for name, _ in calls]
    assert {(call.reading.grade, call.reading.reason) for call in found.calls} == {("lossy", "cut_message")}


BROKEN = [
    ('{"name": "f", "arguments": {"a": 15', [("f", "cut_in_number")]),
    ('{"name": "f", "arguments": {"a": 1}', [("f", "missing_closer")]),
    ('{"name": "f", "arguments": {"a": 1, "c": 2}}}', [("f", "extra_closer")]),
    ('{"name": "f", "arguments": {"a": [1,]}}', [("f", "trailing_comma_in_list")]),
    ('{"name": "f", "arguments": {"a": 1}, "b": 2}', [("f", "unknown_envelope")]),
    ('{"function": {"name": "f", "arguments": {}}, "b": 2}', [("f", "unknown_envelope")]),
    ('{"tool_calls": [{"name": "f", "arguments": {}}], "calls": [{"name": "g"}]}', [("f", "unknown_envelope")]),
    ('{"name": "f", "arguments": [1]}', [("f", "not_an_object")]),
    ("f(a=1), g(2)", [("f", "positional_arguments"), ("g", "positional_arguments")]),
    (
        '<function_calls>\n<invoke name="f">\n<parameter name="a">1</parameter>\n</invoke>\n</function_calls>',
        [("f", "tagged_value")],
    ),
    (
        '<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a">{"a": 1}</｜DSML｜parameter>\n</｜DSML｜invoke>',
        [("f", "tagged_value")],
    ),
    ("<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>", [("f", "tagged_value")]),
    ('{"name": "f", "arguments": ""}', [("f", "empty_arguments")]),
    ('{"name": "f", "arguments": null}', [("f", "empty_arguments")]),
    ('{"name": "f", "arguments": "{\\"a\\": 1"}', [("f", "cut_in_number")]),
    ('{"arguments": {"a": x}}', [("", "bare_reference")]),
    ('[{"name": "f", "arguments": {"a": 1}}, "x"]', [("f", None), ("", "not_an_object")]),
    ('{"name": "f", "arguments": {"a": 1 "b"}}\n{"name": "g", "arguments": {"b": "x"}}', [("f", "lost_comma")]),
    (
        '<tool_call>{"name": "f", "arguments": {"a": tru</tool_call><tool_call>{"name": "g", "arguments": {}}</tool_call>',
        [("f", "bare_reference"), ("g", None)],
    ),
    (
        '<tool_call>{"name": "f", "arguments": {"a": "\\q", "t": "it\'s <tool_call>{\'name\': \'g\', \'arguments\': {}}"}}</tool_call>',
        [("f", "bad_escape")],
    ),
    (
        "<tool_call>{'name': 'f', 'arguments': {'a': '\\q', 't': '<tool_call>{\"name\": \"g\", \"arguments\": {}}'}}</tool_call>",
        [("f", "bad_escape")],
    ),
    (
        '<function=f>{"a": tru, "t": "</function><function=g>{}"}</function><function=h>{}</function>',
        [("f", "bare_reference"), ("h", None)],
    ),
    ('<function=f>{"a": "\\", "t": "</function><function=g>{}</function>', [("f", "inner_quote"), ("g", "quoted")]),
    ('<tool_call>{"name": "f", "arguments": {"a": 1}\n</tool_call>', [("f", "missing_closer")]),
    ('<|tool_call|>{"name": "f", "arguments": {"a": [1]<|/tool_call|>', [("f", "missing_closer")]),
    ('```json\n{"name": "f", "arguments": {"a": 1}\n```', [("f", "missing_closer")]),
    ('<think>Why {"name": "f", "arguments": {"a": 1}}', [("f", "quoted")]),
    ('[AVAILABLE_TOOLS] [{"name": "f", "arguments": {"a": 1}}]', [("f", "quoted")]),
    ('<tool_call>{"name": "f", "arguments": {"a": tru</tool_call></think>', [("f", "bare_reference")]),
    ('<function=f><parameter=a>{"x": 1}</parameter><parameter=b>5</parameter></function>', [("f", "tagged_value")]),
    ('f(a="x', [("f", "cut_in_string")]),
    ("f(a=1, ", [("f", "cut_after_comma")]),
    ("f(a=1", [("f", "cut_after_comma")]),
    ("f(a=", [("f", "cut_after_colon")]),
    ("[f(a=1), g(b=", [("f", "cut_after_colon"), ("g", "cut_after_colon")]),
    ('<function=f>{"a": 15', [("f", "cut_in_number")]),
    ("<function=f>", [("f", "empty_arguments")]),
]


@pytest.mark.parametrize(("text", "calls"), BROKEN)
def test_a_broken_call_is_reported_and_never_run(text, calls):
    """A call that cannot be read keeps its place and its name, with the reason instead of arguments."""
    found = read_calls(text)
    assert [(call.name, call.reading.reason) for call in found.calls] == calls
    assert all((call.reading.value is None) == (call.reading.reason is not None) for call in found.calls)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("f(1, 2)", "positional_arguments"),
        ('f({"a": 1}, 2)', "positional_arguments"),
        ('f({"a": 1}', "missing_closer"),
        ("f(a=1, a=2)", "duplicate_key"),
        ("f(a=1+2)", "expression"),
        ("f(a=b)", "bare_reference"),
        ("f(a==1)", "positional_arguments"),
        ("f(**x)", "positional_arguments"),
        ("f(a=1) is what I call", "not_read"),
        ("`f(a=1)` is what I do not call", "not_read"),
        ("f(a=1), which I do not call", "not_read"),
        ("for x in (1, 2):\n    f(a=1)", "not_read"),
        ("```python\nif late:  # or early\n    x = 1\n\n    f(a=1)\n```", "not_read"),
        ("Well:\nf(a=1, b=...)", "ellipsis"),
    ],
)
def test_a_known_tool_called_with_more_than_literals_is_refused(text, reason):
    """Where the tools are known, a call of one of them that is no plain literal is reported with its reason."""
    found = read_calls(text, tools=["f"])
    assert [(call.name, call.reading.reason) for call in found.calls] == [("f", reason)]


def test_in_the_middle_of_a_text_only_tools_are_called():
    """`name(...)` on a line of its own is a call where the name is that of a tool, and words elsewhere."""
    text = "First I look:\nf(a=1)\nand print:\nprint(a=1)\nas f(a=1) said"
    found = read_calls(text, tools={"f": None})
    assert seen(found) == [F]
    assert "print(a=1)" in found.rest
    assert [(call.name, call.reading.reason) for call in read_calls(text)] == [
        ("f", "beside_text"),
        ("print", "after_text"),
    ]
    assert seen(read_calls("g(b='x')", tools=["f"])) == [G]
    assert seen(read_calls("see\n[f(a=1), g(b='x')]", tools=["f"])) == [F, G]
    for mention in ("I would not call `f(a=1)` yet.", "Use `f(a=1)`"):
        assert read_calls(mention, tools=["f"]).calls == ()
    for call in ("Now:`f(a=1)`", "`f(a=1)`", "Now\n`f(a=1)`", "I call:\n    f(a=1)", "f(a=1), g(b='x')"):
        assert len(read_calls(call, tools=["f"]).calls) == 1


def test_a_name_without_arguments_is_a_call_only_of_a_known_tool():
    """`{"name": "f"}` is a call without arguments if f is a tool that needs none, and data otherwise."""
    text = '{"name": "f"}'
    assert read_calls(text).calls == ()
    assert read_calls(text, tools=["g"]).calls == ()
    assert seen(read_calls(text, tools={"f": {"type": "object"}})) == [("f", {})]
    assert read_calls(text, tools=["f"]).calls[0].reading.reason == "empty_arguments"


def test_schemas_of_tools_are_evidence():
    """A text of arguments inside an envelope or behind a tag is read with the schema of its tool."""
    tools = {"f": CLOSED}
    for text in ('<function=f>{"a": 1, "b": "x"', json.dumps({"name": "f", "arguments": '{"a": 1, "b": "x"'})):
        call = read_calls(text, tools=tools).calls[0]
        assert (call.reading.grade, call.reading.value) == ("lossless", WITH)
        assert "closed_by_schema" in call.reading.repairs
        assert read_calls(text).calls[0].reading.value is None
    python = repr({"name": "f", "arguments": '{"a": 1, "b": "x"'})
    call = read_calls(python, tools=tools).calls[0]
    assert call.reading.repairs == ("single_quotes", "closed_by_schema")
    exact = read_calls(repr({"name": "f", "arguments": '{"a": 1}'})).calls[0]
    assert (exact.reading.grade, exact.reading.repairs) == ("lossless", ("single_quotes",))


def test_spans_point_at_the_calls():
    """The span of a call is where it stands; calls of one list share theirs."""
    text = 'x {"name": "f", "arguments": {}} y <function=g>{}</function> z'
    spans = [text[slice(*call.span)] for call in read_calls(text).calls]
    assert spans == ['{"name": "f", "arguments": {}}', "<function=g>{}"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [(b"\xff", "invalid_utf8"), ("\ud800", "lone_surrogate"), ("f(a=1) " * 100, "too_long")],
)
def test_a_text_that_cannot_be_looked_at_is_one_refused_call(text, reason):
    """What is no text or too long is reported as one call without a name, so that it cannot pass as an answer."""
    found = read_calls(text, max_chars=100)
    assert [(call.name, call.reading.reason) for call in found.calls] == [("", reason)]


def test_a_stack_already_deep_is_a_refusal(monkeypatch):
    """If the interpreter's own stack ends first, the text is one refused call."""

    def overflow(*_):
        raise RecursionError

    monkeypatch.setattr(module.LenientReader, "read_object", overflow)
    assert read_calls('{"name": "f"}').calls[0].reading.reason == "too_deep"


NAMES = st.from_regex(r"[a-z_][a-z0-9_.]{0,10}", fullmatch=True)

ARGUMENTS = st.dictionaries(
    st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True),
    st.integers() | st.booleans() | st.none() | st.text() | st.lists(st.integers() | st.text(), max_size=3),
    max_size=4,
)


@given(
    st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=4), st.sampled_from(["lines", "list", "tags", "fences"])
)
def test_calls_are_read_as_they_were_written(calls, form):
    """Any calls, in any of the JSON forms, come back in order with equal names and arguments."""
    parts = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls]
    text = {
        "lines": "\n".join(parts),
        "list": "[" + ", ".join(parts) + "]",
        "tags": "".join(f"<tool_call>{part}</tool_call>\n" for part in parts),
        "fences": "\n".join(f"```json\n{part}\n```" for part in parts),
    }[form]
    found = read_calls(text)
    assert seen(found) == calls
    assert found.rest == ""


@given(
    st.text(alphabet=st.sampled_from(list("{}[]()\"':=,abf <>|/\n\\1.")), max_size=60), st.sampled_from([None, ["f"]])
)
def test_no_text_makes_the_finder_fail(text, tools):
    """Any text ends in calls whose spans lie inside it and whose values belong to runnable grades."""
    found = read_calls(text, tools=tools)
    for call in found.calls:
        assert 0 <= call.span[0] < call.span[1] <= len(text)
        assert (call.reading.value is not None) == (call.reading.grade in ("exact", "lossless", "edited"))


@pytest.mark.parametrize(
    "text",
    [
        "{" * 10**6,
        '{"' * 200_000,
        "[{" * 200_000,
        "f(" * 200_000,
        "\nf(a=" * 100_000,
        "<tool_call>" * 50_000,
        '{"a":1}' * 60_000,
        "{/*" * 100_000,
        "{/*" * 100_000 + '"*/',
        "<function=a>" * 15_000,
        '<function=a>{"x": "' * 10_000,
        "<think>" * 50_000,
        "</think>" * 50_000,
        '<tool_call>{"name": "f", "x": \\' * 10_000,
        '{"name": ' * 50_000,
        "> " * 300_000,
        "[f(" * 100_000,
        "```" * 200_000,
        'f(a="x")' + '<tool_call>{"b": 1}' * 50_000 + "</think>",
        "…" + "[/," * 300_000,
    ],
)
@pytest.mark.timeout(30)
def test_hostile_texts_end(text):
    """Long texts made to hurt are done in a bounded time, on a small stack (the bound only catches a hang)."""
    done = []
    previous = threading.stack_size(512 * 1024)
    try:
        thread = threading.Thread(target=lambda: done.append(read_calls(text, max_chars=2 * 10**6)))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(previous)
    assert done
    assert all(call.reading.value is None for call in done[0].calls)


@pytest.mark.parametrize(
    ("text", "tools", "names"),
    [
        ('[{"name": "gcd", "properties": {"a": 4}}]', None, ["gcd"]),
        ('[{"name": "gcd", "a": 4}, {"name": "lcm", "a": 4}]', None, ["gcd", "lcm"]),
        ('[{"gcd": {"a": 4}}]', None, ["gcd"]),
        ('[{"name": "gcd", "a": 4}]', ["gcd"], ["gcd"]),
        ('[{"name": "gcd", "a": 4}]', ["lcm"], []),
        ('[{"name": "gcd", "a": 4}, {"a": 4, "b": 1}]', None, []),
        ('[{"name": "gcd", "a": 4}, 5]', None, []),
        ("[]", None, []),
        ('The people: [{"name": "Ann", "age": 4}]', None, []),
        ('[{"name": "Ann", "age": 4}] were there.', None, []),
    ],
)
def test_a_list_of_named_objects_is_split_into_refused_calls(text, tools, names):
    """Items that name a tool but hold no arguments are answered one by one; data inside prose stays data."""
    calls = read_calls(text, tools=tools).calls
    assert [call.name for call in calls] == names
    assert all(call.reading.value is None for call in calls)


def test_a_message_without_text_holds_no_calls():
    """None is what providers send beside calls of their own; blocks are not a text, and it is said what to do."""
    assert read_calls(None) == Calls()
    with pytest.raises(UsageError, match="got list: join its blocks"):
        read_calls([{"type": "text", "text": "x"}])


def test_a_method_on_the_line_below_belongs_to_the_call():
    """What is done with the result of a call is part of what was written: the call alone is something else."""
    found = read_calls('pay(user="U-1")\n    .cancel()', tools={"pay": None})
    assert [(call.reading.reason, call.reading.value) for call in found.calls] == [("not_read", None)]


@pytest.mark.parametrize(
    ("behind", "reason"),
    [
        ('\n{"a": 2}', "several_values"),
        ('\n```json\n{"a": 2, "b": "x"}\n```', "several_values"),
        ('\n{"answer": 2}', "beside_text"),
        ('\n{"a": 2, "answer": 2}', "beside_text"),
        ("\n{}", "beside_text"),
        ('\nThe result is like {"a": 2}', "beside_text"),
        ('\n[{"a": 2}]', "beside_text"),
    ],
)
def test_arguments_behind_a_call_are_its_rivals(behind, reason):
    """Which arguments are meant, nobody can say; an object of another kind may be an answer that was made up."""
    tools = {"f": {"type": "object", "properties": {"a": {}, "b": {}}}}
    (call,) = read_calls('{"name": "f", "arguments": {"a": 1}}' + behind, tools=tools).calls
    assert call.reading.reason == reason


@pytest.mark.parametrize(("text", "made"), [("f(a=[1, 2,], b=[3])", False), ("f(a=[1, 2,], b=[3,])", True)])
def test_a_list_of_a_written_call_may_have_lost_an_item(text, made):
    """A comma at its end says so where no other list ends with one."""
    (call,) = read_calls(text).calls
    assert call.reading.value == ({"a": [1, 2], "b": [3]} if made else None)


@pytest.mark.parametrize(
    ("arguments", "grade", "reason"),
    [
        ('{\n"a": "x",\n}', "edited", "uneven_commas"),
        ('{"b": "x",}', "ambiguous", "lost_member"),
        ('{"a": True}', "lossy", "bare_reference"),
        ('{"a": "x", // rest\n}', "edited", "uneven_commas"),
        ('{"a": "x" // ...\n}', "lossy", "ellipsis"),
        ('{"a": "x\ny"}', "edited", "raw_line_break"),
        ('{"a": "x", "b": "y",}', "lossless", None),
    ],
)
def test_arguments_in_an_envelope_are_judged_as_those_alone(arguments, grade, reason):
    """What the schema shows to be lost is lost in any wrapping."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]}
    (call,) = read_calls(f'{{"name": "f", "arguments": {arguments}}}', tools={"f": schema}).calls
    alone = read_arguments(arguments, schema=schema)
    for reading in (call.reading, alone):
        assert (reading.grade, reading.reason) == (grade, reason)


def test_lines_of_one_width_say_nothing_about_their_breaks_in_an_envelope_either():
    """The text was broken as a whole, so a break inside a string may not belong to it."""
    text = '{"name": "f", "arguments": {"a": "xxxxxxx\nxxxxx"}}'
    wrapped = '{"name": "f",\n "arguments":\n {"a": "xxxxxxx\nxxxxx"}}'
    assert [call.reading.value is None for call in read_calls(wrapped).calls] == [True]
    assert [call.reading.value is None for call in read_calls(text).calls] == [False]


@pytest.mark.parametrize(
    "call",
    [
        '{"name": "f", "arguments": {\n"a": "x",\n}}',
        "{'name': 'f', 'arguments': {'a': True}}",
        '{"name": "f", "arguments": {"a": "x\ny"}}',
    ],
)
def test_a_list_of_many_repaired_calls_is_judged_in_linear_time(call):
    """Each call is looked at for itself, and the schema is compiled once."""
    begun = time.thread_time()
    read_calls(
        f"[{','.join([call] * 3_000)}]", tools={"f": {"type": "object", "properties": {"a": {"type": "string"}}}}
    )
    assert time.thread_time() - begun < 2


def test_many_objects_that_are_no_calls_are_passed_over_in_linear_time():
    """What stands before and behind each of them is not copied to look whether it is alone."""
    begun = time.process_time()
    read_calls('{"a": "x"}\n' * 200_000, max_chars=10**7)
    assert time.process_time() - begun < 8


def test_an_object_alone_has_no_rival():
    """Nor has one behind a call that is refused anyway."""
    tools = {"f": {"type": "object", "properties": {"a": {}}}}
    assert read_calls('{"a": 1}', tools=tools).calls == ()
    (call,) = read_calls('{"name": "f", "arguments": {"a": 1}}}\n{"a": 1}', tools=tools).calls
    assert call.reading.reason == "extra_closer"


@pytest.mark.parametrize(
    ("status", "made"), [("completed", True), (None, True), ("cancelled", False), ("draft", False)]
)
def test_a_status_that_no_provider_sends_is_not_looked_past(status, made):
    """Any word but that of a whole call may say that it is over, or not yet meant."""
    text = json.dumps({"name": "f", "arguments": {"a": 1}, "status": status})
    assert [call.reading.value for call in read_calls(text).calls] == [{"a": 1} if made else None]


@pytest.mark.parametrize(("status", "made"), [("completed", True), ("cancelled", False)])
def test_the_status_of_a_list_is_that_of_its_calls(status, made):
    """What is said once, beside the list, is said of each call in it."""
    call = {"name": "f", "arguments": {"a": 1}}
    text = json.dumps({"tool_calls": [call, call], "status": status})
    assert [one.reading.value for one in read_calls(text).calls] == [{"a": 1} if made else None] * 2


def test_a_text_of_nothing_but_calls_is_refused_as_a_whole_and_soon():
    """A model that repeats itself means none of it: one refusal, without a look at all the rest."""
    begun = time.thread_time()
    for text in ("<function=f>" * 80_000, "\nf(a=1)" * 100_000, json.dumps([{"name": "f", "arguments": {}}] * 1_001)):
        (call,) = read_calls(text, max_chars=1_000_000).calls
        assert (call.name, call.reading.reason, call.span) == ("", "too_many_calls", (0, len(text)))
    assert time.thread_time() - begun < 2.0
    assert len(read_calls("<function=f>{}" * 1_000).calls) == 1_000


FIELDS = {"f": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}


def made(text):
    """The calls of f that may run, at least as a read."""
    return [
        (call.name, call.reading.value) for call in read_calls(text, tools=FIELDS) if call.reading.value is not None
    ]


@pytest.mark.parametrize(
    "text",
    [
        '<function=f{"a": "x"}</function>',
        '<tool_call>f\n{"a": "x"}\n</tool_call>',
        '**Thought:** so\n**Action:** f\n**Action Input:** {"a": "x"}',
        'Thought: so\nAction: `f`\nAction Input: {"a": "x"}',
        'Action 1: f\nAction Input 1: {"a": "x"}',
        'Action: f(a="x")',
        '{"action": "f", "action_input": {"a": "x"}}',
        '{"toolName": "f", "args": {"a": "x"}}',
        '{"functionCall": {"name": "f", "args": {"a": "x"}}}',
        '{"tool_call": {"name": "f", "arguments": {"a": "x"}}}',
        '{"tool_uses": [{"recipient_name": "f", "parameters": {"a": "x"}}]}',
        'f\n{"a": "x"}',
        '<|assistant|>f\n{"a": "x"}<|observation|>',
        'print(f(a="x"))',
        'I check:\n```tool_code\nprint(f(a="x"))\n```',
        'x = f(a="x")',
        'await f(a="x")',
        '{"f": {"a": "x"}}',
        '```json\n{"f": {"a": "x"}}\n```',
    ],
)
def test_more_forms_of_a_call_are_found(text):
    """Each is a form in which a family of models or a framework writes calls."""
    assert made(text) == [("f", {"a": "x"})]


@pytest.mark.parametrize(
    "text",
    [
        'The tool f\n{"a": "x"}',
        'f {"a": "x"}',
        'f\n{"a": "x"}\nis an answer',
        'f\n{"other": "x"}',
        'f\n["x"]',
        "f\n{}",
        'g\n{"a": "x"}',
        '{"action": "f", "input": {"a": "x"}}',
        '{"f": {"other": "x"}}',
        '{"f": {"a": "x"}, "g": {}}',
        '{"f": {}}',
        '{"g": {"a": "x"}}',
        'The answer:\n{"f": {"a": "x"}}',
        'x = other(a="x")',
        'You could say `x = f(a="x")` instead.',
        'The code x = f(a="x") is one.',
        'x = f(a="x") + 1',
        'x = f(a="x"); y = g()',
        'print(f(a="x"), 1)',
        'print(f(a="x")["k"])',
        'print(f(a="x")',
        'if x:\n    y = f(a="x")',
        '{"answer": 1} /* {"name": "f", "arguments": {"a": "x"}',
    ],
)
def test_a_name_near_an_object_is_no_call(text):
    """Only a tool's name alone on its line, and nothing but declared arguments below it."""
    assert made(text) == []
