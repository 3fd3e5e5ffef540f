"""The trace: whole redacted lines, never in the way of a call."""

import errno
import fcntl
import gc
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import tracemalloc

import msgspec
import pytest

from pokayoke import Contract, Guard, Raw, ToolCall, open_store, system
from pokayoke.core.call import Correction, Finding
from pokayoke.core.policy import TracePolicy
from pokayoke.core.redaction.redactor import REDACTION_FAILED, Redactor
from pokayoke.errors import ConfigurationError, PolicyError
from pokayoke.runtime.trace import file as tracefile
from pokayoke.runtime.trace.file import TraceFile
from pokayoke.runtime.trace.line import escape_controls
from pokayoke.runtime.trace.ring import EventRing
from pokayoke.runtime.trace.trace import Trace


def result(**more):
    return {"ts": 1.5, "run_id": "run_1", "step": 1, "event": "tool_result", "tool": "t", "ok": True, **more}


def emitted(trace, event):
    """Record an event and return it as it may be shown."""
    return json.loads(trace.record(event).line)


def lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def steps_in(path):
    """The step of each line of a file, "torn" for one that is no JSON."""
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(json.loads(line)["step"])
        except ValueError:
            found.append("torn")
    return found


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.jsonl"


def trace_to(path, **policy):
    return Trace(TracePolicy(path=str(path), **policy))


class TestEvents:
    """What one event becomes."""

    def test_the_shape_is_the_one_of_the_event(self):
        """Fields keep their names and order; nothing is added to an event that carries its time."""
        event = {
            "run_id": "run_2c18",
            "step": 3,
            "event": "tool_result",
            "tool": "http.get",
            "ok": False,
            "error": "ToolOutputInvalid",
            "reason": "content-type text/html",
            "ts": 1.0,
        }
        assert json.loads(Trace(TracePolicy()).record(dict(event)).line) == event
        assert list(json.loads(Trace(TracePolicy()).record(dict(event)).line)) == list(event)

    def test_an_event_without_a_time_gets_one(self):
        """The clock is read where the event brings no reading of its own."""
        assert emitted(Trace(TracePolicy(), clock=lambda: 7.25), {"event": "stop"}) == {"event": "stop", "ts": 7.25}

    def test_payloads_are_embedded_as_they_are(self):
        """Canonical JSON bytes become JSON, not a string of JSON; integers keep every digit."""
        event = emitted(Trace(TracePolicy()), result(arguments=b'{"n":12345678901234567890123}', result=b"[1,2]"))
        assert event["arguments"] == {"n": 12345678901234567890123}
        assert event["result"] == [1, 2]

    def test_findings_and_corrections_are_written_with_their_names(self):
        """The values of the core are taken as they are; a correction's kind is written as class."""
        event = emitted(
            Trace(TracePolicy()),
            result(
                findings=(Finding("c", "/a", message="m", data={"n": 2**70}),),
                corrections=(Correction("/a", "r", "1", 1),),
                extra={"b", "a"},
                other=object(),
            ),
        )
        assert event["findings"][0]["data"] == {"n": 2**70}
        assert event["corrections"][0]["class"] == "equivalent"
        assert event["extra"] == ["a", "b"]
        assert event["other"] == "<object>"

    def test_marks_are_used_and_not_written(self):
        """A contract's marks hide their fields in the payload and do not appear themselves."""
        event = emitted(Trace(TracePolicy()), result(arguments=b'{"iban":"DE02"}', marks=("iban",)))
        assert event["arguments"] == {"iban": "[redacted]"}
        assert "marks" not in event

    def test_a_long_payload_is_only_a_length(self):
        """What is longer than max_payload_chars is not written; how long it was is."""
        trace = Trace(TracePolicy(max_payload_chars=10))
        event = emitted(trace, result(arguments=b'"0123456789"', result=b'"short"', raw="0123456789a"))
        assert event["arguments"] == {"bytes": 12}
        assert event["result"] == "short"
        assert event["raw"]["bytes"] == 11
        assert emitted(trace, result(raw=b"\xff\xfe"))["raw"] == "\ufffd\ufffd"
        assert emitted(trace, result(raw=None))["raw"] is None

    @pytest.mark.parametrize("mode", ["hash", "off"])
    def test_without_payloads_no_value_is_written_anywhere(self, mode):
        """Neither payloads nor messages, hints, reasons or corrections repeat a value."""
        event = emitted(
            Trace(TracePolicy(payloads=mode)),
            result(
                ok=False,
                reason="got CANARY",
                arguments=b'{"a":"CANARY"}',
                result=b'"CANARY"',
                raw="CANARY",
                findings=(Finding("code", "/a", "tool", "got CANARY", "CANARY", {"got": "CANARY"}),),
                corrections=(Correction("/a", "rule", "CANARY", "CANARY"),),
            ),
        )
        assert "CANARY" not in json.dumps(event)
        assert event["reason"] == "code"
        assert event["findings"] == [{"code": "code", "at": "/a", "blame": "tool"}]
        assert event["corrections"] == [{"at": "/a", "rule": "rule", "class": "equivalent"}]
        assert ("arguments" in event) is (mode == "hash")

    def test_a_reason_without_a_finding_is_withheld_too(self):
        """A tool's own failure text is a payload; the status says as much as may be said."""
        trace = Trace(TracePolicy(payloads="off"))
        assert emitted(trace, result(ok=False, reason="CANARY", status="failed"))["reason"] == "failed"
        assert emitted(trace, result(ok=False, reason="CANARY"))["reason"] == "withheld"
        assert emitted(trace, {"event": "config", "reason": "reloaded", "ok": True})["reason"] == "reloaded"

    def test_a_secret_of_the_arguments_is_hidden_in_later_events(self):
        """The exception that repeats the password is clean, within the run that knew it."""
        trace = Trace(TracePolicy())
        trace.record(result(arguments=b'{"password":"CANARY-1"}'))
        assert emitted(trace, result(ok=False, reason="no CANARY-1"))["reason"] == "no [redacted]"
        assert trace.redactor.redact_text("no CANARY-1", seen=trace.secrets_of_run("run_1")) == "no [redacted]"
        assert emitted(trace, result(run_id="run_2", reason="no CANARY-1"))["reason"] == "no CANARY-1"

    @pytest.mark.parametrize("field", ["arguments", "result", "raw"])
    @pytest.mark.parametrize("more", [{}, {"findings": (Finding("c"),)}])
    def test_a_secret_of_a_payload_too_long_to_be_written_is_hidden_too(self, field, more):
        """What gives way to its length is searched first, for what the same event says of it."""
        trace = Trace(TracePolicy(max_payload_chars=50))
        payload = b'{"password":"CANARY-1","cvx":"CANARY-2","body":"%s"}' % (b"x" * 60)
        event = emitted(
            trace, result(ok=False, reason="no CANARY-1 CANARY-2", marks=("cvx",), **{field: payload}, **more)
        )
        assert event["reason"] == "no [redacted] [redacted]"
        assert event[field] == {"bytes": len(payload)}

    @pytest.mark.parametrize("used", [True, False])
    def test_the_secrets_of_a_run_in_use_stay_known(self, used):
        """Neither many runs with secrets beside one that goes on, nor many without any, make its own readable."""
        trace = Trace(TracePolicy())
        trace.record(result(arguments=b'{"password":"CANARY-1"}'))
        for number in range(400):
            other = b'{"password":"CANARY-%d"}' % (number + 1_000) if used else b"{}"
            emitted(trace, result(run_id=f"other_{number}", ok=False, reason="no", arguments=other))
            if used:
                emitted(trace, result(result=b'"echo"'))
        assert emitted(trace, result(ok=False, reason="no CANARY-1"))["reason"] == "no [redacted]"

    def test_runs_are_forgotten_oldest_first(self):
        """Many runs do not fill the memory with their secrets."""
        trace = Trace(TracePolicy())
        for number in range(400):
            trace.secrets_of_run(f"run_{number}").add("CANARY-1")
        assert len(trace._seen) == 256
        assert len(trace.secrets_of_run("run_0")) == 0

    @pytest.mark.parametrize(
        "character", ["\n", "\r", "\x1b", "\x00", "\u0085", "\u009b", "\u2028", "\u2029", "\u202e"]
    )
    def test_one_event_is_one_line_whatever_it_holds(self, character):
        """Line ends, terminal controls and reordering marks are escaped, in every field."""
        trace = Trace(TracePolicy())
        text = f"a{character}b"
        for event in (
            result(call_id=text),
            result(reason=text, raw=text, arguments=json.dumps({text: text}, ensure_ascii=False).encode()),
        ):
            line = trace.record(dict(event)).line.decode()
            assert len(line.splitlines()) == 1
            assert character not in line
            assert text in json.loads(line).values()

    def test_harmless_text_of_any_script_stays_readable(self):
        """Only what acts on a terminal is escaped."""
        line = '{"a":"客户 é 🙂 — “x”"}'.encode()
        assert escape_controls(line) is line

    @pytest.mark.parametrize("reason", ["\ud800", "half \udfff"])
    def test_a_lone_surrogate_is_written_as_its_escape(self, reason):
        """Text that is no text still makes one valid line."""
        trace = Trace(TracePolicy())
        event = emitted(
            trace,
            result(
                reason=reason,
                raw=reason,
                list=[reason],
                findings=(Finding("c", message=reason),),
                n=None,
                x={1: object()},
            ),
        )
        assert event["reason"] == reason.encode("utf-8", "backslashreplace").decode()
        assert event["x"] == {"1": "<object>"}
        assert emitted(trace, result(call_id=reason))["call_id"].startswith(reason[:-1])
        assert trace.dropped_count == 0

    def test_integers_of_any_size_are_written(self):
        """An integer beyond 64 bits outside a payload does not cost the event, nor its payload."""
        event = emitted(Trace(TracePolicy()), result(reason=2**70, arguments=b'{"a":1}'))
        assert event["reason"] == 2**70
        assert event["arguments"] == {"a": 1}

    def test_an_event_that_outgrows_everything_is_shortened(self):
        """Thousands of findings leave the scalars and the first codes, and say so."""
        many = tuple(Finding("code", f"/{number}", message="m" * 500) for number in range(2_000))
        event = emitted(Trace(TracePolicy()), result(findings=many, reason="r" * 5_000, nothing=None))
        assert event["shortened"] is True
        assert len(event["findings"]) == 20
        assert len(event["reason"]) == 1_000
        assert event["step"] == 1

    def test_an_event_that_cannot_be_made_safe_leaves_its_name(self):
        """If redaction fails, the payload is gone, the event is counted, and nothing is raised."""

        class Broken(Redactor):
            def redact_event(self, line, *, marks=(), seen=None):
                return None

        trace = Trace(TracePolicy())
        trace.redactor = Broken()
        event = emitted(trace, result(reason="CANARY", run_id="run\u2028" + "x" * 99))
        assert event == {
            "ts": 1.5, "run_id": None, "step": 1, "event": "tool_result", "tool": "t", "ok": True, "payload": REDACTION_FAILED,
        }  # fmt: skip
        assert trace.dropped_count == 1
        assert "ValueError" in trace.problem


def test_a_trace_without_a_file_can_be_flushed_and_closed():
    """Flush and close are harmless where there is nothing to write to."""
    trace = Trace(TracePolicy())
    trace.flush()
    trace.close()
    assert trace.dropped_count == 0
    assert trace.problem is None


class TestWaiting:
    """Events that wait for the file are searched and written together, as if each were alone."""

    def test_a_secret_among_many_is_hidden_and_the_rest_is_untouched(self, path):
        """One payload with a secret costs its neighbours nothing, and their order stays."""
        trace = trace_to(path)
        for step in range(40):
            payload = b'{"password":"CANARY"}' if step == 17 else b'{"n":%d}' % step
            trace.record(result(ts=1.5, step=step, result=payload))
        trace.close()
        found = lines(path)
        assert [event["step"] for event in found] == list(range(40))
        assert found[17]["result"] == {"password": "[redacted]"}
        assert all(event["result"] == {"n": event["step"]} for event in found if event["step"] != 17)

    def test_a_secret_of_a_waiting_event_is_hidden_in_the_next(self, path):
        """Waiting changes nothing about what a run has seen, neither in a common event nor in another."""
        trace = trace_to(path)
        trace.record(result())
        trace.record(result(arguments=b'{"password":"CANARY-1"}'))
        trace.record(result(result=b'"echo CANARY-1"'))
        trace.record(result(ok=False, reason="no CANARY-1"))
        trace.close()
        assert b"CANARY-1" not in path.read_bytes()
        assert lines(path)[2]["result"] == "echo [redacted]"

    def test_an_id_is_searched_with_its_payload(self):
        """A call id comes from the model, so it may hold what a payload may."""
        event = emitted(Trace(TracePolicy()), result(call_id="sk-abcdefghijklmnop", result=b"1"))
        assert event["call_id"] == "[redacted]"

    def test_values_that_may_change_are_written_as_they_were(self):
        """Findings and corrections hold values of the caller, who may go on using them."""
        trace, ring, data = Trace(TracePolicy()), EventRing(9), {"got": [1]}
        ring.append(trace.record(result(findings=(Finding("c", data=data),))))
        data["got"].append(2)
        assert ring[0]["findings"][0]["data"] == {"got": [1]}

    def test_payloads_of_other_kinds_and_in_pairs_take_the_longer_way(self):
        """A payload that is a value already, or the second of two, is searched and written like any other."""
        trace = Trace(TracePolicy())
        assert emitted(trace, result(arguments={"password": "CANARY"}))["arguments"] == {"password": "[redacted]"}
        both = emitted(trace, result(arguments=b'{"password":"CANARY"}', result=b'{"token":"CANARY"}'))
        assert (both["arguments"], both["result"]) == ({"password": "[redacted]"}, {"token": "[redacted]"})
        assert emitted(trace, result(call_id="\ud800", result=b'{"token":"CANARY"}'))["result"] == {
            "token": "[redacted]"
        }

    def test_bytes_that_are_no_text_cost_their_own_event_only(self, path):
        """A payload that is not UTF-8 is not written; what waited with it is."""
        trace = trace_to(path)
        trace.record(result())
        for payload in (b'"a"', b'"\xff"', b'"b"'):
            trace.record(result(result=payload))
        trace.close()
        assert [event.get("result") for event in lines(path)] == [None, "a", None, "b"]
        assert trace.dropped_count == 1

    def test_what_waits_is_bounded(self, path):
        """Large payloads do not wait beyond 64 KB, whatever the clock says."""
        trace = trace_to(path)
        for _ in range(200):
            trace.record(result(result=b'"%s"' % (b"x" * 3_000)))
            assert sum(len(data) for event in trace._waiting for data in event.payloads) < 65_536
        trace.close()
        assert len(lines(path)) == 200

    def test_a_forked_child_still_reads_what_waited(self, path):
        """The parent writes it; in the child's ring it stays readable, and redacted."""
        trace, ring = trace_to(path), EventRing(9)
        trace.record(result())
        ring.append(trace.record(result(result=b'{"password":"CANARY"}')))
        child = os.fork()
        if child == 0:
            os._exit(0 if ring[0]["result"] == {"password": "[redacted]"} else 1)
        assert os.waitpid(child, 0)[1] == 0
        trace.close()
        assert len(lines(path)) == 2


class TestRing:
    """The latest events of one run."""

    def test_it_keeps_the_latest_and_reads_as_dictionaries(self):
        """Older events leave; what is read is the redacted line."""
        trace, ring = Trace(TracePolicy()), EventRing(2)
        for step in range(3):
            ring.append(trace.record(result(step=step, arguments=b'{"password":"CANARY"}')))
        assert [event["step"] for event in ring] == [1, 2]
        assert ring[-1]["arguments"] == {"password": "[redacted]"}
        assert len(ring) == len(ring.lines) == 2
        assert "CANARY" not in repr(ring)


class TestFile:
    """Whole lines in a file."""

    def test_events_reach_the_file_in_order(self, path):
        """What was recorded stands in the file after close, one line each, in order."""
        trace = trace_to(path)
        for step in range(100):
            trace.record(result(step=step))
        trace.close()
        assert [event["step"] for event in lines(path)] == list(range(100))

    def test_a_failure_is_written_at_once(self, path):
        """An event that is not ok takes everything before it into the file."""
        trace = trace_to(path)
        trace.record(result())
        trace.record(result())
        before = len(lines(path))
        trace.record(result(ok=False))
        assert before < 3
        assert len(lines(path)) == 3
        trace.close()

    @pytest.mark.parametrize("later", [2.6, 0.5])
    def test_an_old_buffer_is_written_with_the_next_event(self, path, later):
        """A second of age is enough; a clock that runs backwards counts as age."""
        trace = trace_to(path)
        trace.record(result())
        trace.record(result(ts=1.6))
        buffered = len(lines(path))
        trace.record(result(ts=later))
        assert buffered < 3
        assert len(lines(path)) == 3
        trace.close()

    def test_a_full_buffer_is_written(self, path):
        """More than 64 KB never wait."""
        trace = trace_to(path)
        for _ in range(1_000):
            trace.record(result())
        assert len(path.read_bytes()) > 60_000
        trace.flush()
        assert len(lines(path)) == 1_000
        trace.close()

    def test_only_the_user_may_read_it(self, path):
        """A trace holds what people said; the file is private."""
        trace_to(path).close()
        assert path.stat().st_mode & 0o777 == 0o600

    def test_closing_twice_and_writing_after_it_is_counted(self, path):
        """A closed file drops events, says so, and raises nothing."""
        trace = trace_to(path)
        trace.close()
        trace.close()
        trace.record(result(ok=False))
        assert trace.dropped_count == 1
        assert trace.problem

    @pytest.mark.parametrize("end", [Trace.close, lambda trace: trace.apply_policy(TracePolicy())])
    def test_a_line_under_way_lands_in_no_other_file(self, path, monkeypatch, end):
        """Closing waits for whoever is writing, so its descriptor is not yet that of a file opened next."""
        trace, inside, ended = trace_to(path), threading.Event(), threading.Event()
        write, flush = os.write, trace.flush
        writer = threading.Thread(target=trace.record, args=(result(ok=False),))

        def slow_write(fd, data):
            inside.set()
            ended.wait(30)
            return write(fd, data)

        def flush_and_meet_a_writer():
            flush()
            if not writer.ident:
                monkeypatch.setattr(tracefile.os, "write", slow_write)
                writer.start()
                inside.wait(0.3)

        monkeypatch.setattr(trace, "flush", flush_and_meet_a_writer)
        end(trace)
        other = os.open(path.with_name("other"), os.O_RDWR | os.O_CREAT)
        ended.set()
        writer.join(30)
        assert os.fstat(other).st_size == 0
        os.close(other)

    def test_closing_in_the_middle_of_a_write_raises_nothing(self, path, monkeypatch):
        """A finalizer that closes the guard may run anywhere, also between a write and what follows it."""
        trace, write = trace_to(path), os.write

        def write_and_close(fd, data):
            done = write(fd, data)
            trace.close()
            return done

        monkeypatch.setattr(tracefile.os, "write", write_and_close)
        trace.record(result(ok=False))
        assert len(lines(path)) == 1

    def test_a_forgotten_trace_loses_nothing(self, path):
        """A trace that is thrown away unclosed writes its buffer and closes its file."""
        trace = trace_to(path)
        trace.record(result())
        trace.record(result())
        del trace
        gc.collect()
        assert len(lines(path)) == 2

    def test_a_program_that_just_ends_loses_nothing(self, path):
        """At exit everything is written, without a word from the program."""
        code = (
            "import sys; from pokayoke.runtime.trace.trace import Trace; from pokayoke.core.policy import TracePolicy;"
            "t = Trace(TracePolicy(path=sys.argv[1])); [t.record({'event': 'e', 'ts': 1.0, 'step': s}) for s in range(5)]"
        )
        subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=30)
        assert [event["step"] for event in lines(path)] == list(range(5))

    def test_threads_share_it(self, path):
        """Eight threads write whole lines and none is lost."""
        trace = trace_to(path, max_bytes=10**9)

        def work(name):
            for step in range(300):
                trace.record(result(run_id=name, step=step, ok=step % 7 != 0))

        threads = [threading.Thread(target=work, args=(f"run_{number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        trace.close()
        found = lines(path)
        assert len(found) == 2_400
        for number in range(8):
            assert [e["step"] for e in found if e["run_id"] == f"run_{number}"] == list(range(300))


class TestRotation:
    """A file that stays within its size."""

    def test_it_keeps_the_latest_and_so_many_before(self, path):
        """Files move up by one; the oldest goes; no line is torn."""
        trace = trace_to(path, max_bytes=1_000, backups=2)
        for step in range(60):
            trace.record(result(step=step, ok=False))
        trace.close()
        files = sorted(path.parent.iterdir())
        assert [file.name for file in files] == ["trace.jsonl", "trace.jsonl.1", "trace.jsonl.2"]
        assert all(file.stat().st_size <= 1_000 for file in files)
        kept = [event["step"] for file in (files[2], files[1], files[0]) for event in lines(file)]
        assert kept == list(range(kept[0], 60))

    def test_a_program_that_goes_elsewhere_keeps_its_trace(self, path, monkeypatch):
        """A relative path is meant from where the trace was opened: after a change of folder it is the same file."""
        monkeypatch.chdir(path.parent)
        trace = trace_to(path.name)
        elsewhere = path.parent / "elsewhere"
        elsewhere.mkdir()
        monkeypatch.chdir(elsewhere)
        trace.record(result(step=1, ok=False))
        trace.close()
        assert [line["step"] for line in lines(path)] == [1]
        assert list(elsewhere.iterdir()) == []

    def test_without_backups_it_starts_anew(self, path):
        """Backups 0 keeps one file within its size."""
        trace = trace_to(path, max_bytes=500, backups=0)
        for step in range(20):
            trace.record(result(step=step, ok=False))
        trace.close()
        assert [file.name for file in path.parent.iterdir()] == ["trace.jsonl"]
        assert path.stat().st_size <= 500
        assert lines(path)[-1]["step"] == 19

    def test_a_line_larger_than_the_limit_is_still_written(self, path):
        """One event never rotates an empty file."""
        trace = trace_to(path, max_bytes=10, backups=1)
        trace.record(result(ok=False))
        trace.close()
        assert len(lines(path)) == 1

    def test_a_file_that_was_moved_away_is_followed(self, path, monkeypatch):
        """After a rotation by someone else, lines go to the file that bears the name."""
        monkeypatch.setattr(tracefile, "_LOOK_SECONDS", 0)
        trace = trace_to(path)
        trace.record(result(step=1, ok=False))
        path.rename(path.with_suffix(".old"))
        trace.record(result(step=2, ok=False))
        path.unlink()
        trace.record(result(step=3, ok=False))
        trace.close()
        # Nobody may have read what stood in the file that is gone.
        assert [event["step"] for event in lines(path)] == [2, 3]
        assert [event["step"] for event in lines(path.with_suffix(".old"))] == [1]

    def test_until_the_next_look_a_moved_file_is_written_to(self, path, monkeypatch):
        """A line is in the file that was moved or in the new one, never in both and never in none."""
        now = iter((0.0, 0.05, 0.099, 0.11))
        trace = trace_to(path)
        monkeypatch.setattr(tracefile.time, "monotonic", lambda: next(now))
        trace.record(result(step=1, ok=False))
        path.rename(path.with_suffix(".old"))
        for step in (2, 3, 4):
            trace.record(result(step=step, ok=False))
        monkeypatch.undo()
        trace.close()
        assert [event["step"] for event in lines(path.with_suffix(".old"))] == [1, 2, 3]
        assert [event["step"] for event in lines(path)] == [4]

    @pytest.mark.parametrize("closed", [True, False])
    def test_what_went_with_a_deleted_file_is_written_again(self, path, monkeypatch, closed):
        """What was written since the last look is not lost, at the next look or when the trace is closed."""
        monkeypatch.setattr(tracefile, "_LOOK_SECONDS", 600)
        trace = trace_to(path)
        trace.record(result(step=1, ok=False))
        path.unlink()
        trace.record(result(step=2, ok=False))
        assert not path.exists()
        if not closed:
            monkeypatch.setattr(tracefile, "_LOOK_SECONDS", 0)
            trace.record(result(step=3, ok=False))
        trace.close()
        assert [event["step"] for event in lines(path)] == ([1, 2] if closed else [1, 2, 3])
        assert trace.dropped_count == 0

    def test_what_cannot_be_written_again_is_counted(self, path):
        """Where the file went with its folder, closing says how many lines are gone."""
        trace = trace_to(path)
        trace.record(result(step=1, ok=False))
        path.unlink()
        path.parent.rename(f"{path.parent}.away")
        trace.close()
        assert (trace.dropped_count, bool(trace.problem)) == (1, True)

    def test_what_may_be_written_again_stays_bounded(self, path, monkeypatch):
        """So many bytes make the next write look where it goes, however little time has passed."""
        monkeypatch.setattr(tracefile, "_LOOK_SECONDS", 600)
        monkeypatch.setattr(tracefile, "_MOST_UNSURE", 1_000)
        file = TraceFile(path, max_bytes=10**6, backups=1)
        for number in range(100):
            file.append([b"%03d" % number + b"x" * 96])
            assert sum(map(len, file._unsure)) <= 1_000
        path.rename(path.with_suffix(".old"))
        for number in range(100, 120):
            file.append([b"%03d" % number + b"x" * 96])
        file.close()
        kept = [int(line[:3]) for name in (".old", ".jsonl") for line in path.with_suffix(name).read_bytes().split()]
        assert kept == list(range(120))
        assert len(path.with_suffix(".old").read_bytes().split()) <= 110

    def test_another_process_that_rotates_is_not_waited_for(self, path):
        """Where the lock is taken the file grows a little; the call goes on."""
        first = TraceFile(path, max_bytes=50, backups=1)
        first.append([b"a" * 60])
        with path.open("rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            first.append([b"b" * 60])
        assert path.read_bytes() == b"a" * 60 + b"\n" + b"b" * 60 + b"\n"
        first.close()

    def test_a_successor_is_not_moved_by_one_who_came_late(self, path, monkeypatch):
        """Who gets the lock after the file was moved leaves the new file alone."""
        late = TraceFile(path, max_bytes=50, backups=1)
        late.append([b"a" * 60])
        real = system._locks.flock

        def rotated_meanwhile(fd, how):
            path.rename(f"{path}.1")
            path.write_bytes(b"new\n")
            real(fd, how)

        monkeypatch.setattr(system._locks, "flock", rotated_meanwhile)
        late.append([b"b" * 10])
        assert path.read_bytes() == b"new\n"
        assert (path.parent / "trace.jsonl.1").read_bytes() == b"a" * 60 + b"\n" + b"b" * 10 + b"\n"
        late.close()

    def test_without_locks_it_rotates_alone(self, path, monkeypatch):
        """On a system without file locks one process still rotates."""
        monkeypatch.setattr(system, "_locks", None)
        trace = trace_to(path, max_bytes=200, backups=1)
        for step in range(4):
            trace.record(result(step=step, ok=False))
        trace.close()
        assert (path.parent / "trace.jsonl.1").exists()

    def test_several_processes_append_and_rotate(self, path):
        """Four processes write 250 events each through rotations: no line is torn, none is doubled."""
        context = multiprocessing.get_context("spawn")
        workers = [context.Process(target=_append, args=(str(path), number)) for number in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(50)
        assert [worker.exitcode for worker in workers] == [0] * 4
        found = [event for file in path.parent.iterdir() for event in lines(file)]
        pairs = [(event["run_id"], event["step"]) for event in found]
        assert len(pairs) == len(set(pairs)) == 1_000


def _append(path, number):
    trace = Trace(TracePolicy(path=path, max_bytes=20_000, backups=50))
    for step in range(250):
        trace.record(result(run_id=f"run_{number}", step=step, ok=step % 5 != 0))
    trace.close()


class TestFork:
    """A forked child and its parent do not write each other's lines."""

    def test_lines_in_the_buffer_are_written_once(self, path):
        """The child starts with an empty buffer and a descriptor of its own."""
        trace = trace_to(path)
        trace.record(result(step=1))
        trace.record(result(step=2))
        child = os.fork()
        if child == 0:
            trace.record(result(step=3))
            trace.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        trace.close()
        assert sorted(event["step"] for event in lines(path)) == [1, 2, 3]

    def test_what_went_with_a_deleted_file_is_written_again_by_the_parent_alone(self, path):
        """A child that cannot reopen the file does not write its parent's lines into the one that comes later."""
        trace = trace_to(path)
        trace.record(result(step=1, ok=False))
        away = path.parent.with_suffix(".away")
        path.unlink()
        path.parent.rename(away)
        trace._file.reset_after_fork()  # as in a child: its folder is away just now
        away.rename(path.parent)
        trace.close()
        assert not path.exists()

    def test_a_lock_held_while_forking_does_not_hang_the_child(self, path):
        """A thread that was flushing in the parent leaves no lock behind in the child."""
        trace = trace_to(path)
        with trace._lock:
            child = os.fork()
            if child == 0:
                trace.record(result(ok=False))
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert len(lines(path)) == 1
        trace.close()

    def test_a_child_that_cannot_reopen_keeps_the_parents_file(self, path):
        """Without its folder the child says so and goes on; a closed trace stays closed."""
        trace = trace_to(path)
        path.unlink()
        path.parent.rename(f"{path.parent}.away")
        trace._file.reset_after_fork()
        assert trace.problem
        trace.close()
        trace._file.reset_after_fork()
        assert trace._file._fd == -1


class TestHalfLines:
    """What a process leaves behind that is killed in the middle of a write."""

    @pytest.mark.parametrize(("opened", "order"), [(True, [1, "torn", 3, 2, 4]), (False, [1, "torn", 2, 3, 4])])
    def test_what_lands_behind_half_a_line_is_written_once_more(self, path, opened, order):
        """An event of ours is whole in the file whatever another process left there, now or before we came."""
        trace = trace_to(path)
        trace.record(result(step=1, ok=False))
        if not opened:
            trace.close()
        with path.open("ab") as other:
            other.write(b'{"ts": 1.5, "half')
        trace = trace if opened else trace_to(path)
        trace.record(result(step=2, ts=1.6))
        trace.record(result(step=3, ok=False, ts=1.6))
        trace.record(result(step=4, ok=False))
        trace.close()
        assert steps_in(path) == order
        assert trace.dropped_count == 0

    def test_a_whole_line_of_another_process_changes_nothing(self, path):
        """Only half a line makes ours begin anew."""
        trace = trace_to(path)
        trace.record(result(step=1, ok=False))
        with path.open("ab") as other:
            other.write(b'{"step": 10}\n')
        trace.record(result(step=2, ok=False))
        trace.close()
        assert steps_in(path) == [1, 10, 2]

    @pytest.mark.parametrize("without", ["permission", "pread"])
    def test_a_file_that_cannot_be_read_is_written_all_the_same(self, path, monkeypatch, without):
        """Nothing is seen of half a line then, and nothing is raised."""
        if without == "pread":
            monkeypatch.delattr(os, "pread")
        real = os.open

        def may_only_write(name, flags, mode=0o777, **more):
            if without == "permission" and flags & os.O_RDWR:
                raise PermissionError(errno.EACCES, "Permission denied")
            return real(name, flags, mode, **more)

        monkeypatch.setattr(os, "open", may_only_write)
        path.write_bytes(b'{"half')
        trace = trace_to(path)
        for step in (1, 2):
            trace.record(result(step=step, ok=False))
        trace.close()
        assert steps_in(path) == ["torn", 2]
        assert (trace.dropped_count, trace.problem) == (0, None)

    def test_no_space_for_what_is_written_once_more_is_counted(self, path, monkeypatch):
        """A line that could not be saved from half a line of another is a dropped one."""
        path.write_bytes(b'{"half')
        trace, real, done = trace_to(path), os.write, []

        def once(fd, data):
            if done:
                raise OSError(errno.ENOSPC, "No space left on device")
            done.append(data)
            return real(fd, data)

        monkeypatch.setattr(os, "write", once)
        trace.record(result(step=1, ok=False))
        assert (trace.dropped_count, trace.problem) == (1, "No space left on device")


class TestTrouble:
    """A file that cannot be written."""

    @pytest.mark.parametrize("name", ["missing/trace.jsonl", "folder", "/dev/full", "pipe"])
    def test_what_can_be_known_while_building_is_an_error(self, tmp_path, name):
        """A missing folder, a folder, a device and a pipe are refused with the path in the message."""
        (tmp_path / "folder").mkdir()
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ConfigurationError, match=r"trace\.path"):
            trace_to(tmp_path / name)

    def test_what_is_no_file_is_told_as_such(self, tmp_path):
        """To make its folder or get the right to write would not help with a pipe, and the message does not say so."""
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ConfigurationError, match=r"is not a regular file\. Name another one\.$"):
            trace_to(tmp_path / "pipe")

    def test_a_pipe_that_takes_the_place_of_the_file_costs_events_not_calls(self, path):
        """Nobody waits for its reader, and nothing is written into it."""
        trace = trace_to(path)
        path.unlink()
        os.mkfifo(path)
        trace.record(result(ok=False))
        assert (trace.dropped_count, trace.problem) == (1, "it is not a regular file")
        trace.close()

    def test_no_space_is_an_error_while_building(self, path, monkeypatch):
        """A full disk is found before the first call, not with it."""
        full = os.statvfs_result((4096, 4096, 100, 0, 0, 10, 0, 0, 0, 255))
        monkeypatch.setattr(os, "fstatvfs", lambda fd: full)
        with pytest.raises(ConfigurationError, match="no space left"):
            trace_to(path)

    def test_a_file_system_that_does_not_tell_has_space(self, path, monkeypatch):
        """Where free space cannot be asked for, the file is opened."""

        def unknown(fd):
            raise OSError(errno.ENOSYS, "not here")

        monkeypatch.setattr(os, "fstatvfs", unknown)
        trace_to(path).close()

    def test_a_disk_that_fills_up_costs_events_not_calls(self, path, monkeypatch):
        """Half a line stays behind; the next whole one starts on a line of its own; losses are counted."""
        trace = trace_to(path)
        trace.record(result(step=1, ok=False))
        real = os.write
        room = [130]

        def filling(fd, data):
            done = min(len(data), room[0])
            if done == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            room[0] -= done
            return real(fd, data[:done])

        monkeypatch.setattr(os, "write", filling)
        for step in (2, 3):
            trace.record(result(step=step, ts=1.6))
        trace.flush()
        assert trace.dropped_count == 1
        assert trace.problem == "No space left on device"
        trace.record(result(step=4, ok=False))
        assert trace.dropped_count == 2
        room[0] = 10_000
        trace.record(result(step=5, ok=False))
        trace.close()
        assert steps_in(path) == [1, 2, "torn", 5]
        assert trace.problem is None

    def test_a_lost_folder_costs_events_not_calls(self, path):
        """A folder that disappears is reported and counted; when it is back, so is the trace."""
        trace = trace_to(path)
        away = path.parent.with_name("away")
        path.parent.rename(away)
        trace.record(result(ok=False))
        assert trace.dropped_count == 1
        assert "No such file" in trace.problem
        away.rename(path.parent)
        trace.record(result(ok=False))
        trace.close()
        assert len(lines(path)) == 1


class TestUse:
    """A policy that changes while events are written."""

    def test_a_new_policy_takes_over_file_and_rules(self, path):
        """The old file is finished, the new one written, and a known secret stays hidden."""
        trace = trace_to(path)
        trace.record(result(arguments=b'{"password":"CANARY-1"}'))
        second = path.with_name("second.jsonl")
        trace.apply_policy(TracePolicy(path=str(second), redact_fields=("email",)))
        trace.record(result(arguments=b'{"email":"a@b"}', reason="CANARY-1"))
        trace.apply_policy(TracePolicy(path=str(second), payloads="off"))
        trace.record(result(arguments=b"{}"))
        trace.apply_policy(TracePolicy())
        assert len(lines(path)) == 1
        assert lines(second)[0]["arguments"] == {"email": "[redacted]"}
        assert lines(second)[0]["reason"] == "[redacted]"
        assert "arguments" not in lines(second)[1]

    def test_a_policy_that_cannot_be_used_changes_nothing(self, path):
        """A wrong pattern or an unwritable file leaves everything as it was."""
        trace = trace_to(path)
        with pytest.raises(PolicyError):
            trace.apply_policy(TracePolicy(redact_patterns=("(",)))
        with pytest.raises(ConfigurationError):
            trace.apply_policy(TracePolicy(path=str(path.parent / "no" / "x"), payloads="off"))
        trace.record(result(ok=False, arguments=b"{}"))
        trace.close()
        assert lines(path)[0]["arguments"] == {}


def test_the_payload_bytes_of_an_event_are_not_copied_through_python():
    """A payload is embedded without being parsed: a sound but unparsable-to-Python depth is no problem."""
    deep = b"[" * 900 + b"]" * 900
    line = Trace(TracePolicy()).record(result(arguments=deep)).line
    assert deep in line
    assert msgspec.json.decode(line.replace(deep, b"1"))["arguments"] == 1


def test_what_a_call_keeps_takes_about_as_much_memory_as_its_line(tmp_path):
    """Two hundred kept events take no more than two thirds beyond their lines, with everything else a run remembers."""
    contract = Contract.from_schema("t", {"type": "object"}, output_schema={"type": "object"}, effect="read")
    with Guard([contract], config={"trace": {"path": str(tmp_path / "t.jsonl")}}).run() as run:
        for number in range(300):
            if number == 100:
                gc.collect()
                tracemalloc.start()
            call = ToolCall(str(number), "t", '{"text": "' + "x" * 200 + '"}')
            run.call(call, invoke=lambda _: '{"text": "' + "y" * 1_000 + '"}')
        run.guard.trace.flush()
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert taken < 200 * len(run.trace.lines[-1]) * 5 / 3


@pytest.mark.parametrize("effect", ["read", "write"])
@pytest.mark.parametrize(
    ("answer", "wire"),
    [
        (Raw('{"a": 1}', "application/json", 200), True),
        (Raw("<html><body>Sorry</body></html>", "text/html", 200), True),
        (Raw('{"error": "no"}', "application/json", 400), True),
        ({"body": '{"a": 1}', "content_type": "application/json"}, True),
        ({"a": 1}, None),
        ('{"a": 1}', None),
        (5, None),
    ],
)
def test_an_event_says_whether_the_transport_was_checked(answer, wire, effect):
    """A response went through status and content type, good or bad; a text or a Python value had neither."""
    tool = Contract.from_schema("get", {}, output_schema={"type": "object"}, effect=effect, handler=lambda: answer)
    run = Guard([tool]).run("r")
    run.call(ToolCall("1", "get", {}))
    (ended,) = [one for one in run.trace if one["event"] == "tool_result"]
    assert ended.get("wire") is wire


class TestUsersRedactor:
    """The function of `Guard(redactor=...)`."""

    PAY = Contract.from_schema(
        "pay",
        {"type": "object", "properties": {"to": {"type": "string"}}},
        output_schema={"type": "object"},
        handler=lambda to: {"paid": to},
    )

    def called(self, path, redactor, store=None):
        """The lines of one call, and its outcome twice: of the first time and of a repetition."""
        config = {"trace": {"path": str(path)}}
        with Guard([self.PAY], config=config, redactor=redactor, store=store).run("r") as run:
            outcomes = [run.call(ToolCall(ident, "pay", '{"to": "CH93"}')) for ident in ("1", "2")]
        run.guard.close()
        return lines(path), outcomes

    def test_what_it_returns_is_written(self, path):
        """Arguments and results pass through it; the tool and the model get theirs as they are."""
        written, (outcome, _) = self.called(path, lambda payload: dict.fromkeys(payload, "(iban)"))
        assert [one["arguments"] for one in written if "arguments" in one] == [{"to": "(iban)"}] * 2
        assert [one["result"] for one in written if "result" in one] == [{"paid": "(iban)"}] * 2
        assert outcome.value == {"paid": "CH93"}

    @pytest.mark.parametrize("error", [ValueError("CANARY"), SystemExit("CANARY")])
    def test_one_that_raises_costs_the_payload_and_no_call(self, path, error):
        """Nothing of what it was given, or says, is written."""

        def broken(payload):
            raise error

        written, (outcome, _) = self.called(path, broken)
        assert outcome.status == "ok"
        assert {json.dumps(one["arguments"]) for one in written if "arguments" in one} == {f'"{REDACTION_FAILED}"'}
        assert not {"CANARY", "CH93"} & set(path.read_text().split('"'))

    def test_a_durable_store_keeps_no_output_that_it_changes(self, path, tmp_path, monkeypatch):
        """Without a key to seal with, a repetition is told what is known, without the value."""
        monkeypatch.delenv("POKAYOKE_STORE_KEY", raising=False)
        store = open_store(f"sqlite:///{tmp_path}/ledger.db", create=True)
        _, (first, again) = self.called(path, lambda payload: "hidden", store)
        assert (first.status, first.value) == ("ok", {"paid": "CH93"})
        assert (again.status, again.value) == ("replayed", None)

    def test_it_stays_when_the_policy_changes(self, path):
        """A reload brings other names and patterns, not another function."""
        trace = Trace(TracePolicy(), redactor=lambda payload: "hidden")
        trace.apply_policy(TracePolicy(path=str(path)))
        trace.record(result(ok=False, arguments=b'{"a":1}'))
        trace.close()
        assert lines(path)[0]["arguments"] == "hidden"
