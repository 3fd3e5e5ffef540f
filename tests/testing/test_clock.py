"""The frozen clock."""

import pytest

from pokayoke.runtime.threads import clock as clocks
from pokayoke.runtime.threads.clock import SystemClock
from pokayoke.testing import FrozenClock


def test_it_stands_still():
    """Without being told, no time passes."""
    clock = FrozenClock(100.0, monotonic=5.0)
    assert [(clock.now(), clock.monotonic()) for _ in range(2)] == [(100.0, 5.0)] * 2


def test_both_clocks_move_together():
    """Advancing moves the wall clock and the monotonic clock by the same amount."""
    clock = FrozenClock(100.0, monotonic=5.0)
    clock.advance(2.5)
    assert (clock.now(), clock.monotonic()) == (102.5, 7.5)


def test_the_monotonic_clock_never_goes_back():
    """Going back is refused for both and possible for the wall clock alone."""
    clock = FrozenClock(100.0, monotonic=5.0)
    with pytest.raises(ValueError, match="set_back"):
        clock.advance(-1)
    clock.set_back(60)
    assert (clock.now(), clock.monotonic()) == (40.0, 5.0)


async def test_sleeping_takes_no_time():
    """Sleeping, sync and async, moves the clocks at once and is noted."""
    clock = FrozenClock(0.0, monotonic=0.0)
    clock.sleep(3600)
    await clock.asleep(60)
    assert clock.now() == clock.monotonic() == 3660
    assert clock.slept == [3600, 60]


@pytest.mark.parametrize(("asked", "slept"), [(0.5, 0.5), (1e10, clocks.LONGEST_WAIT), (1e300, clocks.LONGEST_WAIT)])
def test_the_machine_sleeps_no_longer_than_it_can_count(monkeypatch, asked, slept):
    """A delay of centuries, such as a retry's in a configuration, is a long sleep and no overflow."""
    noted = []
    monkeypatch.setattr(clocks.time, "sleep", noted.append)
    SystemClock().sleep(asked)
    assert noted == [slept]
