"""The sample: whole runs, pseudonyms of the same kind, and replay that finds in it what it finds in the original."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from pokayoke.core.contract import Contract
from pokayoke.replay.judge import Judge
from pokayoke.replay.pseudonyms import Pseudonyms
from pokayoke.replay.readers import Source
from pokayoke.replay.recorder import Recorder
from pokayoke.replay.recording import Recording
from pokayoke.replay.strings import formats_of, shape_of

KEY = b"0123456789abcdef" * 2
SCHEMA = {
    "type": "object",
    "properties": {
        "order_id": {"type": "string", "pattern": "^#W[0-9]{7}$"},
        "email": {"type": "string", "format": "email"},
        "day": {"type": "string", "format": "date"},
        "tier": {"type": "string", "enum": ["gold", "silver"]},
        "amount": {"type": "integer"},
    },
    "required": ["order_id"],
    "additionalProperties": False,
}
OUT = {
    "type": "object",
    "properties": {"items": {"type": "object", "additionalProperties": {"type": "string"}}},
    "required": ["items"],
}
TOOL = Contract.from_schema("order", SCHEMA, output_schema=OUT)
GOOD = {"order_id": "#W1234567", "email": "mia.li@shop.example", "day": "2026-11-21", "tier": "gold", "amount": 12_345}


def recorded(*calls, share=1.0, key=KEY, tools=(TOOL,)):
    lines = []
    recorder = Recorder(lines.append, key=key, share=share, contracts=tools)
    for call in calls:
        recorder.record(call)
    return recorder, [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("value", "like"),
    [
        ("Mia Li", r"[A-Z][a-z]{2} [A-Z][a-z]"),
        ("mia.li3818@shop.example", r"[a-z]{3}\.[a-z]{2}\d{4}@[a-z]{4}\.[a-z]{7}"),
        ("#W1234567", r"#[A-Z][1-9]\d{6}"),
        ("2026-11-21", r"2026-(0\d|1[0-2])-[0-2]\d"),
        ("2026-11-21T10:00:00Z", r"2026-\d\d-\d\dT([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ"),
        ("10.0.0.1", r"\d{1,3}(\.\d{1,3}){3}"),
        ("https://shop.example/a1", r"https://[a-z]{4}\.[a-z]{7}/[a-z][1-9]"),
        ("李雷 3件", r"[\u4e00-\u9fa5]{2} \d[\u4e00-\u9fa5]"),
        ("0123", r"0\d{3}"),
    ],
)
def test_a_pseudonym_is_of_the_same_kind(value, like):
    """Characters keep their kind and place, formats stay formats, and the value itself is gone."""
    made = Pseudonyms(KEY).text(value)
    assert re.fullmatch(like, made), made
    assert made != value
    assert formats_of(value) == formats_of(made)


@given(st.text(max_size=40))
def test_pseudonyms_keep_shape_and_length(text):
    """Length, shape and formats of any text survive; equal texts have equal pseudonyms."""
    made = Pseudonyms(KEY).text(text)
    assert made == Pseudonyms(KEY).text(text)
    if formats_of(text) == frozenset():
        assert len(made) == len(text)
        assert shape_of(made) == shape_of(text)
    made.encode()


def test_pseudonyms_depend_on_the_key():
    """Another key gives other pseudonyms, and a short key is refused."""
    assert Pseudonyms(KEY).text("mia.li@shop.example") != Pseudonyms(KEY[::-1]).text("mia.li@shop.example")
    with pytest.raises(ValueError, match="16 bytes"):
        Pseudonyms(b"short")


@pytest.mark.parametrize("number", [5, -999, 0.5, 12_345, -123_456.75, 10**25, 1e300, 2**63])
def test_numbers_keep_their_size(number):
    """Small numbers identify nobody and stay; large ones keep sign, digits and type."""
    made = Pseudonyms(KEY).value(number)
    assert type(made) is type(number)
    assert len(repr(made)) == len(repr(number))
    assert (made == number) == (abs(number) < 1_000 or number == 1e300)


def test_a_sampled_call_is_judged_as_the_original():
    """Arguments, answer and truth are disguised, the schema's own words stay, and both calls are judged alike."""
    call = Recording(
        "order", json.dumps(GOOD), {"items": {"card_1234567": "Visa"}}, run="run 17", truth=GOOD, contract="order@1"
    )
    _, (line,) = recorded(call)
    sent = json.loads(line["arguments"])
    assert sent.keys() == GOOD.keys()
    assert sent["tier"] == "gold"
    assert not {value for value in sent.values() if isinstance(value, str)} & {
        GOOD["order_id"],
        GOOD["email"],
        GOOD["day"],
    }
    assert line["truth"] == sent
    assert "1234567" not in json.dumps(line)
    assert "Visa" not in json.dumps(line)
    assert TOOL.input.accepts(sent)
    assert Judge([TOOL]).judge(Recording("order", sent, line["output"])).output == "valid"


@pytest.mark.parametrize(
    "call",
    [
        Recording("order", '{"order_id": "#W1234567", "amount": "12345"}', run="r"),
        Recording("order", '{"order_id": "#W12345", "day": "tomorrow"}', run="r"),
        Recording("order", '{"order_id": "#W1234567",}', run="r"),
        Recording("order", '{"order_id": "#W12345', run="r"),
        Recording("order", {}, "Error: order 1234567 of Mia is gone", run="r"),
        Recording("order", {"order_id": "#W1234567"}, '{"error": "Mia is gone"}', run="r"),
        Recording("order", {"order_id": "#W1234567"}, '{"items": [', run="r"),
        Recording("order", {"order_id": "#W1234567"}, UNSET, True, run="r"),
        Recording("unknown_tool", '{"name": "Mia Li"}', "Hello Mia", run="r"),
    ],
)
def test_what_is_wrong_stays_wrong(call):
    """Damaged, refused and failed calls are found again in the sample, by code and place, without their data."""
    recorder, lines = recorded(call)
    assert recorder.written + recorder.withheld == 1
    for line in lines:
        again = Recording(line["tool"], line["arguments"], line.get("output", UNSET), line.get("is_error"))
        before, after = Judge([TOOL]).judge(call), Judge([TOOL]).judge(again)
        assert (before.refusal and before.refusal.code) == (after.refusal and after.refusal.code)
        assert before.output == after.output
        assert "Mia" not in json.dumps(line)
        assert "1234567" not in json.dumps(line)


def test_a_call_that_would_be_judged_otherwise_is_withheld():
    """Where no pseudonym fits (a pattern of one text that does not spell it), the call is counted and not written."""
    fixed = Contract.from_schema("t", {"properties": {"x": {"type": "string", "pattern": "^[M][i][a] [L][i]$"}}})
    recorder, lines = recorded(Recording("t", {"x": "Mia Li"}, run="r"), tools=[fixed])
    assert (recorder.withheld, lines) == (1, [])


def test_secret_tools_are_never_written():
    """A contract marked secret leaves nothing behind, not even pseudonyms."""
    recorder, lines = recorded(Recording("t", {}, "x", run="r"), tools=[Contract.from_schema("t", {}, secret=True)])
    assert (recorder.withheld, lines) == (1, [])


def test_runs_are_sampled_whole():
    """About one run in a hundred is kept, each with all its calls, and the same ones every time."""
    calls = [Recording("t", {"n": n % 3}, run=f"run {n // 3}") for n in range(30_000)]
    first, lines = recorded(*calls, share=0.01, tools=())
    second, again = recorded(*calls, share=0.01, tools=())
    assert lines == again
    assert 60 * 3 <= first.written <= 140 * 3
    runs = [line["run"] for line in lines]
    assert all(runs.count(run) == 3 for run in set(runs))
    assert first.seen == second.seen == 30_000


@pytest.mark.parametrize(("share", "written"), [(0.0, 0), (1.0, 50)])
def test_all_or_nothing(share, written):
    """A share of 0 keeps nothing and 1 keeps all; anything else outside is refused."""
    assert recorded(*(Recording("t", {}, run=str(n)) for n in range(50)), share=share, tools=())[0].written == written
    with pytest.raises(ValueError, match="share"):
        Recorder(print, key=KEY, share=1.5)


def test_a_sample_is_a_recording(tmp_path):
    """The sample is read back without a mapping, with run, truth and contract."""
    call = Recording("order", GOOD, {"items": {}}, run="r", truth=None, contract="order@1", stop_reason="stop")
    path = tmp_path / "sample.jsonl"
    with path.open("wb") as file:
        Recorder(file.write, key=KEY, share=1.0, contracts=[TOOL]).record(call)
    with Source(str(path)) as source:
        (found,) = source.recordings()
    assert (found.tool, found.truth, found.stop_reason) == ("order", None, "stop")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
        lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=5), x, max_size=3),
        max_leaves=8,
    )
)
def test_no_value_breaks_the_recorder(value):
    """Whatever was recorded is written with pseudonyms, or withheld."""
    recorder, lines = recorded(
        Recording("order", {"x": value}, value, run="r"),
        Recording("u", json.dumps({"x": value}), json.dumps(value), run="r"),
    )
    assert recorder.written + recorder.withheld == 2
    assert len(lines) == recorder.written
