"""Measure what a guarded tool turn costs with one host, inside its environment; prints one JSON line.

    python tests/frameworks/overhead.py --host langchain

The cost of a turn is the slope between runs of 1 and of 21 turns, so that starting a run does not count. The three
ways are measured in turn within each round, and the median over the rounds is taken: what slows the machine down
slows all of them. What is measured is this process's own time on the processor, so that what else the machine does
counts for nobody; the model is a script inside the process.
"""

import argparse
import contextlib
import gc
import importlib.metadata
import json
import statistics
import sys
import time

from runner import load

FEW, MANY = 1, 21
HOOKS = ("none", "empty", "guarded")


def slopes(host, rounds: int) -> dict[str, list[float]]:
    """Seconds of processor time per tool turn, for each way and round."""
    runs = {(hooks, calls): host.measured(hooks, calls) for hooks in HOOKS for calls in (FEW, MANY)}
    for run in runs.values():
        run()
    found = {hooks: [] for hooks in HOOKS}
    for number in range(rounds):
        # Each way is first in its turn: the first one pays for what the rounds before left behind.
        for at in range(len(HOOKS)):
            hooks = HOOKS[(number + at) % len(HOOKS)]
            few = _seconds(runs[hooks, FEW])
            found[hooks].append((_seconds(runs[hooks, MANY]) - few) / (MANY - FEW))
    return found


def _seconds(run) -> float:
    gc.collect()
    gc.disable()
    try:
        began = time.process_time()
        run()
        return time.process_time() - began
    finally:
        gc.enable()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", required=True)
    parser.add_argument("--rounds", type=int, default=30, help="rounds (30)")
    given = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):  # frameworks print what they like
        host = load(given.host)
        found = slopes(host, given.rounds)
    turn = {hooks: statistics.median(values) for hooks, values in found.items()}
    # Rounds are compared with themselves: a slow one slows all three. Where their quartiles are wide, measure again.
    pairs = zip(found["guarded"], found["empty"], strict=True)
    lower, _, upper = statistics.quantiles(guarded / empty for guarded, empty in pairs)
    about = {"host": given.host, "title": host.TITLE, "version": importlib.metadata.version(host.PACKAGE)}
    print(json.dumps({**about, "turn": turn, "quartiles": [lower, upper], "rounds": given.rounds}))


if __name__ == "__main__":
    main()
