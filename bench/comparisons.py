"""The goals that compare the product with others: the common recipe, the usual repair, a peer's tool."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import inf

import pokayoke
from bench.baselines import five_guardrails, langchain_tool, repair
from bench.floor import floor
from bench.goal import Goal, format_us
from bench.measure import Case, Effort, time_side_by_side
from bench.payloads import INPUT, TOOL, damaged_variants
from bench.place import Place


def recipe(place: Place, effort: Effort) -> Iterator[Goal]:
    """P5: the common recipe over the guarded call; and a call all of whose texts the trace searches."""
    arguments, output = place.source.arguments(1_000), place.source.output(10_000)
    cases = {
        "floor": floor(arguments, output),
        "ours": place.product(arguments, output),
        "doubtful": place.product(arguments.replace('"text": "', '"text": "secretary, ', 1), output),
    }
    histories = (20, 200, 2000)
    for messages in histories:
        cases[f"five {messages}"] = five_guardrails(arguments, output, place.root, place.source.history(messages))
    got = time_side_by_side(cases, effort)
    for messages, required, stretch in zip(histories, (2, 6, 50), (2.5, 8, 65), strict=True):
        five = got[f"five {messages}"]
        title = f"five guardrails, history of {messages}, over ours"
        note = f"{format_us(five)} over {format_us(got['ours'])}"
        yield Goal("P5", title, five / got["ours"], required, stretch, most=False, note=note)
    title = "guarded call with a word in it that resembles a secret's name, over the floor"
    yield Goal("-", title, got["doubtful"] / got["floor"], inf, inf, note=format_us(got["doubtful"]))


def reading(place: Place, effort: Effort) -> Iterator[Goal]:
    """P8: damaged arguments over the usual one-liner, for the worst kind of damage; and growth with length."""
    schema = pokayoke.Contract.from_schema(TOOL, INPUT, effect="read", output_schema="text").input
    text = place.source.arguments(1_000)
    cases: dict[str, Case] = {}
    for kind, broken in damaged_variants(text).items():
        read = pokayoke.read_arguments(broken, schema=schema)
        assert read.grade == "lossless", (kind, read)
        assert read.value == json.loads(text), kind
        cases[kind] = lambda broken=broken: pokayoke.read_arguments(broken, schema=schema)
        cases[f"{kind}, usual"] = repair(broken)
    got = time_side_by_side(cases, effort)
    ratios = {kind: got[kind] / got[f"{kind}, usual"] for kind in damaged_variants(text)}
    worst = max(ratios, key=lambda kind: ratios[kind])
    note = ", ".join(f"{kind} {format_us(got[kind])} ({ratio:.2f})" for kind, ratio in ratios.items())
    yield Goal("P8", f"reading damaged 1 KB over the usual repair (worst: {worst})", ratios[worst], 1.0, 0.7, note=note)
    long = damaged_variants(place.source.arguments(100_000))["trailing comma"]
    short = damaged_variants(text)["trailing comma"]
    got = time_side_by_side(
        {
            "long": lambda: pokayoke.read_arguments(long, schema=schema),
            "short": lambda: pokayoke.read_arguments(short, schema=schema),
        },
        effort,
    )
    per_long, per_short = got["long"] / len(long), got["short"] / len(short)
    note = f"{per_long * 1e9:.0f} over {per_short * 1e9:.0f} ns per character"
    yield Goal("P8", "time per character at 100 KB over 1 KB", per_long / per_short, 1.25, 1.0, note=note)


def peer(place: Place, effort: Effort) -> Iterator[Goal]:
    """P13: a peer's tool over ours, arguments checked, the output only measured."""
    arguments, output = place.source.arguments(1_000), place.source.output(10_000)
    fields = {"output_checks": "size_only"}
    ours = place.product(arguments, output, output_schema="text", path_fields=[], fields=fields)
    got = time_side_by_side({"peer": langchain_tool(arguments, output), "ours": ours}, effort)
    note = f"{format_us(got['peer'])} over {format_us(got['ours'])}"
    title = "langchain-core tool.invoke over a guarded call, argument checks only"
    yield Goal("P13", title, got["peer"] / got["ours"], 4.0, 6.0, most=False, note=note)
