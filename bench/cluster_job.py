"""One replay as a process of its own: `python -m bench.cluster_job JSON`. Prints what it took, as JSON."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

from pokayoke.replay.engines import open_cluster, open_local, run
from pokayoke.replay.job import pack_job
from pokayoke.replay.parts import Merger, plan, score_part
from pokayoke.replay.score.counts import Score, Tally

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from recorded_calls import report, two_sets


def main() -> None:
    """Score recordings and write the report. The first line that is printed says that the first part is done."""
    asked = json.loads(sys.argv[1])
    names, on = asked["names"], asked["on"]
    sets = two_sets()[:1]
    parts = plan(names, size=asked["size"])
    score = Score(tallies=[Tally() for _ in sets])
    with open_cluster(on, pack_job(sets)) if on else open_local(sets, jobs=asked["jobs"]) as engine:
        begin, is_first = time.perf_counter(), True

        def tell(read: int, calls: int) -> None:
            nonlocal is_first
            if is_first:
                print("first", file=sys.__stdout__, flush=True)
            is_first = False

        lost = run(engine, score_part, parts, Merger(score, tell))
        seconds = time.perf_counter() - begin
    Path(asked["report"]).write_bytes(b"".join(report(score, names, sets)))
    peak = int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) / 1024
    print(json.dumps({"calls": score.calls, "parts": len(parts), "lost": len(lost), "wall": seconds, "peak": peak}))


if __name__ == "__main__":
    main()
