"""Detects a spike of invalid outputs in the window of a tool's latest outputs.

In: one output after another, valid or not, with the time of its call.
Out: an alert, once per spike.
Never: an alert later than the kill switch, which uses the same figures and needs a few more invalid outputs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from pokayoke.core.state.kill_switch import MIN_OUTPUTS, TRIP_SHARE, TRIP_STREAK, WINDOW_OUTPUTS, WINDOW_SECONDS

SpikeRule = Literal["share", "in_a_row"]

VALID_TO_RECOVER: Final = 5
"""Valid outputs one after the other without which no spike is over."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """What `on_alert` is called with.

    Attributes:
        kind: always `invalid_output_spike`.
        tool: the tool whose outputs break its contract.
        rule: `share` (at least 10 outputs within 15 minutes, 30 % of them invalid) or `in_a_row` (3).
        invalid: invalid ones among the outputs looked at.
        outputs: outputs looked at, 50 at most.
        in_a_row: invalid ones since the last valid one.
        at: seconds since the epoch of the output that made it a spike.
        run_id: the run it came in.
    """

    kind: Literal["invalid_output_spike"] = "invalid_output_spike"
    tool: str
    rule: SpikeRule
    invalid: int
    outputs: int
    in_a_row: int
    at: float
    run_id: str | None = None

    @property
    def message(self) -> str:
        """One sentence for people."""
        if self.rule == "in_a_row":
            return f"the last {self.in_a_row} outputs of {self.tool} broke its contract"
        return f"{self.invalid} of the last {self.outputs} outputs of {self.tool} broke its contract"


def spike_rule(outputs: int, invalid: int, in_a_row: int) -> SpikeRule | None:
    """Say whether a tool's latest outputs are a spike.

    Args:
        outputs: outputs looked at.
        invalid: invalid ones among them.
        in_a_row: invalid ones since the last valid one.

    Returns:
        The rule that says so, or None.
    """
    if in_a_row >= TRIP_STREAK:
        return "in_a_row"
    return "share" if outputs >= MIN_OUTPUTS and invalid >= TRIP_SHARE * outputs else None


def output_validity(event: Mapping[str, Any]) -> bool | None:
    """Say what a trace event tells of an output that reached the validator.

    Args:
        event: as an observer of the trace sees it.

    Returns:
        True if the output was valid, False if not, None if the event tells of no output: nothing ran,
        the tool failed, or the answer came from the ledger.
    """
    if event["event"] != "tool_result" or not event["attempts"]:
        return None
    status = event["status"]
    if status == "ok":
        # In monitor mode an output that broke its contract is handed on; only its findings tell.
        return not event.get("broken")
    return False if status in ("degraded", "invalid_output") else None


class OutputWindow:
    """The latest outputs of one tool: the last 50, as far as they are not older than 15 minutes.

    Attributes:
        invalid: invalid ones among them.
        in_a_row: invalid ones since the last valid one, however old.
        valid_in_a_row: valid ones since the last invalid one, however old.
    """

    __slots__ = ("_latest", "in_a_row", "invalid", "valid_in_a_row")

    def __init__(self) -> None:
        self._latest: deque[tuple[float, bool]] = deque()
        self.invalid = self.in_a_row = self.valid_in_a_row = 0

    def add_output(self, at: float, *, valid: bool) -> None:
        """Add an output; the fifty-first pushes the oldest out."""
        if len(self._latest) == WINDOW_OUTPUTS:
            self._drop_oldest()
        self._latest.append((at, valid))
        if valid:
            self.in_a_row = 0
            self.valid_in_a_row += 1
        else:
            self.invalid += 1
            self.in_a_row += 1
            self.valid_in_a_row = 0

    def output_count(self, now: float) -> int:
        """Return how many there are; those that are too old leave first."""
        while self._latest and now - self._latest[0][0] > WINDOW_SECONDS:
            self._drop_oldest()
        return len(self._latest)

    def invalid_share(self, now: float) -> float | None:
        """Return the share of invalid outputs, 0 to 1, or None if there were none lately."""
        outputs = self.output_count(now)
        return self.invalid / outputs if outputs else None

    def _drop_oldest(self) -> None:
        if not self._latest.popleft()[1]:
            self.invalid -= 1


class SpikeDetector:
    """Finds the spikes of one tool and tells each once."""

    __slots__ = ("_spiking", "_window")

    def __init__(self) -> None:
        self._window = OutputWindow()
        self._spiking = False

    def add_output(self, tool: str, at: float, *, valid: bool, run_id: str | None = None) -> Alert | None:
        """Take an output in.

        Args:
            tool: the tool's name.
            at: seconds since the epoch of its call.
            valid: whether it kept its contract.
            run_id: the run it came in.

        Returns:
            An alert if a spike begins with it. The next one can only begin once the present one is
            over: no rule holds any more and five valid outputs came one after the other.
        """
        window = self._window
        window.add_output(at, valid=valid)
        if not self._spiking and not window.invalid:
            return None
        outputs = window.output_count(at)
        rule = spike_rule(outputs, window.invalid, window.in_a_row)
        if self._spiking:
            self._spiking = rule is not None or window.valid_in_a_row < VALID_TO_RECOVER
            return None
        if rule is None:
            return None
        self._spiking = True
        return Alert(
            tool=tool,
            rule=rule,
            invalid=window.invalid,
            outputs=outputs,
            in_a_row=window.in_a_row,
            at=at,
            run_id=run_id,
        )
