"""Strict JSON: what is refused, and that nothing else is."""

import gc
import json
import sys
import threading

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.finding_codes import FINDING_CODES
from pokayoke.core.json import strict
from pokayoke.core.json.strict import StrictError, nesting_depth, parse

LONG = "x" * 17_000  # more than what is read as a short text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


REFUSED = [
    ("\ufeff{}", "byte_order_mark", 0),
    (b"\xef\xbb\xbf{}", "byte_order_mark", 0),
    (b'["\xff"]', "invalid_utf8", 2),
    (b'["\xed\xa0\x80"]', "invalid_utf8", 2),
    ('["\ud800"]', "lone_surrogate", 2),
    ('["é\ud800"]', "lone_surrogate", 4),
    ('["\\ud800"]', "lone_surrogate", 2),
    ('["\\udc00\\ud800"]', "lone_surrogate", 2),
    ('{"\\ud800": 1}', "lone_surrogate", 2),
    ('["a\x01"]', "control_character", 3),
    ('["a\nb"]', "control_character", 3),
    ("[NaN]", "not_finite", 1),
    ("[Infinity]", "not_finite", 1),
    ("[-Infinity]", "not_finite", 2),
    ("[1e999]", "not_finite", 1),
    ("[-1.5E+999]", "not_finite", 1),
    ('{"a": 1, "a": 2}', "duplicate_key", 13),
    ('{"a": 1, "\\u0061": 2}', "duplicate_key", 18),
    ('{"a": 1,\n "a": 2}', "duplicate_key", 14),
    ('{"a:": 1, "a\\u003a": 2}', "duplicate_key", 20),
    ('{"b": "\\u003a", "a": 1, "a": 2}', "duplicate_key", 28),
    ('{"b": "\\u003A", "a": 1, "a": 2}', "duplicate_key", 28),
    ('{"a": 1, "a": 1.0}', "duplicate_key", 13),
    ('{"a": 1, "a": true}', "duplicate_key", 13),
    ('{"a": {"b": [1, {"c": 1, "c": null}]}}', "duplicate_key", 29),
    ("[1,]", "invalid_json", 2),
    ('["é",]', "invalid_json", 5),
    ("", "invalid_json", 0),
    ("[01]", "invalid_json", 1),
    ("[1] [2]", "invalid_json", 4),
    ("{'a': 1}", "invalid_json", 1),
]


def code_of(text, max_depth):
    """The code a text is refused with, or None."""
    try:
        parse(text, max_depth=max_depth)
    except StrictError as error:
        return error.code
    return None


@pytest.mark.parametrize(("text", "code", "position"), REFUSED)
def test_everything_beyond_rfc_8259_is_refused_by_name_and_place(text, code, position):
    """Each of the listed deviations is refused with its code, at its byte offset (behind a repeated key)."""
    with pytest.raises(StrictError) as caught:
        parse(text)
    assert (caught.value.code, caught.value.position) == (code, position)
    assert str(caught.value) == f"{FINDING_CODES[code].meaning} (byte {position})"


@given(VALUES)
def test_a_strict_text_means_what_the_standard_library_reads(value):
    """For any JSON value and layout, parsing returns the value and its compact dump."""
    for text in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        read, dump = parse(text, max_depth=200)
        assert json.dumps(read) == json.dumps(value)
        assert json.loads(dump) == value
        assert parse(dump, max_depth=200)[1] == dump


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_a_sorted_dump_does_not_depend_on_the_order_of_keys(value):
    """Two texts that differ in the order of their keys alone have one sorted dump."""
    turned = dict(reversed(value.items()))
    assert parse(json.dumps(value), sort=True)[1] == parse(json.dumps(turned), sort=True)[1]


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**19, 10**300, -(10**299)])
def test_integers_beyond_64_bits_stay_exact(number):
    """An integer that a double cannot hold is read and dumped digit by digit, beside floats and texts."""
    text = f'{{"b": {number}, "a": 1.5, "c": "12345678901234567890"}}'
    value, dump = parse(text, sort=True)
    assert value["b"] == number
    assert type(value["b"]) is int
    assert json.loads(dump) == {"a": 1.5, "b": number, "c": "12345678901234567890"}


@pytest.mark.parametrize("digits", [309, 4300, 5000, 100_000])
def test_an_integer_of_more_than_308_digits_is_refused(digits):
    """It is refused instead of rounded."""
    with pytest.raises(StrictError) as caught:
        parse("[" + "7" * digits + "]")
    assert caught.value.code == "number_too_long"


def test_a_number_the_exact_parser_gives_up_on_is_refused(monkeypatch):
    """If the parser of long integers raises, the text is refused with a code."""

    def give_up(_):
        raise msgspec.DecodeError("out of range")

    monkeypatch.setattr(strict.msgspec.json, "decode", give_up)
    with pytest.raises(StrictError) as caught:
        parse("[18446744073709551616]")
    assert caught.value.code == "number_too_long"


@pytest.mark.parametrize(
    ("text", "code", "position"), [case for case in REFUSED if isinstance(case[0], str) and "\ud800" not in case[0]]
)
def test_bytes_are_refused_as_their_text_is(text, code, position):
    """Whether a text comes as `str` or in UTF-8 makes no difference to what is refused, and where."""
    with pytest.raises(StrictError) as caught:
        parse(text.encode())
    assert (caught.value.code, caught.value.position) == (code, position)


@pytest.mark.parametrize("number", ["1", "1.5", "123456789012345678901", "9007199254740993.0"])
def test_keys_stay_in_their_order_unless_they_are_to_be_sorted(number):
    """The dump has the keys in the order of the text, or sorted, whichever parser had to read its numbers."""
    text = f'{{"b": {number}, "a": {{"d": 0, "c": 0}}}}'
    kept = json.dumps(json.loads(text, parse_float=strict.read_double), separators=(",", ":"))
    ordered = json.dumps(json.loads(kept), separators=(",", ":"), sort_keys=True)
    for spelling in (text, kept):
        assert parse(spelling)[1] == kept.encode()
        assert parse(spelling, sort=True)[1] == ordered.encode()


def test_equal_duplicates_lose_nothing():
    """A key that repeats with an equal value is accepted, and refused where the caller wants to know."""
    text = '{"a": {"x": 1, "y": [2]}, "b": 0, "a": {"y": [2], "x": 1}}'
    assert parse(text)[0] == {"a": {"x": 1, "y": [2]}, "b": 0}
    with pytest.raises(StrictError) as caught:
        parse(text, equal_duplicates=False)
    assert caught.value.code == "equal_duplicate"


@pytest.mark.parametrize(
    "text",
    ['{"a\\u003a": 1}', '{"a": "\\u003a:"}', '{"\\u003A": {"\\u003a2": 1}}', '{"a": "b: c, d: e"}'],
)
def test_escaped_colons_are_no_duplicates(text):
    """An escaped colon hides a duplicate from the count, so the parser that knows duplicates decides."""
    assert parse(text)[0] == json.loads(text)


@given(
    st.integers(1, 12),
    st.recursive(
        st.sampled_from(["]", "[", '"]', "\\[", "}{", "", "x", 1, None]),
        lambda inner: (
            st.lists(inner, min_size=1, max_size=3)
            | st.dictionaries(st.sampled_from(["]", "a", '"[', "}"]), inner, min_size=1)
        ),
        max_leaves=25,
    ),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.sampled_from([[], ["["], [LONG]]),
)
def test_the_depth_cap_is_exact(cap, value, separators, beside):
    """A text is refused as too deep exactly when it nests deeper than the cap, however long it is."""
    value = [*beside, value] if beside else value
    text = json.dumps(value, separators=separators)
    assert code_of(text, cap) == (None if nesting_depth(value) <= cap else "too_deep")


@pytest.mark.parametrize("cap", [200, 201, 254, 255, 256, 1_000_000])
@pytest.mark.parametrize("core", ["1", f'"{LONG}"'])
def test_no_cap_is_above_200(cap, core):
    """A larger limit counts as 200: deeper texts are refused, and others keep their dump."""
    for depth, code in ((200, None), (201, "too_deep"), (254, "too_deep"), (300, "too_deep")):
        assert code_of("[" * depth + core + "]" * depth, cap) == code
    assert parse(f"[{core}]", max_depth=cap)[1] == f"[{core}]".encode()


def test_long_texts_read_at_the_same_time_are_not_mixed_up(monkeypatch):
    """A second long text that is read while the first one is being written leaves it as it was."""
    first, second = (json.dumps([[number], LONG], separators=(",", ":")) for number in (1, 2))
    parse(first)
    write, beside = orjson.dumps, []

    def interrupted(value, option=None):
        if not beside:
            beside.append(None)
            beside[0] = parse(second)[1]
        return write(value, option=option)

    monkeypatch.setattr(strict.orjson, "dumps", interrupted)
    assert parse(first)[1] == first.encode()
    assert beside == [second.encode()]


def test_a_long_text_is_released():
    """Nothing that was parsed stays reachable from the structures kept for the next text."""
    held = parse(json.dumps([LONG]))[0]
    assert gc.get_referrers(held) in ([], [sys._getframe()])


@pytest.mark.parametrize("item", ['{"a": [1]}', '{"a":[1]}', '{"a]": "["}'])
def test_a_wide_text_is_not_deep(item):
    """A thousand small objects in a row are no deeper than one."""
    assert code_of("[" + ",".join([item] * 1000) + "]", 3) is None


SHAPES = ["[%s]", "[ %s ]", '{"a":%s}', '{"a": %s}', '["]",%s,"["]', '["]", %s, "["]', '{"\\"": %s}', '{"a}":%s,"{":0}']


@pytest.mark.parametrize("shapes", [*([shape] for shape in SHAPES), SHAPES[:4], SHAPES[:1] + SHAPES[2:3], SHAPES])
@pytest.mark.parametrize(("depth", "accepted"), [(63, True), (64, True), (65, False), (130, False), (250, False)])
@pytest.mark.parametrize("core", ["1", "[]", "{}", f'"{LONG}"'])
def test_no_spelling_hides_depth(shapes, depth, accepted, core):
    """Mixed brackets, empty containers and strings that look like brackets do not make a text look flatter."""
    text, left = core, depth - (core in {"[]", "{}"})
    for level in range(left):
        text = shapes[level % len(shapes)] % text
    assert code_of(text, 64) == (None if accepted else "too_deep")
    assert nesting_depth(json.loads(text)) == depth


@pytest.mark.parametrize("text", ["[" * 1_000_000, '{"a":' * 500_000, "[" * 300 + "]" * 300, "[[1], " * 100_000])
def test_hostile_nesting_is_refused_on_a_small_stack(text):
    """A million open brackets are refused in a thread with 256 KB of stack."""
    seen: list[str] = []

    def read():
        try:
            parse(text)
        except StrictError as error:
            seen.append(error.code)

    previous = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(previous)
    assert seen in (["too_deep"], ["invalid_json"])


def test_a_cap_in_bytes_comes_before_the_parser():
    """A text one byte too long is refused unread, one of the length of the cap is read."""
    assert parse("[1]", max_bytes=3)[0] == [1]
    with pytest.raises(StrictError) as caught:
        parse("[1 ", max_bytes=2)
    assert caught.value.code == "too_long"


def test_a_place_that_cannot_be_found_is_none(monkeypatch):
    """If jiter rewords its message, the text is still refused, without a position."""
    monkeypatch.setattr(strict, "_LINE_COLUMN", strict.re.compile("nothing"))
    with pytest.raises(StrictError) as caught:
        parse('{"a": 1, "a": 2}')
    assert (caught.value.code, caught.value.position) == ("duplicate_key", None)
    assert str(caught.value) == FINDING_CODES["duplicate_key"].meaning


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9007199254740993.0", 9007199254740993),
        ("-9007199254740993.00", -9007199254740993),
        ("12345678901234567.0", 12345678901234567),
        ("123456789012345678901234.0", 123456789012345678901234),
        ("9007199254740992.0", 9007199254740992.0),
        ("9007199254740993.5", 9007199254740994.0),
        ("9007199254740993e0", 9007199254740993),
        ("9007199254740993E0", 9007199254740993),
        ("-9.007199254740993e15", -9007199254740993),
        ("90071992547409930e-1", 9007199254740993),
        ("12345678901234567890e3", 12345678901234567890000),
        ("9007199254740993e-1", 900719925474099.3),
        ("9007199254740992000e-3", 9007199254740992.0),
        ("1.7976931348623157e308", 1.7976931348623157e308),
        ("1.0000000000000000e23", 1e23),
        ("1000000000000000e-999999999999999999999", 0.0),
        ("123456789012345678901234567890.5e0", 123456789012345678901234567890.5),
        ("1234567890123456.0", 1234567890123456.0),
        ("0.1234567890123456", 0.1234567890123456),
    ],
)
def test_a_whole_number_that_no_double_holds_is_read_as_an_integer(text, number):
    """With a point and zeros, or a power, it is an integer; with a fraction it is a double."""
    value, dump = parse(f'{{"x": 1.0, "n": {text}}}')
    assert (value["n"], type(value["n"])) == (number, type(number))
    assert parse(dump)[0] == value
