"""JSON with comments: what is accepted, where each value stands, and that nothing else gets through."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.errors import ConfigurationError
from pokayoke.gateway.clients.command_line import Word
from pokayoke.gateway.clients.jsonc import JsoncArray, JsoncObject, JsoncOther, describe_place, parse_jsonc

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def compare(text, node, value):
    """Whether a node stands where its value is written; `json` reads the same there."""
    assert json.loads(text[node.start : node.end]) == value
    if isinstance(node, Word):
        assert node.value == value
    elif isinstance(node, JsoncArray):
        assert text[node.start] == "["
        for item, one in zip(node.items, value, strict=True):
            compare(text, item, one)
        assert [text[comma - 1] for comma in node.commas] == [","] * max(len(value) - 1, 0)
    elif isinstance(node, JsoncObject):
        assert {key.value for key, _ in node.members} == set(value)
        for key, member in node.members:
            assert json.loads(text[key.start : key.end]) == key.value
            compare(text, member, value[key.value])


@given(DOCUMENTS, st.booleans(), st.sampled_from([None, 2, "\t"]))
def test_every_json_document_is_read(value, ascii_only, indent):
    """Law: what `json` writes is accepted, and each value stands between its first and its last character."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    compare(text, parse_jsonc(text), value)
    assert isinstance(parse_jsonc(text, lambda path: False), JsoncOther | Word)


def read_error(text, is_wanted):
    """What is said of a text that is refused; None of one that is read."""
    try:
        parse_jsonc(text, is_wanted)
    except ConfigurationError as error:
        return str(error)
    return None


@given(st.text(st.sampled_from('{}[]",:/*\\u0 1aetrufalsn.-+\n\r\x00\ud800\ufeff'), max_size=40) | st.text(max_size=40))
def test_any_text_is_read_or_refused(text):
    """Law: a text is accepted or refused with its place, wanted or skipped alike; what `json` accepts is accepted."""
    said = [read_error(text, is_wanted) for is_wanted in (lambda path: True, lambda path: False)]
    assert said[0] == said[1]
    assert said[0] is None or said[0].startswith("line ")
    try:
        json.loads(text, parse_constant=lambda name: pytest.fail(name) if said[0] is None else None)
    except ValueError:
        return
    assert said[0] is None or "NaN" in text or "Infinity" in text


@pytest.mark.parametrize("opener", ["[", '{"a":'])
def test_depth_has_a_bound(opener):
    """A hundred levels are read; a million are refused at once, without the interpreter's own limit."""
    closer = "]" if opener == "[" else "}"
    parse_jsonc(opener * 100 + "1" + closer * 100)
    with pytest.raises(ConfigurationError, match="more than 100 levels"):
        parse_jsonc(opener * 1_000_000)


def test_long_texts_of_one_kind_are_read_in_linear_time():
    """Comments, blanks, escapes and commas by the million: no pattern looks back."""
    for text in (
        "/*" + "*" * 1_000_000 + "*/ 1",
        " " * 1_000_000 + "1",
        "//\n" * 300_000 + "1",
        '"' + "\\\\" * 300_000 + '"',
        "[" + "1," * 300_000 + "]",
    ):
        parse_jsonc(text)
    for text in ("/*" + "*" * 1_000_000, '"' + "\\\\" * 300_000, "/* " * 300_000, "[" + "1," * 300_000):
        with pytest.raises(ConfigurationError):
            parse_jsonc(text)


def test_a_place_is_counted_from_one():
    """Lines and columns as editors show them."""
    assert describe_place("ab\ncd", 0) == "line 1, column 1"
    assert describe_place("ab\ncd", 4) == "line 2, column 2"
