"""The redactor: payloads, events and texts, with the host's own rules."""

import hashlib
import json
import re
import string
import time

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from redaction_cases import REDACTOR, SECRET_NAMES, SECRETIVE, dumped, redacted

from pokayoke import Contract, Guard, ToolCall
from pokayoke.core.redaction import prefilter as secret_looks
from pokayoke.core.redaction.known_secrets import HIDDEN, KnownSecrets
from pokayoke.core.redaction.redactor import REDACTION_FAILED, REDACTION_FAILED_JSON, Redactor
from pokayoke.core.redaction.secret_rules import SecretPattern
from pokayoke.errors import PolicyError


@pytest.mark.parametrize("field", ["ausweis nr", "ausweis_nr", "AusweisNr"])
@pytest.mark.parametrize(
    "text",
    [
        "Ausweis Nr: {}", "der ausweis  nr={}", "ausweis-nr={}", '<parameter name="ausweis nr">{}</parameter>',
        "<parameter=AusweisNr>\n{}\n", "<arg_key>ausweis_nr</arg_key><arg_value>{}</arg_value>",
    ],
)  # fmt: skip
def test_a_configured_field_is_found_in_words_and_tags(field, text):
    """However many words a configured name is written in, what is assigned to it or stands in its tag is hidden."""
    redactor = Redactor(fields=[field])
    for found in (redactor.redact_text(text.format("A4242")), redacted({"raw": text.format("A4242")}, redactor)["raw"]):
        assert found.split() == text.format(HIDDEN).split() or found == text.replace("\n", "").format(HIDDEN)
    assert redactor.redact_text("Nr: 4242, Ausweis: 5") == "Nr: 4242, Ausweis: 5"


def test_pairs_of_names_and_values_are_read_as_members():
    """Headers in a list are hidden by their names; a list of names is no such pair, nor is a list of lists of texts."""
    headers = [["X-Api-Key", "abc"], ["Cookie", "sid=1"], ["Accept", "*/*"], ["X-Api-Key", "xyz"]]
    assert redacted({"headers": headers}) == {
        "headers": [["X-Api-Key", HIDDEN], ["Cookie", HIDDEN], ["Accept", "*/*"], ["X-Api-Key", HIDDEN]]
    }
    assert Redactor().redact_value([("Cookie", "sid=1")]) == [["Cookie", HIDDEN]]
    kept = {"required": ["password", "email"], "rows": [["token", "a"], ["b"]], "none": [], "n": [["token", 5]]}
    assert redacted(kept) == kept


def test_a_member_called_pass_is_a_secret_text_and_a_count():
    """`pass` hides a text, and keeps the number and the truth value of a verdict."""
    assert redacted({"pass": "hunter2"}) == {"pass": HIDDEN}
    for verdict in ({"pass": 12, "fail": 3}, {"pass": True}):
        assert redacted(verdict) == verdict


def test_a_payload_without_secrets_is_the_very_same_object():
    """Nothing is copied, parsed or reordered where nothing is hidden."""
    data = dumped({"b": 1, "a": [1.5, "text", None], "客": "值"})
    assert REDACTOR.redact_payload(data) is data
    assert REDACTOR.is_clean(data)


def test_numbers_of_any_size_survive_the_walk():
    """An integer beyond 64 bits beside a secret keeps every digit."""
    data = b'{"n":123456789012345678901234567890,"password":"x"}'
    assert REDACTOR.redact_payload(data) == b'{"n":123456789012345678901234567890,"password":"[redacted]"}'


@pytest.mark.parametrize(
    "spelling", ["card_holder", "cardHolder", "CARD-HOLDER", "card holder", "customer.card_holder"]
)
def test_configured_fields_ignore_spelling_and_path(spelling):
    """A configured field hides its name in every spelling, and values of every kind but null."""
    redactor = Redactor(fields=[spelling])
    value = {"cardHolder": "x", "card_holder": True, "Card-Holder": {"a": 1}, "card holder": None, "holder": "y"}
    assert redacted(value, redactor) == {
        "cardHolder": HIDDEN,
        "card_holder": HIDDEN,
        "Card-Holder": HIDDEN,
        "card holder": None,
        "holder": "y",
    }


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fields": ["größe"]}, json.dumps({"größe": "geheim-4242"})),
        ({"fields": ["GRÖSSE"]}, json.dumps({"a": json.dumps({"grösse": "geheim-4242"}, ensure_ascii=False)})),
        ({}, json.dumps({"contraseña": "geheim-4242"})),
        ({}, json.dumps({"密码": "geheim-4242"})),
        ({}, json.dumps({"note": "😀 密码：geheim-4242"})),
        ({"patterns": ["größe-\\d+"]}, json.dumps({"x": "größe-4242"})),
        ({"patterns": ["geheim-[0-9]+"]}, '{"x": "geheim\\u002d4242"}'),
    ],
)
def test_names_in_any_script_are_found_in_json_of_ascii(options, text):
    """What `json.dumps` makes of a name hides no secret, in a text of its own or within an output."""
    redactor = Redactor(**options)
    assert "4242" not in redactor.redact_text(text)
    assert "4242" not in json.dumps(redacted({"result": text}, redactor))


@pytest.mark.parametrize(
    "text", ['{"name": "M\\u00fcller", "x": "\\u0041"}', "\\ud83d alone", "\\u00e9\\u", '"\\u0022"']
)
def test_escapes_stay_where_nothing_is_hidden(text):
    """A text without a secret is written as it came, though it was read with its escapes undone."""
    assert REDACTOR.redact_text(text) == text
    assert redacted({"raw": text}) == {"raw": text}


def test_a_spelled_quote_does_not_end_a_secret():
    r"""`\u0022` within a value is part of it, so nothing of the value is left behind it."""
    assert REDACTOR.redact_text('{"password": "ab\\u0022hunter2", "n": 1') == f'{{"password": "{HIDDEN}", "n": 1'


def test_contract_marks_count_for_their_tool_only():
    """A name that one contract marks is hidden where the mark is handed in, and nowhere else."""
    value = {"iban": "DE02", "x": 1}
    assert redacted(value, marks=("iban",)) == {"iban": HIDDEN, "x": 1}
    assert redacted(value) == value
    assert REDACTOR.redact_text("iban: DE02", marks=("iban",)) == f"iban: {HIDDEN}"
    assert REDACTOR.redact_text("iban: DE02") == "iban: DE02"


def test_an_empty_mark_hides_nothing():
    """A mark that is blank or only punctuation does not hide everything."""
    assert redacted({"a": "b"}, marks=("", "--")) == {"a": "b"}


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"ACCT-\d{4,}", "see ACCT-12345, please", f"see {HIDDEN} please"),
        (r"\bZZ\d{3}\b", "a\nZZ123 b", f"a\n{HIDDEN} b"),
        (r"[\w.+-]+@[\w-]+\.[a-z]+", "to bob@example.org now", f"to {HIDDEN} now"),
        (r"^\d{4}$", "1234", HIDDEN),
        (r"^\d{4}$", "12345", "12345"),
        (r"case \d+", "the case 17 is open", HIDDEN),
        (r'say "\w+"', 'they say "hi"', HIDDEN),
        (r"(?i)projectx", "a PROJECTX b", f"a {HIDDEN} b"),
    ],
)
def test_configured_patterns_hide_their_matches(pattern, text, expected):
    """A pattern hides the words it matches; one that may span words hides the whole text."""
    redactor = Redactor(patterns=[pattern])
    assert redacted({"a": text, "b": "kept"}, redactor) == {"a": expected, "b": "kept"}
    assert redactor.redact_text(text) == expected


def test_a_pattern_also_reads_numbers_and_names():
    """Digits that a pattern names are hidden where they are a number or part of a name."""
    redactor = Redactor(patterns=[r"\d{9}"])
    assert redacted({"a": 123456789, "id 123456789": 1}, redactor) == {"a": HIDDEN, f"id {HIDDEN}": 1}


@pytest.mark.parametrize("pattern", ["(a", "(?=a)b", r"(a)\1", "a*", "", "(?<!x)y"])
def test_patterns_that_cannot_be_kept_are_refused_while_building(pattern):
    """What does not compile on the linear engine, or matches everything, is a PolicyError that names it."""
    with pytest.raises(PolicyError, match=re.escape(repr(pattern))):
        Redactor(patterns=[pattern])


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*)*x", "([a-z]+)*[0-9]!"])
def test_an_exploding_pattern_stays_linear(pattern):
    """A pattern that hangs a backtracking engine takes no time here: 20,000 characters well within 2 s."""
    try:
        redactor = Redactor(patterns=[pattern])
    except PolicyError:
        return
    began = time.monotonic()
    redactor.redact_text("a" * 20_000 + "!")
    assert time.monotonic() - began < 2


def test_the_users_redactor_sees_every_payload_and_its_answer_is_written():
    """A user's redactor gets the parsed value, and what it returns is still searched for secrets."""
    redactor = Redactor(own=lambda value: {"was": type(value).__name__, "password": "x", "card": 4111111111111111})
    hidden = {"password": HIDDEN, "card": HIDDEN}
    assert not redactor.is_clean(b"[1]")
    assert redacted([1], redactor) == {"was": "list", **hidden}
    assert redactor.redact_value("a") == {"was": "str", **hidden}
    line = redactor.redact_event(dumped({"event": "e", "arguments": {"a": 1}, "step": 3}))
    assert orjson.loads(line) == {"event": "e", "arguments": {"was": "dict", **hidden}, "step": 3}


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), RecursionError()])
def test_a_users_redactor_that_raises_costs_the_payload_only(error):
    """Whatever a user's redactor raises, the payload is replaced and nothing is thrown."""

    def broken(value):
        raise error

    redactor = Redactor(own=broken)
    assert redacted({"password": "x"}, redactor) == REDACTION_FAILED
    assert redactor.redact_value({"a": 1}) == REDACTION_FAILED


def test_a_users_redactor_that_returns_no_json_costs_the_payload():
    """A redactor's answer that cannot be written is dropped, not shown as a repr."""
    assert Redactor(own=lambda value: object()).redact_payload(b"1") == REDACTION_FAILED_JSON


def test_a_value_that_is_no_json_is_dropped():
    """What cannot be written is replaced, not shown as a repr."""
    assert REDACTOR.redact_value({"a": object()}) == REDACTION_FAILED


@pytest.mark.parametrize("data", [b"{", b'{"password": 1', b"\xff", b"[" * 5_000 + b'"secret"' + b"]" * 5_000])
def test_what_cannot_be_read_is_never_written(data):
    """Bytes that are no JSON, or too deep for a walk, are dropped if they might hold a secret."""
    result = REDACTOR.redact_payload(data)
    assert result == REDACTION_FAILED_JSON or REDACTOR.is_clean(data)


def test_failure_of_an_event_or_a_value_or_a_text_is_said():
    """An event that cannot be made safe is None; a value or text is the failure marker."""
    assert REDACTOR.redact_event(b'{"password": ') is None
    assert REDACTOR.redact_value({"password": {1, 2}, 3: object()}) == REDACTION_FAILED
    assert REDACTOR.redact_text(None) == REDACTION_FAILED


def test_the_names_of_an_event_itself_are_not_a_tools_fields():
    """A mark called `status` hides the tool's status, not the event's own."""
    line = dumped({"event": "tool_result", "status": "ok", "result": {"status": "x"}})
    assert orjson.loads(REDACTOR.redact_event(line, marks=("status",))) == {
        "event": "tool_result",
        "status": "ok",
        "result": {"status": HIDDEN},
    }
    assert orjson.loads(REDACTOR.redact_event(dumped({"a": 1}))) == {"a": 1}


@pytest.mark.parametrize("asked", ["arguments", "raw"])
def test_a_hidden_pin_cannot_be_tried_out(asked):
    """Where something that was asked for is hidden, the hash is that of what is shown; every other line keeps its own."""
    lines = {}
    for pin in ("4711", "4712"):
        told = {"door": "D1", "pin": pin} if asked == "arguments" else f"door=D1 pin={pin}"
        line = dumped({"event": "tool_call", "args_hash": hashlib.sha256(pin.encode()).hexdigest(), asked: told})
        lines[pin] = REDACTOR.redact_event(line)
    assert lines["4711"] == lines["4712"]
    for line in (dumped({"args_hash": "a", asked: {"x": 1}}), dumped({"args_hash": "a", "reason": "x"})):
        assert REDACTOR.redact_event(line) is line
    kept = orjson.loads(REDACTOR.redact_event(dumped({"args_hash": "a", asked: "x", "reason": "pin=1234"})))
    assert kept == {"args_hash": "a", asked: "x", "reason": f"pin={HIDDEN}"}
    assert REDACTOR.redact_event(dumped({asked: "pin=1234"})) == dumped({asked: f"pin={HIDDEN}"})


def test_findings_and_corrections_at_a_secret_place_lose_their_values():
    """Before, after, message and data go where `at` points below a secret name; code and place stay."""
    value = {
        "findings": [{"code": "c", "at": "/user/password", "message": "got 'x'", "data": {}}],
        "corrections": [{"at": "/pin", "rule": "r", "before": "1", "after": 1}, {"at": "/n", "before": 2, "after": 3}],
    }
    assert redacted(value) == {
        "findings": [{"code": "c", "at": "/user/password", "message": HIDDEN, "data": {}}],
        "corrections": [
            {"at": "/pin", "rule": "r", "before": HIDDEN, "after": HIDDEN},
            {"at": "/n", "before": 2, "after": 3},
        ],
    }


def test_what_is_said_of_a_secret_is_not_taken_for_one():
    """After a call without its password, words such as `required` and `password` stay readable in the run."""
    seen = KnownSecrets()
    told = {"at": "/password", "message": "it is required", "data": {"rule": "field_name", "suggestion": "password"}}
    line = {"event": "e", "arguments": {"password": "CANARY"}, "findings": [told], "reason": "no CANARY"}
    assert b"CANARY" not in REDACTOR.redact_event(dumped(line), seen=seen)
    later = {"text": "the required field_name is password"}
    assert redacted(later, seen=seen) == later


@pytest.mark.parametrize(
    ("asked", "meant", "kept"),
    [("pascode", "passcode", False), ("vouchre", "voucher", False), ("amout", "amount", True)],
)
@pytest.mark.parametrize("arguments", ['{"%s": "4711"}', {}])
@pytest.mark.parametrize("effect", ["read", "write"])
def test_a_secret_under_a_misspelt_name_is_hidden(asked, meant, kept, arguments, effect):
    """What the guard takes for a slip of a secret name, whether it puts it right or says so, is a secret's name."""
    schema = {
        "type": "object",
        "properties": {meant: {"type": "string"}},
        "required": [meant],
        "additionalProperties": False,
    }
    contract = Contract.from_schema("t", schema, effect=effect, handler=lambda **_: None, redact=("voucher",))
    with Guard([contract]).run() as run:
        given = arguments % asked if arguments else {asked: "4711"}
        outcome = run.call(ToolCall("c", "t", given))
        assert outcome.status == ("ok" if effect == "read" else "refused")
        assert (b"4711" in b"".join(run.trace.lines)) is kept


def test_a_value_beside_its_name_is_hidden():
    """Settings, headers and variables are often listed as a name and a value; words are no such name."""
    for listed in ({"name": "DB_PASSWORD", "value": "x"}, {"Key": "Authorization", "Value": "x"}):
        assert set(redacted([listed])[0].values()) == {next(iter(listed.values())), HIDDEN}
    kept = [{"name": "max_tokens", "value": 5}, {"name": "The secret garden", "value": 9}, {"name": "a", "value": "b"}]
    kept += [{"kind": "password", "value": "x"}, {"name": 5, "value": "x"}]
    assert redacted(kept) == kept


def test_a_plain_pattern_is_judged_on_the_bytes():
    """Only patterns that cannot match across a JSON escape skip the walk."""
    for source in (r"ACCT-\d+", "[A-Z]{2}[0-9]+", r"\w+@\w+", "(?:a|b)c?"):
        assert SecretPattern(source).prefilter is not None
    for source in ("^a", "a.b", r"a\sb", "[^a]b", '"a"', "a b", r"[!-~]z", r"\Bx"):
        assert SecretPattern(source).prefilter is None


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(json_values, st.sampled_from(SECRET_NAMES), st.text(string.ascii_letters, min_size=6, max_size=20))
def test_no_canary_survives_beside_anything(value, name, tail):
    """Whatever stands around it, a canary under a secret name is gone, and the rest is valid JSON."""
    canary = f"CANARY{tail}"
    result = REDACTOR.redact_payload(dumped({"around": value, name: canary, "list": [{name: [canary]}]}))
    assert canary.encode() not in result
    assert orjson.loads(result)[name] == HIDDEN


@given(json_values)
def test_redacting_twice_equals_redacting_once(value):
    """What was made safe is left alone the second time."""
    once = REDACTOR.redact_payload(dumped(value))
    assert REDACTOR.redact_payload(once) == once


@given(st.text())
def test_no_text_makes_redaction_raise(text):
    """Any text goes through, surrogates and all, and twice is once."""
    once = REDACTOR.redact_text(text)
    assert REDACTOR.redact_text(once) == once


@given(st.lists(SECRETIVE).map("".join))
@example('a"b\\u0070')
def test_what_is_found_in_a_text_is_found_in_its_json(text):
    """A look that finds nothing in the bytes of a value has nothing to find in a text of that value."""
    assert set(secret_looks.matching_prefilters(text, text.lower())) <= set(
        secret_looks.matching_prefilters(*secret_looks.search_text(dumped({text: [text]})))
    )
