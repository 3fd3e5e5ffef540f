"""What a message costs a history: the two-thousandth as much as the twentieth.

`python -m bench.context` prints times and, where valgrind is installed, instructions.
`python -m bench.context add 2000` only adds so many messages: that is what is counted.
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

WINDOW = 10**9  # nothing is shortened: that costs what it costs, and is not the price of a message
TEXT_CHARS, BATCH, ROUNDS = 1_000, 20, 40


def message(number: int, text: str) -> dict[str, object]:
    if number % 2:
        return {"role": "tool", "tool_call_id": f"call_{number - 1}", "content": text}
    asked = {"name": "find_order", "arguments": f'{{"order": "ORD-{number:06d}"}}'}
    call = {"id": f"call_{number}", "type": "function", "function": asked}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def grown(count: int, text: str) -> History:
    history = History(WINDOW, format="openai")
    for number in range(count):
        history.add(message(number, text))
    return history


def adding(count: int, text: str) -> float:
    """Seconds of one `add` from message `count` on: the least of many rounds, each on a history of its own."""
    best = float("inf")
    for _ in range(ROUNDS):
        history = grown(count, text)
        batch = [message(number, text) for number in range(count, count + BATCH)]  # as fresh as messages are
        begin = time.perf_counter()
        for one in batch:
            history.add(one)
        best = min(best, (time.perf_counter() - begin) / BATCH)
    return best


def growth(near: int = 20, far: int = 2_000) -> tuple[float, float]:
    """Seconds of `History.add` at message `near` and at message `far`, measured in turns."""
    text = Source().output(TEXT_CHARS)
    pairs = [(adding(near, text), adding(far, text)) for _ in range(7)]
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


def instructions(near: int = 20, far: int = 2_000) -> tuple[float, float]:
    """Instructions of `History.add` from message `near` and from message `far` on (needs valgrind)."""
    return tuple((counted(count + BATCH * 10) - counted(count)) / (BATCH * 10) for count in (near, far))


def counted(messages: int) -> int:
    """All instructions of a process that adds so many messages."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, "-m", "bench.context"]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*command, "add", str(messages)], capture_output=True, text=True, check=True, env=environment)
    return int(re.search(r"Collected : (\d+)", done.stderr)[1])


if __name__ == "__main__":
    if sys.argv[1:2] == ["add"]:
        grown(int(sys.argv[2]), Source().output(TEXT_CHARS))
    else:
        near, far = growth()
        print(f"History.add: {near * 1e6:.2f} us at message 20, {far * 1e6:.2f} us at 2,000, ratio {far / near:.3f}")
        if callgrind.available():
            near, far = instructions()
            print(f"instructions: {near:,.0f} at message 20, {far:,.0f} at 2,000, ratio {far / near:.3f}")
