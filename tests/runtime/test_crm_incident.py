"""The CRM incident and the checklist of silent corruption, as one table in both modes.

A profile tool breaks in one of the boring ways; the agent then wants to tag the contact.
"""

import pytest

from pokayoke import Contract, Equal, Guard, Raw, ToolCall

PROFILE = {
    "type": "object",
    "properties": {
        "user_id": {"type": "string", "minLength": 1},
        "plan": {"enum": ["free", "pro", "enterprise"]},
        "note": {"type": "string"},
    },
    "required": ["user_id", "plan"],
    "additionalProperties": False,
}
ASKED = {
    "type": "object",
    "properties": {"user_id": {"type": "string"}},
    "required": ["user_id"],
    "additionalProperties": False,
}
PAGE = "<!doctype html>\n<html><head><title>Maintenance</title></head><body>We'll be back soon.</body></html>"
GOOD = '{"user_id": "U7", "plan": "pro"}'
JSON = "application/json"

CHECKLIST = [
    ("the incident: a page with status 200", Raw(PAGE, "text/html", 200), "content-type text/html"),
    ("a page that claims to be JSON", Raw(PAGE, JSON, 200), None),
    (
        "a page inside a JSON wrapper",
        Raw('{"user_id": "U7", "plan": "pro", "note": "<html><body>x</body></html>"}', JSON),
        None,
    ),
    ("size", Raw('{"user_id": "' + "x" * 200_000 + '"}', JSON), None),
    ("no content type", Raw(GOOD, None, 200), None),
    ("strict parse: cut", Raw(GOOD[:-8], JSON, 200), None),
    ("strict parse: NaN", Raw('{"user_id": "U7", "plan": NaN}', JSON), None),
    ("strict parse: two values for one key", Raw('{"user_id": "U7", "plan": "pro", "plan": "enterprise"}', JSON), None),
    ("schema: a field is missing", Raw('{"user_id": "U7"}', JSON), None),
    ("enum", Raw('{"user_id": "U7", "plan": "platinum"}', JSON), None),
    ("invariant: somebody else's profile", Raw('{"user_id": "U8", "plan": "enterprise"}', JSON), None),
]


@pytest.mark.parametrize("mode", ["skip_writes", "fail_closed"])
@pytest.mark.parametrize(("answer", "reason"), [row[1:] for row in CHECKLIST], ids=[row[0] for row in CHECKLIST])
def test_nothing_is_written_from_an_invalid_profile(driver, mode, answer, reason):
    """No tag is written; `skip_writes` lets reads go on, `fail_closed` stops the run; the trace says why."""
    tags, answers = [], [answer, Raw(GOOD, JSON, 200)]
    profile = Contract.from_schema(
        "http.get", ASKED, version="3", effect="read", output_schema=PROFILE, invariants=(Equal("/user_id", "/user_id"),),
        handler=lambda user_id: answers.pop(0),
    )  # fmt: skip
    tag = Contract.from_schema("tag", {"type": "object"}, output_schema={}, handler=lambda **a: tags.append(a) or {})
    run = Guard([profile, tag], config={"safe_mode": {"on_invalid_output": mode}}).run("run_2c18")
    read = driver.call(run, ToolCall("c1", "http.get", {"user_id": "U7"}))
    written = driver.call(run, ToolCall("c2", "tag", {"user_id": "U7", "tag": "enterprise"}))
    again = driver.call(run, ToolCall("c3", "http.get", {"user_id": "U7"}))
    assert (read.value, read.stop_reason, read.safe_mode) == (None, "invalid_tool_output", mode)
    assert (written.status, written.stop_reason, tags) == ("refused", "invalid_tool_output", [])
    assert again.ok is (mode == "skip_writes")
    assert run.mode == ("normal" if mode == "skip_writes" else "stopped")
    result, stop = [event for event in run.trace if event["event"] in ("tool_result", "stop")][:2]
    assert {key: result[key] for key in ("run_id", "step", "event", "tool", "ok", "error")} == {
        "run_id": "run_2c18", "step": 1, "event": "tool_result", "tool": "http.get", "ok": False, "error": "ToolOutputInvalid",
    }  # fmt: skip
    assert reason is None or result["reason"] == reason
    assert result["contract"] == "http.get@3"
    assert len(result["args_hash"]) == 64
    shape = {key: stop[key] for key in ("run_id", "step", "event", "reason", "safe_mode")}
    assert shape == {
        "run_id": "run_2c18", "step": 1, "event": "stop", "reason": "invalid_tool_output", "safe_mode": mode,
    }  # fmt: skip
