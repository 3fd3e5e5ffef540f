"""What it costs to know where values come from: in a run without untrusted content, and in one that read much."""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from math import inf

import pokayoke
from bench import callgrind
from bench.goal import Goal
from bench.measure import Effort
from bench.place import Place

_READ = 10_000_000  # bytes of outputs
_EACH = 190_000  # bytes of one output
_PART = {"type": "object", "properties": {"part": {"type": "integer"}}, "required": ["part"]}
_CHANGE = {
    "type": "object",
    "required": ["record", "note"],
    "properties": {"record": {"type": "string"}, "price": {"type": "number"}, "note": {"type": "string"}},
}
_WORDS = "Settle REC-1000004 for 12.50, and then the records that wait for a call before noon."


def instructions(place: Place, effort: Effort) -> Iterator[Goal]:
    """Instructions of a read, and of the first write of a run, over `untrusted.mode: off`."""
    for kind, case, off in (("read", "ours", "off"), ("first write of a run", "first_write", "first_write_off")):
        title = f"instructions of a {kind}, 1 KB / 10 KB, per cent over untrusted.mode off"
        if not callgrind.is_available():
            yield Goal("U1", title, None, 10, 5, note="valgrind is not here")
            continue
        ours, least = (callgrind.instructions_per_call(one) for one in (case, off))
        yield Goal("U1", title, (ours / least - 1) * 100, 10, 5, note=f"{ours:,.0f} over {least:,.0f}")


class _Reader:
    """A run that has read ten megabytes, and writes that are checked there."""

    def __init__(self, place: Place) -> None:
        self.parts = [json.loads(place.source.output(_EACH)) for _ in range(_READ // _EACH + 1)]
        read = pokayoke.Contract.from_schema(
            "list_records", _PART, effect="read", handler=lambda part: self.parts[part], max_chars=2 * _EACH
        )
        write = pokayoke.Contract.from_schema(
            "settle_record", _CHANGE, effect="write", open_world=True, handler=lambda **_: "done"
        )  # its texts leave, so private values are looked for as well
        self.run = pokayoke.Guard([read, write], config={"untrusted": {"mode": "ask"}}).run("bench", prompt=_WORDS)
        for number in range(len(self.parts)):
            outcome = self.run.call(pokayoke.ToolCall(f"r{number}", "list_records", {"part": number}))
            assert outcome.ok, outcome
        self.decisions: Counter[str] = Counter()
        self._random = random.Random(5)

    def draw_call(self) -> pokayoke.ToolCall:
        """Return a write to what the user named, to a record that was read, or to what stands nowhere."""
        record = self._random.choice(self._random.choice(self.parts)["records"])
        number, price = self._random.choice(
            [("REC-1000004", 12.5), (record["number"], record["price"]), (f"REC-{self._random.random()}", 7.25)]
        )
        note = f"{record['subject']}, {record['place']['town']}, {record['at']}"
        arguments = {"record": number, "price": price, "note": note}
        return pokayoke.ToolCall(f"w{self._random.random()}", "settle_record", arguments)

    def time_check(self) -> float:
        """Return the CPU seconds of one check in this thread; a check that ran in another one is an error."""
        call = self.draw_call()
        begin = time.thread_time()
        self.decisions[self.run.check(call).decision] += 1
        return time.thread_time() - begin


def checks(place: Place, effort: Effort) -> Iterator[Goal]:
    """The slowest of a hundred checks, through the guard, with ten megabytes read; and the memory that this takes."""
    reader = _Reader(place)
    begin = time.process_time()
    reader.time_check()  # reads what was returned until now, in a worker
    first = time.process_time() - begin
    reader.decisions.clear()
    taken = sorted(reader.time_check() for _ in range(500 if effort.is_quick else 5_000))
    yield Goal(
        "U2", "check of a write with 10 MB read, ms, 99th percentile", taken[len(taken) * 99 // 100] * 1e3, 1.0, 0.5,
        note=f"median {taken[len(taken) // 2] * 1e3:.2f} ms, of {dict(reader.decisions)}",
    )  # fmt: skip
    yield Goal("-", "the check that reads them first, s of CPU time", first, inf, inf)
    tracemalloc.start()
    reader = _Reader(place)
    reader.time_check()
    found = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/core/provenance/*")])
    tracemalloc.stop()
    index = sum(one.size for one in found.statistics("filename"))
    text = sum(len(json.dumps(part)) for part in reader.parts)
    yield Goal("U3", "memory of the index over the text read", index / text, 2.0, 1.0, note=f"{text / 1e6:.1f} MB")
