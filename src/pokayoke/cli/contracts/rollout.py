"""The steps of a rollout, one command each: shadow, canary, widen, promote, roll back, drop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from pokayoke.cli.contracts.lock_options import (
    DEFAULT_LOCK,
    ByOption,
    Drift,
    JsonOption,
    LockedContracts,
    LockOption,
    ReasonOption,
    build_step_reason,
    parse_tool_version,
)
from pokayoke.cli.options import parse_share
from pokayoke.cli.output import as_json, escape_text, print_data, print_message
from pokayoke.core.contract.contract import Contract
from pokayoke.core.versions.contract_diff import contract_changes
from pokayoke.core.versions.lock import (
    ContractLock,
    StepReason,
    describe_versions,
    drop_version,
    promote_candidate,
    roll_back,
    start_canary,
    start_shadow,
    widen_canary,
)
from pokayoke.errors import ConfigurationError
from pokayoke.runtime.versions.lock_file import exclusive_change

VersionArgument = Annotated[str, typer.Argument(metavar="TOOL@VERSION", help="A locked version.")]
ToolArgument = Annotated[str, typer.Argument(metavar="TOOL", help="A locked tool.")]
ShareOption = Annotated[str, typer.Option("--share", help="Share of the new runs: 0.1, or 10%.")]
NewKeysOption = Annotated[
    bool, typer.Option("--new-keys", help="Accept that a retry across versions may be a second effect.")
]


Step = Callable[[ContractLock, LockedContracts], ContractLock]


def register_commands(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (shadow, canary, widen, promote, rollback, drop):
        app.command()(command)


def shadow(
    version: VersionArgument,
    by: ByOption,
    reason: ReasonOption,
    path: LockOption = DEFAULT_LOCK,
    json: JsonOption = False,
) -> None:
    """Let a version judge every call next to the stable one, without deciding anything.

    pokayoke contracts shadow get_order@2 --by mo --reason "outputs changed"

    The trace records where the two differ (event `shadow`), and `pokayoke trace report` counts it.
    """
    name, number = parse_tool_version(version)
    done = build_step_reason(by, reason)
    _run_step(path, name, lambda lock, _: start_shadow(lock, name, number, done), json=json, check=number)


def canary(
    version: VersionArgument,
    share: ShareOption,
    by: ByOption,
    reason: ReasonOption,
    path: LockOption = DEFAULT_LOCK,
    new_keys: NewKeysOption = False,
    json: JsonOption = False,
) -> None:
    """Give a version to a share of the new runs.

    pokayoke contracts canary get_order@2 --share 5% --by mo --reason "no differences in shadow"

    A run's id decides whether it gets the version. A run keeps its version for its lifetime.
    """
    name, number = parse_tool_version(version)
    wanted, done = parse_share(share), build_step_reason(by, reason)

    def apply_canary(lock: ContractLock, shelf: LockedContracts) -> ContractLock:
        after = start_canary(lock, name, number, wanted, done)
        stable = after.tools[name].stable
        if stable is not None and not new_keys:
            _require_same_keys(shelf.load_contract(lock, name, stable), shelf.load_contract(lock, name, number))
        return after

    _run_step(path, name, apply_canary, json=json, check=number)


def widen(
    tool: ToolArgument,
    share: ShareOption,
    by: ByOption,
    reason: ReasonOption,
    path: LockOption = DEFAULT_LOCK,
    json: JsonOption = False,
) -> None:
    """Give a canary to more of the new runs.

    pokayoke contracts widen get_order --share 0.5 --by mo --reason "a day without findings"
    """
    _run_step(path, tool, plan_widening(tool, share, build_step_reason(by, reason)), json=json)


def promote(
    tool: ToolArgument,
    by: ByOption,
    reason: ReasonOption,
    path: LockOption = DEFAULT_LOCK,
    unseen: Annotated[bool, typer.Option("--unseen", help="Promote a shadow, which no run has used.")] = False,
    new_keys: NewKeysOption = False,
    json: JsonOption = False,
) -> None:
    """Make the candidate the stable version. Open runs keep their version.

    pokayoke contracts promote get_order --by mo --reason "a week at half of the runs"
    """
    done = build_step_reason(by, reason)
    _run_step(path, tool, plan_promotion(tool, done, unseen=unseen, new_keys=new_keys), json=json)


def rollback(
    tool: ToolArgument, by: ByOption, reason: ReasonOption, path: LockOption = DEFAULT_LOCK, json: JsonOption = False
) -> None:
    """Withdraw the candidate; without one, return to the previous stable version.

    pokayoke contracts rollback get_order --by mo --reason "totals are wrong"

    Runs with the withdrawn version may not call the tool any more; they are never switched. Exit code 1 if
    the step was taken but a version in force differs from what was locked: programs cannot take it over.
    """
    _run_step(path, tool, plan_rollback(tool, build_step_reason(by, reason)), json=json)


def drop(
    version: VersionArgument,
    by: ByOption,
    reason: ReasonOption,
    path: LockOption = DEFAULT_LOCK,
    json: JsonOption = False,
) -> None:
    """Drop a version that is not in force.

    pokayoke contracts drop get_order@1 --by mo --reason "no run has it any more"

    A version stays fixed: the same contract can be locked again under it, another one cannot.
    """
    name, number = parse_tool_version(version)
    done = build_step_reason(by, reason)
    _run_step(path, name, lambda lock, _: drop_version(lock, name, number, done), json=json)


def plan_widening(tool: str, share: str, done: StepReason) -> Step:
    """Return the step that gives a canary to more of the new runs."""
    wanted = parse_share(share)
    return lambda lock, _: widen_canary(lock, tool, wanted, done)


def plan_promotion(tool: str, done: StepReason, *, unseen: bool = False, new_keys: bool = False) -> Step:
    """Return the step that makes the candidate the stable version."""

    def apply_promotion(lock: ContractLock, shelf: LockedContracts) -> ContractLock:
        after = promote_candidate(lock, tool, done, unseen=unseen)
        before, new = lock.tools[tool].stable, after.tools[tool].stable
        one = shelf.load_contract(lock, tool, str(new))
        if before is not None and unseen and not new_keys:
            _require_same_keys(shelf.load_contract(lock, tool, before), one)
        return after

    return apply_promotion


def plan_rollback(tool: str, done: StepReason) -> Step:
    """Return the step that withdraws the candidate, or returns to the previous stable version."""
    return lambda lock, _: roll_back(lock, tool, done)


def take_step(path: str, tool: str, how: Step, *, check: str | None = None) -> tuple[ContractLock, list[Drift]]:
    """Take one step under the lock's own lock; return the lock after it, and what keeps programs from following.

    A step is taken even if programs cannot follow it: what is in force there may be worse.

    Args:
        path: of the lock.
        tool: that the step is about.
        how: the step.
        check: a version that has to be what was locked.

    Raises:
        ConfigurationError: there is no lock, or the step cannot be taken.
    """
    where = Path(path)
    if not where.exists():
        raise ConfigurationError(f"{path}: no such file. Make it with: pokayoke contracts lock FILE")
    shelf = LockedContracts(where)

    def apply_step(lock: ContractLock) -> ContractLock:
        after = how(lock, shelf)
        if check is not None:
            shelf.load_contract(lock, tool, check)  # only a version that is still what was locked is rolled out
        return after

    with exclusive_change(where) as change:
        after = change(apply_step)
    return after, [one for one in shelf.find_drifts(after) if one.in_force]


def _run_step(path: str, tool: str, how: Step, *, json: bool, check: str | None = None) -> None:
    """Take one step, and print the tool's new state and what keeps programs from following."""
    after, drifts = take_step(path, tool, how, check=check)
    done = after.history[-1]
    if json:
        print_data(as_json({"ok": not drifts, "step": done, "tool": after.tools.get(tool), "drift": drifts}))
    else:
        print_data(
            f"{escape_text(tool)}: {escape_text(done.before)} -> "
            f"{escape_text(describe_versions(after.tools.get(tool)))}"
        )
    if drifts:
        print_message(f"{path}: revision {after.revision}. Programs cannot take it over until this is put right:")
        for one in drifts:
            print_message(f"  {one.why}")
        raise typer.Exit(1)
    if not json:
        print_message(f"{path}: revision {after.revision}. Programs take it over with their next run or call")


def _require_same_keys(stable: Contract, candidate: Contract) -> None:
    """Refuse a candidate whose writes have other ledger keys: a retry in a run of the other version would run twice."""
    found = [one for one in contract_changes(stable, candidate) if "another ledger key" in one.what]
    if found:
        fields = ", ".join(one.at for one in found)
        raise ConfigurationError(
            f"{candidate.id} names its effects otherwise than {stable.id} ({fields}): equal writes of two runs in one "
            "scope would be two effects. Keep these fields, or accept it with --new-keys"
        )
