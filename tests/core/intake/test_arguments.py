"""Argument texts: which repairs are proven, which refusals are named."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.intake import REFUSALS, REPAIRS, copy_arguments, read_arguments
from pokayoke.core.intake import grading as module
from pokayoke.errors import ContractError

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)

OBJECTS = st.dictionaries(st.text(max_size=6), JSON_VALUES, max_size=5)


def same(first, second):
    """Equal with types: 1, 1.0 and True are three values."""
    return json.dumps(first) == json.dumps(second)


LOSSLESS = [
    ("\ufeff{'a': 1}", {"a": 1}, "byte_order_mark single_quotes"),
    ("```json\n" + '{"a": 1}' + "\n```", {"a": 1}, "code_fence"),
    ('```{"a": 1}```', {"a": 1}, "code_fence"),
    ('`{"a": 1}`', {"a": 1}, "code_fence"),
    ('<tool_call>\n{"a": 1}\n</tool_call>', {"a": 1}, "tags"),
    ('<|python_tag|>{"a": 1}<|eom_id|>', {"a": 1}, "tags"),
    ('[TOOL_CALLS] {"a": 1}', {"a": 1}, "tags"),
    ('I will call "find" with\n{"a": 1}\nDone.', {"a": 1}, "prose"),
    ('"Find" it is: {"a": 1}', {"a": 1}, "prose"),
    ('The arguments: {"a": 1}', {"a": 1}, "prose"),
    ('Nicht so:\n{"a": 1}\nDas war falsch.', {"a": 1}, "prose"),
    ('json{"a": 1}', {"a": 1}, "code_fence"),
    ('Wait, I call it again:\n{"a": 1}\nLet me know what should come next.', {"a": 1}, "prose"),
    ('<think>so</think>{"a": 1}', {"a": 1}, "tags prose"),
    ('{"a": 1};', {"a": 1}, ""),
    ('{"a": 1}. That is all', {"a": 1}, "prose"),
    ('{"a": 1,}', {"a": 1}, "trailing_comma"),
    ('{\n  "a": 1,\n}', {"a": 1}, "trailing_comma"),
    ('{"a": [1, 2,], "b": {"c": [],},}', {"a": [1, 2], "b": {"c": []}}, "trailing_comma"),
    ("{'a': 'it\\'s', 'b': 'say \"hi\"', 'c': '\\x41\\u0042\\U0001F600\\\\'}", None, "single_quotes python_escape"),
    ("{'a': ['x', True, None, 1.5, False]}", {"a": ["x", True, None, 1.5, False]}, "single_quotes python_word"),
    ('{"a": True , "b": [None]}', {"a": True, "b": [None]}, "python_word"),
    ('{"a" : True\n}', {"a": True}, "python_word"),
    ("{a: 1, $b_2 : {c: null}}", {"a": 1, "$b_2": {"c": None}}, "unquoted_key"),
    ('{"a": 1, // one\n "b": 2 /* "two" */ # three\n}', {"a": 1, "b": 2}, "comment"),
    ('{#\n"a": 1}', {"a": 1}, "comment"),
    ('{"a": "x" // a "good" word\n}', {"a": "x"}, "comment"),
    ('{"a": 5 // minutes\n}', {"a": 5}, "comment"),
    ('{"a": 5 // orders, not more\n}', {"a": 5}, "comment"),
    ('{"a": 1\n "b": 2}', {"a": 1, "b": 2}, "missing_comma"),
    ('{"a": "x"\n "b": {"c": []}\n\n\t"d": 1}', {"a": "x", "b": {"c": []}, "d": 1}, "missing_comma"),
    ('{"a": true\n "b": 2}', {"a": True, "b": 2}, "missing_comma"),
    ("{“a”: “b \\n c”, “d”: 1}", {"a": "b \n c", "d": 1}, "smart_quotes"),
    ("{‘a’: ‘b’}", {"a": "b"}, "smart_quotes"),
    ('{"a": "one two\nthree\tfour"}', {"a": "one two\nthree\tfour"}, "raw_control_character"),
    ('{"a": "a line\na line\n"}', {"a": "a line\na line\n"}, "raw_control_character"),
    ('{"a": "line\nBest regards,\n"}', {"a": "line\nBest regards,\n"}, "raw_control_character"),
    ('{"a": "if x:\n\ty\n  ", "b": "x:"}', {"a": "if x:\n\ty\n  ", "b": "x:"}, "raw_control_character"),
    ('{"a": "it\\\'s \\_x_"}', {"a": "it's _x_"}, "extra_escape"),
    ('{"a": "C:\\\\x", "b": "don\'t, it\\\'s"}', {"a": "C:\\x", "b": "don't, it's"}, "extra_escape"),
    ('{"a": "a\n```py\nb c\n```\n...d\n"}', {"a": "a\n```py\nb c\n```\n...d\n"}, "raw_control_character"),
    ('{\xa0"a":\u200b1,\u3000"b"\u2009: 2}', {"a": 1, "b": 2}, "odd_whitespace"),
    ('\u202e{\u2066"a"\u200e\u2063: \u00ad1\u2069}\u202c', {"a": 1}, "odd_whitespace"),
    ('{"a": +5, "b": [+1.5]}', {"a": 5, "b": [1.5]}, "plus_sign"),
    ('{"a": "one "two three" four", "b": "(see "x") y"}', None, "inner_quotes"),
    ('{"a": (1, "x"), "b": (1,), "c": ()}', {"a": [1, "x"], "b": [1], "c": []}, "python_tuple"),
    ('{"a": 1, "b": {"x": 1.0}, "a": 1, "b": {"x": 1.0}}', {"a": 1, "b": {"x": 1.0}}, "equal_duplicate"),
    ('"{\\"a\\": 1}"', {"a": 1}, "double_encoded"),
    (json.dumps(json.dumps('{"a": 1}')), {"a": 1}, "double_encoded"),
    ("'{\"a\": 1}'", {"a": 1}, "double_encoded"),
    (r"""{"a": "x\/y",}""", {"a": "x/y"}, "trailing_comma"),
    (r" {\"a\": 1, \"b\": \"x \\\"y\\\"\"}", {"a": 1, "b": 'x "y"'}, "double_encoded"),
    (r"{\n  \"a\": \"C:\\\\new\\n\"\n}", {"a": "C:\\new\n"}, "double_encoded"),
    (r"{\"a\": \"one\\n\\ntwo\\n\"}", {"a": "one\n\ntwo\n"}, "double_encoded"),
    ('{"a": 123456789012345678901234567890, "b": -0.5e3,}', None, "trailing_comma"),
    ('{"a": "\\u00e9\\ud83d\\ude00\\/", }', {"a": "é😀/"}, "trailing_comma"),
]

VALUES = {
    "python_escape": {"a": "it's", "b": 'say "hi"', "c": "AB😀\\"},
    "inner_quotes": {"a": 'one "two three" four', "b": '(see "x") y'},
    "trailing_comma": {"a": 123456789012345678901234567890, "b": -500.0},
}


@pytest.mark.parametrize(("text", "value", "repairs"), LOSSLESS)
def test_a_slip_with_one_meaning_is_lossless(text, value, repairs):
    """Each text gives exactly its value, names every repair, and carries its canonical dump; bytes read alike."""
    names = repairs.split()
    wanted = VALUES[names[-1]] if value is None else value
    for given_text in (text, text.encode()):
        reading = read_arguments(given_text)
        assert reading.grade == "lossless"
        assert same(reading.value, wanted)
        assert set(names) <= set(reading.repairs) <= REPAIRS.keys()
        assert json.loads(reading.canonical or b"") == wanted
        assert (reading.reason, reading.position, reading.readings) == (None, None, ())


REFUSED = [
    ('{"a": 15', "cut_in_number", 8),
    ('{"a": 1, "b": -', "cut_in_number", None),
    ('{"a": 1.', "cut_in_number", None),
    ('{"a": "x', "cut_in_string", 6),
    ("{'a': 'x", "cut_in_string", 6),
    ('{"a": "x\\', "cut_in_escape", None),
    ('{"a": "x\\u00', "cut_in_escape", None),
    ('{"a": "\\ud83d', "cut_in_escape", None),
    ('{"a": "\\ud83d\\ude', "cut_in_escape", None),
    ('{"a', "cut_in_key", None),
    ('{"a"', "cut_in_key", None),
    ('{"a" ', "cut_in_key", None),
    ("{a", "cut_in_key", None),
    ('{"a":', "cut_after_colon", None),
    ('{"a": 1,', "cut_after_comma", None),
    ("{", "cut_after_opener", None),
    ('{"a": [', "cut_after_opener", None),
    ('{"a": tru', "cut_in_word", None),
    ('{"a": 1 /* note', "cut_in_comment", None),
    ('{"a": 1', "cut_in_number", None),
    ('{"a": 1, "a": 2,}', "duplicate_key", None),
    ('{"a": 1, "a": 2}', "duplicate_key", None),
    ('{"a": 1, "a": 1.0}', "duplicate_key", None),
    ("{'a': 1, 'a': True}", "duplicate_key", None),
    ('{"a": 30 * 4}', "expression", 9),
    ('{"a": 1/3}', "expression", None),
    ('{"a": 5 // 2\n}', "expression", None),
    ('{"a": 1-2}', "expression", None),
    ('{"a": (1)}', "expression", None),
    ('{"a": f(1)}', "bare_reference", None),
    ('{"a": "x" + "y"}', "inner_quote", None),
    ('{"a": [1] + [2]}', "expression", None),
    ('{"a": 30 // (x) of\n}', "expression", None),
    ('{"a": True and x}', "expression", None),
    ('{"a": user_input}', "bare_reference", 6),
    ('{"a": <value>}', "bare_reference", None),
    ('{"a": $x}', "bare_reference", None),
    ('{"a": undefined}', "bare_reference", None),
    ("{x}", "bare_reference", None),
    ('{"a": [1, ...]}', "ellipsis", None),
    ('{"a": 1, ...}', "ellipsis", None),
    ('{"a": ...}', "ellipsis", None),
    ('{"a": 1 ...}', "ellipsis", None),
    ('{"a": 1, // ... and so on\n}', "ellipsis", None),
    ('{"a": ["x" /* 3 more */]}', "comment_holds_data", None),
    ('{"a": ["x" // und so weiter\n]}', "comment_holds_data", None),
    ('{"a": [ /* 省略 */ ]}', "comment_holds_data", None),
    ('{"a": ["x", /* y */ ]}', "comment_holds_data", None),
    ('{"a": 1,\n // 其余省略\n}', "comment_holds_data", None),
    ('{"a": 1\n  /* der Rest */\n}', "comment_holds_data", None),
    ('{"a": 1, # el resto\n\n # igual\n}', "comment_holds_data", None),
    ('{"a": 1,\n // der Rest\n /* Ende */ }', "comment_holds_data", None),
    ('{"a": 1\n /*\n der Rest */ }', "comment_holds_data", None),
    ('{"a": 1, /* weitere */ }', "comment_holds_data", None),
    ("{ # keine\n}", "comment_holds_data", None),
    ('{"a": 5 // oder 7\n}', "comment_holds_data", None),
    ('{"a": [1, /* 2, */ 3]}', "comment_holds_data", None),
    ('{"a": [/* "x" */]}', "comment_holds_data", None),
    ('{"a": 5}.0\n', "trailing_text", 8),
    ('{"a": "New York\n, NY"}', "control_character", None),
    ('{"a": "x" /* or "y" */}', "comment_holds_data", None),
    ('{"a": 1}\n... truncated', "ellipsis", None),
    ('{"a": 1}{"a": 1}', "several_values", 8),
    ('{"a": 1}\n{"b": 2}', "several_values", None),
    ('{"a": 1}, "b": 2}', "trailing_text", None),
    ('{"a": 1}]', "trailing_text", None),
    ('{"a": 1} is wrong', "trailing_text", None),
    ('```json\n{"a": 1}\n```\nWait, a is 10.', "trailing_text", None),
    ('{"a": 1}\nActually, it should be 10.', "trailing_text", None),
    ('<think>maybe {"a": 1}</think>', "quoted", 13),
    ('{"a": 1}00', "trailing_text", None),
    ('[1] {"a": 1}', "not_an_object", None),
    ('see [1]: {"a": 1}', "trailing_text", None),
    ('x", {"a": 1}', "trailing_text", None),
    ('first, {"a": 1}', "trailing_text", None),
    ('f({"a": 1})', "trailing_text", None),
    ('call{"a": 1}', "trailing_text", None),
    ('say "hi {"a": 1}', "trailing_text", None),
    ('user: {"a": 1}', "trailing_text", None),
    ('the "user": {"a": 1}', "trailing_text", None),
    ('name: "x"\narguments: {"a": 1}', "trailing_text", None),
    ('{"a": 1}\nb: 5', "trailing_text", None),
    ('answer: {"a": 1}', "trailing_text", None),
    ('"user" = {"a": 1}', "trailing_text", None),
    ("hello", "no_object", None),
    (r"{\"a\": 1", "unexpected", 1),
    (r'{\"a": 1}', "unexpected", 1),
    ('{}{"a": 1}', "several_values", 2),
    ("[1, 2, ]", "not_an_object", None),
    ("[1, 2]", "not_an_object", None),
    ("5", "not_an_object", None),
    ("null", "not_an_object", None),
    ('"null"', "not_an_object", None),
    ('Arguments: {"a": 1}', "trailing_text", None),
    ('"text"', "not_an_object", None),
    ('"[1]"', "not_an_object", None),
    ("'x' y", "inner_quote", None),
    ('"\\"\\\\\\"\\\\\\\\\\\\\\"{}\\\\\\\\\\\\\\"\\\\\\"\\""', "not_an_object", None),
    ('{"a": 1,, "b": 2}', "lost_value", None),
    ('{, "a": 1}', "lost_value", None),
    ('{"a": }', "lost_value", None),
    ('{"a": , "b": 1}', "lost_value", None),
    ('{"a": [1}', "mismatched_closer", None),
    ('{"a": 1]', "mismatched_closer", None),
    ('{"a": [}', "mismatched_closer", None),
    ('{"a" 1}', "missing_colon", None),
    ('{"a", "b"}', "missing_colon", None),
    ('{"a": 1 "b": 2}', "lost_comma", None),
    ('{"a": [1 2]}', "lost_comma", None),
    ('{"a": "x,"\n "b": 2}', "lost_comma", None),
    ('{"a": "x": 2}', "lost_quote", None),
    ('{"a": "x y": "z"}', "lost_quote", None),
    ('{"a": hi", "b": 1}', "lost_quote", None),
    ('{"a": 5 pm"}', "lost_comma", None),
    ('{"a": 5pm"}', "lost_quote", None),
    ('{a": 1}', "lost_quote", None),
    ('{"a": “x"}', "lost_quote", None),
    ('{"a": "word\n"}', "lost_quote", None),
    ('{"a": "word\n  "}', "lost_quote", None),
    ('{"a": "word\nword,\n  ",\n  "b": 1}', "lost_quote", None),
    ('{"a": ["one\nword],\n    ", "b"]}', "lost_quote", None),
    ('{"a": "the "x"}', "inner_quote", None),
    ('{"a": "x""y"}', "inner_quote", None),
    ("{'a': 'it's'}", "inner_quote", None),
    ('{"a": "C:\\data"}', "bad_escape", None),
    ('{"a": "\\u12g4"}', "bad_escape", None),
    ("{'a': '\\d'}", "bad_escape", None),
    ("{'a': '\\_'}", "bad_escape", None),
    ('{"a": "x \\"y\\\' z"}', "bad_escape", None),
    ('{"a": "\\$HOME"}', "bad_escape", None),
    (r"""{"a": "echo 'it'\''s'"}""", "bad_escape", None),
    (r"""{"a": "awk '{print \$1}'"}""", "bad_escape", None),
    (r"""{'a': "x\_y"}""", "bad_escape", None),
    (r"""{"a": "x\/y", 'b': True}""", "bad_escape", None),
    (r"""{"a": "x\$5", "b": True}""", "bad_escape", None),
    (r"""'{"a": "C:\\new"}'""", "bad_escape", None),
    (r"""{\"a\": \"C:\\new\"}""", "bad_escape", None),
    (r"""{\"a\": \"src\\test\"}""", "bad_escape", None),
    ('{"a": "^x\\$"}', "bad_escape", None),
    ('{"a": "D:\\_x"}', "bad_escape", None),
    ('{"a": "C:\\\\x my\\_y"}', "bad_escape", None),
    ("{\"a\\': 1, \\'b\": 2}", "bad_escape", None),
    ('{"a": "one\n...\ntwo"}', "ellipsis", None),
    ('{"a": "one\n // [... 3 lines]\ntwo"}', "ellipsis", None),
    ('{"a": "one\n```\n\n```json\ntwo"}', "cut_in_string", None),
    ('{"a": "\\ud800x", }', "lone_surrogate", None),
    ('{"a": "\\ude00", "long enough": 1}', "lone_surrogate", None),
    ("{'a': '\\U0000D800'}", "lone_surrogate", None),
    ("{'a': '\\U00110000'}", "lone_surrogate", None),
    ('{"a": "\ud800"}', "lone_surrogate", 7),
    ('{"a": "x\ry"}', "control_character", None),
    ('{"a": "\x00"}', "control_character", None),
    ('{"a\nb": 1}', "line_break_in_key", None),
    ('{"a": NaN}', "not_finite", None),
    ('{"a": -Infinity}', "not_finite", None),
    ('{"a": 1e999}', "not_finite", None),
    ('{"a": [' + "1" * 5000 + "]}", "number_too_long", None),
    ('{"a": +' + "1" * 309 + "}", "number_too_long", None),
    ('{"a": 05}', "odd_number", None),
    ('{"a": .5}', "odd_number", None),
    ('{"a": 5kg}', "odd_number", None),
    ('{"a": [1, 2,]}', "trailing_comma_in_list", None),
    ('{"a": [1,], "b": {"c": 1}, }', "trailing_comma_in_list", None),
    ('{\n  "a": 1,\n  }', "misplaced_comma", None),
    ('{\n  "a": 1,}', "misplaced_comma", None),
    ('{\n  "a": 1,\n\n}', "misplaced_comma", None),
    ('{"a": 1, // "b": 2\n "c": 3}', "comment_holds_data", None),
    ('{"a": [1, // 2,\n 3]}', "comment_holds_data", None),
    ('{"a": 1 /* "b": 2 */}', "comment_holds_data", None),
    ('{"a": 1 // so }\n}', "comment_holds_data", None),
    ('{"a": 1 // a " sign\n}', "comment_holds_data", None),
    ("{'a': 'the boys' // girls'\n}", "comment_holds_data", None),
    ("{'a': 'Fix users' #42'\n}", "comment_holds_data", None),
    ('{"a": "screen 24" // 27" or more"\n}', "comment_holds_data", None),
    ("{“a”: “x” # y”\n}", "comment_holds_data", None),
    ('{"a": 1}\n<parameter name="b">x</parameter>', "trailing_text", None),
    ('<parameter=a>{"a": 1}</parameter>', "trailing_text", None),
    ('<arg_key>a</arg_key><arg_value>{"a": 1}</arg_value>', "trailing_text", None),
    ("{[1]: 2}", "unexpected", None),
    ('{{"a": 1}}', "doubled_brace", 1),
    ('{"a": @x}', "unexpected", None),
    ("{true: 1}", "unexpected", None),
    ("{5: 1}", "unexpected", None),
    ("", "empty_arguments", 0),
    (" \n", "empty_arguments", 0),
    ("\ufeff", "empty_arguments", 0),
    ("{'a': " + "[" * 64 + "]" * 64 + "}", "too_deep", None),
    ('{"a":' + "[" * 100_000, "too_deep", None),
    ('{"a": {"b": 1}', "missing_closer", None),
    ('{"a": "x"', "missing_closer", None),
    ('{"a": true', "missing_closer", None),
    ('{"a": 1\n', "missing_closer", None),
    ('{"a": "x "', "cut_in_string", None),
    ('"a": 1}', "missing_opener", None),
    ('{"a": 1}}', "extra_closer", 8),
    ('"a": 1}}', "trailing_text", None),
]


@pytest.mark.parametrize(("text", "reason", "position"), REFUSED)
def test_a_doubtful_text_is_refused_by_name(text, reason, position):
    """Each text is refused with its reason, the grade of that reason and no value; the place is inside the text."""
    reading = read_arguments(text)
    assert reading.reason == reason
    assert reading.grade == REFUSALS[reason][0]
    assert (reading.value, reading.canonical) == (None, None)
    assert reading.position is not None or reason == "too_deep"
    assert reading.position is None or 0 <= reading.position <= len(text)
    assert position is None or reading.position == position


@pytest.mark.parametrize("schema", [{"required": 5}, {"properties": None}, {"properties": [1]}, {"$ref": 3}])
def test_a_schema_that_is_none_is_no_failure_inside(schema):
    """Where a doubtful text needs it, it is the programmer's error, said as such; else it does not matter."""
    try:
        value = read_arguments("{'a':1,}", schema=schema).value
    except ContractError:
        value = "named"
    assert value in ({"a": 1}, "named")


@pytest.mark.parametrize(
    "reason", ["length", "MAX_TOKENS", "FinishReason.MAX_TOKENS", "max-output-tokens", "incomplete"]
)
@pytest.mark.parametrize("text", ['{"a": 1}', "", '{"a": 1,}', "junk"])
def test_a_cut_message_gives_no_arguments(reason, text):
    """Whatever the text looks like, a stop reason that proves a cut makes it lossy."""
    reading = read_arguments(text, schema=True, stop_reason=reason)
    assert (reading.grade, reading.reason, reading.value) == ("lossy", "cut_message", None)


@pytest.mark.parametrize("reason", [None, "stop", "tool_calls", "end_turn", "STOP", ""])
def test_other_stop_reasons_prove_nothing(reason):
    """A stop reason that is no cut neither forbids a whole text nor completes a cut one."""
    assert read_arguments('{"a": 1}', stop_reason=reason).grade == "exact"
    assert read_arguments('{"a": 1', stop_reason=reason).grade == "lossy"


def test_length_is_counted_in_characters():
    """A text of the allowed number of characters is read in bytes too, one character more is refused unread."""
    text = '{"a": "éééé"}'
    assert read_arguments(text.encode(), max_chars=len(text)).grade == "exact"
    for given_text in (text, text.encode(), text.encode() * 9, text.replace('"', "'").encode()):
        reading = read_arguments(given_text, max_chars=len(text) - 1)
        assert (reading.grade, reading.reason, reading.position) == ("lossy", "too_long", len(text) - 1)


def test_bytes_that_are_no_text_are_refused():
    """Invalid UTF-8 is never decoded into something else."""
    assert read_arguments(b'{"a": "\xff"}').reason == "invalid_utf8"


def test_a_schema_that_is_none_is_the_programmers_mistake():
    """An unusable schema is an exception as soon as it is needed."""
    with pytest.raises(ContractError):
        read_arguments('{"a": 1', schema={"type": "nothing"})
    assert read_arguments('{"a": 1}', schema={"type": "nothing"}).grade == "exact"


def test_depth_is_bounded_for_every_reader():
    """The cap holds for strict texts, for repaired ones and for values already parsed."""
    deep = {"a": [[[1]]]}
    assert read_arguments(json.dumps(deep), max_depth=4).grade == "exact"
    for text in (json.dumps(deep), repr(deep), json.dumps(json.dumps(deep))):
        assert read_arguments(text, max_depth=3).value is None
    assert copy_arguments(deep, max_depth=4).grade == "exact"
    assert copy_arguments(deep, max_depth=3).reason == "too_deep"


def test_a_stack_already_deep_is_a_refusal(monkeypatch):
    """If the interpreter's own stack ends first, the text is refused as too deep."""

    def overflow(*_):
        raise RecursionError

    monkeypatch.setattr(module.LenientReader, "read_object", overflow)
    assert read_arguments("{'a': 1}").reason == "too_deep"


@given(OBJECTS)
def test_valid_json_is_exact(value):
    """Strict JSON of any object and layout is graded exact, with exactly its value, and needs no repair."""
    for text in (json.dumps(value), json.dumps(value, indent=2, ensure_ascii=False)):
        reading = read_arguments(text)
        assert (reading.grade, reading.repairs) == ("exact", ())
        assert same(reading.value, value)
        assert copy_arguments(value).canonical == reading.canonical


@given(st.dictionaries(st.text(max_size=6), JSON_VALUES, min_size=1, max_size=5))
def test_pythons_spelling_is_never_read_as_something_else(value):
    """The repr of an object gives that object, or a refusal; with plain strings always the object."""
    reading = read_arguments(repr(value))
    assert reading.value is None or same(reading.value, value)
    if "\\" not in repr(value):
        assert reading.grade in ("exact", "lossless")


@given(OBJECTS, st.data())
def test_a_text_cut_anywhere_is_never_whole(value, data):
    """No proper beginning of a JSON object, in either spelling, is read without a schema."""
    for text in (json.dumps(value), json.dumps(value, indent=1), repr(value)):
        cut = text[: data.draw(st.integers(0, len(text) - 1))]
        assert read_arguments(cut).value is None


@given(
    OBJECTS, st.sampled_from(["%s", "```json\n%s\n```", "<tool_call>%s</tool_call>", "Sure, here it is:\n%s\nDone."])
)
def test_wrappers_do_not_touch_the_value(value, wrapper):
    """Fences, tags and sentences around strict JSON change nothing."""
    reading = read_arguments(wrapper % json.dumps(value))
    assert same(reading.value, value)


@given(st.text(alphabet=st.sampled_from(list("{}[]\"':,abc \n\\/#*1.-+<>`“”‘’()u_=;…")), max_size=60))
def test_no_text_makes_the_reader_fail(text):
    """Any text ends in a reading that keeps its promises: a value exactly for the grades that have one."""
    for schema in (None, True):
        reading = read_arguments(text, schema=schema)
        assert (reading.value is not None) == (reading.grade in ("exact", "lossless", "edited"))
        assert (reading.canonical is not None) == (reading.value is not None)
        assert set(reading.repairs) <= REPAIRS.keys()
        assert (reading.reason is None) == (reading.grade in ("exact", "lossless"))
        if reading.grade == "exact":
            assert same(reading.value, json.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        "{" * 10**6,
        '{"' * 500_000,
        '"' * 10**6,
        '{"a":"' + "\\" * 10**6,
        "{" + "/**/" * 250_000,
        "{" + "#\n" * 500_000,
        '{"a": "' + 'x "y" ' * 160_000,
        "{" + '"a":1,' * 160_000,
        '{"a"' + " " * 10**6,
        "<a" * 500_000 + "{",
        "`" * 10**6 + "{}",
        '{"a":"' + '"\n' * 500_000,
        '{"a":1}\n' + "<tool " * 160_000,
        "{'a': [" + "'x', " * 200_000,
    ],
)
@pytest.mark.timeout(20)
def test_hostile_texts_end(text):
    """A megabyte made to hurt is done in a bounded time (the bound only catches a hang)."""
    assert read_arguments(text, schema=True, max_chars=2 * 10**6).grade in ("lossless", "lossy", "ambiguous")


def test_parsed_arguments_that_grow_when_written_are_too_long():
    """Sixty lists that each hold the next one twice are refused before a byte of them is written."""
    shared = ["x"]
    for _ in range(60):
        shared = [shared, shared]
    assert copy_arguments({"a": shared}).reason == "too_long"


@pytest.mark.parametrize(
    ("value", "grade", "reason"),
    [
        ({"a": [1, None]}, "exact", None),
        ({}, "exact", None),
        (None, "lossy", "not_an_object"),
        (5, "lossy", "not_an_object"),
        ([], "lossy", "not_an_object"),
        ({"a": object()}, "lossy", "not_json"),
        ({1: 2}, "lossy", "not_json"),
        (bytearray(b"{}"), "lossy", "not_json"),
        ({"a": "x" * 200_000}, "lossy", "too_long"),
    ],
)
def test_what_is_no_text_is_read_or_refused(value, grade, reason):
    """A client may have parsed the arguments already, or left them out: a dict is copied, the rest is refused by name."""
    reading = read_arguments(value)
    assert (reading.grade, reading.reason) == (grade, reason)
    assert reading.value == (value if grade == "exact" else None)
    assert reading.value is not value or value is None
    assert read_arguments(value, stop_reason="length").reason == "cut_message"


@pytest.mark.parametrize("number", ["9007199254740993.0", "9007199254740993e0", "9007199254740.993E3"])
@pytest.mark.parametrize("text", ['{"n": %s}', "{'n': %s}", '{"n": %s,}', '{"n": +%s}'])
def test_an_integer_with_a_point_is_no_other_integer(text, number):
    """No double holds it, so it is read as the integer it is."""
    value = read_arguments(text % number).value
    assert value == {"n": 9007199254740993}
    assert value is not None
    assert type(value["n"]) is int


@pytest.mark.parametrize("digits", [310, 5000])
@pytest.mark.parametrize("text", ['{"n": %s.0}', "{'n': %s.0}", "{'n': %se0}"])
def test_a_number_too_large_is_refused_however_long_it_is(text, digits):
    """It neither becomes an integer that no parser reads nor ends in an exception."""
    assert read_arguments(text % ("1" * digits)).reason == "not_finite"


@pytest.mark.parametrize("item", ['{\n"x":1,\n}', '{"x":1\n"y":2}'])
def test_many_objects_with_a_comma_out_of_place_are_looked_at_once(item):
    """The whole value is walked once, not once for each of them."""
    items = {"type": "array", "items": {"type": "object", "properties": {"x": {}}}}
    begun = time.thread_time()
    reading = read_arguments(f'{{"a": [{",".join([item] * 4_000)}]}}', schema={"properties": {"a": items}})
    assert time.thread_time() - begun < 2
    assert reading.grade == "lossless"
