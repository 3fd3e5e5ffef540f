"""Formats as tools mean them, and patterns that look around."""

import time

import pytest

from pokayoke.core.schema.formats import format_check
from pokayoke.core.schema.problems import SPELLING
from pokayoke.core.schema.schema import compile_schema


@pytest.mark.parametrize("name", ["email", "idn-email"])
@pytest.mark.parametrize(
    ("text", "is_address"),
    [
        ("mia@shop.example", True),
        ("mia+orders@localhost", True),
        ('"mia li"@shop.example', True),
        ("Mia <mia@shop.example>", False),
        ("<mia@shop.example>", False),
        ("mia@shop.example, li@shop.example", False),
        ("A <a@x.example>, B <b@y.example>", False),
        ("Mia\r\nBcc: all@corp.example <mia@shop.example>", False),
        ("mia@shop.example\nBcc: all@corp.example", False),
        ("mia@shop.example\n", False),
        ('"mia\nli"@shop.example', False),
        (" mia@shop.example", False),
        ("mia", False),
    ],
)
def test_an_email_is_one_plain_address(name, text, is_address):
    """A display name, a second address, white space and a line break are refused, in both formats."""
    assert format_check(name)(text) is is_address
    assert compile_schema({"type": "string", "format": name}).accepts(text) is is_address


@pytest.mark.parametrize(
    ("text", "is_time"),
    [
        *((text, True) for text in ("09:30:00", "09:30:00.25", "09:30:00Z", "09:30:00+01:00", "23:59:60")),
        *((text, False) for text in ("24:00:00", "9:30:00", "09:30", "09:30:00ZZ", "soon")),
    ],
)
def test_a_time_may_come_without_an_offset(text, is_time):
    """A time of the day with or without an offset passes, in every dialect."""
    assert compile_schema({"type": "string", "format": "time"}).accepts(text) is is_time
    assert compile_schema({"type": "string", "format": "time"}, draft="draft4").accepts(text) is is_time


def test_a_moment_needs_its_offset():
    """A date-time is RFC 3339: without an offset it means another moment on every machine."""
    schema = compile_schema({"type": "string", "format": "date-time"})
    assert schema.accepts("2026-03-01T09:00:00+01:00")
    assert not schema.accepts("2026-03-01T09:00:00")


LOOKING = r"^(?!\.)(?!.*\.\.)[A-Za-z0-9_+.-]+@[A-Za-z0-9-]+\.[a-z]{2,}$"


def test_a_pattern_that_looks_around_is_asserted():
    """A pattern with look-around decides as any other, alone, in a list and over names, and is explained."""
    schema = compile_schema(
        {
            "properties": {"a": {"pattern": LOOKING}, "b": {"items": {"pattern": r"^(.)\1$"}}},
            "patternProperties": {"^(?!a$|b$)": False},
        }
    )
    assert schema.accepts({"a": "mia@shop.example", "b": ["xx"]})
    problems = schema.find_problems({"a": ".mia@shop.example", "b": ["xy"], "c": 1})
    assert [(problem.at, problem.keyword) for problem in problems] == [
        ("/a", "pattern"),
        ("/b/0", "pattern"),
        ("/c", "false"),
    ]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(?=(a*))\1b", "a" * 200_000),
        (r"(?!b)(a|aa)+$", "a" * 200_000 + "b"),
        (r"(.*?)(?=x)(.*)(.*)(.*)y", "x" * 200_000),
    ],
)
def test_hostile_patterns_end_in_time(pattern, text):
    """A pattern that would go back for hours is given up after its steps, and the text is refused."""
    schema = compile_schema({"pattern": pattern})
    began = time.process_time()
    assert not schema.accepts(text)
    assert time.process_time() - began < 8


@pytest.mark.parametrize("name", SPELLING)
def test_the_example_of_a_format_fits_it(name):
    """The example that a hint shows is in the format itself."""
    example = SPELLING[name].rpartition("such as ")[2]
    assert format_check(name)(example)
    assert not format_check(name)("no such text")


def test_many_short_texts_end_in_time():
    """The same for as many short texts as arguments can hold."""
    schema = compile_schema({"items": {"pattern": r"^(a|aa)+(?=c)$"}})
    began = time.process_time()
    assert not schema.accepts(["a" * 60 + "b"] * 3_000)
    assert time.process_time() - began < 4
