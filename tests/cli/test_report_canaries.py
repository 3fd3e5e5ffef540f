"""Canary secrets in recordings: a recording by others holds them in the open, and no report repeats them.

Reports are text, JSON and HTML of `replay`, `learn` and `doctor`, the sample, and contracts that were learnt.
"""

import json

import pytest
from canaries import draw_letters, forms
from clishell import Shell

PLACES = (
    "argument", "marked", "configured", "named", "pattern", "field", "tool", "run", "output", "answer", "failure", "raw",
    "folder", "truth",
)  # fmt: skip
FIELDS = {
    "note": {"type": "string", "maxLength": 60}, "nip": {"type": "string"}, "pesel": {"type": "string"},
    "password": {"type": "string", "maxLength": 5}, "n": {"type": "integer"},
}  # fmt: skip
IN = {"type": "object", "properties": FIELDS, "additionalProperties": False}
OUT = {"type": "object", "properties": {"id": {"type": "integer"}}}


def secret(place):
    """The secret of a place: one by its form, but for what a mark, a name or a pattern makes one."""
    letters = draw_letters(f"recorded {place}")
    plain = {"marked": letters, "configured": letters, "named": letters, "pattern": f"PZ{letters}"}
    return plain.get(place, f"sk-{letters}")


def found_in(data):
    """The places whose secret stands in some bytes."""
    return {place for place in PLACES for form in forms(secret(place).removeprefix("sk-")) if form in data}


def recorded_calls():
    """Calls of every verdict: run, refused by each argument, unread, unknown, answered wrongly, failed."""
    named = {"nip": secret("marked"), "pesel": secret("configured"), "password": secret("named")}
    echo = f"{secret('marked')}, {secret('configured')} and {secret('named')}"
    given = (
        ({"note": f"see {secret('argument')}"}, {"id": 7}),
        ({**named, "n": "many"}, {"id": 7}),
        ({**named, "note": f"{secret('pattern')} {'x' * 60}"}, {"id": 7}),
        ({secret("field"): 1}, {"id": 7}),
        (json.dumps({"note": secret("raw"), **named})[:-1], {"id": 7}),
        ({"nip": secret("marked"), "pesel": secret("configured")}, {"id": secret("output"), "nip": secret("marked")}),
        ({"note": "a", "nip": secret("marked")}, f"<!doctype html>{secret('answer')} {secret('marked')}"),
        (named, f"Error: no account {secret('failure')} for {echo}"),
        (named, json.dumps({"error": f"no access to /srv/{secret('folder')} for {echo}"})),
    )
    for number, (arguments, output) in enumerate(given * 6):
        call = {"tool": "pay", "arguments": arguments, "output": output, "run": f"{secret('run')} {number % 4}"}
        yield call | ({"truth": {"note": secret("truth")}} if number % 5 == 0 else {})
    yield {"tool": secret("tool"), "arguments": {"note": "a"}, "output": {"id": 7}}


@pytest.fixture
def folder(tmp_path):
    """A recording by others, contracts that mark a name, and a configuration that hides another one and a pattern."""
    (tmp_path / "calls.jsonl").write_text("".join(json.dumps(call) + "\n" for call in recorded_calls()))
    for name, more in (("contracts.json", {}), ("later.json", {"effect": "read"})):
        contract = {
            "name": "pay",
            "effect": "write",
            "input_schema": IN,
            "output_schema": OUT,
            "redact": ["nip"],
            **more,
        }
        (tmp_path / name).write_text(json.dumps({"contracts": [contract]}))
    (tmp_path / "pokayoke.yaml").write_text("trace:\n  redact_fields: [pesel]\n  redact_patterns: ['PZ[A-Za-z0-9]+']\n")
    return tmp_path


def test_a_recording_in_the_open_is_searched(folder):
    """The search can fail: it finds the secret of every place in the recording itself."""
    assert found_in((folder / "calls.jsonl").read_bytes()) == set(PLACES)


@pytest.mark.parametrize(
    ("words", "written"),
    [
        (("replay", "calls.jsonl", "--contracts", "contracts.json"), ()),
        (("replay", "calls.jsonl", "--contracts", "contracts.json", "--json"), ()),
        (("replay", "calls.jsonl", "--contracts", "contracts.json", "--html", "r.html"), ("r.html",)),
        (("replay", "calls.jsonl", "--contracts", "contracts.json", "--compare", "later.json", "--json"), ()),
        (
            ("replay", "calls.jsonl", "--contracts", "contracts.json", "--sample", "s.jsonl", "--share", "1"),
            ("s.jsonl",),
        ),
        (("learn", "calls.jsonl"), ()),
        (("learn", "calls.jsonl", "--json"), ()),
        (("learn", "calls.jsonl", "-o", "learnt.yaml"), ("learnt.yaml",)),
        (("check", "contracts.json", "--json"), ()),
        (("doctor",), ()),
        (("doctor", "--json"), ()),
    ],
    ids=" ".join,
)
def test_a_report_holds_no_secret(folder, words, written):
    """Neither what is printed nor the file that is written repeats the secret of any place."""
    done = Shell(folder)(*words)
    assert done.returncode in (0, 1), done.stderr
    sinks = {"printed": (done.stdout + done.stderr).encode()}
    sinks |= {name: (folder / name).read_bytes() for name in written}
    assert all(sinks.values())
    assert {name: found for name, data in sinks.items() if (found := found_in(data))} == {}


def test_a_report_still_says_what_is_wrong(folder):
    """Hidden values do not take the place, the code or the sentence of an example with them."""
    done = Shell(folder)("replay", "calls.jsonl", "--contracts", "contracts.json", "--json")
    (shown,) = json.loads(done.stdout)["contracts"]
    (tool,) = [one for one in shown["tools"] if one["tool"] == "pay@1"]
    examples = {kind: found[0] for kind, found in tool["examples"].items()}
    hidden = dict.fromkeys(("nip", "pesel", "password"), "[redacted]")
    assert json.loads(examples["refused: too_long"]["shown"]) == {**hidden, "n": "many"}
    assert [examples[f"refused: {code}"]["at"] for code in ("too_long", "unknown_field")] == [
        "/password",
        "/[redacted]",
    ]
    assert examples["refused: unknown_field"]["message"] == "/[redacted]: the schema does not know this field"
    assert examples["failed"]["message"].startswith("Error: no account [redacted] for [redacted]")
