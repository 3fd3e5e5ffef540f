"""Several versions of a guard's tools at the same time: each run keeps one version of each for its lifetime.

In: a lock file that may change at any moment.
Out: the tools that a run sees.
Never: a run that sees two versions of one tool, in this process or another, before or after a restart.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from pokayoke.core.contract.contract import Contract
from pokayoke.core.policy import Policy
from pokayoke.core.state.loop_guard import Kind
from pokayoke.core.versions.lock import ContractLock
from pokayoke.core.versions.rollout import NOT_OFFERED, Pins, versions_for
from pokayoke.errors import ConfigurationError, StoreError
from pokayoke.runtime.memory.run_memory import RunMemory
from pokayoke.runtime.threads.forks import on_fork
from pokayoke.runtime.tools.view import ToolView
from pokayoke.runtime.versions.lock_file import LockFile, file_signature
from pokayoke.runtime.versions.locked_contracts import GivenTool, LockedTools, load_locked_tools

_KEPT_VIEWS: Final = 16
Signatures = Mapping[str, tuple[int, ...] | None]


class Rollout:
    """The versions that a lock puts in force, for the tools of one guard.

    Args:
        path: of the lock.
        pager: as for `ToolView`.
        kinds: as for `ToolView`.

    Attributes:
        edition: the lock in force, with its contracts.
    """

    def __init__(self, path: str | os.PathLike[str], pager: Contract, kinds: tuple[Kind, ...]) -> None:
        """Prepare, and read nothing yet; `prepare_swap` reads."""
        self._file = LockFile(path)
        self._pager, self._kinds = pager, kinds
        self._lock = threading.Lock()
        on_fork(self, Rollout.reset_after_fork)
        self._views: weakref.WeakValueDictionary[Pins, ToolView] = weakref.WeakValueDictionary()
        self._recent: OrderedDict[Pins, ToolView] = OrderedDict()
        self._unusable: Signatures | None = None
        self.edition = LockedTools(ContractLock(), {}, (), {})
        self._policy: Policy

    def reset_after_fork(self) -> None:
        """Start anew in a child process, whose parent may have held the lock."""
        self._lock = threading.Lock()

    def has_changed(self) -> bool:
        """Check the lock; True if it changed since it was last read, or if its files were repaired."""
        return self._file.has_changed() or (
            self._unusable is not None and _file_signatures(self._unusable) != self._unusable
        )

    def prepare_swap(
        self, given: Iterable[GivenTool], policy: Policy, stable: ToolView
    ) -> tuple[tuple[Contract, ...], Callable[[], None]]:
        """Read the lock, and find the versions of these tools.

        Args:
            given: the tools.
            policy: the access rules.
            stable: shows the stable versions.

        Returns:
            The contracts in force, and a function that puts them in force: open runs keep their versions. It raises
            ConfigurationError if a view cannot be built; then nothing has changed.

        Raises:
            ConfigurationError: see `load_locked_tools`; the old lock stays in force.
        """
        lock = self._file.read_lock()
        folder = self._file.path.parent
        sources = {str(folder / one.source) for tool in lock.tools.values() for one in tool.versions.values()}
        signatures = _file_signatures(sources)  # before they are read, so that a change meanwhile is noticed
        try:
            found = load_locked_tools(lock, self._file.path, given, self.edition.contracts)
        except ConfigurationError:
            self._unusable = signatures
            raise
        self._unusable = None
        return found.contracts_in_force, partial(self._put_in_force, found, policy, stable)

    def _put_in_force(self, found: LockedTools, policy: Policy, stable: ToolView) -> None:
        with self._lock:
            views: list[tuple[ToolView, Mapping[str, str]]] = [
                (stable, {}),
                *((view, dict(pins)) for pins, view in list(self._views.items())),
            ]
            swaps = [_prepare_view(view, found, policy, pins) for view, pins in views]
            self.edition, self._policy = found, policy
            for swap in swaps:
                swap()

    def view_for(self, progress: RunMemory, *, named: bool) -> ToolView:
        """Return the tools that a run sees: those it started with, or those drawn for it now.

        Args:
            progress: of the run; its versions are pinned there and in the store.
            named: True if another process may open the run.

        Raises:
            StoreError: a run that others may open cannot be pinned, because the store cannot be reached.
        """
        found = self.edition
        known = dict(progress.state.versions)
        if any(name not in known for name in found.names):
            drawn = versions_for(progress.state.run_id, found.lock, found.names)
            problem = progress.pin_versions({**{name: one.version for name, one in found.free.items()}, **drawn})
            if problem is not None and named:
                raise StoreError(
                    f"run {progress.state.run_id!r} cannot be opened: which version of its tools it uses could not be "
                    f"kept ({problem}), and another process might choose others"
                )
            known = dict(progress.state.versions)
        return self._shared_view(tuple((name, known[name]) for name in found.names if name in known))

    def _shared_view(self, pins: Pins) -> ToolView:
        """Return one view for all runs with the same versions."""
        with self._lock:
            view = self._views.get(pins)
            if view is None:
                view = ToolView(self._pager, self._kinds, watched=True)
                _prepare_view(view, self.edition, self._policy, dict(pins))()
                self._views[pins] = view
            self._recent[pins] = view
            self._recent.move_to_end(pins)
            if len(self._recent) > _KEPT_VIEWS:
                self._recent.popitem(last=False)
            return view


def _file_signatures(paths: Iterable[str]) -> Signatures:
    """Return the signature of each file."""
    return {path: file_signature(path) for path in paths}


def _prepare_view(view: ToolView, found: LockedTools, policy: Policy, pins: Mapping[str, str]) -> Callable[[], None]:
    tools, withdrawn, shadows = _tools_for_pins(found, pins)
    return view.prepare_swap(tools, policy, withdrawn=withdrawn, shadows=shadows)


def _tools_for_pins(found: LockedTools, pins: Mapping[str, str]) -> tuple[list[Contract], set[str], list[Contract]]:
    """Return the contracts of some pins, the ids of those that may not be called, and the shadows."""
    tools: list[Contract] = []
    withdrawn: set[str] = set()
    shadows: list[Contract] = []
    for name in found.names:
        entry, free = found.lock.tools.get(name), found.free.get(name)
        stable = (entry.stable or NOT_OFFERED) if entry is not None else free.version if free is not None else ""
        version = pins.get(name, stable)
        if version == NOT_OFFERED:
            continue
        ident = f"{name}@{version}"
        contract = found.contracts.get(ident) if entry is not None else free
        if contract is None or contract.version != version:
            contract = _stand_in(name, version)
            withdrawn.add(ident)
        elif entry is not None and version in entry.withdrawn:
            withdrawn.add(ident)
        tools.append(contract)
        candidate = entry.candidate if entry is not None else None
        if candidate is not None and candidate.stage == "shadow" and version == stable:
            shadows.append(found.contracts[f"{name}@{candidate.version}"])
    return tools, withdrawn, shadows


def _stand_in(name: str, version: str) -> Contract:
    """Return a contract for a version whose definition is gone. Its calls are all refused, so it promises nothing."""
    anything: dict[str, Any] = {"type": "object"}
    return Contract.from_schema(name, anything, version=version)
