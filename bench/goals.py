"""The goals that need only the product and its floor, each measured next to its baseline."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from bench import callgrind
from bench.floor import floor
from bench.goal import Goal, format_us
from bench.measure import Effort, low_percentile, time_each, time_side_by_side
from bench.payloads import with_mistakes
from bench.place import Place
from bench.product import build_guarded

SIZES = {"P2": (200, 1_000), "P1": (1_000, 10_000), "": (10_000, 100_000), "P3": (1_000, 195_000)}
PATIENT = {"loop": {"identical_failures": 10**9}}


def whole_call(place: Place, effort: Effort) -> Iterator[Goal]:
    """P1, P2 and P3: the guarded call over the floor."""
    bounds = {"P1": (3.0, 2.6), "P2": (7.0, 5.9), "P3": (2.6, 2.1)}
    for goal, (few, many) in SIZES.items():
        arguments, output = place.source.arguments(few), place.source.output(many)
        got = time_side_by_side({"floor": floor(arguments, output), "ours": place.product(arguments, output)}, effort)
        note = f"{format_us(got['ours'])} over {format_us(got['floor'])}"
        title = f"guarded call, {few / 1000:g} KB / {many / 1000:g} KB, over the floor"
        required, stretch = bounds.get(goal, (inf, inf))
        yield Goal(goal or "-", title, got["ours"] / got["floor"], required, stretch, note=note)


def instructions(place: Place, effort: Effort) -> Iterator[Goal]:
    """P4, and P6 in instructions."""
    if not callgrind.is_available():
        yield Goal("P4", "instructions of a guarded call over the floor", None, 2.35, 2.2, note="valgrind is not here")
        return
    for size, title, required, stretch in (("", "1 KB / 10 KB", 2.35, 2.2), ("-small", "0.2 KB / 1 KB", 5.2, 4.6)):
        ours, least = (callgrind.instructions_per_call(f"{kind}{size}") for kind in ("ours", "floor"))
        note = f"{ours:,.0f} over {least:,.0f}"
        yield Goal(
            "P4", f"instructions of a guarded call, {title}, over the floor", ours / least, required, stretch, note=note
        )
    late, early = (callgrind.instructions_per_call("ours-long", after) for after in (1_950, 100))
    note = f"{late:,.0f} over {early:,.0f}"
    yield Goal("P6", "instructions of call 2000 over call 150 of one run", late / early, 1.02, 1.0, note=note)


def growth(place: Place, effort: Effort) -> Iterator[Goal]:
    """P6 in time: a long run must not become slower. The median of nine runs."""
    arguments, output = place.source.arguments(1_000), place.source.output(1_500)
    ratios = []
    for _ in range(3 if effort.is_quick else 9):
        times = time_each(place.product(arguments, output), 2_000)
        ratios.append(low_percentile(times[1_800:]) / low_percentile(times[100:300]))
    ratio = sorted(ratios)[len(ratios) // 2]
    yield Goal("P6", "call 2000 over call 150 of one run", ratio, 1.10, 1.05, note="time")


def rejection(place: Place, effort: Effort) -> Iterator[Goal]:
    """P7: a refused call over a call that runs and whose output is not checked."""
    arguments = place.source.arguments(1_000)
    bad = with_mistakes(arguments)
    patient = place.spec("done", output_schema="text", config=PATIENT, attempts=True)
    refuse, run = build_guarded(patient), place.product(arguments, "done", output_schema="text")
    refused = refuse(bad)
    assert refused.status == "refused", refused
    assert len(refused.findings) >= 4, refused.findings
    got = time_side_by_side({"refused": lambda: refuse(bad), "run": run}, effort)
    note = f"{format_us(got['refused'])} with {len(refused.findings)} findings, over {format_us(got['run'])}"
    yield Goal("P7", "refused call over a call without output", got["refused"] / got["run"], 3.5, 2.5, note=note)


def surcharge(place: Place, effort: Effort) -> Iterator[Goal]:
    """P11: what the memory ledger adds to a write, in percent: claiming, settling, and storing the output.

    As in the reference table, the same call is measured with and without it. A write also does what a read need not
    (a trace line before its effect, a key, the effect handle of its tool); the second row shows how much.
    """
    arguments, output = place.source.arguments(1_000), place.source.output(10_000)
    kinds = {"read": None, "without": "none", "with": "memory"}
    cases = {kind: place.product(arguments, output, ledger=ledger) for kind, ledger in kinds.items()}
    got = time_side_by_side(cases, effort)
    note = f"{format_us(got['with'])} over {format_us(got['without'])}"
    yield Goal("P11", "memory ledger, per cent added", (got["with"] / got["without"] - 1) * 100, 15, 8, note=note)
    note = f"{format_us(got['with'])} over {format_us(got['read'])}"
    title = "a write in the memory ledger over a read, per cent added"
    yield Goal("-", title, (got["with"] / got["read"] - 1) * 100, inf, inf, note=note)
