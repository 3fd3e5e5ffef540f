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
        (f"{OBJECT}\nDas ist nur ein Beispiel.", ("prose",)),
        (f"例如：\n{OBJECT}\n这是错的。", ("prose",)),
        (f"{OBJECT}\nEntschuldigung, es ist 10.", None),
        (f"{OBJECT}\n应该是「y」。", None),
        (f"{OBJECT}\nIch meine 'y'.", None),
        (f"{OBJECT}\nPlutôt → y", None),
        (f"{OBJECT} // 10, nicht x", None),
        (f"{OBJECT}\n{OBJECT}", ("equal_repeat",)),
        (f"{OBJECT} {{'a': 'x'}}", None),
        (f"# A note\n{OBJECT}", ("comment",)),
        (f"{OBJECT} // so", ("comment",)),
        ('{"a": "x" // must be a city\n}', ("comment",)),
        ('{"a": "x" // noch nicht\n}', ("comment",)),
        (json.dumps(OBJECT), ("double_encoded",)),
        (f"# a = y\n{json.dumps(OBJECT)}", None),
        (f"{OBJECT}{OBJECT}", None),
        (f'{OBJECT}\n{{"a": "y"}}', None),
        ('{"n": 1}\n{"n": true}', None),
        (f"{OBJECT}\n{OBJECT}\n{OBJECT}", None),
        ("{&quot;a&quot;: &quot;x&quot;}", ("html_quotes",)),
        ("{&#34;a&#34;: &#34;x&#34;}", ("html_quotes",)),
        ("{&#x22;a&#x22;: &#x22;x&#x22;}", ("html_quotes",)),
        ("{&#x22;a&#x22;: &quot;x&quot;}", None),
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


@pytest.mark.parametrize("label", ["Arguments", "data", "Input", "Argumente", "参数"])
def test_a_label_that_could_be_an_argument_needs_the_schema(label):
    """`data: {...}` is an event of a server, unless an argument has that name, in whatever case."""
    text = f"{label}: {OBJECT}\n\n"
    assert read_arguments(text).value is None
    assert read_arguments(text, schema=SCHEMA).value == {"a": "x"}
    named = {"type": "object", "properties": {"a": {}, label.upper(): {}}}
    assert read_arguments(text, schema=named).value is None
    assert read_arguments(f'"{label}": {OBJECT}', schema=SCHEMA).value is None
