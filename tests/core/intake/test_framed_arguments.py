"""Arguments with a frame around them that has one meaning."""

import json

import pytest
from intake_cases import SCHEMA

from pokayoke.core.intake import read_arguments

OBJECT = '{"a": "x"}'


@pytest.mark.parametrize(
    ("text", "repairs"),
    [
        (f"Don't worry, I check. {OBJECT}", ("prose",)),
        (f"I don't have live data. {OBJECT}", ("prose",)),
        (f"I will not guess: {OBJECT}", ("prose",)),
        (f"Instead of guessing, I look it up:\n{OBJECT}", ("prose",)),
        (f"{OBJECT}\nDon't hesitate to ask!", ("prose",)),
        (f"{OBJECT}\nPlease wait for the result.", ("prose",)),
        (f"{OBJECT}\nSorry for the wait!", ("prose",)),
        (f"{OBJECT}\nWait for a better one.", None),
        (f"{OBJECT}\nSorry for the delay, it is y", None),
        (f"{OBJECT}\n{OBJECT}", ("equal_repeat",)),
        (f"{OBJECT} {{'a': 'x'}}", None),
        (f"# A note\n{OBJECT}", ("comment",)),
        (f"# Dry run:\n{OBJECT}", None),
        (f"{OBJECT} // never mind", None),
        ('{"a": "x" // must be a city\n}', ("comment",)),
        ('{"a": "x" // do not send this\n}', None),
        ('{"a": "x" /* not yet */}', None),
        ('{"a": "x" // should be Rome\n}', None),
        ('{"a": "x" // should have been y\n}', None),
        (json.dumps(OBJECT), ("double_encoded",)),
        (f"# a = y\n{json.dumps(OBJECT)}", None),
        (f"{OBJECT}{OBJECT}", None),
        (f'{OBJECT}\n{{"a": "y"}}', None),
        ('{"n": 1}\n{"n": true}', None),
        (f"{OBJECT}\n{OBJECT}\n{OBJECT}", None),
        ("{&quot;a&quot;: &quot;x&quot;}", ("html_quotes",)),
        ("{&quot;a&quot;: &quot;x &amp; y&quot;}", None),
        ("{&quot;a&quot;: &quot;x}", None),
        ('> {\n>   "a": "x"\n> }', ("block_quote",)),
        ('> {\n>   "a": "x"\n> }\nas you said', None),
        ("> [\n> ]", None),
    ],
)
def test_arguments_that_are_provably_meant_are_read(text, repairs):
    """Words about other things, an equal repetition, escaped quotes and a block quote change no value."""
    reading = read_arguments(text)
    assert (reading.value, reading.repairs) == (({"a": "x"}, repairs) if repairs else (None, ()))


@pytest.mark.parametrize("label", ["data", "Input", "Parameters", "params"])
def test_a_label_that_could_be_an_argument_needs_the_schema(label):
    """`data: {...}` is an event of a server, unless an argument has that name, in whatever case."""
    text = f"{label}: {OBJECT}\n\n"
    assert read_arguments(text).value is None
    assert read_arguments(text, schema=SCHEMA).value == {"a": "x"}
    named = {"type": "object", "properties": {"a": {}, label.upper(): {}}}
    assert read_arguments(text, schema=named).value is None
