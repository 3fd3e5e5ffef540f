"""Processes that race, are killed, suspended or restarted, at a tenth of the size; POKAYOKE_FULL=1 runs them whole.

Every effect is a line in a file that no store touches. What is checked is said in `effects_verify`.
"""

import pytest
from effects_race import apart
from effects_tools import CONFIGURATIONS, UNSAFE
from pgserver import Missing

STORES = ("sqlite", "postgres")
DISTURBED = {"timeout": 0.25, "margin": 0.25, "block": 16, "pace": 0.004, "hang": 0.04}
pytestmark = pytest.mark.timeout(1_500)


@pytest.fixture
def trial(need):
    """Run a trial and return its figures; a violation is told with its key and record."""

    def tried(*, sound=True, **fields):
        try:
            found = apart(**fields)
        except Missing as error:
            need(str(error))
        if sound:
            assert found["violations"] == []
        return found["figures"]

    return tried


@pytest.mark.parametrize("store", STORES)
def test_eight_processes_race_for_the_same_effects(trial, full, store):
    """Every key has one effect, and all answers for it are equal."""
    keys = 10_000 if full else 1_000
    figures = trial(store=store, keys=keys, workers=8)
    assert figures["calls"] >= 8 * keys
    assert (figures["effects"], figures["double"], figures["unequal"]) == (keys, 0, 0)
    assert (figures["completed"], figures["executions"], figures["lost"]) == (keys, keys, 0)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("store", STORES)
def test_processes_are_killed_at_random_and_tools_hang(trial, full, store, configuration):
    """No double effect, no lost completion, and every doubt is told or resolved with evidence."""
    keys, kills = (2_000, 400) if full else (200, 40)
    figures = trial(store=store, configuration=configuration, keys=keys, kills=kills, workers=4, **DISTURBED)
    assert figures["kills"] == kills
    assert (figures["double"], figures["lost"], figures["unequal"]) == (0, 0, 0)
    assert figures["completed"] + figures["in doubt"] == keys
    assert figures["told in doubt"] > 0
    if configuration != "human":
        assert (figures["effects"], figures["in doubt"]) == (keys, 0)


@pytest.mark.privileged
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_the_server_is_restarted_at_once_and_again(trial, full, configuration):
    """Through immediate restarts of PostgreSQL, and kills beside them: no double effect, no lost completion."""
    if not full and configuration != "human":
        pytest.skip("POKAYOKE_FULL=1 runs the other configurations")
    keys, kills, restarts = (2_000, 400, 8) if full else (100, 20, 2)
    figures = trial(
        store="cluster", configuration=configuration, keys=keys, kills=kills, restarts=restarts, workers=4, **DISTURBED
    )
    assert (figures["restarts"], figures["kills"]) == (restarts, kills)
    assert (figures["double"], figures["lost"], figures["unequal"]) == (0, 0, 0)
    assert figures["completed"] + figures["in doubt"] == keys


@pytest.mark.parametrize(
    ("store", "configuration"),
    [("sqlite", "human"), ("sqlite", "downstream_key"), ("postgres", "downstream_key"), ("postgres", "lookup_executor_dead")],
)  # fmt: skip
def test_processes_are_suspended_for_longer_than_their_leases(trial, full, store, configuration):
    """What a suspended process does afterwards is no second effect: its late word is taken or kept as an event."""
    keys, stops = (1_000, 100) if full else (60, 6)
    short = {**DISTURBED, "timeout": 0.3, "margin": 0.1, "pace": 0.01}
    figures = trial(store=store, configuration=configuration, keys=keys, stops=stops, workers=4, **short)
    assert figures["stops"] == stops
    assert (figures["effects"], figures["completed"], figures["double"], figures["lost"]) == (keys, keys, 0, 0)


@pytest.mark.parametrize("store", STORES)
def test_processes_that_await_are_killed_too(trial, full, store):
    """The asynchronous driver keeps the same promises."""
    keys, kills = (2_000, 400) if full else (100, 20)
    figures = trial(
        store=store, configuration="lookup_executor_dead", keys=keys, kills=kills, workers=4, asynchronous=True, **DISTURBED
    )  # fmt: skip
    assert (figures["effects"], figures["double"], figures["lost"], figures["in doubt"]) == (keys, 0, 0, 0)


def test_a_store_that_looks_before_it_writes_shows_double_effects(trial):
    """The race sees a ledger whose admission is not one act, on a busy machine not each time."""
    race = {"sound": False, "store": "sqlite", "configuration": "check_then_act", "keys": 1_000, "workers": 8}
    assert any(trial(**race)["double"] > 0 for _ in range(4))


@pytest.mark.parametrize("configuration", [name for name in UNSAFE if name != "check_then_act"])
def test_a_promise_that_is_not_kept_shows_double_effects(trial, full, configuration):
    """The kills see a contract that says more than its tool or target does, on a busy machine not each time."""
    if not full and configuration in ("dead_but_under_way", "downstream_that_repeats"):
        pytest.skip("POKAYOKE_FULL=1 runs the other controls")
    # Slow enough after its effect that many kills find it there; a target acts after many a lookup has found nothing.
    lying = {**DISTURBED, "slow": 1.0, "pace": 0.1}
    lie = {"sound": False, "store": "sqlite", "configuration": configuration, "keys": 80, "kills": 50, "workers": 4}
    assert any(trial(**lie, **lying)["double"] > 0 for _ in range(3))
