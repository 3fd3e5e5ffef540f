"""What a tool returned is a validated value, the tool's own failure, or a finding; never a guess."""

import gzip
import json
import math
import time
import tracemalloc
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pydantic
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.call import Raw
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.terms import Compare, Envelope, Equal, Format, Range
from pokayoke.core.output.validate import OutputResult, check_output
from pokayoke.core.policy import ToolOutputPolicy

PAGE = "<!doctype html>\n<html><head><title>Maintenance</title></head><body>Back soon.</body></html>"
PROFILE = {
    "type": "object",
    "required": ["user_id"],
    "properties": {
        "user_id": {"type": "string", "minLength": 1},
        "plan": {"enum": ["free", "pro", "enterprise"]},
        "profile": {"type": "string"},
        "price": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "ok": {"type": "boolean"},
        "note": {"type": "string"},
    },
}
GOOD = {"user_id": "u1", "plan": "pro", "tags": ["a"]}


def contract(output: Any = PROFILE, **fields: Any) -> Contract:
    """A read tool with this output."""
    arguments = {"type": "object", "properties": {"user_id": {}, "ids": {}}}
    return Contract.from_schema("http.get", arguments, output_schema=output, effect="read", **fields)


def judge(raw: Any, output: Any = PROFILE, *, arguments: dict[str, Any] | None = None, **fields: Any) -> OutputResult:
    """Check one output with the default policy."""
    return check_output(raw, contract(output, **fields), arguments=arguments or {}, policy=ToolOutputPolicy())


def code(checked: OutputResult) -> str | None:
    """The code of the first finding, None if there is none."""
    assert checked.ok is (not checked.findings and checked.failure is None)
    return checked.findings[0].code if checked.findings else None


def reason(checked: OutputResult) -> str:
    """The reason a trace gives."""
    return checked.findings[0].data["reason"]


class Letters(StrEnum):
    A = '{"user_id": "a"}'


class Model(pydantic.BaseModel):
    user_id: str
    price: Decimal | None = None


def response(body: bytes, content_type: str | None = "application/json", status: int = 200, **headers: str) -> Any:
    """An httpx response as a client returns it."""
    if content_type is not None:
        headers["content-type"] = content_type
    return httpx.Response(status, content=body, headers=headers)


def requested(body: bytes | None, content_type: str = "application/json", status: int = 200) -> requests.Response:
    """A requests response as a client returns it; unread if the body is None."""
    made = requests.Response()
    made.status_code = status
    made.headers["Content-Type"] = content_type
    if body is not None:
        made._content = body
    return made


TEXT = json.dumps(GOOD)
BODY = TEXT.encode()


@pytest.mark.parametrize(
    ("raw", "wire"),
    [
        (TEXT, False),
        (f"  {TEXT}\n", False),
        (BODY, False),
        (bytearray(BODY), False),
        (GOOD, False),
        (Raw(TEXT, "application/json"), True),
        (Raw(BODY, "Application/JSON; charset=utf-8", 200), True),
        (Raw(BODY, "application/hal+json", 201), True),
        ({"body": TEXT, "content_type": "application/json"}, True),
        ({"body": bytearray(BODY), "content_type": "application/json", "status": 200, "headers": {}}, True),
        ({"body": TEXT, "content_type": "application/json", "status_code": 200, "url": "x"}, True),
        ({"body": TEXT, "content_type": "application/json", "status": None, "status_code": "200", "ok": True}, True),
        (response(BODY), True),
        (requested(BODY), True),
        ({"content": [{"type": "text", "text": TEXT}]}, False),
        ({"content": [{"type": "text", "text": "see below"}], "structuredContent": GOOD, "isError": False}, False),
        (SimpleNamespace(content=[SimpleNamespace(type="text", text=TEXT)], isError=False), False),
        (SimpleNamespace(content=[], structured_content=GOOD, is_error=False), False),
        ({"content": [{"type": "resource", "resource": {"uri": "x", "text": TEXT}}], "_meta": {}}, False),
        ("\ufeff" + TEXT, False),
        (b"\xef\xbb\xbf" + BODY, False),
        (Raw(b"\xef\xbb\xbf" + BODY, "application/json", 200), True),
        ({"content": [{"type": "text", "text": "\ufeff" + TEXT}]}, False),
        (Raw(TEXT.encode("utf-16"), "application/json; charset=utf-16", 200), True),
        (Raw(b"\xff\xfe" + TEXT.encode("utf-16-le"), "application/json; charset=UTF-16LE"), True),
        (Raw(TEXT.encode("utf-16-be"), 'application/json; charset="utf-16be"'), True),
    ],
)
def test_every_way_a_good_answer_arrives_gives_the_same_value(raw, wire):
    """Text, bytes, Python values, responses and MCP results end in the same validated value."""
    checked = judge(raw)
    assert code(checked) is None
    assert checked.value == GOOD
    assert checked.canonical == json.dumps(GOOD, separators=(",", ":")).encode()
    assert checked.wire is wire
    assert checked.chars > 0
    assert not checked.unchecked


@pytest.mark.parametrize(
    ("body", "charset"),
    [
        ("Zoë".encode("latin-1"), "iso-8859-1"),
        ("Zoë".encode(), "iso-8859-1"),
        ("Zoë".encode(), "utf-16"),
        ("Zoë".encode(), "no-such-set"),
    ],
)
def test_a_declared_character_set_counts_for_what_is_no_utf8(body, charset):
    """JSON in another set is read as its type declares, and JSON in UTF-8 as UTF-8, whatever is declared."""
    raw = Raw(b'{"user_id": "' + body + b'"}', f"application/json; charset={charset}")
    assert judge(raw).value == {"user_id": "Zoë"}


def test_json_in_another_character_set_is_held_to_the_same_caps():
    """The limit in characters is that of the text that the bytes mean, and the limit in bytes comes first."""
    for count, found in ((200_000 - 15, None), (200_000 - 14, "output_too_large"), (500_000, "output_too_large")):
        text = json.dumps({"user_id": "x" * count})
        assert code(judge(Raw(text.encode("utf-16"), "application/json; charset=utf-16"))) == found


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (Letters.A, {"user_id": "a"}),
        (Model(user_id="a"), {"user_id": "a", "price": None}),
        (Model(user_id="a", price=Decimal("1.5")), {"user_id": "a", "price": "1.5"}),
        ({"user_id": "a", "price": Decimal("19.99")}, {"user_id": "a", "price": 19.99}),
        ({"user_id": Path("a")}, {"user_id": "a"}),
        ({"user_id": "a", "note": datetime(2026, 1, 1)}, {"user_id": "a", "note": "2026-01-01T00:00:00"}),
    ],
)
def test_python_objects_are_judged_by_their_json(raw, value):
    """Objects are held to the schema in their JSON form; a Decimal is a number where the schema says so."""
    schema = {**PROFILE, "properties": {**PROFILE["properties"], "price": {"type": ["number", "string", "null"]}}}
    checked = judge(raw, PROFILE if isinstance(raw, dict) else schema)
    assert code(checked) is None
    assert checked.value == value


@pytest.mark.parametrize(
    ("name", "naive"), [("date-time", datetime(2026, 1, 1)), ("time", datetime(2026, 1, 1).time())]
)
def test_a_time_without_its_zone_is_told_so(name, naive):
    """Where a format wants a time zone, the finding about a naive time says that it is missing."""
    found = judge({"at": naive}, {"properties": {"at": {"type": "string", "format": name}}}).findings
    assert [one.code for one in found] == ["bad_format"]
    assert f'expected the format "{name}" with a time zone, such as ' in found[0].message
    assert judge({"at": naive.replace(tzinfo=UTC)}, {"properties": {"at": {"format": name}}}).ok


def test_a_decimal_that_no_double_holds_is_not_rounded():
    """Where the schema wants a number and digits would be lost, the output is refused."""
    assert code(judge({"user_id": "a", "price": Decimal("0.12345678901234567890")})) == "wrong_type"


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
    """A required number, list or object called error is what the tool measures."""
    schema = {"type": "object", "required": [name], "properties": {name: declared}}
    assert code(judge({name: value}, schema)) is None
    found = judge({name: value}, {**schema, "required": []})
    assert code(found) == "error_in_success"
    assert "let the schema require it" in found.findings[0].message


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"page": {"contentMediaType": "text/html"}}}, {"page": PAGE}),
        ({"properties": {"body_html": {"type": "string"}}}, {"body_html": PAGE}),
        ({"items": {"$ref": "#/$defs/p"}, "$defs": {"p": {"type": "string", "contentMediaType": "text/html"}}}, [PAGE]),
        ({"items": {"$ref": "#p"}, "$defs": {"p": {"$anchor": "p", "contentMediaType": "text/html"}}}, [PAGE]),
        ({"items": {"$ref": "#/$defs/a%20b"}, "$defs": {"a b": {"contentMediaType": "text/html"}}}, [PAGE]),
        ({"patternProperties": {"^page": {"contentMediaType": "text/html"}}}, {"page1": PAGE}),
        ({"prefixItems": [{}, {"contentMediaType": "text/html; charset=utf-8"}]}, [1, PAGE]),
        ({"additionalProperties": {"anyOf": [{"type": "null"}, {"contentMediaType": "text/html"}]}}, {"x": PAGE}),
        ({"allOf": [{"properties": {"p": {"contentMediaType": "text/html"}}}]}, {"p": PAGE}),
        ({"type": "string", "contentMediaType": "text/html"}, PAGE),
    ],
)
def test_a_field_that_says_it_holds_a_page_may(schema, value):
    """`contentMediaType: text/html`, or a declared name with the word html, makes a page data."""
    assert code(judge(value, schema)) is None


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (True, {"html": PAGE}),
        ({"properties": {"page": {"type": "string"}}}, {"page": PAGE}),
        ({"items": {"contentMediaType": "application/json"}}, [PAGE]),
        ({"$ref": "#/$defs/p", "$defs": {"p": {"type": ["array", "object"]}}}, [PAGE]),
        ({"prefixItems": [{"contentMediaType": "text/html"}]}, [1, PAGE]),
        ({"properties": {"a": {"properties": {"b": {}}}}}, {"a": {"b": {"c": PAGE}}}),
    ],
)
def test_a_page_nobody_declared_is_found(schema, value):
    """Without such a declaration a page is found wherever it stands."""
    assert code(judge(value, schema)) == "html_instead_of_data"


@pytest.mark.parametrize(
    "page",
    [
        "<html>",
        "<HTML lang=en>",
        "\ufeff<!DOCTYPE html PUBLIC '-'>",
        "<!-- a --> <!-- b -->\n<html",
        "<?xml version='1.0'?><html xmlns='x'>",
        "<head><title>",
        "<body/>",
        "<!doctype\nhtml>",
        "\u200b<!doctype html>",
        "\0\0 <!doctype html>",
        " \u2060<!-- a -->\u200d\x85<?XML version='1.0'?>\0<body>",
        "<!--><html>",
        " " * 5_000 + "<!doctype html>",
        f"<!-- {'x' * 5_000} --><!doctype html>",
        "<!-- - -- -->" * 500 + "<html>",
    ],
)
def test_a_page_is_known_by_its_first_tag(page):
    """However many comments, blanks and invisible signs, a declaration of XML, any case and a cut end hide no page."""
    assert code(judge(page)) == "html_instead_of_data"
    assert code(judge({"user_id": page})) == "html_instead_of_data"


@pytest.mark.parametrize(
    "text",
    [
        "<!-- <html>",
        "<!-- a --> b <html>",
        "\u200bx",
        "\0x<html>",
        "<?xml <html>",
        "<p><html>",
        "<htmlx>",
        "<!doctype x>",
    ],
)
def test_a_page_within_a_text_is_no_page(text):
    """Where a text begins with words, another tag or a comment without an end, no page stands for data."""
    assert code(judge({"user_id": text + "<html>"})) is None


def test_a_row_of_comments_is_looked_at_once():
    """Thousands of comments before nothing take no more than a moment."""
    began = time.monotonic()
    for row in ("<!-- x -->" * 15_000, " \u200b" * 90_000, "<!--" + "-" * 150_000, "<?xml ?>" * 20_000):
        assert code(judge({"user_id": row + "x<body"})) is None
    assert code(judge({"user_id": "<!-- x -->" * 15_000 + "<body"})) == "html_instead_of_data"
    assert code(judge({"user_id": "<!--" * 40_000 + "<html"})) is None
    assert time.monotonic() - began < 20


# --- failure ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"content": [{"type": "text", "text": "no such user"}], "isError": True}, "no such user"),
        ({"content": [], "isError": True}, "the tool gave no reason"),
        ({"content": [], "isError": True, "structuredContent": {"message": "gone"}}, "gone"),
        ({"content": [], "isError": True, "structuredContent": {"code": 2**70}}, f'{{"code":{2**70}}}'),
        ({"content": [{"type": "text", "text": PAGE}], "isError": True}, "an HTML page"),
        (SimpleNamespace(content=[SimpleNamespace(type="text", text="no")], is_error=True), "no"),
        ({"content": [{"type": "text", "text": "x" * 5_000}], "isError": True}, "x" * 1_999 + "…"),
    ],
)
@pytest.mark.parametrize("output", [PROFILE, "text", None], ids=["schema", "text", "unchecked"])
def test_a_result_that_says_it_failed_skips_the_schema(raw, said, output):
    """`isError` is the tool's own word: its text comes back as failure, unjudged."""
    checked = judge(raw, output)
    assert checked.failure == said
    assert not checked.ok
    assert checked.findings == ()


@pytest.mark.parametrize(
    ("raw", "said", "data"),
    [
        (Raw(PAGE, "text/html", 503), "HTTP status 503", {"reason": "http_error:503", "status": 503}),
        (Raw("", None, 500), "HTTP status 500", {"reason": "http_error:500", "status": 500}),
        (
            {"body": "{}", "content_type": "application/json", "status": None, "status_code": "503"},
            "HTTP status 503: {}",
            {"reason": "http_error:503", "status": 503},
        ),
        (
            {"body": "{}", "content_type": "application/json", "ok": False, "reason": "Internal Server Error"},
            "HTTP status 500: {}",
            {"reason": "http_error:500", "status": 500},
        ),
        (Raw(b'{"message":"slow down"}', "application/json", 429), 'HTTP status 429: {"message":"slow down"}', None),
        (Raw("x" * 300_000, "text/plain", 500), "HTTP status 500", None),
        (Raw(TEXT, "application/json", 302), f"HTTP status 302: {TEXT}", None),
        (response(b"\xff no", status=404), "HTTP status 404: \ufffd no", None),
        (
            response(b"", status=503, **{"retry-after": "30"}),
            "HTTP status 503",
            {"reason": "http_error:503", "status": 503, "retry_after": 30.0},
        ),
        (
            {
                "body": "",
                "content_type": "x",
                "status": 503,
                "headers": {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"},
            },
            "HTTP status 503",
            {"reason": "http_error:503", "status": 503},
        ),
        (requested(b"gone", status=410), "HTTP status 410: gone", None),
    ],
)
def test_a_status_that_is_no_success_is_the_tools_failure(raw, said, data):
    """A response with status 3xx, 4xx or 5xx is a failure with a finding, whatever its body looks like."""
    checked = judge(raw)
    assert code(checked) == "http_error"
    assert checked.failure == said
    assert data is None or dict(checked.findings[0].data) == data


def test_no_content_is_null():
    """A response without content (204) is null, whether it has a type or not; the schema says whether null will do."""
    assert judge(Raw(b"", "application/json", 204), {"type": "null"}).ok
    assert judge(httpx.Response(204), {"type": ["object", "null"]}).ok
    assert judge(Raw(b"", "application/json", 204)).findings[0].code == "wrong_type"


WRAPPED = Envelope(ok="/status", ok_values=("ok", 0), error="/error", data="/data")


@pytest.mark.parametrize(
    ("raw", "failure"),
    [
        ({"status": "error", "data": GOOD}, "/status does not say success"),
        ({"data": GOOD}, "/status does not say success"),
        ({"status": "ok", "error": "no such user", "data": GOOD}, "no such user"),
        ({"status": "ok", "error": {"detail": "locked"}, "data": GOOD}, "locked"),
        ({"status": "failed", "message": "try later"}, "try later"),
        ({"status": False, "errors": ["a", "b"]}, '["a","b"]'),
        ([], "/status does not say success"),
    ],
)
def test_a_declared_failure_is_the_tools_word(raw, failure):
    """What the contract declares as failure comes back as failure text, not as a broken promise."""
    checked = judge(json.dumps(raw), envelope=WRAPPED)
    assert checked.failure == failure
    assert checked.findings == ()


@pytest.mark.parametrize("status", ["ok", 0, 0.0])
def test_a_declared_envelope_is_opened(status):
    """The schema describes what is inside the envelope."""
    checked = judge({"status": status, "data": GOOD}, envelope=WRAPPED)
    assert checked.value == GOOD
    assert json.loads(checked.canonical) == GOOD


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"status": "ok"}, "envelope_broken"),
        ({"status": "ok", "data": {"plan": "pro"}}, "missing_field"),
        ({"status": "ok", "data": GOOD, "success": False}, "error_in_success"),
        ({"status": "ok", "data": {**GOOD, "error": "late"}}, "error_in_success"),
        ({"status": "ok", "data": {**GOOD, "price": Decimal("1.5")}}, "wrong_type"),
    ],
)
def test_an_envelope_is_no_excuse(raw, expected):
    """Inside and around a declared envelope everything else is still checked."""
    assert code(judge(raw, envelope=WRAPPED)) == expected


def test_a_field_the_envelope_names_is_not_guessed_about():
    """With `ok` declared, its other values are the contract's business, not the heuristic's."""
    assert judge({**GOOD, "ok": False}, envelope=Envelope(ok="/ok", ok_values=(False,))).ok
    assert code(judge({**GOOD, "ok": False}, envelope=Envelope(data=""))) == "error_in_success"
    assert judge({**GOOD, "error": "none"}, envelope=Envelope(error="/error")).ok


# --- text, unchecked, size only -----------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "free text", TEXT, PAGE, '{"ok": false}', "é" * 1_000])
def test_a_text_contract_takes_any_text(text):
    """With `"text"` nothing is parsed; a page is text too."""
    checked = judge(text, "text")
    assert checked.ok
    assert checked.value == text
    assert json.loads(checked.canonical) == text
    assert checked.notes == ()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (None, "not_text"),
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
    assert code(judge(Raw(PAGE, "text/html"), "text")) is None
    assert code(judge(Raw("x", None), None)) is None


SENT = {"body": TEXT, "content_type": "application/json"}


@pytest.mark.parametrize(
    ("told", "status"),
    [
        ({"status": 500.0}, 500),
        ({"status": 200.5}, "float"),
        ({"status": "500 Internal Server Error"}, 500),
        ({"status": "HTTP/1.1 503 Service Unavailable"}, 503),
        ({"status": "error"}, "error"),
        ({"status": "OK", "status_code": 502}, 502),
        ({"status": 200, "status_code": "502"}, 502),
        ({"status": 200, "ok": False}, 500),
        *(({"status": 200, "ok": flag}, 500) for flag in ("false", " False", 0, 0.0)),
        ({"status": True}, True),
        ({"status": [200]}, "list"),
        ({"status": "2000"}, "2000"),
        ({"status": "x" * 99}, "x" * 40),
    ],
)
def test_a_status_that_is_no_plain_success_is_a_failure(told, status):
    """However a response spells its status, one that cannot be read as a success is the tool's failure."""
    for checked in (judge({**SENT, **told}), judge({**SENT, **told}, "text"), judge({**SENT, **told}, None)):
        assert checked.failure == f"HTTP status {status}: {TEXT}"
        assert (code(checked), checked.findings[0].data["status"]) == ("http_error", status)


@pytest.mark.parametrize("flag", ["true", True, 1, None])
def test_a_response_that_does_not_deny_its_success_is_read(flag):
    """An `ok` that is true, or says nothing, leaves the word to the status."""
    assert code(judge({**SENT, "status": 200, "ok": flag})) is None


@pytest.mark.parametrize("told", [{"status": word} for word in ("200 OK", " 201", "OK", "Success", 204.0, "", None)])
def test_a_status_that_says_success_is_one(told):
    """A number in a text, and a plain word for success, are read."""
    assert judge({**SENT, **told}).ok


@pytest.mark.parametrize("body", [5, {"user_id": "a"}, None, ["x"]])
def test_a_response_without_a_readable_body_is_a_finding(body):
    """What is put into a Raw and is no text and no bytes is said to be so; its status is still heard."""
    assert code(judge(Raw(body, "application/json", 200))) == "body_unread"
    assert judge(Raw(body, "application/json", "503")).failure == "HTTP status 503"
    assert judge(Raw(memoryview(BODY), "application/json", "200"), "text").value == TEXT


@pytest.mark.parametrize("flag", [True, 1, "true", "True ", "yes", "error"])
def test_a_result_of_blocks_with_an_error_flag_is_a_failure(flag):
    """A flag for errors that is set is heard in whatever type it comes."""
    for name in ("isError", "is_error"):
        assert judge({"content": [{"type": "text", "text": TEXT}], name: flag}).failure == TEXT
    for unset in (None, False, 0, "", "false", " False"):
        assert judge({"content": [{"type": "text", "text": TEXT}], "isError": unset}).ok


IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("raw", "value", "content"),
    [
        ({"content": [IMAGE]}, None, (IMAGE,)),
        ({"content": [IMAGE, {"type": "text", "text": "a cat"}]}, "a cat", (IMAGE,)),
        (IMAGE, None, (IMAGE,)),
        ([IMAGE, {"type": "text", "text": "x"}], "x", (IMAGE,)),
        ([{"type": "image_url", "image_url": {"url": "x"}}], None, ({"type": "image_url", "image_url": {"url": "x"}},)),
        (Raw(b"\x89PNG", "image/png", 200), None, (Raw(b"\x89PNG", "image/png", 200),)),
        ({"content": [{"type": "resource", "resource": {"blob": "x"}}], "isError": False}, None, None),
    ],
)
@pytest.mark.parametrize("output", ["text", None], ids=["text", "unchecked"])
def test_binary_blocks_pass_unread(raw, value, content, output):
    """Images, audio and blobs come back as they were, beside whatever text there is."""
    checked = judge(raw, output)
    assert checked.ok
    assert checked.value == value
    assert content is None or checked.content == content
    assert checked.content


@pytest.mark.parametrize("raw", [b"\x89PNG\xff", gzip.compress(b"text", mtime=0), bytearray("text".encode("utf-16"))])
def test_bytes_that_are_no_text_keep_no_promise_of_text(raw):
    """Bytes without a media type are text where text is promised, or a finding; where nothing is, they pass unread."""
    assert code(judge(raw, "text")) == "bad_encoding"
    assert judge(raw, None).content == (Raw(bytes(raw)),)
    assert judge(Raw(bytes(raw), "image/png"), "text").content == (Raw(bytes(raw), "image/png"),)


VALUE = {"base64": "aGk=", "mime_type": "x/y"}


@pytest.mark.parametrize(
    "block",
    [
        *({"type": kind, **VALUE} for kind in ("image", "audio", "video", "file")),
        *({"type": kind, "url": "https://x/y"} for kind in ("image", "audio", "video", "file")),
        *({"type": kind, "file_id": "f", "id": "lc_1"} for kind in ("image", "audio", "video", "file")),
        {"type": "input_file", "file_data": "aGk="},
        {"type": "input_file", "file_url": "https://x/y"},
        *({"type": "document", "source": {"type": kind}} for kind in ("base64", "url", "file")),
    ],
)
def test_blocks_of_every_provider_pass_unread(block):
    """Pictures, sounds and files in the shapes of LangChain, OpenAI and Anthropic, however large, are no text."""
    large = {**block, "base64": "A" * 5_000_000} if "base64" in block else block
    checked = judge([{"type": "text", "text": "x"}, large], None)
    assert (checked.value, checked.content) == ("x", (large,))


@pytest.mark.parametrize(
    "data",
    [
        {"type": "file", "url": "https://x/y", "name": "y"},
        {"type": "video", "url": None},
        {"type": "file", "url": 1},
        {"type": "link", "url": "https://x/y"},
        {"type": "document", "source": "wiki", "title": "x"},
        {"type": "document", "source": {"type": "text", "data": "x"}},
        {"type": "document"},
        {"type": "search_result", "source": "https://x", "title": "x", "content": [{"type": "text", "text": "x"}]},
    ],
)
def test_data_that_has_a_type_is_data(data):
    """Where more is said than a block says, or less, the model reads it."""
    checked = judge([data], None)
    assert (checked.value, checked.content) == ([data], ())


def test_blocks_beside_structured_content_are_kept():
    """With a schema, the structured part is the value and other blocks still arrive."""
    checked = judge({"content": [IMAGE], "structuredContent": GOOD})
    assert (checked.value, checked.content) == (GOOD, (IMAGE,))


@pytest.mark.parametrize(
    "raw",
    [
        [IMAGE],
        {"type": "image", "url": "x"},
        {"content": [{"type": "text", "text": "x"}], "title": "a page"},
        {"content": "text"},
        {"content": [{"type": "paragraph"}]},
        {"content": []},
        {"type": ["image"]},
        {"type": "image"},
        {"body": "x", "content_type": "text/plain", "subject": "hello"},
        {"body": {"a": 1}, "content_type": "application/json"},
        {"body": None, "content_type": "application/json"},
    ],
)
def test_data_that_looks_like_a_carrier_is_data(raw):
    """Where a schema describes the output, or a field no carrier has is there, the value is the value."""
    checked = judge(raw, {"type": ["object", "array"]})
    assert checked.ok
    assert checked.value == raw
    assert not checked.content


def test_a_schema_that_describes_the_carriers_fields_wins():
    """A tool that returns e-mails or documents may use the words body, content_type and content."""
    mail = {"body": "hello", "content_type": "text/plain"}
    assert judge(mail, {"properties": {"content_type": {"type": "string"}}}).value == mail
    assert judge({"content_type": "text/plain"}, None).value == {"content_type": "text/plain"}
    document = {"content": [{"type": "text", "text": "x"}]}
    assert judge(document, {"properties": {"content": {"type": "array"}}}).value == document


def test_objects_that_share_a_name_with_a_carrier_are_no_carriers():
    """An object with `content` but no word of failure or structure is an object like any other."""
    assert code(judge(SimpleNamespace(content=[]))) == "not_serialisable"
    assert code(judge(SimpleNamespace(content=[{"type": "x"}], isError=True))) == "not_serialisable"


@pytest.mark.parametrize("raw", ["text", TEXT, {"error": "x", "ok": False}, [1], None, 7, {"n": Decimal("1.5")}])
def test_a_tool_that_promises_nothing_is_measured_only(raw):
    """Without a contract any JSON value passes and is marked unchecked, even one that speaks of errors."""
    checked = judge(raw, None)
    assert checked.ok
    assert checked.unchecked
    assert code(judge({"x": math.nan}, None)) == "not_finite"
    assert code(judge("x" * 200_001, None)) == "output_too_large"


def test_a_page_from_a_tool_that_promises_nothing_is_noted():
    """A page as text is a note; a response that says it is a page is a finding."""
    checked = judge(PAGE, None)
    assert checked.ok
    assert [note.code for note in checked.notes] == ["html_instead_of_data"]
    assert reason(judge(Raw(PAGE, "text/html", 200), None)) == "content-type text/html"
    assert judge(Raw("x", "text/plain", 200), None).ok


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


# --- invariants and extract ---------------------------------------------------------------------


def leave(value: Any = None) -> Any:
    raise SystemExit(value)


async def later(output: Any, arguments: Any) -> bool:
    return True


def piecemeal(output: Any, arguments: Any) -> Any:
    yield True


class Awaitable:
    def __await__(self):
        return iter(())


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (lambda output, arguments: None, None),
        (lambda output, arguments: True, None),
        (lambda output, arguments: output["user_id"] == arguments["user_id"], None),
        (lambda output, arguments: [], None),
        (lambda output, arguments: 1, None),
        (lambda output, arguments: False, "invariant_failed"),
        (lambda output, arguments: 0, "invariant_failed"),
        (lambda output, arguments: "", "invariant_failed"),
        (lambda output, arguments: "user is locked", "invariant_failed"),
        (lambda output, arguments: ["a", "b"], "invariant_failed"),
        (lambda output, arguments: ("a",), "invariant_failed"),
        (lambda output, arguments: output["absent"], "invariant_raised"),
        (lambda output, arguments: leave("bye"), "invariant_raised"),
        (lambda output: True, "invariant_raised"),
        (later, "invariant_raised"),
        (piecemeal, "invariant_raised"),
        (lambda output, arguments: Awaitable(), "invariant_raised"),
        (lambda output, arguments: output.clear(), "output_changed"),
        (lambda output, arguments: output["tags"].append("b"), "output_changed"),
    ],
)
def test_an_invariant_never_escapes(rule, expected):
    """Whatever a rule returns, raises or changes, the result is a finding or nothing."""
    assert code(judge(GOOD, arguments={"user_id": "u1"}, invariants=(rule,))) == expected


def test_every_complaint_of_a_rule_is_reported():
    """A list of sentences is as many findings; the rule is named."""
    found = judge(GOOD, invariants=(lambda output, arguments: ["a", "b"],)).findings
    assert [one.message.rpartition(": ")[2] for one in found] == ["a", "b"]


def test_a_keyboard_interrupt_belongs_to_the_person():
    """Ctrl-C during a rule or an extract function is not swallowed."""

    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge(GOOD, invariants=(interrupt,))
    with pytest.raises(KeyboardInterrupt):
        judge("x", extract=interrupt)


BOOKING = {
    "id": "B1",
    "total": 10,
    "start": "2026-01-02",
    "end": "2026-01-05",
    "at": "2026-01-02T10:00:00Z",
    "until": "2026-01-02T11:00:00+00:00",
    "opens": "09:00",
    "closes": "17:00:00",
    "items": [{"price": 3, "email": "a@example.com"}, {"price": 7.5, "email": None}],
    "flag": True,
    "nothing": None,
    "deep": {"list": [1, {"x": True}]},
}


@pytest.mark.parametrize(
    ("rule", "at"),
    [
        (Range("/total", 0, 10), None),
        (Range("/total", 11), "/total"),
        (Range("/total", None, 9.5), "/total"),
        (Range("/items/*/price", 0, 7), "/items/1/price"),
        (Range("/items/0/price", 3, 3), None),
        (Range("/items/7/price", 3, 3), None),
        (Range("/items/x/price", 3, 3), None),
        (Range("/absent", 1), None),
        (Range("/nothing", 1), None),
        (Range("/flag", 0), "/flag"),
        (Range("/id", 0), "/id"),
        (Range("/id/deeper", 0), None),
        (Format("/start", "date"), None),
        (Format("/items/*/email", "email"), None),
        (Format("/id", "date"), "/id"),
        (Format("/total", "date"), "/total"),
        (Compare("/start", "<", "/end"), None),
        (Compare("/end", "<=", "/start"), "/end"),
        (Compare("/at", "<", "/until"), None),
        (Compare("/opens", "<", "/closes"), None),
        (Compare("/total", ">=", "/items/*/price"), None),
        (Compare("/total", "<", "/items/*/price"), "/total"),
        (Compare("/id", "<", "/start"), "/id"),
        (Compare("/id", "<", "/total"), "/id"),
        (Compare("/start", "<", "/at"), "/start"),
        (Compare("/start", "!=", "/end"), None),
        (Compare("/start", "==", "/end"), "/start"),
        (Compare("/deep", "==", "/deep"), None),
        (Compare("/nothing", "<", "/total"), None),
        (Compare("/total", "<", "/nothing"), None),
    ],
)
def test_declared_rules_hold_or_name_the_place(rule, at):
    """Ranges, formats and comparisons are evaluated for every place their pointers reach."""
    found = judge(BOOKING, {"type": "object"}, invariants=(rule,)).findings
    assert [one.at for one in found] == ([] if at is None else [at] * len(found))
    assert bool(found) is (at is not None)


@pytest.mark.parametrize(
    ("given_", "returned", "holds"),
    [
        ("u1", "u1", True),
        ("u1", "u2", False),
        (1, 1.0, True),
        (1, True, False),
        ({"a": [1]}, {"a": [1.0]}, True),
        ({"a": [1]}, {"a": [True]}, False),
        ({"a": 1}, {"b": 1}, False),
        ([1, 2], [1], False),
        ("1", 1, False),
    ],
)
def test_the_answer_is_about_what_was_asked(given_, returned, holds):
    """An id in the output equals the one in the arguments, as JSON equality sees it."""
    rule = Equal("/user_id", "/user_id")
    checked = judge({"user_id": returned}, {"type": "object"}, arguments={"user_id": given_}, invariants=(rule,))
    assert checked.ok is holds
    assert judge({"user_id": returned}, {"type": "object"}, invariants=(rule,)).ok


def test_each_item_may_equal_any_of_the_ids_asked_for():
    """With wildcards, every id returned is one of those asked for."""
    rule = Equal("/*/id", "/ids/*")
    items = [{"id": "a"}, {"id": "b"}]
    assert judge(items, {"type": "array"}, arguments={"ids": ["b", "a"]}, invariants=(rule,)).ok
    found = judge(items, {"type": "array"}, arguments={"ids": ["a"]}, invariants=(rule,)).findings
    assert [one.at for one in found] == ["/1/id"]


def read(text: str) -> Any:
    return {"user_id": text.split("=")[1]}


@pytest.mark.parametrize(
    "raw",
    ["id=u1", b"id=u1", Raw("id=u1", "text/plain"), {"content": [{"type": "text", "text": "id=u1"}]}],
)
def test_structure_taken_from_text_is_held_to_the_schema(raw):
    """Free text is read by the contract's function, and what that returns is validated."""
    assert judge(raw, extract=read).value == {"user_id": "u1"}


@pytest.mark.parametrize(
    ("raw", "function", "expected"),
    [
        ("no id", read, "extract_failed"),
        ("x", lambda text: leave(), "extract_failed"),
        ("x", lambda text: {"plan": "pro"}, "missing_field"),
        ("x", lambda text: print, "not_serialisable"),
        (PAGE, read, "html_instead_of_data"),
        (Raw(b"\xff", "text/plain"), read, "bad_encoding"),
        (b"\xff", read, "bad_encoding"),
    ],
)
def test_a_text_that_cannot_be_read_is_a_finding(raw, function, expected):
    """An extract function that fails, or gives something else, ends in a finding."""
    assert code(judge(raw, extract=function)) == expected


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


# --- laws ---------------------------------------------------------------------------------------

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


FLAGGED = {"type": "object", "properties": {"n": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("answer", "schema", "ok"),
    [
        ({"n": 1, "SUCCESS": False}, FLAGGED, False),
        ({"n": 1, "ok": " FALSE "}, FLAGGED, False),
        ({"n": 1, "is_error": "True"}, FLAGGED, False),
        ({"n": 1, "IsError": True}, FLAGGED, False),
        ({"n": 1, "ERROR": "no route"}, FLAGGED, False),
        ({"n": 1, "success": 1, "is_error": 0, "ERROR": ""}, FLAGGED, True),
        ({"n": 1, "ok": None, "isError": None}, FLAGGED, True),
        ({"n": 1, "success": 0, "is_error": 1}, FLAGGED, True),
    ],
)
def test_a_flag_says_failure_in_any_spelling(answer, schema, ok):
    """As a text and under a name in any case; not as a number, which may be a count."""
    contract = Contract.from_schema("tool", {"type": "object"}, output_schema=schema, effect="read")
    assert check_output(json.dumps(answer), contract, arguments={}, policy=ToolOutputPolicy()).ok is ok


def test_the_details_of_a_problem_are_no_data():
    """RFC 9457: the media type says that the body describes an error, whatever the status says."""
    contract = Contract.from_schema("tool", {"type": "object"}, output_schema=FLAGGED, effect="read")
    good = Raw('{"n": 1}', "application/hal+json", 200)
    assert check_output(good, contract, arguments={}, policy=ToolOutputPolicy()).ok
    problem = Raw('{"n": 1}', "application/problem+json; charset=utf-8", 200)
    found = check_output(problem, contract, arguments={}, policy=ToolOutputPolicy()).findings
    assert [one.code for one in found] == ["wrong_content_type"]
