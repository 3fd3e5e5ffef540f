"""Comments and texts around arguments: what may be part of the arguments, in whatever language."""

import time

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
        ("besser 7", "comment_holds_data"),
        ("改为7", "comment_holds_data"),
        ("7", "comment_holds_data"),
        ("7.5", "comment_holds_data"),
        ("* 3", "expression"),
        ("+ extra", "expression"),
        ("... und so weiter", "ellipsis"),
        ("bis …", "ellipsis"),
        ("use 2", None),
        ("用户要2", None),
        ("2 Tage, wie gesagt", None),
        ("die Hälfte von 4 oder 5 Tagen", None),
        ("2 * 1", None),
        ("siehe [7]", None),
        ("(7)", None),
        ("#7", None),
        ("dies ist falsch", None),
        ("* of days", None),
    ],
)
def test_a_comment_that_is_another_number_refuses(comment, reason):
    """It holds hardly more than a number that is not the one before it; in a longer one, a number explains."""
    for text in (
        f'{{"max_days": 2 # {comment}\n, "city": "Rome"}}',
        f'{{"max_days": 2, /* {comment} */\n "city": "Rome"}}',
    ):
        assert read_arguments(text).reason == reason


@pytest.mark.parametrize(
    ("comment", "is_read"),
    [
        ('oder "Paris"', False),
        ("“Paris”!", False),
        ("'Paris'", False),
        ('"Paris" statt dessen', False),
        ('auch "Rome"', True),
        ('die {unit} von "it"', True),
        ('ein "gutes" Wort', True),
        ("bis 7", True),
        ("see [1]", True),
        ("so ]", False),
        ("[so}", False),
        ('["x", "y"]', False),
    ],
)
def test_a_comment_that_is_another_text_refuses(comment, is_read):
    """The quotation is all that it says; a note in brackets, or a word quoted in a remark, is no member and no item."""
    assert (read_arguments(f'{{"city": "Rome", // {comment}\n "days": 2}}').reason is None) == is_read


def test_a_comment_before_the_first_value_has_no_rival():
    """It may name any value."""
    assert read_arguments('{ // 7 or "Paris"\n"city": "Rome"}').value == {"city": "Rome"}
    assert read_arguments('{"at": {} // 7\n, "max_days": true // false\n, "unit": 2}').reason == "comment_holds_data"
    assert read_arguments('{"at": {"x": "y"} /* 7 */, "unit": 2}').value == {"at": {"x": "y"}, "unit": 2}


def test_a_comment_on_the_line_of_a_closer_closes():
    """A comment on the line of the last member, or of the brace, is a remark; on a line of its own it may be a member."""
    assert read_arguments('{"a": 1 /* end */ }').value == {"a": 1}
    assert read_arguments('{\n"a": 1 // 全部\n}').value == {"a": 1}
    assert read_arguments('{\n"a": 1\n /* end */ }').value == {"a": 1}
    assert read_arguments('{\n"a": 1\n /* end */\n}').reason == "comment_holds_data"


@pytest.mark.parametrize("unit", ["/*[*/", "//[x]\n", "#(((((\n", "//7 \n", '//"" \n'])
def test_many_comments_take_linear_time(unit):
    """Each is looked at once, also where it is full of brackets or values."""
    begun = time.thread_time()
    read_arguments("{" + unit * (200_000 // len(unit)), schema=SCHEMA)
    assert time.thread_time() - begun < 2


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
        "{}\nDie unit ist km.",
        "{}\nunit → km",
        "{}\n1. unit - km",
        "{}\n请把city改成巴黎。",
        "{}\nPlease change city to Paris.",
        "{}\ncity = Paris",
        "unit is km.\n{}",
        "maxDays 3\n{}",
        "Max Days: 3\n{}",
    ],
)
def test_words_that_name_an_argument_may_give_it(words):
    """One that the object lacks, or behind it also one that it has: it may have another value now."""
    assert read_arguments(words.format(ONE), schema=SCHEMA).reason == "trailing_text"


@pytest.mark.parametrize("words", ["> {}", ">>> {}", "Based on what you said:\n{}", "As you said:\n{}"])
def test_words_that_lead_to_arguments_leave_them_alone(words):
    """A sign of quotation is not a quotation, and what the user said is why they are sent."""
    assert read_arguments(words.format(ONE), schema=SCHEMA).value == {"city": "Rome"}


@pytest.mark.parametrize(
    "words", ["The city is known.\n{}", "With city Rome:\n{}", "Die Einheiten fehlen.\n{}", "{}\nFertig."]
)
def test_words_that_give_no_argument_change_nothing(words):
    """They name one that the object below has, or none."""
    assert read_arguments(words.format(ONE), schema=SCHEMA).value == {"city": "Rome"}


@pytest.mark.parametrize(
    "words",
    [
        "Not like this:\n{}",
        "Bitte nicht senden:\n{}",
        "我不会发送：\n{}",
        "Should I send this?\n{}",
        "{}\nThis is just an example.",
        "{}\nNur ein Beispiel.",
        "{}\n这只是一个例子。",
    ],
)
def test_no_words_of_a_language_disown_arguments(words):
    """The object is what the model put in the place of the arguments, whatever it says beside it."""
    assert read_arguments(words.format(ONE), schema=SCHEMA).value == {"city": "Rome"}


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
        ('{"a": "A title\n=====\ntext"}', {"a": "A title\n=====\ntext"}),
        ('{\n "a": {"x": 1, "y": 2},\n "b": "one\ntwo more"\n}', {"a": {"x": 1, "y": 2}, "b": "one\ntwo more"}),
        ('{"a": 1,\n "b": "one\ntwo more"}', {"a": 1, "b": "one\ntwo more"}),
        ('{\n  "at": {\n    "y": 2\n  }\n  "x": 1\n}', {"at": {"y": 2}, "x": 1}),
    ],
)
def test_what_only_looks_like_such_a_trace_is_read(text, value):
    """A key with a sign in it, spaces between values alone, an underlined title, one member in each line."""
    assert read_arguments(text).value == value
