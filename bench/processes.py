"""P14, P18 and P19: whole processes. The import of the library, the command line, the replay of a recording."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from math import inf
from pathlib import Path

from bench.goal import Goal
from bench.measure import Effort, Process, low_percentile, run_process
from bench.payloads import INPUT, OUTPUT, TOOL, Source
from bench.place import Place

FIRST_CALL = """
import pokayoke

SCHEMA = {"type": "object", "properties": {"key": {"type": "integer"}}}
count = pokayoke.Contract.from_schema(
    "count", SCHEMA, output_schema=SCHEMA, effect="read", handler=lambda key: {"key": key}
)
assert pokayoke.Guard([count]).run().call(pokayoke.ToolCall("c", "count", '{"key": 1}')).status == "ok"
"""


def run_side_by_side(cases: dict[str, list[str]], folder: str, effort: Effort) -> dict[str, Process]:
    """Return the tenth percentile of what each process takes; in every round each runs once, in random order."""
    order, taken = random.Random(3), {name: [] for name in cases}
    for words in cases.values():  # writes the byte code
        run_process(words, folder)
    for _ in range(max(7, effort.rounds // 6)):
        for name in order.sample(list(cases), len(cases)):
            taken[name].append(run_process(cases[name], folder))
    return {
        name: Process(low_percentile([one.cpu for one in found]), max(one.memory for one in found))
        for name, found in taken.items()
    }


def starting(place: Place, effort: Effort) -> Iterator[Goal]:
    """P14: importing the library over importing the reference validator. P18: the command line."""
    cases = {
        "nothing": ["-c", "pass"],
        "ours": ["-c", "import pokayoke"],
        "jsonschema": ["-c", "import jsonschema"],
        "first call": ["-c", FIRST_CALL],
        "typer": ["-c", "import typer"],
        "version": ["-m", "pokayoke", "--version"],
        "help": ["-m", "pokayoke", "ledger", "list", "--help"],
    }
    got = run_side_by_side(cases, place.root, effort)
    ms = {name: process.cpu * 1e3 for name, process in got.items()}
    ours, theirs = (ms[name] - ms["nothing"] for name in ("ours", "jsonschema"))
    note = f"{ours:.0f} ms over {theirs:.0f} ms"
    yield Goal("P14", "import pokayoke over import jsonschema", ours / theirs, 1.1, 0.8, note=note)
    memory = got["first call"].memory
    yield Goal("P14", "resident MB of import, guard and first call", memory, 40, 32, note=f"{ms['first call']:.0f} ms")
    note = f"ms of CPU, {ms['nothing']:.0f} of them Python, {ms['typer'] - ms['nothing']:.0f} import typer"
    yield Goal("P18", "command line, --version", ms["version"], 150, 120, note=note)
    yield Goal("P18", "command line, a sub-command's --help", ms["help"], 250, 180, note=note)


def replaying(place: Place, effort: Effort) -> Iterator[Goal]:
    """P19: lines with answers that one core replays in a second, start-up aside."""
    contracts = Path(place.root, "contracts.json")
    contract = {"name": TOOL, "effect": "read", "input_schema": INPUT, "output_schema": OUTPUT}
    contracts.write_text(json.dumps({"contracts": [contract]}))
    sizes, cases = (1_000, 5_000 if effort.is_quick else 21_000), {}
    for size in sizes:
        source, path = Source(), Path(place.root, f"calls-{size}.jsonl")
        with path.open("w") as file:
            for number in range(size):
                line = {
                    "run": f"r{number // 20}", "tool": TOOL, "arguments": source.arguments(200),
                    "output": json.loads(source.output(500)),
                }  # fmt: skip
                file.write(json.dumps(line) + "\n")
        cases[str(size)] = [
            "-m",
            "pokayoke",
            "replay",
            str(path),
            "--contracts",
            str(contracts),
            "--jobs",
            "1",
            "--json",
        ]
    got = run_side_by_side(cases, place.root, Effort(rounds=1))
    seconds = got[str(sizes[1])].cpu - got[str(sizes[0])].cpu
    each = seconds / (sizes[1] - sizes[0])
    note = f"{each * 1e6:.0f} us a line; all of {sizes[1]:,} lines {got[str(sizes[1])].memory:.0f} MB"
    yield Goal("P19", "lines that one core replays in a second", 1 / each, 12_000, 20_000, most=False, note=note)
    more = got[str(sizes[1])].memory / got[str(sizes[0])].memory
    yield Goal("-", f"memory of {sizes[1]:,} lines over {sizes[0]:,}", more, inf, inf)
