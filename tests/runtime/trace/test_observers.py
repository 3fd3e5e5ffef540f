"""Observers of the trace: told of everything, shown no payload, never in the way of a call."""

import json

import pytest

import pokayoke
from pokayoke.core.call import Correction, Finding
from pokayoke.core.policy import TracePolicy
from pokayoke.runtime.trace.trace import Trace


def result(**more):
    return {"ts": 1.5, "run_id": "run_1", "step": 1, "event": "tool_result", "tool": "t", "ok": True, **more}


@pokayoke.tool(effect="write", output="text", redact=("note",))
def pay(amount: int, note: str = "") -> str:
    """Pay somebody."""
    return "paid CANARY"


@pokayoke.tool(effect="read", output={"type": "object"})
def lookup(name: str) -> dict:
    """Look somebody up."""
    if name == "broken":
        return "CANARY"
    return {"found": "CANARY"}


class TestWhatIsShown:
    """An observer gets names, numbers and codes."""

    def test_every_event_arrives_once_in_order(self):
        """An observer is called for each event, in the order in which they were recorded."""
        trace, seen = Trace(TracePolicy()), []
        trace.observe(seen.append)
        for step in range(3):
            trace.record(result(step=step))
        assert [event["step"] for event in seen] == [0, 1, 2]

    @pytest.mark.parametrize("payloads", ["redacted", "hash", "off"])
    @pytest.mark.parametrize("more", [{}, {"ok": False, "reason": "CANARY"}, {"marks": ("a",)}, {"extra": "CANARY"}])
    def test_no_payload_and_no_text_arrives(self, payloads, more):
        """Arguments, results, raw texts, messages and reasons are withheld, whatever the trace itself writes."""
        trace, seen = Trace(TracePolicy(payloads=payloads)), []
        trace.observe(seen.append)
        trace.record(result(arguments=b'"CANARY"', result=b'"CANARY"', **more))
        trace.record(
            result(
                raw="CANARY",
                findings=(Finding("code", "/CANARY", "tool", "CANARY", "CANARY", {"got": "CANARY"}),),
                corrections=(Correction("/a", "rule", "CANARY", "CANARY"),),
                **more,
            )
        )
        assert "CANARY" not in repr(seen)
        assert seen[1]["findings"] == ("code",)
        assert seen[1]["corrections"] == ("rule",)

    def test_calls_of_a_guard_show_no_payload(self):
        """Neither a read, a write, a refused call nor an invalid output shows an observer what was said."""
        guard, seen = pokayoke.Guard([pay, lookup]), []
        guard.trace.observe(seen.append)
        with guard.run("run_1") as run:
            run.call(pokayoke.ToolCall("1", "lookup", {"name": "x"}))
            run.call(pokayoke.ToolCall("2", "pay", {"amount": "3", "note": "CANARY"}))
            run.call(pokayoke.ToolCall("3", "pay", '{"amount": "CANARY'))
            run.call(pokayoke.ToolCall("4", "lookup", {"name": "broken"}))
        assert "CANARY" not in repr(seen)
        assert [(event["event"], event.get("decision"), event.get("status")) for event in seen] == [
            ("tool_result", "allow", "ok"),
            ("tool_call", "allow", None),
            ("tool_result", None, "ok"),
            ("tool_call", "refuse", None),
            ("tool_result", "allow", "degraded"),
            ("stop", None, None),
        ]
        assert seen[1]["corrections"] == ("number_from_text",)
        assert seen[3]["findings"] == ("cut_in_string",)
        assert seen[5]["reason"] == "invalid_tool_output"

    def test_what_an_observer_changes_stays_its_own(self):
        """An observer gets a copy: the trace writes what it was handed."""
        trace = Trace(TracePolicy())
        trace.observe(dict.clear)
        assert json.loads(trace.record(result(step=7)).line)["step"] == 7


class TestInTheWay:
    """What an observer does is no business of a call."""

    @pytest.mark.parametrize("error", [ValueError, SystemExit])
    def test_one_that_raises_is_reported_once(self, tmp_path, error):
        """The call goes on, the others are told, and the trace holds one event about it, without its text."""
        trace = Trace(TracePolicy(path=str(tmp_path / "trace.jsonl")))
        seen = []

        def broken(event):
            raise error("CANARY")

        trace.observe(broken)
        trace.observe(seen.append)
        for step in range(3):
            assert json.loads(trace.record(result(step=step)).line)["step"] == step
        trace.close()
        lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
        reports = [line for line in lines if line["event"] == "observer"]
        assert [report["reason"] for report in reports] == [f"an observer raised {error.__name__}"]
        assert len(lines) == 4
        assert [event["step"] for event in seen if event["event"] == "tool_result"] == [0, 1, 2]

    def test_each_observer_is_reported(self):
        """Two broken observers make two reports, even if they compare equal."""
        trace, seen = Trace(TracePolicy()), []

        class Broken:
            __hash__ = None

            def __eq__(self, other):
                return True

            def __call__(self, event):
                raise KeyError

        trace.observe(Broken())
        trace.observe(Broken())
        trace.observe(seen.append)
        trace.record(result())
        trace.record(result())
        assert [event["event"] for event in seen].count("observer") == 2

    def test_what_ends_the_host_goes_through(self):
        """Ctrl-C inside an observer is not swallowed."""
        trace = Trace(TracePolicy())

        def interrupted(event):
            raise KeyboardInterrupt

        trace.observe(interrupted)
        with pytest.raises(KeyboardInterrupt):
            trace.record(result())

    def test_observing_ends(self):
        """The function that `observe` returns ends it for that observer, and a second time does nothing."""
        trace, first, second = Trace(TracePolicy()), [], []
        end = trace.observe(first.append)
        trace.observe(second.append)
        assert len(trace.observers) == 2
        trace.record(result())
        end()
        end()
        trace.record(result())
        assert (len(first), len(second)) == (1, 2)
        assert trace.observers == (second.append,)

    def test_an_observer_may_record(self):
        """An event that an observer records follows the one it was told of."""
        trace, seen = Trace(TracePolicy()), []
        trace.observe(seen.append)
        trace.observe(lambda event: event["event"] == "tool_result" and trace.record({"event": "alert", "ok": False}))
        trace.record(result())
        assert [event["event"] for event in seen] == ["tool_result", "alert"]
