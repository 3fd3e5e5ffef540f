"""Parts: a recording cut anywhere gives one report, on one process and on several."""

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_calls import report, score_local, shop_rows, two_sets, write_rows, write_trace

from pokayoke.errors import ConfigurationError, PokayokeError
from pokayoke.replay.engines import default_jobs, open_local, run
from pokayoke.replay.learn.learner import Learner
from pokayoke.replay.learn.yaml_writer import yaml_text
from pokayoke.replay.parts import Merger, Part, PartReading, learn_part, plan, read_parts, score_part
from pokayoke.replay.readers.source import SourceFormat
from pokayoke.replay.recording import UnreadRecord
from pokayoke.replay.score.counts import MOST_NAMES, Score, Tally

zstd = pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
PLAIN = SourceFormat("plain")


@given(
    st.lists(st.sampled_from(["", "{}", "{x", '{"tool": "a", "arguments": {}}', "\u00e4\u00f6" * 9]), max_size=9),
    st.integers(1, 40),
)
def test_every_line_is_in_one_part(lines, size):
    """Cut anywhere, also inside a line or a character: each line is read once, under its own number."""
    data = "\n".join([*lines, '{"tool": "a", "arguments": {"end": 1}}']).encode()
    whole = list(read_bytes(data, len(data)))
    assert list(read_bytes(data, size)) == whole


def read_bytes(data, size):
    """Yield the number of each line and what was found there, as the merger numbers it."""
    with named(data) as name:
        before = 0
        for start in range(0, len(data), size):
            reading = PartReading(Part(0, 0, name, PLAIN, size, start, start + size))
            for one in reading:
                found = one.why if isinstance(one, UnreadRecord) else one.arguments
                yield one.line - start + before, found
            before += reading.lines


@contextlib.contextmanager
def named(data):
    """A URL of data in memory: reading a part does not need a file system."""
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/lines.jsonl", data)
    yield "memory://lines.jsonl"


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """A plain recording and a trace."""
    folder = tmp_path_factory.mktemp("recordings")
    return [write_rows(folder / "r.jsonl", shop_rows(1_500)), write_trace(folder / "t.jsonl", 200)]


@pytest.fixture(scope="module")
def expected(recordings):
    """The report of one process that reads each recording as one part."""
    return report(score_local(recordings, two_sets(), size=10**9), recordings, two_sets())


@pytest.mark.parametrize(("jobs", "parts"), [(1, 2), (1, 7), (2, 1), (2, 7)])
def test_the_report_is_that_of_one_part(recordings, expected, parts, jobs):
    """With 1, 2 and 7 parts a file, on one process and on two, the report is the same byte by byte.

    There are 300 different failures, of which a report keeps 200.
    """
    size = -(-os.path.getsize(recordings[0]) // parts)
    score = score_local(recordings, two_sets(), jobs=jobs, size=size)
    assert len(score.tallies[0].tools["find@2"].words) == MOST_NAMES + 1
    assert report(score, recordings, two_sets()) == expected


def test_a_compressed_file_is_one_part(recordings, tmp_path):
    """Gzip and Zstandard are read by one worker, and give the report of the plain file."""
    data = Path(recordings[0]).read_bytes()
    (tmp_path / "r.gz").write_bytes(gzip.compress(data))
    (tmp_path / "r.zst").write_bytes(zstd.compress(data))
    plain = score_local(recordings[:1], two_sets())
    for name, jobs in (("r.gz", 1), ("r.zst", 2)):
        path = str(tmp_path / name)
        assert [part.end for part in plan([path], size=10_000)] == [None]
        assert score_local([path], two_sets(), jobs=jobs) == plain


def test_formats_that_join_lines_are_one_part(recordings):
    """A call and its answer on two lines are never cut apart."""
    assert [part.end for part in plan(recordings[1:], size=1_000)] == [None]


def test_a_document_is_one_part(tmp_path):
    """A JSON array over many lines is read as one, its items numbered."""
    path = tmp_path / "d.json"
    path.write_text(json.dumps([one for one in shop_rows(50) if isinstance(one, dict)], indent=1))
    assert [part.end for part in plan([str(path)], size=100)] == [None]
    assert score_local([str(path)], two_sets(), jobs=2) == score_local([str(path)], two_sets())


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: data[:40] + b"x" * 40 + data[80:]]
)
@pytest.mark.parametrize("compress", [gzip.compress, zstd.compress])
def test_a_damaged_file_ends_the_work(tmp_path, compress, damage):
    """A file that breaks off, or is damaged, is an error and not a hang."""
    data = compress("".join(json.dumps(one) + "\n" for one in shop_rows(900)).encode())
    (tmp_path / "r").write_bytes(damage(data))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        score_local([str(tmp_path / "r")], two_sets(), jobs=2)


def test_progress_reaches_the_end(recordings):
    """Bytes and calls never go down, and end with all of them."""
    told = []
    score = score_local(recordings, two_sets(), jobs=2, size=50_000, told=lambda *now: told.append(now))
    assert told == sorted(told)
    assert told[-1] == (sum(map(os.path.getsize, recordings)), score.calls)


def test_learning_from_parts_is_the_same_everywhere(recordings):
    """What is learnt depends on the parts alone: planned ones and those read here teach the same."""
    texts = []
    for parts in (plan(recordings, size=90_000), read_parts(recordings, size=90_000, in_pieces=False)):
        learner = Learner()
        with open_local() as engine:
            assert run(engine, learn_part, parts, Merger(learner)) == []
        texts.append(yaml_text(*learner.build_drafts(), []))
        assert learner.first_unread[0].line == 11
    assert texts[0] == texts[1]
    assert "create_order" in texts[0]


# -- processes of this machine ---------------------------------------------------------------------


def test_an_error_leaves_no_thread_behind():
    """After an error nothing of the pool is at work that the end of the interpreter could meet half-way."""
    before = set(threading.enumerate())
    with pytest.raises(LookupError), open_local(two_sets(), jobs=2):
        raise LookupError
    assert set(threading.enumerate()) == before


def test_a_process_that_is_ended_is_an_error(recordings):
    """A worker that is killed from outside ends the replay with a sentence, not with a traceback or a hang."""
    score = Score(tallies=[Tally(), Tally()])
    with open_local(two_sets(), jobs=2) as engine:

        def kill(read, calls):
            for pid in list(engine.executor._processes or ()):
                os.kill(pid, signal.SIGKILL)

        with pytest.raises(PokayokeError, match="--jobs 1"):
            run(engine, score_part, read_parts(recordings, size=20_000), Merger(score, kill))


FOR_EVER = """
import sys
from pokayoke.core.contract.contract import Contract
from pokayoke.replay.engines import open_local, run
from pokayoke.replay.parts import Merger, read_parts, score_part
from pokayoke.replay.score.counts import MOST_NAMES, Score, Tally
from pokayoke.replay.score.evaluate import Judge
from pokayoke.replay.score.summary import ContractSet

with open_local([ContractSet("", Judge([Contract.from_schema("ping", {"type": "object"})]))], jobs=2) as engine:
    while True:
        merger = Merger(Score(tallies=[Tally()]), lambda read, calls: print("at work", flush=True))
        run(engine, score_part, read_parts([sys.argv[1]]), merger)
"""


def test_interrupts_end_all_processes(recordings):
    """Ctrl-C reaches the whole group, and impatient people press it twice: nothing hangs and nobody is left."""
    command = [sys.executable, "-c", FOR_EVER, recordings[0]]
    work = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # A shell that runs the tests in the background has them, and whatever they start, ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no lock is taken
    )
    try:
        assert work.stdout.readline() == b"at work\n"
        for _ in range(2):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(work.pid, signal.SIGINT)
            time.sleep(0.1)
        # The end of the output comes when the last process that could write is gone.
        work.communicate(timeout=20)
        assert work.returncode != 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(work.pid, signal.SIGKILL)


def test_the_number_of_processes_fits_the_machine():
    """As many as this process may use."""
    assert 1 <= default_jobs() <= 4_096
