"""The guard behind a conversation: listings, calls, and what comes back."""

import asyncio
import json

import pytest

from pokayoke import Guard
from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.gateway.interceptor import Interceptor, ServerGoneError
from pokayoke.gateway.listing import ListingSettings
from pokayoke.gateway.messages.results import LEDGER_KEY, OUTCOME_KEY, RUN_KEY
from pokayoke.gateway.runs import Caller
from pokayoke.runtime.versions.approved_listings import ApprovedFile

ORDER = {
    "name": "order",
    "description": "Orders.",
    "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    "outputSchema": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
    "annotations": {"readOnlyHint": False},
}
LOOK = {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
GOOD = {"content": [{"type": "text", "text": '{"id":"o1"}'}], "structuredContent": {"id": "o1"}}
PAGE = {"content": [{"type": "text", "text": "<!doctype html><html><body>Sign in</body></html>"}]}
ME = Caller()


def open_interceptor(mode="enforce", **options):
    settings = ListingSettings(**{"fields": {"look": {"effect": "read"}}, **options.pop("listing", {})})
    found = Interceptor(Guard([], config={"mode": mode}), listing=settings, scope="s", **options)
    found.take_listing({"tools": [ORDER, LOOK]}, ME, "legacy")
    return found


def play(door, name, arguments, answer, request_id="1", era="legacy", caller=ME, **meta):
    """Take a call to its result; returns the result, and what the server got."""
    params = {"name": name, "arguments": arguments, **({"_meta": meta} if meta else {})}
    pending = door.begin(params, caller, era=era, request_id=request_id)
    if pending.answer is not None:
        return pending.answer, None
    return door.finish(pending, answer), pending.params


def test_a_good_result_stays_as_it_is_but_for_its_mark():
    """The server's result is the client's, with the outcome in `_meta` and nothing else changed."""
    answer, sent = play(open_interceptor(), "order", {"n": 1}, {**GOOD, "_meta": {"own": 1}, "more": [2]})
    assert answer == {**GOOD, "more": [2], "_meta": {"own": 1, OUTCOME_KEY: {"status": "ok"}}}
    assert sent["arguments"] == {"n": 1}
    assert len(sent["_meta"][LEDGER_KEY]) == 64


def test_a_read_goes_to_its_server_as_it_came():
    """The parameters of a read are the client's own object, so that a transport may send the very bytes."""
    door = open_interceptor()
    params = {"name": "look", "arguments": {"x": 1}}
    assert door.begin(params, ME).params is params


def test_an_argument_is_corrected_before_the_server_gets_it():
    """An integer in quotation marks reaches the server as a number."""
    _, sent = play(open_interceptor(), "order", {"n": "2"}, GOOD)
    assert sent["arguments"] == {"n": 2}


@pytest.mark.parametrize(
    ("answer", "finding"),
    [
        ({"content": [], "structuredContent": {"id": 5}}, "wrong_type"),
        ({"content": [{"type": "text", "text": "{}"}]}, "missing_field"),
        (PAGE, "html_instead_of_data"),
        ({"content": [{"type": "text", "text": "cut {"}]}, "invalid_json"),
        ({}, "tool_failed"),
        (None, "tool_failed"),
        ({"content": "text"}, "tool_failed"),
    ],
)
def test_a_result_that_breaks_its_contract_is_withheld_and_holds_writes_back(answer, finding):
    """In `enforce` the client gets what went wrong instead, and no other write follows an unusable answer."""
    door = open_interceptor()
    result, _ = play(door, "order", {"n": 1}, answer)
    assert result["isError"] is True
    assert finding in result["_meta"][OUTCOME_KEY]["findings"]
    assert "structuredContent" not in result
    if finding != "tool_failed":
        held, sent = play(door, "order", {"n": 2}, GOOD)
        assert (sent, held["_meta"][OUTCOME_KEY]["findings"]) == (None, ["latched"])


def test_a_page_as_the_text_of_a_tool_without_a_schema_is_withheld():
    """A text-only result is checked as well."""
    result, _ = play(open_interceptor(), "look", {}, PAGE)
    assert result["_meta"][OUTCOME_KEY]["findings"][0] == "html_instead_of_data"
    assert "Sign in" not in str(result["content"])


def test_monitor_marks_what_enforce_withholds():
    """The client gets the server's own result, and a program can read what was wrong."""
    broken = {"content": [], "structuredContent": {"id": 5}}
    result, _ = play(open_interceptor("monitor"), "order", {"n": 1}, broken)
    assert result["structuredContent"] == {"id": 5}
    assert result["_meta"][OUTCOME_KEY]["findings"] == ["wrong_type"]


@pytest.mark.parametrize("mode", ["monitor", "enforce"])
def test_a_failure_in_the_tools_own_words_is_shown_and_never_checked(mode):
    """`isError` needs no structured content."""
    said = {"content": [{"type": "text", "text": "no stock"}], "isError": True}
    result, _ = play(open_interceptor(mode), "order", {"n": 1}, said)
    assert result["content"] == said["content"]
    assert result["_meta"][OUTCOME_KEY]["status"] == "failed"


def test_an_equal_write_under_a_new_id_is_not_run_again():
    """The client gets the recorded answer with its structure, and the server gets nothing."""
    door = open_interceptor()
    play(door, "order", {"n": 1}, GOOD)
    result, sent = play(door, "order", {"n": 1}, GOOD, "2")
    assert sent is None
    assert result["structuredContent"] == {"id": "o1"}
    assert result["content"][0]["text"].startswith("Not run again")


def test_runs_are_told_apart_by_key_subject_and_session():
    """An equal write of another run is another effect; the key in `_meta` wins over the session."""
    door = open_interceptor()
    callers = [ME, Caller(subject="a"), Caller(subject="b"), Caller(session="x"), Caller(session="y")]
    assert all(play(door, "order", {"n": 1}, GOOD, caller=one)[1] for one in callers)
    assert play(door, "order", {"n": 1}, GOOD, **{RUN_KEY: "k"})[1]
    assert play(door, "order", {"n": 1}, GOOD, "2", caller=Caller(session="z"), **{RUN_KEY: "k"})[1] is None


def test_a_question_of_the_server_is_no_result_and_its_continuation_no_duplicate():
    """`input_required` passes through, and the equal call that follows it runs."""
    door = open_interceptor()
    asks = {"resultType": "input_required", "requestState": "s"}
    for number in range(3):
        assert play(door, "order", {"n": 1}, asks, str(number), "modern")[0] is asks
    result, sent = play(door, "order", {"n": 1}, {**GOOD, "resultType": "complete"}, "9", "modern")
    assert sent is not None
    assert result["_meta"][OUTCOME_KEY]["status"] == "ok"


@pytest.mark.parametrize(
    ("error", "status", "passes"),
    [
        ({"code": -32602, "message": "bad"}, "failed", False),
        ({"code": -32603, "message": "broken"}, "failed", False),
        ({"code": -32042, "message": "open a URL"}, "failed", True),
        ("garbage", "failed", False),
    ],
)
def test_a_protocol_error_becomes_a_result_that_a_model_reads(error, status, passes):
    """Clients hide errors from the model; those that a client handles by itself go on."""
    door = open_interceptor()
    pending = door.begin({"name": "order", "arguments": {"n": 1}}, ME)
    answer = door.finish_error(pending, error)
    assert (answer is None) is passes
    assert pending.outcome.status == status


@pytest.mark.parametrize(
    ("error", "status"), [(ServerGoneError("gone"), "in_doubt"), (ToolNotStarted("down"), "failed")]
)
def test_a_call_without_an_answer_is_in_doubt_if_its_server_got_it(error, status):
    """What never reached the server has not happened, and may be tried again."""
    door = open_interceptor()
    pending = door.begin({"name": "order", "arguments": {"n": 1}}, ME)
    result = door.abandon(pending, error)
    assert result["_meta"][OUTCOME_KEY]["status"] == status
    assert (play(door, "order", {"n": 1}, GOOD, "2")[1] is None) is (status == "in_doubt")


@pytest.mark.parametrize(
    "change",
    [
        {"description": "Orders, and sends your keys."},
        {"inputSchema": {"type": "object"}},
        {"outputSchema": {"type": "object"}},
        {"annotations": {"readOnlyHint": True}},
    ],
)
def test_a_tool_that_is_listed_otherwise_is_hidden_and_refused_until_it_is_as_it_was(change):
    """Drift of a description, a schema or a hint stops the tool, with the difference in the answer."""
    door = open_interceptor()
    assert door.take_listing({"tools": [{**ORDER, **change}, LOOK]}, ME, "legacy")["tools"] == [LOOK]
    result, sent = play(door, "order", {"n": 1}, GOOD)
    assert sent is None
    assert next(iter(change)).removesuffix("Schema") in result["content"][0]["text"]
    assert door.take_listing({"tools": [ORDER]}, ME, "legacy") == {"tools": [ORDER]}
    assert play(door, "order", {"n": 1}, GOOD)[1] is not None


def test_a_pinned_entry_is_served_in_place_of_a_changed_one():
    """What clients are shown is what they are held to."""
    door = open_interceptor(listing={"drift": "serve"})
    shown = door.take_listing({"tools": [{**ORDER, "inputSchema": {"type": "object"}}]}, ME, "modern")
    assert shown["tools"] == [ORDER]
    assert play(door, "order", {"n": "no"}, GOOD)[1] is None


def test_a_tool_that_nobody_has_approved_is_neither_shown_nor_run(tmp_path):
    """With an approved listing, what is new waits for an operator."""
    (tmp_path / "approved.json").write_text(json.dumps([LOOK]))
    door = open_interceptor(listing={"approved": ApprovedFile(tmp_path / "approved.json")})
    assert door.take_listing({"tools": [ORDER, LOOK]}, ME, "legacy")["tools"] == [LOOK]
    assert "approved" in play(door, "order", {"n": 1}, GOOD)[0]["content"][0]["text"]


def test_hints_count_only_where_they_are_trusted():
    """An untrusted server's read is a write all the same."""
    for trusted, key in ((False, True), (True, False)):
        door = open_interceptor(listing={"trust_hints": trusted, "fields": {}})
        _, sent = play(door, "look", {}, {"content": [{"type": "text", "text": "x"}]})
        assert (LEDGER_KEY in sent.get("_meta", {})) is key


@pytest.mark.parametrize("allowed", [True, False, None])
def test_a_person_decides_a_repetition_through_the_client(allowed):
    """A yes runs the effect once more, a no does not, and no decision leaves the question open."""
    door = open_interceptor(listing={"fields": {"order": {"repeats": "once"}}})
    me = Caller(can_ask=True)
    play(door, "order", {"n": 1}, GOOD, caller=me)
    pending = door.begin({"name": "order", "arguments": {"n": 1}}, me, request_id="2")
    assert pending.outcome.status == "pending"
    assert door.question(pending)["requestedSchema"]["required"] == ["allow"]
    said = {"action": "cancel"} if allowed is None else {"action": "accept", "content": {"allow": allowed}}
    after = door.answer_question(pending, said)
    expected = {True: None, False: "refused", None: "pending"}[allowed]
    assert (after.outcome and after.outcome.status) == expected
    assert (after.params is not None) is (allowed is True)


def test_the_asynchronous_form_answers_alike():
    """`abegin` and `afinish` give the same result as their synchronous forms."""

    async def go():
        door = open_interceptor()
        pending = await door.abegin({"name": "order", "arguments": {"n": 1}}, ME)
        first = await door.afinish(pending, GOOD)
        again = await door.abegin({"name": "order", "arguments": {"n": 1}}, ME, request_id="2")
        lost = await door.abegin({"name": "order", "arguments": {"n": 3}}, ME, request_id="3")
        gone = await door.aabandon(lost, ServerGoneError("gone"))
        return first, again.answer, gone

    first, again, gone = asyncio.run(go())
    assert [one["_meta"][OUTCOME_KEY]["status"] for one in (first, again, gone)] == ["ok", "replayed", "in_doubt"]


@pytest.mark.parametrize("arguments", [None, "{'n': 1}", [1], 5, "n"])
def test_arguments_of_any_kind_get_an_answer(arguments):
    """What is no object is read as a text, and refused in words that the model reads."""
    result, _ = play(open_interceptor(), "order", arguments, GOOD)
    assert result["_meta"][OUTCOME_KEY]["status"] in ("ok", "refused")


def test_the_gateways_own_results_say_in_the_modern_era_that_they_are_complete():
    """A modern client needs `resultType`; a legacy one refuses what it does not know."""
    door = open_interceptor()
    assert play(door, "nope", {}, GOOD, era="modern")[0]["resultType"] == "complete"
    assert "resultType" not in play(door, "nope", {}, GOOD)[0]


def test_a_run_that_may_only_answer_lists_no_tools_in_the_legacy_era():
    """In the modern one the listing stays, and each call is answered with the instruction."""
    door = open_interceptor()
    play(door, "look", {}, {"content": []})
    door.runs.find_run({}, ME).tools_off()
    assert door.take_listing({"tools": [ORDER, LOOK]}, ME, "legacy")["tools"] == []
    assert door.take_listing({"tools": [ORDER, LOOK]}, ME, "modern")["tools"] == [ORDER, LOOK]
    assert play(door, "look", {}, {"content": []}, era="modern")[0]["isError"] is True


@pytest.mark.parametrize("value", [[1, 2], 5, "text", None])
def test_a_modern_structured_value_of_any_kind_is_checked(value):
    """Since 2026-07-28 a structured value may be any JSON value."""
    door = open_interceptor()
    door.take_listing(
        {"tools": [{**LOOK, "name": "any", "outputSchema": {"type": ["array", "integer"]}}]}, ME, "modern"
    )
    result, _ = play(door, "any", {}, {"content": [], "structuredContent": value}, era="modern")
    assert (result.get("isError") is True) is (value in ("text", None))
