"""`python -m bench`: prints every ratio with its bound; exit code 1 if a required bound is missed."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from bench.goal import Goal, format_goal
from bench.measure import QUICK, Effort
from bench.place import Place, temporary_folder

if TYPE_CHECKING:
    from bench.rooms import Row

# By name, and loaded late: a loaded peer slows down whatever is measured in the same process.
PARTS = {
    "call": "goals.whole_call",
    "instructions": "goals.instructions",
    "growth": "goals.growth",
    "rejection": "goals.rejection",
    "ledger": "goals.surcharge",
    "trace": "rooms.trace_event",
    "untrusted-instructions": "untrusted.instructions",
    "untrusted": "untrusted.checks",
    "recipe": "comparisons.recipe",
    "reading": "comparisons.reading",
    "stores": "stores.durable",
    "postgres": "postgres.shared",
    "peer": "comparisons.peer",
    "concurrency": "concurrency.at_once",
    "start": "processes.starting",
    "replay": "processes.replaying",
    "context": "context.compacting",
    "gateway-stdio": "gateway_stdio.stdio",
    "gateway": "gateway.http",
    "gateway-memory": "gateway.memory",
    "dashboard": "dashboard.pages",
}
LIBRARIES = ("orjson", "msgspec", "jiter", "jsonschema-rs", "json-repair", "jsonschema", "langchain-core")


def run_part(part: str, place: Place, effort: Effort) -> Iterator[Goal]:
    module, _, name = PARTS[part].partition(".")
    return getattr(importlib.import_module(f"bench.{module}"), name)(place, effort)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join([*PARTS, 'rooms'])}; or all")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and calls, no instruction counts")
    given = parser.parse_args()
    with temporary_folder() as folder:
        place = Place(folder)
        if unknown := set(given.parts) - {*PARTS, "rooms"}:
            parser.error(f"no such part: {', '.join(sorted(unknown))}")
        effort = QUICK if given.quick else Effort()
        chosen = given.parts or [
            part for part in [*PARTS, "rooms"] if not (given.quick and part.endswith("instructions"))
        ]
        machine = {
            "python": platform.python_version(),
            "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
        }
        if not given.json:
            print(f"python {machine['python']}, " + ", ".join(f"{k} {v}" for k, v in machine["libraries"].items()))
            print("\nCPU time unless said, 10th percentiles of interleaved rounds of one run; required bound (stretch)")
        found: list[Goal] = []
        for part in chosen:
            if part == "rooms":
                continue
            for goal in run_part(part, place, effort):
                found.append(goal)
                if not given.json:
                    print(format_goal(goal), flush=True)
        calls = 1_000 if given.quick else 10_000
        table: list[Row] = []
        if "rooms" in chosen:
            from bench.rooms import per_room  # noqa: PLC0415 - as above

            table = per_room(place, calls)
    if given.json:
        rows = [{**asdict(goal), "ok": goal.is_met} for goal in found]
        document = {**machine, "goals": rows, "rooms": [asdict(row) for row in table]}
        print(json.dumps(document).replace("Infinity", "null"))
    elif table:
        from bench.rooms import print_table  # noqa: PLC0415 - as above

        print_table(table, calls)
    missed = [goal for goal in found if not goal.is_met]
    for goal in missed:
        print(f"missed: {goal.id} {goal.title}: {goal.value:.2f}, required {goal.required:g}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
