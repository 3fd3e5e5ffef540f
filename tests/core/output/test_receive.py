"""How outputs arrive: text, bytes, Python values, responses, blocks."""

import gzip
import json
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace

import pydantic
import pytest
from output_cases import BODY, GOOD, PROFILE, TEXT, code, judge, requested, response

from pokayoke.core.call import Raw


class Letters(StrEnum):
    A = '{"user_id": "a"}'


class Model(pydantic.BaseModel):
    user_id: str
    price: Decimal | None = None


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


def test_a_time_without_its_zone_is_told_so():
    """A `date-time` wants a time zone, and the finding about a naive one says that it is missing. A `time` does not."""
    naive, field = datetime(2026, 1, 1), {"type": "string", "format": "date-time"}
    found = judge({"at": naive}, {"properties": {"at": field}}).findings
    assert [one.code for one in found] == ["bad_format"]
    assert 'expected the format "date-time" with a time zone, such as ' in found[0].message
    assert judge({"at": naive.replace(tzinfo=UTC)}, {"properties": {"at": field}}).ok
    for at in (naive.time(), naive.replace(tzinfo=UTC).timetz()):
        assert judge({"at": at}, {"properties": {"at": {"type": "string", "format": "time"}}}).ok


def test_a_decimal_that_no_double_holds_is_not_rounded():
    """Where the schema wants a number and digits would be lost, the output is refused."""
    assert code(judge({"user_id": "a", "price": Decimal("0.12345678901234567890")})) == "wrong_type"


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


def mcp(structured, *texts):
    """A result of an MCP server with both halves."""
    return {"content": [{"type": "text", "text": text} for text in texts], "structuredContent": structured}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (mcp({"name": "r.txt"}, '{"name": "r.txt"}'), ""),
        (mcp({"name": "r.txt"}), ""),
        (mcp({"result": [1, 2]}, "[1, 2]"), ""),
        (mcp({"result": [1, 2]}, "1", "2"), ""),
        (mcp({"result": ["a", "5"]}, "a", "5"), ""),
        (mcp({"result": "salt"}, "salt"), ""),
        (mcp({"result": "5"}, "5"), ""),
        (mcp({"name": "r.txt"}, "line 1: salt"), "line 1: salt"),
        (mcp({"name": "r.txt"}, "line 1", "line 2"), "line 1\nline 2"),
        (mcp({"name": "r.txt"}, "12"), "12"),
        (mcp({"rows": [1, 2, 3], "next": 4}, '{"rows": [1, 2]}'), '{"rows": [1, 2]}'),
        (mcp({"result": {"n": 1}}, '{"other": 1}'), '{"other": 1}'),
        (mcp({"n": 1}, "[" * 5000), "[" * 5000),
    ],
)
def test_both_halves_of_a_result_are_read(raw, words):
    """The structured part is the value that is checked; texts that are not its JSON stand beside it, unchecked."""
    checked = judge(raw, {"type": "object"})
    assert checked.ok
    assert (checked.value, checked.words) == (raw["structuredContent"], words)
    loose = judge(raw, None)
    assert loose.ok
    shown = loose.value if isinstance(loose.value, str) else json.dumps(loose.value)
    assert words in shown
    assert not words or json.dumps(raw["structuredContent"], separators=(",", ":")) in shown


@pytest.mark.parametrize(
    ("raw", "at"),
    [
        (mcp({"n": 1, "m": 2}, '{"n": 2}'), "/n"),
        (mcp({"rows": [{"n": 1}]}, '{"rows": [{"n": "1"}]}'), "/rows/0/n"),
        (mcp({"result": 5}, "6"), ""),
        (mcp({"result": [1]}, "[2]"), "/0"),
        (mcp({"result": {"n": 1}}, '{"n": [1]}'), "/n"),
    ],
)
@pytest.mark.parametrize("schema", [None, {"type": "object"}])
def test_halves_that_contradict_each_other_are_a_finding(raw, at, schema):
    """What both say must be one thing: nobody knows which of the two is true."""
    (found,) = judge(raw, schema).findings
    assert (found.code, found.at) == ("halves_differ", at)


def test_a_structured_half_over_the_cap_is_too_large():
    """Its texts are not looked at: nothing of the result is used."""
    assert code(judge(mcp({"n": "x" * 300_000}, "short"), {"type": "object"})) == "output_too_large"


def test_words_beside_a_value_count_as_its_size():
    """Both halves together keep the cap, and long ones are offloaded together."""
    raw = mcp({"n": 1}, "x" * 300_000)
    assert code(judge(raw, {"type": "object"})) == code(judge(raw, None)) == "output_too_large"
    assert code(judge(mcp({"n": {1, (2,)}}, "x"), {"type": "object"})) != "halves_differ"


BARE = {list: {"type": "array", "items": {}}, dict: {"type": "object", "additionalProperties": True}}
ROWS = {"type": "array", "items": BARE[dict]}
CAPTION = {"type": "text", "text": "a cat"}


@pytest.mark.parametrize(
    ("raw", "schema", "value", "content"),
    [
        ([CAPTION, IMAGE], BARE[list], [CAPTION], (IMAGE,)),
        ([CAPTION, IMAGE], ROWS, [CAPTION], (IMAGE,)),
        ({"content": [CAPTION, IMAGE]}, BARE[list], [CAPTION], (IMAGE,)),
        (IMAGE, BARE[dict], IMAGE, ()),
        ([IMAGE], BARE[dict], {}, (IMAGE,)),
        ([CAPTION], BARE[list], [CAPTION], ()),
        ([IMAGE], {"type": "array"}, [IMAGE], ()),
    ],
)
def test_a_bare_list_or_dict_may_hold_media(raw, schema, value, content):
    """Its schema does not say what is in it, so blocks with a picture are media beside data; another schema does."""
    checked = judge(raw, schema)
    assert checked.ok
    assert (checked.value, checked.content) == (value, content)


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
