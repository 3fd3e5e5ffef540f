"""Programs of the guides, each in a process of its own, which a test may kill."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from pokayoke import open_store
from tools.examples import ROOT, read_blocks, write_file

PATIENCE = 60
"""Seconds after which a program hangs."""
KILL = """
import functools, pokayoke
from pokayoke.testing import crash_at
pokayoke.Guard = functools.partial(pokayoke.Guard, on_step=crash_at("after_settle", how="{how}"))
"""
"""Before a program, it ends it when the effect and its record are done, and nobody has heard of them yet."""


class Programs:
    """The files of a guide in a folder, with an empty ledger.

    Args:
        page: name of the guide.
        folder: where its programs run.
    """

    def __init__(self, page, folder):
        self.folder = folder
        self.environment = {**os.environ, "LEDGER": "sqlite:///ledger.db"}
        for block in read_blocks(ROOT / "docs" / "guides" / page):
            write_file(block, folder)
        self.forget()

    def forget(self):
        """Begin with an empty ledger."""
        for file in self.folder.glob("ledger.db*"):
            file.unlink()
        open_store(f"sqlite:///{self.folder / 'ledger.db'}", create=True).close()

    def run(self, source, *arguments, end=None):
        """Run Python source; `end` is "kill" or "raise" for one that does not survive its effect."""
        source = (KILL.format(how=end) if end else "") + source
        return subprocess.run(
            [sys.executable, "-c", source, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )

    def start(self, source, *arguments, end=None):
        """Start Python source as above; what it prints goes to `log.txt`."""
        source = (KILL.format(how=end) if end else "") + source
        with (self.folder / "log.txt").open("w") as log:
            return subprocess.Popen(
                [sys.executable, "-c", source, *arguments],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def lines(self, name):
        """The lines of a file that stands for another system: what has really happened there."""
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def programs(tmp_path):
    """A function that returns the programs of a guide."""
    if find_spec("dbos") is None:
        pytest.skip("DBOS, Temporal, FastAPI and Celery have an environment of their own: run by make services")
    return lambda page: Programs(page, tmp_path)
