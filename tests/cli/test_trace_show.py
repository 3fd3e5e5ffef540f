"""`pokayoke trace show`: one run at the terminal."""

import json
import shutil
from pathlib import Path

import pytest

RECORDED = Path(__file__).parents[1] / "compatibility" / "trace.jsonl"


@pytest.fixture
def file(tmp_path):
    """A recorded trace of two runs."""
    return shutil.copy(RECORDED, tmp_path / "t.jsonl")


def test_a_run_is_shown_call_by_call(shell, file):
    """The summary, a block for each call with what was sent, decided, answered and told, and nothing of other runs."""
    done = shell("trace", "show", "run-1", "--trace", file)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "run-1: 6 calls, 3 not ok in 1.34 s"
    assert lines[5:9] == [
        "#2 2026-11-25T22:56:33.620Z pay@1 ok 42 us effect done",
        '    arguments  {"amount":5,"order":"A-1"}',
        "    decided    allow by gate",
        '    answered   {"receipt":"R-A-1","amount":5}',
    ]
    assert "    told       There is no tool `unknown`. Tools: pay, look_up, close_account." in lines
    assert "run-2" not in done.stdout


@pytest.mark.parametrize(
    ("options", "steps"),
    [([], [1, 2, 3, 4, 5, 6]), (["--failed"], [4, 5, 6]), (["--writes"], [2, 3, 4, 5, 6]), (["--failed", "--writes"], [4, 5, 6])],
)  # fmt: skip
def test_failed_and_writes_narrow_down(shell, file, options, steps):
    """Alone and together; what is not known to be a read counts as a write. --json prints a line for each row."""
    done = shell("trace", "show", "run-1", "--trace", file, "--json", *options)
    assert [json.loads(line)["step"] for line in done.stdout.splitlines()] == steps


def test_stops_stand_between_the_calls(shell, file):
    """The stop of a run is a row of its own, and the summary names it."""
    done = shell("trace", "show", "run-2", "--trace", file)
    assert "stopped: invalid_tool_output" in done.stdout.splitlines()[0]
    assert 'stop (invalid_tool_output)\n    details    {"safe_mode":"skip_writes"}' in done.stdout


def test_nothing_of_a_tool_acts_on_the_terminal(shell, tmp_path):
    """Escapes, reordering marks, markup and 200,000 characters in every field: shown escaped and cut."""
    evil = "\x1b[2J\u202e<b>" + "x" * 200_000
    event = {"ts": 1.0, "run_id": "r", "step": 1, "event": "tool_call", "tool": evil, "decision": evil, "room": evil,
             "ok": False, "reason": evil, "raw": evil, "arguments": {evil: evil}, "repairs": [evil], "status": evil,
             "corrections": [{"at": evil, "rule": evil, "before": evil, "after": 1}],
             "findings": [{"code": evil, "message": evil, "hint": evil}], "result": [evil], "call_id": evil}  # fmt: skip
    (tmp_path / "t.jsonl").write_text(json.dumps(event) + "\n" + json.dumps(event | {"event": evil}) + "\n")
    for options in ([], ["--json"]):
        done = shell("trace", "show", "r", "--trace", "t.jsonl", *options)
        assert done.returncode == 0
        assert not {"\x1b", "\u202e"} & set(done.stdout)
    shown = shell("trace", "show", "r", "--trace", "t.jsonl").stdout
    assert max(map(len, shown.splitlines())) < 3_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run-9", "--trace", "t.jsonl"], "holds no run run-9. The latest runs are run-2, run-1"),
        (["run-1"], "name the trace file with --trace FILE"),
        (["run-1", "run-2", "--trace", "t.jsonl"], "expected show RUN"),
        (["run-1", "--trace", "t.jsonl", "--follow"], "expected show RUN"),
        (["run-1", "--trace", "none.jsonl"], "none.jsonl"),
    ],
)
def test_what_cannot_be_shown_says_what_to_do(shell, file, words, said):
    """An unknown run, no file, two runs, an option of another form: exit code 2 and one sentence."""
    done = shell("trace", "show", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_the_configured_trace_is_found(shell, file, tmp_path):
    """Without --trace, the file that pokayoke.yaml names is read; broken lines are counted, with exit code 1."""
    (tmp_path / "pokayoke.yaml").write_text("trace:\n  path: t.jsonl\n")
    with Path(file).open("a") as more:
        more.write('{"half a li')
    done = shell("trace", "show", "run-1")
    assert done.returncode == 1
    assert "1 broken line" in done.stderr
    assert done.stdout.startswith("run-1: 6 calls")
    assert shell("trace", "t.jsonl", "--writes").returncode == 2
