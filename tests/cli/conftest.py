"""Commands as a user runs them, in a folder of their own."""

import pytest
from clishell import Shell

from pokayoke import open_store


@pytest.fixture
def shell(tmp_path):
    """Runs commands in the folder of the test."""
    return Shell(tmp_path)


@pytest.fixture
def named_store(monkeypatch):
    """Every command finds its store in the environment."""
    monkeypatch.setenv("POKAYOKE_STORE", "sqlite:///ledger.db")
    monkeypatch.delenv("POKAYOKE_STORE_KEY", raising=False)


@pytest.fixture
def ledger(shell, tmp_path, named_store):
    """A fresh ledger in the folder of the shell; a function that opens it."""
    assert shell("ledger", "init").returncode == 0
    return lambda: open_store(f"sqlite:///{tmp_path / 'ledger.db'}")
