"""`pokayoke trace`: what it shows, counts and survives."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import typer

from pokayoke import Contract, Guard, ToolCall
from pokayoke.cli import trace as command
from pokayoke.cli.trace import BrokenLines, TraceReport, describe_event
from pokayoke.core.policy import TracePolicy
from pokayoke.replay.readers import lines
from pokayoke.runtime.trace.trace import Trace

EVENTS = [
    {"ts": 1.0, "run_id": "r1", "step": 1, "event": "tool_call", "tool": "get", "ok": True, "decision": "allow",
     "repairs": ["trailing_comma"], "corrections": [{"at": "/a", "rule": "number_from_text"}]},
    {"ts": 1.5, "run_id": "r1", "step": 1, "event": "tool_result", "tool": "get", "ok": False,
     "error": "ToolOutputInvalid", "reason": "content-type text/html", "us": 412, "status": "invalid_output",
     "findings": [{"code": "html_instead_of_data"}]},
    {"ts": 1.5, "run_id": "r1", "step": 1, "event": "stop", "ok": False, "reason": "invalid_tool_output",
     "safe_mode": "skip_writes"},
    {"ts": 2.0, "run_id": "r2", "step": 1, "event": "tool_call", "tool": "pay", "ok": True, "decision": "replay"},
    {"ts": 2.0, "run_id": "r2", "step": 2, "event": "tool_call", "tool": "pay", "ok": True, "decision": "allow"},
    {"ts": 3.0, "run_id": "r2", "step": 3, "event": "tool_call", "tool": "pay", "ok": False, "decision": "refuse"},
]  # fmt: skip


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    return path


def test_events_are_shown_one_per_line(shell, file):
    """Each event is a line with its time, run, step, tool and reason."""
    done = shell("trace", file)
    assert done.returncode == 0
    assert done.stdout.splitlines()[1] == (
        "1970-01-01T00:00:01.500Z r1 #1 tool_result get invalid_output ToolOutputInvalid"
        " (content-type text/html) us=412"
    )
    assert "repairs: trailing_comma corrections: number_from_text" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "count"),
    [(["--run", "r2"], 3), (["--tool", "get"], 2), (["--failed"], 3), (["--event", "stop"], 1),
     (["--failed", "--run", "r2"], 1), (["--tool", "none"], 0)],
)  # fmt: skip
def test_filters_narrow_down(shell, file, words, count):
    """Run, tool, kind and failure filter, alone and together; --json keeps the events whole."""
    done = shell("trace", file, *words, "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == count
    assert all(event in EVENTS for event in found)
    assert done.stderr == ("" if count else "no events found\n")


def test_a_report_of_nothing_asks_for_the_file(shell):
    """`report` alone is the command without its file, not a file of that name."""
    done = shell("trace", "report")
    assert (done.returncode, "report of which FILE" in done.stderr) == (2, True)


def test_the_report_counts_failures_and_turns_saved(shell, file):
    """Failures by kind and tool, stops, and calls that did not cost the model another turn."""
    report = json.loads(shell("trace", "report", file, "--json").stdout)
    assert report == {
        "events": 6, "runs": 2, "runs_at_least": False, "from": 1.0, "to": 3.0,
        "calls": {"get": 1, "pay": 3},
        "failures": {"html_instead_of_data": {"get": 1}, "refuse": {"pay": 1}},
        "monitored": {}, "untrusted": {}, "stops": {"invalid_tool_output": 1}, "versions": {}, "shadows": {},
        "turns_saved": {"repaired_or_corrected": 1, "replayed": 1},
        "broken_lines": 0,
    }  # fmt: skip
    text = shell("trace", "report", file).stdout
    assert text.startswith("6 events of 2 runs, ")
    assert "turns saved: 2 (1 repaired or corrected, 1 answered from the ledger)" in text
    assert "1  html_instead_of_data  get" in text


def test_the_report_tells_what_enforcing_would_refuse(shell, tmp_path):
    """Calls that monitor mode let through are counted by the code of the refusal, reads and writes alike."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tools = [
        Contract.from_schema(name, schema, effect=effect, output_schema="text", handler=lambda n: "ok")
        for name, effect in (("find", "read"), ("pay", "write"))
    ]
    path = tmp_path / "monitored.jsonl"
    with Guard(tools, config={"mode": "monitor", "trace": {"path": str(path)}}) as guard, guard.run() as run:
        for number, (tool, n) in enumerate([("find", 1), ("find", "x"), ("find", "y"), ("pay", 1), ("pay", "z")]):
            run.call(ToolCall(f"c{number}", tool, {"n": n}))
    report = json.loads(shell("trace", "report", path, "--json").stdout)
    assert report["monitored"] == {"wrong_type": {"find": 2, "pay": 1}}
    text = shell("trace", "report", path).stdout
    assert "would have been refused, but for monitor mode:\n  2  wrong_type  find\n" in text


@pytest.mark.parametrize(
    "line",
    ["garbage", "[]", "1", '{"a": 1}', '{"event": 3}', '{"event": "e"', "\ufeff{}", "[" * 5_000, '{"event":"\x00"}'],
)
def test_broken_lines_are_counted_not_crashed(shell, file, line):
    """A torn or foreign line costs itself: the rest is shown, stderr says where, the exit code is 1."""
    whole = file.read_text()
    file.write_text(f"{line}\n{whole}\n")
    done = shell("trace", file)
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 6
    assert done.stderr == "1 broken line, not counted. The first is line 1.\n"


def test_a_file_without_a_last_newline_is_read_to_its_end(shell, file):
    """The last event counts although its line was not ended."""
    file.write_text(file.read_text().rstrip("\n"))
    assert len(shell("trace", file).stdout.splitlines()) == 6


@pytest.mark.parametrize(
    "words", [["missing"], ["."], [], ["a", "b"], ["report"], ["report", "x", "-f"], ["x", "--wrong"]]
)
def test_what_cannot_run_is_exit_code_2(shell, words):
    """No file, a folder, too many words: a sentence on stderr, nothing on stdout."""
    done = shell("trace", *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr


def test_a_compressed_trace_and_one_with_a_byte_order_mark_are_read(shell, file):
    """What `learn` and `replay` read is read here, too, and no event is lost to what an editor put before it."""
    text = file.read_bytes()
    for data in (gzip.compress(text), b"\xef\xbb\xbf" + text):
        file.write_bytes(data)
        done = shell("trace", file)
        assert len(done.stdout.splitlines()) == 6
        assert done.returncode == 0


def test_stdin_is_a_file_too(shell, file):
    """- reads what another command writes."""
    assert len(shell("trace", "-", "--failed", stdin=file.read_text()).stdout.splitlines()) == 3


def test_a_reader_that_leaves_early_is_no_error(file):
    """`pokayoke trace | head` ends quietly."""
    file.write_text(file.read_text() * 5_000)
    done = subprocess.run(
        f"{sys.executable} -m pokayoke.cli trace {file} | head -1",
        check=False,
        shell=True,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def following(file):
    """A process that follows a file."""
    return subprocess.Popen(
        [sys.executable, "-m", "pokayoke.cli", "trace", str(file), "-f", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background has them, and whatever they start, ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no lock is taken
    )


def test_following_shows_what_comes_and_survives_rotation(file, tmp_path):
    """New lines appear, also half-written ones once they are whole, after a rotation and a truncation."""
    process = following(file)
    try:
        read = [process.stdout.readline() for _ in EVENTS]
        with file.open("a") as writer:
            writer.write('{"event": "ha')
            writer.flush()
            time.sleep(0.3)
            writer.write('lf"}\n')
        assert json.loads(process.stdout.readline()) == {"event": "half"}
        file.rename(tmp_path / "t.jsonl.1")
        file.write_text('{"event": "rotated"}\n' * 20)
        read += [json.loads(process.stdout.readline()) for _ in range(20)]
        assert read[-1] == {"event": "rotated"}
        file.write_text('{"event": "truncated"}\n')
        assert json.loads(process.stdout.readline()) == {"event": "truncated"}
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 0


def test_following_may_be_ended_while_it_prints(file):
    """Ctrl-C ends it well also when it does not wait: here nobody reads what it writes."""
    file.write_text('{"event": "many"}\n' * 50_000)
    process = following(file)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 0


class TestParts:
    """What a process does not show to the coverage."""

    def test_names_beyond_the_bound_are_counted_together(self, monkeypatch):
        """A trace full of made-up names takes no more memory than the bound."""
        monkeypatch.setattr(command, "_MOST_NAMES", 2)
        monkeypatch.setattr(command, "_MOST_RUNS", 2)
        events = [
            {"event": kind, "tool": f"t{n}", "run_id": f"r{n}", "ok": False, "reason": f"x{n}"}
            for n in range(5)
            for kind in ("tool_call", "stop")
        ]
        report = TraceReport(iter(events))
        assert report.calls == {"t0": 1, "t1": 1, "(others)": 3}
        assert report.stops["(others)"] == 3
        assert report.failures[("(others)", "(others)")] == 3
        assert len(report.runs) == 2

    def test_events_with_odd_values_are_described(self):
        """Times, repairs and reasons of any type make a line, not a crash."""
        line = describe_event(
            {"event": "e", "ts": 10**30, "repairs": "x", "ok": False, "reason": "\x1b", "run_id": None}
        )
        assert line == "- None #- e FAILED (\\x1b) repairs: x"
        assert describe_event({"event": "e", "ts": "x"}).startswith("- - #- e")

    @pytest.mark.parametrize(("decision", "failed"), [("allow", True), ("refuse", False), ("ask", False)])
    def test_a_call_that_never_ran_has_not_failed(self, decision, failed):
        """A refusal and a question are named by their decision alone."""
        line = describe_event({"event": "tool_call", "ok": False, "decision": decision, "reason": "x"})
        assert ("FAILED" in line) == failed

    def test_a_monstrous_line_is_read_away(self, tmp_path, monkeypatch):
        """A line longer than the cap is broken; what follows is read."""
        monkeypatch.setattr(lines, "LONGEST_LINE", 64)
        file = tmp_path / "t"
        file.write_bytes(b'{"event":"' + b"x" * 500 + b'"}\n{"event":"after"}\n')
        broken = BrokenLines()
        assert list(command._read_events(str(file), broken, follow=False)) == [{"event": "after"}]
        assert broken.count == 1

    def test_a_large_file_gets_a_bar_on_a_terminal(self, tmp_path, monkeypatch):
        """Who waits for a large file in front of a terminal sees how far it is; a pipe sees nothing of it."""
        monkeypatch.setattr(command, "_PROGRESS_FROM", 1)
        monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
        file = tmp_path / "t"
        file.write_text('{"event": "e"}\n')
        assert len(list(command._read_events(str(file), BrokenLines(), follow=False))) == 1

    def test_a_missing_file_is_exit_code_2(self, tmp_path):
        """The exit code is decided where the file is opened."""
        with pytest.raises(typer.Exit) as caught:
            command._open_file(str(tmp_path / "none"))
        assert caught.value.exit_code == 2

    def test_a_moved_file_is_noticed(self, tmp_path):
        """A name that leads elsewhere was rotated; one that leads nowhere not yet."""
        path = tmp_path / "t"
        path.write_text("")
        with path.open("rb") as file:
            assert not command._is_rotated(str(path), file)
            os.rename(path, tmp_path / "t.1")
            assert not command._is_rotated(str(path), file)
            path.write_text("")
            assert command._is_rotated(str(path), file)


def test_a_trace_of_the_library_is_read_back(shell, tmp_path):
    """What the trace writes, the command shows; what was redacted stays so."""
    path = tmp_path / "own.jsonl"
    trace = Trace(TracePolicy(path=str(path)))
    trace.record(
        {"event": "tool_call", "tool": "t", "ok": False, "arguments": b'{"password":"CANARY"}', "reason": "a\u2028b"}
    )
    trace.close()
    done = shell("trace", path, "--json")
    assert json.loads(done.stdout)["arguments"] == {"password": "[redacted]"}
    assert shell("trace", path).stdout.count("\n") == 1


def versioned(**fields):
    """An event of a call of one version."""
    return {"ts": 1.0, "run_id": "r", "step": 1, "tool": "get", "ok": True, **fields}


VERSIONS = [
    versioned(event="tool_result", contract="get@1", decision="allow", status="ok"),
    versioned(event="tool_result", contract="get@2", decision="allow", status="degraded", ok=False),
    versioned(event="tool_call", contract="get@2", decision="refuse", ok=False),
    versioned(event="tool_call", contract="get@2", decision="allow"),
    versioned(event="tool_result", contract="get@2", status="in_doubt", ok=False),
    versioned(event="shadow", contract="get@1", candidate="get@2"),
    versioned(
        event="shadow", contract="get@1", candidate="get@2", differs=["output"], ok=False, reason="output: valid -> x"
    ),
    versioned(event="shadow", contract="get@1", candidate="get@2", differs=["call", "\x1b[2J"], ok=False),
]


def test_the_report_tells_versions_apart(shell, tmp_path):
    """Each version has its own figures, shadows are counted by what differs, and a difference is no failure."""
    file = tmp_path / "v.jsonl"
    file.write_text("".join(json.dumps(event) + "\n" for event in VERSIONS))
    report = json.loads(shell("trace", "report", file, "--json").stdout)
    assert report["versions"] == {
        "get@1": {"calls": 1, "valid": 1},
        "get@2": {"calls": 3, "failed": 1, "invalid": 1, "refused": 1},
    }
    assert report["shadows"] == {"get@1 -> get@2": {"call": 1, "differ": 2, "judged": 3, "other": 1, "output": 1}}
    assert "shadow" not in report["failures"]
    text = shell("trace", "report", file).stdout
    assert "  3      1        0      1        1       get@2\n" in text
    assert "  3       2       1     0          1       0      0       get@1 -> get@2\n" in text


def test_one_version_is_not_told_apart(shell, tmp_path):
    """Where every tool has one version, the report has no table of versions."""
    file = tmp_path / "v.jsonl"
    file.write_text(json.dumps(VERSIONS[0]) + "\n")
    assert "versions" not in shell("trace", "report", file).stdout


def test_names_of_versions_are_bounded():
    """Memory does not grow with the names a trace invents."""
    events = [
        versioned(event=kind, contract=f"get@{number}", candidate="x", decision="allow")
        for number in range(1_500)
        for kind in ("tool_result", "shadow")
    ]
    report = TraceReport(iter(events))
    assert len(report.versions) <= 1_001
    assert len(report.shadows) <= 1_001
    assert report.versions.total() == report.shadows.total() == 1_500


def test_a_shadow_is_shown_as_what_it_is():
    """One line says which versions were compared and whether they differ."""
    assert "get@1 != get@2 (output: valid -> x)" in describe_event(VERSIONS[6])
    assert describe_event(VERSIONS[5]).endswith("shadow get get@1 = get@2")
