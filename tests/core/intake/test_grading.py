"""Which texts are refused although they read to their end: grading by schema, words and line breaks."""

import time

import pytest
from argument_cases import AB, FLAT

from pokayoke.core.intake import read_arguments, reading_finding
from pokayoke.core.schema.schema import compile_schema

NESTED = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "in": {"type": "object", "properties": {"x": {"type": "integer"}}, "additionalProperties": False},
    },
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1}\nb: EUR', "trailing_text"),
        ('{"a": 1}\n- **note**\n- b = all of it', "trailing_text"),
        ('b: EUR\n{"a": 1}', "trailing_text"),
        ('{"a": 1}\nc: EUR', None),
        ('<b>{"a": 1}</b>', "trailing_text"),
        ('### b\n{"a": 1}', "trailing_text"),
        ('**b**\n{"a": 1}', "trailing_text"),
        ('b is\n{"a": 1}', "trailing_text"),
        ('--b {"a": 1}', "trailing_text"),
        ('### c\n{"a": 1}', None),
        ('Die Werte für b:\n{"a": 1}', "trailing_text"),
        ('设置b：\n{"a": 1}', "trailing_text"),
        ('Hier sind die Werte:\n{"a": 1}', None),
        ('{\n  "a": 1\n  "b": "x"\n}', "uneven_commas"),
    ],
)
@pytest.mark.parametrize(
    "wrap", [lambda s: s, lambda s: {"$ref": "#/$defs/R", "$defs": {"R": s}}, lambda s: {"allOf": [s]}]
)
def test_what_the_schema_declares_may_stand_beside_the_object(text, reason, wrap):
    """A declared name in a line of its own is no prose, and an absent one may be lost, wherever it is declared."""
    schema = wrap({"properties": {name: {} for name in ("a", "b", *("d" if reason == "uneven_commas" else ()))}})
    assert read_arguments(text, schema=schema).reason == reason


@pytest.mark.parametrize(
    ("text", "schema", "grade", "name", "value"),
    [
        ('{"a": 1, "b": "x"', FLAT, "lossless", "closed_by_schema", AB),
        ('Here it is: {"a": 1, "b": "x"', FLAT, "lossless", "closed_by_schema", AB),
        ('{"b": "x", "a": 1\n', FLAT, "lossless", "closed_by_schema", AB),
        ('{"a": 1, "b": "x",', FLAT, "lossy", "cut_after_comma", None),
        ('{"b": "x", "a": 1', FLAT, "lossy", "cut_in_number", None),
        ('{"b": "x"', FLAT, "ambiguous", "missing_closer", None),
        ('{"a": 1, "b": "x}y"', FLAT, "lossy", "cut_in_string", None),
        ('{"a": 1, "b": "{x}y"', FLAT, "lossless", "closed_by_schema", {"a": 1, "b": "{x}y"}),
        ('{"l": ["x]y"]', {"properties": {"l": {}}, "additionalProperties": False}, "ambiguous", "missing_closer", None),
        ('{"l": "x]y"', {"properties": {"l": {}}, "additionalProperties": False}, "lossy", "cut_in_string", None),
        ("{'a': 1, 'b': 'x'", FLAT, "ambiguous", "missing_closer", None),
        ('{"a": 1, "b": "x"', True, "ambiguous", "missing_closer", None),
        ('"a": 1, "b": "x"}', FLAT, "lossless", "opened_by_schema", AB),
        ('"a": 1}', FLAT, "ambiguous", "missing_opener", None),
        ('{"a": 1, "b": "x"}}', FLAT, "lossless", "extra_closer", AB),
        ('{"a": 1}}', FLAT, "lossless", "extra_closer", {"a": 1}),
        ('```json\n{"a": 1}}\n```', FLAT, "lossless", "extra_closer", {"a": 1}),
        ('{"a": "x"}}', FLAT, "ambiguous", "extra_closer", None),
        ('{"a": 1,}}', FLAT, "ambiguous", "extra_closer", None),
        ('{"a": 1}}', NESTED, "ambiguous", "extra_closer", None),
        ('{"a": 1, "in": {}}}', NESTED, "lossless", "extra_closer", {"a": 1, "in": {}}),
        ('{"in": {"x": 1}}}', NESTED, "lossless", "extra_closer", {"in": {"x": 1}}),
        ('{"in": {}, "a": 1}}', NESTED, "lossless", "extra_closer", {"in": {}, "a": 1}),
        ("{}}", {**FLAT, "required": []}, "lossless", "extra_closer", {}),
        ('{"a": 1}}', {**FLAT, "anyOf": [{}]}, "ambiguous", "extra_closer", None),
        ('{"a": 1}}', {"type": "object"}, "ambiguous", "extra_closer", None),
        *(
            (
                '{"a": 1}}',
                {"properties": {"a": {"type": "integer"}, "b": other}, "additionalProperties": False},
                *(("ambiguous", "extra_closer", None) if may else ("lossless", "extra_closer", {"a": 1})),
            )
            for other, may in (
                ({}, True),
                (True, True),
                ({"type": ["string", "object"]}, True),
                ({"type": ["string", "array"]}, False),
            )
        ),
        ('{}{"a": 1}', FLAT, "lossless", "empty_prefix", {"a": 1}),
        ('{}{"a": 1', FLAT, "lossy", "several_values", None),
        ('{}{"a": 1}{"a": 2}', FLAT, "lossy", "several_values", None),
        ('{}{"a": 1}', {"type": "object"}, "lossy", "several_values", None),
        *(
            (text, *rest)
            for text in (None, "null", ' "null" ', "")
            for rest in (
                ({"type": "object"}, "lossless", "empty_text", {}),
                (FLAT, "lossy", "empty_arguments" if text == "" else "not_an_object", None),
            )
        ),
        ('{\n"a": 1, // alles\n}', FLAT, "edited", "uneven_commas", {"a": 1}),
        ('{\n"a": 1, "b": "x", // alles\n}', FLAT, "lossless", "trailing_comma", AB),
        ('json{"json": 1}', {"properties": {"json": {}}}, "lossy", "trailing_text", None),
        ("  ", True, "lossless", "empty_text", {}),
        ("", False, "lossy", "empty_arguments", None),
        ('{"b": "x",}', FLAT, "ambiguous", "lost_member", None),
        ('{"b": "x"\n "c": 1}', FLAT, "ambiguous", "lost_member", None),
        ('{"a": 1,}', FLAT, "lossless", "trailing_comma", {"a": 1}),
        ('{"a": 1, "b": "x",}', FLAT, "lossless", "trailing_comma", AB),
        ('{"in": {"x": 1,}}', NESTED, "lossless", "trailing_comma", {"in": {"x": 1}}),
        ('{"in": {"y": 1,}, "a": 1}', NESTED, "lossless", "trailing_comma", {"in": {"y": 1}, "a": 1}),
        ('{\n "a": 1,\n}', FLAT, "edited", "trailing_comma", {"a": 1}),
        ('{\n "a": 1,\n "b": "x",\n}', FLAT, "lossless", "trailing_comma", AB),
        ('{"in": {\n "x": 1,\n}}', NESTED, "lossless", "trailing_comma", {"in": {"x": 1}}),
        ('{\n "a": 1,\n}', {"type": "object"}, "lossless", "trailing_comma", {"a": 1}),
        ('{"in": {\n "x": 1,\n}}', {"properties": {"in": {"type": "object"}}}, "edited", "trailing_comma", {"in": {"x": 1}}),
        ('{"a": 1\n "b": "x"}', FLAT, "lossless", "missing_comma", AB),
        ('{"a": 1\n "in": {}}', NESTED, "lossless", "missing_comma", {"a": 1, "in": {}}),
        ('{"in": {"x": {"y": 1\n "z": 2}}}', NESTED, "edited", "missing_comma", {"in": {"x": {"y": 1, "z": 2}}}),
        ('{"a": 1\n "d": "x"}', {**FLAT, "additionalProperties": True}, "edited", "missing_comma", {"a": 1, "d": "x"}),
        ('{"in": {\n "y": {},\n}, "a": [1]}', NESTED, "edited", "trailing_comma", {"in": {"y": {}}, "a": [1]}),
        (
            '{"l": [0, {\n "y": 1,\n}]}',
            {"properties": {"l": {"items": {"properties": {"z": {}}}}}},
            "edited",
            "trailing_comma",
            {"l": [0, {"y": 1}]},
        ),
        ('{"a": 1, "b": True}', FLAT, "lossy", "bare_reference", None),
        ('{"a": True, "b": "x"}', FLAT, "lossless", "python_word", {"a": True, "b": "x"}),
        ('{"a": 1, "b": None}', FLAT, "lossless", "python_word", {"a": 1, "b": None}),
        ('{"l": [{"a/b": True}]}', {"properties": {"l": {"items": {"properties": {"a/b": {"type": "string"}}}}}}, "lossy", "bare_reference", None),
    ],
)  # fmt: skip
def test_the_schema_is_evidence_and_never_changes_a_value(text, schema, grade, name, value):
    """What the text alone cannot prove is decided by what the schema admits, compiled or not."""
    for given_schema in (schema, compile_schema(schema)):
        reading = read_arguments(text, schema=given_schema)
        assert (reading.grade, reading.value) == (grade, value)
        assert name in reading.repairs or name == reading.reason


GIVEN_BESIDE = [
    '{"a": 1}\nb\nx',
    '{"a": 1}\n--b x',
    '{"a": 1}\n--b=x',
    '{"a": 1}\nb -> x',
    '{"a": 1}\n| b | x |',
    "{\"a\": 1}\n- 'b'\n  x",
    '{"a": 1}\n\nAlso, b should be "x".',
    '<b>x</b>{"a": 1}',
    '<args>{"a": 1}</args><b>x</b>',
    'With b 5 it is:\n{"a": 1}',
    '{"a": 1} // b => x',
    '{"a": 1}\nset b to London',
    '{"a": 1}\nb soll London sein.',
    '{"a": 1}\nAußerdem ist b London.',
    '{"a": 1}\nb应为伦敦。',
    '{"a": 1}\nTaking a as above.',
]


@pytest.mark.parametrize("text", GIVEN_BESIDE)
def test_an_argument_given_beside_the_object_is_not_left_out(text):
    """The object lacks an argument that the words around it give: what is left of the call is not the call."""
    reading = read_arguments(text, schema=FLAT)
    assert (reading.grade, reading.reason, reading.value) == ("lossy", "trailing_text", None)


@pytest.mark.parametrize(
    "text",
    [
        'Setting b to x, a to 1:\n{"a": 1, "b": "x"}',
        'Setze b auf x, a auf 1:\n{"a": 1, "b": "x"}',
        '{"a": 1}\nDen Rest habe ich weggelassen.',
        '<invoke b="x">{"a": 1}</invoke>',
        '<b_call>{"a": 1}</b_call>',
    ],
)
def test_words_about_an_argument_are_no_value_of_it(text):
    """An argument that the object has was only announced, words without a name or a value give none, and the sign of a tag is no name."""
    assert read_arguments(text, schema=FLAT).grade == "lossless"


@pytest.mark.parametrize("sign", "-|<>=:")
def test_words_around_an_object_are_looked_at_once(sign):
    """The time stays linear for every sign that may give a value."""
    around = f"a{sign}" * 40_000
    begun = time.thread_time()
    read_arguments(f'{{"a": 1}}\n{around}', schema=FLAT)
    assert time.thread_time() - begun < 1


@pytest.mark.parametrize(
    "text",
    ['"a": 1, "b": "x{y"}', '"a": 1, "b": "{x"}', '{"b": "x{y", "a": 1}}', '{"b": "x}y", "a": 1 '],
)
def test_a_brace_that_moved_into_a_string_is_not_lost(text):
    """As many braces as belong there: none was lost or added, so the string holds one that is not its own."""
    reading = read_arguments(text, schema=FLAT)
    assert (reading.grade, reading.value) == ("ambiguous", None)


def test_a_value_in_a_comment_before_a_value_is_a_rival():
    """Which of the two was meant, the text does not say."""
    reading = read_arguments('{"a": /* 10 */ 101}', schema=FLAT)
    assert (reading.reason, reading.value) == ("comment_holds_data", None)


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        ('{"a":\n1, "b": "one\ntwo"}', "lossy"),
        ('{"a": 1, "b":\n"one two\nthree"}', "lossy"),
        ('{"a": 1, "\nb": "one \ntwo"}', "lossy"),
        ('{"a": 1, \n"b": "one\n two"}', "lossy"),
        ('{"a": 1, "b": "one\ntwo more"}', "lossless"),
        ('{\n  "a": 1,\n  "b": "one\ntwo more"\n}', "lossless"),
    ],
)
def test_a_text_broken_to_a_width_keeps_no_line_break(text, grade):
    """A break between a key and its value, or lines of one length: those in a string are then no part of it."""
    assert read_arguments(text, schema=FLAT).grade == grade


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{'a': (1, 2,), 'b': [3]}", "trailing_comma_in_list"),
        ('{"a": [\n/* [] */\n]}', "comment_holds_data"),
        ('{"a": /* {"x": 1} */ {}}', "comment_holds_data"),
        ('{"a": 5 // should be 6\n}', "comment_holds_data"),
        ('{"a": 5 // warte, 6\n}', "comment_holds_data"),
        ('{"a": "x" # nicht "y"\n}', "comment_holds_data"),
        ('{\n  "a": [\n    "x,\n    y"\n  ]\n}', "lost_quote"),
        ('{\n  "a": [\n    "x”,\n    ”y"\n  ]\n}', "lost_quote"),
        ('x": 5,\n  "b_{\n "a": 1\n}', "trailing_text"),
        ('{"a": 1}\nress": 850,', "trailing_text"),
    ],
)
def test_what_may_have_been_lost_is_not_looked_past(text, reason):
    """A tuple's item, a value in a comment, the quotes between two items, a member around the object."""
    reading = read_arguments(text)
    assert (reading.reason, reading.value) == (reason, None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': (1,), 'b': [3]}", {"a": [1], "b": [3]}),
        ("{'a': (1, 2,), 'b': [3,],}", {"a": [1, 2], "b": [3]}),
        ('{"a": 5 /* see [1] */}', {"a": 5}),
        ('{"a": 5 // should be an ISO code, was 4\n}', {"a": 5}),
        ('{\n  "a": [\n    "x z,\ny"\n  ]\n}', {"a": ["x z,\ny"]}),
        ('{\n  "a": "x z,\n  y"\n}', {"a": "x z,\n  y"}),
    ],
)
def test_what_only_looks_alike_loses_nothing(text, value):
    """A tuple of one, commas everywhere, a remark, a text that is broken where no item would be."""
    reading = read_arguments(text)
    assert (reading.grade, reading.value) == ("lossless", value)


BOUNDS = ({"pattern": "."}, {"format": "date"}, {"enum": ["x"]}, {"const": "x"}, {"allOf": [{"pattern": "."}]})


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        ("RL5\n0", "edited"),
        ("RL5\n  0", "edited"),
        ("break\tfast", "edited"),
        ("milk\neggs\nbread\n", "edited"),
        ("two words\nof it", "lossless"),
        ("1.\u3000x\ny", "lossless"),
    ],
)
def test_a_raw_line_break_that_is_the_only_white_space_may_be_a_slip(text, grade):
    """In a name or a number nobody can tell; a text with other white space is broken like others, where nothing bounds it."""
    for schema in (None, {"type": "object"}, {"properties": {"a": {"type": "string"}}}):
        reading = read_arguments(f'{{"a": "{text}"}}', schema=schema)
        assert (reading.grade, reading.repairs[0]) == (grade, "raw_control_character")
        assert reading.value == {"a": text}
        assert (reading.reason, reading.position) == (("raw_line_break", 6) if grade == "edited" else (None, None))
    for bound in BOUNDS:
        nested = {"properties": {"l": {"items": {"properties": {"a": bound}}}}}
        assert read_arguments(f'{{"l": [1, {{"a": "{text}"}}]}}', schema=nested).grade == "edited"
    assert (
        read_arguments('{"b": "x y\nz", "a": "x"}', schema={"properties": {"a": {"pattern": "."}}}).grade == "lossless"
    )


@pytest.mark.parametrize("given", [None, True, {"type": "object"}])
def test_without_declarations_a_nested_comma_counts_as_a_flat_one(given):
    """Where no schema is known, nothing says that a member is missing; where an inner object is free, it may be."""
    text = '{"record": {\n "x": 1,\n}}'
    assert read_arguments(text, schema=given).grade == ("lossless" if given is None else "edited")
    assert read_arguments(text.replace("}}", "}").replace('{"record": ', ""), schema=given).grade == "lossless"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{{"to": "A"}}', "brace"),
        ('{"id": "RL5\n0"}', "raw line break"),
    ],
)
def test_a_refusal_names_the_sign(text, words):
    """The model can mend what it is told."""
    finding = reading_finding(read_arguments(text), effect="write", tool="pay")
    assert words in finding.hint
    assert words in finding.message
