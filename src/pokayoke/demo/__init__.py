"""The same faulty model twice: unguarded and guarded, on real databases, files and a real web service.

`play()` runs scenarios, `main()` shows them. Every figure in the table is measured: after each run the databases
and files are read.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence

from pokayoke.demo import guarded, report, unguarded
from pokayoke.demo.endpoint import Endpoint, RunLog
from pokayoke.demo.kept_runs import KeptRuns, keep_runs
from pokayoke.demo.scenario import Scenario, ScenarioResult, Side, judge_side
from pokayoke.demo.scenarios import SCENARIOS
from pokayoke.demo.world import World, diff_facts, new_world

__all__ = ["SCENARIOS", "Scenario", "ScenarioResult", "Side", "main", "play", "select"]


def select(only: Iterable[str] | None = None) -> list[Scenario]:
    """Return the scenarios, all or those whose name contains one of the words.

    Raises:
        LookupError: no scenario has such a name; the message lists them.
    """
    known = [make() for make in SCENARIOS]
    words = list(only or ())
    for word in words:
        if not any(word in scenario.name for scenario in known):
            raise LookupError(f"no scenario is called {word!r}; there are: {', '.join(s.name for s in known)}")
    return [scenario for scenario in known if not words or any(word in scenario.name for word in words)]


def play(scenario: Scenario, kept: KeptRuns | None = None) -> ScenarioResult:
    """Run one scenario against both loops, each in a new world.

    Args:
        scenario: what to play.
        kept: where ledger and trace of the guarded run are kept; None keeps nothing.
    """
    return ScenarioResult(
        scenario,
        unguarded=_play_side(scenario, lambda end, world: unguarded.run_loop(end, world.tools(), scenario.prompt)),
        guarded=_play_side(scenario, lambda end, world: guarded.run_loop(end, world.tools(), world, scenario, kept)),
    )


def main(*, json: bool = False, only: Sequence[str] | None = None, verbose: bool = False) -> int:
    """Play the scenarios and print the result.

    Args:
        json: print one JSON document instead of a table.
        only: names of scenarios, or parts of names; None plays all.
        verbose: show every call of both runs, and what the guarded model read.

    Returns:
        The exit code: 0 if every guarded run did exactly what was wanted, 1 if one did not, 2 if there was nothing
        to play.
    """
    try:
        scenarios = select(only)
    except LookupError as error:
        print(error, file=sys.stderr)  # noqa: T201 - messages go to stderr
        return 2
    begun = time.monotonic()
    with keep_runs() as kept:
        results = [_play_kept(scenario, kept) for scenario in report.track_progress(scenarios, quiet=json)]
    seconds = time.monotonic() - begun
    if json:
        report.print_json(results, seconds)
    else:
        report.print_table(results, seconds, verbose=verbose)
        report.print_command("See the guarded runs in a browser:", kept.command)
    return 0 if all(result.guarded.is_clean for result in results) else 1


def _play_kept(scenario: Scenario, kept: KeptRuns) -> ScenarioResult:
    try:
        return play(scenario, kept)
    finally:
        kept.close_switches()


def _play_side(scenario: Scenario, loop: Callable[[Endpoint, World], RunLog]) -> Side:
    with new_world() as world:
        scenario.prepare(world)
        before = world.read_facts()
        endpoint = Endpoint(scenario.turns(world), scenario.window)
        begun = time.monotonic()
        log = loop(endpoint, world)
        seconds = time.monotonic() - begun
        happened = diff_facts(before, world.read_facts())
        return judge_side(scenario, happened, log, requests=endpoint.requests, seconds=seconds)
