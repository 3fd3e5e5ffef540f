"""`pokayoke doctor`: fires every guard, and reports what is weaker here than the documentation says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from pokayoke.cli.check import contract_weaknesses
from pokayoke.cli.output import (
    as_json,
    choose_painter,
    escape_text,
    format_count,
    format_table,
    print_data,
    print_message,
)
from pokayoke.cli.sources import SourceProblem, read_sources, unknown_name_problems
from pokayoke.core.contract.contract import Contract
from pokayoke.core.policy import Policy
from pokayoke.system import weaknesses


class ProbeResult(msgspec.Struct, frozen=True):
    """The result of one probe.

    Args:
        name: of the probe.
        against: the fault it provokes.
        fired: whether the guard caught it.
        instead: what happened if the guard did not catch it.
    """

    name: str
    against: str
    fired: bool
    instead: str | None = None


def doctor(
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE|MODULE:ATTRIBUTE", help="Configuration and tools to examine, as for check."),
    ] = None,
    config: Annotated[str | None, typer.Option(help="Configuration file; pokayoke.yaml if it is there.")] = None,
    store: Annotated[
        str | None,
        typer.Option(envvar="POKAYOKE_STORE", show_envvar=True, help="The store the program uses, as a URL."),
    ] = None,
    lock: Annotated[str | None, typer.Option(help="Lock of contracts; contracts.lock if it is there.")] = None,
    words: Annotated[bool, typer.Option("--words", help="Only print the words by which acts are known.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Provoke every fault once and report which guards fired.

    pokayoke doctor

    pokayoke doctor --config pokayoke.yaml shop.tools:ALL

    pokayoke doctor --words

    The probes use tools of their own; yours are examined and never run. Exit code 0 if every guard fired,
    every tool has a deadline (an async one always has) and an output contract, and store, trace file and sample
    can be used; 1 if not; 2 if doctor could not run. POKAYOKE_STORE replaces --store.
    """
    if words:
        from pokayoke.cli.doctor.words import print_words  # noqa: PLC0415 - as in fire_probes

        print_words(json=json)
        return
    found = examine_setup(sources or [], config=config, store=store, lock=lock)
    if json:
        print_data(as_json({"probes": found.probes, "problems": found.problems, "notes": found.notes}))
    else:
        _print_report(found.probes, found.problems, found.notes)
    if not found.is_clean:
        raise typer.Exit(1)


class Examination(msgspec.Struct, frozen=True):
    """What an examination has found.

    Args:
        probes: the result of every probe.
        problems: what has to be changed.
        notes: where less is guaranteed than the documentation says.
        tools: names of the tools that were looked at.
    """

    probes: list[ProbeResult]
    problems: list[SourceProblem]
    notes: list[str]
    tools: list[str]

    @property
    def is_clean(self) -> bool:
        """True if every guard fired and nothing has to be changed."""
        return not self.problems and all(one.fired for one in self.probes)


def examine_setup(sources: list[str], *, config: str | None, store: str | None, lock: str | None) -> Examination:
    """Fire every guard under a configuration; look at its tools, store and files. Options as of `doctor`."""
    material = read_sources(sources, config=config, trust_hints=False)
    problems = [*material.problems, *(p for contract in material.contracts for p in contract_weaknesses(contract))]
    problems += unknown_name_problems(material)
    results = list(fire_probes(material.policy))
    broken, weak = _store_problems(store)
    drifts, rollouts = _lock_problems(lock, durable=store is not None)
    notes = [*collect_notes(material.policy, material.contracts, store), *weak, *rollouts]
    if any(problem.code == "config" for problem in problems):
        notes.insert(0, "the configuration has mistakes: the guards were fired under the defaults instead.")
    problems += [*broken, *drifts, *_trace_problems(material.policy)]
    return Examination(results, problems, notes, [one.name for one in material.contracts])


def fire_probes(policy: Policy) -> Iterator[ProbeResult]:
    """Fire every probe under a policy.

    The probes' guards have no kinds of failure of their own; `unknown_name_problems` has.
    """
    from msgspec.structs import replace  # noqa: PLC0415 - the rooms are loaded on use

    from pokayoke.cli.doctor.policy_probes import build_policy_probes  # noqa: PLC0415 - as above
    from pokayoke.cli.doctor.probes import PROBES  # noqa: PLC0415 - as above
    from pokayoke.core.state.loop_guard import without_own_kinds  # noqa: PLC0415 - as above

    policy = replace(policy, loop=without_own_kinds(policy.loop))
    for probe in [*PROBES, *build_policy_probes(policy)]:
        try:
            instead = probe.fire(policy)
        except Exception as error:  # noqa: BLE001 - a probe that fails has not shown its guard firing
            instead = f"the probe failed: {type(error).__name__}: {error}"
        yield ProbeResult(probe.name, probe.against, instead is None, instead)


def collect_notes(policy: Policy, contracts: list[Contract], store: str | None) -> Iterator[str]:
    """Yield where this machine or these settings guarantee less than the documentation promises."""
    from pokayoke.cli.doctor.policy_probes import unreachable_limits  # noqa: PLC0415 - as above
    from pokayoke.cli.doctor.words import untrusted_notes  # noqa: PLC0415 - as above
    from pokayoke.runtime.files.confined_open import open_method  # noqa: PLC0415 - as above

    if policy.mode == "monitor":
        yield "mode is monitor: what would be refused is recorded and runs."
    if store is None:
        yield (
            "no store is named: repeated writes are stopped within a run and a process; approvals, latches, kill "
            "switches and budgets end with it."
        )
    for name in unreachable_limits(policy):
        yield f"{name} is too high to be fired: no probe makes that many calls."
    in_place = (contract.id for contract in contracts if contract.thread is not None)
    yield from (f"{name} runs in the thread of its caller, so nothing can cut it when it hangs." for name in in_place)
    yield from untrusted_notes(policy, contracts)
    if not contracts:
        yield "no tools are named: only the guards were looked at, and no name in the configuration was looked for."
    if open_method() == "walk":
        yield "no openat2 here: paths are walked folder by folder, which is as safe and slower."
    yield from weaknesses()
    if policy.trace.path is None:
        yield "trace.path is not set: events are kept in memory per run and lost with the process."
    if policy.approvals.webhook.url is not None:
        yield from _webhook_notes()
    import apsw  # noqa: PLC0415 - as above

    yield f"Python {sys.version.split()[0]}, SQLite {apsw.sqlite_lib_version()}."


def _webhook_notes() -> Iterator[str]:
    from pokayoke.errors import ConfigurationError  # noqa: PLC0415 - as above
    from pokayoke.runtime.approvals.signature import secrets_from_environment  # noqa: PLC0415 - as above

    try:
        secrets_from_environment()
    except ConfigurationError as error:
        yield f"approvals.webhook is set, and no guard will start: {error}."


def _store_problems(url: str | None) -> tuple[list[SourceProblem], list[str]]:
    """Return the problems of the store, and where it is weaker than it could be."""
    from pokayoke.errors import StoreError  # noqa: PLC0415 - as above
    from pokayoke.stores import open_store  # noqa: PLC0415 - as above

    if url is None:
        return [], []
    try:
        store = open_store(url)
    except StoreError as error:
        return [SourceProblem("store", url.partition("://")[0], str(error))], []
    try:
        return [], [f"{weakness}." for weakness in store.weaknesses()]
    finally:
        store.close()


def _lock_problems(name: str | None, *, durable: bool) -> tuple[list[SourceProblem], list[str]]:
    """Return which locked contracts have drifted, and which rollouts are in progress."""
    from pokayoke.cli.contracts.lock_options import DEFAULT_LOCK, LockedContracts  # noqa: PLC0415 - as above
    from pokayoke.core.versions.lock import describe_versions  # noqa: PLC0415 - as above
    from pokayoke.runtime.versions.lock_file import read_lock  # noqa: PLC0415 - as above

    path = Path(name or DEFAULT_LOCK)
    if name is None and not path.exists():
        return [], []
    lock = read_lock(path)
    drifts = [one for one in LockedContracts(path).find_drifts(lock) if one.in_force]
    told = [
        f"{path}: {tool} is {describe_versions(one)}." for tool, one in lock.tools.items() if one.candidate is not None
    ]
    if not durable:
        told.append(f"{path}: without a store, a run that is opened again after a restart may get another version.")
    return [SourceProblem("contract_drift", one.contract, one.why) for one in drifts], told


def _trace_problems(policy: Policy) -> Iterator[SourceProblem]:
    """Yield the problems of the files that a guard would open when it starts."""
    from pokayoke.errors import ConfigurationError  # noqa: PLC0415 - as above
    from pokayoke.runtime.trace.sample import Sampler  # noqa: PLC0415 - as above
    from pokayoke.runtime.trace.trace import Trace  # noqa: PLC0415 - as above

    named = (("trace", policy.trace.path or "", Trace), ("sample", policy.trace.sample_path, Sampler))
    for code, path, opens in named:
        if path is None:
            continue
        try:
            opens(policy.trace).close()
        except ConfigurationError as error:
            yield SourceProblem(code, path, str(error))


def _print_report(results: list[ProbeResult], problems: list[SourceProblem], told: list[str]) -> None:
    paint = choose_painter()
    rows = [("fired" if r.fired else "DID NOT FIRE", r.name, r.against if r.fired else f"{r.against}: {r.instead}")
            for r in results]  # fmt: skip
    for result, line in zip(results, format_table(rows), strict=True):
        print_data(paint(line, "ok" if result.fired else "bad"))
    for problem in problems:
        print_data(f"{paint(problem.code, 'bad')}  {escape_text(problem.where)}: {escape_text(problem.message)}")
    for note in told:
        print_data(f"note: {escape_text(note)}")
    silent = sum(not result.fired for result in results)
    print_message(
        f"{len(results) - silent} of {format_count(len(results), 'guard')} fired; "
        f"{format_count(len(problems), 'thing')} to change"
    )
