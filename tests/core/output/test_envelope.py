"""A tool's own failures: result flags, status codes, declared envelopes."""

import json
from decimal import Decimal
from types import SimpleNamespace

import httpx
import pytest
from output_cases import GOOD, PAGE, PROFILE, TEXT, code, judge, requested, response

from pokayoke.core.call import Raw
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.terms import Envelope
from pokayoke.core.output.validate import check_output
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
