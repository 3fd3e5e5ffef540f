"""Plays recorded calls through a guard that only notes where values come from.

`python -m tests.support.recorded_sources CALLS.jsonl TRACE` writes a trace for `pokayoke trace report TRACE`. Each
conversation is a run; the calls of a line get the line's `output` as the answer of their tool. What the users said is
not recorded, so each run knows no words.
"""

from __future__ import annotations

import json
import sys
from itertools import groupby
from pathlib import Path

import pokayoke


def main(calls: str, trace: str) -> None:
    lines = [json.loads(line) for line in Path(calls).read_text(encoding="utf-8").splitlines()]
    tools = sorted({line["tool"] for line in lines})
    contracts = [pokayoke.Contract.from_schema(tool, {"type": "object"}, output_schema={}) for tool in tools]
    config = {"trace": {"path": trace}, "loop": {"off": "*"}, "safe_mode": {"kill_switch": False}}
    with pokayoke.Guard(contracts, config=config) as guard:
        for number, (_, conversation) in enumerate(
            groupby(lines, lambda one: (one.get("file"), one["task_id"], one.get("trial")))
        ):
            with guard.run(f"r{number}") as run:
                for line in conversation:
                    output = line["output"]
                    run.call(
                        pokayoke.ToolCall("", line["tool"], line["arguments"]), invoke=lambda _, output=output: output
                    )


if __name__ == "__main__":
    main(*sys.argv[1:3])
