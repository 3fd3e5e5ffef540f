"""Microseconds per room over ten thousand calls, next to the five rows of the paper; and one trace event.

The paper is the one whose five guardrails started this project ("Per-call latency overhead", measured
over 10,000 tool calls). Its rows are re-measured here in the same run, on the same payload.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import json_repair
import orjson

import pokayoke
from bench.goal import Goal, format_us
from bench.measure import Case, Effort, time_each, time_side_by_side
from bench.payloads import INPUT, OUTPUT, PATH, TOOL
from pokayoke.core.catalogue.catalogue import Catalogue
from pokayoke.core.context.tokens import TokenCounter
from pokayoke.core.correct.correct import correct_arguments
from pokayoke.core.intake import read_arguments
from pokayoke.core.json.canonical import canonical_bytes, sha256_hex
from pokayoke.core.output.model_text import result_text
from pokayoke.core.output.validate import check_output
from pokayoke.core.policy import Policy, TracePolicy
from pokayoke.runtime.driver.path_arguments import resolve_path_arguments
from pokayoke.runtime.trace.trace import Trace

if TYPE_CHECKING:
    from bench.place import Place

PAPER = {"JSON repair": 120, "tool name": 5, "return type": 85, "path": 45, "context": 200}
HISTORY = 150


@dataclass(frozen=True)
class Row:
    """One room.

    Attributes:
        room: its name.
        us: median microseconds of one call.
        paper: the paper's row that does the same job, and its figure; None if it has none.
        recipe: the same row re-measured in this run.
    """

    room: str
    us: float
    job: str | None = None
    paper: float | None = None
    recipe: float | None = None


def trace_event(place: Place, effort: Effort) -> Iterator[Goal]:
    """P12: writing one trace event over a plain dump of the same event into a buffered file."""
    trace = Trace(TracePolicy(path=str(Path(place.root, "events.jsonl"))))
    event = {
        "ts": 1_790_000_000.25, "run_id": "run_2c18", "step": 3, "event": "tool_result", "tool": TOOL, "ok": True,
        "call_id": "call_3", "status": "ok", "contract": f"{TOOL}@1", "args_hash": "9f2c1c0a7be34d11", "us": 412,
        "attempts": 1,
    }  # fmt: skip
    with Path(place.root, "plain.jsonl").open("ab") as file:
        write, dumps = file.write, orjson.dumps
        got = time_side_by_side(
            {"ours": lambda: trace.record(dict(event)), "plain": lambda: write(dumps(dict(event)) + b"\n")}, effort
        )
    trace.close()
    note = f"{format_us(got['ours'])} over {format_us(got['plain'])}"
    yield Goal("P12", "trace event over a dump and a buffered write", got["ours"] / got["plain"], 2.0, 1.6, note=note)


def recipe(place: Place, arguments: str, output: str) -> dict[str, Case]:
    """Return the paper's five guardrails, one by one."""
    values, result = json.loads(arguments), json.loads(output)
    known = {TOOL, *(f"other_{number}" for number in range(40))}
    history = place.source.history(HISTORY)
    return {
        "JSON repair": lambda: json.loads(json_repair.repair_json(arguments)),
        "tool name": lambda: TOOL in known,
        "return type": lambda: json.dumps(result),
        "path": lambda: (Path(place.root) / values["target"]).resolve().is_relative_to(Path(place.root).resolve()),
        "context": lambda: sum(len(str(message)) // 4 for message in history),
    }


def rooms(place: Place, arguments: str, output: str) -> dict[str, tuple[Case, str | None]]:
    """Return each room with the values it gets during a call, and the paper's row for the same job."""
    contract = pokayoke.Contract.from_schema(
        TOOL, INPUT, output_schema=OUTPUT, effect="read", handler=lambda **_: output, paths={"target": (place.root,)}
    )
    others = [
        pokayoke.Contract.from_schema(f"other_{number}", {"type": "object"}, output_schema="text", effect="read")
        for number in range(40)
    ]
    pokayoke.Guard([contract])  # prepares the roots
    catalogue, policy = Catalogue((contract, *others)), Policy()
    reading = read_arguments(arguments, schema=contract.input)
    value: dict[str, Any] = reading.value or {}
    kinds = policy.corrections.read
    limits = policy.validation.tool_output
    checked = check_output(output, contract, arguments=value, policy=limits)
    assert not checked.findings, checked.findings
    counter, trace = TokenCounter(), Trace(TracePolicy(path=str(Path(place.root, "rooms.jsonl"))))
    decided = {
        "ts": 1.5, "run_id": "r", "step": 1, "event": "tool_call", "tool": TOOL, "ok": True, "call_id": "c",
        "room": "gate", "decision": "allow", "args_hash": "x", "confidence": 1.0, "arguments": reading.canonical,
    }  # fmt: skip
    ended = {
        "ts": 1.5, "run_id": "r", "step": 1, "event": "tool_result", "tool": TOOL, "ok": True, "call_id": "c",
        "status": "ok", "contract": contract.id, "args_hash": "x", "us": 1, "attempts": 1, "effect": "none",
        "result": checked.canonical,
    }  # fmt: skip

    def traced() -> None:
        trace.record(dict(decided))
        trace.record(dict(ended))

    guarded = place.product(arguments, output)
    return {
        "intake (read strictly, prove depth and duplicates)": (
            lambda: read_arguments(arguments, schema=contract.input), "JSON repair",
        ),
        "catalogue (resolve the name)": (lambda: catalogue.resolve_name(TOOL), "tool name"),
        "check (arguments against the schema)": (lambda: contract.input.is_valid(value), None),
        "check and correct (with placeholders)": (
            lambda: correct_arguments(value, contract, kinds=kinds, canonical=reading.canonical), None,
        ),
        "ledger (canonical form and digest)": (lambda: sha256_hex(canonical_bytes(value, reading.canonical)), None),
        "paths (lexical check and walk below the root)": (lambda: resolve_path_arguments(contract, value), "path"),
        "output (size, strict parse, envelope, schema)": (
            lambda: check_output(output, contract, arguments=value, policy=limits), "return type",
        ),
        "present (neutralise, wrap)": (
            lambda: result_text(checked.value, tool=TOOL, call_id="c", trust="trusted", canonical=checked.canonical),
            None,
        ),
        "context (count what is new)": (lambda: counter.add(output), "context"),
        "trace (two events to a file)": (traced, None),
        "whole guarded call": (guarded, "total"),
    }  # fmt: skip


def per_room(place: Place, calls: int) -> list[Row]:
    """Return the median of so many single calls per room, rooms and recipe in turns."""
    arguments, output = place.source.arguments(1_000), place.source.output(10_000)
    assert PATH in arguments
    usual = recipe(place, arguments, output)
    ours = rooms(place, arguments, output)
    pieces = 10  # in turns, so that a slow second of the machine affects every row
    taken: dict[str, list[float]] = {name: [] for name in [*ours, *usual]}
    for _ in range(pieces):
        for name, case in [*((name, case) for name, (case, _) in ours.items()), *usual.items()]:
            taken[name] += time_each(case, calls // pieces)
    median = {name: statistics.median(times) * 1e6 for name, times in taken.items()}
    totals = {"total": (sum(PAPER.values()), sum(median[name] for name in usual))}
    found = []
    for room, (_, job) in ours.items():
        paper, measured = totals.get(job or "", (PAPER.get(job or ""), median.get(job or "")))
        found.append(Row(room, median[room], job, paper, measured))
    return found


def print_table(rows: list[Row], calls: int) -> None:
    """Print the table for people."""
    print(f"\nus per room, medians of {calls:,} calls, arguments 1 KB, output 10 KB")
    print(f"  {'room':52} {'ours':>8}  {'recipe':>8}  {'paper':>6}  job in the paper")
    for row in rows:
        recipe_us = f"{row.recipe:8.1f}" if row.recipe is not None else " " * 8
        paper = f"{row.paper:6.0f}" if row.paper is not None else " " * 6
        print(f"  {row.room:52} {row.us:8.1f}  {recipe_us}  {paper}  {row.job or ''}")
    print(f"  recipe: the same five lines re-measured in this run; context with a history of {HISTORY} messages")
