"""The ladder, the latch, and equal calls that fail."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.state.run_state import (
    ANY_IDENTITY,
    EVERY_IDENTITY,
    MOST_TAINTS,
    Repeats,
    RunState,
    Taint,
    begin_turn,
    block_finding,
    budget_finding,
    is_latched,
    is_same_turn,
    latch,
    repeated_finding,
    step_down_to,
    unlatch,
    unlatch_by_output,
)

MODES = ("normal", "safe_mode", "final_answer", "stopped")
TAINT = Taint("profile", "id-1", 3, "content-type text/html")


@given(st.lists(st.sampled_from(MODES), max_size=8))
def test_the_ladder_never_rises_by_itself(modes):
    """Whatever is asked for in whatever order, the mode is the lowest that was ever asked for."""
    state = RunState("r")
    for mode in modes:
        state = step_down_to(state, mode, "tool_failure")
    assert MODES.index(state.mode) == max(map(MODES.index, modes), default=0)


def test_the_first_reason_on_a_rung_stays():
    """Worsening to the same mode keeps the reason that came first."""
    state = step_down_to(RunState("r"), "stopped", "invalid_tool_output")
    assert step_down_to(state, "stopped", "kill_switch").stop_reason == "invalid_tool_output"


@pytest.mark.parametrize(
    ("mode", "after"),
    [("normal", "normal"), ("safe_mode", "safe_mode"), ("final_answer", "normal"), ("stopped", "stopped")],
)
def test_a_turn_ends_only_the_final_answer(mode, after):
    """The user's next text lifts `final_answer` and nothing else."""
    state = begin_turn(step_down_to(latch(RunState("r"), TAINT), mode, "loop_detected"))
    assert (state.mode, state.turn, state.taints) == (after, 1, (TAINT,))


@pytest.mark.parametrize(
    ("mode", "effect", "code"),
    [
        ("normal", "read", None),
        ("normal", "write", None),
        ("safe_mode", "read", None),
        ("safe_mode", "write", "writes_off"),
        ("safe_mode", "destructive", "writes_off"),
        ("final_answer", "read", "tools_off"),
        ("final_answer", "write", "tools_off"),
        ("stopped", "read", "run_stopped"),
        ("stopped", "destructive", "run_stopped"),
    ],
)
def test_what_each_mode_lets_through(mode, effect, code):
    """Each rung of the ladder refuses exactly what it says, with its own code."""
    finding = block_finding(step_down_to(RunState("r"), mode, "kill_switch"), effect, None)
    assert (finding.code if finding else None) == code


@pytest.mark.parametrize(
    ("effect", "sources", "code"),
    [
        ("read", None, None),
        ("write", None, "latched"),
        ("destructive", None, "latched"),
        ("write", ("profile",), "latched"),
        ("write", ("profile", "other"), "latched"),
        ("write", ("other",), None),
        ("write", (), None),
    ],
)
def test_the_latch_stops_writes_that_may_build_on_the_output(effect, sources, code):
    """A closed latch refuses writes, except those that declare to build on other tools."""
    finding = block_finding(latch(RunState("r"), TAINT), effect, sources)
    assert (finding.code if finding else None) == code


def test_the_latch_opens_only_for_its_own_tool_and_identity():
    """A valid output of another tool or about something else does not open the latch."""
    state = latch(RunState("r"), TAINT)
    assert unlatch(state, "other", "id-1") is state
    assert unlatch(state, "profile", "id-2") is state
    assert unlatch(state, "profile", "id-1").taints == ()
    assert unlatch(state, "profile").taints == ()


def test_a_newer_taint_replaces_the_older_of_the_same_thing():
    """One tool and identity holds one taint, however often it fails."""
    state = latch(latch(RunState("r"), TAINT), Taint("profile", "id-1", 4, "again"))
    assert [taint.step for taint in state.taints] == [4]
    assert latch(state, TAINT) is state
    assert len(latch(state, Taint("profile", "id-2", 5, "x")).taints) == 2


def test_a_good_output_opens_only_the_latch_of_a_read():
    """Of the same identity, or of any where the taint says so, and not one that was asked for later."""
    any_of, write = Taint("search", ANY_IDENTITY, 3, "big"), Taint("pay", "id-1", 3, "x", writes=True)
    state = latch(latch(latch(RunState("r"), TAINT), any_of), write)
    assert is_latched(state, any_of)
    assert not is_latched(state, Taint("search", "id-1", 3, "big"))
    for tool, identity, step in (("pay", "id-1", 9), ("search", "id-7", 2), ("profile", "id-2", 9), ("other", "", 9)):
        assert unlatch_by_output(state, tool, identity, step) is state
    assert unlatch_by_output(state, "search", "id-7", 3).taints == (TAINT, write)
    assert unlatch_by_output(state, "profile", "id-1", 3).taints == (any_of, write)
    assert unlatch(state, "pay").taints == (TAINT, any_of)
    assert latch(state, Taint("search", ANY_IDENTITY, 2, "older")) is state


def test_more_taints_than_are_told_apart_become_one():
    """Past the bound a tool has a single taint, which follows the newest output and which only a person ends."""
    state = latch(RunState("r"), Taint("pay", "id", 1, "x", writes=True))
    for number in range(MOST_TAINTS):
        state = latch(state, Taint("profile", f"id-{number}", number, "x"))
    assert len(state.taints) == MOST_TAINTS + 1
    assert len(latch(state, Taint("profile", "id-0", 70, "again")).taints) == MOST_TAINTS + 1
    state = latch(latch(state, Taint("profile", "another", 80, "y")), Taint("profile", "one more", 90, "z"))
    assert [(one.tool, one.identity, one.step) for one in state.taints] == [
        ("pay", "id", 1),
        ("profile", EVERY_IDENTITY, 90),
    ]
    assert latch(state, Taint("profile", "late", 85, "older")) is state
    assert unlatch_by_output(state, "profile", "id-0", 99) is state
    assert unlatch(state, "profile", "id-0", step=99) is state
    assert "Only a person" in block_finding(state, "write", ("profile",)).hint
    assert [one.tool for one in unlatch(state, "profile").taints] == ["pay"]


def test_the_latch_names_the_write_first():
    """Only a person ends that taint, so it is of no use to ask another tool."""
    state = latch(latch(RunState("r"), TAINT), Taint("pay", "id-1", 4, "x", writes=True))
    assert "Only a person" in block_finding(state, "write", None).hint
    assert "Only a person" not in block_finding(state, "write", ("profile",)).hint


@pytest.mark.parametrize(("step", "opens"), [(2, False), (3, True), (4, True), (None, True)])
def test_an_answer_from_before_does_not_open_the_latch(step, opens):
    """What was asked for before the invalid output says nothing about it; a person's word does."""
    state = latch(RunState("r"), TAINT)
    assert (unlatch(state, "profile", "id-1", step=step).taints == ()) is opens


def test_the_effective_mode_is_the_lowest_of_ladder_and_latch():
    """A closed latch means reads only, and never hides a lower rung."""
    tainted = latch(RunState("r"), TAINT)
    assert tainted.effective_mode == "safe_mode"
    assert step_down_to(tainted, "final_answer", "loop_detected").effective_mode == "final_answer"
    assert RunState("r").effective_mode == "normal"


def test_repeats_count_only_this_very_call():
    """Another signature or another tool has its own count; success clears the tool's own ones."""
    repeats = Repeats()
    repeats.forget_tool("a")
    repeats.add_failure("a", "x")
    repeats.add_failure("a", "x")
    repeats.add_failure("a", "y")
    repeats.add_failure("b", "x")
    assert [repeats.failure_count(*key) for key in (("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"))] == [2, 1, 1, 0]
    repeats.forget_tool("a")
    assert [repeats.failure_count("a", "x"), repeats.failure_count("b", "x")] == [0, 1]
    repeats.clear()
    assert repeats.failure_count("b", "x") == 0


def test_repeats_are_bounded():
    """However many different calls fail, only the newest signatures are kept."""
    repeats = Repeats(size=3)
    for number in range(10):
        repeats.add_failure("a", str(number))
    assert [repeats.failure_count("a", str(number)) for number in range(10)] == [0] * 7 + [1] * 3
    for tool in "bcd":
        repeats.add_failure(tool, "x")
    assert [repeats.failure_count(*key) for key in (("a", "9"), ("b", "x"), ("d", "x"))] == [0, 1, 1]


def test_findings_for_loops_and_budgets_say_what_to_do():
    """Both hints are short and tell the model what to do instead."""
    for finding in (repeated_finding("a", 3), budget_finding("calls", 11, 10)):
        assert finding.hint
        assert len(finding.hint) < 600


@pytest.mark.parametrize(
    ("state", "message_id", "same"),
    [
        (RunState("r", asked="a"), None, True),
        (RunState("r", asked="b"), None, False),
        (RunState("r", asked="a", answered=True), None, False),
        (RunState("r", asked="a", mode="final_answer"), None, False),
        (RunState("r", asked="b", message_ids=("m",)), "m", True),
        (RunState("r", asked="a"), "m", False),
    ],
)
def test_a_turn_goes_on_until_its_answer(state, message_id, same):
    """The same text goes on before the answer; with ids of messages, only a known one does."""
    assert is_same_turn(state, "a", message_id) == same
