"""The prefilter is never narrower than the full search."""

import re

import orjson
from hypothesis import example, given
from hypothesis import strategies as st
from redaction_cases import REDACTOR, SECRETIVE, dumped

from pokayoke.core.redaction import prefilter as secret_looks
from pokayoke.core.redaction.redactor import Redactor


def test_the_first_search_holds_a_piece_of_every_literal():
    """What the exact searches look for is never missed by the quick one before them, and it stays quick."""
    bare = re.sub(r"\[.*?\}", "", secret_looks._SHAPE_LITERALS).replace("\\", "").split("|")
    literals = [*secret_looks._NAME_LITERALS.split("|"), *bare]
    assert all(secret_looks._compile_searches().literal(f"a {literal} b") for literal in literals)
    assert len(literals) < 64
    assert all(len(literal.encode()) >= 4 for literal in literals)


NAME_PARTS = st.sampled_from([
    *["db", "smtp", "functions", "subscription", "connection", "string"],
    *["pass", "word", "wd", "phrase", "code", "api", "key", "private", "access", "signing", "encryption", "secret", "token", "tokens", "max", "count"],
    *["card", "no", "number", "auth", "pin", "otp", "cvv", "cvc", "ssn", "pwd", "cookie", "bearer", "contrase", "ñ", "ña", "Ñ", "na", "密", "密码", "K", "İ", "ſ"],
    *("_", "-", ".", "/", " ", "__", "\t", "\n", "\x01", "\x85", "\u2003", '"', "\\", "1", "2", "s", "x", "i", "I"),
])  # fmt: skip

CASES = st.sampled_from([str, str.title, str.upper, str.swapcase])

spelled_names = st.lists(st.builds(lambda case, part: case(part), CASES, NAME_PARTS), max_size=6).map("".join)


@given(spelled_names)
@example("aPIKey")
@example("pIN")
def test_the_quick_look_at_the_bytes_is_never_narrower_than_the_walk(name):
    """Whatever the walk would hide, the bytes are never called clean: by name, by number, in a text."""
    data = dumped({name: "kept1", "list": [f"{name}=kept2", {name: 7}]})
    if REDACTOR._name_set(()).rules.is_secret(name):
        assert not REDACTOR.is_clean(data)
    assert orjson.loads(REDACTOR.redact_payload(data)) == REDACTOR.redact_value(orjson.loads(data))


@given(spelled_names, spelled_names)
@example("kunden_nummer", "kunden--nummer")
@example("kunden_nummer", "kunden\u2003nummer")
@example("kunden_nummer", "x.kunden\tnummer")
@example("İsim", "İSİM")
@example('a"b', 'A"b')
def test_the_quick_look_at_configured_names_is_never_narrower_than_the_walk(field, name):
    """However a configured field is spelled in the payload, the bytes are called clean only if no name is it."""
    redactor = Redactor(fields=[field])
    for key in (name, field):
        data = dumped({key: "kept", "list": [f"{key}=kept2"]})
        if redactor._name_set(()).rules.is_secret(key):
            assert not redactor.is_clean(data)
        assert orjson.loads(redactor.redact_payload(data)) == redactor.redact_value(orjson.loads(data))


@given(st.lists(SECRETIVE).map("".join))
@example("密钥")
@example("://" + "é" * 200 + "@")
@example("://" + "é" * 45 + "@")
def test_the_searches_find_as_much_in_flat_text(text):
    """Text made plain for the searches answers them as the text itself does."""
    flat, lowered = secret_looks.search_text(text.encode())
    assert secret_looks.matching_prefilters(flat, lowered) == secret_looks.matching_prefilters(text, text.lower())


@given(st.lists(SECRETIVE).map("".join))
@example("password")
@example("card number")
@example("PIN=")
@example("sk-abcdef")
@example("://a@")
@example("\\u0070")
@example("2" + "0" * 13)
def test_the_first_glance_at_a_text_misses_no_look(text):
    """What is found at once to hold nothing holds nothing for any look, each asked alone."""
    alone = tuple(look for look in secret_looks.PREFILTERS if look(text, text.lower()))
    assert secret_looks.matching_prefilters(text, text.lower()) == alone


def test_every_literal_beside_ascii_is_looked_for_in_the_text_itself():
    """A new name in another script is not lost: its first byte is one of those that need the whole text."""
    foreign = [name for name in secret_looks._NAME_LITERALS.split("|") if not name.isascii()]
    assert foreign
    assert {name.encode()[0] for name in foreign} <= set(secret_looks._NON_ASCII_LEADS)
    for source in (
        secret_looks._SHAPE_LITERALS,
        secret_looks._SHORT_SHAPES,
        secret_looks._SPELLED_LETTER,
        secret_looks._ACCOUNT,
    ):
        assert source.isascii()
    assert secret_looks._WHOLE_WORDS.isascii()
