"""The sample: whole runs, pseudonyms of the same kind, and replay that finds in it what it finds in the original."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from pokayoke.core.contract.contract import Contract
from pokayoke.core.schema.schema import compile_schema
from pokayoke.replay.learn.string_shapes import formats_of, shape_of
from pokayoke.replay.readers import Source
from pokayoke.replay.recording import Recording
from pokayoke.replay.sample.pseudonyms import Pseudonyms
from pokayoke.replay.sample.recorder import Recorder
from pokayoke.replay.score.evaluate import Judge

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
        recorder.record_call(call)
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
        ("https://shop.example/M%C3%BC", r"https://[a-z]{4}\.[a-z]{7}/[A-Z](%[A-F]\d|%[A-F]{2}){2}"),
        ("3f2a4c10-9a1b-4c3d-8e4f-aabbccddeeff", r"[1-9][a-f0-9]{7}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f]{12}"),
        ("fe80::1", r"[a-f]{2}\d\d::[1-9]"),
        ("李雷 3件", r"[\u4e00-\u9fa5]{2} \d[\u4e00-\u9fa5]"),
        ("0123", r"0\d{3}"),
    ],
)
def test_a_pseudonym_is_of_the_same_kind(value, like):
    """Characters keep their kind and place, formats stay formats, and the value itself is gone."""
    made = Pseudonyms(KEY).replace_text(value)
    assert re.fullmatch(like, made), made
    assert made != value
    assert formats_of(value) == formats_of(made)


def kinds_of(text):
    shape = shape_of(text)
    return shape and [(run.kind, run.low) for run in shape]


@given(st.text(max_size=40))
def test_pseudonyms_keep_shape_and_length(text):
    """Length, shape and formats of any text survive; equal texts have equal pseudonyms."""
    made = Pseudonyms(KEY).replace_text(text)
    assert made == Pseudonyms(KEY).replace_text(text)
    if formats_of(text) == frozenset():
        assert len(made) == len(text)
        assert kinds_of(made) == kinds_of(text)
    made.encode()


def test_pseudonyms_depend_on_the_key():
    """Another key gives other pseudonyms, and a short key is refused."""
    assert Pseudonyms(KEY).replace_text("mia.li@shop.example") != Pseudonyms(KEY[::-1]).replace_text(
        "mia.li@shop.example"
    )
    with pytest.raises(ValueError, match="16 bytes"):
        Pseudonyms(b"short")


@pytest.mark.parametrize("number", [5, -999, 0.5, 12_345, -123_456.75, 10**25, 1e300, 2**63])
def test_numbers_keep_their_size(number):
    """Small numbers identify nobody and stay; large ones keep sign, digits and type."""
    made = Pseudonyms(KEY).replace_value(number)
    assert type(made) is type(number)
    assert len(repr(made)) == len(repr(number))
    assert (made == number) == (abs(number) < 1_000)


WHOLE = re.compile(r"(\d{4})-\d\d-\d\d([Tt ]\d\d:\d\d(:\d\d)?(\.\d+)?( ?([Zz]|[+-]\d\d:\d\d))?)?", re.ASCII)
RUN = re.compile(r"(?=([^\W_]{4}))")
PARTS = st.sampled_from(
    [
        *(
            "1985-05-17",
            "2024-05-01T10:00:00.123456Z",
            " ",
            "-",
            ": ",
            "10:00",
            "10:00:00Z",
            "+49 171 1234567",
            "Ada Lovelace",
        ),
        *("https://shop.example/M%C3%BCller", "mariahuber://", "fe80::1", "::ffff:192.168.17.20", "10.0.0.1"),
        *(
            "3f2a4c10-9a1b-4c3d-8e4f-aabbccddeeff",
            "maria.huber@example.com",
            "48.208174, 16.373819",
            "4111 1111 1111 1111",
        ),
        *("0664", "Ünal Öztürk", "李雷韩梅", "Мария", "مارية", "٤٥٦٧٨٩", "²³⁴⁵", "Ⅷ", "_", "{", "null"),
    ]
)


def survived(before, after):
    """The runs of four letters or digits that stand in both texts, at the same place."""
    return [
        found[1]
        for found in RUN.finditer(before)
        if after[found.start() : found.start() + 4] == found[1] and found[1].strip("0٠")
    ]


@given(st.lists(PARTS | st.text(max_size=12), max_size=5).map("".join))
def test_nothing_of_a_text_survives(text):
    """No four letters or digits in a row stay at their place, but for the year of what is a date and a known scheme."""
    made = Pseudonyms(KEY).replace_text(text)
    if WHOLE.fullmatch(text):
        text = text[4:]
        made = made[4:]
    elif text.lower().startswith(("http://", "https://")):
        text, made = text.partition("://")[2], made.partition("://")[2]
    assert survived(text, made) == []


@given(st.lists(PARTS | st.text(max_size=12), max_size=5).map("".join))
def test_nothing_of_a_damaged_text_survives(text):
    """The same for arguments that are no JSON, but for the words of JSON and the names of fields."""
    made = Pseudonyms(KEY).replace_raw(text, frozenset({"Ada"}))
    assert [run for run in survived(text, made) if run not in "null true false True False None Infinity"] == []


@given(
    st.floats(allow_nan=False, allow_infinity=False)
    | st.integers()
    | st.sampled_from([48.208174, 1.7976931348623157e308])
)
def test_numbers_stay_numbers_and_long_ones_change(number):
    """A number keeps type, sign and size; four digits in a row never stay, and a whole number stays whole."""
    made = Pseudonyms(KEY).replace_value(number)
    assert type(made) is type(number)
    assert made in (0, -0.0) or (made < 0) == (number < 0)
    assert abs(made) != float("inf")
    if abs(number) < 1_000 and "e" not in repr(number):
        assert int(made) == int(number)
    assert survived(repr(number).partition("e")[0], repr(made).partition("e")[0]) == []
    if isinstance(number, float) and number.is_integer() and "e" not in repr(number):
        assert made.is_integer()


@pytest.mark.parametrize(
    ("value", "like"),
    [
        ("1985-05-17 Ada Lovelace", r"\d{4}-\d\d-\d\d [A-Z][a-z]{2} [A-Z][a-z]{7}"),
        ("2024-13-45", r"[1-9]\d{3}-[1-9]\d-[1-9]\d"),
        ("2024-05-01T10:00:00.123456+02:00", r"2024-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}[+]\d\d:\d\d"),
        ("2024-05-01 10:00", r"2024-\d\d-\d\d \d\d:\d\d"),
        ("10:00:00.25Z", r"\d\d:\d\d:\d\d\.\d\dZ"),
        ("mariahuber://x", r"[a-z]{10}://[a-z]"),
    ],
)
def test_a_text_is_what_it_is_as_a_whole(value, like):
    """What only begins like a date is no date, and only a scheme that everybody uses is nobody's word."""
    made = Pseudonyms(KEY).replace_text(value)
    assert re.fullmatch(like, made), made
    assert made != value


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
    assert Judge([TOOL]).judge_call(Recording("order", sent, line["output"])).output == "valid"


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
        before, after = Judge([TOOL]).judge_call(call), Judge([TOOL]).judge_call(again)
        assert (before.refusal and before.refusal.code) == (after.refusal and after.refusal.code)
        assert before.output == after.output
        assert "Mia" not in json.dumps(line)
        assert "1234567" not in json.dumps(line)


CARD = {"type": "object", "properties": {"kind": {"const": "card"}, "n": {"type": "string"}}, "required": ["kind"]}
BANK = {"type": "object", "properties": {"kind": {"const": "bank"}, "iban": {"type": "string"}}, "required": ["kind"]}
DEFS = {
    "Colour": {"enum": ["red", "green"]},
    "Card": CARD,
    "Bank": BANK,
    "Tree": {"properties": {"of": {"$ref": "#/$defs/Tree"}}},
}
UNION = {"oneOf": [{"$ref": "#/$defs/Card"}, {"$ref": "#/$defs/Bank"}]}


@pytest.mark.parametrize(
    ("place", "value", "kept"),
    [
        ({"type": "string", "format": "uuid"}, "3f2a4c10-9a1b-4c3d-8e4f-aabbccddeeff", False),
        ({"type": "string", "format": "ipv6"}, "fe80::1", False),
        ({"type": "string", "format": "uri"}, "https://shop.example/M%C3%BCller", False),
        ({"type": "string", "pattern": "^[0-9a-f]{64}$"}, "9f86d081884c7d65" * 4, False),
        ({"$ref": "#/$defs/Colour"}, "red", True),
        ({"anyOf": [{"enum": ["red", "green"]}, {"type": "null"}]}, "red", True),
        ({"allOf": [{"$ref": "#/$defs/Colour"}]}, "green", True),
        ({"enum": [1000, 5000]}, 5000, True),
        ({"const": {"name": "Ada Lovelace"}}, {"name": "Ada Lovelace"}, True),
        ({"prefixItems": [{"const": "point"}, {"type": "string"}]}, ["point", "Ada Lovelace"], False),
        (UNION, {"kind": "bank", "iban": "AT611904300234573201"}, False),
        ({"$ref": "#/$defs/Tree"}, {"of": {"of": {}}}, True),
        ({"patternProperties": {"^id_": {"type": "integer"}}, "additionalProperties": False}, {"id_maria": 5}, False),
    ],
)
def test_ordinary_contracts_are_sampled(place, value, kept):
    """References and unions are followed: the schema's own words stay, anything else is replaced, and nothing is withheld."""
    schema = {"type": "object", "properties": {"a": place}, "required": ["a"], "$defs": DEFS}
    contract = Contract.from_schema("t", schema)
    for written in ({"a": value}, json.dumps({"a": value})):
        recorder, (line,) = recorded(Recording("t", written, run="r"), tools=[contract])
        sent = line["arguments"] if isinstance(written, dict) else json.loads(line["arguments"])
        assert recorder.withheld == 0
        assert (sent == {"a": value}) == kept
        assert contract.input.accepts(sent)


SECRET_TEXT = {"type": "text", "text": "Ada Lovelace"}


@pytest.mark.parametrize(
    ("output", "schema"),
    [
        ({"content": [SECRET_TEXT]}, "text"),
        ({"content": [SECRET_TEXT], "isError": True}, "text"),
        ({"content": [SECRET_TEXT, {"type": "image", "data": "QWRhTG92", "mimeType": "image/png"}]}, "text"),
        ({"content": []}, None),
        ({"content": [{"type": "text", "text": '{"kind": "card", "n": "Ada Lovelace"}'}]}, CARD),
        ({"content": [], "structuredContent": {"kind": "card", "n": "Ada Lovelace"}}, CARD),
        ({"content": "Ada Lovelace"}, None),
    ],
)
def test_results_of_content_blocks_are_sampled(output, schema):
    """A result in blocks stays one, and is judged as it was: the types of its blocks stay, its texts do not."""
    contract = Contract.from_schema("t", {}, output_schema=schema)
    recorder, lines = recorded(Recording("t", {}, output, run="r"), tools=[contract])
    assert recorder.withheld == 0
    assert lines[0]["output"].keys() == output.keys()
    assert not any(word in json.dumps(lines) for word in ("Ada", "Lovelace", "QWRhTG92"))


@pytest.mark.parametrize(("value", "other"), [("Ada Lovelace", "card"), (True, 1), (1, True), (5000, "5000")])
def test_a_value_is_kept_only_if_it_is_the_schemas_own(value, other):
    """Only a value equal to the schema's, of its type, is a word of the schema."""
    made = Pseudonyms(KEY)
    assert made.replace_value(value, compile_schema({"const": value})) is value
    if not isinstance(value, bool) and value != 1:
        assert made.replace_value(value, compile_schema({"const": other})) != value
        assert made.replace_value(value, compile_schema({"enum": [other]})) != value


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_of_json_stays(number):
    """Infinity and NaN say nothing about anybody."""
    assert repr(Pseudonyms(KEY).replace_value(number)) == repr(number)


def test_what_nests_too_deep_is_left_out():
    """Nothing is handed on unseen, however deep it stands."""
    value = "Ada Lovelace"
    for _ in range(100):
        value = [value]
    assert "Ada" not in json.dumps(Pseudonyms(KEY).replace_value(value))


def test_names_that_nobody_declared_are_replaced():
    """Runs, tools that no contract knows and the ids among names have pseudonyms; what wraps a known tool's name is left out."""
    call = {"a": {"ada@example.com": 1, "acct_4711000": 2, "7": 3, "total": 4, "maria huber": 5, "ädä": 6}}
    _, lines = recorded(
        Recording("call_maria_huber_0664_1234567", call, run="2024-05-03-maria-huber", contract="maria@1"),
        Recording('order"}</maria>', {"order_id": "#W1234567"}, run="2024-05-03-maria-huber", contract="order@1"),
    )
    text = json.dumps(lines, ensure_ascii=False)
    assert not any(word in text for word in ("maria", "huber", "1234567", "ada", "4711", "2024", "ädä"))
    assert {"7", "total"} < json.loads(json.dumps(lines[0]["arguments"]))["a"].keys()
    assert lines[0]["run"] == lines[1]["run"]
    assert [line.get("contract") for line in lines] == [None, "order@1"]
    assert lines[1]["tool"] == "order"


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
        Recorder(file.write, key=KEY, share=1.0, contracts=[TOOL]).record_call(call)
    with Source(str(path)) as source:
        (found,) = source.read_recordings()
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


CORRECTED = Contract.from_schema(
    "stock",
    {
        "properties": {
            "sku": {"type": "string"},
            "amount": {"type": "integer", "maximum": 99},
            "weight": {"type": "number"},
            "currency": {"enum": ["CNY", "EUR"]},
            "rows": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        },
        "additionalProperties": False,
    },
    correctors={
        "amount": {"counter_suffix": ["kartons"]},
        "weight": "unit:kg",
        "currency": {"aliases": {"yuan": "CNY", "Euro (€)": "EUR"}},
        "/rows/*/n": "counter_suffix",
    },
)


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({"sku": "Mia Li", "amount": "2件"}, {"amount": "2件"}),
        ({"sku": "Mia Li", "amount": "12 Kartons"}, {"amount": "12 Kartons"}),
        ({"sku": "Mia Li", "weight": "1.5 lbs"}, {"weight": "1.5 lbs"}),
        ({"sku": "Mia Li", "currency": " YUAN "}, {"currency": " YUAN "}),
        ({"sku": "Mia Li", "currency": "euro (€)"}, {"currency": "euro (€)"}),
        ({"sku": "Mia Li", "rows": [{"n": "3個"}]}, {"rows": [{"n": "3個"}]}),
    ],
)
def test_what_a_declared_corrector_knows_stays(sent, kept, as_text):
    """Counting words, units and aliases are no personal data: a corrected call is sampled like any other."""
    call = Recording(tool="stock", arguments=json.dumps(sent) if as_text else sent, run="r", line=1)
    recorder, (line,) = recorded(call, tools=(CORRECTED,))
    assert (recorder.written, recorder.withheld) == (1, 0)
    made = json.loads(line["arguments"]) if as_text else line["arguments"]
    assert {name: made[name] for name in kept} == kept
    assert made["sku"] != sent["sku"]


def test_words_of_other_fields_and_other_words_are_replaced():
    """A word is kept at the place of its corrector only, and beside it nothing else is."""
    sent = {"sku": "2件", "amount": "李雷 2 件", "weight": "Mia kg"}
    made = Pseudonyms(KEY).replace_value(sent, CORRECTED.input, CORRECTED.ready_correctors)
    assert "件" not in made["sku"]
    assert made["amount"].endswith(" 2 件")
    assert made["amount"][:2] != "李雷"
    assert "Mia" not in made["weight"]
    assert made["weight"].endswith(" kg")


def test_a_damaged_text_keeps_them_too():
    """In an argument text that does not parse, the vocabulary of any corrector stays, names do not."""
    text = '{"sku": "Mia", "amount": "2件"'
    call = Recording(tool="stock", arguments=text, run="r", line=1)
    _, (line,) = recorded(call, tools=(CORRECTED,))
    assert '"2件"' in line["arguments"]
    assert "Mia" not in line["arguments"]
