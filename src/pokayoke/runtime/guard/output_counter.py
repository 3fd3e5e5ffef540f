"""Counts outputs for alerts and the kill switch: invalid ones at once, valid ones within a second.

In: outputs.
Out: counts in the store, and switches that flip.
Never: a call that fails because its output could not be counted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from pokayoke.core.flow.failures import store_error_text
from pokayoke.core.state.kill_switch import OutputObservation, Switch
from pokayoke.runtime.guard.alerts import Alerts
from pokayoke.runtime.threads.clock import Clock
from pokayoke.runtime.threads.forks import on_fork
from pokayoke.runtime.threads.worker_pool import WorkerPool
from pokayoke.stores.base import Store

_MOST_WAITING = 1_000
_SECONDS = 1.0


class OutputMonitor:
    """Between the calls of a guard and the switches in its store.

    Args:
        store: holds rates and switches.
        clock: says when.
        workers: write valid outputs to a durable store, so that no read waits for it.
        alerts: are told of every output.
        told: called with each switch that flips.
        problem: called with the failure of a store that cannot be reached; what was to be counted is kept.

    Attributes:
        enabled: False if nothing shall trip a kill switch.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        workers: WorkerPool,
        alerts: Alerts,
        *,
        told: Callable[[Switch], None],
        problem: Callable[[str], None],
    ) -> None:
        self.enabled = True
        self._store, self._clock, self._workers, self._alerts = store, clock, workers, alerts
        self._told, self._problem = told, problem
        # What is counted waits here; if the store cannot be reached for long, the oldest go.
        self._waiting: deque[OutputObservation] = deque(maxlen=_MOST_WAITING)
        self._kept: tuple[OutputObservation, ...] = ()
        self._since = 0.0
        self._scheduled = False
        # Outputs reach the store in the order in which they came: one batch at a time.
        self._turn = threading.RLock()
        on_fork(self, OutputMonitor.reset_after_fork)

    def count_valid(self, tool: str, at: float, read: bool, /) -> None:
        """Note an output that kept its contract; it is counted within a second."""
        if not (self.enabled or self._alerts.on):
            return
        self._waiting.append(OutputObservation(tool, True, at, read))
        if self._store.durable:
            self._schedule_flush()
        elif not 0.0 <= at - self._since < _SECONDS:
            self._since = at
            self.flush()

    def count_invalid(self, seen: OutputObservation) -> None:
        """Note an output that must not be used; `flush` counts it, after all that came before it."""
        self._waiting.append(seen)

    def flush(self) -> None:
        """Count everything that waits."""
        problem: str | None = None
        switches: tuple[Switch, ...] = ()
        with self._turn:
            fresh = self._drain_waiting()
            batch = (*self._kept, *fresh)[-_MOST_WAITING:] if self.enabled else ()
            self._kept = ()
            if batch:
                try:
                    switches = self._store.observe(batch, self._clock.now())
                except Exception as error:  # noqa: BLE001 - a store may raise anything; a call must not fail for a count
                    problem, self._kept = store_error_text(error), batch
        # What the host does with these may take its time, or lead back here.
        self._alerts.take_outputs(fresh)
        if problem is not None:
            self._problem(problem)
        for switch in switches:
            self._told(switch)

    def catch_up(self) -> bool:
        """Count what waits for a store in memory, where nothing else would before the next output; True if any did.

        A switch that is found open may be closed by it. A durable store is written to within a second anyway.
        """
        if self._store.durable or not self._waiting:
            return False
        self.flush()
        return True

    def reset_after_fork(self) -> None:
        """Start anew in a child process: its parent may have held the turn, and counts what waits by itself."""
        self._turn, self._kept, self._scheduled = threading.RLock(), (), False
        self._waiting.clear()

    def _schedule_flush(self) -> None:
        """Count what waits a second from now, unless that is on its way."""
        if not self._scheduled:
            self._scheduled = True
            if self._workers.start_job(self._flush_later, lambda: None) is None:
                self._scheduled = False  # too many threads hang; the next output tries again

    def _flush_later(self) -> None:
        time.sleep(_SECONDS)
        with self._turn:  # a store that hangs holds one thread up, not one a second
            self._scheduled = False
        self.flush()

    def _drain_waiting(self) -> tuple[OutputObservation, ...]:
        drained: list[OutputObservation] = []
        while self._waiting:
            drained.append(self._waiting.popleft())
        return tuple(drained)
