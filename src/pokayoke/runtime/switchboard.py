"""Counts outputs for alerts and the kill switch: invalid ones at once, valid ones within a second."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from pokayoke.core.switch import Seen, Switch
from pokayoke.runtime.alerts import Alerts
from pokayoke.runtime.clock import Clock
from pokayoke.runtime.workers import Workers
from pokayoke.stores.base import Store

_MOST_WAITING = 1_000
_SECONDS = 1.0


class Switchboard:
    """Between the calls of a guard and the switches in its store.

    Args:
        store: holds rates and switches.
        clock: says when.
        alerts: are told of every output.
        workers: write valid outputs to a durable store, so that no read waits for it.
        told: called with each switch that flips.
        problem: called with the kind of failure of a store that cannot be reached; what was to be counted is kept.

    Attributes:
        enabled: False if nothing shall trip a kill switch.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        workers: Workers,
        alerts: Alerts,
        *,
        told: Callable[[Switch], None],
        problem: Callable[[str], None],
    ) -> None:
        self.enabled = True
        self._store, self._clock, self._workers, self._alerts = store, clock, workers, alerts
        self._told, self._problem = told, problem
        # What is counted waits here; if the store cannot be reached for long, the oldest go.
        self._waiting: deque[Seen] = deque(maxlen=_MOST_WAITING)
        self._since = 0.0
        self._counted = 0

    def valid(self, tool: str, at: float, read: bool, /) -> None:
        """Note an output that kept its contract."""
        if not (self.enabled or self._alerts.on):
            return
        self._waiting.append(Seen(tool, True, at, read))
        if 0.0 <= at - self._since < _SECONDS:
            return
        self._since = at
        if self._store.durable:
            self._workers.start(self.flush, lambda: None)
        else:
            self.flush()

    def report(self, seen: Seen) -> None:
        """Count an output that must not be used, after all that came before it."""
        self._waiting.append(seen)
        self.flush()

    async def areport(self, seen: Seen) -> None:
        """`report` for asynchronous callers."""
        self._waiting.append(seen)
        batch = self._batch()
        if not self.enabled:
            return
        try:
            switches = await self._store.aobserve(batch, self._clock.now())
        except Exception as error:  # noqa: BLE001 - a store may raise anything; a call must not fail for a count
            self._failed(batch, error)
        else:
            self._tell(switches)

    def flush(self) -> None:
        """Count everything that waits."""
        batch = self._batch()
        if not (batch and self.enabled):
            return
        try:
            switches = self._store.observe(batch, self._clock.now())
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(batch, error)
        else:
            self._tell(switches)

    def _batch(self) -> tuple[Seen, ...]:
        batch: list[Seen] = []
        while True:
            try:
                batch.append(self._waiting.popleft())
            except IndexError:
                break
        fresh = batch[self._counted :]
        self._counted = 0
        self._alerts.take(fresh)
        return tuple(batch)

    def _failed(self, batch: tuple[Seen, ...], error: Exception) -> None:
        self._waiting.extendleft(reversed(batch))
        self._counted = min(len(batch), len(self._waiting))
        self._problem(type(error).__name__)

    def _tell(self, switches: tuple[Switch, ...]) -> None:
        for switch in switches:
            self._told(switch)
