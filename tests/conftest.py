"""Fixtures every test may use."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings

SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("short", max_examples=100, **SLOW)
# The same examples each time: a change that has nothing to do with a law is not held up by what chance finds in it.
settings.register_profile("ci", settings.get_profile("short"), derandomize=True)
settings.register_profile("full", max_examples=2_000, **SLOW)
settings.load_profile("full" if os.environ.get("POKAYOKE_FULL") else "ci" if os.environ.get("CI") else "short")


@pytest.hookimpl(optionalhook=True)  # the environments of the frameworks have no xdist
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One worker more than processors: many tests wait for processes, servers and deadlines."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that stay together in one worker: the last of them must not wait for all others."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


def unavailable(reason: str) -> NoReturn:
    """End a test whose surroundings are missing: a user's machine skips it, CI fails it.

    Args:
        reason: what is missing and how to provide it.
    """
    if os.environ.get("CI"):
        pytest.fail(f"CI has to provide this: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def need() -> Callable[[str], NoReturn]:
    """The function a test calls with a reason when this machine cannot run it."""
    return unavailable


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the measurement data, named by POKAYOKE_SHARED; skips where it is absent."""
    folder = os.environ.get("POKAYOKE_SHARED")
    if not folder or not (Path(folder) / "data").is_dir():
        pytest.skip("the measurement data is not here: set POKAYOKE_SHARED to its folder")
    return Path(folder)


@pytest.fixture(scope="session")
def full() -> bool:
    """True when long checks run at full size (POKAYOKE_FULL=1)."""
    return bool(os.environ.get("POKAYOKE_FULL"))
