"""A tool's own failures: result flags, status codes, declared envelopes."""

import json
from decimal import Decimal
from types import SimpleNamespace

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from output_cases import GOOD, PAGE, PROFILE, TEXT, VALUES, code, judge, requested, response

from pokayoke.core.call import Raw
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.terms import Envelope
from pokayoke.core.output.validate import _check_output_fast, _check_output_fully, check_output
from pokayoke.core.policy import ToolOutputPolicy


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


REPORTS = [
    ({"error": "customer not found"}, "customer not found"),
    ({"errors": ["a", "b"]}, '["a","b"]'),
    ({"error": {"code": 7, "message": "locked"}}, "locked"),
    ({"Error": "gone", "request_id": "r-1"}, '{"Error":"gone","request_id":"r-1"}'),
    ({"error": True, "message": "locked"}, '{"error":true,"message":"locked"}'),
    ({"ok": False}, '{"ok":false}'),
    ({"success": "false", "reason": "closed"}, "closed"),
    ({"success": False, "error": "card declined"}, "card declined"),
    ({"isError": True, "detail": "no such user"}, "no such user"),
    ({"status": "error", "message": "card declined"}, "card declined"),
    ({"status": "FAILED", "code": 51, "detail": "declined"}, '{"status":"FAILED","code":51,"detail":"declined"}'),
]
NO_REPORTS = [
    {},
    {"error": "x", "id": 1},
    {"error": ""},
    {"error": None, "errors": []},
    {"error": 0.03},
    {"error": {"code": "ok"}},
    {"ok": True, "message": "declined"},
    {"success": 0},
    {"status": "error"},
    {"status": "error", "message": " "},
    {"status": "failed", "rows": 3, "message": "x"},
    {"status": "done", "message": "error"},
    {"message": "Error: not found"},
    [{"error": "x"}],
    "Error: not found",
]


@pytest.mark.parametrize(("body", "said"), REPORTS)
@pytest.mark.parametrize("output", [{"type": "object"}, "text", None], ids=["schema", "text", "unchecked"])
def test_a_body_that_is_nothing_but_a_failure_is_the_tools_failure(body, said, output):
    """With and without an output contract, as a value, as JSON text, as a response and in a block of text."""
    text = json.dumps(body)
    block = {"content": [{"type": "text", "text": text}]}
    for raw in (body, text, f" {text}", Raw(text, "application/json", 200), block):
        if output == "text" and raw is body:
            continue  # no text at all
        checked = judge(raw, output)
        assert checked.failure == said
        assert checked.findings == ()
        assert (checked.effect, checked.refused) == ("unknown", True)


@pytest.mark.parametrize("body", NO_REPORTS)
def test_anything_else_is_no_report(body):
    """Empty slots, measurements, a state without a message, data beside it: no failure of the tool's."""
    assert judge(body, None).ok
    assert judge(json.dumps(body), "text").ok
    assert judge(body, {}).failure is None


def test_a_long_text_is_no_report():
    """A text is looked at only as far as a report would be long."""
    assert judge(json.dumps({"error": "x" * 20_000}), "text").ok
    assert judge('{"error": "x"', "text").ok
    assert judge('{"error": "x"}', "text", output_checks="size_only").ok


def test_a_read_whose_schema_names_the_field_keeps_it_as_data():
    """So does a union of answers; a write fails all the same, and so does a field that the schema does not name."""
    found = {"type": "object", "properties": {"error": {"type": "string"}, "name": {"type": "string"}}}
    schema = {"anyOf": [{"$ref": "#/$defs/f"}, {"type": "array"}], "$defs": {"f": found}}
    for one in (found, schema):
        assert judge({"error": "customer not found"}, one).value == {"error": "customer not found"}
        assert judge({"ok": False, "error": "x"}, one).failure == "x"
        write = Contract.from_schema("put", {"type": "object"}, output_schema=one)
        checked = check_output({"error": "x"}, write, arguments={}, policy=ToolOutputPolicy())
        assert checked.failure == "x"
    assert judge({"error": "x", "name": "y"}, found).findings[0].code == "error_in_success"


def test_fields_of_an_envelope_say_what_the_contract_says_of_them():
    """A declared flag is no report; a report inside the envelope is one."""
    odd = Envelope(ok="/ok", ok_values=(False,))
    assert judge({"ok": False}, {}, envelope=odd).ok
    assert judge({"ok": False, "error": "x"}, {}, envelope=odd).failure == "x"
    inside = Envelope(data="/data")
    assert judge({"data": {"error": "not found"}}, {}, envelope=inside).failure == "not found"
    assert judge({"data": {"error": "not found"}}, None, envelope=inside).failure == "not found"
    assert judge({"error": "not found"}, {}, envelope=inside).failure == "not found"


@pytest.mark.parametrize("no_effect", [True, False])
def test_an_envelope_may_say_that_its_failures_had_no_effect(no_effect):
    """Only of those that it declares itself."""
    known = Envelope(error="/error", no_effect=no_effect)
    assert judge({"error": "declined"}, envelope=known).effect == ("none" if no_effect else "unknown")
    assert judge({"success": False}, envelope=known).effect == "unknown"


@pytest.mark.parametrize(
    ("status", "effect", "refused"),
    [
        *[(code, "none", True) for code in (*range(400, 407), 410, 411, 413, 417, 421, 422, 426, 428, 429, 431)],
        *[(code, "unknown", True) for code in (407, 409, 412, 418, 423, 451)],
        *[(code, "unknown", False) for code in (408, 302, 500, 503, 599, "bad gateway")],
    ],
)
def test_only_some_statuses_prove_that_nothing_happened(status, effect, refused):
    """A server that refuses before it acts says so; another client error is a no, a server error not even that."""
    for output in (PROFILE, "text", None):
        checked = judge(Raw("no", "text/plain", status), output)
        assert (checked.effect, checked.refused) == (effect, refused)


@pytest.mark.parametrize(
    ("raw", "effect"),
    [
        (GOOD, "done"),
        ({"plan": "pro"}, "done"),
        ({"user_id": 7}, "done"),
        (object(), "done"),
        ("x" * 200_001, "done"),
        (PAGE, "unknown"),
        ({"user_id": "u", "profile": PAGE}, "unknown"),
        (Raw(PAGE, "text/html", 200), "unknown"),
        ("", "unknown"),
        ("Service Unavailable", "unknown"),
        (None, "unknown"),
        (Raw("", None, 204), "unknown"),
        ({**GOOD, "ok": False}, "unknown"),
    ],
)
def test_an_answer_that_only_breaks_its_schema_is_that_of_an_effect(raw, effect):
    """A page, nothing, what is no JSON, and a failure beside data say nothing about the effect."""
    assert judge(raw).effect == effect
    assert judge(None, "text").effect == "unknown"


@given(st.one_of(VALUES, st.dictionaries(st.sampled_from(["error", "ok", "status", "message", "id"]), VALUES)))
def test_the_fast_path_finds_every_report(value):
    """What the usual output is checked for at once is what all rooms find."""
    for effect in ("read", "write"):
        tool = Contract.from_schema("put", {"type": "object"}, output_schema={"type": "object"}, effect=effect)
        fast = _check_output_fast(value, tool, ToolOutputPolicy())
        slow = _check_output_fully(value, tool, {}, ToolOutputPolicy())
        assert fast is None or (slow.failure is None and slow.findings == () and slow.value == fast.value)
