"""Text to plain values, by the YAML 1.2 core schema and nothing else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.runtime.config.yaml_reader import DocumentError, read_document


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("a: [yes, no, on, off, y]", {"a": ["yes", "no", "on", "off", "y"]}),
        ("a: [true, False, TRUE, null, ~, '', Null]", {"a": [True, False, True, None, None, "", None]}),
        ("a:", {"a": None}),
        ("a: [0o17, 0x1F, 017, -3, +4]", {"a": [15, 31, 17, -3, 4]}),
        ("a: [1.5, .5, 1., 1e3, -2.5E-1]", {"a": [1.5, 0.5, 1.0, 1000.0, -0.25]}),
        ("a: ['1', \"true\", 2020-01-01, 12:30:45, 1_000, 1.2.3]",
         {"a": ["1", "true", "2020-01-01", "12:30:45", "1_000", "1.2.3"]}),
        ("a: |\n  x\n  1\n", {"a": "x\n1\n"}),
        ("1: a\nnull: b\ntrue: c", {"1": "a", "null": "b", "true": "c"}),
        ('{"a": {"b": [1, {}, []]}}', {"a": {"b": [1, {}, []]}}),
        ("<<: {a: 1}", {"<<": {"a": 1}}),
        ("- a\n- b: c\n", ["a", {"b": "c"}]),
        ('"\\ud83d\\ude00"', "😀"),
        ("\ufeffa: 1", {"a": 1}),
        ("%YAML 1.2\n---\na: 1\n...\n", {"a": 1}),
        ("# only\n--- x", "x"),
    ],
)  # fmt: skip
def test_values(text, value):
    """Words of YAML 1.1, dates and sexagesimals are texts; everything has a type JSON has."""
    assert read_document(text).value == value
    assert read_document(text.encode()).value == value


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("a: 1\nb: 2\na: 3", 3, "line 1"),
        ('{"a": 1, "a": 1}', 1, "'a'"),
        ("a: &x 1", 1, "anchor"),
        ("a: &x [1]\nb: *x", 1, "anchor"),
        ("a: *x", 1, "alias"),
        ("!!python/object/apply:os.system [id]", 1, "tag"),
        ("a:\n- !!int 3", 2, "tag"),
        ("a: !x {}", 1, "tag"),
        ("a: 1\n---\nb: 2", 2, "second document"),
        ("%YAML 1.1\n---\na: 1", 2, "1.2"),
        ("? [a]\n: 1", 1, "key"),
        ("? {a: 1}\n: 1", 1, "key"),
        ("a: .inf", 1, "finite"),
        ("a: -.INF", 1, "finite"),
        ("a: .nan", 1, "finite"),
        ("a: 1e999", 1, "finite"),
        ("a: " + "9" * 200, 1, "200"),
        ("a:\n\tb: 1", 2, "Tabs"),
        ("a: [1", 1, "expected"),
        ("a: b: c", 1, "mapping values"),
        ("[" * 65 + "]" * 65, 1, "64"),
        ("[" * 200_000, 1, "64"),
        ('x: 1\ny: "\\ud800"', 2, "surrogate"),
        ("x: 1\ny: 2\n# \x07", None, "special characters"),
    ],
)
def test_refusals(text, line, word):
    """What could be read in two ways, unfold or run is refused with file, line and reason."""
    with pytest.raises(DocumentError) as caught:
        read_document(text, name="f.yaml")
    assert str(caught.value).startswith("f.yaml" if line is None else f"f.yaml:{line}:")
    assert word in str(caught.value)


@pytest.mark.parametrize("text", ["", " \n", "# nothing\n", "---\n"])
def test_nothing_is_not_the_default(text):
    """An empty file is what a half-written one looks like; an explicit {} is the default."""
    if text == "---\n":
        assert read_document(text).value is None
    else:
        with pytest.raises(DocumentError, match=r"\{\}"):
            read_document(text)
    assert read_document("{}").value == {}


@pytest.mark.parametrize("text", ["- 1\n" * 51, "{" + ", ".join(f"k{n}: 1" for n in range(50)) + "}"])
def test_many_values_are_refused_before_they_cost_seconds(text, monkeypatch):
    """A file of more values than are read in a moment is refused at the line that is one too many."""
    monkeypatch.setattr("pokayoke.runtime.config.yaml_nodes.MAX_VALUES", 50)
    with pytest.raises(DocumentError, match=r"f:\d+: more than 50 values"):
        read_document(text, name="f")
    assert read_document("- 1\n" * 49).value == [1] * 49


def test_size_and_encoding_are_checked_first():
    """More than a million bytes, and bytes that are no UTF-8, are refused before parsing."""
    with pytest.raises(DocumentError, match="1,000,000"):
        read_document("# " + "x" * 1_000_000)
    with pytest.raises(DocumentError, match=r"f:2: not UTF-8 \(byte 0xff\)"):
        read_document(b"a: 1\nb: \xff", name="f")
    with pytest.raises(DocumentError, match="UTF-8"):
        read_document("a: \ud800")


def test_every_value_knows_its_line():
    """A mapping stands where its key stands; a path that is not there stands where its nearest parent does."""
    document = read_document("a:\n  b:\n    - c: 1\n      d: 2\n", name="f")
    assert [document.location_of(p) for p in [("a",), ("a", "b"), ("a", "b", 0), ("a", "b", 0, "d"), ("a", "x"), ()]] == [
        "f:1", "f:2", "f:3", "f:4", "f:1", "f:1",
    ]  # fmt: skip


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\x85\u2028\u2029\ufeff", exclude_categories=("Cc", "Cs"))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcde", max_size=3), inner, max_size=3),
    max_leaves=8,
))  # fmt: skip
def test_json_is_read_as_json(value):
    """Every JSON document has the same value here as in a JSON parser."""
    text = json.dumps(value, ensure_ascii=False)
    if value not in ("", None):
        assert read_document(text).value == json.loads(text)
