"""Placeholders are found; values that people really send are not."""

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.check.findings import placeholder_findings
from pokayoke.core.check.placeholders import find_placeholders, has_lost_backslash, is_placeholder, may_hold_placeholder
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
    assert [finding.code for finding in placeholder_findings(value)] == ["lost_backslash"] * lost
    assert may_hold_placeholder(orjson.dumps(value)) or not lost


@pytest.mark.parametrize("text", STAND_INS)
def test_placeholders_are_found(text):
    """A text that consists of a placeholder is found, and the prefilter lets it pass."""
    assert is_placeholder(text)
    assert may_hold_placeholder(orjson.dumps({"field": text}))


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
        ("pattern", "TODO", False),
        ("old_string", "<user_id>", False),
        ("template", "{{name}}", False),
        ("emailTemplate", "{{name}}", False),
        ("text", "TODO", True),
    ],
)
def test_the_field_matters(field, text, is_one):
    """A name in brackets is a placeholder if it names its own field; fields for patterns may hold any."""
    assert is_placeholder(text, field) is is_one


def test_finding():
    """A finding says where it stands and asks for the value, at every depth, in order."""
    value = {"user": {"id": "<user_id>"}, "tags": ["a", "..."], "n": 1, "ok": "fine"}
    found = placeholder_findings(value)
    assert [(finding.code, finding.at) for finding in found] == [
        ("placeholder", "/user/id"),
        ("placeholder", "/tags/1"),
    ]
    assert "`user.id`" in found[0].hint
    assert "`tags[1]`" in found[1].hint
    assert placeholder_findings("TODO")[0].at == ""


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ({"default": "YOUR_KEY_HERE"}, "YOUR_KEY_HERE"),
        ({"enum": ["TODO", "DONE"]}, "TODO"),
        ({"enum": [1, "<id>"]}, "<id>"),
        ({"examples": ["{{name}}"]}, "{{name}}"),
        ({"type": "string", "format": "regex"}, "..."),
    ],
)
def test_the_schema_may_name_it(node, text):
    """A text that the schema names at a place is a value there, and nowhere else."""
    schema = compile_schema({"properties": {"a": node, "b": {"examples": "no list"}}}, draft="draft4")
    assert placeholder_findings({"a": text}, schema) == ()
    assert len(placeholder_findings({"b": text}, schema)) == 1


TEXTS = st.sampled_from([*STAND_INS, *REAL]) | st.text(max_size=12)


@given(st.recursive(TEXTS | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=8))
def test_law_the_prefilter_hides_none(value):
    """The prefilter lets every JSON text pass that holds a placeholder."""
    if find_placeholders(value):
        assert may_hold_placeholder(msgspec.json.encode(value))


@given(st.from_regex(r"\A[<{\[$.TFXxIiYyEeRrCcPpAa…][A-Za-z_\- .HERhere{}<>$\]]{0,30}\Z"))
def test_law_the_prefilter_hides_no_odd_spelling(text):
    """Prefilter and search agree on odd mixtures of their own parts too."""
    if is_placeholder(text):
        assert may_hold_placeholder(orjson.dumps([text]))
