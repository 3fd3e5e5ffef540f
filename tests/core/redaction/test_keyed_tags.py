"""Tags of redacted values: equal for equal values under one key, and of no use to anyone without it."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.redaction.keyed_digest import keyed_digest
from pokayoke.core.redaction.known_secrets import HIDDEN, KnownSecrets, holds_hidden, is_hidden
from pokayoke.core.redaction.redactor import Redactor

KEY, OTHER = b"k" * 32, b"o" * 32
KEYED = Redactor(key=KEY)


def tag(value, key=KEY):
    return KnownSecrets(key).mask(value)


@given(st.text(min_size=6), st.text(min_size=6))
def test_tags_are_equal_exactly_for_equal_values(one, other):
    """Equal values have equal tags, other values other tags, and another key gives other tags."""
    assert (tag(one) == tag(other)) is (one == other) or is_hidden(one) or is_hidden(other)
    assert is_hidden(tag(one))
    assert is_hidden(one) or tag(one) != tag(one, OTHER)


def test_without_a_key_there_is_no_tag():
    """The default says nothing about a value."""
    assert KnownSecrets().mask("hunter22") == HIDDEN
    assert Redactor().redact_value({"password": "hunter22"}) == {"password": HIDDEN}


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter22-x", 'x {"password": "hunter22-x"}', "<password>hunter22-x</password>", "--password hunter22-x",
        '("password", "hunter22-x")', '<parameter name="password">hunter22-x</parameter>', "postgresql://a:hunter22-x@h/d",
        '<add key="password" value="hunter22-x"/>', "curl -u ann:hunter22-x https://h", "Cookie: hunter22-x",
        "Authorization: hunter22-x", "password:\n  hunter22-x",
    ],
)  # fmt: skip
def test_every_rule_gives_a_value_the_same_tag(text):
    """A value is matched across payloads and texts, whichever rule finds it."""
    shown = KEYED.redact_text(text)
    assert tag("hunter22-x") in shown
    assert "hunter22" not in shown
    assert KEYED.redact_text(shown) == shown


def test_values_of_every_kind_have_tags():
    """Objects and numbers too; the order of an object's members is of no account."""
    one, other = ({"secret": given_} for given_ in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    assert KEYED.redact_value(one) == KEYED.redact_value(other) == {"secret": tag({"a": 1, "b": 2})}
    assert KEYED.redact_value({"pin": 123456}) == KEYED.redact_value({"pin": "123456"})
    assert KEYED.redact_value(4111111111111111) == KEYED.redact_text("4111111111111111")


def test_a_later_text_has_the_tag_of_the_value_it_repeats():
    """Also where the text repeats it encoded."""
    seen = KnownSecrets()
    KEYED.redact_value({"password": "hunter22 ä"}, seen=seen)
    assert KEYED.redact_text("no: hunter22%20%C3%A4", seen=seen) == f"no: {tag('hunter22 ä')}"


def test_what_was_redacted_is_recognised():
    """Readers of recordings know a tagged value as a hidden one."""
    assert [is_hidden(text) for text in (tag("x"), HIDDEN, "[redacted#x]")] == [True, True, False]
    assert [holds_hidden(text) for text in (f"a {tag('x')}", "[redact]")] == [True, False]


def test_processes_with_the_same_key_give_the_same_tags():
    """The tag depends on nothing but the key and the value."""
    code = (
        "from pokayoke.core.redaction.redactor import Redactor\n"
        "import json; print(json.dumps(Redactor(key=b'k' * 32).redact_value({'password': 'hunter22'})))"
    )
    shown = [
        json.loads(subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}))
        for seed in ("1", "2")
    ]
    assert shown == [{"password": tag("hunter22")}] * 2


def test_a_digest_takes_any_text():
    """Half a character and bytes, too."""
    assert len(keyed_digest(KEY, "\ud800")) == len(keyed_digest(KEY, b"x")) == 32
