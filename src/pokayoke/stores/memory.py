"""The store of `store=None`: everything in this process, behind one lock.

In: operations and queries.
Out: rows as values of the core.
Never: I/O, or a record that is forgotten while the store lives.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, deque
from typing import TypeVar

import msgspec

from pokayoke.core.ledger.admission import AdmissionRequest, Approval, LimitUsage, StoredState, admit
from pokayoke.core.ledger.records import OPEN, Admission, Record, Settlement, SettleResult
from pokayoke.core.ledger.transitions import settle
from pokayoke.core.state.kill_switch import OutputRate, Switch, SwitchState
from pokayoke.core.state.run_state import RunState
from pokayoke.stores.base import Store
from pokayoke.stores.lists import RunEntry, RunFilter, select_runs
from pokayoke.stores.operations import Operation, ReadRows, ReadSet, WriteSet, find_unique, settle_operation
from pokayoke.stores.values import AuditEntry, RecordQuery
from pokayoke.system import register_fork_hooks

T = TypeVar("T")
_MOST_ENTRIES = 10_000
_MOST_RUNS = 100_000


class MemoryStore(Store):
    """Prevents duplicates within one process; `doctor` reports that it cannot do more.

    Records are kept as long as the store lives: deleting one would allow the effect again. Outputs are kept
    up to a limit and the oldest go first; a repeat is then answered without its value. The audit keeps its
    latest 10,000 lines. Of the runs, the 100,000 that changed last are kept: an older one starts its totals
    anew. A run that was stopped or is latched is never forgotten.

    Args:
        max_output_bytes: bytes of recorded outputs to keep.
    """

    durable = False

    def __init__(self, max_output_bytes: int = 8_000_000) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._max_output_bytes = max_output_bytes
        self._output_bytes = 0
        self._with_output: deque[str] = deque()
        self._records: dict[str, Record] = {}
        self._doubtful: dict[str, set[str]] = {}  # the keys in doubt by tool: each counted output needs them
        self._runs: dict[str, RunState] = {}
        self._going_on: OrderedDict[str, None] = OrderedDict()  # a dict takes ever longer to find its first key
        self._used: dict[str, LimitUsage] = {}
        self._approvals: dict[str, Approval] = {}
        self._switches: dict[str, Switch] = {}
        self._rates: dict[str, OutputRate] = {}
        self._flipped: tuple[Switch, ...] = ()
        self._epoch = 0
        self._entries: deque[AuditEntry] = deque(maxlen=_MOST_ENTRIES)
        self._noted = 0
        _stores.add(self)

    def reset_in_child(self) -> None:
        """Replace the lock after a fork: the thread that held it does not exist in the child."""
        self._lock = threading.Lock()

    def run(self, operation: Operation[T]) -> T:
        """Carry out an operation under the lock."""
        with self._lock:
            changes, result = operation.decide(self._read_rows(operation.need))
            self._apply_writes(changes)
        return result

    def admit(self, request: AdmissionRequest) -> Admission:
        """`Store.admit` without an `Operation`: it is on the path of every write."""
        claim, asked = request.claim, request.approval
        with self._lock:
            held = StoredState(
                self._runs.get(request.run_id) or RunState(request.run_id),
                self._records.get(claim.key) if claim is not None else None,
                self._limit_usage(request) if request.charges else {},
                self._approvals.get(asked.fingerprint) if asked is not None else None,
                self._flipped,
                self._epoch,
            )
            kept = admit(request, held)
            if kept.record is not None:
                self._put_record(kept.record)
            if kept.used or kept.approval is not None:
                self._apply_writes(WriteSet(used=kept.used, approval=kept.approval))
        return kept.answer

    def settle(self, settlement: Settlement) -> SettleResult:
        """`Store.settle` without an `Operation`, unless the claim was lost."""
        with self._lock:
            record, accepted = settle(self._records.get(settlement.key), settlement)
            if accepted and record is not None:
                self._put_with_output(record)
                return SettleResult(accepted, record)
        return self.run(settle_operation(settlement))

    def load_run(self, run_id: str) -> RunState | None:
        """Return the state of a run of this process, or None."""
        return self._runs.get(run_id)

    def approvals(self) -> tuple[Approval, ...]:
        """Return all questions, oldest first."""
        with self._lock:
            return tuple(sorted(self._approvals.values(), key=lambda approval: approval.asked_at))

    def switches(self) -> tuple[Switch, ...]:
        """Return every switch that was ever flipped, by scope."""
        with self._lock:
            return tuple(self._switches[scope] for scope in sorted(self._switches))

    def rates(self) -> tuple[OutputRate, ...]:
        """Return the latest outputs of every tool, by name."""
        with self._lock:
            return tuple(self._rates[tool] for tool in sorted(self._rates))

    def record(self, key: str) -> Record | None:
        """Return the ledger record of a key."""
        return self._records.get(key)

    def records(self, query: RecordQuery) -> tuple[Record, ...]:
        """Return records in the order of their keys, without their outputs."""
        with self._lock:
            found = [record for record in self._records.values() if _matches_query(record, query)]
        found.sort(key=lambda record: record.key)
        return tuple(msgspec.structs.replace(record, output=None) for record in found[: query.limit])

    def audit(self, *, after: int = 0, limit: int = 1_000) -> tuple[AuditEntry, ...]:
        """Return audit lines after a number, oldest first."""
        with self._lock:
            return tuple([entry for entry in self._entries if entry.number > after][:limit])

    def runs(self, wanted: RunFilter) -> tuple[RunEntry, ...]:
        """Return a page of the runs, the latest first; a run counts as changed when it was opened."""
        with self._lock:
            found = [RunEntry(state, state.started) for state in self._runs.values()]
        return select_runs(found, wanted)

    def prune(self, before: float, *, by: str, now: float) -> int:
        """Delete what was settled or answered before a wall-clock second. Runs and limits stay with the process."""
        with self._lock:
            old = [key for key, record in self._records.items() if _is_settled_before(record, before)]
            for key in old:
                self._output_bytes -= len(self._records.pop(key).output or b"")
            self._with_output = deque(key for key in self._with_output if key in self._records)
            self._approvals = {
                mark: approval
                for mark, approval in self._approvals.items()
                if (approval.decided_at or approval.expires_at) >= before
            }
            self._append_entry(AuditEntry(now, "pruned", "ledger", by, data={"before": before, "records": len(old)}))
        return len(old)

    def _read_rows(self, need: ReadSet) -> ReadRows:
        approval = None
        if need.fingerprint is not None:
            approval = self._approvals.get(need.fingerprint)
        elif need.approval is not None:
            approval = find_unique(
                [known for known in self._approvals.values() if known.id == need.approval], need.approval
            )
        return ReadRows(
            self._records.get(need.record) if need.record is not None else None,
            self._runs.get(need.run) if need.run is not None else None,
            {name: self._used[name] for name in need.counters if name in self._used},
            approval,
            self._switch_state() if need.board == "all" else SwitchState(switches=self._switches),
        )

    def _limit_usage(self, request: AdmissionRequest) -> dict[str, LimitUsage]:
        return {c.counter: self._used[c.counter] for c in request.charges if c.counter in self._used}

    def _switch_state(self) -> SwitchState:
        doubtful = frozenset(tool for tool, keys in self._doubtful.items() if keys)
        return SwitchState(dict(self._rates), dict(self._switches), doubtful)

    def _apply_writes(self, changes: WriteSet) -> None:
        if changes.record is not None:
            self._put_with_output(changes.record)
        if changes.run is not None:
            self._put_run(changes.run)
        if changes.used:
            self._used.update(changes.used)
        if changes.approval is not None:
            self._approvals[changes.approval.fingerprint] = changes.approval
        if changes.board is not None:
            self._rates.update(changes.board.rates)
            self._switches.update(changes.board.switches)
            self._flipped = tuple(self._switches.values())
            self._epoch = SwitchState(switches=self._switches).epoch
        for entry in changes.entries:
            self._append_entry(entry)

    def _put_record(self, record: Record) -> None:
        self._records[record.key] = record
        if record.state == "in_doubt":
            self._doubtful.setdefault(record.tool, set()).add(record.key)
        elif record.tool in self._doubtful:
            self._doubtful[record.tool].discard(record.key)

    def _put_with_output(self, record: Record) -> None:
        self._put_record(record)
        if record.output is None:
            return
        self._with_output.append(record.key)
        self._output_bytes += len(record.output)
        while self._output_bytes > self._max_output_bytes:
            oldest = self._records[self._with_output.popleft()]
            self._output_bytes -= len(oldest.output or b"")
            self._records[oldest.key] = msgspec.structs.replace(oldest, output=None)

    def _put_run(self, run: RunState) -> None:
        self._runs[run.run_id] = run
        self._going_on.pop(run.run_id, None)
        if run.mode != "stopped" and not run.taints:
            self._going_on[run.run_id] = None
            if len(self._going_on) > _MOST_RUNS:
                oldest, _ = self._going_on.popitem(last=False)
                del self._runs[oldest]

    def _append_entry(self, entry: AuditEntry) -> None:
        self._noted += 1
        self._entries.append(msgspec.structs.replace(entry, number=self._noted))


_stores: weakref.WeakSet[MemoryStore] = weakref.WeakSet()


def _reset_in_child() -> None:
    for store in tuple(_stores):
        store.reset_in_child()


register_fork_hooks(after_in_child=_reset_in_child)


def _matches_query(record: Record, query: RecordQuery) -> bool:
    return (
        (not query.states or record.state in query.states)
        and query.tool in (None, record.tool)
        and query.run_id in (None, record.run_id)
        and (query.since is None or record.claimed_at >= query.since)
        and (query.until is None or record.claimed_at < query.until)
        and (query.after is None or record.key > query.after)
    )


def _is_settled_before(record: Record, before: float) -> bool:
    return record.state not in OPEN and record.settled_at is not None and record.settled_at < before
