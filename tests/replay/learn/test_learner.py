"""Learning: every statement of a contract needs its evidence, and says less where there is less."""

import json
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from pokayoke.core.call import Finding
from pokayoke.core.contract.contract import Contract
from pokayoke.errors import ConfigurationError
from pokayoke.replay.learn.effect_guess import guess_effect
from pokayoke.replay.learn.evidence import MOST_FIELDS, Budget, Evidence, OccurrenceCount
from pokayoke.replay.learn.infer import describe_count, infer_schema
from pokayoke.replay.learn.learner import Draft, Learner, SkippedTool, ToolEvidence, build_draft
from pokayoke.replay.learn.string_shapes import formats_of, pattern_of, shape_of
from pokayoke.replay.learn.yaml_writer import yaml_text
from pokayoke.replay.recording import Recording, UnreadRecord
from pokayoke.runtime.config.yaml_reader import read_document


def schema_of(values, *, arguments=False, runs=None):
    evidence = Evidence()
    for number, value in enumerate(values):
        evidence.add(value, str(number if runs is None else number % runs))
    return infer_schema(evidence, arguments=arguments).schema


def learnt(rows, **more):
    """The drafts for rows of (arguments, output)."""
    learner = Learner(**more)
    learner.add_recordings(Recording(tool="t", arguments=a, output=o, run=str(n)) for n, (a, o) in enumerate(rows))
    drafts, _ = learner.build_drafts()
    return drafts[0].mapping, drafts[0].notes


def order(number):
    return f"#W{1_000_000 + 7 * number}"


def words(count):
    rng = random.Random(3)
    return [" ".join(rng.choice(["red", "old", "big", "fast"]) for _ in range(rng.randint(1, 5))) for _ in range(count)]


# -- fields ----------------------------------------------------------------------------------------


def test_required_is_what_was_always_there():
    """A field of every call is required, one that was missing once is optional, and arguments are closed."""
    schema = schema_of([{"a": 1, "b": 2}, {"a": 1}, {"a": 1, "b": 3}], arguments=True)
    assert schema["required"] == ["a"]
    assert set(schema["properties"]) == {"a", "b"}
    assert schema["additionalProperties"] is False


def test_an_answer_needs_more_evidence_than_a_call():
    """Two answers require nothing and close nothing; twenty whose fields all came back do both."""
    few, many = schema_of([{"a": "x"}] * 2), schema_of([{"a": "x"}] * 20)
    assert "required" not in few
    assert "additionalProperties" not in few
    assert many["required"] == ["a"]
    assert many["additionalProperties"] is False


@pytest.mark.parametrize(("extra", "closed"), [(1, False), (2, True)])
def test_a_field_seen_once_keeps_an_object_open(extra, closed):
    """A name in one run only says that more are to come; in two runs, it is one of the known ones."""
    values = [{"a": "x", "b": 1}] * 30 + [{"a": "x", "b": 1, "new": 1}] * extra
    assert ("additionalProperties" in schema_of(values)) is closed


def test_one_run_is_one_piece_of_evidence():
    """Sixty answers of one run close nothing: it repeated itself."""
    assert "additionalProperties" not in schema_of([{"a": "x"}] * 60, runs=1)
    assert schema_of([{"a": "x"}] * 60, runs=3)["additionalProperties"] is False


def test_ids_as_names_make_a_map():
    """An object whose names are ids is a map: one schema for all members, no list of names."""
    values = [{f"item_{1000 + n}": {"price": n * 1.5}, f"item_{2000 + n}": {"price": 2.5}} for n in range(30)]
    schema = schema_of(values)
    assert "properties" not in schema
    assert schema["additionalProperties"]["properties"]["price"] == {"type": "number"}


def test_names_that_never_repeat_make_a_map():
    """Options that differ from object to object, with values of one kind, are a map."""
    names = ["color", "size", "material", "weight", "finish"]
    values = [{names[n % 5]: f"x {n}", names[(n + 1) % 5]: "y"} for n in range(25)]
    assert schema_of(values)["additionalProperties"] == {"type": "string"}


def test_a_common_field_is_no_map():
    """A name that every object has is the name of a field, and so are its siblings."""
    names = ["color", "size", "material", "weight", "finish"]
    assert "properties" in schema_of([{"id": "x", names[n % 5]: "x"} for n in range(25)])


def test_too_many_names_are_a_map():
    """Beyond 128 names an object is a map, and memory does not grow with the names."""
    evidence = Evidence()
    for number in range(1_000):
        evidence.add({f"name{chr(97 + number % 26)}{number}": "x"}, str(number))
    assert len(evidence.fields) <= MOST_FIELDS
    for arguments in (False, True):  # a tool's arguments too: a list of no names would refuse every call
        assert infer_schema(evidence, arguments=arguments).schema["additionalProperties"] == {"type": "string"}


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (["a"] * 4, "4 calls in 1 run"),
        ([f"r{n % 10}" for n in range(400)], "400 calls in 10 runs"),  # runs that take turns
        ([f"r{n // 4}" for n in range(64)], "64 calls in 16 runs"),
        ([f"r{n // 2}" for n in range(80)], "80 calls in 16 to 40 runs"),
        ([f"r{n % 17}" for n in range(34)], "34 calls in 16 to 18 runs"),
        ([f"r{n}" for n in range(80)], "80 calls"),  # each a run of its own, or nobody knows of runs
    ],
)
@pytest.mark.parametrize("parts", [1, 3])
def test_the_number_of_runs_is_right_or_said_to_be_unknown(runs, said, parts):
    """Up to 16 runs are counted as many as they are; beyond them two bounds are told, between which the number lies."""
    whole = OccurrenceCount()
    for part in range(parts):
        piece = OccurrenceCount()
        for run in runs[part * len(runs) // parts : (part + 1) * len(runs) // parts]:
            piece.add(run)
        whole.merge(piece)
    assert whole.least_runs <= len(set(runs)) <= whole.most_runs
    if parts == 1 or len(set(runs)) <= 16:
        assert describe_count(whole, "calls") == said


# -- types -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1] * 3, "number"),
        ([1, 2] * 10, "integer"),
        ([1, 2.5] * 10, "number"),
        ([5.0] * 20, "number"),
        ([True, False], "boolean"),
        ([None, "x"], ["string", "null"]),
        ([1.5, "x", None, True], ["string", "number", "boolean", "null"]),
        ([[1.5], []], "array"),
    ],
)
def test_types(values, kind):
    """Types are those seen; whole numbers are integers only after ten of them and no other."""
    assert schema_of(values)["type"] == kind


def test_arrays_and_objects_nest():
    """Items and members have schemas of their own, to any depth that is looked into."""
    schema = schema_of([{"a": [{"b": [[1.5]]}]}] * 3)
    assert schema["properties"]["a"]["items"]["properties"]["b"]["items"]["items"] == {"type": "number"}


def test_very_deep_values_are_not_followed():
    """What nests deeper than twelve levels is accepted unseen, and takes no memory."""
    deep = leaf = {}
    for _ in range(60):
        leaf["x"] = {}
        leaf = leaf["x"]
    drawn = infer_schema(_evidence([deep]))
    assert Contract.from_schema("t", drawn.schema).input.accepts(deep)
    assert any("not all looked into" in note for note in drawn.notes.values())


def test_too_many_places_are_not_followed():
    """A tool with more places than are watched costs bounded memory, and its schema still accepts what was seen."""
    value = {f"a{chr(97 + n % 26)}{chr(97 + n // 26)}": {f"b{chr(97 + k)}": 1.5 for k in range(26)} for n in range(120)}
    evidence = Evidence(Budget(500))
    evidence.add(value, "1")
    assert Contract.from_schema("t", infer_schema(evidence, arguments=True).schema).input.accepts(value)


def _evidence(values):
    evidence = Evidence()
    for number, value in enumerate(values):
        evidence.add(value, str(number))
    return evidence


# -- texts -----------------------------------------------------------------------------------------


def test_an_enum_needs_every_value_again_and_again():
    """Three words, fifteen times each, in many runs: an enum. One of them only twice: none."""
    often = ["gold", "silver", "regular"] * 15
    assert schema_of(often)["enum"] == ["gold", "regular", "silver"]
    assert "enum" not in schema_of([*often, "platinum", "platinum"])
    assert "enum" not in schema_of(often, runs=2)
    assert "enum" not in schema_of(often[:24])


def test_an_enum_may_be_null():
    """A word that is sometimes null: null is one of the values."""
    assert schema_of([*["gold", "silver"] * 20, None])["enum"] == ["gold", "silver", None]


@pytest.mark.parametrize(
    "values",
    [["yes"] * 100, [f"city {chr(97 + n % 13)}" for n in range(300)], [f"{n % 3}7" for n in range(100)], words(100)],
    ids=["one value", "thirteen values", "numbers", "sentences"],
)
def test_what_is_no_enum(values):
    """One value alone, many values, numbers and sentences promise no list."""
    assert "enum" not in schema_of(values)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ([f"2026-11-{n:02d}" for n in range(1, 20)], "date"),
        ([f"a{n}@shop.example" for n in range(5)], "email"),
        ([f"2026-11-{n:02d}T10:00:00Z" for n in range(1, 20)], "date-time"),
        ([f"https://shop.example/{n}" for n in range(5)], "uri"),
        ([f"10.0.0.{n}" for n in range(5)], "ipv4"),
        ([f"123e4567-e89b-42d3-a456-42661417400{n}" for n in range(5)], "uuid"),
    ],
)
def test_formats(values, name):
    """A format that all texts are in is asserted; one text that is not in it takes it away."""
    assert schema_of(values)["format"] == name
    assert "format" not in schema_of([*values, "tomorrow"])
    assert "format" not in schema_of(values[:1] * 30)


@pytest.mark.parametrize(
    ("values", "pattern"),
    [
        ([order(n) for n in range(30)], "^#W[0-9]{7}$"),
        ([f"{n:05d}" for n in range(10_000, 10_040)], "^[0-9]{5}$"),
        ([f"{'abc' * (1 + n % 2)}_{n + 100}" for n in range(40)], "^[a-z]+_[0-9]{3}$"),
        ([f"{chr(65 + n % 26)}{n % 10}{chr(65 + n % 7)}{n % 8}" for n in range(60)], "^[A-Z][0-9][A-Z][0-9]$"),
        (
            [f"{'AB' if n < 150 else 'CD'}-{100_000 + n}" for n in range(300)],
            "^[A-Z]{2}-[0-9]{6}$",
        ),
        (
            ["JG7FMM", "ABC123", "Z9Z9Z9", "QWERT1", "1Q2W3E"] + [f"A{n}B{n}CD"[:6] for n in range(10, 40)],
            "^[0-9A-Z]{6}$",
        ),
    ],
)
def test_patterns(values, pattern):
    """Identifiers made by a machine get a pattern; an identifier of the same make fits it."""
    assert schema_of(values)["pattern"] == pattern


@pytest.mark.parametrize(
    "values",
    [
        ["Mia", "Omar", "Sofia", "Yusuf", "Chen", "Raj", "Emma", "Noah", "Lei", "Ivan", "Mei"] * 5,
        [f"{100 + n} Main Street" for n in range(40)],
        [chr(65 + n % 26) + chr(65 + n % 7) + chr(65 + n % 5) for n in range(60)],
        [order(n) for n in range(9)] * 5,
        [*(order(n) for n in range(40)), "none"],
        [f"é{n}" for n in range(40)],
    ],
    ids=["names", "addresses", "capitals", "too few", "one other", "not ascii"],
)
def test_what_has_no_pattern(values):
    """Names, addresses, words and short evidence promise nothing about the next text."""
    assert "pattern" not in schema_of(values)


@given(st.lists(st.text(alphabet="abXY019#-_. ", min_size=1, max_size=8), min_size=1, max_size=12))
def test_a_pattern_fits_what_it_was_made_of(texts):
    """Every pattern accepts every text it was learnt from, and compiles."""
    evidence = _evidence(texts)
    for shape in (evidence.texts.shape, evidence.texts.mixed):
        pattern = pattern_of(shape, evidence.texts.values)
        if pattern is not None:
            contract = Contract.from_schema("t", {"properties": {"x": {"type": "string", "pattern": pattern}}})
            assert all(contract.input.accepts({"x": text}) for text in texts)


def test_shapes_and_formats_of_odd_texts():
    """Empty, long and unprintable texts have no shape; long ones no format."""
    assert shape_of("") is None
    assert shape_of("a" * 65) is None
    assert shape_of("a\x1b1") is None
    assert formats_of("a" * 3_000 + "@x.example") == frozenset()


# -- laws ------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(["#W123", "2026-01-02", "gold"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "c", "id_1234", "é", ""]), inner, max_size=4)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "c", "d\n#"]), VALUES, max_size=4)


@given(st.lists(OBJECTS, min_size=1, max_size=40))
def test_what_was_seen_is_accepted(objects):
    """The learnt schema accepts everything it was learnt from, as arguments and as answers."""
    _accepts_all(objects)


TEXTS = st.builds("{}-{:0{}}".format, st.sampled_from(["AB", "CD", "a", "7"]), st.integers(0, 10**6), st.just(7))


@settings(max_examples=30)
@given(st.integers(1, 300), st.integers(1, 3), st.lists(TEXTS, min_size=1, max_size=300), st.randoms())
def test_what_was_seen_is_accepted_beyond_what_is_kept(names, fields, texts, rng):
    """So it does with more names and more different texts than are kept apart."""
    _accepts_all(
        [
            {f"k{rng.randrange(names)}": 1, **{f"f{n}": texts[(at + n) % len(texts)] for n in range(fields)}}
            for at in range(300)
        ]
    )


def _accepts_all(objects):
    for arguments in (True, False):
        drawn = infer_schema(_evidence(objects), arguments=arguments)
        contract = Contract.from_schema("t", drawn.schema)
        assert all(contract.input.accepts(one) for one in objects)


@given(st.lists(OBJECTS, min_size=1, max_size=20), st.lists(OBJECTS, min_size=1, max_size=20))
def test_evidence_of_two_halves_can_be_put_together(first, second):
    """Merged evidence gives the schema of all values together."""
    whole = _evidence([*first, *second])
    half, other = _evidence(first), Evidence()
    for number, value in enumerate(second, len(first)):
        other.add(value, str(number))
    half.merge(other)
    assert infer_schema(half, arguments=True).schema == infer_schema(whole, arguments=True).schema


# -- tools -----------------------------------------------------------------------------------------


def test_failed_calls_teach_nothing():
    """Calls whose tool said that it failed are counted; their arguments and answers are not learnt."""
    rows = [({"id": "x"}, '{"ok": true}')] * 5 + [({"wrong": 1}, '{"error": "no such field"}')] * 2
    mapping, notes = learnt(rows)
    assert set(mapping["input_schema"]["properties"]) == {"id"}
    assert mapping["envelope"] == {"error": "/error"}
    assert "2 more failed" in notes["name",]


def test_where_good_answers_speak_of_errors_these_are_no_failures():
    """Findings that a good answer lists under `errors` do not become the sign of a failure."""
    bad = Recording("lint", {"q": "x"}, {"errors": ["no such file"]}, is_error=True)
    for found in ({"errors": [{"line": 1}]}, '{"errors": [{"line": 1}]}'):
        first, second = ToolEvidence(), ToolEvidence()
        for number in range(5):
            first.add(Recording("lint", {"q": "x"}, found, is_error=False), str(number))
        second.add(bad, "5")
        second.merge(first)
        mapping = build_draft("lint", second).mapping
        assert "envelope" not in mapping
        assert mapping["output_schema"]["type"] == "object"


@pytest.mark.parametrize("rows", [[{"rows": [1]}, "no rows", {"rows": []}], [3, 4]], ids=["mixed", "few"])
def test_no_text_is_promised_where_answers_are_none(rows):
    """A contract does not refuse the very answers it was learnt from: where they are of no one kind it promises none."""
    mapping, notes = learnt([({}, output) for output in rows])
    assert "output_schema" not in mapping
    assert "nothing is promised about the output" in notes["input_schema",]


def test_calls_with_an_invalid_answer_teach_nothing():
    """Where the answer broke its contract and was not recorded, the call is counted and not learnt."""
    fault = Finding("wrong_type", blame="tool")
    learner = Learner()
    learner.add_recordings(
        [Recording("a", {"x": "y"}, fault=fault), Recording("b", {"x": "y"}, fault=fault), Recording("b", {})]
    )
    drafts, skipped = learner.build_drafts()
    assert skipped == [SkippedTool("a", "1 calls, and no valid answer")]
    assert drafts[0].notes["name",] == "1 calls; 1 had an invalid answer and taught nothing"
    assert drafts[0].mapping["input_schema"]["properties"] == {}


def test_unreadable_arguments_teach_nothing():
    """Arguments that are no JSON object are counted and not learnt."""
    mapping, notes = learnt([({"a": "x"}, UNSET), ('{"a": ', UNSET)])
    assert mapping["input_schema"]["required"] == ["a"]
    assert "1 had arguments" in notes["name",]


CLEAR = {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("outputs", "schema"),
    [
        (["hello", "good bye"], "text"),
        ([""], "text"),
        (['{"a": "x"}', "not json"], "text"),
        (['"quoted"'], "text"),
        (["5", "6"], "text"),
        (["5.5"] * 6, {"type": "number"}),
        (["null"] * 6, {"type": "null"}),
        (['{"a": 0.5}'] * 10 + ['{"a": 0.'], CLEAR),
        (['{"a": 0.5}'] * 4 + ['{"a": 0.', '{"a', "<!DOCTYPE html><h1>502</h1>"], CLEAR),
        (['{"a": 0.5}'] * 3 + ['{"a": 0.', '{"a', "<!DOCTYPE html><h1>502</h1>"], "text"),
        (['{"a": 0.5}'] * 20 + ['{"a": 0.', "no such order"], "text"),
        (['{"a": 0.5}'] * 20 + ["no such order"], "text"),
        (['{"a": 0.5}'] * 9 + ["[3] orders"], "text"),
        (['{"a": 0.5}'] * 10 + ["[3, ...(cut)"], CLEAR),
        (["<html>1</html>"] * 9, "text"),
        ([{"content": [{"type": "text", "text": "hi"}]}], "text"),
        ([order(n) for n in range(30)], {"type": "string", "pattern": "^#W[0-9]{7}$"}),
    ],
)
def test_what_answers_are(outputs, schema):
    """Answers are data if all are JSON but pages and cut ones; texts of one shape keep it; numbers need five of them."""
    mapping, _ = learnt([({}, one) for one in outputs])
    assert mapping["output_schema"] == schema


def test_answers_that_are_not_whole_are_counted_and_named():
    """What is learnt from most of the answers says how many there were, and what the others are; also when merged."""
    rows = ['{"a": 0.5}'] * 18 + ['{"a": 0.'] * 3 + ["<html>502</html>"]
    assert learnt([({}, one) for one in rows])[1]["output_schema",] == (
        "22 answers, 3 broken off, 1 a page of HTML: learnt from the others"
    )
    one, other = ToolEvidence(), ToolEvidence()
    for number, row in enumerate(rows):
        (one if number % 2 else other).add(Recording(tool="t", arguments={}, output=row), str(number))
    one.merge(other)
    assert (one.broken, one.cut, one.pages) == (3, 3, 1)


def test_hidden_values_teach_no_type():
    """What a recording hides was there, so the field is required, and its type is learnt from the others only."""
    mapping, _ = learnt([({"token": "[redacted]", "n": "[redacted]"}, "x"), ({"token": "[redacted]", "n": 0.5}, "x")])
    assert mapping["input_schema"]["properties"] == {"token": {}, "n": {"type": "number"}}
    assert mapping["input_schema"]["required"] == ["n", "token"]


def test_without_answers_nothing_is_promised():
    """A recording without outputs gives no output contract, and the file says so."""
    mapping, notes = learnt([({"a": "x"}, UNSET)])
    assert "output_schema" not in mapping
    assert "max_chars" not in mapping
    assert "nothing is promised" in notes["input_schema",]


@pytest.mark.parametrize(("longest", "cap"), [(10, 1_000), (400, 2_000), (3_000, 20_000), (100_000, 500_000)])
def test_the_size_cap_follows_what_was_seen(longest, cap):
    """max_chars is a round number at least four times the longest answer."""
    assert learnt([({}, "x " * (longest // 2))])[0]["max_chars"] == cap


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("get_order", "read"), ("orders.list", "write"), ("listOrders", "read"), ("searchHTTPLogs", "read"), ("ls", "read"),
        ("delete_order", "destructive"), ("rm", "destructive"), ("get_and_delete", "destructive"), ("find_and_replace", "write"),
        ("get_or_create_user", "write"), ("create_order", "write"), ("frobnicate", "write"), ("", "write"),
        ("get_login_status", "read"), ("login", "write"), ("view_messages_sent", "read"), ("ｇｅｔ", "write"),
    ],
)  # fmt: skip
def test_effects_are_guessed_on_the_safe_side(name, effect):
    """A name is a read only if it begins with looking and holds no doing; what is not known is a write."""
    found, why = guess_effect(name)
    assert found == effect
    assert why


def test_tools_that_cannot_be_learnt_are_named():
    """A tool whose calls all failed, and one whose name cannot be a tool's, are skipped with the reason."""
    learner = Learner()
    learner.add_recordings(
        [
            Recording("bad", {}, "Error: no"),
            Recording("odd\x1b", {}, "x"),
            UnreadRecord(3, "cut"),
            Recording("text", "{", "x"),
        ]
    )
    drafts, skipped = learner.build_drafts()
    assert drafts == []
    assert {one.tool: one.why for one in skipped} == {
        "bad": "its only call failed",
        "odd\x1b": "the name holds characters that a tool's name cannot have",
        "text": "none of 1 calls has arguments that are a JSON object",
    }
    assert (learner.calls, learner.unread, learner.first_unread[0].line) == (3, 1, 3)


def test_tools_are_bounded():
    """A recording with endless tool names does not fill the memory."""
    learner = Learner()
    learner.add_recordings(Recording(f"t{n}", {}, "x") for n in range(2_010))
    drafts, skipped = learner.build_drafts()
    assert len(drafts) == 2_000
    assert "10 calls" in skipped[-1].why


def test_watched_tools_can_be_put_together():
    """What two processes saw of a tool adds up."""
    first, second = ToolEvidence(), ToolEvidence()
    first.add(Recording("t", {"a": "x"}, '{"error": "gone"}'), "1")
    first.add(Recording("t", {"a": "x"}, '{"n": 1}'), "1")
    second.add(Recording("t", {"a": "x"}, '{"error": "gone"}'), "2")
    second.add(Recording("t", "{", "x"), "2")
    second.add(Recording("t", {}, fault=Finding("wrong_type")), "2")
    first.merge(second)
    assert (first.calls.samples, first.failed, first.unreadable, first.slots) == (5, 2, 1, {"error": 2})
    assert first.invalid == 1


# -- the file --------------------------------------------------------------------------------------


def test_a_learnt_file_is_read_back():
    """The YAML says exactly what was learnt, and every contract in it can be built."""
    rows = [
        ({"order_id": order(n), "mode": ["a", "b"][n % 2], "n": n}, json.dumps({"ok": "yes", "at": n}))
        for n in range(60)
    ]
    mapping, notes = learnt(rows)
    text = yaml_text([Draft(mapping, notes)], [SkippedTool("x", "why")], ["60 calls"])
    assert read_document(text).value == {"contracts": [mapping]}
    assert Contract.from_mapping(read_document(text).value["contracts"][0]).id == "t@1"
    assert "# 60 of 60 calls" in text
    assert "#   x: why" in text


NASTY = st.text(alphabet=st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    [
        "a: b",
        "# x",
        "- x",
        "null",
        "no",
        "1",
        "1e3",
        "\n",
        "\r\n#",
        "\u2028",
        "\x85",
        "\ufeff",
        "'",
        '"',
        "\\",
        "{x}",
        "[",
        "&a",
        "*a",
        "!t",
        "|",
        ">",
        "%",
        "@",
        "`",
        "---",
        "...",
        "x\n  y: 1",
        "\x1b]0;",
        "\u202e",
        "\U000e0041",
        "😀",
        "=",
        "~",
        "",
    ]
)


@given(
    st.dictionaries(
        NASTY,
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | NASTY
        | st.lists(NASTY, max_size=4),
        max_size=5,
    ),
    NASTY,
)
def test_no_name_or_value_breaks_the_file(members, note):
    """Whatever stands in a recording, the file reads back as the same values, and a comment stays one."""
    mapping = {"name": "t", "input_schema": {"properties": members, "x": {"y": members}}}
    notes = {("name",): note, **{("input_schema", "properties", name): note for name in members}}
    text = yaml_text([Draft(mapping, notes)], [SkippedTool(note, note)], [note])
    back = read_document(text).value["contracts"][0]
    assert json.loads(json.dumps(back)) == json.loads(json.dumps(mapping))
    assert not any((ord(sign) < 32 and sign != "\n") or 0xE0000 <= ord(sign) < 0xE1000 for sign in text)


def test_a_file_that_nobody_could_read_is_not_written():
    """More than 1 MB of contracts is an error that says what to do."""
    huge = Draft({"name": "t", "description": "x" * 1_100_000}, {})
    with pytest.raises(ConfigurationError, match="--tool"):
        yaml_text([huge])


def test_no_recorded_text_stands_in_a_comment():
    """Only enum values are taken over from recordings: a name, an address or a sentence never is."""
    rows = [({"who": f"secret{n} person", "city": "Springfield"}, f"kept from you {n}") for n in range(40)]
    text = yaml_text([Draft(*learnt(rows))])
    assert "secret" not in text
    assert "Springfield" not in text
    assert "kept" not in text


@pytest.mark.parametrize("name", ["password", "api_key", "accessToken", "pin"])
def test_what_a_secret_is_named_like_gives_its_type_only(name):
    """Under a secret's name, however deep, no enum, no pattern and no bounds are learnt; beside it they are."""
    values = [
        {name: {"a": ["letmein", "opensesame"][n % 2], "b": f"x{n}", "c": [1_234 + n]}, "mode": ["fast", "slow"][n % 2]}
        for n in range(40)
    ]
    drawn = infer_schema(_evidence(values))
    hidden = drawn.schema["properties"][name]
    assert hidden["properties"] == {
        "a": {"type": "string"},
        "b": {"type": "string"},
        "c": {"type": "array", "items": {"type": "integer"}},
    }
    assert not any("seen" in note for note in drawn.notes.values())
    assert drawn.schema["properties"]["mode"]["enum"] == ["fast", "slow"]


def test_a_map_with_a_secrets_name_is_secret():
    """Where names are data and one of them is a secret's, nothing is said about any value."""
    names = ["color", "size", "password", "weight", "finish"]
    values = [{names[n % 5]: f"x{n}"} for n in range(60)]
    assert schema_of(values)["additionalProperties"] == {"type": "string"}


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ([4915112345678, 4915112345999], "up to 13 digits seen"),
        ([-12_345, 5], "up to 5 digits seen"),
        ([5, 999], "5 to 999 seen"),
        ([11.14, 80.64], "11.14 to 80.64 seen"),
        ([48.208174, 48.301, 16.5], "16.5 to 49 seen"),
        ([48.208174, 16.373819], "16 to 49 seen"),
    ],
)
def test_numbers_that_identify_somebody_are_not_written_down(values, note):
    """Bounds are exact below 1,000 and to two decimals; beyond, only their size is told."""
    assert infer_schema(_evidence([{"n": value} for value in values])).notes["properties", "n", "type"] == note


@pytest.mark.parametrize("name", ["ada@example.com", "sk-live-abcdefghijklmnopqrstuvwx", "password=opensesame"])
@pytest.mark.parametrize("arguments", [True, False])
def test_a_name_that_is_data_is_not_listed(name, arguments):
    """An address or a secret among the names of fields stands nowhere, and the object stays open."""
    values = [{"city": "x", "@type": "y", name: n} for n in range(40)]
    drawn = infer_schema(_evidence(values), arguments=arguments)
    assert drawn.schema["required"] == ["city", "@type"]
    assert "additionalProperties" not in drawn.schema
    assert name not in str(drawn)
    assert Contract.from_schema("t", drawn.schema).input.accepts(values[0])


def test_addresses_as_names_make_a_map():
    """An object whose names are addresses is a map, whoever is in all of them."""
    schema = schema_of([{"ada@example.com": 1.5, "bob@example.org": 2.5}] * 40)
    assert schema == {"type": "object", "additionalProperties": {"type": "number"}}


def test_words_that_are_secrets_are_no_enum():
    """What looks like a secret by itself is no enum value."""
    assert "enum" not in schema_of(["ghp_abcdefghijklmnopqrstuvwxyzABCDEFGH", "none"] * 30)


@pytest.mark.parametrize(
    "text", ["9f86d081884c7d65" * 4, "https://shop.example/catalogue/items/a/long/path/that/never/changes?id=1"]
)
def test_one_long_text_is_one_piece_of_evidence(text):
    """A text that always comes again makes no pattern and no format, however long it is."""
    assert schema_of([text] * 40) == {"type": "string"}
    evidence = _evidence([text] * 40)
    evidence.merge(_evidence([text] * 40))
    assert evidence.texts.distinct_count == 1


def test_long_texts_are_told_apart_up_to_a_number():
    """Long numbers get their pattern from ten different ones, and memory is bounded whatever their number."""
    numbers = [f"{n:062d}" for n in range(300)]
    assert "pattern" not in schema_of(numbers[:9] * 10)
    drawn = infer_schema(_evidence(numbers))
    assert drawn.schema["pattern"] == "^[0-9]{62}$"
    assert drawn.notes["pattern",] == "100+ different texts, all like this"
    assert infer_schema(_evidence(numbers[:40])).notes["pattern",] == "40 different texts, all like this"
    half = _evidence(order(n) for n in range(80))
    half.merge(_evidence(order(n) for n in range(80, 400)))
    assert half.texts.distinct_count == 200
    assert infer_schema(half).notes["pattern",] == "200+ different texts, all like this"


def test_the_same_recording_gives_the_same_file():
    """Learning is deterministic, whatever the order of the tools."""
    rows = [Recording(tool, {"a": "x"}, "y", run=str(n)) for n, tool in enumerate(["b", "a", "c"] * 5)]
    texts = Counter()
    for order_of in (rows, rows[::-1]):
        learner = Learner()
        learner.add_recordings(order_of)
        texts[yaml_text(*learner.build_drafts())] += 1
    assert len(texts) == 1
