"""Importing the package loads what every user needs, and nothing that only some do."""

import subprocess
import sys

import pytest

HEAVY = ("asyncio", "concurrent.futures", "email", "jsonschema_rs", "logging", "pydantic", "rapidfuzz", "rich")
HEAVY += ("ruamel", "ssl", "subprocess", "typer")


@pytest.fixture(scope="module")
def loaded():
    """The modules that `import pokayoke` leaves behind in a fresh process."""
    command = [sys.executable, "-c", "import pokayoke, sys; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("module", HEAVY)
def test_importing_loads_nothing_heavy(loaded, module):
    """Event loops, the validator, spelling distances and everything for terminals wait until they are used."""
    assert module not in loaded


def test_every_public_name_is_there():
    """Each name of `__all__` can be imported, and stands there without a trick."""
    code = "import pokayoke; assert not set(pokayoke.__all__) - vars(pokayoke).keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
