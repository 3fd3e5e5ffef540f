"""Placeholders are found; values that people really send are not."""

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.check.argument_checks import ArgumentChecks
from pokayoke.core.check.findings import stand_in_findings
from pokayoke.core.check.placeholders import (
    has_call_markup,
    has_lost_backslash,
    is_placeholder,
    is_unseen,
    may_hold_lost_backslash,
    may_hold_markup,
    may_hold_unseen,
    search_placeholder,
)
from pokayoke.core.json.pointer import walk_parts
from pokayoke.core.schema.schema import compile_schema

STAND_INS = [
    "<user_id>", "<your name>", "<YOUR_API_KEY>", "<email>", "<insert date>", "<id>", "<the order number>", "<userId>",
    "{{name}}", "{{ user.name }}", "{user_id}", "${user_id}", "${USER_ID}", "$USER_ID", "$ORDER_ITEM_ID",
    "[Your Name]", "[insert address]", "...", "…", "....", "TODO", "TBD", "FIXME", "XXXX", "xXXX", "xxxx-xxxx-xxxx",
    "INSERT_X_HERE", "insert-name-here", "your_api_key_here", "YOUR_KEY_HERE", "Your-Token-Here", "ENTER_NAME_HERE",
    "insert the name here", "Enter your city here", "put_id_here", "ADD_VALUE_HERE", "REPLACE_ME", "replace-me",
    "CHANGEME", "change_me", "REPLACE_WITH_TOKEN", "Replace_With_Your_Key",
]  # fmt: skip
REAL = [
    "", "N/A", "none", "null", "None", "unknown", "placeholder", "todo random", "todo", "Todo list", "TODO: buy milk",
    "YOUR_API_KEY", "your_dataset_name", "$HOME", "$AAPL", "$20-$30", "$5", "<b>", "<div>", "</p>", "<>",
    "<a href='x'>",
    "<p>Hello</p>", "a < b", "{}", '{"a": 1}', "{{", "[]", "[1, 2]", "[x]", "[a-z]", "[email\xa0protected]",
    "Hello {{name}}, welcome", "/orders/<order_id>", "..", ".", "./...", "wait...", "xxx", "XXX", "XXXL", "Insert coin",
    "What is your name?", "Your order is here", "We Are Here", "<stdin>", "<lambda>", "<Enter>",
    "<" + "x" * 90 + "_id>",
    "insertion", "change", "<user_id}", "{user_id>", "replacement",
]  # fmt: skip


LOST = [
    r"\bword\b",
    r"a \beta",
    r"x \frac{a}{b}",
    r"C:\reports\files",
    r"$\rho$",
    r"\theta",
    r"a \times b",
    r"C:\new\temp",
    r"d:\temp",
]
KEPT = [
    r"\\bword",
    r"a\fChapter",
    r"one\rtwo",
    r"a\r\nb",
    r"x\tb",
    r"A:\ntext",
    r"C:\nsome text",
    r"\then",
    r"C:\\new",
    r"\\frac",
]


@pytest.mark.parametrize(("written", "lost"), [*((text, True) for text in LOST), *((text, False) for text in KEPT)])
def test_a_backslash_written_once_is_found(written, lost):
    """A text whose backslash became a control character is a finding of its own; what people do send is none."""
    value = orjson.loads(b'{"a":"' + written.encode() + b'"}')
    assert has_lost_backslash(value["a"]) is lost
    checks = ArgumentChecks(compile_schema({}))
    assert [finding.code for finding in stand_in_findings(value, checks)] == ["lost_backslash"] * lost
    assert may_hold_lost_backslash(orjson.dumps(value)) or not lost
    assert list(ArgumentChecks(compile_schema({}), literal=("a",)).find_stand_ins(value)) == []


@pytest.mark.parametrize("text", STAND_INS)
def test_placeholders_are_found(text):
    """A text that consists of a placeholder is found, and the prefilter lets it pass."""
    assert is_placeholder(text)
    assert search_placeholder(orjson.dumps({"field": text}))


@pytest.mark.parametrize("text", REAL)
def test_real_values_are_left_alone(text):
    """Values of people and benchmarks are left alone, also texts that contain a placeholder."""
    assert not is_placeholder(text)


@pytest.mark.parametrize(
    ("field", "text", "is_one"),
    [
        ("name", "[name]", True),
        ("customer_name", "[name]", True),
        ("x", "[name]", False),
        ("city", "<city>", True),
        ("title", "<title>", True),
        ("tag", "<title>", False),
        ("text", "TODO", True),
    ],
)
def test_the_field_matters(field, text, is_one):
    """A name in brackets is a placeholder if it names its own field."""
    assert is_placeholder(text, field) is is_one


MARKUP = [
    "/tmp/x</arg_value>", 'notes<|"|>', "a<tool_call|>", "<｜tool▁call▁end｜>x", "x</parameter>", "<function=a", "<|im_end|>",
]  # fmt: skip
UNMARKED = ["a < b", "<b>x</b>", "a | b > c", "</p>", "<functional>", "|>", "x < | y"]
UNSEEN = [
    "\u200b",
    "\u200b \u200d",
    "\ufeff",
    "\u3164",
    "\u2800",
    "\u202e\u202c",
    "\x00",
    "\xad",
    "\U000e0041",
    "\ufe0f",
]
VISIBLE = ["", " ", "\t\n", "\u3000", "\u200ba", "👍\ufe0f", "。", "\u0000x", "é"]


@pytest.mark.parametrize(
    ("text", "is_marked"), [*((text, True) for text in MARKUP), *((text, False) for text in UNMARKED)]
)
def test_markup_of_calls_is_found(text, is_marked):
    """Tags and turn tokens of calls are found anywhere in a text; other signs of less and more are not."""
    assert has_call_markup(text) is is_marked
    assert may_hold_markup(orjson.dumps({"a": text})) or not is_marked


@pytest.mark.parametrize(("text", "unseen"), [*((text, True) for text in UNSEEN), *((text, False) for text in VISIBLE)])
def test_a_text_that_looks_empty_is_found(text, unseen):
    """A text of invisible characters is found; an empty one, white space, and what shows anything are not."""
    assert is_unseen(text) is unseen
    assert may_hold_unseen(orjson.dumps({"a": text})) or not unseen


@given(st.text(st.characters() | st.sampled_from("\u200b\u3164\ufeff \xad\u2800\x00"), max_size=6))
def test_law_no_unseen_text_passes_the_prefilter(text):
    """The prefilter lets every text pass that looks empty."""
    if is_unseen(text):
        assert may_hold_unseen(orjson.dumps([text]))


TEXTS = st.sampled_from([*STAND_INS, *REAL]) | st.text(max_size=12)


@given(st.recursive(TEXTS | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=8))
def test_law_the_prefilter_hides_none(value):
    """The prefilter lets every JSON text pass that holds a placeholder."""
    if any(is_placeholder(text) for _, text in walk_parts(value, str)):
        assert search_placeholder(msgspec.json.encode(value))


@given(st.from_regex(r"\A[<{\[$.TFXxIiYyEeRrCcPpAa…][A-Za-z_\- .HERhere{}<>$\]]{0,30}\Z"))
def test_law_the_prefilter_hides_no_odd_spelling(text):
    """Prefilter and search agree on odd mixtures of their own parts too."""
    if is_placeholder(text):
        assert search_placeholder(orjson.dumps([text]))
