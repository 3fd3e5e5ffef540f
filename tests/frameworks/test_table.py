"""What `make frameworks` prints, and its exit code."""

import argparse

import pytest

from tools import environments
from tools.environments import BuildError, build
from tools.frameworks import Report, Work, costs, summary, table, verdict


def conversation(scenario, ok=True, *, wire="chat", mode="async", guarded=True, cell="ok"):
    """A result as the runner prints it."""
    wrong = [] if ok else ["refund ran"]
    return {
        "scenario": scenario, "wire": wire, "mode": mode, "guarded": guarded, "cell": cell, "ok": ok, "wrong": wrong
    }  # fmt: skip


def report(*guarded, alone=(), impossible=None, **more):
    """A framework's report."""
    about = {"title": "Frame", "version": "1.0", "impossible": impossible or {}, "conversations": len(guarded)}
    return Report("frame", about, list(guarded), list(alone), **more)


def rows(text):
    """The cells of a table, without its line of dashes."""
    return [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if "-|-" not in line]


def test_a_cell_is_ok_if_all_its_conversations_are():
    """One that went wrong, in whatever mode, makes the cell wrong; below the table stands which."""
    one = report(conversation("a"), conversation("a", mode="stream"), conversation("b"), conversation("b", ok=False))
    assert rows(table([one], unguarded=False)) == [["scenario", "Frame 1.0"], ["a", "ok"], ["b", "WRONG"]]
    assert "frame: WRONG 'b' (chat, async): refund ran" in summary([one])
    assert "3 of 4 conversations right" in summary([one])
    assert verdict([one]) == 1


def test_beside_it_stands_the_framework_alone():
    """Each thing that it did in one of its modes is named once."""
    alone = [conversation("a", ok=False, guarded=False, cell=cell) for cell in ("S", "C KeyError", "S")]
    shown = table([report(conversation("a"), alone=alone)], unguarded=True)
    assert rows(shown) == [["scenario", "Frame 1.0", "alone"], ["a", "ok", "S / C KeyError"]]


def test_frameworks_that_nobody_could_play_leave_room():
    """A scenario that one framework was not played has a dash there; what was not run at all says why."""
    both = [report(conversation("a")), report(conversation("b")), Report("lost", problem="no lock")]
    assert rows(table(both, unguarded=False))[1:] == [["a", "ok", "-"], ["b", "-", "ok"]]
    assert "lost: cannot be run: no lock" in summary(both)
    assert verdict(both) == 2


@pytest.mark.parametrize(
    ("key", "cell", "code"),
    [("a", "impossible", 0), ("a @chat", "impossible", 0), ("a @chat/async", "impossible", 0), ("a @chat/sync", "WRONG", 1)],
)  # fmt: skip
def test_what_is_impossible_has_a_reason(key, cell, code):
    """A reason excuses the conversations it names and no others."""
    one = report(conversation("a", ok=False), conversation("a", wire="responses"), impossible={key: "for a reason"})
    assert one.cell("a") == cell
    assert "for a reason" in summary([one])
    assert verdict([one]) == code


def test_a_reason_that_is_no_longer_needed_is_an_error():
    """What is said to be impossible and is right by now must not be said any more."""
    one = report(conversation("a"), conversation("b"), impossible={"a": "for a reason", "c": "was not played"})
    assert one.outdated == ["a"]
    assert "right by now" in summary([one])
    assert verdict([one]) == 1


def test_a_failing_test_or_guide_is_an_error():
    """The table alone does not make it green."""
    assert verdict([report(conversation("a"))]) == 0
    assert verdict([report(conversation("a"), failed=["guide"])]) == 1


@pytest.mark.parametrize(("bound", "code"), [(5.0, 1), (20.0, 0), (None, 0)])
def test_the_cost_is_held_against_its_bound(bound, code):
    """What a guarded turn adds counts over one with empty hooks."""
    turn = {"none": 1e-3, "empty": 2e-3, "guarded": 2.2e-3}
    one = report(cost={"turn": turn, "bound": bound, "quartiles": [1.08, 1.12]})
    assert "200 µs" in costs([one])
    assert "10.0 %" in costs([one])
    assert "8.0 to 12.0 %" in costs([one])
    assert verdict([one]) == code


async def test_an_environment_without_a_lock_is_a_problem(tmp_path, monkeypatch):
    """What cannot be built is reported with the command that helps, and the others go on."""
    monkeypatch.setattr(environments, "LOCKS", environments.ROOT / "no such folder")
    with pytest.raises(BuildError, match="make lock"):
        await build("plain", print)
    work = Work(argparse.Namespace(lowest=False, overhead=False, write=False))
    assert "make lock" in (await work.take("plain")).problem
