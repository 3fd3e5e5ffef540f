"""A million recorded calls (POKAYOKE_FULL=1; 40,000 by default): flat memory, all cores, and beside `jsonschema`."""

import json
import os
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest

from pokayoke.core.contract.contract import Contract
from pokayoke.replay.engines import default_jobs, open_local, run
from pokayoke.replay.learn.learner import Learner
from pokayoke.replay.parts import Merger, read_parts, score_part
from pokayoke.replay.readers import Source
from pokayoke.replay.score.counts import Score, Tally
from pokayoke.replay.score.evaluate import Judge
from pokayoke.replay.score.summary import ContractSet

jsonschema = pytest.importorskip("jsonschema")
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(3_000)]

FIELDS = {"tool": "tool", "arguments": "arguments", "output": "output", "run": "task_id"}


@pytest.fixture(scope="module")
def recording(shared, full, tmp_path_factory):
    """The recorded calls of both files, over and over, as one file; and how many there are."""
    wanted = 1_000_000 if full else 40_000
    lines = []
    for name in ("tau_calls", "bfcl_multiturn_calls"):
        lines += (shared / "data" / f"{name}.jsonl").read_bytes().splitlines(keepends=True)
    path = tmp_path_factory.mktemp("replay") / "calls.jsonl"
    with path.open("wb") as file:
        for start in range(0, wanted, len(lines)):
            file.writelines(lines[: wanted - start])
    yield path, wanted
    path.unlink()


@pytest.fixture(scope="module")
def contracts(shared):
    learner = Learner()
    for name in ("tau_calls", "bfcl_multiturn_calls"):
        with Source(str(shared / "data" / f"{name}.jsonl"), fields=FIELDS) as source:
            learner.add_recordings(source.read_recordings())
    return [Contract.from_mapping(draft.mapping) for draft in learner.build_drafts()[0]]


def processor_seconds(pid):
    """Seconds a process has computed so far, from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def replayed(path, contracts, jobs):
    """The score, the seconds it took (by the clock, and of this process), and what each worker computed."""
    started, own = time.perf_counter(), time.process_time()
    score = Score(tallies=[Tally()])
    with open_local([ContractSet("", Judge(contracts))], jobs=jobs) as engine:
        run(engine, score_part, read_parts([str(path)], fields=FIELDS), Merger(score))
        workers = sorted(map(processor_seconds, getattr(engine.executor, "_processes", ())))
    return score, time.perf_counter() - started, time.process_time() - own, workers


MEMORY = """
import json, re, sys
from pathlib import Path
from pokayoke.core.contract.contract import Contract
from pokayoke.replay.engines import open_local, run
from pokayoke.replay.parts import Merger, read_parts, score_part
from pokayoke.replay.score.counts import Score, Tally
from pokayoke.replay.score.evaluate import Judge
from pokayoke.replay.score.summary import ContractSet
contracts = [Contract.from_mapping(one) for one in json.load(open(sys.argv[2]))]
peaks = []
def peak(pid="self"):  # of this very program: what getrusage says is inherited from whoever started it
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path(f"/proc/{pid}/status").read_text())[1])
def told(read, calls):
    peaks.append((calls, max(peak(), *map(peak, engine.executor._processes))))
score = Score(tallies=[Tally()])
with open_local([ContractSet("", Judge(contracts))], jobs=max(2, int(sys.argv[3]))) as engine:
    parts = read_parts([sys.argv[1]], fields=json.loads(sys.argv[4]))
    run(engine, score_part, parts, Merger(score, told))
print(json.dumps({"calls": score.calls, "peaks": peaks}))
"""


def test_memory_is_flat(recording, contracts, tmp_path, capsys):
    """The largest process after a tenth of the calls is as large at their end, within a tenth and 10 MB, and below 200 MB."""
    path, wanted = recording
    (tmp_path / "c.json").write_text(json.dumps([one.to_mapping() for one in contracts]))
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(path), str(tmp_path / "c.json"), str(default_jobs()), json.dumps(FIELDS)],
        capture_output=True, text=True, check=True, timeout=2_500,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["calls"] == wanted
    early = next(peak for calls, peak in found["peaks"] if calls >= wanted // 10)
    late = found["peaks"][-1][1]
    with capsys.disabled():
        print(f"\n{wanted:,} calls, {path.stat().st_size / 1e6:,.0f} MB: the largest process has {early // 1024} MB after a tenth, "
              f"{late // 1024} MB at the end")  # fmt: skip
    assert late <= 1.1 * early + 10 * 1024
    assert late < 200 * 1024


def with_jsonschema(path, contracts, most):
    """The same check with the `jsonschema` package: parse, validate arguments, parse, validate the answer."""
    known = {one.name: one for one in contracts}
    inputs = {
        name: jsonschema.Draft202012Validator(one.input_schema, format_checker=jsonschema.FormatChecker())
        for name, one in known.items()
    }
    outputs = {
        name: jsonschema.Draft202012Validator(one.output.raw) for name, one in known.items() if one.output is not None
    }
    started, accepted, number = time.process_time(), 0, 0
    with path.open("rb") as file:
        for line in islice(file, most):
            number += 1
            row = json.loads(line)
            tool = row["tool"]
            if tool not in inputs:
                continue
            try:
                arguments = json.loads(row["arguments"])
            except ValueError:
                continue
            accepted += not any(inputs[tool].iter_errors(arguments))
            if tool in outputs and not row["output"].startswith("Error"):
                try:
                    value = row["output"] if known[tool].takes_text else json.loads(row["output"])
                except ValueError:
                    continue
                any(outputs[tool].iter_errors(value))
    return number / (time.process_time() - started), accepted


def test_throughput(recording, contracts, capsys):
    """Every call is scored once, every core has its share of the work, and one core is faster than jsonschema."""
    path, wanted = recording
    jobs = default_jobs()
    score, seconds, own, workers = replayed(path, contracts, jobs)
    head = path.parent / "head.jsonl"
    with path.open("rb") as file, head.open("wb") as part:
        part.writelines(islice(file, 40_000))
    # Of the processor, not of the clock: others may use this machine at the same time.
    _, _, alone, _ = replayed(head, contracts, 1)
    slow, _ = with_jsonschema(path, contracts, 5_000)
    with capsys.disabled():
        print(f"\n{wanted:,} calls in {seconds:.1f} s: {wanted / seconds:,.0f} calls/s on {jobs} processes, which computed "
              f"{', '.join(f'{one:.1f} s' for one in workers)} (the parent {own:.1f} s). "
              f"Per second of one core: {40_000 / alone:,.0f} calls, with jsonschema {slow:,.0f}")  # fmt: skip
    whole = score.tallies[0].sum_tools()
    assert score.calls == whole.calls == wanted
    assert score.unread == 0
    assert 40_000 / alone > 2 * slow
    if jobs > 1:
        assert len(workers) == jobs
        assert workers[0] > 0.5 * workers[-1]
        assert own < 0.5 * sum(workers)
