"""What events count for: the same samples for every exporter, and labels nobody can invent."""

import math
import os
import warnings

import pytest

from pokayoke.runtime.metrics.counting import INSTRUMENTS, OTHER, PER_TOOL, UNKNOWN, EventCounter, MetricSample


def call(decision="refuse", tool="get", **more):
    return {"ts": 1.0, "event": "tool_call", "tool": tool, "contract": f"{tool}@1", "decision": decision, **more}


def result(status="ok", tool="get", **more):
    ended = {"ts": 1.0, "event": "tool_result", "tool": tool, "contract": f"{tool}@1", "ok": status == "ok"}
    return ended | {"status": status, "attempts": 1, "us": 2_500, **more}


def short(samples):
    """Samples as `name{labels}` without the common prefix; the value where it is not 1."""
    return [
        f"{one.name.removeprefix('pokayoke_')}{{{','.join(one.labels)}}}" + ("" if one.value == 1 else f"={one.value}")
        for one in samples
    ]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (result(), ["tool_calls_total{get,ok}", "tool_seconds{get}=0.0025", "tool_output_total{get}"]),
        (
            result("degraded"),
            [
                "tool_calls_total{get,degraded}",
                "tool_seconds{get}=0.0025",
                "tool_output_total{get}",
                "tool_output_invalid_total{get}",
            ],
        ),
        (
            result(broken=("schema",)),
            [
                "tool_calls_total{get,ok}",
                "tool_seconds{get}=0.0025",
                "tool_output_total{get}",
                "tool_output_invalid_total{get}",
            ],
        ),
        (result("failed"), ["tool_calls_total{get,failed}", "tool_seconds{get}=0.0025"]),
        (
            result("in_doubt"),
            ["tool_calls_total{get,in_doubt}", "tool_seconds{get}=0.0025", "in_doubt_total{get}"],
        ),
        (result("replayed", attempts=0), ["tool_calls_total{get,replayed}"]),
        (result("invalid_output", attempts=0), ["tool_calls_total{get,invalid_output}"]),
        (
            result(corrections=("number_from_text", "case")),
            [
                "tool_calls_total{get,ok}",
                "tool_seconds{get}=0.0025",
                "tool_output_total{get}",
                "corrections_total{get,number_from_text}",
                "corrections_total{get,case}",
            ],
        ),
        (call("allow"), []),
        (call("allow", corrections=("case",)), ["corrections_total{get,case}"]),
        (call("replay"), ["replays_total{get}"]),
        (
            call(findings=("low_confidence", "other")),
            ["tool_calls_total{get,refused}", "refusals_total{get,low_confidence}"],
        ),
        (
            call("stop", findings=("run_stopped",)),
            ["tool_calls_total{get,refused}", "refusals_total{get,run_stopped}"],
        ),
        (call("ask", findings=("awaiting_approval",)), ["tool_calls_total{get,pending}"]),
        (
            call(findings=("in_doubt",)),
            ["tool_calls_total{get,in_doubt}", "in_doubt_total{get}", "refusals_total{get,in_doubt}"],
        ),
        (call(findings=("failed_before",)), ["tool_calls_total{get,failed}", "refusals_total{get,failed_before}"]),
        (call(), ["tool_calls_total{get,refused}", "refusals_total{get,(other)}"]),
        ({"event": "late_effect", "tool": "get", "ok": False}, ["late_effects_total{get}"]),
        ({"event": "switch", "tool": "*", "mode": "open"}, ["kill_switch_open{*}"]),
        ({"event": "switch", "tool": "get", "mode": "half_open"}, ["kill_switch_open{get}"]),
        ({"event": "switch", "tool": "get", "mode": "closed"}, ["kill_switch_open{get}=0"]),
        ({"event": "stop", "reason": "invalid_tool_output"}, []),
        ({"event": "alert", "tool": "get"}, []),
    ],
)
def test_what_an_event_counts_for(event, expected):
    """Each kind of event adds exactly these samples."""
    assert short(EventCounter().samples_of(event)) == expected


def test_versions_are_counted_apart_once_there_are_several():
    """A tool with one version has no second count; from its second version on, each call counts for its own."""
    counting = EventCounter()
    one, two = result(), {**result(), "contract": "get@2"}
    assert [short(counting.samples_of(event))[1:2] for event in (one, two, one)] == [
        ["tool_seconds{get}=0.0025"],
        ["version_calls_total{get@2,ok}"],
        ["version_calls_total{get@1,ok}"],
    ]
    refused = {**call(findings=("c",)), "contract": "get@2"}
    assert short(counting.samples_of(refused))[1] == "version_calls_total{get@2,refused}"


def test_shadows_are_counted_by_what_differs():
    """A shadow that agrees and one that does not are told apart, by its own name."""
    seen = {"event": "shadow", "tool": "get", "contract": "get@1", "candidate": "get@2"}
    assert short(EventCounter().samples_of(seen)) == ["shadow_total{get@2,nothing}"]
    assert short(EventCounter().samples_of({**seen, "differs": ("output",)})) == ["shadow_total{get@2,output}"]


def test_every_instrument_has_a_row_of_its_own_labels():
    """Every sample of the table above fits its instrument; names are unique and spelt as Prometheus wants them."""
    labels = {one.name: len(one.labels) for one in INSTRUMENTS}
    assert len(labels) == len(INSTRUMENTS) == 13
    for event in (result("degraded"), result(corrections=("r",)), call(findings=("c",)), call("replay")):
        assert all(len(sample.labels) == labels[sample.name] for sample in EventCounter().samples_of(event))
    assert all(one.name.endswith("_total") is (one.kind == "counter") for one in INSTRUMENTS)
    assert set(PER_TOOL) == {
        "pokayoke_tool_output_total",
        "pokayoke_tool_output_invalid_total",
        "pokayoke_in_doubt_total",
        "pokayoke_replays_total",
        "pokayoke_late_effects_total",
    }


class TestLabels:
    """Only names of the catalogue become labels, and not without end."""

    @pytest.mark.parametrize("invented", ["transfer_all", "get", "", "x" * 10_000, 'a"}\n', None])
    def test_an_invented_name_is_unknown(self, invented):
        """A call that resolved to no contract is counted under `(unknown)`, whatever the model wrote."""
        event = call(tool="get", findings=("unknown_tool",)) | {"tool": invented, "contract": None}
        assert EventCounter().samples_of(event) == [
            MetricSample("pokayoke_tool_calls_total", (UNKNOWN, "refused"), 1),
            MetricSample("pokayoke_refusals_total", (UNKNOWN, "unknown_tool"), 1),
        ]

    @pytest.mark.parametrize("kind", ["tool", "reason", "rule", "scope"])
    def test_names_are_bounded(self, kind):
        """Beyond the limit names are counted together; those known by then keep their own label."""
        counting = EventCounter(most=3)
        assert [counting.label_for(kind, f"n{number}") for number in range(5)] == ["n0", "n1", "n2", OTHER, OTHER]
        assert counting.label_for(kind, "n1") == "n1"

    @pytest.mark.parametrize("given", ["", "a b", "x" * 129, "a\n", "ü", 7, None, "got {secret}"])
    def test_a_text_is_no_label(self, given):
        """What does not look like a name is counted as `(other)`: it may be a sentence or a secret."""
        assert EventCounter().label_for("reason", given) == OTHER

    def test_labels_of_a_flood_stay_few(self):
        """Ten thousand tools, reasons and rules make no more series than the limits allow."""
        counting, seen = EventCounter(most=50), set()
        for number in range(10_000):
            for sample in counting.samples_of(call(tool=f"t{number}", findings=(f"c{number}",))):
                seen.add(sample[:2])
            for sample in counting.samples_of(result(tool=f"t{number}", corrections=(f"r{number}",))):
                seen.add(sample[:2])
        assert len({labels[0] for _, labels in seen}) == 51
        assert len(seen) <= 51 * 51 * 2 + 51 * 5
        assert len(counting.rated_tools) == 51


class TestRate:
    """The share of invalid outputs lately."""

    def test_it_is_that_of_the_window(self):
        """One invalid output of four is a quarter; after fifteen minutes there is none."""
        counting = EventCounter()
        for number in range(4):
            counting.samples_of(result("degraded" if number == 1 else "ok", ts=1000.0 + number))
        assert counting.invalid_rate("get", 1010.0) == 0.25
        assert math.isnan(counting.invalid_rate("get", 2000.0))
        assert math.isnan(counting.invalid_rate("other", 1010.0))

    def test_a_forked_child_has_a_lock_of_its_own(self):
        """A child made while the parent was counting does not wait for a lock that nobody will give back."""
        counting = EventCounter()
        with counting._lock, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of what this test is about
            child = os.fork()
            if child == 0:
                counting.reset_after_fork()
                counting.samples_of(result())
                os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
