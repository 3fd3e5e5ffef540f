"""What runs of many threads share: the last valid answers, behind a lock."""

from __future__ import annotations

import threading
from typing import Any

from pokayoke.core.lastgood import LastGood


class SharedLastGood(LastGood):
    """The cache behind a lock: runs of many threads share it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def put(self, tenant: str | None, contract_id: str, args_hash: str, data: bytes, *, now: float) -> None:
        """See `LastGood.put`."""
        with self._lock:
            LastGood.put(self, tenant, contract_id, args_hash, data, now=now)

    def get(
        self, tenant: str | None, contract_id: str, args_hash: str, *, now: float, max_age: float
    ) -> tuple[float, Any]:
        """See `LastGood.get`."""
        with self._lock:
            return super().get(tenant, contract_id, args_hash, now=now, max_age=max_age)
