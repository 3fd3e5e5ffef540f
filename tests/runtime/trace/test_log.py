"""What those who run a program read in its log: what keeps a guard from its work, and nothing of its calls."""

import errno
import os

import pytest

import pokayoke
from pokayoke import Contract, Guard, ToolCall
from pokayoke.core.policy import TracePolicy
from pokayoke.errors import StoreError
from pokayoke.runtime.trace import file as tracefile
from pokayoke.runtime.trace.trace import Trace
from pokayoke.testing import FailingStore


@pytest.fixture
def trace(tmp_path):
    """A trace in a file."""
    made = Trace(TracePolicy(path=str(tmp_path / "trace.jsonl")))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({"event": "config", "reason": "line 1: a\nline 2"}, "config: line 1: a line 2"),
        ({"event": "contracts", "reason": "pay@1 is gone"}, "contracts: pay@1 is gone"),
        ({"event": "store", "reason": "StoreError"}, "store: StoreError"),
        ({"event": "webhook", "reason": "it answered 500"}, "webhook: it answered 500"),
        ({"event": "switch", "tool": "find", "reason": "5 of 5"}, "switch of find: 5 of 5"),
        ({"event": "switch", "tool": "*", "reason": "5 of 5"}, "switch: 5 of 5"),
        ({"event": "observer", "reason": "Bearer abcdefghijklmnop0123456789"}, "observer: Bearer [redacted]"),
    ],
)
def test_what_keeps_a_guard_from_its_work_is_logged(trace, caplog, event, line):
    """One line each, redacted as in the trace; nothing if all is well again."""
    trace.record({**event, "ok": True})
    assert caplog.records == []
    trace.record({**event, "ok": False})
    assert [(one.name, one.levelname, one.message) for one in caplog.records] == [("pokayoke", "WARNING", line)]


def test_a_call_is_never_logged(caplog):
    """A failed, refused or unusable call is the model's or the tool's affair: the trace has it."""
    find = Contract.from_schema(
        "find", {"type": "object"}, effect="read", output_schema={"type": "object"}, handler=list
    )
    with Guard([find]).run() as run:
        for name in ("find", "found"):
            run.call(ToolCall("c", name, {}))
    assert caplog.records == []


def test_a_lost_line_is_logged_once_until_it_is_over(trace, caplog, monkeypatch):
    """A full disk is one line of the log, however many events it costs; a second time is another one."""
    full = True

    def write(fd, data):
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.write(fd, data)

    monkeypatch.setattr(tracefile, "os", type("Os", (), {"__getattr__": lambda self, name: getattr(os, name)})())
    monkeypatch.setattr(tracefile.os, "write", write, raising=False)
    told = [f"trace: {trace._file.path}: No space left on device. Events are lost until it is writable"]
    for full, lines in ((True, 1), (True, 1), (False, 1), (True, 2)):  # noqa: B007 - `write` reads it
        trace.record({"event": "tool_result", "ok": False})
        assert caplog.messages == told * lines
    assert trace.dropped_count == 3


def test_a_trace_that_was_closed_says_nothing(trace, caplog):
    """What a tool that was given up reports after the end goes to the rings alone, and is no problem of the file."""
    trace.close()
    trace.record({"event": "late_effect", "ok": False})
    trace.flush()
    assert caplog.records == []


def test_the_log_names_what_a_store_said(caplog):
    """A count that the store does not take is logged with the store's own words."""
    store = pokayoke.open_store("memory://")
    page = Contract.from_schema(
        "page", {"type": "object"}, effect="read", output_schema={"type": "object"}, handler=lambda: "<html>"
    )
    guard = Guard([page], store=FailingStore(store, ["observe"], error=lambda: StoreError("the disk is full")))
    guard.run().call(ToolCall("c", "page", {}))
    guard.switchboard.flush()
    assert set(caplog.messages) == {"store: the disk is full"}


def test_a_validator_that_a_schema_hides_is_logged_with_the_first_run(caplog):
    """What the guard has to say of its tools is told once."""
    made = {"before_validators": ("text",), "output_schema": {"type": "object"}}
    guard = Guard([Contract.from_schema("tag", {"type": "object", "properties": {"text": {}}}, **made)])
    guard.run()
    guard.run()
    (message,) = caplog.messages
    assert message.startswith("config: ")
    assert "tag@1" in message
