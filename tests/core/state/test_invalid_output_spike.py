"""Spikes of invalid outputs: what is one, when it is told, and when the next one can begin."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.state import invalid_output_spike as alert
from pokayoke.core.state.invalid_output_spike import OutputWindow, SpikeDetector, output_validity, spike_rule
from pokayoke.core.state.kill_switch import OutputObservation, SwitchState, count_outputs


def told(pattern, *, apart=1.0, watch=None, start=1000.0):
    """Positions at which a watch told of a spike; `v` is a valid output, `x` an invalid one."""
    watch = watch or SpikeDetector()
    found = []
    for number, one in enumerate(pattern):
        if watch.add_output("t", start + number * apart, valid=one == "v") is not None:
            found.append(number)
    return found


class TestRule:
    """The rule as the ledger specification has it: n >= 10 and >= 30 % invalid, or 3 in a row."""

    @pytest.mark.parametrize(
        ("outputs", "invalid", "in_a_row", "rule"),
        [
            (0, 0, 0, None),
            (2, 2, 2, None),
            (3, 3, 3, "in_a_row"),
            (9, 8, 2, None),
            (10, 2, 2, None),
            (10, 3, 1, "share"),
            (50, 14, 2, None),
            (50, 15, 0, "share"),
            (50, 15, 3, "in_a_row"),
            (1, 1, 3, "in_a_row"),
        ],
    )
    def test_what_a_spike_is(self, outputs, invalid, in_a_row, rule):
        """Each row is what the rule says of these counts."""
        assert spike_rule(outputs, invalid, in_a_row) == rule

    @pytest.mark.parametrize("outputs", range(10, 51))
    def test_the_share_is_exact(self, outputs):
        """Thirty percent are thirty percent for every number of outputs: no rounding moves the edge."""
        least = -(-outputs * 3 // 10)
        assert spike_rule(outputs, least, 0) == "share"
        assert spike_rule(outputs, least - 1, 0) is None


@given(st.lists(st.booleans(), max_size=60))
def test_a_person_is_told_no_later_than_the_switch_trips(outputs):
    """Whatever outputs trip a switch, there was an alert by then."""
    watch, board, told = SpikeDetector(), SwitchState(), False
    for valid in outputs:
        told = watch.add_output("get", 1000.0, valid=valid) is not None or told
        after = count_outputs(board, [OutputObservation("get", valid, 1000.0)], 1000.0)
        board = SwitchState({**board.rates, **after.rates}, {**board.switches, **after.switches})
        if board.switches:
            assert told
            return


class TestWatch:
    """One alert per spike."""

    @pytest.mark.parametrize(
        ("pattern", "at"),
        [
            ("v" * 40, []),
            ("xx", []),
            ("xxvxxvxx", []),
            ("xxx", [2]),
            ("xxxxxxxxxxxxxxxx", [2]),
            ("xvvxvvxvvv", [9]),  # the tenth output makes the share count, though it is a valid one
            ("xxx" + "vvvv" + "xxx", [2]),  # four valid ones do not end it
            ("xxx" + "v" * 5 + "xxx", [2, 9]),  # five do; the tenth output of all is then a share again
            ("xvxvxvxv" + "v" * 5 + "xxx", [9]),  # five do not while 4 of 13 are 30 %
            ("xvxvxvxv" + "v" * 6 + "xxx", [9, 14]),
            ("v" * 30 + "xxx" + "v" * 5 + "xxx", [32, 40]),
            ("v" * 30 + "xxx" + "v" * 4 + "xxx", [32]),
        ],
    )
    def test_when_it_is_told(self, pattern, at):
        """Alerts come at these outputs and at no others."""
        assert told(pattern) == at

    def test_old_outputs_are_no_share(self):
        """Four invalid outputs among ten are none if fifteen minutes lie between each: only a row of three counts."""
        pattern = "xvxvxvxvvv"
        assert told(pattern) == [9]
        assert told(pattern, apart=901.0) == []
        assert told("xxx", apart=5000.0) == [2]

    def test_an_alert_says_what_was_seen(self):
        """It carries the tool, the rule, the counts, the time and the run, and a sentence with the same figures."""
        watch = SpikeDetector()
        for number in range(7):
            assert watch.add_output("get", 100.0 + number, valid=True) is None
        alerts = [watch.add_output("get", 200.0 + number, valid=False, run_id="r") for number in range(3)]
        assert alerts[:2] == [None, None]
        found = alerts[2]
        assert (found.tool, found.rule, found.invalid, found.outputs, found.in_a_row) == ("get", "in_a_row", 3, 10, 3)
        assert (found.at, found.run_id, found.kind) == (202.0, "r", "invalid_output_spike")
        assert found.message == "the last 3 outputs of get broke its contract"
        shared = alert.Alert(tool="get", rule="share", invalid=4, outputs=12, in_a_row=1, at=1.0)
        assert shared.message == "4 of the last 12 outputs of get broke its contract"

    @given(st.lists(st.booleans(), max_size=200))
    def test_between_two_alerts_a_spike_was_over(self, outputs):
        """Five valid outputs one after the other end a spike; some may come before its alert, if its last was valid."""
        pattern = "".join("v" if valid else "x" for valid in outputs)
        found = told(pattern)
        assert all("vvvvv" in pattern[max(0, first - 4) : second + 1] for first, second in itertools.pairwise(found))

    @given(st.lists(st.booleans(), max_size=200))
    def test_the_first_spike_is_never_missed(self, outputs):
        """The first alert comes at the first output at which the rule holds."""
        pattern = "".join("v" if valid else "x" for valid in outputs)
        holds = [
            end - 1
            for end in range(1, len(pattern) + 1)
            if pattern[:end].endswith("xxx")
            or (end >= 10 and pattern[max(0, end - 50) : end].count("x") * 10 >= 3 * min(end, 50))
        ]
        assert told(pattern)[:1] == holds[:1]


class TestWindow:
    """The latest 50 outputs of the last 15 minutes."""

    def test_the_fifty_first_pushes_the_oldest_out(self):
        """After fifty valid outputs nothing is left of an invalid one before them."""
        window = OutputWindow()
        window.add_output(0.0, valid=False)
        for number in range(49):
            window.add_output(float(number), valid=True)
        assert window.invalid_share(49.0) == 1 / 50
        window.add_output(50.0, valid=True)
        assert (window.invalid_share(50.0), window.output_count(50.0)) == (0.0, 50)

    def test_what_is_old_leaves(self):
        """An output of exactly fifteen minutes ago counts, an older one does not; without any there is no rate."""
        window = OutputWindow()
        window.add_output(0.0, valid=False)
        window.add_output(10.0, valid=True)
        assert window.invalid_share(900.0) == 0.5
        assert window.invalid_share(900.1) == 0.0
        assert window.invalid_share(911.0) is None

    def test_a_clock_that_runs_backwards_loses_nothing(self):
        """Outputs from the clock's future stay until newer ones push them out."""
        window = OutputWindow()
        window.add_output(5000.0, valid=False)
        window.add_output(100.0, valid=True)
        assert window.invalid_share(100.0) == 0.5

    @given(st.lists(st.tuples(st.floats(0, 3000), st.booleans()), max_size=120))
    def test_the_count_is_the_count(self, outputs):
        """The running count equals counting the last fifty that are young enough, for times that only grow."""
        outputs.sort(key=lambda one: one[0])
        window = OutputWindow()
        for at, valid in outputs:
            window.add_output(at, valid=valid)
        now = outputs[-1][0] if outputs else 0.0
        kept = [valid for at, valid in outputs[-50:] if now - at <= 900.0]
        assert window.output_count(now) == len(kept)
        assert window.invalid == kept.count(False)


@pytest.mark.parametrize(
    ("event", "valid"),
    [
        ({"event": "tool_result", "attempts": 1, "status": "ok"}, True),
        ({"event": "tool_result", "attempts": 1, "status": "ok", "broken": ()}, True),
        ({"event": "tool_result", "attempts": 1, "status": "ok", "broken": ("schema",)}, False),
        ({"event": "tool_result", "attempts": 2, "status": "degraded"}, False),
        ({"event": "tool_result", "attempts": 1, "status": "invalid_output"}, False),
        ({"event": "tool_result", "attempts": 0, "status": "invalid_output"}, None),
        ({"event": "tool_result", "attempts": 0, "status": "replayed"}, None),
        ({"event": "tool_result", "attempts": 1, "status": "failed"}, None),
        ({"event": "tool_result", "attempts": 1, "status": "in_doubt"}, None),
        ({"event": "tool_call", "decision": "refuse"}, None),
        ({"event": "stop"}, None),
    ],
)
def test_what_counts_as_an_output(event, valid):
    """Only what reached the validator counts: no refusal, no failure, no replay."""
    assert output_validity(event) is valid
