"""The output of the demo: a table and a summary for people, one JSON document for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import orjson
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from pokayoke.demo.scenario import Scenario, ScenarioResult, Side

_MAX_EFFECTS = 2
"""Effects listed one by one before the rest is counted."""
_HINT_LENGTH, _TEXT_LENGTH = 120, 600
"""Characters shown of what the model reads: in the table, and with --verbose and in JSON."""
_WIDTH = 140
"""Columns of the table if the width of the terminal is unknown."""


def track_progress(scenarios: Sequence[Scenario], *, quiet: bool) -> Iterator[Scenario]:
    """Yield the scenarios with a progress bar on stderr, if that is a terminal."""
    console = Console(stderr=True)
    yield from track(scenarios, "playing", console=console, disable=quiet or not console.is_terminal, transient=True)


def print_table(results: Sequence[ScenarioResult], seconds: float, *, verbose: bool) -> None:
    """Print the table and the summary to stdout."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    for title, good in (("What goes wrong", False), ("What is right and has to pass", True)):
        rows = [result for result in results if result.scenario.good is good]
        if rows:
            console.print(_build_table(title, rows))
    if verbose:
        for result in results:
            _print_calls(console, result)
    console.print()
    for line in summary_lines(results, seconds):
        console.print(Text(line))


def print_command(reason: str, command: str) -> None:
    """Print a command to run next, on a line that no console folds."""
    sys.stdout.write(f"\n{reason}\n  {command}\n")


def print_json(results: Sequence[ScenarioResult], seconds: float) -> None:
    """Print all results as one JSON document to stdout."""
    document = {
        "ok": all(result.guarded.is_clean for result in results),
        "seconds": round(seconds, 3),
        "totals": count_totals(results),
        "scenarios": [
            {
                "name": result.scenario.name,
                "kind": result.scenario.kind,
                "good": result.scenario.good,
                "prompt": result.scenario.prompt,
                "wanted": result.scenario.wanted,
                "unguarded": _side_to_dict(result.unguarded),
                "guarded": _side_to_dict(result.guarded),
            }
            for result in results
        ],
    }
    sys.stdout.write(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n")


def count_totals(results: Sequence[ScenarioResult]) -> dict[str, int]:
    """Return how many effects were wrong, lost and kept on each side, over all scenarios."""
    return {
        "scenarios": len(results),
        "failure_kinds": sum(not result.scenario.good for result in results),
        "wanted": sum(len(result.scenario.wanted) for result in results),
        **{
            f"{side}_{what}": sum(len(getattr(getattr(result, side), what)) for result in results)
            for side in ("unguarded", "guarded")
            for what in ("wrong", "lost", "kept")
        },
    }


def summary_lines(results: Sequence[ScenarioResult], seconds: float) -> list[str]:
    """Return the five lines under the table."""
    count = count_totals(results)
    unclean = [result.scenario.name for result in results if not result.guarded.is_clean]
    good = [result for result in results if result.scenario.good]
    verdict = f"Not as it should be behind the guard: {', '.join(unclean)}."
    return [
        (
            f"Scripts: {count['scenarios']}, each played twice on databases of its own in {seconds:.1f} s. "
            f"Kinds of failure: {count['failure_kinds']}, of good calls: {len(good)}."
        ),
        *(
            (
                f"{side.capitalize() + ':':10} wrong things {count[f'{side}_wrong']}, "
                f"wanted effects {count[f'{side}_kept']} of {count['wanted']}."
            )
            for side in ("unguarded", "guarded")
        ),
        f"Good calls that passed the guard: {sum(result.guarded.is_clean for result in good)} of {len(good)}.",
        verdict if unclean else "Every guarded run did what was wanted and nothing else.",
    ]


def _build_table(title: str, results: Sequence[ScenarioResult]) -> Table:
    table = Table(title=title, title_justify="left", expand=True, show_lines=True)
    table.add_column("kind", ratio=4, overflow="fold")
    table.add_column("unguarded: what reached the world", ratio=6, overflow="fold")
    table.add_column("guarded: what happened", ratio=7, overflow="fold")
    for result in results:
        kind = Text(result.scenario.kind)
        kind.append(f"\n{result.scenario.name}", style="dim")
        table.add_row(
            kind,
            _describe_effects(result.unguarded),
            Text("\n").join([_describe_effects(result.guarded), *_describe_outcomes(result.guarded)]),
        )
    return table


def _describe_effects(side: Side) -> Text:
    parts = [
        *(Text(_escape_unprintable(line), style="bold red") for line in _limit_lines(side.wrong, "wrong: ")),
        *(Text(_escape_unprintable(line), style="yellow") for line in _limit_lines(side.lost, "missing: ")),
        *(Text(_escape_unprintable(line), style="green") for line in _limit_lines(side.kept, "right: ")),
    ]
    return Text("\n").join(parts) if parts else Text("nothing changed", style="green")


def _limit_lines(lines: Sequence[str], mark: str) -> Iterator[str]:
    for line in lines[:_MAX_EFFECTS]:
        yield mark + line
    if len(lines) > _MAX_EFFECTS:
        yield f"{mark}and {len(lines) - _MAX_EFFECTS} more like it"


def _describe_outcomes(side: Side) -> Iterator[Text]:
    """Return one line per kind of ending: how many guarded calls ended so, and what the model read first."""
    seen: dict[str, int] = {}
    for call in side.calls:
        why = f" ({call['stop_reason']}: {call['findings'][0]})" if call["stop_reason"] and call["findings"] else ""
        line = f"{call['tool']} → {call['status']}{why}"
        seen[line] = seen.get(line, 0) + 1
    for line, times in seen.items():
        yield Text(_escape_unprintable(line if times == 1 else f"{line} × {times}"), style="dim")
    told = next((call["reads"] for call in side.calls if call["status"] != "ok"), None)
    if told is not None:
        yield Text(f"the model reads: {_escape_unprintable(_clip_text(told, _HINT_LENGTH))}", style="italic dim")


def _print_calls(console: Console, result: ScenarioResult) -> None:
    console.print()
    console.print(Text(f"{result.scenario.name}: {result.scenario.prompt}", style="bold"))
    for name, side in (("unguarded", result.unguarded), ("guarded", result.guarded)):
        for call in side.calls:
            console.print(Text(f"  {name}  {_escape_unprintable(call['tool'])} → {call['status']}", style="bold dim"))
            console.print(
                Text(f"    reads: {_escape_unprintable(_clip_text(call['reads'], _TEXT_LENGTH))}", style="dim")
            )
        console.print(
            Text(
                f"  {name}  answer: {_escape_unprintable(_clip_text(side.answer or 'none', _TEXT_LENGTH))} "
                f"[{side.stop_reason}]"
            )
        )


def _clip_text(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _escape_unprintable(text: str) -> str:
    """Return a text from a tool without unprintable characters, for a terminal."""
    return "".join(char if char.isprintable() else " " if char == "\n" else repr(char)[1:-1] for char in text)


def _side_to_dict(side: Side) -> dict[str, Any]:
    entry = asdict(side)
    entry["clean"] = side.is_clean
    entry["seconds"] = round(side.seconds, 4)
    entry["calls"] = [{**call, "reads": _clip_text(call["reads"], _TEXT_LENGTH)} for call in side.calls]
    return entry
