"""What the dashboard shows of two versions and does with them: the comparisons and steps of `pokayoke contracts`.

In: the lock, and a trace file with recorded calls.
Out: changes, their effect on recorded calls, a step that was taken.
Never: a step that the command would refuse.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path
from typing import Final

from pokayoke.cli.contracts.diff import score_recordings
from pokayoke.cli.contracts.lock_options import LockedContracts, build_step_reason, is_module_attribute
from pokayoke.cli.contracts.rollout import plan_promotion, plan_rollback, plan_widening, take_step
from pokayoke.core.contract.contract import Contract
from pokayoke.core.versions.contract_diff import contract_changes
from pokayoke.core.versions.lock import describe_versions
from pokayoke.dashboard.desk import RecordedEffect, VersionChange, VersionComparison
from pokayoke.errors import ConfigurationError
from pokayoke.runtime.versions.lock_file import read_lock

_MOST_BYTES: Final = 20_000_000
"""The end of a trace that is scored: a page answers within seconds."""


class LockSteps:
    """Compares the versions of a lock, and takes its steps.

    Args:
        lock: the lock.
        trace: recorded calls, or None.
    """

    def __init__(self, lock: Path, trace: Path | None) -> None:
        self._lock, self._trace = lock, trace
        self._read: tuple[object, LockedContracts] | None = None

    def compare(self, tool: str, *, scored: bool) -> VersionComparison | None:
        """Return what the candidate changes, or what the stable version has changed; None if there is one only.

        Args:
            tool: the tool.
            scored: whether to judge recorded calls with both.

        Raises:
            ConfigurationError: a version cannot be read, or is not what was locked.
        """
        pair = self._load_pair(tool)
        if pair is None:
            return None
        old, new = pair
        changes = tuple(
            VersionChange(one.at, one.what, one.kind, ", ".join(one.breaks)) for one in contract_changes(old, new)
        )
        return VersionComparison(old.id, new.id, changes, self._score(old, new) if scored else None)

    def find_writers(self, source: str) -> tuple[str, ...]:
        """Return the writes in force that build on a tool, or that do not say on what they build.

        Contracts that are code are left out: looking at a page runs no code of others.
        """
        lock = read_lock(self._lock)
        places = {
            (name, version, tool.versions[version].source)
            for name, tool in lock.tools.items()
            for version in tool.in_force
            if not is_module_attribute(tool.versions[version].source)
        }
        shelf = self._open_shelf(sorted({place[2] for place in places}))
        found = [shelf.load_contract(lock, name, version) for name, version, _ in sorted(places)]
        return tuple(
            dict.fromkeys(
                one.name
                for one in found
                if one.effect != "read" and (one.sources is None or source in one.sources or one.name == source)
            )
        )

    def take(self, tool: str, step: str, share: str, *, by: str, reason: str) -> str:
        """Promote, widen or roll back; return what is in force by now, and what keeps programs from following.

        Raises:
            ConfigurationError: the step is not known or cannot be taken, or name or reason is missing.
        """
        done = build_step_reason(by, reason)
        if step == "promote":
            how = plan_promotion(tool, done)
        elif step == "widen":
            how = plan_widening(tool, share, done)
        elif step == "rollback":
            how = plan_rollback(tool, done)
        else:
            raise ConfigurationError("say what to do: promote, widen or rollback")
        after, drifts = take_step(str(self._lock), tool, how)
        said = f"{tool}: {describe_versions(after.tools.get(tool))}"
        return f"{said}. Programs cannot take it over until this is put right: {drifts[0].why}" if drifts else said

    def _load_pair(self, tool: str) -> tuple[Contract, Contract] | None:
        lock = read_lock(self._lock)
        entry = lock.tools.get(tool)
        if entry is None or entry.stable is None:
            return None
        if entry.candidate is not None:
            pair = (entry.stable, entry.candidate.version)
        elif entry.previous:
            pair = (entry.previous[-1], entry.stable)
        else:
            return None
        sources = sorted({entry.versions[version].source for version in pair})
        if any(is_module_attribute(source) for source in sources):  # looking at a page runs no code of others
            raise ConfigurationError(f"the contracts of {tool} are code: `pokayoke contracts diff` compares them")
        shelf = self._open_shelf(sources)
        return shelf.load_contract(lock, tool, pair[0]), shelf.load_contract(lock, tool, pair[1])

    def _open_shelf(self, sources: list[str]) -> LockedContracts:
        """Return the contracts of some files, which are read again once one of them has changed."""
        files = [self._lock.parent / source for source in sources]
        stamp = [(str(file), found.st_mtime_ns, found.st_size) for file in files if (found := _stat(file)) is not None]
        if self._read is None or self._read[0] != stamp:
            self._read = (stamp, LockedContracts(self._lock))
        return self._read[1]

    def _score(self, old: Contract, new: Contract) -> RecordedEffect | None:
        if self._trace is None or not self._trace.exists():
            return None
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as part:
            size = self._trace.stat().st_size
            with self._trace.open("rb") as file:
                if size > _MOST_BYTES:
                    file.seek(size - _MOST_BYTES)
                    file.readline()
                for chunk in itertools.takewhile(bool, iter(lambda: file.read(1_000_000), None)):
                    part.write(chunk)
            part.flush()
            found = score_recordings([old], [new], [part.name], None, None)
        ways = tuple((str(one["way"]), int(one["count"])) for one in found["changes"])
        return RecordedEffect(found["calls"], found["broken"], found["mended"], ways)


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:
        return None
