"""Alerts: a spike of invalid outputs is told once, in the trace and to the host."""

import gc
import json
import os
import threading
import time
import warnings

import pytest

import pokayoke
from pokayoke.core.policy import AlertPolicy, TracePolicy
from pokayoke.core.state.kill_switch import OutputObservation
from pokayoke.errors import ConfigurationError
from pokayoke.runtime.guard.alerts import Alerts
from pokayoke.runtime.trace.trace import Trace
from pokayoke.stores.base import RecordQuery


def output(status="ok", tool="get", ts=1000.0):
    return [OutputObservation(tool, status == "ok", ts, run_id="run_1")]


@pytest.fixture
def trace(tmp_path):
    return Trace(TracePolicy(path=str(tmp_path / "trace.jsonl")))


@pytest.fixture
def written(tmp_path, trace):
    """What stands in the trace file about alerts."""

    def read():
        trace.flush()
        events = map(json.loads, (tmp_path / "trace.jsonl").read_text().splitlines())
        return [event for event in events if event["event"] in ("alert", "observer")]

    return read


def test_a_spike_is_told_once(trace, written):
    """Ten invalid outputs are one call of `on_alert` and one event, without any exporter."""
    told = []
    alerts = Alerts(trace.record, AlertPolicy(), told.append)
    for number in range(10):
        alerts.take_outputs(output("degraded", ts=1000.0 + number))
    assert [(alert.tool, alert.in_a_row, alert.run_id) for alert in told] == [("get", 3, "run_1")]
    assert written() == [
        {
            "ts": 1002.0,
            "run_id": "run_1",
            "event": "alert",
            "alert": "invalid_output_spike",
            "tool": "get",
            "ok": False,
            "reason": "the last 3 outputs of get broke its contract",
            "invalid": 3,
            "outputs": 3,
        }
    ]


def test_a_spike_needs_no_callback(trace, written):
    """Without `on_alert` the event is written all the same."""
    alerts = Alerts(trace.record, AlertPolicy())
    for _ in range(3):
        alerts.take_outputs(output("invalid_output"))
    assert len(written()) == 1


def test_each_tool_has_its_own_spike(trace):
    """Outputs of one tool say nothing about another."""
    told = []
    alerts = Alerts(trace.record, AlertPolicy(), told.append)
    for _ in range(2):
        alerts.take_outputs(output("degraded", "a"))
        alerts.take_outputs(output("degraded", "b"))
    assert told == []
    alerts.take_outputs(output("degraded", "b"))
    assert [alert.tool for alert in told] == ["b"]


def test_the_option_switches_it_off_and_on(trace):
    """With `invalid_output_spike: false` nothing is observed; a changed policy counts from then on."""
    told = []
    alerts = Alerts(trace.record, AlertPolicy(invalid_output_spike=False), told.append)
    for _ in range(3):
        alerts.take_outputs(output("degraded"))
    alerts.apply_policy(AlertPolicy())
    alerts.apply_policy(AlertPolicy())
    for _ in range(3):
        alerts.take_outputs(output("degraded"))
    alerts.apply_policy(AlertPolicy(invalid_output_spike=False))
    for _ in range(3):
        alerts.take_outputs(output("degraded", "b"))
    assert len(told) == 1


def test_a_callback_that_raises_is_written_down(trace, written):
    """What `on_alert` raises stands in the trace without its text; alerts go on."""

    def broken(alert):
        raise ValueError("CANARY")

    alerts = Alerts(trace.record, AlertPolicy(), broken)
    for tool in ("a", "b"):
        for _ in range(3):
            alerts.take_outputs(output("degraded", tool))
    assert [event["reason"] for event in written()] == [
        "the last 3 outputs of a broke its contract",
        "on_alert raised ValueError",
        "the last 3 outputs of b broke its contract",
        "on_alert raised ValueError",
    ]


def test_a_coroutine_function_is_refused(trace):
    """Nobody would await it, so it is an error at once."""

    async def later(alert):
        """Never runs."""

    with pytest.raises(ConfigurationError, match="plain function"):
        Alerts(trace.record, AlertPolicy(), later)


def test_the_tools_it_remembers_are_bounded(trace):
    """A catalogue that changes all the time does not fill the memory; the oldest tool is forgotten first."""
    alerts = Alerts(trace.record, AlertPolicy())
    for number in range(1_500):
        alerts.take_outputs(output(tool=f"t{number}"))
    assert len(alerts._tools) == 1_000
    assert "t1499" in alerts._tools
    assert "t0" not in alerts._tools


@pytest.mark.parametrize("mode", ["enforce", "monitor"])
def test_real_calls_make_an_alert(mode):
    """Three answers of a tool that break its contract are an alert, also where monitor mode hands them on."""

    @pokayoke.tool(effect="read", output={"type": "object", "required": ["id"]})
    def lookup(name: str) -> dict:
        """Look somebody up."""
        return {} if name.startswith("broken") else {"id": 1}

    told = []
    guard = pokayoke.Guard([lookup], config={"mode": mode}, on_alert=told.append)
    with guard.run("run_7") as run:
        for number in range(3):
            run.call(pokayoke.ToolCall(str(number), "lookup", {"name": "fine", "n": number}))
            run.call(pokayoke.ToolCall(str(number), "invented", {"name": "broken"}))
            run.call(pokayoke.ToolCall(str(number), "lookup", {"name": "fine"}))
        assert told == []
        for number in range(8):
            run.call(pokayoke.ToolCall(str(number), "lookup", {"name": f"broken {max(0, number - 5)}"}))
    assert [(alert.tool, alert.run_id, alert.in_a_row) for alert in told] == [("lookup", "run_7", 3)]


def test_one_page_is_no_spike():
    """A web page from a tool without an output contract is an invalid output; asked for again and again it counts once."""
    told = []
    fetch = pokayoke.Contract.from_schema(
        "fetch", {"type": "object", "properties": {}}, effect="read", handler=lambda: "<html><body>x</body></html>"
    )
    config = {"validation": {"tool_output": {"schema": "declared"}}, "loop": {"identical_failures": 50}}
    guard = pokayoke.Guard([fetch], config=config, on_alert=told.append)
    with guard.run("run_1") as run:
        outcomes = [run.call(pokayoke.ToolCall("1", "fetch", {})) for _ in range(5)]
    assert {outcome.findings[0].code for outcome in outcomes} == {"html_instead_of_data"}
    assert told == []


def test_threads_count_one_after_the_other(trace):
    """Two threads never count the same tool's outputs at once, and each output is counted."""
    alerts = Alerts(trace.record, AlertPolicy())
    inside, together, counted = [], [], []

    class Probe:
        def add_output(self, tool, at, *, valid, run_id):
            inside.append(1)
            time.sleep(0.001)
            together.append(len(inside))
            inside.pop()
            counted.append(valid)

    alerts._tools["get"] = Probe()
    threads = [threading.Thread(target=lambda: [alerts.take_outputs(output()) for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(together) == {1}
    assert len(counted) == 40


def test_a_forked_child_has_a_lock_of_its_own(trace):
    """A child made while the parent was counting does not wait for a lock that nobody will give back."""
    alerts = Alerts(trace.record, AlertPolicy())
    gc.disable()
    with alerts._lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of what this test is about
        child = os.fork()
        if child == 0:
            alerts.take_outputs(output())
            os._exit(7)
    gc.enable()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_an_alert_that_ends_in_system_exit_costs_no_write_its_record(driver):
    """It is told after the effect is recorded, and whatever it raises is the trace's: the call goes on."""
    states = []

    def on_alert(alert):
        states.extend(record.state for record in guard.store.records(RecordQuery()))
        raise SystemExit(3)

    answers = iter(["invalid"] * 3)
    look = pokayoke.Contract.from_schema(
        "look", {"type": "object"}, effect="read", output_schema={"type": "object"}, handler=lambda: next(answers)
    )
    pay = pokayoke.Contract.from_schema(
        "pay", {"type": "object"}, output_schema={"type": "object"}, sources=(), handler=dict
    )
    guard = pokayoke.Guard([look, pay], on_alert=on_alert, config={"safe_mode": {"kill_switch": False}})
    for number in range(3):
        guard.switchboard.count_invalid(OutputObservation("look", False, guard.clock.now(), run_id=f"r{number}"))
    run = guard.run("r")
    assert driver.call(run, pokayoke.ToolCall("c", "pay", {})).status == "ok"
    assert states == ["completed"]
    assert guard.store.records(RecordQuery())[0].state == "completed"
