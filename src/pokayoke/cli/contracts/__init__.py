"""`pokayoke contracts`: locks contracts, compares versions, and rolls them out step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import msgspec
import typer

from pokayoke.cli.contracts import amend as contracts_amend
from pokayoke.cli.contracts import diff as contracts_diff
from pokayoke.cli.contracts import rollout as contracts_rollout
from pokayoke.cli.contracts.lock_options import (
    DEFAULT_LOCK,
    ByOption,
    JsonOption,
    LockedContracts,
    LockOption,
    ReasonOption,
    build_step_reason,
    load_contracts,
    parse_tool_version,
    relative_source,
)
from pokayoke.cli.output import (
    as_json,
    choose_painter,
    escape_text,
    format_count,
    format_table,
    print_data,
    print_message,
)
from pokayoke.core.contract.contract import Contract
from pokayoke.core.versions.lock import ContractLock, add_version, describe_versions, format_percent
from pokayoke.errors import ConfigurationError, ContractError
from pokayoke.runtime.versions.lock_file import exclusive_change, read_lock

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Lock contracts, compare versions, roll them out.

    pokayoke contracts lock contracts.yaml --by mo --reason "first contracts"

    pokayoke contracts diff get_order@1 get_order@2

    A new version starts as a shadow or as a canary for a share of the new runs; a run keeps its version.
    """,
)
contracts_rollout.register_commands(app)
contracts_diff.register_commands(app)
contracts_amend.register_commands(app)

_DIGEST_LENGTH: Final = 19


@app.command()
def lock(
    sources: Annotated[list[str], typer.Argument(metavar="FILE|MODULE:ATTRIBUTE...", help="Contracts to lock.")],
    by: ByOption,
    reason: ReasonOption,
    path: LockOption = DEFAULT_LOCK,
    stable: Annotated[
        list[str] | None,
        typer.Option("--stable", metavar="TOOL@VERSION", help="The version in force of a new tool with several."),
    ] = None,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Put no new tool in force: roll it out with canary.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Lock what each version of each tool promises.

    pokayoke contracts lock contracts.yaml --by mo --reason "first contracts"

    The first version of a tool is in force at once; a later one is only known until shadow or canary starts
    it. A locked version never changes: a changed contract needs a new version. Exit code 0 if all is locked,
    1 if a contract was changed under its version (then nothing is locked), 2 if a source cannot be read.
    """
    where, done = Path(path), build_step_reason(by, reason)
    found = [(contract, relative_source(name, where)) for name in sources for contract in load_contracts(name, Path())]
    chosen = _parse_stable(stable or [], [contract for contract, _ in found])
    told: list[str] = []

    def add_contracts(before: ContractLock) -> ContractLock:
        first = {} if waiting else _select_first_versions(before, [contract for contract, _ in found], chosen)
        after = before
        for contract, source in found:
            new = add_version(after, contract, source, done, stable=first.get(contract.name) == contract.version)
            told.extend([contract.id] * (new is not after))
            after = new
        return after

    try:
        with exclusive_change(where) as change:
            after = change(add_contracts)
    except ContractError as error:
        _refuse_change(str(error), json=json)
    if json:
        print_data(as_json({"ok": True, "revision": after.revision, "locked": told, "tools": after.tools}))
        return
    for ident in told:
        name, _ = parse_tool_version(ident)
        print_data(f"locked {escape_text(ident)}  ({escape_text(describe_versions(after.tools[name]))})")
    print_message(f"{path}: revision {after.revision}, {format_count(len(told), 'change')}")


def _parse_stable(named: list[str], contracts: list[Contract]) -> dict[str, str]:
    known = {contract.id for contract in contracts}
    for ident in named:
        if ident not in known:
            raise ConfigurationError(f"--stable {ident}: none of the sources holds it")
    return dict(map(parse_tool_version, named))


def _select_first_versions(before: ContractLock, contracts: list[Contract], chosen: dict[str, str]) -> dict[str, str]:
    """Return the version of each new tool that is in force at once."""
    found: dict[str, str] = {}
    for contract in contracts:
        name = contract.name
        if name in before.tools:
            if name in chosen:
                raise ConfigurationError(
                    f"{name} is locked already ({describe_versions(before.tools[name])}): "
                    "--stable is for new tools. Try: canary"
                )
            continue
        if name not in chosen and name in found and found[name] != contract.version:
            raise ConfigurationError(
                f"{name} is new and has several versions. Say which one is in force: --stable {contract.id}"
            )
        found[name] = chosen.get(name, contract.version)
    return found


@app.command()
def check(path: LockOption = DEFAULT_LOCK, json: JsonOption = False) -> None:
    """Check that every contract still is what was locked.

    pokayoke contracts check

    Exit code 0 if it is, 1 if a version was changed or is missing, 2 if the lock cannot be read. A version
    that no run gets any more may be missing: that is reported as a note.
    """
    where = Path(path)
    found = read_lock(where)
    shelf = LockedContracts(where)
    drifts = list(shelf.find_drifts(found))
    wrong = [one for one in drifts if one.in_force or "is not what is locked" in one.why]
    unlocked = list(shelf.find_unlocked(found))
    if json:
        print_data(as_json({"ok": not wrong, "revision": found.revision, "drift": drifts, "unlocked": unlocked}))
    else:
        paint = choose_painter()
        for one in drifts:
            print_data(f"{paint('drift', 'bad') if one in wrong else 'note '}  {escape_text(one.why)}")
        for ident in unlocked:
            print_data(f"note   {escape_text(ident)} is not locked: no run gets it")
        if not wrong:
            print_data(
                f"{paint('clean', 'ok')}: {format_count(len(found.tools), 'tool')} as locked, revision {found.revision}"
            )
    if wrong:
        raise typer.Exit(1)


@app.command()
def status(path: LockOption = DEFAULT_LOCK, json: JsonOption = False) -> None:
    """Show which version of each tool is in force.

    pokayoke contracts status
    """
    found = read_lock(Path(path))
    if json:
        print_data(as_json({"revision": found.revision, "tools": found.tools}))
        return
    rows: list[tuple[str, ...]] = [("tool", "version", "is", "source", "promise")]
    for name, tool in found.tools.items():
        for version, one in tool.versions.items():
            what = "stable" if version == tool.stable else "known"
            if tool.candidate is not None and tool.candidate.version == version:
                what = tool.candidate.stage
                what += f" for {format_percent(tool.candidate.share)}" if tool.candidate.share else ""
            elif version in tool.withdrawn:
                what = "withdrawn"
            elif version in tool.previous:
                what = "retired"
            rows.append((name, version, what, one.source, one.digest[:_DIGEST_LENGTH]))
    for line in format_table(rows):
        print_data(line)
    print_message(f"{path}: revision {found.revision}")


@app.command()
def history(
    tool: Annotated[str | None, typer.Argument(help="Only this tool.")] = None,
    path: LockOption = DEFAULT_LOCK,
    json: JsonOption = False,
) -> None:
    """Show every step: when, by whom, what, and why.

    pokayoke contracts history get_order
    """
    lock = read_lock(Path(path))
    steps = [one for one in lock.history if tool in (None, one.tool)]
    if tool is not None and not steps:
        raise ConfigurationError(f"{tool!r} is not locked in {path} (tools: {', '.join(lock.tools)})")
    if json:
        print_data(as_json([msgspec.to_builtins(one) for one in steps]))
        return
    rows: list[tuple[Any, ...]] = [
        (
            one.revision,
            one.at,
            one.by,
            one.step,
            f"{one.tool}@{one.version}",
            f"{one.before} -> {one.after}",
            one.reason,
        )
        for one in steps
    ]
    for line in format_table(rows):
        print_data(line)


def _refuse_change(why: str, *, json: bool) -> NoReturn:
    """Report a refused change: nothing was written."""
    if json:
        print_data(as_json({"ok": False, "reason": why}))
    print_message(f"refused: {why}")
    raise typer.Exit(1)
