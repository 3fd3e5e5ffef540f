"""P20: `compact` of two thousand messages, and what a message costs in a history of any length."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import inf

import pokayoke
from bench.goal import Goal
from bench.measure import Effort, low_percentile, time_each, time_side_by_side
from bench.payloads import Source
from bench.place import Place
from pokayoke.core.context import History

MESSAGES, WINDOW = 2_000, 10**9  # nothing is shortened: shortening is not part of a message's cost
TEXT_CHARS, BATCH, ROUNDS = 1_000, 20, 40


def build_message(number: int, text: str) -> dict[str, object]:
    if number % 2:
        return {"role": "tool", "tool_call_id": f"call_{number - 1}", "content": text}
    asked = {"name": "find_order", "arguments": f'{{"order": "ORD-{number:06d}"}}'}
    call = {"id": f"call_{number}", "type": "function", "function": asked}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def time_adding(count: int, text: str) -> float:
    """Return the CPU seconds of one `add` from message `count` on: the tenth percentile of many new histories."""
    taken = []
    for _ in range(ROUNDS):
        history = History(WINDOW, format="openai")
        for number in range(count):
            history.add(build_message(number, text))
        batch = iter([build_message(number, text) for number in range(count, count + BATCH)])
        taken += time_each(lambda history=history, batch=batch: history.add(next(batch)), BATCH)
    return low_percentile(taken)


def compacting(place: Place, effort: Effort) -> Iterator[Goal]:
    """P20, and the growth of a history."""
    messages = place.source.history(MESSAGES)
    cases = {
        "nothing to do": lambda: pokayoke.compact(messages, WINDOW),
        "shortened to 20,000 tokens": lambda: pokayoke.compact(messages, 20_000),
        "json.dumps": lambda: json.dumps(messages),
    }
    got = time_side_by_side(cases, Effort(rounds=max(20, effort.rounds // 5), warm_up=effort.warm_up))
    for name, required, stretch in (("nothing to do", 30, 15), ("shortened to 20,000 tokens", 110, 60)):
        note = f"ms of CPU; json.dumps {got['json.dumps'] * 1e3:.1f}"
        yield Goal("P20", f"compact {MESSAGES:,} messages, {name}", got[name] * 1e3, required, stretch, note=note)
    text = Source().output(TEXT_CHARS)
    near, far = time_adding(20, text), time_adding(MESSAGES, text)
    note = f"{far * 1e6:.1f} over {near * 1e6:.1f} us"
    yield Goal("-", f"adding message {MESSAGES:,} over message 20", far / near, inf, inf, note=note)
