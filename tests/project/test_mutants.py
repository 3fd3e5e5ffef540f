"""No condition of the rules can be taken away without a test turning red; `python -m tools.mutants` tries all of them."""

import subprocess
import sys

import pytest

from tools.mutants import EQUIVALENT, ROOT, TARGETS, mutants

SMALL = {
    "pokayoke.core.ledger.transitions": 24,
    "pokayoke.core.ledger.admission": 24,
    "pokayoke.core.flow.repetition": 12,
    "pokayoke.core.state.kill_switch": 40,
}


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("target", TARGETS)
def test_every_condition_is_missed_when_it_is_gone(target, full):
    """A rule with one condition less is noticed by its tests: some of them here, all of them at full size."""
    if not full and target not in SMALL:
        pytest.skip("all targets: POKAYOKE_FULL=1")
    every = "1" if full else str(SMALL[target])
    # In a process that has not imported the rules yet: there a changed module takes the place of the right one.
    done = subprocess.run(
        [sys.executable, "-m", "tools.mutants", target, "--every", every], cwd=ROOT, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 alive" in done.stdout


def test_a_mutant_that_changes_nothing_lives():
    """The check can fail: a program that is only written differently is noticed by nobody."""
    target = "pokayoke.core.ledger.transitions"
    script = (
        "import sys; from tools.mutants import Mutant, TARGETS, source_of, is_surviving; "
        f"sys.exit(not is_surviving(Mutant({target!r}, 'nothing', source_of({target!r})), TARGETS[{target!r}]))"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0


def test_every_explained_mutant_exists():
    """An explanation of a mutant that is not there any more is out of date."""
    known = {mutant.name for target in TARGETS for mutant in mutants(target)}
    assert set(EQUIVALENT) <= known
    assert all(EQUIVALENT.values())
