"""No condition of the rules can be taken away without a test turning red; `python -m tools.mutants` tries all of them."""

import pytest

from tools.mutants import EQUIVALENT, TARGETS, Mutant, living, mutants, source_of, survives

SMALL = {"pokayoke.core.ledger": 12, "pokayoke.core.admission": 12, "pokayoke.core.switch": 20}


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("target", TARGETS)
def test_every_condition_is_missed_when_it_is_gone(target, full):
    """A rule with one condition less is noticed by its tests: some of them here, all of them at full size."""
    if not full and target not in SMALL:
        pytest.skip("all targets: POKAYOKE_FULL=1")
    assert [mutant.what for mutant in living(target, every=1 if full else SMALL[target])] == []


def test_a_mutant_that_changes_nothing_lives():
    """The check can fail: a program that is only written differently is noticed by nobody."""
    target = "pokayoke.core.ledger"
    assert survives(Mutant(target, "1: nothing", source_of(target)), TARGETS[target])


def test_every_explained_mutant_exists():
    """An explanation of a mutant that is not there any more is out of date."""
    known = {mutant.name for target in TARGETS for mutant in mutants(target)}
    assert set(EQUIVALENT) <= known
    assert all(EQUIVALENT.values())
