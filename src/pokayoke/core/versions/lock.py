"""The lock: which version of each tool is in force, and the history of changes.

In: a lock and an operator's step.
Out: a new lock with one more entry, or an exception that says what to do instead.
Never: put a version in force whose digest is not locked; change a lock without an entry.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.importers import to_mapping
from pokayoke.core.json.canonical import canonical_bytes, sha256_hex
from pokayoke.errors import ConfigurationError, ContractError

Stage = Literal["shadow", "canary"]
Step = Literal["lock", "shadow", "canary", "widen", "promote", "rollback", "drop"]

FORMAT: Final = 1
"""Format of the file; a later format is refused."""


class Version(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One version of a tool: the digest of its contract.

    Args:
        digest: digest of the whole contract except its name and version.
        source: location of the contract: a file, relative to the lock, or `module:attribute`.
    """

    digest: str
    source: str


class Candidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The version on trial, which may become the stable one.

    Args:
        version: the version.
        stage: `shadow`: it judges calls next to the stable version; `canary`: a share of the runs uses it.
        share: share of the runs that use it, 0 to 1; 0 for a shadow.
        rollout: name of this attempt. Together with a run's id it decides which runs belong to the share.
    """

    version: str
    stage: Stage
    share: float
    rollout: str


class ToolLock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The versions of one tool.

    Args:
        stable: the version for all runs; None while only a share of the runs is offered a new tool.
        candidate: the version on trial, or None.
        versions: every locked version.
        previous: earlier stable versions, the latest last: the target of a rollback.
        withdrawn: versions that were rolled back; runs that began with one may no longer call it.
    """

    stable: str | None
    versions: dict[str, Version]
    candidate: Candidate | None = None
    previous: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()

    @property
    def in_force(self) -> tuple[str, ...]:
        """The versions that a new run may get."""
        named = (self.stable, self.candidate.version if self.candidate else None)
        return tuple(version for version in named if version is not None)


class LockEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of the history.

    Args:
        revision: revision of the lock after the step.
        at: time of the step in UTC, as `2026-11-21T08:00:00Z`.
        by: the operator.
        step: the step.
        tool: name of the tool.
        version: version of the tool.
        before: `describe_versions` before the step.
        after: `describe_versions` after the step.
        reason: the operator's reason.
    """

    revision: int
    at: str
    by: str
    step: Step
    tool: str
    version: str
    before: str
    after: str
    reason: str


class ContractLock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `contracts.lock`.

    Args:
        format: format of the file.
        revision: number of steps so far.
        tools: versions of each tool, by name.
        history: the steps.
        dropped: digests of dropped versions by `name@version`: runs and approvals may still name them.
    """

    format: Annotated[int, Meta(ge=1)] = FORMAT
    revision: Annotated[int, Meta(ge=0)] = 0
    tools: dict[str, ToolLock] = {}
    history: tuple[LockEntry, ...] = ()
    dropped: dict[str, str] = {}


class StepReason(msgspec.Struct, frozen=True):
    """The operator, time (UTC, ISO 8601) and reason of a step."""

    at: str
    by: str
    reason: str


def promise_digest(contract: Contract) -> str:
    """Return the digest of a contract's data, except its name and version.

    Code (handlers, callable invariants, lookups) has no digest; after a change there, set a new version by hand.
    """
    declared = {key: value for key, value in to_mapping(contract).items() if key not in ("name", "version")}
    return f"sha256:{sha256_hex(canonical_bytes(msgspec.json.decode(msgspec.json.encode(declared))))}"


def describe_versions(tool: ToolLock | None) -> str:
    """Return the versions of a tool in a few words: `1, and 2 as canary for 10 %`."""
    if tool is None:
        return "nothing"
    stable = tool.stable or "none"
    one = tool.candidate
    if one is None:
        return stable
    return f"{stable}, and {one.version} as {one.stage}" + (f" for {format_percent(one.share)}" if one.share else "")


def format_percent(share: float) -> str:
    """Return a share as a percentage: `10 %`, `0.5 %`."""
    return f"{share * 100:.10g} %"


def lock_problem(name: str, tool: ToolLock) -> str | None:
    """Return the contradiction between a tool's versions, or None; the steps never lead to one."""
    for version in (*tool.in_force, *tool.previous):
        if version not in tool.versions:
            return f"{name}@{version} is named and no version of it is locked"
    for version in tool.in_force:
        if version in tool.withdrawn:
            return f"{name}@{version} is in force and withdrawn, so that its runs would be refused; take it out of one"
    one = tool.candidate
    if one is None:
        return None
    if one.version == tool.stable:
        return f"{name}@{one.version} is stable and a candidate; take it out of one"
    if one.share == 0.0 if one.stage == "shadow" else 0.0 < one.share <= 1.0:
        return None
    expected = "0" if one.stage == "shadow" else "above 0 and at most 1, as 0.25 for a quarter"
    return f"{name}@{one.version} is a {one.stage} with the share {one.share:g}; it has to be {expected}"


# -- locked versions -------------------------------------------------------------------------------


def add_version(lock: ContractLock, contract: Contract, source: str, note: StepReason, *, stable: bool) -> ContractLock:
    """Lock one version of a tool. A version that is locked, or was before it was dropped, does not change.

    Args:
        lock: the current lock.
        contract: the version.
        source: its location.
        note: operator, time and reason.
        stable: put the first version of a tool in force at once.

    Raises:
        ContractError: the version is locked with another content.
    """
    old = lock.tools.get(contract.name)
    found = Version(promise_digest(contract), source)
    known = old.versions.get(contract.version) if old else None
    if known == found:
        return lock
    promised = known.digest if known else lock.dropped.get(contract.id, found.digest)
    if promised != found.digest:
        raise ContractError(
            f"{contract.id} in {source} is not what {'is' if known else 'was'} locked under that version. What a "
            "version promises is fixed: undo the change, or give the changed contract a new version"
        )
    if old is None:
        new = ToolLock(contract.version if stable else None, {contract.version: found})
    else:
        new = msgspec.structs.replace(old, versions={**old.versions, contract.version: found})
    return _with_entry(lock, "lock", contract.name, contract.version, new, note=note)


def drop_version(lock: ContractLock, name: str, version: str, note: StepReason) -> ContractLock:
    """Drop a version. Runs that began with it may no longer call the tool; its digest stays recorded.

    Raises:
        ConfigurationError: the version is in force, or unknown.
    """
    tool = _find_tool(lock, name, version)
    if version in tool.in_force:
        raise ConfigurationError(
            f"{name}@{version} is in force ({describe_versions(tool)}): promote or roll back first"
        )
    new = msgspec.structs.replace(
        tool,
        versions={key: value for key, value in tool.versions.items() if key != version},
        previous=tuple(one for one in tool.previous if one != version),
    )
    after = _with_entry(lock, "drop", name, version, new if new.versions else None, note=note)
    return msgspec.structs.replace(after, dropped={**lock.dropped, f"{name}@{version}": tool.versions[version].digest})


# -- steps of a rollout ----------------------------------------------------------------------------


def start_shadow(lock: ContractLock, name: str, version: str, note: StepReason) -> ContractLock:
    """Start a shadow: the version judges calls next to the stable one.

    Raises:
        ConfigurationError: the version is unknown or stable, another one is on trial, or none is stable.
    """
    tool = _tool_for_trial(lock, name, version)
    if tool.stable is None:
        raise ConfigurationError(f"{name} has no stable version that {version} could judge beside. Try: canary")
    if tool.candidate is not None:
        said = "is a shadow already" if tool.candidate.stage == "shadow" else "is used by runs: roll it back first"
        raise ConfigurationError(f"{name}@{version} {said}")
    return _set_candidate(lock, "shadow", name, Candidate(version, "shadow", 0.0, f"r{lock.revision + 1}"), note)


def start_canary(lock: ContractLock, name: str, version: str, share: float, note: StepReason) -> ContractLock:
    """Start a canary: a share of the new runs gets the version.

    Raises:
        ConfigurationError: the version is unknown or stable, another one is on trial, it is already a canary,
            or the share is out of range.
    """
    tool = _tool_for_trial(lock, name, version)
    if tool.candidate is not None and tool.candidate.stage == "canary":
        raise ConfigurationError(
            f"{name}@{version} is a canary for {format_percent(tool.candidate.share)} already. Try: widen, or rollback"
        )
    _check_share(share)
    return _set_candidate(lock, "canary", name, Candidate(version, "canary", share, f"r{lock.revision + 1}"), note)


def widen_canary(lock: ContractLock, name: str, share: float, note: StepReason) -> ContractLock:
    """Raise the share of a canary. Runs that have it keep it.

    Raises:
        ConfigurationError: there is no canary, or the share is not larger.
    """
    tool = _find_tool(lock, name)
    one = tool.candidate
    if one is None or one.stage != "canary":
        raise ConfigurationError(f"{name} has no canary to widen ({describe_versions(tool)}). Try: canary")
    _check_share(share)
    if share <= one.share:
        raise ConfigurationError(
            f"{name}@{one.version} has {format_percent(one.share)} of the runs, "
            f"and {format_percent(share)} is not more: a run keeps its version, so a share cannot shrink. Try: rollback"
        )
    return _set_candidate(lock, "widen", name, msgspec.structs.replace(one, share=share), note)


def promote_candidate(lock: ContractLock, name: str, note: StepReason, *, unseen: bool = False) -> ContractLock:
    """Make the candidate the stable version. Open runs keep their version.

    Args:
        lock: the current lock.
        name: name of the tool.
        note: operator, time and reason.
        unseen: allow it for a shadow, which no run has used.

    Raises:
        ConfigurationError: there is no candidate, or it is a shadow.
    """
    tool = _find_tool(lock, name)
    one = tool.candidate
    if one is None:
        raise ConfigurationError(
            f"{name} has no candidate to promote ({describe_versions(tool)}). Try: shadow, or canary"
        )
    if one.stage == "shadow" and not unseen:
        raise ConfigurationError(
            f"{name}@{one.version} is a shadow, which no run has used yet. Try: canary, or promote --unseen"
        )
    before = () if tool.stable is None else (tool.stable,)
    kept = tuple(version for version in tool.previous if version != one.version)
    new = msgspec.structs.replace(tool, stable=one.version, candidate=None, previous=(*kept, *before))
    return _with_entry(lock, "promote", name, one.version, new, note=note)


def roll_back(lock: ContractLock, name: str, note: StepReason) -> ContractLock:
    """Withdraw the candidate, or else the stable version if another one was stable before.

    Runs that began with the withdrawn version may no longer call the tool; they never change to another version.

    Raises:
        ConfigurationError: there is nothing to roll back.
    """
    tool = _find_tool(lock, name)
    if tool.candidate is not None:
        gone = tool.candidate.version
        used = tool.candidate.stage == "canary"
        new = msgspec.structs.replace(tool, candidate=None)
    elif tool.stable is not None and tool.previous:
        gone, used, back = tool.stable, True, tool.previous[-1]
        kept = tuple(one for one in tool.withdrawn if one != back)
        new = msgspec.structs.replace(tool, stable=back, previous=tool.previous[:-1], withdrawn=kept)
    else:
        raise ConfigurationError(
            f"{name} has nothing to roll back: no candidate, and no version was stable before {tool.stable}"
        )
    if used:
        new = msgspec.structs.replace(new, withdrawn=(*(one for one in new.withdrawn if one != gone), gone))
    return _with_entry(lock, "rollback", name, gone, new, note=note)


def _find_tool(lock: ContractLock, name: str, version: str | None = None) -> ToolLock:
    tool = lock.tools.get(name)
    if tool is None:
        known = ", ".join(sorted(lock.tools)) or "none"
        raise ConfigurationError(f"no tool {name!r} is locked (locked: {known}). Try: pokayoke contracts lock FILE")
    if version is not None and version not in tool.versions:
        known = ", ".join(sorted(tool.versions))
        raise ConfigurationError(
            f"{name}@{version} is not locked (versions: {known}). Try: pokayoke contracts lock FILE"
        )
    return tool


def _tool_for_trial(lock: ContractLock, name: str, version: str) -> ToolLock:
    """Return the tool, if this version may go on trial."""
    tool = _find_tool(lock, name, version)
    if tool.stable == version:
        raise ConfigurationError(f"{name}@{version} is the stable version already")
    one = tool.candidate
    if one is not None and one.version != version:
        raise ConfigurationError(f"{name}@{one.version} is tried as {one.stage}: promote it or roll it back first")
    return tool


def _check_share(share: float) -> None:
    if not 0.0 < share <= 1.0:
        raise ConfigurationError(f"a share lies above 0 and is at most 1, got {share:g}: 0.1 is a tenth of the runs")


def _set_candidate(lock: ContractLock, step: Step, name: str, candidate: Candidate, note: StepReason) -> ContractLock:
    tool = lock.tools[name]
    kept = tuple(one for one in tool.withdrawn if one != candidate.version)
    new = msgspec.structs.replace(tool, candidate=candidate, withdrawn=kept)
    return _with_entry(lock, step, name, candidate.version, new, note=note)


def _with_entry(
    lock: ContractLock, step: Step, name: str, version: str, new: ToolLock | None, *, note: StepReason
) -> ContractLock:
    """Return the lock with the new state of a tool and one more entry."""
    revision = lock.revision + 1
    before, after = describe_versions(lock.tools.get(name)), describe_versions(new)
    event = LockEntry(revision, note.at, note.by, step, name, version, before, after, note.reason)
    tools = {key: value for key, value in lock.tools.items() if key != name}
    if new is not None:
        tools[name] = new
    return ContractLock(FORMAT, revision, dict(sorted(tools.items())), (*lock.history, event), lock.dropped)
