"""Alerts the host of a spike of invalid outputs.

In: outputs that reached the validator.
Out: one `alert` event and one call of `on_alert` per spike.
Never: a call that fails because `on_alert` does.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from pokayoke.core.policy import AlertPolicy
from pokayoke.core.state.invalid_output_spike import Alert, SpikeDetector
from pokayoke.core.state.kill_switch import OutputObservation
from pokayoke.errors import ConfigurationError
from pokayoke.runtime.threads.forks import on_fork

_MOST_TOOLS: Final = 1_000  # a catalogue that is replaced again and again must not fill the memory


class Alerts:
    """Watches the outputs of a guard's tools.

    Args:
        record: writes an event to the trace.
        policy: which alerts there are.
        on_alert: called with an `Alert`, in the thread that counts the outputs. A call may wait for it, so
            it should only hand over. What it raises is written to the trace.

    Attributes:
        on: True if there is anything to watch.

    Raises:
        ConfigurationError: `on_alert` is a coroutine function, which nobody would await.
    """

    def __init__(
        self,
        record: Callable[[dict[str, Any]], object],
        policy: AlertPolicy,
        on_alert: Callable[[Alert], object] | None = None,
    ) -> None:
        """Begin to watch, if the policy says so."""
        if inspect.iscoroutinefunction(on_alert):
            raise ConfigurationError("on_alert must be a plain function: let it schedule what has to be awaited")
        self.on = policy.invalid_output_spike
        self._record_event, self._on_alert = record, on_alert
        self._lock = threading.Lock()
        self._tools: dict[str, SpikeDetector] = {}
        on_fork(self, Alerts.reset_after_fork)

    def apply_policy(self, policy: AlertPolicy) -> None:
        """Go on under a changed policy. What was seen so far stays seen."""
        self.on = policy.invalid_output_spike

    def take_outputs(self, outputs: Iterable[OutputObservation]) -> None:
        """Take outputs in, in the order in which they came."""
        if not self.on:
            return
        with self._lock:
            found = [self._detect_spike(seen) for seen in outputs]
        for alert in found:
            if alert is not None:
                self._raise_alert(alert)

    def reset_after_fork(self) -> None:
        """Start anew in a child process, whose parent may have held the lock."""
        self._lock = threading.Lock()

    def _detect_spike(self, seen: OutputObservation) -> Alert | None:
        watch = self._tools.get(seen.tool) or self._add_detector(seen.tool)
        return watch.add_output(seen.tool, seen.at, valid=seen.valid, run_id=seen.run_id)

    def _add_detector(self, tool: str) -> SpikeDetector:
        if len(self._tools) >= _MOST_TOOLS:
            del self._tools[next(iter(self._tools))]
        watch = self._tools[tool] = SpikeDetector()
        return watch

    def _raise_alert(self, alert: Alert) -> None:
        self._record_alert(alert, reason=alert.message, invalid=alert.invalid, outputs=alert.outputs)
        if self._on_alert is not None:
            try:
                self._on_alert(alert)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - the host's own code, and the call is none of its business
                self._record_alert(alert, reason=f"on_alert raised {type(error).__name__}")

    def _record_alert(self, alert: Alert, **fields: Any) -> None:
        self._record_event(
            {"ts": alert.at, "run_id": alert.run_id, "event": "alert", "alert": alert.kind, "tool": alert.tool}
            | {"ok": False, **fields}
        )
