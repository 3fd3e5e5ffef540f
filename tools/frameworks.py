"""Runs the same scenarios on every framework and prints the results: `make frameworks`.

  make frameworks                                     every framework, guarded
  make frameworks ARGS="langchain plain"              two of them
  make frameworks ARGS="langchain --unguarded"        the framework alone next to it
  make frameworks ARGS="langchain --modes stream --only 'wrong type; hangs' --no-tests"
  make frameworks ARGS="--overhead"                   the cost of a guarded tool turn
  make frameworks ARGS="--lowest langchain"           the scenarios with the lowest versions that the extra admits
  make frameworks ARGS="langchain --write"            write the output of its guide's blocks

Each framework is installed into an environment of its own, `.frameworks/<name>` or `.frameworks/<name>-lowest`. Its
scenarios run there, and in the first one its tests and the blocks of its guide, too.
Exit code 1: something is wrong. 2: something could not be run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tools.environments import LOWEST, LOWESTS, NAMES, ROOT, BuildError, build, python
from tools.examples import PAGES, host_of

AT_ONCE = 2
CLOSING = re.compile(r"\d+ (?:passed|failed|errors?|skipped|deselected)\b.* in \d")
PATIENCE = 10.0
"""Seconds between two progress messages."""
TESTS = ROOT / "tests" / "frameworks"
SHARED = ("test_every_framework.py", "test_crm_incident.py", "test_untrusted.py", "test_wanted_twice.py")
"""Tests that every framework passes, in its own environment only."""
RATES = {"agent-framework": 20.0, "autogen": 20.0, "plain": None, "fastmcp": None, "litellm": None}
"""Per cent that a guarded tool turn may cost over one with empty hooks; 5 unless given here; None: no bound."""
RATE = 5.0


@dataclass
class Report:
    """The results of one framework.

    Attributes:
        name: its name.
        about: its host's description of itself.
        guarded: results of the conversations.
        alone: those of the framework alone.
        tests: closing line of its tests, or "".
        guide: closing line of its guide's blocks, or "".
        cost: the measurement of `--overhead`.
        failed: what failed: tests or guide.
        problem: why it could not be run, or "".
    """

    name: str
    about: dict[str, Any] = field(default_factory=dict)
    guarded: list[dict[str, Any]] = field(default_factory=list)
    alone: list[dict[str, Any]] = field(default_factory=list)
    tests: str = ""
    guide: str = ""
    cost: dict[str, Any] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    problem: str = ""

    @property
    def impossible(self) -> dict[str, str]:
        """Scenarios that this framework makes impossible, and why."""
        return self.about.get("impossible", {})

    def excused(self, one: dict[str, Any]) -> list[str]:
        """Return the entries that declare a conversation impossible, at most one if the host is sound."""
        scenario, wire, mode = one["scenario"], one["wire"], one["mode"]
        return [
            key for key in (scenario, f"{scenario} @{wire}", f"{scenario} @{wire}/{mode}") if key in self.impossible
        ]

    @property
    def wrong(self) -> list[dict[str, Any]]:
        """Conversations that went wrong and are not declared impossible."""
        return [one for one in self.guarded if not one["ok"] and not self.excused(one)]

    @property
    def outdated(self) -> list[str]:
        """Entries about impossible scenarios that none of the conversations needed."""
        had = {key for one in self.guarded for key in self.excused(one)}
        return sorted(had - {key for one in self.guarded if not one["ok"] for key in self.excused(one)})

    def cell(self, scenario: str) -> str:
        """Return the table's cell for a scenario."""
        mine = [one for one in self.guarded if one["scenario"] == scenario]
        if not mine:
            return "-"
        if all(one["ok"] for one in mine):
            return "ok"
        return "impossible" if all(one["ok"] or self.excused(one) for one in mine) else "WRONG"

    def by_itself(self, scenario: str) -> str:
        """Return the table's cell for the framework alone: each result, over all its modes."""
        return " / ".join(dict.fromkeys(one["cell"] for one in self.alone if one["scenario"] == scenario)) or "-"


class Work:
    """Runs the frameworks, several at a time.

    Args:
        given: the options.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        """Start the clock."""
        self.given = given
        self._began = time.monotonic()
        self._free = asyncio.Semaphore(1 if given.overhead else AT_ONCE)

    def say(self, name: str, what: str) -> None:
        """Print the progress."""
        print(f"[{time.monotonic() - self._began:5.0f} s] {name}: {what}", file=sys.stderr, flush=True)

    async def take(self, name: str) -> Report:
        """Return the results of one framework."""
        report = Report(name)
        async with self._free:
            try:
                await build(self._place(name), lambda what: self.say(name, what))
                if self.given.write:
                    await self._write_guide(report)
                elif self.given.overhead:
                    await self._overhead(report)
                else:
                    await self._run_tests(report)
            except Exception as error:  # noqa: BLE001 - the other frameworks go on in any case
                report.problem = str(error) if isinstance(error, (BuildError, OSError)) else repr(error)
                self.say(name, f"cannot be run: {report.problem}")
        return report

    def _place(self, name: str) -> str:
        return name + LOWEST if self.given.lowest else name

    async def _run_tests(self, report: Report) -> None:
        await self._run_scenarios(report)
        if self.given.no_tests or self.given.lowest:  # the tests may need what newer versions have
            return
        own = TESTS / report.name.replace("-", "_")
        tests = [*(TESTS / name for name in SHARED), own, own.with_name(f"test_{own.name}.py")]
        report.tests = await self._pytest(
            report, "tests", *(str(path.relative_to(ROOT)) for path in tests if path.exists())
        )
        if pages := [page for page in PAGES if host_of(page) == report.name]:
            blocks = "tests/project/test_docs.py::test_every_block_of_a_page_runs"
            report.guide = await self._pytest(
                report, "guide", *(f"{blocks}[{page.relative_to(ROOT)}]" for page in pages)
            )

    async def _run_scenarios(self, report: Report) -> None:
        given, told, done = self.given, time.monotonic(), 0
        options = ["--ways", "both" if given.unguarded else "guarded"]
        for option in ("modes", "wires", "only"):
            if value := getattr(given, option):
                options += [f"--{option}", value]
        async for one in _lines(
            self._place(report.name), "tests/frameworks/runner.py", "--host", report.name, *options
        ):
            if "scenario" not in one:
                report.about = one
                self.say(report.name, f"{one['conversations']} conversations")
                continue
            done += 1
            (report.guarded if one["guarded"] else report.alone).append(one)
            if one["guarded"] and not one["ok"] and not report.excused(one):
                self.say(report.name, _format_wrong(one))
            if time.monotonic() - told > PATIENCE:
                told = time.monotonic()
                self.say(report.name, f"{done} of {report.about['conversations']}")

    async def _pytest(self, report: Report, what: str, *arguments: str) -> str:
        self.say(report.name, what)
        command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)
        code, out = await _output(report.name, *command)
        # A framework may print something after that.
        closing = next((line for line in reversed(out.splitlines()) if CLOSING.search(line)), "no closing line")
        if code:
            report.failed.append(what)
            print(out, file=sys.stderr)
        return closing

    async def _overhead(self, report: Report) -> None:
        async for one in _lines(report.name, "tests/frameworks/overhead.py", "--host", report.name):
            report.about = report.cost = one
            report.cost["bound"] = RATES.get(report.name, RATE)
        self.say(report.name, "measured")

    async def _write_guide(self, report: Report) -> None:
        pages = [str(page) for page in PAGES if host_of(page) == report.name]
        if pages:
            code, out = await _output(report.name, "-m", "tools.examples", *pages)
            print(out, end="", file=sys.stderr)
            report.failed += ["guide"] if code else []


def _environment(name: str) -> dict[str, str]:
    own = {"POKAYOKE_HOST": name.removesuffix(LOWEST), "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}
    # LiteLLM asks the network for prices while it is imported, and waits for the answer.
    return {**os.environ, **own, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


async def _output(name: str, *arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        str(python(name)),
        *arguments,
        cwd=ROOT,
        env=_environment(name),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode(errors="replace")


async def _lines(name: str, *arguments: str) -> AsyncIterator[dict[str, Any]]:
    """Yield the JSON lines of a program in an environment.

    Raises:
        BuildError: it ended with an error, or printed something else.
    """
    process = await asyncio.create_subprocess_exec(
        str(python(name)),
        *arguments,
        cwd=ROOT,
        env=_environment(name),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    noise = asyncio.create_task(process.stderr.read())
    async for line in process.stdout:
        try:
            found = json.loads(line)
        except ValueError:
            process.kill()
            raise BuildError(f"it printed {line!r} between its results") from None
        yield found
    said = (await noise).decode(errors="replace")
    if await process.wait():
        raise BuildError(said[-3_000:])


def _format_wrong(one: dict[str, Any]) -> str:
    return f"WRONG {one['scenario']!r} ({one['wire']}, {one['mode']}): {'; '.join(one['wrong'])}"


# -- what is printed ---------------------------------------------------------------------------------


def table(reports: list[Report], *, unguarded: bool) -> str:
    """Return scenarios × frameworks, in as many blocks as the terminal needs."""
    shown = [one for one in reports if one.guarded]
    names = list(dict.fromkeys(cell["scenario"] for one in shown for cell in one.guarded))
    columns: list[list[str]] = []
    for one in shown:
        columns.append([_title(one), *map(one.cell, names)])
        if unguarded:
            columns.append(["alone", *map(one.by_itself, names)])
    first = ["scenario", *names]
    room, blocks, block = shutil.get_terminal_size((160, 24)).columns - _width(first), [], []
    step = 2 if unguarded else 1
    for at in range(0, len(columns), step):
        group = columns[at : at + step]
        if block and sum(map(_width, block + group)) > room:
            blocks.append(block)
            block = []
        block = block + group
    if block:
        blocks.append(block)
    return "\n\n".join(_block([first, *one]) for one in blocks)


def _title(report: Report) -> str:
    return f"{report.about['title']} {report.about['version']}"


def _width(column: list[str]) -> int:
    return max(map(len, column)) + 3


def _block(columns: list[list[str]]) -> str:
    widths = [_width(column) - 3 for column in columns]
    rows = [[text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in zip(*columns, strict=True)]
    head, *rest = [" | ".join(row).rstrip() for row in rows]
    return "\n".join([head, "-|-".join("-" * width for width in widths), *rest])


def summary(reports: list[Report]) -> str:
    """Return what the table does not show: what was wrong, why something is impossible, tests and guides."""
    lines = []
    for one in reports:
        lines += [f"{one.name}: {_format_wrong(cell)}" for cell in one.wrong]
        lines += [f"{one.name}: {scenario!r} is impossible: {why}" for scenario, why in one.impossible.items()]
        lines += [
            f"{one.name}: {scenario!r} is right by now; say no longer that it is impossible"
            for scenario in one.outdated
        ]
    for one in reports:
        if one.problem:
            lines.append(f"{one.name}: cannot be run: {one.problem}")
        elif one.about and not one.cost:
            right = sum(cell["ok"] for cell in one.guarded)
            rest = f"; tests: {one.tests}" * bool(one.tests) + f"; guide: {one.guide}" * bool(one.guide)
            lines.append(f"{one.name}: {right} of {len(one.guarded)} conversations right{rest}")
    return "\n".join(lines)


def costs(reports: list[Report]) -> str:
    """Return the cost of a tool turn, per framework."""
    rows = [("per tool turn", "alone", "empty hooks", "guarded", "added", "over empty hooks", "quartiles", "bound")]
    for one in reports:
        if not one.cost:
            continue
        turn, bound = one.cost["turn"], one.cost["bound"]
        added = turn["guarded"] - turn["empty"]
        figures = tuple(f"{value * 1e6:,.0f} µs" for value in (turn["none"], turn["empty"], turn["guarded"], added))
        spread = " to ".join(f"{100 * (ratio - 1):.1f}" for ratio in one.cost["quartiles"])
        limit = "none" if bound is None else f"{bound:.0f} %"
        rows.append((_title(one), *figures, f"{_percent(one):.1f} %", f"{spread} %", limit))
    return _block([list(column) for column in zip(*rows, strict=True)])


def _percent(report: Report) -> float:
    turn = report.cost["turn"]
    return 100 * (turn["guarded"] - turn["empty"]) / turn["empty"]


def verdict(reports: list[Report]) -> int:
    """Return the exit code."""
    if any(one.problem for one in reports):
        return 2
    over = [one for one in reports if one.cost and one.cost["bound"] is not None and _percent(one) > one.cost["bound"]]
    return int(bool(over) or any(one.wrong or one.outdated or one.failed for one in reports))


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="framework", help=f"some of {', '.join(NAMES)}; default: all")
    parser.add_argument("--unguarded", action="store_true", help="play the framework alone, too")
    parser.add_argument("--lowest", action="store_true", help="play the scenarios with the lowest versions")
    parser.add_argument("--overhead", action="store_true", help="measure what a guarded tool turn costs instead")
    parser.add_argument("--write", action="store_true", help="write what the guides' blocks print instead")
    parser.add_argument("--modes", help="some of sync,async,stream; default: all a framework has")
    parser.add_argument("--wires", help="some of chat,responses,anthropic; default: all, alone the first")
    parser.add_argument("--only", help="names of scenarios, separated by semicolons")
    parser.add_argument("--no-tests", action="store_true", help="play scenarios only: no tests, no guides")
    parser.add_argument("--json", action="store_true", help="print one JSON line per framework")
    given = parser.parse_args()
    if strangers := sorted(set(given.names) - set(NAMES)):
        parser.error(f"no framework is called {', '.join(strangers)}: there are {', '.join(NAMES)}")
    if given.lowest:
        if given.overhead or given.write or "plain" in given.names:
            parser.error("--lowest plays the scenarios of frameworks: without --overhead, --write and plain")
        given.names = given.names or [name.removesuffix(LOWEST) for name in LOWESTS]
    reports = asyncio.run(_all(given))
    if given.json:
        for one in reports:
            print(json.dumps({**vars(one), "wrong": one.wrong, "outdated": one.outdated}))
    elif given.overhead:
        print(costs(reports))
        print(summary(reports))
    else:
        print(f"\n{table(reports, unguarded=given.unguarded)}\n\n{summary(reports)}")
    return verdict(reports)


async def _all(given: argparse.Namespace) -> list[Report]:
    work = Work(given)
    return list(await asyncio.gather(*(work.take(name) for name in given.names or NAMES)))


if __name__ == "__main__":
    sys.exit(main())
