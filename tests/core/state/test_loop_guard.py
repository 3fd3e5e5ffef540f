"""The loop guard: what a bad round is, what ends a streak, and what the model is told when its tools go."""

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.call import Finding, Outcome
from pokayoke.core.policy import LoopPolicy
from pokayoke.core.state.loop_guard import (
    KINDS,
    Kind,
    RoundEntry,
    TurnHistory,
    count_round,
    failure_kind,
    kinds_for,
    tools_off_instruction,
    tools_off_reason,
    without_own_kinds,
)
from pokayoke.core.state.run_state import LoopCount, RunState, begin_turn
from pokayoke.errors import PolicyError

POLICY = LoopPolicy()
BY_NAME = {kind.name: kind for kind in KINDS}


def outcome(status="ok", code="", blame="model", tool="t", text="x", **more):
    found = (Finding(code=code, blame=blame),) if code else ()
    return Outcome(status=status, call_id="c", tool=tool, findings=found, text=text, **more)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (outcome("refused", "unknown_tool"), "unknown_tool"),
        (outcome("refused", "repeated_failure"), "repeated_call"),
        (outcome("refused", "compensated"), "repeated_call"),
        (outcome("failed", "tool_failed", "tool"), "tool_failure"),
        (outcome("failed", "failed_before", "tool"), "tool_failure"),
        (outcome("in_doubt", "tool_timeout", "tool"), "tool_failure"),
        (outcome("degraded", "html_instead_of_data", "tool"), "invalid_output"),
        (outcome("invalid_output", "missing_field", "tool"), "invalid_output"),
        (outcome("refused", "missing_field"), "invalid_arguments"),
        (outcome("refused", "low_confidence"), "invalid_arguments"),
        (outcome("refused", "permission_denied", "policy"), "refusal"),
        (outcome("refused", "quota_exceeded", "policy"), "refusal"),
        (outcome("refused", "latched", "tool"), "held_back"),
        (outcome("refused", "kill_switch", "policy"), "held_back"),
        # What the host or another caller does is nobody's bad round.
        (outcome("refused", "in_progress", "host"), None),
        (outcome("refused", "store_unavailable", "host"), None),
        (outcome("refused", "no_scope", "host"), None),
        (outcome("in_doubt", "in_doubt", "host"), None),
        (outcome("failed", "not_started", "host"), None),
        (outcome("pending", "awaiting_approval", "policy"), None),
        (outcome(), None),
        (outcome("replayed", "already_done"), None),
        (outcome("failed"), None),
    ],
)
def test_which_kind_an_outcome_is(given, kind):
    """Each way to fail is one kind; what is not the model's or the tool's doing is none."""
    found = failure_kind(given, KINDS)
    assert (found.name if found else None) == kind


def test_kinds_are_switched_off_by_name_and_added_by_a_declaration():
    """A kind of the host's own is looked at first; one that is off counts as nothing, not as the next that fits."""
    own = Kind("rate_limited", "called a tool that is tired", codes=("tool_failed",))
    kinds, failed = (
        kinds_for(LoopPolicy(off=("rate_limited",), instructions={"*": "x"}), [own]),
        outcome("failed", "tool_failed", "tool"),
    )
    assert failure_kind(failed, kinds) is own
    assert failure_kind(failed, kinds, off=("rate_limited",)) is None
    assert failure_kind(outcome("refused", "unknown_tool"), kinds, off=("unknown_tool",)) is None
    for every in ("*", ("*",)):  # the host's own kinds, too
        policy = LoopPolicy(off=every)
        assert kinds_for(policy, [own]) == kinds
        assert [failure_kind(one, kinds, policy.off) for one in (failed, outcome("refused", "unknown_tool"))] == [
            None
        ] * 2
        assert without_own_kinds(policy) == policy


@pytest.mark.parametrize(
    "options", [{"off": ("unknwon_tool",)}, {"off": ("**",)}, {"instructions": {"tool_failed": "x"}}]
)
def test_a_kind_nobody_knows_is_an_error(options):
    """A misspelt kind would switch nothing off; the error lists those there are."""
    with pytest.raises(PolicyError, match="no kind of failure is called so; use held_back"):
        kinds_for(LoopPolicy(**options))


def marks(*kinds):
    """One mark each: `+tool` for progress, `tool` for nothing, `kind/tool` for a failure."""
    made = []
    for one in kinds:
        kind, _, tool = one.rpartition("/")
        made.append(RoundEntry(tool.lstrip("+"), kind, progress=tool.startswith("+")))
    return tuple(made)


def after(*rounds):
    count = LoopCount()
    for one in rounds:
        count = count_round(count, marks(*one), BY_NAME)
    return count


@pytest.mark.parametrize(
    ("rounds", "streak", "bad", "failing"),
    [
        # C2, C3: failures of all kinds add up, in one round and over rounds (G2: alternating ones too).
        ([["unknown_tool/x"]], 1, 1, {"*unknown_tool": 1}),
        ([["unknown_tool/x"], ["tool_failure/a"]], 2, 2, {"*unknown_tool": 1, "a": 1}),
        ([["unknown_tool/x", "tool_failure/a"]], 1, 1, {"*unknown_tool": 1, "a": 1}),
        ([["tool_failure/a", "tool_failure/a"]], 1, 1, {"a": 1}),
        # Progress without failure ends the streak; that of a tool ends its own count, and nobody else's (G8).
        ([["tool_failure/a"], ["+b"]], 0, 1, {"a": 1}),
        ([["tool_failure/a"], ["+a"]], 0, 1, {}),
        # G2: a trivial success beside a failure neither adds to the streak nor ends it; the totals go on.
        ([["tool_failure/a"], ["tool_failure/a", "+b"]], 1, 2, {"a": 2}),
        ([["tool_failure/a", "+b"], ["tool_failure/a", "+b"]], 0, 2, {"a": 2}),
        # A result that brings nothing new and fails nothing changes nothing.
        ([["tool_failure/a"], ["b"]], 1, 1, {"a": 1}),
        ([["b"]], 0, 0, {}),
        # Writes held back follow from an invalid output, which was counted: total only.
        ([["invalid_output/r"], ["held_back/w"]], 1, 2, {"r": 1}),
        # A kind nobody knows any more (it was switched off over a restart) still counts by its tool.
        ([["gone/a"]], 1, 1, {"a": 1}),
    ],
)
def test_how_rounds_are_counted(rounds, streak, bad, failing):
    """The count after a series of rounds, row by row."""
    count = after(*rounds)
    assert (count.streak, count.bad, dict(count.failing)) == (streak, bad, failing)


@pytest.mark.parametrize(
    ("rounds", "policy", "reason"),
    [
        # C1: one bad round may be repaired, the next takes the tools away; 0 does so at the first.
        ([["unknown_tool/x"]], {}, None),
        ([["unknown_tool/x"]] * 2, {}, "unknown_tool"),
        ([["unknown_tool/x"]], {"self_repair": 0}, "unknown_tool"),
        ([["unknown_tool/x"]] * 3, {"self_repair": 3}, None),
        ([["unknown_tool/x"], ["tool_failure/a"]], {}, "loop_detected"),
        ([["tool_failure/a"]] * 2, {}, "tool_failure"),
        ([["invalid_output/a"], ["held_back/w"], ["invalid_output/a"]], {}, "invalid_tool_output"),
        # G2, G8: trivial progress beside it does not hide a tool that always fails.
        ([["tool_failure/a", "+b"]] * 4, {}, None),
        ([["tool_failure/a", "+b"]] * 5, {}, "tool_failure"),
        ([["tool_failure/a"], ["+b"]] * 4, {}, None),
        ([["tool_failure/a"], ["+b"]] * 5, {}, "loop_detected"),
        # Nothing clears the total of a turn.
        ([["tool_failure/a"], ["+a"]] * 11, {}, None),
        ([["tool_failure/a"], ["+a"]] * 12, {}, "loop_detected"),
        ([["held_back/w"]] * 12, {}, "loop_detected"),
    ],
)
def test_when_the_tools_go(rounds, policy, reason):
    """Streak, the count of one tool, and the total of the turn: whichever is passed first."""
    assert tools_off_reason(after(*rounds), LoopPolicy(**policy), BY_NAME) == reason


@given(
    st.lists(
        st.lists(
            st.sampled_from(["+a", "+b", "a", "tool_failure/a", "unknown_tool/x", "held_back/w"]),
            min_size=1,
            max_size=4,
        ),
        max_size=60,
    )
)
def test_every_turn_ends(rounds):
    """However failures and successes are mixed, at most twelve bad rounds pass before the tools go."""
    count = LoopCount()
    for one in rounds:
        before = count
        count = count_round(count, marks(*one), BY_NAME)
        assert count.bad - before.bad == any("/" in mark for mark in one)
        if tools_off_reason(before, POLICY, BY_NAME) and count.bad > before.bad and count.bad > 12:
            assert tools_off_reason(count, POLICY, BY_NAME)
    assert count.bad < 12 or tools_off_reason(count, POLICY, BY_NAME)


def test_the_count_is_bounded():
    """However many tools fail, the count keeps a bounded number of them."""
    count = after(*[[f"tool_failure/t{number}"] for number in range(200)])
    assert len(count.failing) == 64
    assert len(count.seen) == 12


@pytest.mark.parametrize("code", ["unknown_tool", "cut_in_key"])
def test_the_count_keeps_no_more_of_a_name_than_any_tool_can_have(code):
    """However long a name a model writes, what the store keeps of it is short; that of a tool is kept whole."""
    rounds, count = TurnHistory(), LoopCount()
    for length in (128, 1_000_000):
        count = count_round(count, noted(rounds, outcome("refused", code, tool="n" * length)), BY_NAME)
    assert [name for _, name, _ in count.seen] == ["n" * 128] * 2
    assert all(len(bucket) <= 128 for bucket, _ in count.failing)


def test_a_new_turn_starts_the_count_anew():
    """The user's next text ends streak, totals and final answer."""
    state = RunState("r", mode="final_answer", stop_reason="loop_detected", loop=LoopCount(2, 5, why="w"))
    fresh = begin_turn(state)
    assert (fresh.mode, fresh.loop) == ("normal", LoopCount())


@pytest.mark.parametrize(
    ("seen", "tools", "said"),
    [
        ([("unknown_tool", "x", "")], ["a", "b"], ["'x'", "there are only 'a', 'b'"]),
        ([("unknown_tool", "x", "")], [], ["there are only no tools"]),
        (
            [("tool_failure", "a", ""), ("invalid_arguments", "b", "")],
            ["a"],
            ["tools that failed ('a')", "do not fit ('b')"],
        ),
        ([("gone", "a", "")], [], ["gone ('a')"]),
        ([("unknown_tool", "y" * 500, "")], [f"t{n:02}" for n in range(50)], ["y" * 64 + "'", "and 30 more"]),
    ],
)
def test_what_the_model_is_told(seen, tools, said):
    """F1: how many rounds, what was asked for, what there is, and that tools are off. Bounded, names as data."""
    text = tools_off_instruction(LoopCount(2, 2, seen=tuple(seen)), POLICY, BY_NAME, tools)
    for part in ("In the last 2 rounds", "Tools are off", *said):
        assert part in text
    assert len(text) < 1_000


@pytest.mark.parametrize(
    ("count", "self_repair", "said"),
    [
        (LoopCount(3, 7), 1, "In the last 3 rounds you called"),
        (LoopCount(1, 1), 0, "In the last round you called"),
        (LoopCount(1, 12), 1, "12 rounds of this turn went wrong; in the latest of them you called"),
        (LoopCount(0, 5), 1, "5 rounds of this turn went wrong; in the latest of them you called"),
    ],
)
def test_the_model_is_told_of_the_rounds_that_cost_its_tools(count, self_repair, said):
    """Those in a row, or all of the turn: a single one would be no reason that a model could believe."""
    count = msgspec.structs.replace(count, seen=(("tool_failure", "a", ""),))
    assert tools_off_instruction(count, LoopPolicy(self_repair=self_repair), BY_NAME, []).startswith(said)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"tool_failure": "Stop it."}, "Stop it."),
        ({"*": "Stop."}, "Stop."),
        ({"tool_failure": "A", "*": "B"}, "A"),
        ({"*": "  "}, None),
    ],
)
def test_the_host_may_say_it_otherwise(texts, said):
    """F1: a text of the host's that is not blank replaces the built-in one whole, that of the kind before that for all."""
    count = LoopCount(2, 2, seen=(("tool_failure", "a", ""),))
    text = tools_off_instruction(count, LoopPolicy(instructions=texts), BY_NAME, [])
    assert text == said if said else "Tools are off" in text


def noted(rounds, *given, effect="read", signature="s", policy=POLICY):
    for one in given:
        rounds.count_outcome(one, signature, effect, kinds_for(policy), policy)
    return rounds.end_round()


def test_a_read_is_progress_once():
    """A read new in tool and arguments is progress; an equal one is not."""
    rounds = TurnHistory()
    assert [mark.progress for mark in noted(rounds, outcome(), outcome())] == [True, False]
    assert noted(rounds, outcome(), signature="other")[0].progress


def test_a_write_that_is_settled_is_progress_each_time():
    """A write that took effect is progress, also a wanted repetition; a replay is not."""
    rounds = TurnHistory()
    assert noted(rounds, outcome(), outcome(), effect="write") == marks("+t", "+t")
    assert noted(rounds, outcome("replayed", "already_done"), effect="write") == marks("t")


def test_the_same_result_again_and_again_is_a_bad_round():
    """Equal calls with equal results: three are fine, the fourth is a repeated call, of each value alike."""
    rounds = TurnHistory()
    for text in ("x", "y", "z", "x"):
        marked = noted(rounds, *[outcome(text=text)] * 5)
        assert [mark.kind for mark in marked] == ["", "", "", "repeated_call", "repeated_call"]
        assert [mark.progress for mark in marked] == [True, False, False, False, False]


def test_the_first_result_is_compared_too():
    """A value that came once does not make the next one its repetition."""
    rounds = TurnHistory()
    noted(rounds, outcome(text="pending"))
    assert [mark.kind for mark in noted(rounds, *[outcome(text="running")] * 3)] == ["", "", ""]
    assert noted(rounds, outcome(text="running"))[0].kind == "repeated_call"


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 4))
def test_of_any_results_only_equal_ones_in_a_row_are_repetitions(values, fine):
    """Whatever a read answers, a call is a repetition exactly if more than so many equal results end with it."""
    rounds, policy = TurnHistory(), LoopPolicy(identical_results=fine)
    for at in range(len(values)):
        last = values[max(0, at - fine) : at + 1]
        mark = noted(rounds, outcome(text=str(values[at])), policy=policy)[0]
        assert bool(mark.kind) == (len(last) > fine and len(set(last)) == 1)
        assert mark.progress == (at == 0 or values[at] != values[at - 1])


def test_after_a_write_the_same_answer_is_news():
    """A check before or after each write never ends a run; polling does, also behind a write, and a replay is none."""
    rounds = TurnHistory()
    for number in range(20):
        assert noted(rounds, outcome()) == marks("+t")
        assert noted(rounds, outcome(tool="w"), effect="write", signature=str(number)) == marks("+w")
    kinds = []
    for _ in range(4):
        kinds += [mark.kind for mark in noted(rounds, outcome())]
        noted(rounds, outcome("replayed", "already_done", tool="w"), effect="write", signature="19")
    assert kinds == ["", "", "", "repeated_call"]


def test_a_write_that_is_only_replayed_is_a_repetition():
    """Other writes in between make no news of a write that is answered from the ledger."""
    rounds = TurnHistory()
    noted(rounds, outcome(), effect="write")
    kinds = []
    for number in range(4):
        noted(rounds, outcome(tool="w"), effect="write", signature=str(number))
        kinds += [mark.kind for mark in noted(rounds, outcome("replayed", "already_done"), effect="write")]
    assert kinds == ["", "", "repeated_call", "repeated_call"]


def test_repetitions_are_not_counted_where_that_is_off():
    """With `repeated_call` off, equal results are never a failure."""
    rounds = TurnHistory()
    found = noted(rounds, *[outcome()] * 9, policy=LoopPolicy(off=("repeated_call",)))
    assert noted(TurnHistory(), *[outcome()] * 9, policy=LoopPolicy(off="*")) == found
    assert {mark.kind for mark in found} == {""}


def test_the_id_of_a_call_does_not_make_a_result_another_one():
    """The text the model reads names the call; two equal results under other ids are equal."""
    rounds = TurnHistory()
    for number in range(4):
        one = msgspec.structs.replace(outcome(text=f"<out call=id{number}>7</out>"), call_id=f"id{number}")
        found = noted(rounds, one)
    assert found[0].kind == "repeated_call"


@dataclass
class Shown:
    data: object
    type: str = "image"


@dataclass(slots=True)
class Bare:
    data: object


def nested(levels, value):
    return value if not levels else [nested(levels - 1, value)]


@pytest.mark.parametrize(
    ("picture", "compared"),
    [
        (lambda data: {"type": "image", "data": data}, True),
        (lambda data: {"type": "image", "source": {"type": "base64", "data": data}}, True),
        (lambda data: {"type": "resource", "resource": {"blob": data, "annotations": {"audience": ["user"]}}}, True),
        (lambda data: Shown(data.encode()), True),
        (lambda data: Shown(Shown(data)), True),
        (Bare, False),
        (lambda data: nested(50, data), False),
    ],
)
@pytest.mark.parametrize("text", ["", "One screenshot."])
def test_another_picture_is_another_result(picture, compared, text):
    """Pictures and files that differ are progress, however often a call returns one; equal ones are a repetition."""
    rounds, kept = TurnHistory(), []
    for number in range(9):
        kept.append(picture(f"iVBOR{number}"))
        assert noted(rounds, outcome(text=text, content=(kept[-1],)))[0].progress
    kept += [picture("iVBOR"), picture("iVBOR"), picture("iVBOR"), picture("iVBOR")]
    found = noted(rounds, *[outcome(text=text, content=(one,)) for one in kept[-4:]])
    assert (found[-1].kind == "repeated_call") is compared


def test_what_is_remembered_is_bounded():
    """Old calls are forgotten first; a forgotten one is new again."""
    rounds = TurnHistory(size=3)
    for number in range(9):
        noted(rounds, outcome(), signature=str(number))
    assert noted(rounds, outcome(), signature="0")[0].progress
    assert not noted(rounds, outcome(), signature="8")[0].progress


def test_a_round_ends_once():
    """A round that has ended leaves nothing behind, and a new turn nothing at all."""
    rounds = TurnHistory()
    noted(rounds, outcome())
    assert rounds.end_round() == ()
    rounds.count_outcome(outcome("refused", "missing_field"), "s", None, KINDS, POLICY)
    assert rounds.repeats.failure_count("t", "s") == 1
    rounds.clear()
    assert (rounds.end_round(), rounds.repeats.failure_count("t", "s")) == ((), 0)
    assert noted(rounds, outcome())[0].progress


def test_what_waits_for_a_person_leaves_no_mark():
    """A pending call is neither a failure nor progress, and no repetition; a refusal by policy is no repetition either."""
    rounds = TurnHistory()
    assert noted(rounds, outcome("pending", "awaiting_approval", "policy")) == ()
    assert noted(rounds, outcome("refused", "quota_exceeded", "policy"))[0].kind == "refusal"
    assert rounds.repeats.failure_count("t", "s") == 0


def test_a_call_that_is_only_held_back_has_not_failed():
    """However often a write waits for a valid output, it is no repetition of a failure; it is a bad round each time."""
    rounds = TurnHistory()
    found = noted(rounds, *[outcome("refused", "latched", "tool")] * 5, effect="write")
    assert {mark.kind for mark in found} == {"held_back"}
    assert rounds.repeats.failure_count("t", "s") == 0
    noted(rounds, outcome("failed", "tool_failed", "tool"), effect="write")
    assert rounds.repeats.failure_count("t", "s") == 1


def test_a_policy_without_own_kinds_names_what_every_guard_knows():
    """Names of a guard's own kinds are left out of both options, and the instruction for all kinds stays."""
    policy = LoopPolicy(off=("tired", "refusal"), instructions={"*": "Stop.", "tired": "Rest.", "unknown_tool": "No."})
    plain = without_own_kinds(policy)
    assert plain.off == ("refusal",)
    assert plain.instructions == {"*": "Stop.", "unknown_tool": "No."}


def test_only_so_many_invalid_outputs_are_remembered():
    """One that was forgotten counts as the first of its kind again: memory has a bound."""
    history = TurnHistory(size=2)
    assert [history.is_first_invalid("look", name) for name in "aabca"] == [True, False, True, True, True]
