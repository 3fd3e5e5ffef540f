"""The cost of a message in a history: the two-thousandth costs as much as the twentieth.

`python -m bench.context` prints times and, where valgrind is installed, instructions.
`python -m bench.context add 2000` only adds so many messages, which valgrind counts.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

from bench import callgrind
from bench.payloads import Source
from pokayoke.core.context import History

WINDOW = 10**9  # nothing is shortened: shortening is not part of a message's cost
TEXT_CHARS, BATCH, ROUNDS = 1_000, 20, 40


def build_message(number: int, text: str) -> dict[str, object]:
    if number % 2:
        return {"role": "tool", "tool_call_id": f"call_{number - 1}", "content": text}
    asked = {"name": "find_order", "arguments": f'{{"order": "ORD-{number:06d}"}}'}
    call = {"id": f"call_{number}", "type": "function", "function": asked}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def build_history(count: int, text: str) -> History:
    history = History(WINDOW, format="openai")
    for number in range(count):
        history.add(build_message(number, text))
    return history


def time_adding(count: int, text: str) -> float:
    """Return the seconds of one `add` from message `count` on: the least of many rounds, each on a new history."""
    best = float("inf")
    for _ in range(ROUNDS):
        history = build_history(count, text)
        batch = [build_message(number, text) for number in range(count, count + BATCH)]  # new objects, as in a real run
        begin = time.perf_counter()
        for one in batch:
            history.add(one)
        best = min(best, (time.perf_counter() - begin) / BATCH)
    return best


def growth(near: int = 20, far: int = 2_000) -> tuple[float, float]:
    """Return the seconds of `History.add` at message `near` and at message `far`, measured in turns."""
    text = Source().output(TEXT_CHARS)
    pairs = [(time_adding(near, text), time_adding(far, text)) for _ in range(7)]
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


def instructions(near: int = 20, far: int = 2_000) -> tuple[float, float]:
    """Return the instructions of `History.add` from message `near` and from message `far` on (needs valgrind)."""
    return tuple(
        (count_instructions(count + BATCH * 10) - count_instructions(count)) / (BATCH * 10) for count in (near, far)
    )


def count_instructions(messages: int) -> int:
    """Return all instructions of a process that adds so many messages."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, "-m", "bench.context"]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*command, "add", str(messages)], capture_output=True, text=True, check=True, env=environment)
    return int(re.search(r"Collected : (\d+)", done.stderr)[1])


if __name__ == "__main__":
    if sys.argv[1:2] == ["add"]:
        build_history(int(sys.argv[2]), Source().output(TEXT_CHARS))
    else:
        near, far = growth()
        print(f"History.add: {near * 1e6:.2f} us at message 20, {far * 1e6:.2f} us at 2,000, ratio {far / near:.3f}")
        if callgrind.is_available():
            near, far = instructions()
            print(f"instructions: {near:,.0f} at message 20, {far:,.0f} at 2,000, ratio {far / near:.3f}")
