"""Calls drawn for a person, who says which arguments would have been right.

A label file is a plain recording: once its `truth` fields are filled in, it is replayed like any other, and gives the
rates that need a truth. Every call has the same chance to be drawn, so the rates are those of the whole recording
within what a sample of this size can tell.

In: recordings, and a judge for what each call would become.
Out: rows for a JSON Lines file.
Never: a row that looks labelled before a person has seen it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Final

from msgspec import UNSET

from pokayoke.replay.recording import ReadResult, Recording
from pokayoke.replay.score.evaluate import Judge

UNLABELLED: Final = "?"
_SEED: Final = 20


def draw_calls(reads: Iterable[tuple[str, ReadResult]], size: int) -> list[tuple[str, Recording]]:
    """Return some of the calls, each with the name of its recording, in their order.

    The same recordings give the same calls, so that a second person can be asked about them.

    Args:
        reads: names of recordings, each with what a reader returned.
        size: how many.
    """
    # Reservoir sampling (Vitter's algorithm R): one pass, and memory for the sample alone.
    draw = random.Random(_SEED)  # noqa: S311 - nothing secret is drawn
    held: list[tuple[int, str, Recording]] = []
    seen = 0
    for name, read in reads:
        if not isinstance(read, Recording):
            continue
        seen += 1
        place = seen - 1 if seen <= size else draw.randrange(seen)
        if seen <= size:
            held.append((seen, name, read))
        elif place < size:
            held[place] = (seen, name, read)
    return [(name, read) for _, name, read in sorted(held, key=lambda one: one[0])]


def label_row(name: str, call: Recording, judge: Judge) -> dict[str, Any]:
    """Return the row of one call: what was recorded, what becomes of it, and a truth to fill in.

    Args:
        name: of its recording.
        call: the call.
        judge: decides what becomes of it.
    """
    judged = judge.judge_call(call)
    row: dict[str, Any] = {
        "at": f"{name}:{call.line}",
        "tool": call.tool,
        "arguments": call.arguments,
        "output": call.output,
        "run": call.run,
        "is_error": call.is_error,
        "stop_reason": call.stop_reason,
        "refused": judged.refusal.message if judged.refusal else None,
        "becomes": judged.arguments if judged.corrections or judged.reading.repairs else None,
    }
    kept = {key: value for key, value in row.items() if value is not None and value is not UNSET and value != ""}
    return {**kept, "truth": UNLABELLED if call.truth is UNSET else call.truth}
