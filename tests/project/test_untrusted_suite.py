"""The untrusted suite measures the policy and nothing else."""

from tests.support import untrusted_suite as suite


def test_without_a_policy_every_task_passes_and_every_attack_succeeds():
    """Each task runs undisturbed without an error, and each attack whose payload is read reaches its goal."""
    figures = suite.measure(suite.allow_everything, "labels")
    assert (figures.failures, figures.disturbances, figures.blocks) == ((), (), ())
    assert set(figures.attacks.values()) == {1.0}


def test_a_question_before_every_write_stops_every_attack():
    """No attack passes a person who is asked about every call that changes something."""
    figures = suite.measure(suite.ask_before_writes, "labels")
    assert (figures.failures, figures.breaches) == ((), {})
    assert figures.undisturbed["read"] == 1.0
