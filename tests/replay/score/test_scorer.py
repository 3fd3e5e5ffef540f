"""Scoring: the four rates with and without a truth, outputs, coverage, differences."""

import contextlib
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

import pokayoke
from pokayoke.core.call import Finding
from pokayoke.core.contract.contract import Contract
from pokayoke.core.policy import AccessPolicy, Policy
from pokayoke.replay.learn.stated_failures import error_prefix, has_error_word, stated_failure
from pokayoke.replay.recording import Recording, UnreadRecord
from pokayoke.replay.score import counts
from pokayoke.replay.score.counts import MOST_NAMES, MOST_TOOLS, OTHERS, Tally, ToolTally, add_count, compute_rates
from pokayoke.replay.score.evaluate import Judge
from pokayoke.replay.score.scorer import Scorer, declared_fields
from pokayoke.replay.score.summary import ContractSet, build_summary, is_clean

ORDER = {
    "type": "object",
    "properties": {
        "sku": {"type": "string"},
        "amount": {"type": "integer", "minimum": 1, "maximum": 100},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"note": {"type": "string"}}}},
    },
    "required": ["sku", "amount"],
    "additionalProperties": False,
}
DONE = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"], "additionalProperties": False}


def contracts(**more):
    return [
        Contract.from_schema("create_order", ORDER, output_schema=DONE, **more),
        Contract.from_schema(
            "find",
            {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
            output_schema="text",
            effect="read",
            version="2",
        ),
        Contract.from_schema("ping", {"type": "object", "properties": {}}),
    ]


GOOD = {"sku": "S1", "amount": 2}


def scored(*calls, sets=None, policy=None):
    judges = [Judge(one, policy) for one in sets or [contracts()]]
    return Scorer(judges).score_recordings(calls)


def of(score, name, index=0):
    return score.tallies[index].tools[name]


def share(tally, name):
    return {rate.name: rate.share for rate in compute_rates(tally)}[name]


# -- the four rates --------------------------------------------------------------------------------

ROWS = [
    # arguments, truth, what becomes of the call
    (json.dumps(GOOD), GOOD, "ran_right"),
    ('{"sku": "S1", "amount": "2"}', GOOD, "ran_right fixed fixed_right"),
    ('{"sku": "S1", "amount": 2,}', GOOD, "ran_right"),
    ('{"sku": "S1", "amount": 3}', GOOD, "ran_wrong"),
    ('{"sku": "S1", "amount": "3"}', GOOD, "ran_wrong fixed"),
    ('{"sku": "S1", "amount": 2}', None, "ran_wrong"),
    ('{"sku": "S1", "amount": 0}', GOOD, "refused_right"),
    ('{"sku": "S1", "amo', GOOD, "refused_right"),
    ('{"sku": "S1"}', None, "refused_right"),
    ('{"sku": "S1", "amount": 500}', {"sku": "S1", "amount": 500}, "refused_wrong"),
    ('{"sku": "S1", "amount": 500}', '{"sku": "S1", "amount": 500}', "refused_wrong"),
]
KINDS = ("ran_right", "ran_wrong", "refused_right", "refused_wrong", "fixed", "fixed_right")


@pytest.mark.parametrize(("arguments", "truth", "what"), ROWS)
def test_a_call_beside_its_truth(arguments, truth, what):
    """Each call falls into its class: ran or refused, rightly or wrongly, corrected to the truth or not."""
    tally = of(scored(Recording("create_order", arguments, truth=truth)), "create_order@1")
    assert {kind for kind in KINDS if getattr(tally, kind)} == set(what.split())
    assert tally.truths == 1


def test_the_four_rates():
    """The rates are the quotients that DESIGN names, over all rows of the table."""
    tally = of(scored(*(Recording("create_order", a, truth=t) for a, t, _ in ROWS)), "create_order@1")
    assert share(tally, "parse success") == 10 / 11
    assert share(tally, "correction success") == 1 / 2
    assert share(tally, "refusal accuracy") == 3 / 5
    assert share(tally, "refusal recall") == 3 / 6
    assert share(tally, "wrong-call rate") == 3 / 11


def test_what_needs_a_truth_says_so():
    """Without a truth three rates are None, not 0 and not 1, and parse success stands."""
    tally = of(scored(Recording("create_order", GOOD), Recording("create_order", '{"sku": 1}')), "create_order@1")
    missing = {rate.name for rate in compute_rates(tally) if rate.share is None}
    assert missing == {"correction success", "refusal accuracy", "refusal recall", "wrong-call rate", "output validity"}
    assert share(tally, "parse success") == 1.0
    assert tally.refused == 1


@pytest.mark.parametrize("truth", ["not json", "[1]", 3, [1]])
def test_a_truth_of_another_kind_is_none(truth):
    """A truth that is no object and no null says nothing."""
    given = truth if isinstance(truth, str) else UNSET
    assert of(scored(Recording("create_order", GOOD, truth=given)), "create_order@1").truths == 0


def test_equal_numbers_are_one_value():
    """2 and 2.0 are the same argument, so a call with the other spelling is right."""
    assert (
        of(scored(Recording("create_order", '{"sku": "S1", "amount": 2.0}', truth=GOOD)), "create_order@1").ran_right
        == 1
    )


# -- as the guard decides --------------------------------------------------------------------------

TEXTS = [
    json.dumps(GOOD), '{"sku": "S1", "amount": "2"}', '{"skus": "S1", "amount": 2}', '{"sku": "S1", "amount": 2',
    "{'sku': 'S1', 'amount': 2}", '{"sku": "S1", "amount": 2.5}', '{"sku": "<sku>", "amount": 2}', "", "null",
    '{"sku": "S1", "sku": "S2", "amount": 1}', '{"sku": "S1" "amount": 2}', '{"q": "x"}', '{"q": 5}', '{"Q": "x"}', "{}",
]  # fmt: skip


@pytest.fixture(scope="module")
def guard():
    one = pokayoke.Guard(contracts())
    yield one
    one.close()


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", ["create_order", "find", "ping", "Create-Order", "functions.find", "delete"])
def test_replay_decides_as_the_guard(name, text, guard):
    """A recorded call is judged as `run.check` judges it: decision, arguments, corrections, first finding."""
    found = Judge(contracts()).judge_call(Recording(name, text))
    verdict = guard.run("r").check(pokayoke.ToolCall("1", name, text))
    assert (found.refusal is None) == verdict.ok
    assert found.corrections == verdict.corrections
    assert found.contract == verdict.contract
    if verdict.ok:
        assert found.arguments == verdict.arguments
    else:
        assert found.refusal.code == verdict.findings[0].code


def test_a_cut_message_is_refused():
    """A stop reason that proves a cut refuses the call, as in the guard."""
    found = Judge(contracts()).judge_call(Recording("create_order", json.dumps(GOOD), stop_reason="length"))
    assert found.refusal is not None
    assert not found.readable


def test_roles_are_left_out():
    """Who called is not in a recording: a tool for one role, or denied by policy, is scored by its arguments."""
    policy = Policy(access=AccessPolicy(deny=("create_order",)))
    found = Judge(contracts(roles=("buyer",)), policy).judge_call(Recording("create_order", GOOD))
    assert found.refusal is None


def test_paths_are_judged():
    """A path that climbs out of its root is refused in replay too."""
    schema = {"type": "object", "properties": {"file": {"type": "string"}}}
    tool = Contract.from_schema("read_file", schema, effect="read", paths={"file": ("/srv/data",)})
    assert Judge([tool]).judge_call(Recording("read_file", {"file": "../../etc/passwd"})).refusal is not None
    assert Judge([tool]).judge_call(Recording("read_file", {"file": "notes.txt"})).refusal is None


def test_hidden_values_are_not_held_against_a_call():
    """A recording writes [redacted] for a secret; a call refused for nothing else is counted apart."""
    tally = of(scored(Recording("create_order", {"sku": "S1", "amount": "[redacted]"})), "create_order@1")
    assert (tally.masked, tally.refused) == (1, 0)
    both = of(scored(Recording("create_order", {"sku": 5.5, "amount": "[redacted]", "x": 1})), "create_order@1")
    assert (both.masked, both.refused) == (0, 1)


# -- answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "output", "is_error", "verdict"),
    [
        ("create_order", '{"id": "7"}', None, "valid"),
        ("create_order", {"id": "7"}, None, "valid"),
        ("create_order", '{"id": 7}', None, "invalid"),
        ("create_order", "<!doctype html><html></html>", None, "invalid"),
        ("create_order", '{"error": "gone"}', None, "failed"),
        ("create_order", "Error: gone", None, "failed"),
        ("create_order", '{"id": "7"}', True, "failed"),
        ("create_order", UNSET, True, "failed"),
        ("create_order", UNSET, None, "absent"),
        ("find", "a text", None, "valid"),
        ("find", "Error: gone", None, "failed"),
        ("find", "Error: gone", False, "valid"),
        ("find", '{"error": "gone"}', None, "failed"),
        ("ping", "anything", None, "unchecked"),
        ("ping", {"content": [{"type": "text", "text": "no"}], "isError": True}, None, "failed"),
        ("nothing", "x", None, "unchecked"),
        ("nothing", "ValueError: x", None, "failed"),
    ],
)
def test_what_an_answer_is(tool, output, is_error, verdict):
    """An answer is valid, invalid, a failure of the tool, unchecked or absent; the recording's own flag counts most."""
    assert (
        Judge(contracts())
        .judge_call(Recording(tool, GOOD if tool == "create_order" else {"q": "x"}, output, is_error))
        .output
        == verdict
    )


@pytest.mark.parametrize(
    ("contract", "verdict"),
    [(None, "invalid"), ("create_order@1", "invalid"), ("create_order@0", "absent")],
)
def test_an_answer_that_is_known_to_be_invalid_only(contract, verdict):
    """What broke its contract and was not recorded is invalid by its code; of another version nobody can tell."""
    fault = Finding("wrong_type", "/id", "tool", "/id: expected string, got 7")
    call = Recording("create_order", GOOD, contract=contract, fault=fault)
    tally = of(scored(call), "create_order@1")
    assert Judge(contracts()).judge_call(call).output == verdict
    assert (tally.outputs, tally.faults) == ((1, {"wrong_type": 1}) if verdict == "invalid" else (0, {}))
    assert Judge([]).judge_call(call).output == "absent"


def test_failures_that_pass_as_data_are_counted():
    """A tool error that the contract would take for a good answer is named: the contract should know it."""
    tally = of(scored(Recording("find", {"q": "x"}, "Error: order 17 is gone")), "find@2")
    assert (tally.failed, tally.unseen) == (1, 1)
    assert tally.words == {"Error: order # is gone": 1}


def test_answers_of_our_own_trace_are_out_of_their_envelope():
    """A trace holds the value inside the envelope; it is not unwrapped a second time."""
    wrapped = contracts(envelope=pokayoke.core.contract.contract.Envelope(ok="/ok", data="/data"))[:1]
    judge = Judge(wrapped)
    assert judge.judge_call(Recording("create_order", GOOD, {"id": "7"}, contract="create_order@1")).output == "valid"
    assert judge.judge_call(Recording("create_order", GOOD, {"ok": True, "data": {"id": "7"}})).output == "valid"
    assert judge.judge_call(Recording("create_order", GOOD, {"id": "7"})).output == "failed"


@pytest.mark.parametrize(
    "text",
    [
        "Error: x",
        "Error during execution: x",
        "error: x",
        "ERROR",
        "[error] x",
        "ValueError: bad",
        "requests.exceptions.HTTPError: 500",
        "Traceback (most recent call last):\n",
        "Exception: x",
        "fatal: not a repository",
        '{"error": 404}',
        '{"errors": ["x"]}',
        '{"ok": false}',
        '{"success": false, "x": 1}',
    ],
)
def test_a_stated_failure(text):
    """A text that begins as error messages do, and a filled error slot, state a failure."""
    assert stated_failure(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no errors found",
        "Errors are rare",
        "Erroneous",
        '{"title": "Platform Error"}',
        '{"error": null}',
        '{"error": ""}',
        "The error: a history",
        '["error"]',
        '{"error"',
        "Exceptional: yes",
        "None",
    ],
)
def test_what_states_no_failure(text):
    """Text about errors, an empty slot and broken JSON state nothing."""
    assert stated_failure(text) is None


def test_mentions_are_a_guess_of_their_own():
    """An answer that speaks of errors is marked for people, and not counted as a failure."""
    assert has_error_word('{"title": "Platform Error"}')
    assert has_error_word({"log": ["no exceptions"]})
    assert not has_error_word("terrors of the deep")
    tally = of(scored(Recording("find", {"q": "x"}, "No error found")), "find@2")
    assert (tally.valid, tally.mentions, tally.failed) == (1, 1, 0)
    assert error_prefix("Error: x") == "Error:"
    assert error_prefix("fine") == ""


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text() | st.just("error"), x),
        max_leaves=10,
    )
)
def test_no_answer_breaks_the_judge(output):
    """Whatever was recorded as an answer, it is judged, and its example can be shown."""
    score = scored(
        Recording("create_order", GOOD, output), Recording("nothing", {}, output), Recording("find", {"q": "x"}, output)
    )
    assert score.calls == 3


# -- counts ----------------------------------------------------------------------------------------


def test_refusals_beside_what_the_tool_said():
    """A refused call that the tool answered may be too strict a contract; one it failed on was rightly refused."""
    tally = of(
        scored(
            Recording("create_order", {"sku": "S"}, '{"id": "1"}'), Recording("create_order", {"sku": "S"}, "Error: x")
        ),
        "create_order@1",
    )
    assert (tally.refused_worked, tally.refused_failed) == (1, 1)


def test_coverage_counts_declared_fields():
    """Fields are those of the schema, nested ones too; only what was sent is seen."""
    assert set(declared_fields(ORDER)) == {"/sku", "/amount", "/lines", "/lines/*/note"}
    score = scored(Recording("create_order", {**GOOD, "lines": [{"note": "x"}, {"other": 1}]}))
    assert of(score, "create_order@1").fields == {"/sku", "/amount", "/lines", "/lines/*/note"}


def test_examples_are_few_and_hide_secrets():
    """Three examples per kind, short, and without what looks like a key."""
    calls = [
        Recording("create_order", {"sku": "x" * 5_000, "api_key": "sk-abcdefghijklmnop"}, line=n) for n in range(10)
    ]
    found = of(scored(*calls), "create_order@1").examples
    assert [len(some) for some in found.values()] == [3]
    assert all(len(one.shown) < 400 for some in found.values() for one in some)
    secret = scored(Recording("create_order", {"api_key": "sk-abcdefghijklmnop"}))
    assert "sk-abc" not in str(of(secret, "create_order@1").examples)


SECRETS = ["sk-live-abcdefghijklmnopqrstuvwx", "ghp_abcdefghijklmnopqrstuvwxyzABCDEFGHIJ", "password=opensesame"]


@pytest.mark.parametrize("secret", [*SECRETS, "card 4111 1111 1111 1111"])
def test_what_a_tool_said_is_counted_without_secrets(secret):
    """The words of failures, in all that is shown, hold no secret, and digits do not tell them apart."""
    said = [f"Error: attempt {number} with {secret} was refused" for number in range(3)]
    score = scored(*(Recording("create_order", GOOD, text) for text in said))
    shown = build_summary(score, ["calls"], [ContractSet("x", Judge(contracts()))])
    ((words, number),) = shown["contracts"][0]["tools"][0]["errors"].items()
    assert (number, words.startswith("Error: attempt # with")) == (3, True)
    assert secret.split("=")[-1][-8:] not in str(shown)
    assert "#### ####" not in words


def test_counts_are_bounded():
    """Endless codes and tools are counted together beyond the first ones."""
    counts = {}
    for number in range(MOST_NAMES + 50):
        add_count(counts, str(number))
    assert counts[OTHERS] == 50
    tally = Tally()
    for number in range(MOST_TOOLS + 50):
        tally.for_tool(str(number)).calls += 1
    assert tally.tools[OTHERS].calls == 50
    assert tally.sum_tools().calls == MOST_TOOLS + 50


def test_differences_of_two_sets():
    """With two sets every call and answer that they judge differently is counted, by way and tool, with an example."""
    other = [Contract.from_schema("create_order", {**ORDER, "required": ["sku"]}, output_schema=True), contracts()[1]]
    score = scored(
        Recording("create_order", {"sku": "S"}, {"id": 5}),
        Recording("create_order", GOOD, {"id": "5"}),
        Recording("ping", {}),
        UnreadRecord(9, "cut"),
        sets=[contracts(), other],
    )
    assert score.changes == {
        "now runs": {"create_order": 1},
        "answer invalid -> valid": {"create_order": 1},
        "now refused": {"ping": 1},
    }
    assert (score.calls, score.unread) == (3, 1)


def test_hidden_values_are_no_difference():
    """A call that only one set refuses, for a value that the recording hides, is no difference; its answer may be."""
    free = {"type": "object", "properties": {"amount": {}}}
    tight = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}
    sets = [
        [Contract.from_schema("pay", free, output_schema={"type": "object"})],
        [Contract.from_schema("pay", tight, output_schema={"type": "number"})],
    ]
    hidden, seen = Recording("pay", {"amount": "[redacted]"}, {}), Recording("pay", {"amount": "much"})
    assert scored(hidden, sets=sets).changes == {"answer valid -> invalid": {"pay": 1}}
    assert scored(hidden, sets=sets[::-1]).changes == {"answer invalid -> valid": {"pay": 1}}
    assert scored(hidden, seen, sets=sets).changes["now refused"] == {"pay": 1}


def test_other_arguments_are_a_difference():
    """A call that runs under both, with other arguments, is named."""
    declared = Contract.from_schema("find", {"type": "object", "properties": {"n": {"type": "integer"}}}, effect="read")
    loose = Contract.from_schema("find", {"type": "object", "properties": {"n": {}}}, effect="read")
    score = scored(Recording("find", {"n": "5"}), sets=[[declared], [loose]])
    assert score.changes == {"runs with other arguments": {"find": 1}}


# -- sums ------------------------------------------------------------------------------------------


def test_a_summary_says_everything_once():
    """The summary is JSON, names every file by its number, and knows whether anything is to be looked at."""
    judge = Judge(contracts())
    rows = [Recording("create_order", {"sku": "S", "amount": n}, output={"id": "1"}, line=n + 1) for n in range(3)]
    score = Scorer([judge]).score_recordings(
        [*rows, UnreadRecord(4, "cut"), Recording("find", {"q": "x"}, output="y")], 1
    )
    shown = build_summary(score, ["first", "second"], [ContractSet("v1", judge)])
    assert json.loads(json.dumps(shown)) == shown
    (one,) = shown["contracts"]
    assert shown["calls"] == 4
    assert one["coverage"]["tools"] == {"seen": 2, "of": 3, "never": ["ping@1"]}
    assert {tool["tool"] for tool in one["tools"]} == {"create_order@1", "find@2"}
    assert shown["first_unread"][0]["at"] == "second:4"
    assert one["calls"] == one["allowed"] + one["refused"] + one["masked"]
    assert not is_clean(shown)
    clean = Scorer([judge]).score_recordings([Recording("find", {"q": "x"}, output="y")])
    assert is_clean(build_summary(clean, ["first"], [ContractSet("v1", judge)]))


NAMES = st.lists(st.integers(0, 60).map(str), max_size=90)


@given(NAMES, st.lists(st.integers(0, 90), max_size=4), st.randoms(use_true_random=False))
def test_bounded_counts_do_not_depend_on_the_parts(names, cuts, random):
    """However names are cut into parts, and in whatever order those are added: the same are kept, with the same counts."""
    bounds = [0, *sorted(cuts), len(names)]
    parts = []
    for start, end in itertools.pairwise(bounds):
        part = Tally()
        for name in names[start:end]:
            add_bounded(part, name)
        parts.append(part)
    whole = Tally()
    for name in names:
        add_bounded(whole, name)
    random.shuffle(parts)
    merged = Tally()
    for part in parts:
        with few_names():
            merged.merge(part)
    assert merged == whole


def add_bounded(tally, name):
    with few_names():
        tool = tally.for_tool(name, is_known=name in ("1", "59"))
        tool.calls += 1
        add_count(tool.words, name[::-1])


@contextlib.contextmanager
def few_names():
    """Bounds that a short list reaches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts, "MOST_TOOLS", 7)
        patch.setattr(counts, "MOST_NAMES", 3)
        yield


def test_a_known_tool_is_never_counted_with_the_others():
    """The names a model invents displace each other, and no contract."""
    tally = Tally()
    tally.for_tool("zoo@1", is_known=True).calls += 1
    for number in range(MOST_TOOLS + 5):
        tally.for_tool(str(number)).calls += 1
    tally.for_tool("zoo@1", is_known=True).calls += 1
    assert (tally.tools["zoo@1"].calls, tally.tools[OTHERS].calls) == (2, 5)


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 5)), max_size=20))
def test_tallies_add_up(pairs):
    """Merging in any order gives the same counts."""
    forward, backward = Tally(), Tally()
    for place, target in ((pairs, forward), (pairs[::-1], backward)):
        for name, number in place:
            part = Tally({name: ToolTally(calls=number, refusals={name: number})})
            target.merge(part)
    assert {k: (v.calls, v.refusals) for k, v in forward.tools.items()} == {
        k: (v.calls, v.refusals) for k, v in backward.tools.items()
    }
