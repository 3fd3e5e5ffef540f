"""Comments and words around arguments that complete, change or deny them."""

import pytest

from pokayoke.core.intake import read_arguments, read_calls

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "max_days": {"type": "integer"}, "unit": {}, "at": {"type": "object"}},
}
ONE = '{"city": "Rome"}'


@pytest.mark.parametrize(
    ("comment", "reason"),
    [
        ("use 7 instead", "comment_holds_data"),
        ("changed to 7", "comment_holds_data"),
        ("corrected: 7", "comment_holds_data"),
        ("the user wants 42", "comment_holds_data"),
        ("also 3", "comment_holds_data"),
        ("this is wrong", "bare_reference"),
        ("an example", "bare_reference"),
        ("example value", "bare_reference"),
        ("a guess", "bare_reference"),
        ("ask the user", "bare_reference"),
        ("do not use", "bare_reference"),
        ("* 3", "expression"),
        ("times 3", "expression"),
        ("in thousands", "expression"),
        ("dozens", "expression"),
        ("+ extra", "expression"),
        ("use 2", None),
        ("the user wants 2", None),
        ("days, from the user", None),
        ("max is 100", None),
        ("in EUR", None),
        ("* of days", None),
    ],
)
def test_a_comment_that_names_another_value_or_calls_it_none_refuses(comment, reason):
    """The literal at its end is not the one it stands behind, or words say that it was made up."""
    for text in (f'{{"max_days": 2 // {comment}\n}}', f'{{"max_days": 2, /* {comment} */\n "city": "Rome"}}'):
        assert read_arguments(text).reason == reason


@pytest.mark.parametrize("comment", ["# max_days: 3", "// unit = km", "/* unit: km */", "# the max days are 3"])
def test_a_comment_that_gives_an_absent_argument_refuses(comment):
    """The member was commented out, and nobody knows whether it is meant; one that is there is only explained."""
    text = f'{{\n{comment}\n"city": "Rome"\n}}'
    assert read_arguments(text, schema=SCHEMA).reason == "comment_holds_data"
    (call,) = read_calls(f'{{"name": "f", "arguments": {text}}}', tools={"f": SCHEMA}).calls
    assert call.reading.reason == "comment_holds_data"
    assert read_arguments(text.replace('"city"', '"unit": "km", "max_days": 3, "city"'), schema=SCHEMA).value


@pytest.mark.parametrize(
    "words",
    [
        "{}\nMax Days: 3",
        "{}\nThe unit is km.",
        "{}\nunit → km",
        "{}\n1. unit - km",
        "{}\nWith unit km.",
        "{}\nPlease change city to Paris.",
        "{}\nThe city should be Paris.",
        "{}\ncity = Paris",
        "unit is km.\n{}",
        "Max Days: 3\n{}",
    ],
)
def test_words_that_complete_an_object_or_change_it_from_behind_refuse(words):
    """Behind it also an argument that it has: it may have another value now."""
    assert read_arguments(words.format(ONE), schema=SCHEMA).reason in ("trailing_text", "disowned")


@pytest.mark.parametrize("words", ["> {}", ">>> {}", "Based on what you said:\n{}", "As you said:\n{}"])
def test_words_that_lead_to_arguments_leave_them_alone(words):
    """A sign of quotation is not a quotation, and what the user said is why they are sent."""
    assert read_arguments(words.format(ONE), schema=SCHEMA).value == {"city": "Rome"}


@pytest.mark.parametrize("words", ["The city is known.\n{}", "{}\nThe unit is optional.", "With city Rome:\n{}"])
def test_words_that_only_mention_an_argument_change_nothing(words):
    """It is known, optional, or the same as in the object below."""
    assert read_arguments(words.format(ONE), schema=SCHEMA).value == {"city": "Rome"}


@pytest.mark.parametrize(
    "words",
    [
        "Not like this:\n{}",
        "The old arguments were:\n{}",
        "If asked, I would send {}",
        "The user sent:\n{}",
        "Tool result:\n{}",
        "Should I send this?\n{}",
        "{}\nThis is just an example.",
        "{}\nThese are dummy values.",
        "{}\nPlease replace the values with your own.",
    ],
)
def test_arguments_that_the_words_around_them_disown_are_refused(words):
    """The same words that make a call none in a message."""
    assert read_arguments(words.format(ONE)).reason == "disowned"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        # Two quotes are lost: of the value before a key and of the key
        ("{'a: 5, b': 2}", "lost_quote"),
        ("{'x': 1, 'a': {'b: [1], c': 2}}", "lost_quote"),
        ('{"a": 1, "...": "...",}', "ellipsis"),
        # Every space became another one, or nobody knows which
        ('{"a":\u00a0"New\u00a0York"}', "odd_whitespace"),
        ('{"a":\u3000"x",\u3000"b":\u3000["y\u3000z"]}', "odd_whitespace"),
        # Lines were broken by a program
        ('{"a": "breakf=\nast"}', "control_character"),
        ('{"a": "New\n> York"}', "control_character"),
        ('{"a": "San Fran\n| cisco"}', "control_character"),
        ('{"a": "tige…\nrs"}', "control_character"),
        ('{"a": "x", "b": "y",\n"c": 5, "d": "New\nYork"}', "control_character"),
        # The line without a comma belongs into another object
        ('{\n  "at": {\n  }\n    "x": 1\n}', "lost_comma"),
    ],
)
def test_traces_of_what_was_lost_refuse_a_text_that_reads_to_its_end(text, reason):
    """The value would be another one than was meant."""
    assert (read_arguments(text).reason, read_arguments(text).value) == (reason, None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a: 5': 2, 'b, c': 3}", {"a: 5": 2, "b, c": 3}),
        ('{"a":\u00a0"New York"}', {"a": "New York"}),
        ('{"a": "x\u00a0y",}', {"a": "x\u00a0y"}),
        ('{"a": "Title\n=====\ntext"}', {"a": "Title\n=====\ntext"}),
        ('{\n "a": {"x": 1, "y": 2},\n "b": "one\ntwo"\n}', {"a": {"x": 1, "y": 2}, "b": "one\ntwo"}),
        ('{"a": 1,\n "b": "one\ntwo"}', {"a": 1, "b": "one\ntwo"}),
        ('{\n  "at": {\n    "y": 2\n  }\n  "x": 1\n}', {"at": {"y": 2}, "x": 1}),
    ],
)
def test_what_only_looks_like_such_a_trace_is_read(text, value):
    """A key with a sign in it, spaces between values alone, an underlined title, one member in each line."""
    assert read_arguments(text).value == value
