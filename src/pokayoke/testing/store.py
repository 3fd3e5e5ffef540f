"""A store that fails on demand."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from pokayoke.core.ledger.admission import Approval
from pokayoke.core.ledger.records import Record, Settlement
from pokayoke.core.state.kill_switch import OutputRate, Switch
from pokayoke.core.state.run_state import RunState
from pokayoke.stores.base import AuditEntry, RecordQuery, Store
from pokayoke.stores.lists import PAGE, AuditFilter, EffectFilter, Overview, Pulse, RunEntry, RunFilter
from pokayoke.stores.operations import Operation

T = TypeVar("T")
FailOn = str | Iterable[str] | Mapping[str, Iterable[int]] | Callable[[str, int], bool]


class FailingStore(Store):
    """Wraps a store; chosen calls of its methods fail, all others go through.

    Args:
        store: the real one.
        fail_on: which calls fail: the name of a method (every call of it), several names, a mapping
            of a name to the numbers of its calls (1 for the first), or a function
                `(name, number) -> bool`. An asynchronous method has the name of its synchronous twin. A name or number
                that no call has is a ValueError, because nothing would ever fail.
            after: True to let the store act first and lose only the answer, as a cut connection does.
            error: returns the exception to raise.

    Attributes:
        calls: name of every method that was called, in order.
        failed: name of every call that failed, in order.
    """

    def __init__(
        self,
        store: Store,
        fail_on: FailOn = (),
        *,
        after: bool = False,
        error: Callable[[], BaseException] = lambda: OSError("the store cannot be reached"),
    ) -> None:
        self.durable, self.sealed = store.durable, store.sealed
        self.calls: list[str] = []
        self.failed: list[str] = []
        self._store = store
        self._fails = _parse_rule(fail_on)
        self._after = after
        self._error = error
        self._lock = threading.Lock()

    def fail_on(self, rule: FailOn) -> None:
        """Change which calls fail from now on; `()` repairs the store. Numbers go on counting."""
        self._fails = _parse_rule(rule)

    def run(self, operation: Operation[T]) -> T:
        """See `Store.run`. An operation has the name of the method that runs it."""
        return self._run_or_fail(operation.name, lambda: self._store.run(operation))

    async def arun(self, operation: Operation[T]) -> T:
        """See `Store.arun`."""
        return await self._arun_or_fail(operation.name, lambda: self._store.arun(operation))

    def settle_on(self, conn: Any, settlement: Settlement) -> bool:
        """See `Store.settle_on`."""
        return self._run_or_fail("settle_on", lambda: self._store.settle_on(conn, settlement))

    async def asettle_on(self, conn: Any, settlement: Settlement) -> bool:
        """See `Store.asettle_on`."""
        return await self._arun_or_fail("settle_on", lambda: self._store.asettle_on(conn, settlement))

    def record(self, key: str) -> Record | None:
        """See `Store.record`."""
        return self._run_or_fail("record", lambda: self._store.record(key))

    def records(self, query: RecordQuery) -> tuple[Record, ...]:
        """See `Store.records`."""
        return self._run_or_fail("records", lambda: self._store.records(query))

    def load_run(self, run_id: str) -> RunState | None:
        """See `Store.load_run`."""
        return self._run_or_fail("load_run", lambda: self._store.load_run(run_id))

    def approval(self, approval_id: str) -> Approval | None:
        """See `Store.approval`."""
        return self._run_or_fail("approval", lambda: self._store.approval(approval_id))

    def approvals(self) -> tuple[Approval, ...]:
        """See `Store.approvals`."""
        return self._run_or_fail("approvals", self._store.approvals)

    def switches(self) -> tuple[Switch, ...]:
        """See `Store.switches`."""
        return self._run_or_fail("switches", self._store.switches)

    def rates(self) -> tuple[OutputRate, ...]:
        """See `Store.rates`."""
        return self._run_or_fail("rates", self._store.rates)

    def audit(self, *, after: int = 0, limit: int = 1_000) -> tuple[AuditEntry, ...]:
        """See `Store.audit`."""
        return self._run_or_fail("audit", lambda: self._store.audit(after=after, limit=limit))

    def effects(self, wanted: EffectFilter) -> tuple[Record, ...]:
        """See `Store.effects`."""
        return self._run_or_fail("effects", lambda: self._store.effects(wanted))

    def count_effects(self, wanted: EffectFilter) -> int:
        """See `Store.count_effects`."""
        return self._run_or_fail("count_effects", lambda: self._store.count_effects(wanted))

    def waiting_approvals(
        self, now: float, *, after: tuple[float, str] | None = None, limit: int = PAGE
    ) -> tuple[Approval, ...]:
        """See `Store.waiting_approvals`."""
        return self._run_or_fail(
            "waiting_approvals", lambda: self._store.waiting_approvals(now, after=after, limit=limit)
        )

    def audit_lines(self, wanted: AuditFilter) -> tuple[AuditEntry, ...]:
        """See `Store.audit_lines`."""
        return self._run_or_fail("audit_lines", lambda: self._store.audit_lines(wanted))

    def runs(self, wanted: RunFilter) -> tuple[RunEntry, ...]:
        """See `Store.runs`."""
        return self._run_or_fail("runs", lambda: self._store.runs(wanted))

    def overview(self, now: float) -> Overview:
        """See `Store.overview`."""
        return self._run_or_fail("overview", lambda: self._store.overview(now))

    def board(self) -> tuple[tuple[Switch, ...], tuple[OutputRate, ...]]:
        """See `Store.board`."""
        return self._run_or_fail("board", self._store.board)

    def pulse(self, now: float) -> Pulse:
        """See `Store.pulse`."""
        return self._run_or_fail("pulse", lambda: self._store.pulse(now))

    def prune(self, before: float, *, by: str, now: float) -> int:
        """See `Store.prune`."""
        return self._run_or_fail("prune", lambda: self._store.prune(before, by=by, now=now))

    def weaknesses(self) -> tuple[str, ...]:
        """See `Store.weaknesses`."""
        return self._run_or_fail("weaknesses", self._store.weaknesses)

    def close(self) -> None:
        """See `Store.close`."""
        return self._run_or_fail("close", self._store.close)

    def __getattr__(self, name: str) -> Any:
        # Attributes of this kind of store only show through.
        return getattr(self._store, name)

    def _run_or_fail(self, name: str, operation: Callable[[], T]) -> T:
        due = self._must_fail(name)
        if due and not self._after:
            raise self._error()
        result = operation()
        if due:
            raise self._error()
        return result

    async def _arun_or_fail(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        due = self._must_fail(name)
        if due and not self._after:
            raise self._error()
        result = await operation()
        if due:
            raise self._error()
        return result

    def _must_fail(self, name: str) -> bool:
        with self._lock:
            self.calls.append(name)
            due = self._fails(name, self.calls.count(name))
            if due:
                self.failed.append(name)
            return due


def _parse_rule(rule: FailOn) -> Callable[[str, int], bool]:
    if callable(rule):
        return rule
    if isinstance(rule, Mapping):
        told = cast("Mapping[str, Iterable[int]]", rule)
        numbers = {_require_method(name): _require_numbers(name, which) for name, which in told.items()}
        return lambda name, number: number in numbers.get(name, ())
    names = frozenset(map(_require_method, (rule,) if isinstance(rule, str) else rule))
    return lambda name, _: name in names


def _require_method(name: str) -> str:
    method = None if name.startswith("_") else getattr(Store, name, None)
    if inspect.iscoroutinefunction(method):
        raise ValueError(f"{name!r} would never fail: asynchronous calls go by the plain name, {name[1:]!r}")
    if not callable(method) or name == "run":  # an operation has the name of the method that runs it
        raise ValueError(f"no store has a method {name!r} that is called by that name, so it would never fail")
    return name


def _require_numbers(name: str, which: Iterable[int]) -> frozenset[int]:
    if isinstance(which, (str, bytes)) or not isinstance(cast("object", which), Iterable):
        raise ValueError(f"{name!r} needs the numbers of its calls, such as [1, 3], got {which!r}")  # noqa: TRY004 - as all
    numbers: list[object] = [*which]
    for number in numbers:
        if type(number) is not int or number < 1:
            raise ValueError(f"no call of {name!r} has the number {number!r}, so it would never fail: 1 is the first")
    return frozenset(cast("list[int]", numbers))
