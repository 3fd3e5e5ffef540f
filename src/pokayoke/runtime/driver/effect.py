"""The write that a tool is doing: its key, attempt and deadline, and how the tool records it itself.

In: the claim of a running write.
Out: `Effect`, for the tool through `this_effect()`.
Never: a completion that counts although the tool's transaction was not committed.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from types import AsyncGeneratorType, GeneratorType
from typing import Any

import msgspec

from pokayoke.core.json.values import kind_of
from pokayoke.core.ledger.records import Settlement
from pokayoke.errors import StoreError, UsageError
from pokayoke.runtime.driver.tool_call import PLAIN_TYPES
from pokayoke.stores.base import Store

KEY_HEADER = "Idempotency-Key"
"""The header of the IETF draft of that name."""
KEY_META = "pokayoke/idempotency-key"
"""The name under which the key travels in the `_meta` of an MCP call."""


Checks = list[Callable[[], None]]
"""What is looked at when a tool has returned.

Shared by its effect, which adds to it, and `call_with_effect`, which calls it.
"""


class Effect(msgspec.Struct, frozen=True, eq=False):
    """The write that the running tool is doing. From `pokayoke.this_effect()`.

    Attributes:
        key: the idempotency key; equal for every attempt of the same effect.
        attempt: number of this execution, from 1 on; it never goes back.
        deadline: `time.monotonic()` second at which the tool is given up, or None.
    """

    key: str
    attempt: int
    deadline: float | None
    _claim_id: str
    _store: Store
    _now: Callable[[], float]
    _checks: Checks
    _outer: Effect | None = None

    def __repr__(self) -> str:
        """Without what is only for the guard."""
        return f"Effect(key={self.key!r}, attempt={self.attempt}, deadline={self.deadline})"

    @property
    def headers(self) -> Mapping[str, str]:
        """HTTP headers that hand the key on: `{"Idempotency-Key": key}`."""
        return {KEY_HEADER: self.key}

    @property
    def meta(self) -> Mapping[str, str]:
        """The `_meta` of an MCP call that hands the key on."""
        return {KEY_META: self.key}

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline, never below 0; None without one."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def complete(self, conn: Any, *, reference: str = "") -> None:
        """Record the effect inside your own transaction: it then happens exactly once.

        Commit the transaction afterwards. If this process dies before the commit, neither the effect
        nor the record exists; after it, both do. A tool that returns without a commit is in doubt: it
        says that it has done what its database does not hold.

        Args:
            conn: your open connection to the database that holds the ledger, in a transaction:
                `apsw`, `psycopg`, or SQLAlchemy's around one; `sqlite3` if the store's URL ends with
                `?library=sqlite3`.
            reference: your own name of the effect, such as a row's id.

        Raises:
            StoreError: this execution has lost its claim (roll back: another one did or will do it), or
                the store has no database that a connection could reach.
        """
        if not self._store.settle_on(conn, self._build_report(reference)):
            raise StoreError(_CLAIM_LOST)
        self._checks.append(self._check_committed)

    async def acomplete(self, conn: Any, *, reference: str = "") -> None:
        """`complete` for an asynchronous connection (`psycopg.AsyncConnection` or SQLAlchemy's)."""
        if not await self._store.asettle_on(conn, self._build_report(reference)):
            raise StoreError(_CLAIM_LOST)
        self._checks.append(self._check_committed)

    def _check_committed(self) -> None:
        """A completion that nobody committed is none: the ledger would say done, and the database holds nothing."""
        record = self._store.record(self.key)
        if record is None or record.state != "completed":
            raise StoreError(_UNCOMMITTED)

    def _build_report(self, reference: str) -> Settlement:
        return Settlement(self.key, self._claim_id, "completed", self._now(), reference=reference, early=True)


_LAZY = frozenset((GeneratorType, AsyncGeneratorType))
_CLAIM_LOST = "this execution no longer holds its claim: roll back, another one did this or will do it"
_UNCOMMITTED = "it called complete() and came back without a commit of that transaction"
_current: ContextVar[Effect | None] = ContextVar("pokayoke_effect", default=None)


def this_effect() -> Effect:
    """Return the write that the calling tool is doing.

    Raises:
        UsageError: the caller is no tool that a guard runs, or its tool only reads.
    """
    effect = _current.get()
    if effect is None:
        raise UsageError("this_effect() is for the handler of a guarded write; no such call is running here")
    return effect


def effects_in_progress() -> frozenset[str]:
    """Return the keys of the writes inside of which this code runs: not over yet, they are not in doubt either."""
    keys: list[str] = []
    effect = current_effect()
    while effect is not None:
        keys.append(effect.key)
        effect = effect._outer  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - its own module
    return frozenset(keys)


current_effect: Callable[[], Effect | None] = _current.get
"""Returns the write inside of which this code runs, or None. A read inside it must not take its key for its own."""


def call_with_effect(effect: Effect | None, function: Callable[[], Any], checks: Checks) -> Any:
    """Call a tool's function with `effect` as its write (a read has none); what it hands out to be awaited keeps it.

    Args:
        effect: the write.
        function: the tool.
        checks: those of the effect; empty for a read.

    Raises:
        UsageError: it handed out a generator. Nothing of that has run, so nothing may be called done.
        StoreError: it completed its effect in a transaction that was not committed.
    """
    token = _current.set(effect)
    try:
        value = function()
    finally:
        _current.reset(token)
    kind = kind_of(value)
    if kind not in PLAIN_TYPES:
        if hasattr(kind, "__await__"):
            return _await_with_effect(effect, value, checks)
        value = _refuse_generator(effect, value)
    if checks:
        checks[0]()
    return value


async def _await_with_effect(effect: Effect | None, pending: Awaitable[Any], checks: Checks) -> Any:
    token = _current.set(effect)
    try:
        value = _refuse_generator(effect, await pending)
    finally:
        _current.reset(token)
    if checks:
        from asyncio import to_thread  # noqa: PLC0415 - 20 ms of import, for those who await

        await to_thread(checks[0])
    return value


def _refuse_generator(effect: Effect | None, value: Any) -> Any:
    if effect is not None and kind_of(value) in _LAZY:
        raise UsageError("it returned a generator, of which nothing has run: return a list, or the result")
    return value
