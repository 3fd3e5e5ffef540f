"""Crash points."""

import os
import signal

import pytest

from pokayoke.testing import STEPS, Crash, crash_at, died, run_script

PROGRAM = """
import atexit, sys
from pokayoke.testing import crash_at
atexit.register(print, "tidied up", flush=True)
point = crash_at("after_claim", int(sys.argv[1]))
try:
    for turn in range(3):
        for step in ("after_claim", "before_invoke"):
            print(turn, step, flush=True)
            point(step)
finally:
    print("finally", flush=True)
"""


@pytest.mark.parametrize(("n", "lines"), [(1, 1), (2, 3), (3, 5)])
def test_the_process_dies_at_the_nth_passing(n, lines):
    """SIGKILL comes at exactly the n-th passing of the step and nothing is tidied up after it."""
    done = run_script(PROGRAM, [str(n)])
    assert died(done.returncode)
    assert len(done.stdout.splitlines()) == lines
    assert "finally" not in done.stdout
    assert "tidied" not in done.stdout


def test_a_point_that_is_not_reached_changes_nothing():
    """A program that never passes the step n times ends by itself."""
    done = run_script(PROGRAM, ["9"])
    assert not died(done.returncode)
    assert done.stdout.splitlines()[-2:] == ["finally", "tidied up"]


def test_the_script_sees_its_environment():
    """Variables given to a script are added to this process's own."""
    done = run_script("import os; print(os.environ['CRASH'], 'PATH' in os.environ)", environment={"CRASH": "now"})
    assert done.stdout == "now True\n"


def passing(point, steps):
    """Announce steps the way a guard does, with a handler for failures around each."""
    for step in steps:
        try:
            point(step)
        except Exception:
            pytest.fail("a crash was swallowed")


def test_raising_keeps_the_process():
    """With how="raise" the step ends in a Crash, once, which no `except Exception` swallows."""
    point = crash_at("after_invoke", how="raise")
    with pytest.raises(Crash, match="after_invoke"):
        passing(point, STEPS)
    point("after_invoke")
    assert point.passed == ["after_claim", "before_invoke", "after_invoke", "after_invoke"]


def test_killing_is_sigkill_to_oneself(monkeypatch):
    """The signal is the one nobody can handle, sent to this process and no other."""
    sent = []
    monkeypatch.setattr(os, "kill", lambda *what: sent.append(what))
    crash_at("after_claim")("after_claim")
    assert sent == [(os.getpid(), signal.SIGKILL)]


def test_n_counts_from_one():
    """A zeroth passing does not exist."""
    with pytest.raises(ValueError, match="1 or more"):
        crash_at("after_claim", 0)


@pytest.mark.parametrize(("step", "how"), [("after_clam", "kill"), ("", "raise"), ("after_claim", "rais")])
def test_a_point_that_can_never_be_reached_is_refused(step, how):
    """A misspelt crash point would make a test pass that tests nothing."""
    with pytest.raises(ValueError, match=r"announces|'kill' or 'raise'"):
        crash_at(step, how=how)
