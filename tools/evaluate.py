"""Five kinds of failure before and after, their cost, and the rates that need a truth: `make evaluate`.

The data are made here, from a fixed seed, so that the truth of every call is known and every run gives the same
counts; only the times differ. Before is the loop people write: JSON closed until it parses, the tool with the nearest
name, `str` of a result, a path below the workspace by its beginning, the whole history. After is `pokayoke.dropin`.

In: nothing, or the number of calls. Out: three tables and six rates. Never: a figure that was not measured.
"""

from __future__ import annotations

import argparse
import difflib
import json
import logging
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from pokayoke import Contract, dropin
from pokayoke.core.schema.schema import compile_schema
from pokayoke.replay.engines import open_local, run
from pokayoke.replay.parts import Merger, read_parts, score_part
from pokayoke.replay.score.counts import Score, Tally, compute_rates
from pokayoke.replay.score.evaluate import Judge
from pokayoke.replay.score.summary import ContractSet

SEED = 2_026
SCHEMA = {
    "type": "object",
    "properties": {
        "sku": {"type": "string"},
        "amount": {"type": "integer", "minimum": 1, "maximum": 100},
        "currency": {"enum": ["CNY", "USD", "EUR"]},
        "note": {"type": "string"},
    },
    "required": ["sku", "amount", "currency"],
    "additionalProperties": False,
}
CONTRACT = Contract.from_schema("create_order", SCHEMA, effect="write")
TOOLS = frozenset({"create_order", "find_order", "read_file"})
WINDOW = 2_000
LATENCY_RUNS = 2_000


class Outcome(msgspec.Struct):
    """What became of the cases of one kind: good, stopped with a reason, or wrong without a word."""

    good: int = 0
    stopped: int = 0
    wrong: int = 0

    def count(self, result: str) -> None:
        """Count one case: `good`, `stopped` or `wrong`."""
        setattr(self, result, getattr(self, result) + 1)


def make_order(draw: random.Random) -> dict[str, Any]:
    """Return the arguments of a call as they should be."""
    order = {
        "sku": f"S-{draw.randrange(1_000)}",
        "amount": draw.randint(1, 100),
        "currency": draw.choice(["CNY", "USD", "EUR"]),
    }
    return order | (
        {"note": draw.choice(["it's urgent", "ring, then wait", "{fragile}"])} if draw.choice([True, False]) else {}
    )


def damage(draw: random.Random, order: dict[str, Any]) -> str:
    """Return the arguments as a text that does not parse, in one of the ways that models write."""
    text = json.dumps(order)
    return draw.choice(
        [
            lambda: text[:-1] + ",}",
            lambda: "{" + ", ".join(f"{key}: {json.dumps(value)}" for key, value in order.items()) + "}",
            lambda: repr(order),
            lambda: f"```json\n{text}\n```",
            lambda: text.replace(", ", " ", 1),
            lambda: text[: draw.randrange(len(text) // 2, len(text) - 1)],
            lambda: text[:-1],
        ]
    )()


# -- table 1: five kinds of failure ----------------------------------------------------------------


def failures(draw: random.Random, calls: int, workspace: Path) -> Iterator[tuple[str, Outcome, Outcome]]:
    """Yield each kind of failure with what became of it before and after."""
    kinds: list[tuple[str, int, Callable[[], tuple[str, str]]]] = [
        ("malformed arguments", calls, lambda: malformed_case(draw)),
        ("invented tools", calls // 10, lambda: invented_case(draw)),
        ("results without a JSON form", calls // 10, lambda: result_case(draw)),
        ("paths out of the workspace", calls // 10, lambda: path_case(draw, workspace)),
        ("histories beyond the window", calls // 100, lambda: history_case(draw)),
    ]
    for kind, number, case in kinds:
        before, after = Outcome(), Outcome()
        for _ in range(number):
            first, second = case()
            before.count(first)
            after.count(second)
        yield kind, before, after


def malformed_case(draw: random.Random) -> tuple[str, str]:
    """Return what becomes of a damaged argument text."""
    truth = make_order(draw)
    text = damage(draw, truth)

    def compare(read: Callable[[], Any]) -> str:
        try:
            return "good" if read() == truth else "wrong"
        except ValueError:
            return "stopped"

    return compare(lambda: close_and_load(text)), compare(lambda: dropin.safe_parse_args(text, COMPILED))


def close_and_load(text: str) -> Any:
    """Parse as common loops do: closing what is open until it parses."""
    for end in ("", "}", '"}', ": null}", "null}"):
        try:
            return json.loads(text.rstrip(", ") + end)
        except json.JSONDecodeError:
            continue
    raise ValueError(text)


def invented_case(draw: random.Random) -> tuple[str, str]:
    """Return what becomes of a tool name that does not exist."""
    name = draw.choice(["create_orders", "browser_navigate", "find_orders", "read_files", "delete_order"])
    before = "wrong" if difflib.get_close_matches(name, TOOLS, n=1) else "stopped"  # another tool runs
    return before, "wrong" if dropin.validate_tool_name(name, TOOLS) else "stopped"


def result_case(draw: random.Random) -> tuple[str, str]:
    """Return what becomes of a tool's result that JSON cannot hold."""
    result = draw.choice([{"f": len}, {"n": math.nan}, {"x": {1, 2}, "g": iter(())}, object(), {"deep": [lambda: 1]}])
    try:
        text = json.dumps(result)
    except TypeError:
        text = str(result)
    before = "wrong" if " at 0x" in text or "NaN" in text or "built-in" in text else "good"
    return before, "stopped" if "error" in json.loads(dropin.safe_serialize(result)) else "wrong"


def path_case(draw: random.Random, workspace: Path) -> tuple[str, str]:
    """Return what becomes of a path that leaves the workspace."""
    other = workspace.with_name(f"{workspace.name}-other") / "secret"
    path = draw.choice(["../secret", str(other), "/etc/passwd", "a/../../b", "link/passwd", "notes/x\0.txt"])
    joined = os.path.join(workspace, path)  # noqa: PTH118 - the check that many loops make
    passes = os.path.abspath(joined).startswith(str(workspace)) and "\0" not in path  # noqa: PTH100 - as above
    before = "wrong" if passes and not Path(joined).resolve().is_relative_to(workspace.resolve()) else "stopped"
    try:
        dropin.safe_path(path, workspace)
    except ValueError:
        return before, "stopped"
    return before, "wrong"


def history_case(draw: random.Random) -> tuple[str, str]:
    """Return what becomes of a history that is larger than the window."""
    history: list[dict[str, Any]] = [{"role": "system", "content": "You take orders."}]
    for turn in range(40):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "find_order", "arguments": "{}"}}
        text = " ".join(draw.choice(["order", "price", "late", "ring"]) for _ in range(80))
        history += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": text},
        ]
    shortened = dropin.check_context(history, WINDOW)
    asked = {call["id"] for one in shortened for call in one.get("tool_calls") or ()}
    answered = {one["tool_call_id"] for one in shortened if one["role"] == "tool"}
    fits = count_tokens(shortened) <= WINDOW and asked == answered and shortened[0] == history[0]
    return "wrong" if count_tokens(history) > WINDOW else "good", "good" if fits else "wrong"


def count_tokens(history: list[dict[str, Any]]) -> int:
    """Return about how many tokens a history has: four characters each."""
    return sum(len(json.dumps(message)) for message in history) // 4


# -- table 2: cost ---------------------------------------------------------------------------------


def costs(draw: random.Random, workspace: Path) -> Iterator[tuple[str, float]]:
    """Yield each guardrail with the median of its time on good input, in microseconds."""
    text, result = json.dumps(make_order(draw)), {"id": "O-7", "items": [1, 2, 3]}
    history = [{"role": "user", "content": "hello"}] * 40
    rows: list[tuple[str, Callable[[], object]]] = [
        ("arguments", lambda: dropin.safe_parse_args(text, COMPILED)),
        ("tool name", lambda: dropin.validate_tool_name("find_order", TOOLS)),
        ("result", lambda: dropin.safe_serialize(result)),
        ("path", lambda: dropin.safe_path("notes/a.txt", workspace)),
        ("context, 40 messages", lambda: dropin.check_context(history, 100_000)),
    ]
    for name, work in rows:
        times: list[int] = []
        for _ in range(LATENCY_RUNS):
            start = time.perf_counter_ns()
            work()
            times.append(time.perf_counter_ns() - start)
        yield name, sorted(times)[len(times) // 2] / 1_000


# -- table 3: quality, and the rates ---------------------------------------------------------------


def quality(draw: random.Random, tasks: int) -> tuple[int, int, int, float]:
    """Return how many good tasks succeed before, after, differ, and McNemar's exact p of the difference."""
    before = after = worse = better = 0
    for _ in range(tasks):
        truth = make_order(draw)
        text = json.dumps(truth)
        plain = close_and_load(text) == truth
        guarded = dropin.safe_parse_args(text, COMPILED) == truth
        before, after = before + plain, after + guarded
        worse, better = worse + (plain and not guarded), better + (guarded and not plain)
    pairs = worse + better
    tail = sum(math.comb(pairs, k) for k in range(min(worse, better) + 1)) / 2**pairs
    return before, after, pairs, min(1.0, 2 * tail)


def write_recording(draw: random.Random, calls: int, path: Path) -> None:
    """Write calls with their truth: two of three are right, the others wrong in one of many ways."""
    with path.open("wb") as file:
        for number in range(calls):
            truth: dict[str, Any] | None = make_order(draw)
            assert truth is not None, "it is replaced below only"
            sent: Any = dict(truth)
            tool = "create_order"
            kind = draw.randrange(12)
            if kind == 0:
                sent = damage(draw, truth)
            elif kind == 1:
                sent["amount"] = str(truth["amount"])
            elif kind == 2:  # noqa: PLR2004 - one number per way
                sent["amount"], truth = draw.choice([0, 101, "2-3", 1.5]), None
            elif kind == 3:  # noqa: PLR2004 - as above
                sent.pop("currency")
            row = {"tool": tool, "arguments": sent, "run": str(number), "truth": truth}
            file.write(msgspec.json.encode(row) + b"\n")


def rates(path: Path) -> Iterator[tuple[str, float | None, int, int]]:
    """Yield the rates of a replay."""
    score = Score(tallies=[Tally()])
    with open_local([ContractSet("", Judge([CONTRACT]))]) as engine:
        run(engine, score_part, read_parts([str(path)]), Merger(score))
    for rate in compute_rates(score.tallies[0].sum_tools()):
        yield rate.name, rate.share, rate.hits, rate.of


COMPILED = compile_schema(SCHEMA)


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--calls", type=int, default=1_400, help="malformed calls; the other kinds follow; default 1400"
    )
    calls = max(100, parser.parse_args().calls)
    logging.disable()
    draw = random.Random(SEED)  # noqa: S311 - the same data every time
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder, "workspace")
        (workspace / "notes").mkdir(parents=True)
        (workspace / "link").symlink_to("/etc")
        print("1. what becomes of failures        before: good stopped wrong   after: good stopped wrong")
        for kind, before, after in failures(draw, calls, workspace):
            cells = (before.good, before.stopped, before.wrong, after.good, after.stopped, after.wrong)
            print(
                f"   {kind:<31}"
                + "".join(f"{cell:>{width}}" for cell, width in zip(cells, (13, 8, 6, 13, 8, 6), strict=True))
            )
        print("2. cost of each guardrail on good input, median")
        for name, microseconds in costs(draw, workspace):
            print(f"   {name:<31}{microseconds:>10.1f} us")
        before_good, after_good, pairs, p = quality(draw, 200)
        print("3. quality on 200 good tasks")
        print(f"   {before_good} before, {after_good} after, {pairs} differ, p = {p:.2f} (McNemar, exact)")
        print(f"4. rates of {calls} calls with a known truth, by pokayoke replay")
        recording = Path(folder, "calls.jsonl")
        write_recording(draw, calls, recording)
        for name, share, hits, of in rates(recording):
            print(f"   {name:<31}" + ("-" if share is None else f"{share:>10.1%}  {hits} of {of}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
