"""A tool's output is a validated value, the tool's own failure, or a finding."""

import json
import math
import time
import tracemalloc
from decimal import Decimal
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from output_cases import BODY, GOOD, PAGE, PROFILE, TEXT, code, contract, judge, requested, response

from pokayoke.core.call import Raw
from pokayoke.core.contract.contract import Contract
from pokayoke.core.output.validate import OutputResult, check_output
from pokayoke.core.policy import ToolOutputPolicy


def reason(checked: OutputResult) -> str:
    """The reason a trace gives."""
    return checked.findings[0].data["reason"]


BAD_TRANSPORT = [
    ("x" * 200_001, "output_too_large", "tool_output_too_large"),
    (b"x" * 800_001, "output_too_large", "tool_output_too_large"),
    (b"x" * 200_001, "output_too_large", "tool_output_too_large"),
    ("é" * 200_001, "output_too_large", "tool_output_too_large"),
    (Raw("x" * 200_001, "text/html"), "output_too_large", "tool_output_too_large"),
    ({"user_id": "x" * 200_001}, "output_too_large", "tool_output_too_large"),
    ({"user_id": ["x"] * 300_000}, "output_too_large", "tool_output_too_large"),
    (Raw(PAGE, "text/html", 200), "wrong_content_type", "content-type text/html"),
    (Raw(TEXT, "text/html; charset=utf-8"), "wrong_content_type", "content-type text/html"),
    (Raw(TEXT, "text/plain; x=application/json"), "wrong_content_type", "content-type text/plain"),
    *(
        (Raw(TEXT, kind), "wrong_content_type", f"content-type {kind}")
        for kind in ("application/xml", "application/json-seq", "text/x+json")
    ),
    (Raw(TEXT, None), "missing_content_type", "missing_content_type"),
    (Raw(TEXT, " "), "missing_content_type", "missing_content_type"),
    ({"body": TEXT, "content_type": None}, "missing_content_type", "missing_content_type"),
    (response(BODY, None), "missing_content_type", "missing_content_type"),
    (requested(BODY, "text/html"), "wrong_content_type", "content-type text/html"),
    (requested(None), "body_unread", "body_unread"),
    (httpx.Response(200, stream=httpx.ByteStream(b"x")), "body_unread", "body_unread"),
    (PAGE, "html_instead_of_data", "html_instead_of_data"),
    (Raw(PAGE, "application/json"), "html_instead_of_data", "html_instead_of_data"),
    (Raw(b"\n" + PAGE.encode(), "application/json"), "html_instead_of_data", "html_instead_of_data"),
    (TEXT[:-1], "invalid_json", "invalid_json:cut"),
    (TEXT[:-4] + "  ", "invalid_json", "invalid_json:cut"),
    ("", "invalid_json", "invalid_json:empty"),
    (" \n", "invalid_json", "invalid_json:empty"),
    (Raw(b"", "application/json", 200), "invalid_json", "invalid_json:empty"),
    ("{'user_id': 'u'}", "invalid_json", "invalid_json:invalid_json"),
    ("\ufeff\ufeff" + TEXT, "invalid_json", "invalid_json:byte_order_mark"),
    ("\ufeff", "invalid_json", "invalid_json:empty"),
    ("\ufeff" + TEXT[:-1], "invalid_json", "invalid_json:cut"),
    (" \ufeff" + TEXT, "invalid_json", None),
    (Raw(b'{"user_id": "\xff"}', "application/json; charset=utf-7"), "invalid_json", "invalid_json:invalid_utf8"),
    (Raw(b'{"user_id": "\xff"}', "application/json; charset=utf-8"), "invalid_json", "invalid_json:invalid_utf8"),
    (Raw(b'{"user_id": "\0"}', "application/json; charset=latin-1"), "invalid_json", "invalid_json:control_character"),
    ("Error: no such user", "invalid_json", "invalid_json:invalid_json"),
    ('{"user_id": "a", "user_id": "b"}', "invalid_json", "invalid_json:duplicate_key"),
    ('{"user_id": "a", "user_id": "a"}', "invalid_json", "invalid_json:equal_duplicate"),
    ('{"user_id": "a", "price": NaN}', "invalid_json", "invalid_json:not_finite"),
    ('{"user_id": "a", "price": 1e999}', "invalid_json", None),
    ('{"user_id": "\\ud800"}', "invalid_json", "invalid_json:lone_surrogate"),
    ('{"user_id": "\ud800"}', "invalid_json", "invalid_json:lone_surrogate"),
    (b'{"user_id": "\xff"}', "invalid_json", "invalid_json:invalid_utf8"),
    ("[" * 100_000 + "]" * 100_000, "invalid_json", "invalid_json:too_deep"),
    (f'{{"user_id": "a", "price": {"9" * 5_000}}}', "invalid_json", None),
    (TEXT + TEXT, "invalid_json", None),
    ({"user_id": "a", "price": math.nan}, "not_finite", "not_finite:/price"),
    ({"user_id": "a", "note": None, "price": math.inf}, "not_finite", "not_finite:/price"),
    ({"user_id": lambda: "a"}, "not_serialisable", "not_serialisable:/user_id"),
    ((one for one in [GOOD]), "not_serialisable", "not_serialisable"),
    ({"content": [{"type": "image", "data": "x"}]}, "no_data", "no_data"),
    ({"content": [{"type": "text", "text": TEXT}, {"type": "text", "text": TEXT}]}, "no_data", "no_data"),
    ({"content": [], "isError": False}, "no_data", "no_data"),
]


@pytest.mark.parametrize(("raw", "expected", "why"), BAD_TRANSPORT, ids=lambda value: str(value)[:30])
def test_what_cannot_be_read_is_refused(raw, expected, why):
    """Size, type, status and parse problems end in one finding about the tool, in the spelling of the trace."""
    checked = judge(raw)
    assert code(checked) == expected
    assert why is None or reason(checked) == why
    assert checked.value is None
    assert checked.findings[0].blame == "tool"


@pytest.mark.parametrize(
    ("raw", "expected", "at"),
    [
        ({"plan": "pro"}, "missing_field", "/user_id"),
        ({"user_id": "u", "plan": "ultra"}, "not_in_enum", "/plan"),
        ({"user_id": 7}, "wrong_type", "/user_id"),
        ([], "wrong_type", ""),
        (None, "wrong_type", ""),
        ("null", "wrong_type", ""),
        ('"text"', "wrong_type", ""),
        ({"user_id": "u", "profile": PAGE}, "html_instead_of_data", "/profile"),
        ({"user_id": "u", "tags": ["a", "  <HTML>"]}, "html_instead_of_data", "/tags/1"),
        ({"user_id": "u", "extra": {"x/y": [PAGE]}}, "html_instead_of_data", "/extra/x~1y/0"),
        ({"user_id": "u", "error": "timeout"}, "error_in_success", "/error"),
        ({"user_id": "u", "errors": [{"m": 1}]}, "error_in_success", "/errors"),
        ({"user_id": "u", "ok": False}, "error_in_success", "/ok"),
        ({"user_id": "u", "success": False}, "error_in_success", "/success"),
        ({"user_id": "u", "success": "false"}, "error_in_success", "/success"),
        ({"user_id": "u", "OK": False}, "error_in_success", "/OK"),
        ({"user_id": "u", "Error": "timeout"}, "error_in_success", "/Error"),
        ({"user_id": "u", "isError": True}, "error_in_success", "/isError"),
        ({"user_id": "u", "error": 404}, "error_in_success", "/error"),
        ({"user_id": "u", "error": {"message": "no"}}, "error_in_success", "/error"),
        ({"user_id": "u", "error": {"code": "ok", "message": "but late"}}, "error_in_success", "/error"),
        ({"user_id": "u", "error": {"code": 0, "log_id": "20220829"}}, "error_in_success", "/error"),
        ({"user_id": "u", "errors": [None, {"code": 0, "message": "x"}]}, "error_in_success", "/errors"),
    ],
)
@pytest.mark.parametrize("form", [lambda value: value, json.dumps], ids=["python", "text"])
def test_data_is_held_to_its_contract(raw, expected, at, form):
    """Drift, pages inside data and errors inside successes are found, as value and as text alike."""
    checked = judge(raw if isinstance(raw, str) else form(raw))
    assert code(checked) == expected
    assert checked.findings[0].at == at
    assert {(found.blame, found.hint) for found in checked.findings} == {("tool", "")}


@pytest.mark.parametrize(
    "raw",
    [
        {"user_id": "u", "error": None, "errors": []},
        {"user_id": "u", "error": "", "ok": True, "success": True},
        {"user_id": "u", "error": "none", "errors": {}},
        {"user_id": "u", "error": " No error ", "ok": True},
        {"user_id": "u", "error": 0},
        *({"user_id": "u", "error": word} for word in ("false", "False", "0", "-")),
        {"user_id": "u", "error": {"code": 0, "message": "", "details": [None, {"at": " "}]}, "errors": [None]},
        {"user_id": "u", "error": {"code": "ok", "message": "", "log_id": "20220829"}},
        {"user_id": "u", "error": {"code": "OK", "log_id": "20220829"}},
        {"user_id": "u", "success": 0, "is_error": False, "has_error": "x"},
        {"user_id": "u", "note": "no error: <b>bold</b> <html> is a tag"},
        {"user_id": "u", "nested": {"error": "of a line item", "ok": False}},
        {"user_id": "<htmlx>", "note": "<header>x</header> <bodyguard>"},
        {"user_id": "success", "note": "error"},
    ],
)
def test_words_that_only_look_like_errors_pass(raw):
    """Empty error slots, nested fields and fragments of markup are no findings."""
    assert code(judge(raw)) is None


OPTIONAL = {"type": "object", "properties": {"temp": {"type": "number"}, "unit": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (OPTIONAL, {"message": "Rate limit exceeded"}, "unlike_schema"),
        (OPTIONAL, {"fehler": "Kein Zugriff"}, "unlike_schema"),
        (OPTIONAL, {"result": {"temp": 3}}, "unlike_schema"),
        (OPTIONAL, {"temp": 3, "message": "x"}, None),
        (OPTIONAL, {}, None),
        ({"type": "object"}, {"message": "x"}, None),
        ({**OPTIONAL, "required": ["temp"]}, {"message": "x"}, "missing_field"),
        ({**OPTIONAL, "additionalProperties": True}, {"message": "x"}, None),
        ({**OPTIONAL, "additionalProperties": {"type": "string"}}, {"Paris": "id-1"}, None),
    ],
)
def test_an_answer_that_holds_no_promised_field_is_another_answer(schema, value, expected):
    """Where every field is optional, an object with only other fields is no data, in whatever words it says why."""
    for raw in (value, json.dumps(value)):
        assert code(judge(raw, schema)) == expected


def test_a_field_that_the_schema_names_is_data():
    """`is_error` is a failure only where nobody promised that field."""
    schema = {"type": "object", "properties": {"is_error": {"type": "boolean"}}}
    assert code(judge({"is_error": True}, schema)) is None


@pytest.mark.parametrize(
    ("name", "declared", "value"),
    [("error", {"type": "number"}, 0.03), ("errors", {"type": "array"}, ["E501"]), ("errors", {"type": "integer"}, 3)],
)
def test_a_field_that_must_be_data_is_no_error_slot(name, declared, value):
    """A required number, list or object called error is what the tool measures; beside data, one that is not required is no such thing."""
    schema = {"type": "object", "required": [name], "properties": {name: declared, "rows": {}}}
    assert code(judge({name: value, "rows": 1}, schema)) is None
    assert code(judge({name: value}, {**schema, "required": []})) is None
    found = judge({name: value, "rows": 1}, {**schema, "required": []})
    assert code(found) == "error_in_success"
    assert "let the schema require it" in found.findings[0].message


@pytest.mark.parametrize("text", ["", "free text", TEXT, '{"ok": true}', '{"ok": false', "é" * 1_000])
def test_a_text_contract_takes_any_text(text):
    """With `"text"` a text is what it is, whatever it looks like."""
    checked = judge(text, "text")
    assert checked.ok
    assert checked.value == text
    assert json.loads(checked.canonical) == text
    assert checked.notes == ()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (None, "no_data"),
        ({"a": 1}, "not_text"),
        (7, "not_text"),
        ("\ud800", "lone_surrogate"),
        ("x" * 200_001, "output_too_large"),
        (Raw(b"\xff", "text/plain"), "bad_encoding"),
        (Raw(b"x", "text/plain; charset=unicode_escape"), "bad_encoding"),
        (Raw(b"x", "text/plain; charset=utf-7"), "bad_encoding"),
        (Raw(b"x", "text/plain; charset=cp1259"), "bad_encoding"),
        (Raw(b"\x80" * 200_001, "text/plain; charset=windows-1252"), "output_too_large"),
    ],
)
def test_a_text_contract_takes_nothing_else(raw, expected):
    """A value that is no text, or no text in its own character set, is a finding."""
    assert code(judge(raw, "text")) == expected


def test_what_is_no_text_is_held_to_the_cap_in_bytes_alone():
    """A picture of four bytes per character of the cap passes unread, one byte more does not; so does any text that fits."""
    noise = bytes(range(256)) * 3_125
    for output, raw in (("text", Raw(noise, "image/png", 200)), (None, Raw(noise, "image/png")), (None, noise)):
        assert len(noise) == 800_000
        assert code(judge(raw, output)) is None
        more = msgspec.structs.replace(raw, body=noise + b"x") if isinstance(raw, Raw) else noise + b"x"
        assert code(judge(more, output)) == "output_too_large"
    wide = Raw(("a" * 200_000).encode("utf-16"), "text/plain; charset=utf-16")
    assert judge(wide, "text").value == "a" * 200_000
    for raw in (Raw(("a" * 200_001).encode("utf-16"), "text/plain; charset=utf-16"), b"x" * 200_001, "x" * 200_001):
        assert code(judge(raw, "text")) == "output_too_large"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"caf\xc3\xa9", "café"),
        (Raw(b"caf\xe9", "text/plain; charset=ISO-8859-1"), "café"),
        (Raw(b"caf\xc3\xa9", "text/plain; format=flowed"), "café"),
        (Raw(b"x", 'text/plain; charset="UTF-8"'), "x"),
        (Raw("x", None), "x"),
        (Raw(b"x", None, 204), "x"),
        (Raw(b"<a/>", "application/atom+xml"), "<a/>"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ([{"type": "text", "text": "a"}], "a"),
    ],
)
def test_text_arrives_in_its_own_character_set(raw, text):
    """A text response is decoded as it says, and UTF-8 otherwise."""
    assert judge(raw, "text").value == text


def test_a_text_contract_that_names_a_type_is_held_to_it():
    """A page is a finding where the contract names another media type than a page's."""
    assert code(judge(PAGE, "text", content_type="application/json")) == "html_instead_of_data"
    assert code(judge(PAGE, "text", content_type="text/html")) is None
    assert code(judge(PAGE, "text", content_type="text/*")) is None
    assert code(judge(Raw("x", "text/css"), "text", content_type="text/*")) is None
    assert code(judge(Raw("x", "image/png"), "text", content_type="text/*")) == "wrong_content_type"
    assert code(judge(Raw("x", "text/x+json"), "text", content_type="text/css")) == "wrong_content_type"
    assert code(judge(Raw("x", "application/hal+json"), "text", content_type="text/css")) == "wrong_content_type"
    assert code(judge(Raw("x", None), "text", content_type="*/*")) is None
    assert code(judge(Raw(PAGE, "text/html"), "text")) == "html_instead_of_data"
    assert code(judge(Raw("x", None), None)) is None


@pytest.mark.parametrize(
    "raw", ["text", TEXT, {"error": "x", "ok": False, "id": 1}, [1], None, 7, {"n": Decimal("1.5")}]
)
def test_a_tool_that_promises_nothing_is_measured_only(raw):
    """Without a contract any JSON value passes and is marked unchecked, even one that speaks of errors beside data."""
    checked = judge(raw, None)
    assert checked.ok
    assert checked.unchecked
    assert code(judge({"x": math.nan}, None)) == "not_finite"
    assert code(judge("x" * 200_001, None)) == "output_too_large"


FETCH = {"type": "object", "properties": {"pageUrl": {"type": "string"}}}


@pytest.mark.parametrize("output", ["text", None])
def test_a_page_is_an_answer_only_of_a_tool_that_takes_a_url(output):
    """A page where text belongs is a finding; of a tool that takes a URL it is unchecked text, with a note."""
    for raw in (PAGE, Raw(PAGE, None, 200), {"content": [{"type": "text", "text": PAGE}]}):
        assert code(judge(raw, output)) == "html_instead_of_data"
    assert reason(judge(Raw(PAGE, "text/html", 200), None)) == "content-type text/html"
    for arguments in (FETCH, {"type": "object", "properties": {"at": {"type": "array", "items": {"format": "uri"}}}}):
        fetch = Contract.from_schema("fetch", arguments, output_schema=output, effect="read")
        for raw in (PAGE, Raw(PAGE, "text/html", 200)):
            checked = check_output(raw, fetch, arguments={}, policy=ToolOutputPolicy())
            assert checked.ok
            assert checked.unchecked
            assert [note.code for note in checked.notes] == ["html_instead_of_data"]
    named = Contract.from_schema("fetch", FETCH, output_schema=output, effect="read", content_type="application/json")
    assert not check_output(PAGE, named, arguments={}, policy=ToolOutputPolicy()).ok
    assert not judge(PAGE, {"type": "string"}).ok
    assert judge(Raw("x", "text/plain", 200), output).ok


def test_structured_content_without_text_is_the_value():
    """An MCP result with only structured content is still a value where nothing is promised."""
    assert judge({"content": [], "structuredContent": GOOD}, None).value == GOOD
    assert judge({"content": [], "isError": False}, None).value is None


def test_size_only_checks_the_size_only():
    """A tool that is typed end to end is measured, parsed and serialised, not validated."""
    assert judge({"user_id": 7, "error": "x"}, output_checks="size_only").ok
    assert judge('{"plan": "ultra"}', output_checks="size_only").value == {"plan": "ultra"}
    assert code(judge("x" * 200_001, output_checks="size_only")) == "output_too_large"
    assert code(judge("{", output_checks="size_only")) == "invalid_json"


def test_the_contracts_own_caps_and_types_come_first():
    """A contract may lower the cap and name its media type; the policy fills in the rest."""
    assert code(judge(TEXT, max_chars=10)) == "output_too_large"
    assert judge(Raw(TEXT, "text/json"), content_type="text/json").ok
    policy = ToolOutputPolicy(max_chars=10, require_content_type="text/json")
    assert not check_output(TEXT, contract(), arguments={}, policy=policy).ok
    assert (
        code(check_output(Raw("{}", "application/json"), contract(), arguments={}, policy=policy))
        == "wrong_content_type"
    )


def test_a_cap_in_characters_is_not_a_cap_in_bytes():
    """Text of four-byte characters passes up to the cap in characters."""
    value = {"user_id": "\U0001f600" * 150_000}
    for raw in (value, json.dumps(value, ensure_ascii=False), json.dumps(value, ensure_ascii=False).encode()):
        assert judge(raw).ok


def test_a_huge_body_is_refused_before_it_is_touched():
    """200 MB are refused without copying or parsing them."""
    body = b"[" * 200_000_000
    tracemalloc.start()
    assert code(judge(Raw(body, "application/json"))) == "output_too_large"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize(
    ("schema", "is_value"),
    [
        ({"type": "string"}, True),
        ({"type": ["object", "string"]}, True),
        ({"enum": ["7", 7]}, True),
        ({"const": "7"}, True),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, True),
        ({"oneOf": [{"type": "string"}]}, True),
        ({"$ref": "#/$defs/t", "$defs": {"t": {"type": "string"}}}, True),
        ({"allOf": [{"minLength": 1}]}, True),
        (True, True),
        ({"maxLength": 9}, True),
        ({"type": "integer"}, False),
        ({"enum": [7]}, False),
        ({"const": 7}, False),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, False),
        ({"allOf": [{"type": "integer"}, True]}, False),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "integer"}}}, False),
        ({"$ref": "#/$defs/A%20B", "$defs": {"A B": {"type": "integer"}}}, False),
        ({"$ref": "#number", "$defs": {"n": {"$anchor": "number", "type": "integer"}}}, False),
        ({"$ref": "#text", "$defs": {"t": {"$anchor": "text", "type": "string"}}}, True),
        ({"$id": "https://x/y", "$ref": "z", "$defs": {"z": {"$id": "https://x/z", "type": "integer"}}}, False),
    ],
)
def test_a_text_is_the_value_only_where_the_schema_takes_text(schema, is_value):
    """`"7"` stays a text where a string is admitted and is read as JSON where none is."""
    assert judge("7", schema).value == ("7" if is_value else 7)
    assert judge(b"7", schema).value == ("7" if is_value else 7)


def test_references_that_share_their_targets_are_looked_at_once():
    """Anchors that all refer to all that follow cost what one look at each of them costs."""
    names = [f"a{i}" for i in range(7)]
    anchors = {
        name: {"$anchor": name, "allOf": [True, *({"$ref": f"#{later}"} for later in names[place + 1 :])]}
        for place, name in enumerate(names)
    }
    schema = {"$defs": anchors, "allOf": [{"$ref": f"#{name}"} for name in names]}
    began = time.process_time()
    assert judge("7", schema).value == "7"
    assert time.process_time() - began < 0.5


def test_a_false_schema_admits_nothing():
    """With the schema `false` neither text nor value passes."""
    assert not judge("7", False).ok
    assert not judge("x", {"$ref": "#/$defs/d", "$defs": {"d": False}}).ok


class Grumpy:
    """Raises whatever it is told when anybody looks at it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    @property
    def status_code(self) -> int:
        raise self.error

    @property
    def model_dump(self) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [RuntimeError("x"), SystemExit(1), RecursionError()])
@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: {"a": [one]}], ids=["alone", "inside"])
def test_an_object_that_raises_when_looked_at_is_a_finding(error, wrap):
    """Nothing a tool's own object raises escapes, except the person's Ctrl-C."""
    assert code(judge(wrap(Grumpy(error)))) == "not_serialisable"
    with pytest.raises(KeyboardInterrupt):
        judge(wrap(Grumpy(KeyboardInterrupt())))


class Moody:
    """A schema that refuses without being able to say why, or that cannot decide at all."""

    raw = True

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def is_valid(self, value: Any) -> bool:
        if self.error is not None:
            raise self.error
        return False

    def find_problems(self, value: Any, *, parsed: bool = False, effort: object = None) -> tuple[Any, ...]:
        return ()


@pytest.mark.parametrize("error", [None, ValueError("no JSON")])
def test_what_the_validator_refuses_is_refused(error):
    """A validator that raises, or refuses without a reason, never lets a value pass."""
    made = contract()
    object.__setattr__(made, "output", Moody(error))
    checked = check_output(GOOD, made, arguments={}, policy=ToolOutputPolicy())
    assert code(checked) == "schema_mismatch"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=15,
)


@given(JSON.filter(lambda value: isinstance(value, (dict, list))))
def test_text_and_value_are_judged_alike(value):
    """A value and its JSON text get the same verdict and the same bytes."""
    schema = {"type": ["object", "array"]}
    as_value, as_text = judge(value, schema), judge(json.dumps(value), schema)
    assert as_value.findings == as_text.findings
    if not as_value.content and as_value.failure is None:
        assert as_value.value == as_text.value
        assert as_value.canonical == as_text.canonical


@given(st.binary(max_size=300), st.sampled_from(["application/json", "text/html", None, "x"]))
def test_no_bytes_make_it_raise(body, content_type):
    """Any body with any type ends in a verdict; what is not JSON never passes."""
    for output in (PROFILE, {"type": "array"}, "text", None):
        for raw in (body, Raw(body, content_type, 200)):
            checked = judge(raw, output)
            assert checked.ok or checked.findings
    try:
        json.loads(body)
    except ValueError:
        assert not judge(Raw(body, "application/json"), {"type": ["object", "array", "number", "null"]}).ok


@given(st.text(max_size=40), st.integers(0, 60))
def test_a_cut_object_never_passes(text, cut):
    """No proper beginning of an object's text is taken for an object."""
    whole = json.dumps({"user_id": "u" + text, "note": text})
    assert not judge(whole[: min(cut, len(whole) - 1)]).ok
