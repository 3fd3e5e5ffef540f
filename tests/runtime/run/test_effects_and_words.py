"""What is known of an effect, and the words that follow it: for the model, for the user, after a restart."""

import json

import pytest

from pokayoke import Contract, Envelope, Guard, Raw, Resolution, ToolCall, ToolError
from pokayoke.errors import UsageError
from pokayoke.testing import ScriptedModel, ask

ORDER = {"type": "object", "properties": {"order": {"type": "string"}}}
ID = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}
PAGE = "<!doctype html><html><body>502 Bad Gateway</body></html>"
NOTHING, UNUSABLE, OPEN = (
    "Not done: charge (the tool failed).",
    "charge ran, but its answer was unusable.",
    "It is not known whether charge took effect.",
)


def raising(error, cause=None):
    def charge(order=""):
        raise error from cause

    return charge


def following(order=""):
    try:
        return {}["card"]
    except KeyError:
        raise ToolError("There is no card.") from None


def giving(value):
    return lambda order="": value


CASES = {
    "says no": (giving({"success": False, "error": "card declined"}), "failed", "unknown", OPEN, "failed_final"),
    "no in text": (giving('{"error": "card declined"}'), "failed", "unknown", OPEN, "failed_final"),
    "flagged": (giving({"content": [], "isError": True}), "failed", "unknown", OPEN, "failed_final"),
    "504": (giving(Raw("late", "text/plain", 504)), "failed", "unknown", OPEN, "failed_final"),
    "409": (giving(Raw("there", "text/plain", 409)), "failed", "unknown", OPEN, "failed_final"),
    "422": (giving(Raw("bad", "text/plain", 422)), "failed", "none", NOTHING, "failed_retriable"),
    "tool error": (raising(ToolError("No such card.")), "failed", "none", NOTHING, "failed_retriable"),
    "after another": (following, "failed", "unknown", OPEN, "failed_final"),
    "with a cause": (raising(ToolError("No."), OSError()), "failed", "unknown", OPEN, "failed_final"),
    "sure": (raising(ToolError("No.", effect="none"), OSError()), "failed", "none", NOTHING, "failed_retriable"),
    "not sure": (raising(ToolError("No.", effect="unknown")), "failed", "unknown", OPEN, "failed_final"),
    "breaks": (raising(OSError("lost")), "in_doubt", "unknown", OPEN, "in_doubt"),
    "page": (giving(PAGE), "invalid_output", "unknown", OPEN, "failed_final"),
    "nothing": (giving(None), "invalid_output", "unknown", OPEN, "failed_final"),
    "beside data": (giving({"id": "7", "ok": False}), "invalid_output", "unknown", OPEN, "failed_final"),
    "breaks its schema": (giving({"id": 7}), "invalid_output", "done", UNUSABLE, "completed"),
    "too large": (giving({"id": "7" * 300_000}), "invalid_output", "done", UNUSABLE, "completed"),
}


@pytest.mark.parametrize(("handler", "status", "effect", "said", "state"), CASES.values(), ids=CASES)
def test_words_follow_the_effect(handler, status, effect, said, state, driver):
    """The outcome, the record, the fallback and the note beside a claim say the same of a write."""
    charge = Contract.from_schema("charge", ORDER, output_schema=ID, handler=handler)
    guard = Guard([charge])
    run = guard.run("r")
    outcome = driver.call(run, ToolCall("1", "charge", {"order": "A"}))
    assert (outcome.status, outcome.effect) == (status, effect)
    assert guard.store.record(outcome.key).state == state
    assert ".." not in outcome.text.replace("…", "")
    advice = outcome.text.partition("\n")[0]
    assert ("Nothing was changed" in advice) is (effect == "none")
    assert ("It is not known whether it took effect" in advice) is (effect == "unknown")
    assert ("another" in advice) is (effect == "none")
    for text, start in (("", "I could not finish this safely."), ("The card is charged.", "The card is charged.")):
        ended = Guard([charge]).loop(ScriptedModel([ask("charge", order="A"), text, text]), "Charge A.")
        assert ended.done == ()
        assert not ended.verified
        assert ended.text.startswith(start)
        assert said in ended.text
        for other in {"Done:", NOTHING, UNUSABLE, OPEN} - {said}:
            assert other not in ended.text
        assert ("Nothing was changed." in ended.text) is (effect == "none" and not text)
    # A run that is opened again knows only what the ledger says.
    assert Guard([charge], store=guard.store).run("r").answer("").text == (
        "I could not finish this safely. Nothing was changed."
        if effect == "none"
        else f"I could not finish this safely. {said}"
    )


@pytest.mark.parametrize(
    ("handler", "failure", "said_no"),
    [
        (giving({"error": "declined"}), "tool_error", True),
        (giving(Raw("no", "text/plain", 409)), "http_error:409", True),
        (raising(ToolError("no", effect="unknown")), "ToolError", True),
        (giving(Raw("", None, 503)), "http_error:503", False),
        (giving(Raw("", None, 408)), "http_error:408", False),
        (following, "ToolError", False),
        (raising(ToolError("no", effect="unknown"), OSError()), "ToolError", False),
        (giving(PAGE), "html_instead_of_data", False),
    ],
)
def test_a_record_says_whether_anybody_said_no(handler, failure, said_no):
    """A tool that finished and said no is told apart from a server that broke down, and from an error on the way."""
    guard = Guard([Contract.from_schema("charge", ORDER, handler=handler)])
    record = guard.store.record(guard.run("r").call(ToolCall("1", "charge", {})).key)
    assert (record.state, record.failure, record.output_ok) == ("failed_final", failure, said_no)


def test_what_had_no_effect_may_be_tried_again():
    """A declined card, told by an envelope, by an exception and by a status, can be charged once it is good."""
    card = {"good": False}

    def by_envelope(order=""):
        return {"status": "ok"} if card["good"] else {"status": "error", "message": "card declined"}

    def by_error(order=""):
        if not card["good"]:
            raise ToolError("card declined")
        return {"status": "ok"}

    def by_status(order=""):
        return {"status": "ok"} if card["good"] else Raw('{"error": "declined"}', "application/json", 422)

    envelope = Envelope(ok="/status", ok_values=("ok",), no_effect=True)
    for handler, fields in ((by_envelope, {"envelope": envelope}), (by_error, {}), (by_status, {})):
        card["good"] = False
        run = Guard([Contract.from_schema("charge", ORDER, handler=handler, **fields)]).run("r", prompt="Charge A.")
        first = run.call(ToolCall("1", "charge", {"order": "A"}))
        assert (first.status, first.effect) == ("failed", "none")
        card["good"] = True
        run.user("I have a new card, try again.")
        again = run.call(ToolCall("2", "charge", {"order": "A"}))
        assert (again.status, again.effect) == ("ok", "done")


def test_an_earlier_doubt_outlives_a_refusal():
    """A status proves that nothing happened only where no earlier attempt of the call may have done something."""
    answers = [OSError("lost"), Raw("bad", "text/plain", 422)]

    def charge(order=""):
        said = answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    contract = Contract.from_schema(
        "charge", ORDER, handler=charge, on_ambiguous="rerun_safe", idempotent=True, retry=None
    )
    run = Guard([contract]).run("r")
    assert run.call(ToolCall("1", "charge", {"order": "A"})).status == "in_doubt"
    again = run.call(ToolCall("2", "charge", {"order": "A"}))
    assert (again.status, again.effect) == ("in_doubt", "unknown")


@pytest.mark.parametrize("go_on", ["reopened", "next turn"])
@pytest.mark.parametrize(
    ("happened", "said", "sure"), [(True, "Done: charge.", True), (False, "Nothing was changed.", False)]
)
def test_a_doubt_that_a_person_has_settled_is_none(go_on, happened, said, sure):
    """A process that still holds the run says what the ledger says by now, as one that opens it anew does."""
    guard = Guard([Contract.from_schema("charge", ORDER, handler=raising(OSError("lost")))])
    run = guard.run("r", prompt="Charge A.")
    key = run.call(ToolCall("1", "charge", {"order": "A"})).key
    assert OPEN in run.answer("Charged.").text
    guard.store.decide(Resolution(key, happened, "ann", "seen", guard.clock.now(), "CH-1" if happened else ""))
    if go_on == "reopened":
        run = guard.run("r")
        assert run.answer("Charged.").text == ("Charged." if sure else f"Charged.\n\n[{NOTHING}]")
    else:
        run.user("And now?")
        assert run.answer("Charged.").text == "Charged."
    answer = run.answer("")
    assert (said in answer.text, OPEN in answer.text) == (True, False)


def test_a_question_about_a_settled_effect_stays_open_beside_a_settled_doubt():
    """Only the doubt ends: a call that waits for a person still waits."""
    charge = Contract.from_schema("charge", ORDER, handler=raising(OSError("lost")))
    ask_first = Contract.from_schema("pay", ORDER, handler=lambda order: {"paid": order}, approval=True)
    guard = Guard([charge, ask_first])
    run = guard.run("r", prompt="Charge and pay A.")
    key = run.call(ToolCall("1", "charge", {"order": "A"})).key
    assert run.call(ToolCall("2", "pay", {"order": "A"})).status == "pending"
    guard.store.decide(Resolution(key, True, "ann", "seen", guard.clock.now(), "CH-1"))
    run = guard.run("r")
    assert "Not done: pay (it waits for a person)." in run.answer("Both are paid.").text


def test_a_read_that_says_no_holds_nothing_back():
    """Look up, not there, create: the reason reaches the model as data, and the write runs."""
    for schema in ({"type": "object"}, None):
        find = Contract.from_schema(
            "find", ORDER, output_schema=schema, effect="read", handler=giving({"error": "customer not found"})
        )
        create = Contract.from_schema("create", ORDER, output_schema=ID, handler=giving({"id": "C-2"}))
        run = Guard([find, create]).run()
        found = run.call(ToolCall("1", "find", {"order": "Bob"}))
        assert (found.status, found.effect, found.stop_reason) == ("failed", "none", "tool_failure")
        assert '<tool_output tool="find" call="1" trust="error">\ncustomer not found\n' in found.text
        assert run.call(ToolCall("2", "create", {"order": "Bob"})).ok
        assert run.mode == "normal"


def test_only_usable_answers_are_done():
    """The list of what is done names what answered well, and a later good answer puts a failure right."""
    answers = [{"id": 7}, {"id": "8"}, ToolError("later"), {"id": "9"}]

    def charge(order=""):
        said = answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    tool = Contract.from_schema("charge", ORDER, output_schema=ID, handler=charge, sources=())
    orders = [ask("charge", order=order) for order in "ABCC"]
    ended = Guard([tool]).loop(ScriptedModel([*orders, "", ""]), "Charge A, B and C.")
    assert ended.done == ("charge", "charge")
    assert (
        ended.text == "I could not finish this safely. Done: charge (2 times). charge ran, but its answer was unusable."
    )


def test_an_error_says_only_what_it_can_say():
    """An effect is none or unknown; a text of a framework is no word of the tool's author."""
    with pytest.raises(UsageError, match="'none', 'unknown' or None"):
        ToolError("x", effect="done")
    guard = Guard([Contract.from_schema("charge", ORDER)])
    run = guard.run()
    outcome = run.finish(run.begin(ToolCall("1", "charge", {})), error="the connection was lost")
    assert (outcome.status, outcome.effect) == ("in_doubt", "unknown")


def test_secrets_in_an_exception_are_redacted_everywhere():
    """Its text is in findings and messages, which hosts log."""

    def look(password=""):
        raise OSError(f"login with {password} and api_key=abcdef123456 failed: curl -u bob:{password[:7]} x")

    login = {"type": "object", "properties": {"password": {"type": "string"}}}
    for error in (look, lambda password="": raising(ToolError(f"wrong password {password}"))()):
        tool = Contract.from_schema("look", login, effect="read", handler=error)
        outcome = Guard([tool]).run().call(ToolCall("1", "look", {"password": "hunter22secret"}))
        shown = json.dumps([outcome.message, outcome.text, [(one.message, one.hint) for one in outcome.findings]])
        assert "hunter2" not in shown
        assert "abcdef123456" not in shown
        assert "[redacted]" in shown


@pytest.mark.parametrize("chosen", ["fail_closed", "human_review", "skip_writes"])
def test_a_contract_may_say_what_follows_from_its_own_invalid_outputs(chosen):
    """Its own choice counts before the policy's."""
    find = Contract.from_schema(
        "find", ORDER, output_schema=ID, effect="read", handler=giving({"id": 7}), on_invalid_output=chosen
    )
    run = Guard([find], config={"safe_mode": {"on_invalid_output": "fail_closed"}}).run()
    outcome = run.call(ToolCall("1", "find", {}))
    assert outcome.safe_mode == chosen
    assert run.mode == ("stopped" if chosen == "fail_closed" else "safe_mode")
    assert (outcome.approval is not None) is (chosen == "human_review")


class Message:
    """A framework's message, by its shape."""

    content, role, tool_call_id = "charged", "tool", "1"


class Hostile:
    """An object that no one can look at."""

    def __getattribute__(self, name):
        raise SystemExit


async def coroutine():
    return 1


def generator():
    yield 1


@pytest.mark.parametrize("schema", [{"type": "object"}, None, "text"], ids=["schema", "unchecked", "text"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: ValueError("x"),
        lambda: ValueError,
        lambda: {"a": ToolError("x")},
        lambda: [generator()],
        Message,
        Hostile,
        lambda: Guard([]),
        lambda: Guard([Contract.from_schema("t", ORDER)]).run().call(ToolCall("1", "no", {})),
        lambda: Contract.from_schema("t", ORDER),
        lambda: test_what_is_no_answer_is_a_finding,
    ],
)
def test_what_is_no_answer_is_a_finding(make, schema):
    """An exception, a generator, a message, an outcome, a tool, itself: the call ends with a finding."""
    tool = Contract.from_schema("charge", ORDER, output_schema=schema, handler=lambda order="": make())
    outcome = Guard([tool]).run("r").call(ToolCall("1", "charge", {}))
    assert (outcome.status, outcome.effect) == ("invalid_output", "done")
    assert outcome.value is None
    assert outcome.findings[0].code in ("not_serialisable", "not_text")
    reader = Contract.from_schema("look", ORDER, output_schema=schema, effect="read", handler=lambda order="": make())
    assert Guard([reader]).run().call(ToolCall("1", "look", {})).status == "degraded"
