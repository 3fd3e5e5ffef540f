"""Ledger and trace of the guarded runs, kept so that the dashboard can show them.

In: a folder.
Out: a store and the path of a trace file.
Never: a run of an earlier demo in the same ledger.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from pokayoke.core.state.kill_switch import ALL_TOOLS
from pokayoke.stores import Store, open_store
from pokayoke.stores.values import SwitchCommand


class KeptRuns(msgspec.Struct, frozen=True):
    """Where the guarded runs of one demo are kept.

    Args:
        url: of the store.
        store: the open store.
        trace: the trace file.
    """

    url: str
    store: Store
    trace: Path

    @property
    def command(self) -> str:
        """The command that shows them, as it runs from the current folder."""
        python = Path(sys.executable)
        here = python.relative_to(Path.cwd()) if python.is_relative_to(Path.cwd()) else python
        program = "pokayoke" if shutil.which("pokayoke") else f"{here} -m pokayoke"
        return f"{program} dashboard --store {self.url} --trace {self.trace}"

    def close_switches(self) -> None:
        """Close every switch, so that what one script has tripped does not stop the next one."""
        opened = [switch.scope for switch in self.store.switches() if switch.mode != "closed"]
        invalid = any(not valid for rate in self.store.rates() for _, valid in rate.recent)
        for scope in (*opened, ALL_TOOLS) if opened or invalid else ():  # the last one lets all counts begin anew
            self.store.flip(SwitchCommand(scope, "closed", "the demo", "the next script begins", time.time()))


@contextmanager
def keep_runs() -> Generator[KeptRuns]:
    """Yield a new ledger and trace in a folder of their own, which stays."""
    folder = Path(tempfile.mkdtemp(prefix="pokayoke-demo-"))
    url = f"sqlite:///{folder}/ledger.db"
    store = open_store(url, create=True)
    try:
        yield KeptRuns(url, store, folder / "trace.jsonl")
    finally:
        store.close()
