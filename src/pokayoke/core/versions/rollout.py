"""Chooses the version of a tool for a run: drawn once from the run's id, then pinned in its state.

In: a run's id, its pinned versions, and the lock.
Out: the version of each tool.
Never: give a run two versions of one tool; draw differently in two processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.json.canonical import sha256_hex
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.state.run_state import RunState

if TYPE_CHECKING:
    from pokayoke.core.versions.lock import ContractLock, ToolLock

NOT_OFFERED: Final = ""
"""Pinned for a new tool that is not offered to this run yet."""

Pins = tuple[tuple[str, str], ...]
_DIGITS: Final = 16
_SCALE: Final = 16**_DIGITS


def draw_number(run_id: str, tool: str, rollout: str) -> float:
    """Return a number from 0 to below 1, the same in every process: a run belongs to every share above it.

    It differs between rollouts, so that new versions do not always reach the same runs first.
    """
    return int(sha256_hex(dump_compact(["pk-rollout", run_id, tool, rollout], sort=True))[:_DIGITS], 16) / _SCALE


def version_for(run_id: str, name: str, tool: ToolLock) -> str:
    """Return the version for a new run, or `NOT_OFFERED`."""
    one = tool.candidate
    if (
        one is not None
        and one.stage == "canary"
        and (one.share >= 1.0 or draw_number(run_id, name, one.rollout) < one.share)
    ):
        return one.version
    return tool.stable if tool.stable is not None else NOT_OFFERED


def versions_for(run_id: str, lock: ContractLock, names: Iterable[str]) -> dict[str, str]:
    """Return the version of each locked tool for a new run."""
    return {name: version_for(run_id, name, lock.tools[name]) for name in names if name in lock.tools}


def pin_versions(state: RunState, versions: Mapping[str, str]) -> RunState:
    """Pin a run to versions; versions that are already pinned stay."""
    known = dict(state.versions)
    fresh = {name: version for name, version in versions.items() if name not in known}
    if not fresh:
        return state
    return msgspec.structs.replace(state, versions=tuple(sorted({**known, **fresh}.items())))


def withdrawn_finding(tool: str, version: str) -> Finding:
    """Return the finding for a call of a tool whose version was withdrawn from this run."""
    return Finding(
        code="version_withdrawn",
        blame="policy",
        message=f"{tool}@{version}, with which this run began, was withdrawn; a run is never switched to another",
        hint=f"{tool} cannot be used any more in this run. Do not call it again; tell the user what was not done.",
        data={"contract": f"{tool}@{version}"},
    )
